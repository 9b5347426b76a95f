//! Random commands, closes, crashes and power cuts, compared with a model that knows the legal contents of each
//! sector.

use proptest::prelude::*;
use rt::Condvar;

use super::*;
use crate::fault::Fault;

/// Random sequences per run of the tests.
const CASES: u32 = 100;
/// The sectors that the model's commands touch: few, so that they overlap.
const SECTORS: u64 = 400;

#[derive(Clone, Debug)]
enum Step {
    Write {
        lba: u64,
        sectors: u64,
        fill: u8,
        fua: bool,
        queued: bool,
    },
    Read {
        lba: u64,
        sectors: u64,
        queued: bool,
    },
    Flush,
    /// Ignored on a drive that has no such command.
    Trim {
        lba: u64,
        sectors: u64,
    },
    Wait {
        us: u64,
    },
    Reopen,
    Crash,
    PowerCut {
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let lba = || 0..SECTORS;
    let sectors = || prop_oneof![1u64..4, 1u64..40];
    prop_oneof![
        8 => (lba(), sectors(), 0u8..4, prop::bool::weighted(0.1), any::<bool>()).prop_map(
            |(lba, sectors, fill, fua, queued)| Step::Write { lba, sectors, fill, fua, queued }
        ),
        5 => (lba(), sectors(), any::<bool>())
            .prop_map(|(lba, sectors, queued)| Step::Read { lba, sectors, queued }),
        1 => Just(Step::Flush),
        1 => (lba(), sectors()).prop_map(|(lba, sectors)| Step::Trim { lba, sectors }),
        1 => (0u64..30_000).prop_map(|us| Step::Wait { us }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
        1 => any::<u64>().prop_map(|seed| Step::PowerCut { seed }),
    ]
}

/// The legal contents of a sector.
#[derive(Clone, Debug)]
struct Sector {
    /// What it holds now.
    now: u8,
    /// What a loss of power may leave: what was flushed, and everything since.
    legal: Vec<u8>,
    /// A power cut ruined it.
    is_ruined: bool,
    /// It was ruined when everything was flushed last: what has mended it since may be lost.
    was_ruined: bool,
}

struct Model {
    sectors: Vec<Sector>,
    per_physical: u64,
    shift: u64,
    /// Written since the last flush as part of a physical sector.
    partly: std::collections::BTreeSet<u64>,
}

impl Model {
    fn new(profile: &Profile) -> Model {
        let sector = Sector {
            now: 0,
            legal: vec![0],
            is_ruined: false,
            was_ruined: false,
        };
        Model {
            sectors: vec![sector; (SECTORS + 64) as usize],
            per_physical: profile.sectors_per_physical(),
            shift: profile.medium.lba_shift,
            partly: std::collections::BTreeSet::new(),
        }
    }

    fn range(&mut self, lba: u64, sectors: u64) -> &mut [Sector] {
        &mut self.sectors[lba as usize..(lba + sectors) as usize]
    }

    fn write(&mut self, lba: u64, sectors: u64, fill: u8, fua: bool) {
        for sector in self.range(lba, sectors) {
            sector.now = fill;
            sector.is_ruined = false;
            if fua {
                sector.legal.clear();
                sector.was_ruined = false;
            }
            sector.legal.push(fill);
        }
        for edge in [lba + self.shift, lba + sectors + self.shift] {
            if edge % self.per_physical != 0 {
                self.partly.insert(edge / self.per_physical);
            }
        }
    }

    fn flush(&mut self) {
        for sector in &mut self.sectors {
            sector.legal = vec![sector.now];
            sector.was_ruined = sector.is_ruined;
        }
        self.partly.clear();
    }

    /// Compares everything with the drive after a loss of power, and continues from what is there.
    fn settle(&mut self, disk: &Emulated) -> Result<(), TestCaseError> {
        let ruined: Vec<_> = disk
            .faults()
            .iter()
            .filter(|(_, fault)| matches!(fault, Fault::Unreadable { .. }))
            .filter_map(|(_, fault)| fault.range())
            .collect();
        let size = u64::from(disk.sectorsize());
        for (lba, sector) in (0u64..).zip(&mut self.sectors) {
            let mut bytes = vec![9; size as usize];
            let medium_lba = lba + self.shift;
            let was_ruined = sector.was_ruined || sector.is_ruined;
            sector.is_ruined = ruined.iter().any(|range| range.contains(&medium_lba));
            let result = disk.read(lba * size, &mut bytes);
            prop_assert_eq!(result.is_err(), sector.is_ruined, "sector {}", lba);
            if sector.is_ruined {
                let physical = medium_lba / self.per_physical;
                let has_reason = was_ruined || self.partly.contains(&physical);
                prop_assert!(has_reason, "sector {} is ruined for no reason", lba);
                disk.read_pristine(lba * size, &mut bytes).unwrap();
            }
            let got = bytes[0];
            prop_assert!(
                bytes.iter().all(|byte| *byte == got),
                "sector {} is torn",
                lba
            );
            prop_assert!(
                sector.legal.contains(&got),
                "sector {}: {} {:?}",
                lba,
                got,
                sector
            );
            sector.now = got;
            sector.was_ruined |= sector.is_ruined;
        }
        // A program that dies before it has changed anything leaves the cache file valid.
        if disk.stored_bytes().1 == 0 {
            self.flush();
        }
        Ok(())
    }
}

fn submit_and_wait(disk: &Emulated, op: BioOp, offset: u64) -> Result<BioData> {
    let answer = Arc::new((Mutex::new(None), Condvar::new()));
    let theirs = Arc::clone(&answer);
    let done = Box::new(move |result| {
        *theirs.0.lock() = Some(result);
        theirs.1.notify_all();
    });
    disk.submit(Bio { op, offset, done });
    let mut result = answer.0.lock();
    answer.1.wait_while(&mut result, |result| result.is_none());
    result.take().unwrap()
}

#[expect(
    clippy::too_many_lines,
    reason = "one random run: a table of operations"
)]
fn run(profile: &Arc<Profile>, seed: u64, steps: Vec<Step>) -> Result<u64, TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    rt::simulate(seed, move || {
        let mut disk = open(&path, profile, seed);
        let mut model = Model::new(profile);
        let size = u64::from(disk.sectorsize());
        for step in steps {
            match step {
                Step::Write {
                    lba,
                    sectors,
                    fill,
                    fua,
                    queued,
                } => {
                    let bytes = vec![fill; (sectors * size) as usize];
                    let result = match (queued, fua) {
                        (true, false) => {
                            let op = BioOp::Write(base::Buf::copy_of(&bytes));
                            submit_and_wait(&disk, op, lba * size).map(drop)
                        }
                        (_, true) => disk.write_fua(lba * size, &bytes),
                        (_, false) => disk.write(lba * size, &bytes),
                    };
                    prop_assert!(result.is_ok());
                    model.write(lba, sectors, fill, fua);
                }
                Step::Read {
                    lba,
                    sectors,
                    queued,
                } => {
                    let len = (sectors * size) as usize;
                    let mut bytes = vec![9; len];
                    let result = match queued {
                        true => submit_and_wait(&disk, BioOp::Read { len }, lba * size)
                            .map(|data| bytes.copy_from_slice(&data.into_read())),
                        false => disk.read(lba * size, &mut bytes),
                    };
                    let range = model.range(lba, sectors);
                    prop_assert_eq!(result.is_err(), range.iter().any(|s| s.is_ruined));
                    if result.is_ok() {
                        for (part, sector) in bytes.chunks(size as usize).zip(range) {
                            prop_assert!(part.iter().all(|byte| *byte == sector.now));
                        }
                    }
                }
                Step::Flush => {
                    disk.flush().unwrap();
                    model.flush();
                }
                Step::Trim { lba, sectors } => {
                    let result = disk.delete(lba * size, sectors * size);
                    prop_assert_eq!(result.is_ok(), disk.identify().has_trim());
                    if result.is_ok() {
                        for sector in model.range(lba, sectors) {
                            (sector.now, sector.legal) = (0, vec![0]);
                            sector.is_ruined = false;
                        }
                    }
                }
                Step::Wait { us } => rt::sleep_ns(us * 1000),
                Step::Reopen => {
                    disk.close().unwrap();
                    drop(disk);
                    disk = open(&path, profile, seed);
                }
                Step::Crash => {
                    disk.abandon();
                    drop(disk);
                    disk = open(&path, profile, seed);
                    model.settle(&disk)?;
                }
                Step::PowerCut { seed: cut } => {
                    disk.power_cut(cut).unwrap();
                    prop_assert!(disk.read(0, &mut vec![0; size as usize]).is_err());
                    if cut % 2 == 0 {
                        disk.power_on();
                    } else {
                        disk.close().unwrap();
                        drop(disk);
                        disk = open(&path, profile, seed);
                    }
                    model.settle(&disk)?;
                }
            }
        }
        Ok(rt::now_ns())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]
    #[test]
    fn prop_a_drive_is_an_array_that_may_lose_what_was_not_flushed(
        steps in prop::collection::vec(step(), 1..60),
        which in 0usize..4,
        seed in any::<u64>(),
    ) {
        let profile = [wd20ears(), jumpered(), native(), p4500()][which].clone();
        let first = run(&profile, seed, steps.clone())?;
        if seed % 4 == 0 {
            prop_assert_eq!(run(&profile, seed, steps)?, first, "times follow from the seed");
        }
    }
}

fn write(lba: u64, sectors: u64, fua: bool) -> Step {
    Step::Write {
        lba,
        sectors,
        fill: 0,
        fua,
        queued: false,
    }
}

#[test]
fn sim_two_writes_with_a_hole_between_them_ruin_no_sector_that_one_covers() {
    let steps = vec![
        Step::Crash,
        write(0, 1, false),
        write(131, 30, false),
        write(162, 1, false),
        write(78, 3, true),
        write(0, 3, false),
        write(0, 33, false),
        Step::Read {
            lba: 0,
            sectors: 2,
            queued: false,
        },
        write(0, 1, false),
        Step::PowerCut { seed: 0 },
    ];
    run(&wd20ears(), 0, steps).unwrap();
}

#[test]
fn sim_every_subset_of_unflushed_writes_may_survive() {
    let mut seen = std::collections::BTreeSet::new();
    for cut in 0..150 {
        let dir = tempfile::tempdir().unwrap();
        rt::simulate(1, || {
            let disk = open(dir.path(), &wd20ears(), 1);
            disk.write(0, &[1; 4096]).unwrap();
            disk.flush().unwrap();
            disk.write(4096, &[2; 4096]).unwrap();
            disk.write(8192, &[3; 8192]).unwrap();
            disk.power_cut(cut).unwrap();
            disk.power_on();
            let mut bytes = [0; 16384];
            disk.read(0, &mut bytes).unwrap();
            assert!(bytes[..4096].iter().all(|byte| *byte == 1));
            seen.insert([bytes[4096], bytes[8192], bytes[16383]]);
        });
    }
    assert!(
        seen.len() == 8 || wd20ears().cache.write_cache_kib == 0,
        "{seen:?}"
    );
}

/// Found by random sequences: the sector that a power cut has ruined is written and flushed, and the program dies.
#[test]
fn sim_what_a_flush_or_fua_has_repaired_stays_so_when_the_program_dies() {
    let before = |last: &[Step]| {
        let cut = [
            write(117, 3, false),
            write(70, 34, true),
            Step::PowerCut { seed: 0 },
        ];
        [&cut, last, &[Step::Crash]].concat()
    };
    for last in [
        vec![write(109, 3, false), Step::Flush],
        vec![write(109, 3, true)],
    ] {
        run(&jumpered(), 0, before(&last)).unwrap();
    }
}
