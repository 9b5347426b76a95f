//! Free space that is overwritten (`zpool initialize`) or deleted (`zpool trim`) while pools are worked on: nothing but
//! free space is touched, also when deleted sectors read as garbage, whenever the power is cut, and older uberblocks
//! still lead to all they had; the real `zdb` finds no fault.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use base::{Guid, MetaslabId, Txg};
use geom::Provider;
use geom::disk::OpenMode;
use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};
use phys::label::LABEL_START_SIZE;
use phys::scan::DSS_FINISHED;
use ram::Memory;
use spa::{Settings, Spa, SweepAction, SweepKind, SweepRefusal, SweepState, TrimOptions};
use torture::careless::Disks;
use torture::cuts::{self, Step};
use torture::model::World;
use torture::pool::{self, Layout};
use torture::{Dice, seed};

const DISK_BYTES: u64 = 64 << 20;
const CUTS: u64 = 40;
const PATTERN: [u8; 8] = 0xdead_beef_dead_beee_u64.to_le_bytes();
const START: SweepAction = SweepAction::Start(TrimOptions {
    rate: 0,
    secure: false,
});

/// A slice does little, so that a sweep takes many txgs.
fn slowly(rounds: u64) -> Settings {
    let mut settings = pool::settings();
    settings.scan.blocks_max = rounds;
    settings.sweep.delete_max_bytes = 1 << 20;
    settings
}

fn make(layout: Layout, disks: &[Arc<dyn Provider>], rounds: u64) -> Spa {
    let no_root: dsl::ObjsetInit = Box::new(|_, _| Ok(()));
    pool::create_with("tank", layout, 9, disks, no_root, slowly(rounds)).unwrap()
}

fn steps(spa: &Spa, world: &mut World, dice: &mut Dice, count: usize) {
    for step in 0..count {
        let outcome = world.step(spa, dice);
        outcome.unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
}

fn guids(spa: &Spa) -> Vec<Guid> {
    let devices = spa.parts().tree().devices();
    devices.iter().map(|device| device.guid()).collect()
}

fn sweep(spa: &Spa, kind: SweepKind, action: SweepAction) -> Vec<SweepRefusal> {
    let refused = spa.sweep(kind, &guids(spa), action).unwrap();
    refused.into_iter().map(|(_, refusal)| refusal).collect()
}

fn start(spa: &Spa, kind: SweepKind) {
    assert_eq!(sweep(spa, kind, START), []);
}

fn finish(spa: &Spa, kind: SweepKind) {
    spa.wait_sweep(kind, None, &mut || true).unwrap();
    assert_eq!(state(spa, kind), Some(SweepState::Complete));
}

/// That of all devices.
fn state(spa: &Spa, kind: SweepKind) -> Option<SweepState> {
    let of = |guid| spa.sweep_progress(guid, kind).unwrap().map(|p| p.state);
    let states: Vec<_> = guids(spa).into_iter().map(of).collect();
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    states[0]
}

/// Every copy and all parity is right.
fn scrub(spa: &Spa) {
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    let found = (scan.state.get(), scan.errors.get(), scan.processed.get());
    assert_eq!(found, (DSS_FINISHED, 0, 0), "state, errors, repaired");
}

fn pattern_bytes(disks: &[Arc<dyn Provider>]) -> u64 {
    let whole = PATTERN.repeat(64);
    let count = |disk: &Arc<dyn Provider>| {
        let mut bytes = vec![0; disk.mediasize() as usize];
        disk.read(0, &mut bytes).unwrap();
        bytes.chunks(512).filter(|sector| *sector == whole).count() as u64 * 512
    };
    disks.iter().map(count).sum()
}

/// What is free, in bytes of all devices together; a mirror's sides each have it.
fn free_bytes(spa: &Spa, layout: Layout) -> u64 {
    let (space, devices) = (spa.space(), guids(spa).len() as u64);
    let sides = if layout == Layout::Mirror { devices } else { 1 };
    (space.space - space.alloc) * sides
}

/// Sweeps a pool while it is worked on, then once more while nothing else goes on.
fn sweep_beside_work(layout: Layout, count: usize, kind: SweepKind, seed: u64) {
    let bytes = if layout == DRAID {
        2 * DISK_BYTES
    } else {
        DISK_BYTES
    };
    let disks = Disks::new(count, bytes);
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = make(layout, &disks.providers, 4);
    steps(&spa, &mut world, &mut dice, 60);
    start(&spa, kind);
    let mut turns = 0;
    while spa.is_sweeping(kind, None) {
        steps(&spa, &mut world, &mut dice, 1);
        spa.sync().unwrap();
        turns += 1;
    }
    assert!(turns > 3, "{turns} txgs");
    assert_eq!(state(&spa, kind), Some(SweepState::Complete));
    world.compare(spa.parts().dsl()).unwrap();
    scrub(&spa);
    pool::assert_clean(&spa);
    if kind == SweepKind::Initialize {
        assert_eq!(sweep(&spa, kind, SweepAction::Forget), []);
    }
    let before = disks.deleted_bytes();
    start(&spa, kind);
    finish(&spa, kind);
    let free = free_bytes(&spa, layout);
    let swept = match kind {
        SweepKind::Initialize => pattern_bytes(&disks.providers),
        SweepKind::Trim => disks.deleted_bytes() - before,
    };
    // The rest was freed in the last txgs, or is in short pieces, or between the data of a dRAID and its last row.
    assert!(
        swept <= free + (4 << 20) && swept >= free / 100 * 85,
        "{layout:?}: {swept} of {free} bytes"
    );
    scrub(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&disks.providers, false).unwrap();
    assert_eq!(state(&spa, kind), Some(SweepState::Complete));
    world.compare(spa.parts().dsl()).unwrap();
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&disks.providers, "tank");
}

const DRAID: Layout = Layout::Draid(1, 2, 1);

#[test]
fn sim_only_free_space_is_overwritten_on_disks() {
    let (seed, kind) = (seed(51), SweepKind::Initialize);
    rt::simulate(seed, move || {
        sweep_beside_work(Layout::Stripe, 2, kind, seed);
    });
}

#[test]
fn sim_only_free_space_is_overwritten_on_mirrors() {
    let (seed, kind) = (seed(52), SweepKind::Initialize);
    rt::simulate(seed, move || {
        sweep_beside_work(Layout::Mirror, 2, kind, seed);
    });
}

#[test]
fn sim_only_free_space_is_overwritten_on_raidz() {
    let (seed, kind) = (seed(53), SweepKind::Initialize);
    rt::simulate(seed, move || {
        sweep_beside_work(Layout::Raidz(2), 4, kind, seed);
    });
}

#[test]
fn sim_only_free_space_is_overwritten_on_draid() {
    let (seed, kind) = (seed(54), SweepKind::Initialize);
    rt::simulate(seed, move || {
        sweep_beside_work(DRAID, 4, kind, seed);
    });
}

#[test]
fn sim_only_free_space_is_deleted_on_mirrors() {
    let (seed, kind) = (seed(61), SweepKind::Trim);
    rt::simulate(seed, move || {
        sweep_beside_work(Layout::Mirror, 2, kind, seed);
    });
}

#[test]
fn sim_only_free_space_is_deleted_on_raidz() {
    let (seed, kind) = (seed(62), SweepKind::Trim);
    rt::simulate(seed, move || {
        sweep_beside_work(Layout::Raidz(1), 3, kind, seed);
    });
}

#[test]
fn sim_only_free_space_is_deleted_on_draid() {
    let (seed, kind) = (seed(63), SweepKind::Trim);
    rt::simulate(seed, move || {
        sweep_beside_work(DRAID, 4, kind, seed);
    });
}

/// The two uberblocks before the last one lead to what they had.
fn older_uberblocks_stay_valid(kind: SweepKind, seed: u64) {
    let disks = Disks::new(2, DISK_BYTES);
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = make(Layout::Mirror, &disks.providers, 2);
    steps(&spa, &mut world, &mut dice, 40);
    start(&spa, kind);
    let mut past: VecDeque<(Txg, World)> = VecDeque::new();
    let mut looked = 0;
    while spa.is_sweeping(kind, None) {
        steps(&spa, &mut world, &mut dice, 1);
        spa.sync().unwrap();
        past.push_back((spa.uberblock().txg(), world.clone()));
        if past.len() < 3 {
            continue;
        }
        let newest = past[2].0;
        let images = disks.snapshots();
        for (txg, world) in past.iter().filter(|(txg, _)| txg.0 + 2 >= newest.0) {
            let then = pool::open_at(&images, *txg).unwrap();
            assert_eq!(then.uberblock().txg(), *txg);
            let same = world.compare(then.parts().dsl());
            same.unwrap_or_else(|e| panic!("SEED={seed}: txg {txg} at {newest}: {e}"));
            pool::assert_clean(&then);
            looked += 1;
        }
        past.pop_front();
    }
    assert!(looked > 5, "{looked} uberblocks");
}

#[test]
fn sim_older_uberblocks_stay_valid() {
    for kind in [SweepKind::Initialize, SweepKind::Trim] {
        let seed = seed(71);
        rt::simulate(seed, move || older_uberblocks_stay_valid(kind, seed));
    }
}

/// What happened on the disks, and what the pool should hold after each step.
struct Recording {
    disks: Disks,
    first: u64,
    worlds: Vec<Step>,
}

fn record(layout: Layout, count: usize, kind: SweepKind, seed: u64) -> Recording {
    let disks = Disks::new(count, DISK_BYTES);
    let (mut dice, mut world) = (Dice::new(seed), World::default());
    let spa = make(layout, &disks.providers, 4);
    steps(&spa, &mut world, &mut dice, 40);
    start(&spa, kind);
    disks.forget();
    let first = disks.supply.commands();
    let mut worlds = vec![(world.clone(), Some(first))];
    while spa.is_sweeping(kind, None) {
        steps(&spa, &mut world, &mut dice, 1);
        worlds.push((world.clone(), None));
        spa.sync().unwrap();
        worlds.last_mut().unwrap().1 = Some(disks.supply.commands());
    }
    spa.close().unwrap();
    Recording {
        disks,
        first,
        worlds,
    }
}

impl Recording {
    /// Cuts the power after the n-th command, opens what is left, and ends the sweep; returns whether it was half done.
    fn cut(&self, n: u64, seed: u64, kind: SweepKind) -> Result<bool, String> {
        let images = self.disks.images_after(n, seed);
        let spa = pool::open(&images, false).map_err(|e| format!("import: {e}"))?;
        let world = cuts::find(&self.worlds, &spa, n)?;
        let is_half = spa.is_sweeping(kind, None);
        finish(&spa, kind);
        world.compare(spa.parts().dsl())?;
        let report = pool::verify(&spa).map_err(|e| format!("check: {e}"))?;
        if !report.is_clean() {
            return Err(format!("findings: {:#?}", report.findings));
        }
        spa.export().map_err(|e| format!("export: {e}"))?;
        Ok(is_half)
    }
}

fn cut_everywhere(layout: Layout, count: usize, kind: SweepKind, seed: u64) {
    let recording = record(layout, count, kind, seed);
    let last = recording.disks.supply.commands();
    let mut outcomes = [0; 2];
    let cut = |n| recording.cut(n, seed ^ n, kind);
    for (_, is_half) in cuts::everywhere(recording.first..=last, CUTS, seed, cut) {
        outcomes[usize::from(is_half)] += 1;
    }
    assert!(
        outcomes[0] > 0 && outcomes[1] > 0,
        "not every outcome was seen: {outcomes:?}"
    );
}

#[test]
fn sim_power_cuts_while_free_space_is_overwritten() {
    let seed = seed(81);
    rt::simulate(seed, move || {
        cut_everywhere(Layout::Mirror, 2, SweepKind::Initialize, seed);
    });
}

#[test]
fn sim_power_cuts_while_free_space_is_deleted() {
    let seed = seed(82);
    rt::simulate(seed, move || {
        cut_everywhere(Layout::Raidz(1), 3, SweepKind::Trim, seed);
    });
}

/// Suspended, begun again, cancelled, forgotten: over exports, and what is refused when. In simulated time: a sweep
/// goes on by itself meanwhile, further on a slow computer.
#[test]
fn sim_zdb_finds_each_state_of_sweeps_clean() {
    rt::simulate(91, || {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as Arc<dyn Provider>;
        let disks: Vec<_> = (0..2).map(disk).collect();
        let (mut dice, mut world) = (Dice::new(seed(91)), World::default());
        let spa = make(Layout::Stripe, &disks, 2);
        steps(&spa, &mut world, &mut dice, 60);
        spa.export().unwrap();
        drop(spa);
        let (active, suspended) = (Some(SweepState::Active), Some(SweepState::Suspended));
        let canceled = Some(SweepState::Canceled);
        let complete = Some(SweepState::Complete);
        let (init, trim) = (SweepKind::Initialize, SweepKind::Trim);
        let (stop, pause) = (SweepAction::Cancel, SweepAction::Suspend);
        let acts = [
            (init, Some(START), active),
            (init, Some(pause), suspended),
            (init, Some(stop), canceled),
            (init, Some(START), active),
            (init, None, complete),
            (init, Some(SweepAction::Forget), None),
            (trim, Some(START), active),
            (trim, Some(pause), suspended),
            (trim, Some(START), active),
            (trim, None, complete),
        ];
        for (kind, action, then) in acts {
            let spa = pool::open_with(&disks, false, slowly(2)).unwrap();
            match action {
                Some(action) => assert_eq!(sweep(&spa, kind, action), [], "{action:?}"),
                None => finish(&spa, kind),
            }
            assert_refusals(&spa, kind, then);
            for _ in 0..3 {
                steps(&spa, &mut world, &mut dice, 1);
                spa.sync().unwrap();
            }
            world.compare(spa.parts().dsl()).unwrap();
            pool::assert_clean(&spa);
            assert_eq!(state(&spa, kind), then, "{kind:?} {action:?}");
            spa.export().unwrap();
            drop(spa);
            if action.is_none_or(|action| [START, stop].contains(&action)) {
                pool::verify_with_zdb(&disks, "tank");
            }
        }
    });
}

fn assert_clean(folder: &Path, what: &str) {
    if have_zdb() {
        let found = Zdb::verify(folder, "tank");
        let output = format!("{}\n{}", found.stdout, found.stderr);
        assert!(found.is_clean(), "{what}:\n{output}");
    }
}

/// What is not to be done in a state is refused for each device, and changes nothing.
fn assert_refusals(spa: &Spa, kind: SweepKind, state: Option<SweepState>) {
    use SweepRefusal::{Busy, NotActive};
    let refused: &[(SweepAction, SweepRefusal)] = match state {
        Some(SweepState::Active) => &[(START, Busy), (SweepAction::Forget, Busy)],
        Some(SweepState::Suspended) => &[(SweepAction::Suspend, NotActive)],
        _ => &[
            (SweepAction::Suspend, NotActive),
            (SweepAction::Cancel, NotActive),
        ],
    };
    for (action, refusal) in refused {
        assert_eq!(sweep(spa, kind, *action), [*refusal; 2], "{action:?}");
    }
}

/// A trim with a rate takes its time, and hurries no txg along.
#[test]
fn sim_a_trim_keeps_to_its_rate() {
    rt::simulate(7, || {
        let disks = Disks::new(1, DISK_BYTES);
        let spa = make(Layout::Stripe, &disks.providers, 1000);
        let rate = 4 << 20;
        let options = TrimOptions {
            rate,
            secure: false,
        };
        assert_eq!(
            sweep(&spa, SweepKind::Trim, SweepAction::Start(options)),
            []
        );
        let begun_ns = rt::now_ns();
        let mut slices = 0;
        let see = &mut || {
            slices += 1;
            true
        };
        spa.wait_sweep(SweepKind::Trim, None, see).unwrap();
        let took_secs = (rt::now_ns() - begun_ns) / 1_000_000_000;
        let deleted = disks.deleted_bytes();
        let least_secs = deleted / rate - 2;
        assert!(took_secs >= least_secs, "{deleted} in {took_secs} s");
        assert!(slices < 100, "{slices} txgs");
        let secure = TrimOptions {
            rate: 0,
            secure: true,
        };
        let secure = sweep(&spa, SweepKind::Trim, SweepAction::Start(secure));
        assert_eq!(secure, [SweepRefusal::Unsupported]);
    });
}

/// Ends what was begun here, with another pattern, so that nothing of that counts later; leaves another one half done:
/// small writes, so that it is far from its end when the first percent of each device is done.
const GUEST: &str = r#"
set -ex
echo 1234567890123456789 >/sys/module/zfs/parameters/zfs_initialize_value
zpool import -d /dev -R /mnt tank
zpool wait -t initialize tank
zpool status -i tank | tee /host/status
test $(grep -c "(100% initialized, completed at" /host/status) = 3
zpool scrub -w tank
zpool status tank | grep -q "repaired 0B in .* with 0 errors"
zpool initialize -u tank
echo 16384 >/sys/module/zfs/parameters/zfs_initialize_chunk_size
echo 16045690984833335022 >/sys/module/zfs/parameters/zfs_initialize_value
zpool initialize tank
until test $(zpool status -i tank | grep -c "([1-9][0-9]*% initialized") = 3; do sleep 0.1; done
zpool initialize -s tank
zpool status -i tank | tee /host/half
zpool export tank
"#;

/// What a kernel may leave out where each metaslab begins on each device: it compares offsets without labels with how
/// far it is, which includes them (`vdev_initialize_zap_update_sync`, `vdev_initialize_xlate_range_add`).
const KERNEL_LEAVES_BYTES: u64 = 4 << 20;

/// Bytes of all metaslabs without the pattern, but for what a kernel may leave out.
fn bare_bytes(spa: &Spa) -> u64 {
    let whole = PATTERN.repeat(64);
    let mut bare = 0;
    for top in spa.parts().tree().tops() {
        for device in top.devices() {
            let disk = device.leaf().provider().unwrap();
            for metaslab in 0..top.metaslab_count() {
                let range = top.metaslab_range(MetaslabId(metaslab));
                let mut left_out = KERNEL_LEAVES_BYTES;
                top.translate(&device, range, &mut |range| {
                    let start = (range.start + left_out).min(range.end);
                    left_out -= start - range.start;
                    let mut bytes = vec![0; (range.end - start) as usize];
                    disk.read(LABEL_START_SIZE + start, &mut bytes).unwrap();
                    let sectors = bytes.chunks(512);
                    bare += sectors.filter(|sector| *sector != whole).count() as u64 * 512;
                });
            }
        }
    }
    bare
}

#[test]
fn the_kernel_ends_an_initialization_and_begins_one() {
    let Some(guest) = Guest::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3)
        .map(|n| folder.path().join(format!("disk{n}")))
        .collect();
    let open = |path| geom::disk::open(path, OpenMode::ReadWrite).unwrap();
    for path in &paths {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(4 * DISK_BYTES).unwrap();
    }
    let disks: Vec<_> = paths.iter().map(|path| open(path)).collect();
    let (mut dice, mut world) = (Dice::new(seed(95)), World::default());
    // A mebibyte per txg: it is far from its end when the pool is exported.
    let spa = make(Layout::Raidz(1), &disks, 1);
    steps(&spa, &mut world, &mut dice, 60);
    start(&spa, SweepKind::Initialize);
    for _ in 0..10 {
        steps(&spa, &mut world, &mut dice, 1);
        spa.sync().unwrap();
    }
    assert_eq!(state(&spa, SweepKind::Initialize), Some(SweepState::Active));
    let progress = spa.sweep_progress(guids(&spa)[0], SweepKind::Initialize);
    let progress = progress.unwrap().unwrap();
    assert!(progress.done_bytes > 0, "{progress:?}");
    spa.export().unwrap();
    drop((spa, disks));

    let names: Vec<&Path> = paths.iter().map(std::path::PathBuf::as_path).collect();
    guest.run(GUEST, host.path(), &names).assert_success();

    assert_clean(folder.path(), "after the kernel");
    let half = std::fs::read_to_string(host.path().join("half")).unwrap();
    assert!(
        half.contains("initialized, suspended, started at"),
        "{half}"
    );
    let disks: Vec<_> = paths.iter().map(|path| open(path)).collect();
    let spa = pool::open(&disks, false).unwrap();
    let kind = SweepKind::Initialize;
    assert_eq!(state(&spa, kind), Some(SweepState::Suspended));
    let progress = spa.sweep_progress(guids(&spa)[0], kind);
    let progress = progress.unwrap().unwrap();
    let (done, total) = (progress.done_bytes, progress.total_bytes);
    assert!(done > 0 && done < total, "{progress:?} {half}");
    let left = bare_bytes(&spa);
    assert!(left > DISK_BYTES, "{left} bytes are left to do");
    start(&spa, kind);
    finish(&spa, kind);
    world.compare(spa.parts().dsl()).unwrap();
    scrub(&spa);
    pool::assert_clean(&spa);
    let (space, bare) = (spa.space(), bare_bytes(&spa));
    // Some was freed when it was swept already.
    assert!(
        bare <= space.alloc + (4 << 20),
        "{bare} without the pattern, {} allocated",
        space.alloc
    );
    spa.export().unwrap();
    drop(spa);
    assert_clean(folder.path(), "in the end");
}
