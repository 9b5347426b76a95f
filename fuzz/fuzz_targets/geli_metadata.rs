//! Opens an encrypted provider whose last sector holds the input, as it is or with a right checksum;
//! what can be opened with a key that fits is read and written.
#![no_main]

use std::sync::Arc;

use geli::{Components, Eli, MasterKey, Metadata, SetKey, last_sector};
use geom::Provider;
use ram::Memory;
use libfuzzer_sys::fuzz_target;
use md5::{Digest, Md5};

const DISK_BYTES: u64 = 1 << 20;
const ITERATIONS_MAX: i32 = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&pick, input)) = input.split_first() else {
        return;
    };
    let sector_bytes = 512 << (pick & 3);
    let mut sector = vec![0; sector_bytes];
    let len = input.len().min(sector.len());
    sector[..len].copy_from_slice(&input[..len]);
    if pick & 4 == 0 {
        sector[..16].copy_from_slice(b"GEOM::ELI\0\0\0\0\0\0\0");
        sector[20 - 3..20].fill(0);
        let covered = if sector[16] == 0 { 493 } else { 495 };
        let hash = Md5::digest(&sector[..covered]);
        sector[covered..covered + 16].copy_from_slice(&hash);
    }
    let disk = Memory::with_sectors("md0", DISK_BYTES, sector_bytes as u32, 4096);
    let at = last_sector(&disk).expect("it is large enough");
    disk.write(at, &sector).expect("within the disk");
    let Ok(mut metadata) = Metadata::read(&disk) else {
        return;
    };
    assert_eq!(Metadata::decode(&metadata.encode()).ok().as_ref(), Some(&metadata));
    let _ = (metadata.dump(), metadata.flags.names(metadata.version));
    if metadata.iterations > ITERATIONS_MAX {
        return;
    }
    let components = Components {
        keyfiles: vec![vec![7]],
        passphrase: (metadata.iterations >= 0).then(|| b"passphrase".to_vec()),
    };
    let _ = geli::attach(&disk, &metadata, &components, None);
    let key = MasterKey::random();
    if geli::set_key(&mut metadata, (&key, 0), &components, SetKey::default()).is_err() {
        return;
    }
    if pick & 8 == 0 {
        metadata.provsize = DISK_BYTES;
    }
    let disk = Arc::new(disk);
    let Ok(attached) = geli::attach(&*disk, &metadata, &components, Some(0)) else {
        return;
    };
    let Ok(eli) = Eli::open(disk, "md0.eli", &attached) else {
        return;
    };
    let mut sector = vec![pick; eli.sectorsize() as usize];
    let last = eli.mediasize() - sector.len() as u64;
    if eli.write(last, &sector).is_ok() {
        sector.fill(0);
        eli.read(last, &mut sector).expect("what was written");
        assert!(sector.iter().all(|byte| *byte == pick));
    }
});
