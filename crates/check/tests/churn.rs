//! A pool that goes through every dataset operation, checked throughout, and at the end by the real
//! zdb.

use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result};
use check::{Options, Pool, verify};
use dmu::{NewObject, Objset, Tx};
use dsl::NewDataset;
use geom::Provider;
use oracle::Zdb;
use phys::feature;
use phys::{ObjectType, ObjsetType};
use ram::Memory;
use spa::{CreateOptions, Host, NewPool, Settings, Spa};
use vdev::{Grouping, NewDevice, TopSpec, VdevKind};

const NAMES: u64 = 6;
const FILES: u64 = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn create(memory: &Arc<Memory>) -> Spa {
    let device: Arc<dyn Provider> = memory.clone();
    let device = NewDevice {
        kind: VdevKind::File,
        path: "/tmp/churn/d0.img".to_owned(),
        provider: device,
    };
    Spa::create(CreateOptions {
        name: "churn".into(),
        aux: vdev::AuxSpec::default(),
        vdevs: vec![TopSpec::new(Grouping::Single, vec![device])],
        new: NewPool {
            ashift: 12,
            features: feature::kept().collect(),
            ..NewPool::default()
        },
        init_root: Box::new(|_, _| Ok(())),
        command: "zpool create churn".into(),
        host: Host {
            id: 1,
            name: "testhost".into(),
        },
        settings: Settings::default(),
    })
    .expect("a pool")
}

/// Files with different block sizes: tiny, usual, large.
fn init(objset: &Arc<Objset>, tx: &Tx) -> Result<()> {
    for i in 0..FILES {
        let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
            .blksz(512 << (3 * i))
            .ibs(12);
        objset.object_alloc(tx, &new)?;
    }
    Ok(())
}

fn head(random: &mut Random) -> String {
    format!("churn/{}", random.below(NAMES))
}

fn snap(random: &mut Random) -> String {
    format!("{}@{}", head(random), random.below(3))
}

fn write(spa: &Spa, random: &mut Random) -> Result<()> {
    let ds = spa.parts().dsl().dataset(&head(random))?;
    let objset = ds.objset()?;
    let file = objset.hold(ObjectId(1 + random.below(FILES)))?;
    let blksz = file.blksz();
    for _ in 0..1 + random.below(30) {
        let tx = spa.parts().groups().hold_open(1 << 20)?;
        let at = random.below(200) * blksz / 2;
        let len = 1 + random.below(2 * blksz);
        match random.below(6) {
            0 => file.free_range(&tx, at, len * 10)?,
            1 => file.write(&tx, at, &vec![0; len as usize])?,
            2 => file.write(&tx, at, &vec![7; len as usize])?,
            _ => {
                let noise: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                file.write(&tx, at, &noise)?;
            }
        }
    }
    Ok(())
}

fn step(spa: &Spa, random: &mut Random) -> Result<()> {
    let dsl = spa.parts().dsl();
    match random.below(16) {
        0 | 1 => dsl.create_dataset(NewDataset {
            name: head(random),
            type_: ObjsetType::Zfs,
            flags: 0,
            props: Vec::new(),
            init: Box::new(init),
        }),
        2 | 3 => dsl.snapshot(&[&snap(random)], Vec::new()),
        4 => dsl.clone_dataset(&head(random), &snap(random), Vec::new()),
        5 => dsl.promote(&head(random)),
        6 => dsl.rollback(&head(random), None, 0),
        7 => dsl.destroy_snapshots(&[&snap(random)], random.below(2) == 0),
        8 => dsl.destroy_head(&head(random)),
        9 => dsl.rename(&head(random), &head(random)),
        _ => write(spa, random),
    }
}

/// Errors that are expected, since steps are chosen at random.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Exists
            | ErrorKind::NotFound
            | ErrorKind::Busy
            | ErrorKind::NotEmpty
            | ErrorKind::InvalidInput
            | ErrorKind::NoSpace
            | ErrorKind::Quota
    )
}

fn assert_clean(spa: &Spa, after: &str) {
    spa.sync().expect("synced");
    let report = verify(&Pool::of(spa), &Options::default()).expect("the MOS opens");
    assert!(
        report.findings.is_empty(),
        "after {after}: {:#?}",
        report.findings
    );
    assert_eq!(
        report.found_bytes(),
        report.allocated_bytes(),
        "after {after}"
    );
}

fn churn(seed: u64, steps: u64) {
    println!("SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let memory = Arc::new(Memory::new("d0", 256 << 20));
    let spa = create(&memory);
    assert_clean(&spa, "creation");
    let mut done = 0;
    for at in 0..steps {
        match step(&spa, &mut random) {
            Ok(()) => done += 1,
            Err(e) => assert!(is_refusal(e.kind()), "step {at}: {e:?}"),
        }
        if random.below(8) == 0 {
            assert_clean(&spa, &format!("step {at}"));
        }
    }
    assert!(done > steps / 3, "{done} of {steps} steps were possible");
    assert_clean(&spa, "all steps");
    spa.export().expect("exported");
    assert_clean_after(&spa);
    drop(spa);
    if oracle::have_zdb() {
        let folder = tempfile::tempdir().expect("a folder");
        memory.save(&folder.path().join("d0.img")).expect("saved");
        Zdb::verify(folder.path(), "churn").assert_clean();
    }
}

fn assert_clean_after(spa: &Spa) {
    let report = verify(&Pool::of(spa), &Options::default()).expect("the MOS opens");
    assert!(
        report.findings.is_empty(),
        "after export: {:#?}",
        report.findings
    );
}

#[test]
fn churned_pools_stay_clean() {
    if let Some(seed) = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        return churn(seed, 300);
    }
    churn(1, 80);
}

/// The pipeline's gang blocks, checked by the real zdb: all free space is in fragments of 4 KiB
/// when blocks of 128 KiB are written, overwritten, snapshotted and freed.
#[test]
fn slow_gangs_on_a_fragmented_pool_are_clean() {
    let memory = Arc::new(Memory::new("d0", 320 << 20));
    let spa = create(&memory);
    let init = |objset: &Arc<Objset>, tx: &Tx| {
        for blksz in [4 << 10, 128 << 10] {
            let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(blksz);
            objset.object_alloc(tx, &new)?;
        }
        Ok(())
    };
    let new = NewDataset {
        name: "churn/a".into(),
        type_: ObjsetType::Zfs,
        flags: 0,
        props: Vec::new(),
        init: Box::new(init),
    };
    spa.parts().dsl().create_dataset(new).expect("a data set");
    let dataset = spa.parts().dsl().dataset("churn/a").expect("it");
    let objset = dataset.objset().expect("its objset");
    let (crumbs, large) = (objset.hold(ObjectId(1)), objset.hold(ObjectId(2)));
    let (crumbs, large) = (crumbs.expect("a file"), large.expect("a file"));
    let mut random = Random(5);
    let mut noise = |len: u64| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    let mut blocks = 0;
    while spa.space().space - spa.space().alloc > 6 << 20 {
        for _ in 0..512 {
            let tx = spa.parts().groups().hold_open(4096).expect("room");
            crumbs
                .write(&tx, blocks * 4096, &noise(4096))
                .expect("written");
            blocks += 1;
        }
        spa.sync().expect("synced");
    }
    for block in (0..blocks).step_by(2) {
        let tx = spa.parts().groups().hold_open(4096).expect("room");
        crumbs.free_range(&tx, block * 4096, 4096).expect("freed");
    }
    for _ in 0..4 {
        let tx = spa.parts().groups().hold_open(4096).expect("room");
        crumbs.write(&tx, 4096, &noise(4096)).expect("written");
        drop(tx);
        spa.sync().expect("synced");
    }
    for round in 0..3 {
        for block in 0..60 {
            let tx = spa.parts().groups().hold_open(128 << 10).expect("room");
            large
                .write(&tx, block * (128 << 10), &noise(128 << 10))
                .expect("written");
        }
        spa.sync().expect("synced");
        assert_clean(&spa, "gangs");
        if round == 0 {
            spa.parts()
                .dsl()
                .snapshot(&["churn/a@s"], Vec::new())
                .expect("a snapshot");
        }
    }
    let gangs = verify(&Pool::of(&spa), &Options::default())
        .expect("the MOS")
        .stats
        .total()
        .gangs;
    assert!(gangs > 30, "{gangs} gangs");
    spa.parts()
        .dsl()
        .destroy_snapshots(&["churn/a@s"], false)
        .expect("destroyed");
    assert_clean(&spa, "freeing gangs");
    spa.export().expect("exported");
    if oracle::have_zdb() {
        let folder = tempfile::tempdir().expect("a folder");
        memory.save(&folder.path().join("d0.img")).expect("saved");
        Zdb::verify(folder.path(), "churn").assert_clean();
    }
}

#[test]
fn slow_many_churned_pools_stay_clean() {
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    for seed in 100..100 + rounds {
        churn(seed, 300);
    }
}
