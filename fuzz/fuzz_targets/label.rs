//! Reads labels from a device that holds the input: the config as it is and sealed with a right
//! checksum, in the label that the first byte picks; then what import makes of it.
#![no_main]

use std::sync::Arc;

use checksum::embedded;
use geom::Provider;
use ram::Memory;
use libfuzzer_sys::fuzz_target;
use phys::ChecksumType;
use phys::label::{NVLIST_OFFSET, NVLIST_SIZE, label_offset};

const DISK_BYTES: u64 = 8 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&pick, config)) = input.split_first() else {
        return;
    };
    let disk = Arc::new(Memory::new("/disk", DISK_BYTES));
    let offset = label_offset(DISK_BYTES, usize::from(pick & 3)).expect("it is large enough");
    let mut block = vec![0; NVLIST_SIZE as usize];
    let len = config.len().min(block.len());
    block[..len].copy_from_slice(&config[..len]);
    let at = offset + NVLIST_OFFSET;
    if pick & 4 == 0 {
        embedded::set(
            ChecksumType::Label,
            &embedded::label_verifier(at),
            &mut block,
        );
    }
    disk.write(at, &block).expect("within the disk");
    let _ = vdev::label::Labels::read(&*disk);
    let _ = vdev::label::owner(&*disk);
    let disk: Arc<dyn Provider> = disk;
    for pool in vdev::import::discover(&[disk]).pools {
        let _ = pool.health();
    }
});
