//! Devices fail while a txg is written: the pool is suspended, and after they are back and it is resumed,
//! nothing written before is lost.
//!
//! With `CUTS=all` the devices fail at every single write and flush; the default takes a sample.

use std::sync::Arc;

use base::ErrorKind;
use dmu::{OnSuspend, SuspendEvent, SuspendSettings};
use faulty::{Damage, FaultInjector, PowerCut, PowerSupply};
use geom::{Command, Provider, Shape};
use nvpair::NvList;
use phys::PropValue;
use ram::Memory;
use rt::Mutex;
use spa::{Settings, Spa};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::mount::{Mount, init, mount};
use zpl::{Create, NewFilesystem};

const DISK_BYTES: u64 = 128 << 20;
const SAMPLES: u64 = 40;
const SECOND_NS: u64 = 1_000_000_000;
const WAIT: u64 = 0;
const CONTINUE: u64 = 1;
const PANIC: u64 = 2;

struct Bench {
    disks: Vec<Arc<FaultInjector>>,
    spa: Arc<Spa>,
}

impl Bench {
    fn new(layout: Layout, settings: Settings) -> Bench {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as Arc<dyn Provider>;
        Bench::on((0..2).map(disk).collect(), layout, settings)
    }

    fn on(below: Vec<Arc<dyn Provider>>, layout: Layout, settings: Settings) -> Bench {
        let disks: Vec<_> = below
            .into_iter()
            .map(|disk| Arc::new(FaultInjector::new(disk)))
            .collect();
        let providers = providers(&disks);
        let root = init(NewFilesystem::default(), true);
        let spa = pool::create_with("tank", layout, 9, &providers, root, settings).unwrap();
        Bench {
            disks,
            spa: Arc::new(spa),
        }
    }

    fn kill(&self) {
        self.disks.iter().for_each(|disk| disk.kill());
    }

    fn revive(&self) {
        self.disks.iter().for_each(|disk| disk.revive());
    }

    fn fs(&self) -> Mount {
        mount(self.spa.parts().dsl(), "tank", false).unwrap()
    }

    /// A file system with one file, `f`, and no room for more.
    fn full(&self) -> Mount {
        let dsl = self.spa.parts().dsl();
        pool::create_fs(&self.spa, "tank/full", &[("compression", 2)]).unwrap();
        dsl.set_prop("tank/full", "refquota", PropValue::Number(1 << 20))
            .unwrap();
        let full = mount(dsl, "tank/full", false).unwrap();
        let file = full.create_file(full.root(), b"f", &Create::default());
        let file = file.unwrap();
        let noise = Dice::new(1).bytes(1 << 20);
        full.write(file.id, 0, &noise).unwrap();
        self.spa.sync().unwrap();
        let refused = full.write(file.id, 1 << 20, &noise).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Quota);
        full
    }

    fn set_failmode(&self, number: u64) {
        self.spa
            .set_prop("failmode", PropValue::Number(number))
            .unwrap();
    }

    /// Syncs on a thread of its own.
    fn sync(&self) -> rt::JoinHandle<base::Result<base::Txg>> {
        let spa = Arc::clone(&self.spa);
        rt::spawn("sync", move || spa.sync())
    }

    /// Waits until the pool is suspended or `thread` ends; returns whether the pool is suspended.
    fn is_suspended_by<T>(&self, thread: &rt::JoinHandle<T>) -> bool {
        while !thread.is_finished() {
            if self.spa.suspended().is_some() {
                return true;
            }
            rt::sleep_ns(SECOND_NS / 100);
        }
        false
    }
}

fn providers(disks: &[Arc<FaultInjector>]) -> Vec<Arc<dyn Provider>> {
    disks.iter().map(|disk| disk.clone() as _).collect()
}

/// Random steps; the first `dying` devices die after `commands` more writes and flushes each and come back
/// later; the steps go on. Returns whether the pool was suspended at all.
fn fail_after((layout, dying): (Layout, usize), commands: u64, seed: u64) -> bool {
    let bench = Bench::new(layout, pool::settings());
    let mut world = World::default();
    let mut dice = Dice::new(seed);
    for _ in 0..10 {
        world.step(&bench.spa, &mut dice).unwrap();
    }
    for disk in &bench.disks[..dying] {
        disk.kill_after(commands);
    }
    let spa = Arc::clone(&bench.spa);
    let work = rt::spawn("work", move || {
        for _ in 0..6 {
            world.step(&spa, &mut dice).unwrap();
        }
        spa.sync().unwrap();
        (world, dice)
    });
    let was_suspended = bench.is_suspended_by(&work);
    if was_suspended {
        // However long one waits, nothing resumes by itself.
        rt::sleep_ns(100 * SECOND_NS);
        assert!(!work.is_finished());
        bench.revive();
        bench.spa.resume().unwrap();
    }
    let (mut world, mut dice) = work.join();
    bench.revive();
    assert_eq!(bench.spa.suspended(), None);
    world.compare(bench.spa.parts().dsl()).unwrap();
    for _ in 0..4 {
        world.step(&bench.spa, &mut dice).unwrap();
    }
    bench.spa.sync().unwrap();
    pool::assert_clean(&bench.spa);
    bench.spa.export().unwrap();
    let Bench { disks, spa } = bench;
    drop(spa);
    let spa = pool::open(&providers(&disks), false).unwrap();
    world.compare(spa.parts().dsl()).unwrap();
    pool::assert_clean(&spa);
    was_suspended
}

fn fail_everywhere(layout: Layout, dying: usize, seed: u64) {
    let all = std::env::var("CUTS").is_ok_and(|v| v == "all");
    let (mut commands, mut suspensions) = (0, 0);
    while fail_after((layout, dying), commands, seed) {
        suspensions += 1;
        commands += if all { 1 } else { 1 + commands / SAMPLES * 4 };
    }
    eprintln!("{suspensions} suspensions, {commands} commands");
    assert!(suspensions > 10, "{suspensions}");
}

#[test]
fn sim_a_stripe_goes_on_after_a_failure_at_any_write() {
    let seed = seed(21);
    rt::simulate(seed, move || fail_everywhere(Layout::Stripe, 2, seed));
}

#[test]
fn sim_a_stripe_of_which_one_disk_fails_goes_on() {
    let seed = seed(23);
    rt::simulate(seed, move || fail_everywhere(Layout::Stripe, 1, seed));
}

#[test]
fn sim_a_mirror_of_which_both_sides_fail_goes_on_after_a_failure_at_any_write() {
    let seed = seed(22);
    rt::simulate(seed, move || fail_everywhere(Layout::Mirror, 2, seed));
}

#[test]
fn sim_with_failmode_wait_whoever_needs_the_pool_waits() {
    rt::simulate(3, || {
        let bench = Bench::new(Layout::Stripe, pool::settings());
        bench.set_failmode(WAIT);
        let fs = Arc::new(bench.fs());
        let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
        fs.write(file.id, 0, b"before").unwrap();
        bench.kill();
        let sync = bench.sync();
        assert!(bench.is_suspended_by(&sync));
        let theirs = fs.clone();
        let write = rt::spawn("write", move || theirs.write(file.id, 6, b" & after"));
        let theirs = fs.clone();
        let fsync = rt::spawn("fsync", move || theirs.fsync(file.id));
        rt::sleep_ns(100 * SECOND_NS);
        assert!(!write.is_finished() && !fsync.is_finished() && !sync.is_finished());
        // Resumed too early, it is suspended again.
        bench.spa.resume().unwrap();
        rt::sleep_ns(SECOND_NS);
        assert!(bench.spa.suspended().is_some());
        bench.revive();
        bench.spa.resume().unwrap();
        write.join().unwrap();
        fsync.join().unwrap();
        sync.join().unwrap();
        let mut found = vec![0; 14];
        fs.read(file.id, 0, &mut found).unwrap();
        assert_eq!(found, b"before & after");
        bench.spa.sync().unwrap();
        pool::assert_clean(&bench.spa);
    });
}

#[test]
fn sim_with_failmode_continue_writes_have_errors_and_reads_go_on() {
    rt::simulate(4, || {
        let bench = Bench::new(Layout::Stripe, pool::settings());
        bench.set_failmode(CONTINUE);
        let fs = bench.fs();
        let full = bench.full();
        let of_full = full.lookup(full.root(), b"f").unwrap();
        let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
        fs.write(file.id, 0, b"before").unwrap();
        bench.kill();
        let sync = bench.sync();
        assert_eq!(sync.join().unwrap_err().kind(), ErrorKind::Suspended);
        let refused = fs.write(file.id, 0, b"after").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Suspended);
        assert!(refused.to_string().contains("/disk"), "{refused}");
        let refused = full.write(of_full.id, 0, b"more").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Suspended, "{refused}");
        let refused = fs.fsync(file.id).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Suspended);
        let refused = bench.spa.close().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Suspended);
        let mut found = vec![0; 6];
        fs.read(file.id, 0, &mut found).unwrap();
        assert_eq!(found, b"before");
        bench.revive();
        bench.spa.resume().unwrap();
        bench.spa.sync().unwrap();
        fs.write(file.id, 0, b"after!").unwrap();
        fs.fsync(file.id).unwrap();
        fs.read(file.id, 0, &mut found).unwrap();
        assert_eq!(found, b"after!");
        drop(fs);
        bench.spa.sync().unwrap();
        pool::assert_clean(&bench.spa);
        drop(full);
        // It was not closed, so scans continue as well.
        bench.spa.scrub().unwrap();
        let mut slices = 0;
        let is_patient = &mut |_: &phys::ScanPhys| {
            slices += 1;
            slices < 100
        };
        bench.spa.wait_scan(is_patient).unwrap();
        assert_eq!(bench.spa.scan_running(), None);
        bench.spa.close().unwrap();
    });
}

/// A file with one block that is only on the devices, not in the cache.
fn uncached(bench: &Bench) -> (Mount, base::ObjectId) {
    let fs = bench.fs();
    let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
    fs.write(file.id, 0, &[7; 100_000]).unwrap();
    bench.spa.sync().unwrap();
    (fs, file.id)
}

#[test]
fn sim_a_read_waits_for_a_device_that_is_gone_and_not_for_one_that_is_damaged() {
    rt::simulate(5, || {
        let mut settings = pool::settings();
        settings.arc_bytes = 0;
        let bench = Bench::new(Layout::Stripe, settings);
        let (fs, file) = uncached(&bench);
        let fs = Arc::new(fs);
        let read = |fs: &Arc<Mount>| {
            let fs = Arc::clone(fs);
            rt::spawn("read", move || {
                let mut found = vec![0; 100_000];
                fs.read(file, 0, &mut found).map(|_| found)
            })
        };
        bench.kill();
        let waits = read(&fs);
        assert!(bench.is_suspended_by(&waits));
        rt::sleep_ns(100 * SECOND_NS);
        assert!(!waits.is_finished());
        bench.revive();
        bench.spa.resume().unwrap();
        assert_eq!(waits.join().unwrap(), [7; 100_000]);
        for disk in &bench.disks {
            disk.damage(4 << 20..DISK_BYTES, Damage::ReadError);
        }
        let error = read(&fs).join().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(bench.spa.suspended(), None);
        bench.disks.iter().for_each(|disk| disk.heal());
        bench.set_failmode(CONTINUE);
        bench.kill();
        let error = read(&fs).join().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        bench.revive();
    });
}

#[test]
fn sim_a_power_cut_while_suspended_loses_nothing_that_was_promised() {
    let seed = seed(6);
    rt::simulate(seed, move || {
        for commands in 0..30 {
            let cuts: Vec<_> = (0..2)
                .map(|n| Arc::new(PowerCut::new(format!("/disk{n}"), DISK_BYTES)))
                .collect();
            let below = cuts.iter().map(|disk| disk.clone() as _).collect();
            let bench = Bench::on(below, Layout::Stripe, pool::settings());
            let fs = bench.fs();
            let create = |name: &[u8]| {
                let file = fs.create_file(fs.root(), name, &Create::default()).unwrap();
                fs.write(file.id, 0, name).unwrap();
                file.id
            };
            create(b"synced");
            bench.spa.sync().unwrap();
            fs.fsync(create(b"fsynced")).unwrap();
            create(b"neither");
            bench
                .disks
                .iter()
                .for_each(|disk| disk.kill_after(commands));
            let sync = bench.sync();
            if !bench.is_suspended_by(&sync) {
                sync.join().unwrap();
            }
            let images: Vec<Arc<dyn Provider>> = cuts
                .iter()
                .map(|disk| Arc::new(disk.cut(seed ^ commands)) as _)
                .collect();
            let spa = pool::open(&images, false).unwrap();
            let found = mount(spa.parts().dsl(), "tank", false).unwrap();
            for name in ["synced", "fsynced"] {
                let id = found.resolve(name).unwrap();
                let mut content = vec![0; name.len()];
                found.read(id, 0, &mut content).unwrap();
                assert_eq!(content, name.as_bytes());
            }
            drop(found);
            spa.sync().unwrap();
            pool::assert_clean(&spa);
            // Abandoned while suspended: waiting threads end.
            bench.spa.parts().groups().abandon();
            drop(fs);
        }
    });
}

/// The power fails after some writes of a txg were issued twice: the pool is in that txg, or in the one before
/// it.
#[test]
fn sim_a_power_cut_after_a_resume_loses_nothing_that_was_promised() {
    let seed = seed(9);
    rt::simulate(seed, move || {
        for commands in (0..25).step_by(3) {
            let supply = PowerSupply::new();
            let disk = |n| PowerCut::fed_by(&supply, format!("/disk{n}"), DISK_BYTES, 512);
            let cuts: Vec<_> = (0..2).map(|n| Arc::new(disk(n))).collect();
            let below = cuts.iter().map(|disk| disk.clone() as _).collect();
            let bench = Bench::on(below, Layout::Stripe, pool::settings());
            let mut dice = Dice::new(seed ^ commands);
            let mut world = World::default();
            for _ in 0..6 {
                world.step(&bench.spa, &mut dice).unwrap();
            }
            bench.spa.sync().unwrap();
            let before = world.clone();
            let fs = bench.fs();
            let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
            fs.write(file.id, 0, &dice.bytes(300_000)).unwrap();
            fs.fsync(file.id).unwrap();
            for disk in &bench.disks {
                disk.kill_after(commands);
            }
            let sync = bench.sync();
            if bench.is_suspended_by(&sync) {
                bench.revive();
                bench.spa.resume().unwrap();
            }
            let first = supply.commands();
            sync.join().unwrap();
            for n in first..=supply.commands() {
                let images: Vec<Arc<dyn Provider>> = cuts
                    .iter()
                    .map(|disk| Arc::new(disk.image_after(n, seed ^ n)) as _)
                    .collect();
                let spa = pool::open(&images, false).unwrap();
                before.compare(spa.parts().dsl()).unwrap();
                let found = mount(spa.parts().dsl(), "tank", false).unwrap();
                let id = found.resolve("f").unwrap();
                assert_eq!(found.getattr(id).unwrap().size, 300_000);
                drop(found);
                spa.sync().unwrap();
                pool::assert_clean(&spa);
            }
            drop(fs);
        }
    });
}

/// Settings with a callback for suspensions, and the list of events that it receives.
fn listening(mut settings: Settings) -> (Settings, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let theirs = Arc::clone(&heard);
    let hear = move |event: &SuspendEvent<'_>| theirs.lock().push(format!("{event:?}"));
    settings.txg.suspend = SuspendSettings {
        retry_ns: SECOND_NS,
        patience_ns: 30 * SECOND_NS,
        on_suspend: Some(OnSuspend(Arc::new(hear))),
    };
    (settings, heard)
}

/// How many events tell that the pool was suspended, since the last call.
fn failures(spa: &Spa) -> usize {
    let events = spa.take_events();
    let class = "ereport.fs.zfs.io_failure";
    let is_failure = |event: &&NvList| event.get_str("class") == Some(class);
    let failures: Vec<_> = events.iter().filter(is_failure).collect();
    for failure in &failures {
        assert_eq!(failure.get_str("pool_failmode"), Some("wait"));
    }
    failures.len()
}

#[test]
fn sim_a_pool_that_tries_again_goes_on_by_itself_and_has_its_patience() {
    rt::simulate(7, || {
        let (settings, heard) = listening(pool::settings());
        let bench = Bench::new(Layout::Stripe, settings);
        let fs = bench.fs();
        fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
        bench.kill();
        let sync = bench.sync();
        rt::sleep_ns(20 * SECOND_NS);
        assert!(!sync.is_finished());
        bench.revive();
        rt::sleep_ns(2 * SECOND_NS);
        sync.join().unwrap();
        let events = std::mem::take(&mut *heard.lock());
        assert_eq!(events.len(), 2, "{events:#?}");
        assert!(events[0].contains("/disk") && events[1] == "Resumed");
        assert_eq!(failures(&bench.spa), 1);

        fs.create_file(fs.root(), b"g", &Create::default()).unwrap();
        bench.kill();
        let begun = rt::now_ns();
        let error = bench.spa.sync().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Suspended);
        let waited = (rt::now_ns() - begun) / SECOND_NS;
        assert!((30..32).contains(&waited), "{waited} s");
        assert!(bench.spa.resume().is_err(), "it has failed for good");
        bench.revive();
        drop(fs);
        let Bench { disks, spa } = bench;
        drop(spa);
        let spa = pool::open(&providers(&disks), false).unwrap();
        pool::assert_clean(&spa);
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        fs.resolve("f").unwrap();
        assert!(fs.resolve("g").is_err());
    });
}

#[test]
fn sim_with_failmode_panic_the_program_is_told_to_end() {
    rt::simulate(8, || {
        let (settings, heard) = listening(pool::settings());
        let bench = Bench::new(Layout::Stripe, settings);
        bench.set_failmode(PANIC);
        let fs = bench.fs();
        fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
        bench.kill();
        let error = bench.spa.sync().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Suspended);
        assert!(heard.lock()[0].contains("Panic"));
        assert_eq!(failures(&bench.spa), 0, "as in OpenZFS");
        bench.revive();
    });
}

/// One fsync that fails, with the pool suspended before it or by it, and another one after the pool was
/// resumed. Everything that the second one promised is on disk if the power fails at that moment.
fn fsync_again(suspended_before: bool) {
    let supply = PowerSupply::new();
    let disk = Arc::new(PowerCut::fed_by(&supply, "/disk0", DISK_BYTES, 512));
    let bench = Bench::on(vec![disk.clone()], Layout::Stripe, pool::settings());
    bench.set_failmode(CONTINUE);
    let fs = bench.fs();
    let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
    fs.fsync(file.id).unwrap();
    fs.write(file.id, 0, b"first").unwrap();
    bench.kill();
    if suspended_before {
        assert!(bench.sync().join().is_err());
    }
    let refused = fs.fsync(file.id).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Suspended, "{refused}");
    bench.revive();
    bench.spa.resume().unwrap();
    fs.write(file.id, 5, b" and second").unwrap();
    fs.fsync(file.id).unwrap();
    let image: Arc<dyn Provider> = Arc::new(disk.cut(1));
    let spa = pool::open(&[image], false).unwrap();
    let found = mount(spa.parts().dsl(), "tank", false).unwrap();
    let mut content = vec![0; 16];
    let id = found.resolve("f").unwrap();
    found.read(id, 0, &mut content).unwrap();
    assert_eq!(content, b"first and second");
    drop(found);
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    drop(fs);
    bench.spa.close().unwrap();
}

#[test]
fn sim_an_fsync_after_one_that_had_an_error_keeps_its_promise() {
    rt::simulate(10, || fsync_again(false));
    rt::simulate(11, || fsync_again(true));
}

/// A host that may drop unflushed writes when a flush fails.
struct Forgetful(Memory);

impl Provider for Forgetful {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn shape(&self) -> Shape {
        Shape {
            keeps_unflushed: false,
            ..self.0.shape()
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> base::Result<()> {
        self.0.execute(offset, command)
    }
}

#[test]
fn sim_a_flush_that_may_have_lost_writes_is_not_repeated() {
    rt::simulate(12, || {
        let (mut resumed, mut failed) = (0, 0);
        for commands in 0.. {
            let below = Arc::new(Forgetful(Memory::new("/disk0", DISK_BYTES))) as _;
            let bench = Bench::on(vec![below], Layout::Stripe, pool::settings());
            let fs = bench.fs();
            fs.create_file(fs.root(), b"synced", &Create::default())
                .unwrap();
            bench.spa.sync().unwrap();
            fs.create_file(fs.root(), b"not", &Create::default())
                .unwrap();
            bench.disks[0].kill_after(commands);
            let sync = bench.sync();
            let is_suspended = bench.is_suspended_by(&sync);
            bench.revive();
            if is_suspended && !bench.spa.parts().groups().has_failed() {
                bench.spa.resume().unwrap();
                sync.join().unwrap();
                resumed += 1;
            } else if sync.join().is_err() {
                assert!(bench.spa.resume().is_err());
                failed += 1;
            } else {
                break;
            }
            drop(fs);
            let Bench { disks, spa } = bench;
            drop(spa);
            let spa = pool::open(&providers(&disks), false).unwrap();
            let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
            fs.resolve("synced").unwrap();
            drop(fs);
            pool::assert_clean(&spa);
        }
        assert!(resumed > 3 && failed > 1, "{resumed} {failed}");
    });
}

#[test]
fn sim_a_txg_waits_for_the_only_side_of_a_mirror_that_has_what_it_reads() {
    rt::simulate(6, || {
        let mut settings = pool::settings();
        settings.arc_bytes = 0;
        let bench = Bench::new(Layout::Mirror, settings);
        let tree = bench.spa.parts().tree();
        let [first, second] = &bench.disks[..] else {
            panic!("a mirror of two")
        };
        let stale = tree.devices()[1].guid();
        tree.offline(stale, true).unwrap();
        pool::create_fs(&bench.spa, "tank/gone", &[("compression", 2)]).unwrap();
        let fs = mount(bench.spa.parts().dsl(), "tank/gone", false).unwrap();
        let file = fs.create_file(fs.root(), b"f", &Create::default());
        let noise = Dice::new(1).bytes(4 << 20);
        fs.write(file.unwrap().id, 0, &noise).unwrap();
        drop(fs);
        bench.spa.sync().unwrap();
        // It answers, and lacks all of that.
        tree.online(stale, second.clone()).unwrap();
        first.kill();
        let spa = Arc::clone(&bench.spa);
        let destroy = rt::spawn("destroy", move || {
            spa.parts().dsl().destroy_head("tank/gone")?;
            spa.finish_destroys()
        });
        assert!(bench.is_suspended_by(&destroy));
        assert!(!bench.spa.parts().groups().has_failed());
        first.revive();
        bench.spa.resume().unwrap();
        destroy.join().unwrap();
        bench.spa.resilver_if_needed().unwrap();
        bench.spa.sync().unwrap();
        pool::assert_clean(&bench.spa);
    });
}
