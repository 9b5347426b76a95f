//! Faults, and that the right bytes are preserved.

use super::*;
use crate::fault::{Cause, Rule};

fn with_pattern(dir: &Path) -> Arc<Emulated> {
    let disk = open(dir, &wd20ears(), 1);
    let bytes: Vec<u8> = (0..64 * 512).map(|n| (n / 512) as u8 + 1).collect();
    disk.write(0, &bytes).unwrap();
    disk.flush().unwrap();
    disk
}

fn sector(disk: &Emulated, lba: u64) -> Result<[u8; 512]> {
    let mut bytes = [0; 512];
    disk.read(lba * 512, &mut bytes).map(|()| bytes)
}

fn pristine(disk: &Emulated, lba: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    disk.read_pristine(lba * 512, &mut bytes).unwrap();
    bytes
}

#[test]
fn sim_damaged_sectors_fail_or_lie_until_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = with_pattern(dir.path());
        disk.add_fault(Fault::Unreadable {
            lba: 10,
            sectors: 3,
        })
        .unwrap();
        disk.add_fault(Fault::Flipped {
            lba: 20,
            sectors: 2,
            seed: 5,
        })
        .unwrap();
        assert_eq!(sector(&disk, 11).unwrap_err().kind(), ErrorKind::Io);
        assert!(disk.read(0, &mut [0; 64 * 512]).is_err());
        assert_eq!(sector(&disk, 13).unwrap(), [14; 512]);
        let flipped = sector(&disk, 20).unwrap();
        let bits: u32 = flipped.iter().map(|byte| (byte ^ 21).count_ones()).sum();
        assert_eq!(bits, 1);
        assert_eq!(sector(&disk, 20).unwrap(), flipped, "the same each time");
        assert_eq!(
            (pristine(&disk, 11), pristine(&disk, 20)),
            ([12; 512], [21; 512])
        );
        // In the middle: two parts remain.
        disk.write(11 * 512, &[99; 512]).unwrap();
        assert_eq!(sector(&disk, 11).unwrap(), [99; 512], "from the cache");
        disk.flush().unwrap();
        assert_eq!(sector(&disk, 11).unwrap(), [99; 512], "from the medium");
        assert!(sector(&disk, 10).is_err() && sector(&disk, 12).is_err());
        assert_eq!(disk.faults().len(), 3);
        disk.close().unwrap();
        drop(disk);
        let disk = open(dir.path(), &wd20ears(), 1);
        assert_eq!(sector(&disk, 20).unwrap(), flipped);
        for (id, _) in disk.faults() {
            disk.remove_fault(id).unwrap();
        }
        assert_eq!(sector(&disk, 12).unwrap(), [13; 512]);
        assert_eq!(sector(&disk, 20).unwrap(), [21; 512]);
        assert_eq!(
            disk.remove_fault(1).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn sim_lost_and_misdirected_writes_leave_wrong_bytes_and_the_right_ones() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = with_pattern(dir.path());
        let rule = Rule {
            lba: 0,
            sectors: 8,
            one_in: 1,
            count: 1,
            seed: 3,
        };
        disk.add_fault(Fault::LoseWrites(rule)).unwrap();
        disk.write(0, &[77; 1024]).unwrap();
        disk.flush().unwrap();
        assert_eq!(
            (sector(&disk, 0).unwrap(), pristine(&disk, 0)),
            ([1; 512], [77; 512])
        );
        let wrong = Fault::Wrong {
            lba: 0,
            sectors: 2,
            cause: Cause::LostWrite,
        };
        assert_eq!(
            disk.faults()
                .into_iter()
                .map(|(_, f)| f)
                .collect::<Vec<_>>(),
            [wrong]
        );
        disk.write(512, &[78; 512]).unwrap();
        disk.flush().unwrap();
        assert_eq!(sector(&disk, 1).unwrap(), [78; 512], "the rule is over");
        disk.add_fault(Fault::MisdirectWrites(rule)).unwrap();
        disk.write(2 * 512, &[80; 512]).unwrap();
        disk.flush().unwrap();
        assert_eq!(
            (sector(&disk, 2).unwrap(), pristine(&disk, 2)),
            ([3; 512], [80; 512])
        );
        let landed: Vec<u64> = (0..64)
            .filter(|n| sector(&disk, *n).unwrap() == [80; 512])
            .collect();
        assert_eq!(landed.len(), 1);
        assert_ne!(pristine(&disk, landed[0]), [80; 512]);
        disk.close().unwrap();
        drop(disk);
        let disk = open(dir.path(), &wd20ears(), 1);
        assert_eq!(sector(&disk, landed[0]).unwrap(), [80; 512]);
        for (id, _) in disk.faults() {
            disk.remove_fault(id).unwrap();
        }
        assert_eq!(sector(&disk, 0).unwrap(), [77; 512]);
        assert_eq!(sector(&disk, 2).unwrap(), [80; 512]);
        assert_eq!(
            sector(&disk, landed[0]).unwrap(),
            pristine(&disk, landed[0])
        );
    });
}

#[test]
fn sim_a_drive_dies_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = with_pattern(dir.path());
        let now = rt::now_ns();
        let dead = Fault::Dead {
            from_ns: now + 1000,
            until_ns: Some(now + 5000),
        };
        let id = disk.add_fault(dead).unwrap();
        rt::sleep_ns(1000);
        for result in [
            disk.write(0, &[1; 512]),
            disk.flush(),
            sector(&disk, 0).map(drop),
        ] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Io);
        }
        rt::sleep_ns(4000);
        assert_eq!(sector(&disk, 5).unwrap(), [6; 512]);
        assert!(disk.remove_fault(id).is_ok());
        disk.add_fault(Fault::Unwritable { lba: 4, sectors: 1 })
            .unwrap();
        assert!(disk.write(0, &[1; 4096]).is_err());
        disk.write(0, &[1; 2048]).unwrap();
        let error = disk.add_fault(Fault::Unreadable {
            lba: SIZE / 512,
            sectors: 1,
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn sim_a_slow_drive_takes_longer_for_each_command_until_it_is_well() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = with_pattern(dir.path());
        let second = 1_000_000_000;
        let now = rt::now_ns();
        let slow = Fault::Slow {
            from_ns: now,
            until_ns: Some(now + 60 * second),
            by_ns: 40 * second,
        };
        disk.add_fault(slow).unwrap();
        assert_eq!(sector(&disk, 5).unwrap(), [6; 512]);
        let took = rt::now_ns() - now;
        assert!((40 * second..41 * second).contains(&took), "{took}");
        let answer = Arc::new(rt::OneShot::default());
        let theirs = Arc::clone(&answer);
        disk.submit(Bio {
            op: BioOp::Read { len: 512 },
            offset: 0,
            done: Box::new(move |result| theirs.give(result.map(drop))),
        });
        answer.take().unwrap();
        let took = rt::now_ns() - now;
        assert!((80 * second..81 * second).contains(&took), "{took}");
        disk.write(0, &[7; 512]).unwrap();
        assert!(rt::now_ns() - now < 81 * second);
    });
}

#[test]
fn sim_scattered_faults_follow_from_the_seed_and_hit_what_is_there() {
    let places = |seed| {
        let dir = tempfile::tempdir().unwrap();
        rt::simulate(1, || {
            let disk = with_pattern(dir.path());
            let make = |lba, _| Fault::Unreadable { lba, sectors: 1 };
            disk.scatter_faults(5, seed, make).unwrap();
            disk.faults()
                .iter()
                .map(|(_, f)| f.range().unwrap().start)
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(places(1), places(1));
    assert_ne!(places(1), places(2));
    assert!(places(1).iter().all(|lba| *lba < 64));
}

#[test]
fn sim_a_full_host_loses_nothing_that_was_taken() {
    let dir = tempfile::tempdir().unwrap();
    rt::simulate(1, || {
        let disk = open(dir.path(), &wd20ears(), 1);
        disk.write(0, &[1; 4096]).unwrap();
        disk.state.lock().media.fill_host();
        disk.write(4096, &[2; 4096]).unwrap();
        assert_eq!(disk.flush().unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(
            disk.write(0, &[3; 4096]).unwrap_err().kind(),
            ErrorKind::NoSpace
        );
        assert_eq!(sector(&disk, 8).unwrap(), [2; 512], "it can be read");
        disk.close().unwrap();
        drop(disk);
        let disk = open(dir.path(), &wd20ears(), 1);
        assert_eq!(sector(&disk, 8).unwrap(), [2; 512]);
        disk.flush().unwrap();
        disk.abandon();
        drop(disk);
        let disk = open(dir.path(), &wd20ears(), 1);
        assert_eq!(sector(&disk, 8).unwrap(), [2; 512]);
    });
}

#[test]
fn sim_a_power_cut_while_a_sector_is_rewritten_ruins_its_neighbours() {
    let (mut ruined, mut spared) = (0, 0);
    for cut in 0..60u64 {
        let dir = tempfile::tempdir().unwrap();
        rt::simulate(1, || {
            let disk = with_pattern(dir.path());
            // Every other sector: each physical one is written in part.
            for n in 0..32 {
                disk.write(n * 1024, &[200; 512]).unwrap();
            }
            rt::sleep_ns(3_000_000 + cut * 1_000_000);
            disk.power_cut(cut).unwrap();
            disk.power_on();
            let mut now = 0;
            for lba in 0..64 {
                let old = [lba as u8 + 1; 512];
                match sector(&disk, lba) {
                    Ok(bytes) if lba % 2 == 1 => assert_eq!(bytes, old),
                    Ok(bytes) => assert!(bytes == [200; 512] || bytes == old),
                    // It was not written; the right bytes are still known.
                    Err(_) if lba % 2 == 1 => {
                        assert_eq!(pristine(&disk, lba), old);
                        now += 1;
                    }
                    Err(_) => {}
                }
            }
            assert!(now % 4 == 0, "whole physical sectors: {now} neighbours");
            assert_eq!(now == 0, disk.faults().is_empty());
            ruined += u32::from(now > 0);
            spared += u32::from(now == 0);
        });
    }
    assert!(
        ruined > 0 && spared > 0,
        "{ruined} cuts ruined something, {spared} did not"
    );
}
