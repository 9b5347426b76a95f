//! Drives compared with plain arrays of bytes.

mod faults;
mod model;

use std::path::Path;

use rt::{Condvar, Processor, SimOptions, Work, simulate_with};

use super::*;
use crate::profile::Bus;

/// A drive of 64 MiB: small, so that random commands overlap.
const SIZE: u64 = 64 << 20;

fn small() -> Identity {
    Identity {
        size_bytes: Some(SIZE),
        ..Identity::default()
    }
}

fn wd20ears() -> Arc<Profile> {
    Profile::find("wd20ears").unwrap()
}

fn open(dir: &Path, profile: &Arc<Profile>, seed: u64) -> Arc<Emulated> {
    Emulated::open(dir, "ada0", Arc::clone(profile), &small(), seed).unwrap()
}

/// The same drive with the alignment jumper set.
fn jumpered() -> Arc<Profile> {
    let mut profile = Profile::clone(&wd20ears());
    profile.medium.lba_shift = 1;
    Arc::new(profile)
}

/// The same drive with sectors of 4096 bytes only.
fn native() -> Arc<Profile> {
    let mut profile = Profile::clone(&wd20ears());
    profile.identify.sectors /= 8;
    profile.identify.logical_sector_bytes = 4096;
    profile.identify.physical_sector_bytes = 4096;
    Arc::new(profile)
}

/// Flash whose capacitors save the cache.
fn p4500() -> Arc<Profile> {
    Profile::find("p4500").unwrap()
}

/// The same drive in a USB enclosure.
fn bridged() -> Arc<Profile> {
    let usb = Bus::parse("usb:jms579").unwrap();
    Arc::new(wd20ears().on_bus(usb).unwrap())
}

#[test]
fn sim_what_was_written_comes_back_after_closing() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        for profile in [wd20ears(), jumpered()] {
            let disk = open(dir.path(), &profile, 1);
            disk.write(4096, &[7; 4096]).unwrap();
            disk.execute(1 << 20, geom::Command::Write(&[&[1; 512], &[2; 512]]))
                .unwrap();
            disk.close().unwrap();
            let (_, cached) = disk.stored_bytes();
            drop(disk);
            let disk = open(dir.path(), &profile, 1);
            assert_eq!(disk.stored_bytes().1, cached, "the cache was kept");
            let mut back = [0; 1024];
            disk.read(1 << 20, &mut back).unwrap();
            assert!(back[..512] == [1; 512] && back[512..] == [2; 512]);
            assert_eq!(disk.power_cycles(), 1);
            drop(disk);
            for entry in std::fs::read_dir(dir.path()).unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    });
}

#[test]
fn sim_zeros_take_no_space_and_the_size_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let profile = wd20ears();
        let identity = Identity::default();
        let disk = Emulated::open(dir.path(), "ada0", profile, &identity, 1).unwrap();
        assert_eq!(disk.mediasize(), 3_907_029_168 * 512);
        let zeros = vec![0; 8 << 20];
        for n in 0..128 {
            disk.write(n * zeros.len() as u64, &zeros).unwrap();
        }
        disk.flush().unwrap();
        disk.close().unwrap();
        let used: u64 = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| {
                std::os::unix::fs::MetadataExt::blocks(&entry.unwrap().metadata().unwrap())
            })
            .sum();
        assert!(used * 512 < 1 << 20, "{used} blocks");
    });
}

#[test]
fn sim_geom_sees_what_the_drive_says_and_what_the_lists_know() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let shape = |profile: &Arc<Profile>, has_quirks| {
            let identity = Identity {
                has_quirks,
                ..Identity::default()
            };
            let name = format!("ada{}", rt::random_u64());
            let disk =
                Emulated::open(dir.path(), &name, Arc::clone(profile), &identity, 1).unwrap();
            (disk.sectorsize(), disk.stripesize(), disk.stripeoffset())
        };
        // A liar, whose model the list knows.
        assert_eq!(shape(&wd20ears(), true), (512, 4096, 0));
        assert_eq!(shape(&wd20ears(), false), (512, 512, 0));
        assert_eq!(shape(&native(), true), (4096, 4096, 0));
        let mut honest = Profile::clone(&jumpered());
        honest.identify.physical_sector_bytes = 4096;
        honest.identify.alignment_offset_bytes = 512;
        assert_eq!(shape(&Arc::new(honest), true), (512, 4096, 3584));
    });
}

#[test]
fn sim_a_native_drive_refuses_what_is_not_aligned() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = open(dir.path(), &native(), 1);
        for result in [
            disk.write(512, &[0; 4096]),
            disk.write(4096, &[0; 512]),
            disk.read(2048, &mut [0; 4096]),
            disk.read(SIZE, &mut [0; 4096]),
        ] {
            assert_eq!(result.unwrap_err().kind().errno(), 22);
        }
        disk.write(SIZE - 4096, &[1; 4096]).unwrap();
        assert_eq!(disk.statistics().writes, 1);
    });
}

#[test]
fn sim_a_bridge_hides_the_end_and_a_jumper_shifts_the_bytes() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = open(dir.path(), &bridged(), 1);
        assert_eq!(disk.mediasize(), SIZE - 65_536 * 512);
        assert_eq!(disk.identify().sectors(), SIZE / 512);
        assert!(disk.read(disk.mediasize(), &mut [0; 512]).is_err());
        drop(disk);
        std::fs::remove_file(dir.path().join("ada0.cache")).unwrap();
        let disk = open(dir.path(), &jumpered(), 1);
        assert_eq!(disk.mediasize(), SIZE);
        disk.write(SIZE - 512, &[3; 512]).unwrap();
        disk.flush().unwrap();
        let file = std::fs::read(disk.media_path()).unwrap();
        assert_eq!(file.len() as u64, SIZE + 512);
        assert!(file[file.len() - 512..] == [3; 512]);
    });
}

#[test]
fn sim_a_bridge_shows_larger_sectors_on_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        // One sector of the drive is left over at the end.
        let odd = Identity {
            size_bytes: Some(SIZE + 512),
            ..Identity::default()
        };
        let open = |bus: &str| {
            let profile = wd20ears().on_bus(Bus::parse(bus).unwrap()).unwrap();
            Emulated::open(dir.path(), "ada0", Arc::new(profile), &odd, 1).unwrap()
        };
        let disk = open("usb:asm1051");
        assert_eq!((disk.sectorsize(), disk.mediasize()), (4096, SIZE));
        assert_eq!(
            disk.identify().logical_sector_bytes(),
            512,
            "SAT passes it on"
        );
        let topology = disk.linux_topology();
        assert_eq!(topology.logical_block_size, 4096);
        assert_eq!(topology.physical_block_size, 4096);
        assert!(disk.write(512, &[1; 512]).is_err());
        disk.trace(true);
        disk.write(8192, &[7; 4096]).unwrap();
        let traced = disk.take_trace();
        assert_eq!((traced[0].lba, traced[0].sectors), (16, 8));
        disk.close().unwrap();
        drop(disk);
        let disk = open("sata");
        assert_eq!((disk.sectorsize(), disk.mediasize()), (512, SIZE + 512));
        let mut back = [0; 512];
        disk.read(8192 + 3584, &mut back).unwrap();
        assert_eq!(back, [7; 512]);
    });
}

#[test]
fn sim_a_bridge_that_hides_identify_data_answers_for_the_drive() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let mut honest = Profile::clone(&wd20ears());
        honest.identify.physical_sector_bytes = 4096;
        let hidden = honest.on_bus(Bus::parse("usb:at2").unwrap()).unwrap();
        let disk = Emulated::open(dir.path(), "da0", Arc::new(hidden), &small(), 1).unwrap();
        let says = disk.identify();
        assert!(says.is_hidden());
        assert_eq!(says.model(), "Cypress AT2");
        assert_eq!((disk.sectorsize(), disk.stripesize()), (512, 512));
        assert_eq!((says.rotation_rpm(), says.queue_depth()), (None, 1));
        assert_eq!(disk.linux_topology().physical_block_size, 512);
        let sata = Emulated::open(dir.path(), "ada0", Arc::new(honest), &small(), 1).unwrap();
        assert!(!sata.identify().is_hidden());
        assert_eq!(sata.stripesize(), 4096);
    });
}

#[test]
fn sim_capacitors_save_what_was_acknowledged() {
    for cut in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        rt::simulate(1, || {
            let disk = open(dir.path(), &p4500(), 1);
            for n in 0..20 {
                disk.write(n * 4096, &[n as u8 + 1; 4096]).unwrap();
            }
            disk.power_cut(cut).unwrap();
            disk.power_on();
            for n in 0..20 {
                let mut back = [0; 4096];
                disk.read(n * 4096, &mut back).unwrap();
                assert_eq!(back, [n as u8 + 1; 4096]);
            }
            assert_eq!(disk.power_cycles(), 2);
        });
    }
}

#[test]
fn sim_a_drive_without_a_volatile_cache_is_sent_no_flush() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        for (name, profile, is_sent) in [("nvme", p4500(), false), ("sata", wd20ears(), true)] {
            let disk = Emulated::open(dir.path(), name, profile, &small(), 1).unwrap();
            disk.write(0, &[1; 4096]).unwrap();
            let before = rt::now_ns();
            disk.flush().unwrap();
            assert_eq!(rt::now_ns() > before, is_sent, "{name}");
            assert_eq!(disk.statistics().flushes, u64::from(is_sent), "{name}");
            disk.power_cut(1).unwrap();
            disk.flush().unwrap_err();
        }
    });
}

#[test]
fn sim_queued_commands_overlap_and_tell_their_callers() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(3, || {
        let disk = open(dir.path(), &wd20ears(), 1);
        disk.trace(true);
        let answers = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        for n in 0..8u64 {
            let answers = Arc::clone(&answers);
            disk.submit(Bio {
                op: BioOp::Write(base::Buf::copy_of(&[n as u8 + 1; 4096])),
                offset: n * 4096,
                done: Box::new(move |result| {
                    result.unwrap();
                    answers.0.lock().push((rt::now_ns(), n));
                    answers.1.notify_all();
                }),
            });
        }
        let mut list = answers.0.lock();
        answers.1.wait_while(&mut list, |list| list.len() < 8);
        assert!(list.is_sorted());
        drop(list);
        let trace = disk.take_trace();
        assert_eq!(trace.len(), 8);
        assert!(
            trace
                .iter()
                .all(|entry| entry.done_ns.is_some() && entry.partial == 0)
        );
        assert_eq!(trace[7].depth, 8);
        let mut back = [0; 512];
        disk.read(3 * 4096, &mut back).unwrap();
        assert_eq!(back, [4; 512]);
        let refused = Arc::new(Mutex::new(None));
        let answer = Arc::clone(&refused);
        disk.submit(Bio {
            op: BioOp::Read { len: 512 },
            offset: SIZE,
            done: Box::new(move |result| *answer.lock() = Some(result.map(drop))),
        });
        assert!(refused.lock().take().unwrap().is_err());
    });
}

#[test]
fn sim_many_threads_wait_for_one_drive() {
    let run = |seed| {
        let dir = tempfile::tempdir().unwrap();
        rt::simulate(seed, || {
            let disk = open(dir.path(), &wd20ears(), seed);
            let threads: Vec<_> = (0..6u64)
                .map(|n| {
                    let disk = Arc::clone(&disk);
                    rt::spawn(&format!("t{n}"), move || {
                        for turn in 0..20u64 {
                            let at = (n * 64 + turn) * 4096;
                            disk.write(at, &[n as u8 + 1; 4096]).unwrap();
                            let mut back = [0; 4096];
                            disk.read(at, &mut back).unwrap();
                            assert_eq!(back, [n as u8 + 1; 4096]);
                        }
                        disk.flush().unwrap();
                    })
                })
                .collect();
            threads.into_iter().for_each(rt::JoinHandle::join);
            rt::now_ns()
        })
    };
    assert_eq!(run(5), run(5), "times follow from the seed");
    assert!(run(5) > 0);
}

/// MB/s of `drives` that are read in order at the same time, each by a thread, behind a bus of `bus` MB/s.
fn rate_behind_a_bus(drives: usize, bus: u64) -> f64 {
    const BYTES: u64 = 32 << 20;
    let mut options = SimOptions::new(1);
    options.processor = Processor::new(1).with(Work::Transfer, 1_000_000 / bus);
    let took_ns = simulate_with(options, || {
        let dir = tempfile::tempdir().unwrap();
        let threads: Vec<_> = (0..drives)
            .map(|n| {
                let name = format!("ada{n}");
                let drive =
                    Emulated::open(dir.path(), &name, wd20ears(), &small(), n as u64).unwrap();
                rt::spawn("reader", move || {
                    let mut buf = vec![0; 128 << 10];
                    for at in (0..BYTES).step_by(buf.len()) {
                        drive.read(at, &mut buf).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join());
        rt::now_ns()
    });
    (BYTES * drives as u64) as f64 * 1e3 / took_ns as f64
}

#[test]
fn a_bus_bounds_what_drives_read_together_and_not_one_that_is_slower() {
    let own = rate_behind_a_bus(1, 1_000_000);
    for bus in [(own * 1.2) as u64, (own * 1.7) as u64] {
        assert!((rate_behind_a_bus(1, bus) / own - 1.0).abs() < 0.02);
        for drives in [2, 3] {
            let rate = rate_behind_a_bus(drives, bus);
            assert!(
                rate <= 1.01 * bus as f64 && rate > 0.8 * bus as f64,
                "{drives} drives, bus of {bus} MB/s: {rate} MB/s"
            );
        }
    }
    let apart = rate_behind_a_bus(3, 1_000_000);
    assert!(
        (apart / own / 3.0 - 1.0).abs() < 0.02,
        "{apart}, {own} each"
    );
}

#[test]
fn partial_sectors_are_counted_where_the_medium_has_them() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        for (profile, offset, len, partial) in [
            (wd20ears(), 0, 4096, 0),
            (wd20ears(), 0, 512, 1),
            (wd20ears(), 512, 4096, 2),
            (wd20ears(), 512, 1024, 1),
            (wd20ears(), 3584, 512, 1),
            (wd20ears(), 3584, 4608, 1),
            (jumpered(), 0, 4096, 2),
            (jumpered(), 3584, 4096, 0),
        ] {
            let dir = tempfile::tempdir_in(dir.path()).unwrap();
            let disk = open(dir.path(), &profile, 1);
            disk.trace(true);
            disk.write(offset, &vec![0; len]).unwrap();
            assert_eq!(disk.take_trace()[0].partial, partial, "{len} at {offset}");
        }
    });
}

#[test]
fn real_time_takes_as_long_as_the_drive() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), &wd20ears(), 1);
    let start = rt::now_ns();
    disk.write(0, &[1; 4096]).unwrap();
    disk.flush().unwrap();
    let waited = rt::now_ns() - start;
    let statistics = disk.statistics();
    assert_eq!((statistics.writes, statistics.flushes), (1, 1));
    assert!(
        waited >= statistics.latency_ns,
        "{waited} ns, {statistics:?}"
    );
    let mut back = [0; 512];
    disk.read(512, &mut back).unwrap();
    assert_eq!(back, [1; 512]);
}

#[test]
fn what_a_drive_does_is_counted_since_it_was_switched_on() {
    let dir = tempfile::tempdir().unwrap();
    let act = |disk: &Emulated| {
        disk.write(0, &[1; 8192]).unwrap();
        disk.flush().unwrap();
        disk.read(1 << 20, &mut [0; 4096]).unwrap();
    };
    let first = rt::simulate(1, || {
        rt::sleep_ns(1_000_000_000);
        let disk = open(dir.path(), &wd20ears(), 1);
        let began_ns = rt::now_ns();
        act(&disk);
        let busy_ns = rt::now_ns() - began_ns;
        rt::sleep_ns(5_000_000_000);
        let seen = disk.activity();
        let counts = &seen.statistics;
        assert_eq!(
            (counts.reads, counts.writes, counts.flushes),
            (1, 1, 1),
            "{counts:?}"
        );
        assert_eq!((counts.read_bytes, counts.write_bytes), (4096, 8192));
        let parts_ns = counts.read_ns + counts.write_ns + counts.flush_ns + counts.trim_ns;
        assert_eq!(parts_ns, counts.latency_ns);
        // One at a time: the drive had something to do as long as it was waited for.
        assert_eq!(counts.occupied_until(seen.now_ns), counts.latency_ns);
        assert!(counts.latency_ns <= busy_ns && counts.read_ns > 1_000_000);
        assert_eq!(
            (seen.on_at_ns, seen.now_ns - busy_ns),
            (began_ns, 6_000_000_000)
        );
        disk.close().unwrap();
        seen
    });
    rt::simulate(2, || {
        let disk = open(dir.path(), &wd20ears(), 1);
        assert_eq!(disk.activity(), first, "it was not switched off");
        // Far from what it has read ahead.
        let offset = 48 << 20;
        let done = Box::new(|result: Result<BioData>| drop(result.unwrap()));
        let op = BioOp::Read { len: 4096 };
        disk.submit(Bio { op, offset, done });
        rt::sleep_ns(100_000);
        let seen = disk.activity();
        assert_eq!(seen.statistics.queue_length, 1);
        let more_ns = seen.statistics.occupied_until(seen.now_ns) - first.statistics.occupied_ns;
        assert_eq!(more_ns, 100_000, "it is still at it");
        rt::sleep_ns(1_000_000_000);
        assert_eq!(disk.activity().statistics.queue_length, 0);
        disk.power_cut(1).unwrap();
        disk.power_on();
        let seen = disk.activity();
        assert_eq!(seen.on_at_ns, seen.now_ns);
        assert_eq!(seen.statistics, Statistics::default());
        assert_eq!(disk.statistics().reads, 2, "in its life");
    });
}

#[test]
fn files_that_no_drive_wrote_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = open(dir.path(), &wd20ears(), 1);
        disk.write(0, &[1; 512]).unwrap();
        disk.close().unwrap();
        drop(disk);
        let path = dir.path().join("ada0.cache");
        let good = std::fs::read(&path).unwrap();
        let profile = wd20ears();
        let open = || Emulated::open(dir.path(), "ada0", Arc::clone(&profile), &small(), 1);
        for bad in [&good[..20], b"", b"{}\n", b"\xff\xff\n"] {
            std::fs::write(&path, bad).unwrap();
            let error = open().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains("ada0.cache"), "{error}");
        }
        std::fs::write(&path, &good).unwrap();
        open().unwrap();
        let state = dir.path().join("ada0.state");
        let text = std::fs::read_to_string(&state).unwrap();
        let field = text.lines().find(|line| line.contains("now_ns")).unwrap();
        let later = format!("  \"now_ns\": {},", u64::MAX);
        for bad in ["", "[]", &text.replace(field, &later)] {
            std::fs::write(&state, bad).unwrap();
            let error = open().map(drop).unwrap_err();
            assert!(error.to_string().contains("ada0.state"), "{error}");
        }
        std::fs::write(&state, &text).unwrap();
        std::fs::write(dir.path().join("ada0.faults"), "{\"faults\": 3}").unwrap();
        let error = open().map(drop).unwrap_err();
        assert!(error.to_string().contains("ada0.faults"), "{error}");
    });
}
