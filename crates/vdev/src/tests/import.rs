//! Pools found again, whole and in parts.

use super::*;
use crate::import::discover;
use ram::Memory;

fn disks(count: u64) -> Vec<Arc<dyn Provider>> {
    (0..count)
        .map(|n| Arc::new(Memory::new(format!("/md{n}"), DISK_BYTES)) as _)
        .collect()
}

/// Two mirrors of two.
fn two_mirrors(disks: &[Arc<dyn Provider>]) -> Arc<VdevTree> {
    let side = |n: usize| leaf(101 + n as u64, disks[n].clone());
    let tops = vec![
        mirror(201, vec![side(0), side(1)]),
        mirror(202, vec![side(2), side(3)]),
    ];
    tree(tops)
}

#[test]
fn a_pool_is_put_together_from_its_labels() {
    let mut disks = disks(5);
    let tree = two_mirrors(&disks);
    sync(&tree, 10).unwrap();
    disks.reverse();
    let found = discover(&disks);
    let [pool] = &found.pools[..] else { panic!() };
    assert_eq!(
        (&*pool.name, pool.guid, pool.state),
        ("tank", super::pool().guid, PoolState::Active)
    );
    assert_eq!((pool.hostid, &*pool.hostname), (0xa5a5, "here"));
    assert_eq!(pool.uberblock.unwrap().txg(), Txg(10));
    assert_eq!(pool.health(), (VdevState::Healthy, VdevAux::None));
    let opened = pool.open(&pool.config, true).unwrap();
    assert_eq!(opened.guid_sum(), tree.guid_sum());
    assert_eq!(
        opened.root().generate_config(0, 0, Target::Label),
        tree.root().generate_config(0, 0, Target::Label)
    );
    assert!(
        opened
            .devices()
            .iter()
            .all(|device| !device.leaf().has_dtl())
    );
}

#[test]
fn missing_devices_degrade_or_fault_the_pool() {
    let disks = disks(4);
    sync(&two_mirrors(&disks), 10).unwrap();
    let health = |have: &[usize]| {
        let some: Vec<_> = have.iter().map(|n| disks[*n].clone()).collect();
        discover(&some).pools[0].health()
    };
    assert_eq!(health(&[0, 1, 2]), (VdevState::Degraded, VdevAux::None));
    assert_eq!(health(&[1, 2]), (VdevState::Degraded, VdevAux::None));
    assert_eq!(health(&[0, 1]), (VdevState::CantOpen, VdevAux::NoReplicas));
    let found = discover(&[disks[2].clone()]);
    let opened = found.pools[0].open(&found.pools[0].config, false).unwrap();
    let kinds: Vec<_> = opened.tops().iter().map(|top| top.kind()).collect();
    assert_eq!(kinds, [VdevKind::Missing, VdevKind::Mirror]);
    let gone = opened.find(Guid(104)).unwrap();
    assert_eq!(gone.state(), (VdevState::CantOpen, VdevAux::OpenFailed));
    assert!(!gone.config().not_present);
    assert!(opened.mark_absent() && gone.config().not_present && !opened.mark_absent());
}

#[test]
fn a_stale_side_knows_what_it_missed() {
    let disks = disks(2);
    let tree = mirror_tree(&disks);
    for txg in 10..15 {
        sync(&tree, txg).unwrap();
    }
    tree.offline(Guid(101), true).unwrap();
    for txg in 15..20 {
        sync(&tree, txg).unwrap();
    }
    let found = discover(&disks);
    let pool = &found.pools[0];
    assert_eq!(pool.uberblock.unwrap().txg(), Txg(19));
    assert_eq!(pool.config.get_u64("txg"), Some(19));
    let opened = pool.open(&pool.config, true).unwrap();
    let devices = opened.devices();
    assert_eq!(gaps(&devices[0]), [(15, 20)]);
    assert!(!devices[1].leaf().has_dtl());
    assert!(devices[0].leaf().missed(Txg(17)) && !devices[0].leaf().missed(Txg(14)));
}

#[test]
fn two_pools_and_a_spare_do_not_mix() {
    let disks = disks(3);
    sync(&mirror_tree(&disks[..1]), 10).unwrap();
    let other = PoolConfig {
        name: "other".into(),
        guid: Guid(77),
        ..pool()
    };
    let tree = mirror_tree(&disks[1..2]);
    let ub = uberblock(12);
    let labels = LabelSync {
        pool: &other,
        txg: Txg(12),
        uberblock: &ub,
        dirty: &[VdevId(0)],
        multihost: true,
    };
    tree.sync_labels(&labels).unwrap();
    let spare = leaf(300, disks[2].clone());
    spare.write_aux_labels(5000, PoolState::Spare).unwrap();
    let found = discover(&disks);
    let names: Vec<_> = found.pools.iter().map(|pool| &*pool.name).collect();
    assert_eq!(names, ["other", "tank"]);
    assert_eq!(
        found
            .spares
            .iter()
            .map(|(guid, _)| guid.0)
            .collect::<Vec<_>>(),
        [300]
    );
    assert!(found.caches.is_empty());
}

#[test]
fn holes_keep_their_numbers() {
    let disks = disks(2);
    let hole = Vdev::new(VdevKind::Hole, Guid(0), VdevConfig::default(), Vec::new());
    let tops = vec![
        as_top(leaf(101, disks[0].clone()), 12),
        hole,
        as_top(leaf(102, disks[1].clone()), 12),
    ];
    sync(&tree(tops), 10).unwrap();
    let found = discover(&disks);
    let opened = found.pools[0].open(&found.pools[0].config, true).unwrap();
    let kinds: Vec<_> = opened.tops().iter().map(|top| top.kind()).collect();
    assert_eq!(kinds, [VdevKind::File, VdevKind::Hole, VdevKind::File]);
    assert_eq!(opened.state().0, VdevState::Healthy);
}

#[test]
fn a_device_of_another_pool_in_a_known_path_is_refused() {
    let disks = disks(2);
    let tree = mirror_tree(&disks);
    sync(&tree, 10).unwrap();
    crate::label::clear(&*disks[1]).unwrap();
    tree.validate_devices(pool().guid, Txg(u64::MAX));
    let states: Vec<_> = tree.devices().iter().map(|device| device.state()).collect();
    assert_eq!(states[0].0, VdevState::Healthy);
    assert_eq!(states[1], (VdevState::CantOpen, VdevAux::BadLabel));
    tree.validate_devices(Guid(5), Txg(u64::MAX));
    assert_eq!(
        tree.devices()[0].state(),
        (VdevState::CantOpen, VdevAux::CorruptData)
    );
}

#[test]
fn devices_are_opened_again_for_writing_and_busy_ones_stop_it() {
    let disks = disks(2);
    sync(&mirror_tree(&disks), 10).unwrap();
    let found = discover(&disks);
    let pool = &found.pools[0];
    let open = |kind| {
        let fails = |device: &crate::import::FoundDevice| {
            if device.guid == Guid(101) {
                return Err(base::Error::new(kind, "no"));
            }
            Ok(device.provider.clone())
        };
        pool.open_with(&pool.config, true, &fails)
    };
    assert_eq!(
        open(base::ErrorKind::Busy).err().unwrap().kind(),
        base::ErrorKind::Busy
    );
    assert_eq!(
        open(base::ErrorKind::Io).unwrap().state().0,
        VdevState::Degraded
    );
}
