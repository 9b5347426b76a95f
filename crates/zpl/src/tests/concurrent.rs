//! Several threads on one tree while txgs sync, in simulated time: under every interleaving that a seed
//! produces, all threads end and leave a sound tree.

use std::sync::Arc;

use base::{Buf, ObjectId, Result, Txg};
use phys::BlkPtrPhys;
use ram::RamStore;
use zio::{BlockStore, Bookmark, WriteRequest};

use super::random::Random;
use super::{Pool, check_tree, create};
use crate::{Filesystem, RenameKind, SetAttr, SetXattr, Settings};

/// A store in which every operation takes a while, so that other threads run in between.
struct Slow(RamStore);

impl BlockStore for Slow {
    fn read(&self, bp: &BlkPtrPhys, bookmark: &Bookmark) -> Result<Buf> {
        rt::sleep_ns(rt::random_below(1000));
        self.0.read(bp, bookmark)
    }

    fn write_batch(&self, txg: Txg, requests: Vec<WriteRequest>) -> Result<Vec<BlkPtrPhys>> {
        rt::sleep_ns(rt::random_below(1000));
        let bps = self.0.write_batch(txg, requests);
        rt::sleep_ns(rt::random_below(1000));
        bps
    }

    fn free(&self, txg: Txg, bp: &BlkPtrPhys) {
        self.0.free(txg, bp);
    }
}

/// Random operations on few names; whether they work does not matter.
fn work(fs: &Filesystem, directories: &[ObjectId], random: &mut Random, ops: usize) {
    for _ in 0..ops {
        let [dir, other] = [random.pick(directories), random.pick(directories)];
        let name = format!("name{}", random.below(6)).into_bytes();
        let new_name = format!("name{}", random.below(6)).into_bytes();
        let found = fs.lookup(dir, &name).map(|attr| attr.id);
        let data = random.bytes(3000);
        let _ = match random.below(12) {
            0..2 => fs.create_file(dir, &name, &create(0o644)).map(|_| ()),
            2 => fs.mkdir(dir, &name, &create(0o755)).map(|_| ()),
            3 => fs.unlink(dir, &name),
            4 => fs.rmdir(dir, &name),
            5 => fs.rename(dir, &name, other, &new_name, RenameKind::Replace),
            6 => fs.rename(dir, &name, other, &new_name, RenameKind::Exchange),
            7 => found
                .and_then(|id| fs.link(id, other, &new_name))
                .map(|_| ()),
            8 => found.and_then(|id| fs.write(id, 1000, &data)),
            9 => found.and_then(|id| fs.setxattr(id, &name, &data, SetXattr::Set)),
            10 => found.and_then(|id| {
                let set = SetAttr {
                    mode: Some(0o600),
                    size: Some(7),
                    ..SetAttr::default()
                };
                fs.setattr(id, &set).map(|_| ())
            }),
            _ => found.and_then(|id| {
                fs.hold(id)?;
                fs.read(id, 0, &mut [0; 5000]).ok();
                fs.rele(id, 1)
            }),
        };
    }
}

fn run(seed: u64) {
    rt::simulate(seed, || {
        let store = Arc::new(Slow(RamStore::new()));
        let pool = Pool::on(
            store,
            super::props(),
            Settings::default(),
            Arc::new(crate::NoLog),
        );
        let fs = pool.mount();
        let mut directories = vec![fs.root()];
        for name in [b"a", b"b", b"c"] {
            let parent = directories[directories.len() - 1];
            directories.push(fs.mkdir(parent, name, &create(0o755)).unwrap().id);
        }
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (fs, directories): (Arc<Filesystem>, _) = (fs.clone(), directories.clone());
                let mut random = Random::new(seed * 10 + number);
                rt::spawn("worker", move || work(&fs, &directories, &mut random, 60))
            })
            .collect();
        for _ in 0..5 {
            rt::sleep_ns(3_000);
            pool.sync();
        }
        for thread in threads {
            thread.join();
        }
        check_tree(&fs);
        let fs = pool.remount(fs);
        check_tree(&fs);
        pool.groups.stop().unwrap();
    });
}

#[test]
fn sim_threads_leave_a_sound_tree() {
    let mut random = Random::from_env();
    for _ in 0..super::random::ops(20_000) / 1000 {
        run(random.next() >> 8);
    }
}
