//! Reads, lists, changes, recovers and writes partition tables: the input as the ends of a disk, or
//! as the fields and entries of a GPT with right sums.
#![no_main]

use geom::Provider;
use ram::Memory;
use libfuzzer_sys::fuzz_target;

const SECTORS: u64 = 256;
const FIELDS: usize = 6;

fuzz_target!(|input: &[u8]| {
    let Some((&pick, rest)) = input.split_first() else {
        return;
    };
    let sectorsize = if pick & 1 == 0 { 512 } else { 4096 };
    let bytes = SECTORS * u64::from(sectorsize);
    let disk = Memory::with_sectors("ada0", bytes, sectorsize, 4096);
    if pick & 2 == 0 {
        let half = rest.len() / 2;
        let padded = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.truncate((SECTORS / 2) as usize * sectorsize as usize);
            bytes.resize(bytes.len().next_multiple_of(sectorsize as usize), 0);
            bytes
        };
        let (head, tail) = (padded(&rest[..half]), padded(&rest[half..]));
        let at = bytes - tail.len() as u64;
        disk.write(0, &head).expect("within the disk");
        disk.write(at, &tail).expect("within the disk");
        let mut boot = vec![0; sectorsize as usize];
        disk.read(0, &mut boot).expect("within the disk");
        boot[510..512].copy_from_slice(&[0x55, 0xaa]);
        if pick & 4 == 0 {
            boot[450] = 0xee;
        }
        disk.write(0, &boot).expect("within the disk");
    } else {
        let (fields, entries) = rest.split_at(rest.len().min(FIELDS * 8));
        let fields: Vec<u64> = fields
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect();
        gpart::fuzzing::nonsense(&disk, &fields, entries);
    }
    gpart::fuzzing::survive(&disk);
});
