//! Labels, written, damaged, and cut off in the middle.

use super::*;
use crate::label::{self, Labels, clear, owner};
use base::ErrorKind;
use faulty::{PowerCut, PowerSupply};
use ram::Memory;

fn memory(n: u64) -> Arc<Memory> {
    Arc::new(Memory::new(format!("/md{n}"), DISK_BYTES + 4096 * n))
}

fn txgs(labels: &Labels) -> Vec<u64> {
    labels
        .readable()
        .map(|l| l.valid_config().map_or(0, |c| c.get_u64("txg").unwrap()))
        .collect()
}

#[test]
fn four_good_labels_and_a_ring_come_back() {
    for ashift in [9, 12, 13, 16] {
        let disk = memory(ashift as u64);
        let tree = tree(vec![as_top(leaf(101, disk.clone()), ashift)]);
        tree.prepare_devices().unwrap();
        for txg in 4..60 {
            sync(&tree, txg).unwrap();
        }
        let labels = Labels::read(&*disk).unwrap();
        assert_eq!(txgs(&labels), [59; 4]);
        let slots = phys::label::uberblock_count(ashift).min(56);
        for label in labels.readable() {
            assert_eq!(label.ring.len() as u64, slots, "ashift {ashift}");
            for ring_slot in &label.ring {
                let txg = ring_slot.uberblock.txg().0;
                assert_eq!(ring_slot.slot, txg % phys::label::uberblock_count(ashift));
            }
        }
        assert_eq!(labels.best_uberblock(Txg(u64::MAX)).unwrap().txg(), Txg(59));
        assert_eq!(labels.best_uberblock(Txg(57)).unwrap().txg(), Txg(57));
        let config = labels.best_config(Txg(u64::MAX)).unwrap();
        assert_eq!(config.get_u64("guid"), Some(101));
        assert_eq!(
            config.get_list("vdev_tree").unwrap().get_u64("ashift"),
            Some(ashift.into())
        );
        assert_eq!(labels.agreeing(config), 4);
        assert!(labels.best_config(Txg(58)).is_none());
    }
}

#[test]
fn labels_at_a_new_end_have_the_uberblocks_in_the_same_slots() {
    let disk = memory(0);
    let vdev = leaf(101, disk.clone());
    let tree = tree(vec![as_top(vdev.clone(), 12)]);
    tree.prepare_devices().unwrap();
    for txg in 4..70 {
        sync(&tree, txg).unwrap();
    }
    // With multihost, the last slot has the heartbeat, and txgs wrap around before it.
    let slots = phys::label::uberblock_count(12) - 1;
    let mut labels = Labels::read(&*disk).unwrap();
    for label in labels.0.iter_mut().flatten() {
        for slot in &mut label.ring {
            slot.slot = (slot.uberblock.txg().0 + 1) % slots;
        }
        label
            .ring
            .retain(|slot| slot.uberblock.txg().0 > 69 - slots);
    }
    label::renew_end(vdev.leaf(), &labels, 12).unwrap();
    let renewed = Labels::read(&*disk).unwrap();
    let ring = |labels: &Labels, index: usize| {
        let ring = &labels.0[index].as_ref().unwrap().ring;
        let txgs = ring.iter().map(|slot| (slot.slot, slot.uberblock.txg()));
        txgs.collect::<std::collections::BTreeSet<_>>()
    };
    for index in [2, 3] {
        assert_eq!(ring(&renewed, index), ring(&labels, 0), "label {index}");
    }
}

#[test]
fn a_label_in_the_wrong_place_or_with_a_flipped_bit_does_not_count() {
    let disk = memory(0);
    let tree = tree(vec![as_top(leaf(101, disk.clone()), 9)]);
    sync(&tree, 10).unwrap();
    // Label 0 is copied over label 1; one bit of label 2's nvlist flips; its ring stays.
    let mut label = vec![0; 256 << 10];
    disk.read(0, &mut label).unwrap();
    disk.write(256 << 10, &label).unwrap();
    let at = DISK_BYTES - (512 << 10) + (16 << 10);
    let mut sector = [0; 512];
    disk.read(at, &mut sector).unwrap();
    sector[100] ^= 1;
    disk.write(at, &sector).unwrap();
    let labels = Labels::read(&*disk).unwrap();
    let good: Vec<_> = labels
        .readable()
        .map(|label| label.checksum.is_ok())
        .collect();
    assert_eq!(good, [true, false, false, true]);
    let rings: Vec<_> = labels.readable().map(|label| label.ring.len()).collect();
    assert_eq!(rings, [1, 0, 1, 1]);
    // The nvlist of label 1 can still be shown.
    assert!(labels.readable().nth(1).unwrap().config.is_ok());
}

#[test]
fn owners_are_told_and_forgotten() {
    let disk = memory(0);
    assert_eq!(owner(&*disk), None);
    let tree = tree(vec![as_top(leaf(101, disk.clone()), 9)]);
    tree.prepare_devices().unwrap();
    assert_eq!(owner(&*disk), None);
    sync(&tree, 10).unwrap();
    let found = owner(&*disk).unwrap();
    assert_eq!((found.state, &*found.pool), (PoolState::Active, "tank"));
    assert_eq!((found.pool_guid, found.guid), (pool().guid, Guid(101)));
    clear(&*disk).unwrap();
    assert_eq!(owner(&*disk), None);
    assert!(
        Labels::read(&*disk)
            .unwrap()
            .best_uberblock(Txg(u64::MAX))
            .is_none()
    );
    assert_eq!(clear(&*disk).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn prepared_devices_keep_no_uberblock_of_a_former_pool() {
    let disk = memory(0);
    let tree = tree(vec![as_top(leaf(101, disk.clone()), 9)]);
    sync(&tree, 1000).unwrap();
    tree.prepare_devices().unwrap();
    sync(&tree, 4).unwrap();
    let labels = Labels::read(&*disk).unwrap();
    assert_eq!(labels.best_uberblock(Txg(u64::MAX)).unwrap().txg(), Txg(4));
}

#[test]
fn labels_that_do_not_fit_are_refused() {
    let disk = memory(0);
    let tree = tree(vec![as_top(leaf(101, disk), 9)]);
    let mut pool = pool();
    pool.comment = Some("x".repeat(120 << 10));
    let ub = uberblock(10);
    let error = tree
        .sync_labels(&LabelSync {
            pool: &pool,
            txg: Txg(10),
            uberblock: &ub,
            dirty: &[VdevId(0)],
            multihost: false,
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameTooLong);
}

#[test]
fn noise_is_no_label_and_no_panic() {
    let disk: Arc<dyn Provider> = memory(0);
    let mut random = 1u64;
    for round in 0..20 {
        let tree = tree(vec![as_top(leaf(101, disk.clone()), 9)]);
        sync(&tree, 10 + round).unwrap();
        for _ in 0..200 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
            let at = (random >> 33) % 2048 * 512;
            let at = if at < 512 << 10 {
                at
            } else {
                DISK_BYTES - (1 << 20) + at
            };
            let mut sector = [0; 512];
            disk.read(at, &mut sector).unwrap();
            sector[(random >> 20) as usize % 512] ^= (random >> 8) as u8;
            disk.write(at, &sector).unwrap();
        }
        let _ = Labels::read(&*disk).unwrap().best_config(Txg(u64::MAX));
        let found = crate::import::discover(std::slice::from_ref(&disk));
        for pool in &found.pools {
            let _ = pool.health();
        }
    }
}

#[test]
fn one_dead_side_does_not_stop_a_sync_and_all_dead_do() {
    let disks: Vec<_> = (0..2)
        .map(|n| Arc::new(faulty::FaultInjector::new(memory(n))))
        .collect();
    let providers: Vec<_> = disks
        .iter()
        .map(|disk| disk.clone() as Arc<dyn Provider>)
        .collect();
    let tree = mirror_tree(&providers);
    sync(&tree, 10).unwrap();
    disks[0].kill();
    sync(&tree, 11).unwrap();
    disks[1].kill();
    assert_eq!(sync(&tree, 12).unwrap_err().kind(), ErrorKind::Io);
    disks.iter().for_each(|disk| disk.revive());
    let best = |n: usize| {
        Labels::read(&*disks[n])
            .unwrap()
            .best_uberblock(Txg(99))
            .unwrap()
            .txg()
    };
    assert_eq!((best(0), best(1)), (Txg(10), Txg(11)));
}

/// The crash argument of `sync_labels`, tried at every command and with many ways to lose writes.
#[test]
fn sim_after_a_power_cut_config_and_uberblock_agree() {
    let first: u64 = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    println!("SEED={first}");
    rt::simulate(first, || cut_power_at_every_command(first));
}

fn cut_power_at_every_command(first: u64) {
    let supply = PowerSupply::new();
    let disks: Vec<_> = (0..2)
        .map(|n| {
            Arc::new(PowerCut::fed_by(
                &supply,
                format!("/pc{n}"),
                DISK_BYTES,
                512,
            ))
        })
        .collect();
    let providers: Vec<_> = disks
        .iter()
        .map(|disk| disk.clone() as Arc<dyn Provider>)
        .collect();
    let tree = mirror_tree(&providers);
    tree.prepare_devices().unwrap();
    let mut ends = Vec::new();
    sync(&tree, 10).unwrap();
    disks.iter().for_each(|disk| disk.forget());
    for txg in 10..13 {
        if txg > 10 {
            sync(&tree, txg).unwrap();
        }
        ends.push((supply.commands(), txg));
    }
    for n in ends[0].0..=supply.commands() {
        let synced = ends.iter().rev().find(|(end, _)| *end <= n).unwrap().1;
        for seed in first..first + 12 {
            let images: Vec<Arc<dyn Provider>> = disks
                .iter()
                .zip(0..)
                .map(|(disk, k)| Arc::new(disk.image_after(n, seed * 2 + k)) as _)
                .collect();
            let found = crate::import::discover(&images);
            let [pool] = &found.pools[..] else {
                panic!("{} pools", found.pools.len())
            };
            let best = pool.uberblock.unwrap().txg().0;
            let context = format!("after command {n}, seed {seed}: uberblock {best}");
            assert!(
                best == synced || best == synced + 1,
                "{context}, {synced} was synced"
            );
            let config_txg = pool.config.get_u64("txg").unwrap();
            assert!(config_txg <= best, "{context}: config of {config_txg}");
            assert_eq!(config_txg, best, "{context}: every txg wrote labels");
            assert!(pool.health().0.is_usable(), "{context}");
        }
    }
}
