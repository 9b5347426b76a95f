//! Multihost: a pool that one host has open is not imported by another, even with force; a pool that no host
//! has open is.

use phys::PropValue;
use std::sync::Arc;

use base::ErrorKind;
use faulty::FaultInjector;
use geom::Provider;
use phys::uberblock::UberblockPhys;
use ram::Memory;
use spa::{Host, ImportOptions, Spa, activity_check_ns};
use torture::golden::golden;
use torture::pool::{self, Layout};
use vdev::import::{FoundPool, discover};

const SECOND_NS: u64 = 1_000_000_000;

fn disks() -> Vec<Arc<dyn Provider>> {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), 64 << 20)) as Arc<dyn Provider>;
    (0..2).map(disk).collect()
}

fn new_pool(devices: &[Arc<dyn Provider>]) -> Spa {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    pool::create("tank", Layout::Mirror, 9, devices, root).unwrap()
}

fn found(devices: &[Arc<dyn Provider>]) -> FoundPool {
    discover(devices).pools.remove(0)
}

fn best(devices: &[Arc<dyn Provider>]) -> UberblockPhys {
    found(devices).uberblock.unwrap()
}

/// Another host imports with force.
fn take(devices: &[Arc<dyn Provider>], hostid: u64) -> base::Result<Spa> {
    Spa::import(ImportOptions {
        found: found(devices),
        new_name: None,
        readonly: false,
        max_txg: None,
        force: true,
        gives_up_logs: false,
        tolerates_missing: false,
        rewinds: false,
        host: Host {
            id: hostid,
            name: "other".into(),
        },
        settings: pool::settings(),
    })
}

fn set_multihost(spa: &Spa, number: u64) {
    spa.set_prop("multihost", PropValue::Number(number))
        .unwrap();
}

#[test]
fn sim_a_pool_in_use_has_a_heartbeat_and_is_not_taken() {
    rt::simulate(1, || {
        let devices = disks();
        let spa = new_pool(&devices);
        assert_eq!(best(&devices).mmp_delay.get(), 0);
        assert_eq!(
            activity_check_ns(&found(&devices), 7),
            None,
            "multihost is off"
        );
        set_multihost(&spa, 1);
        let before = best(&devices);
        assert!(before.mmp_delay.get() > 0);
        rt::sleep_ns(5 * SECOND_NS);
        let after = best(&devices);
        assert_eq!(after.txg(), before.txg(), "nothing but the heartbeat");
        assert!(after.timestamp.get() >= before.timestamp.get() + 4);
        assert_eq!(
            activity_check_ns(&found(&devices), pool::host().id),
            None,
            "our own"
        );
        let begun = rt::now_ns();
        let error = take(&devices, 7).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Permission);
        let text = error.to_string();
        assert!(
            text.contains("pool is imported on host 'torture' (hostid=bab10c)"),
            "{text}"
        );
        assert!(rt::now_ns() - begun <= 3 * SECOND_NS, "seen at once");
        let error = take(&devices, 0).err().unwrap();
        assert!(error.to_string().contains("hostid is not set"), "{error}");
        // With multihost off there is no heartbeat.
        set_multihost(&spa, 0);
        assert_eq!(best(&devices).mmp_delay.get(), 0);
        spa.export().unwrap();
    });
}

#[test]
fn sim_a_pool_that_nobody_has_is_taken_after_a_while() {
    rt::simulate(2, || {
        let devices = disks();
        let spa = new_pool(&devices);
        set_multihost(&spa, 1);
        // Closed without an export, as by a host that has gone away.
        spa.close().unwrap();
        drop(spa);
        let begun = rt::now_ns();
        let spa = take(&devices, 7).unwrap();
        let waited = (rt::now_ns() - begun) / SECOND_NS;
        assert!((20..=26).contains(&waited), "{waited} s");
        rt::sleep_ns(3 * SECOND_NS);
        assert!(take(&devices, 8).is_err(), "the new host has a heartbeat");
        spa.export().unwrap();
        drop(spa);
        let begun = rt::now_ns();
        let spa = take(&devices, 8).unwrap();
        assert!(rt::now_ns() - begun < SECOND_NS, "it was exported");
        pool::assert_clean(&spa);
    });
}

/// Also while the expansion waits for a child that is gone.
#[test]
fn sim_a_pool_whose_raidz_is_expanded_is_not_taken() {
    rt::simulate(4, || {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), 96 << 20)) as Arc<dyn Provider>;
        let last = Arc::new(FaultInjector::new(disk(3)));
        let mut devices: Vec<Arc<dyn Provider>> = (0..3).map(disk).collect();
        let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
        let mut settings = pool::settings();
        settings.reflow_max_bytes = 64 << 10;
        settings.scan.blocks_max = 40;
        let layout = Layout::Raidz(1);
        let spa = pool::create_with("tank", layout, 12, &devices, root, settings).unwrap();
        set_multihost(&spa, 1);
        pool::write_file(&spa, "tank", "file", &torture::Dice::new(4).bytes(40 << 20));
        devices.push(last.clone());
        let new = vdev::NewDevice {
            kind: vdev::VdevKind::Disk,
            path: last.name().to_owned(),
            provider: last.clone(),
        };
        let top = spa.parts().tree().tops()[0].guid();
        spa.widen(top, &new, (0, vdev::AutoAshift::default()))
            .unwrap();
        while spa.uberblock().reflow_offset() == 0 {
            spa.sync().unwrap();
        }
        spa.sync().unwrap();
        last.kill();
        spa.sync().unwrap();
        assert!(spa.parts().tree().expanding().is_some(), "it waits");
        let error = take(&devices, 7).err().unwrap();
        assert!(error.to_string().contains("pool is imported"), "{error}");
    });
}

#[test]
fn sim_without_a_heartbeat_nothing_is_written() {
    rt::simulate(3, || {
        let disk = Arc::new(FaultInjector::new(Arc::new(Memory::new(
            "/disk0",
            64 << 20,
        ))));
        let devices = [disk.clone() as Arc<dyn Provider>];
        let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
        let spa = pool::create("tank", Layout::Stripe, 9, &devices, root).unwrap();
        set_multihost(&spa, 1);
        disk.kill();
        rt::sleep_ns(15 * SECOND_NS);
        let why = spa.suspended().unwrap();
        assert!(why.contains("heartbeat"), "{why}");
    });
}

#[test]
fn a_pool_of_openzfs_with_multihost_is_written_to() {
    let devices = [golden("openzfs-2.3.2-multihost")];
    let spa = pool::open(&devices, false).unwrap();
    assert!(spa.multihost() && !spa.is_readonly());
    pool::create_fs(&spa, "tank/new", &[]).unwrap();
    spa.sync().unwrap();
    assert!(best(&devices).mmp_delay.get() > 0);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    pool::assert_clean(&spa);
}
