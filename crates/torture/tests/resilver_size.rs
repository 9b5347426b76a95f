//! How much a resilver reads, and how much a pool reads when it is opened: what changed and the metadata above it,
//! however much else there is. `RESILVER_GIB=100`: in a pool of 100 GiB.
//!
//! The data are zeros that are stored as blocks, and a disk in memory keeps none of them.

use std::sync::Arc;

use base::Result;
use geom::Provider;
use phys::scan::DSS_FINISHED;
use ram::Memory;
use spa::Spa;
use torture::Dice;
use torture::pool::{self, Layout};
use zpl::Create;
use zpl::mount::{Mount, mount};

const FILES: u64 = 8;
const RECORD_BYTES: u64 = 1 << 20;
/// One record in a hundred changes.
const CHANGED: u64 = 100;
/// `ZIO_COMPRESS_OFF`
const COMPRESS_OFF: u64 = 2;

fn gib() -> u64 {
    let gib = std::env::var("RESILVER_GIB").ok();
    gib.map_or(1, |gib| gib.parse().expect("RESILVER_GIB is a number"))
}

fn name(file: u64) -> Vec<u8> {
    format!("file{file}").into_bytes()
}

/// Fills each file with records of zeros.
fn fill(fs: &Mount, records: u64) -> Result<()> {
    let zeros = vec![0; RECORD_BYTES as usize];
    for file in 0..FILES {
        let id = fs
            .create_file(fs.root(), &name(file), &Create::default())?
            .id;
        for record in 0..records {
            fs.write(id, record * RECORD_BYTES, &zeros)?;
        }
    }
    Ok(())
}

/// Overwrites records here and there; returns their bytes.
fn change(fs: &Mount, records: u64) -> Result<u64> {
    let mut dice = Dice::new(7);
    let ones = vec![1; RECORD_BYTES as usize];
    let count = (FILES * records / CHANGED).max(1);
    for _ in 0..count {
        let file = fs.lookup(fs.root(), &name(dice.below(FILES)))?.id;
        fs.write(file, dice.below(records) * RECORD_BYTES, &ones)?;
    }
    Ok(count * RECORD_BYTES)
}

fn read_bytes(spa: &Spa) -> u64 {
    spa.parts().tree().root().io_counts().read_bytes()
}

#[test]
fn a_resilver_reads_what_changed_and_a_pool_opens_at_once() {
    let bytes = gib() << 30;
    let records = bytes / RECORD_BYTES / FILES;
    let disk = |n| {
        Arc::new(Memory::new(
            format!("/disk{n}"),
            bytes + bytes / 4 + (1 << 30),
        ))
    };
    let devices: Vec<Arc<dyn Provider>> = (0..2).map(|n| disk(n) as _).collect();
    let init = Box::new(|_: &_, _: &_| Ok(()));
    let settings = pool::settings();
    let spa = pool::create_with("tank", Layout::Mirror, 12, &devices, init, settings).unwrap();
    let props = [("recordsize", RECORD_BYTES), ("compression", COMPRESS_OFF)];
    pool::create_fs(&spa, "tank/fs", &props).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    fill(&fs, records).unwrap();
    drop(fs);
    spa.sync().unwrap();
    assert!(spa.space().alloc >= bytes, "the zeros are stored");
    let guid = spa.parts().tree().devices()[1].guid();
    spa.parts().tree().offline(guid, true).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let changed = change(&fs, records).unwrap();
    drop(fs);
    spa.sync().unwrap();
    spa.parts().tree().online(guid, devices[1].clone()).unwrap();
    let before = read_bytes(&spa);
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let read = read_bytes(&spa) - before;
    let scan = spa.scan().unwrap();
    assert_eq!((scan.state.get(), scan.errors.get()), (DSS_FINISHED, 0));
    assert!(!spa.parts().tree().devices()[1].leaf().has_dtl());
    let resilvered = scan.processed.get();
    eprintln!("{bytes} bytes, {changed} changed, {read} read, {resilvered} resilvered");
    // Blocks of metadata, of which indirect blocks of 1 MiB records are a ten-thousandth.
    let metadata = changed / 20 + (8 << 20);
    assert!(
        resilvered >= changed / 2 && read <= changed + metadata,
        "{read} read"
    );
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    let opened = read_bytes(&spa);
    eprintln!("{opened} bytes read to open it");
    assert!(opened < 16 << 20, "{opened} bytes read to open it");
    spa.export().unwrap();
}
