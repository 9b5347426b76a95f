//! Structures with cycles or impossible values, but correct checksums: each is refused with an error message.

use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dsl::Bpobj;
use geom::{Command, Provider, Shape};
use phys::ObjectType;
use ram::Memory;
use spa::Spa;
use torture::hostile::seeds::{self, Kind};
use torture::hostile::{Edit, Image, exercise};
use torture::pool;

/// Offsets of `ds_prev_snap_obj`, `ds_next_snap_obj`, `ds_num_children` in the bonus of a dataset.
const DS_PREV_SNAP_OBJ: usize = 8;
const DS_NEXT_SNAP_OBJ: usize = 24;
const DS_NUM_CHILDREN: usize = 40;
/// Offsets of `dd_parent_obj`, `dd_origin_obj`, `dd_child_dir_zapobj`, `dd_reserved` in the bonus of a directory.
const DD_PARENT_OBJ: usize = 16;
const DD_ORIGIN_OBJ: usize = 24;
const DD_CHILD_DIR_ZAPOBJ: usize = 32;
const DD_RESERVED: usize = 72;
/// Offset of `smp_alloc` in the bonus of a space map.
const SMP_ALLOC: usize = 16;
/// Offsets of `bpo_bytes`, `bpo_subobjs`, `bpo_num_subobjs` in the bonus of a bpobj.
const BPO_BYTES: usize = 8;
const BPO_SUBOBJS: usize = 32;
const BPO_NUM_SUBOBJS: usize = 40;

struct Target {
    image: Arc<Vec<Image>>,
    at: usize,
    /// The original pool, to look up objects.
    spa: Spa,
}

impl Target {
    fn new(kind: Kind) -> Target {
        let image = seeds::all();
        let at = kind as usize;
        let spa = pool::open(&image[at].edit().finish(), true).unwrap();
        Target { image, at, spa }
    }

    fn dataset(&self, name: &str) -> ObjectId {
        self.spa.parts().dsl().dataset(name).unwrap().object()
    }

    fn dir(&self, name: &str) -> ObjectId {
        self.spa.parts().dsl().dir(name).unwrap().object()
    }

    fn entry(&self, name: &str) -> ObjectId {
        zap::directory::get(self.spa.parts().mos(), name).unwrap()
    }

    /// The devices after an edit, on which nothing that [`exercise`] does may hang or panic.
    fn damaged(&self, change: impl FnOnce(&mut Edit<'_>)) -> Vec<Arc<dyn Provider>> {
        let mut edit = self.image[self.at].edit();
        change(&mut edit);
        let devices = edit.finish();
        for plan in [0, 31, 32] {
            let copy = edit_again(&devices);
            rt::simulate(1, || exercise(&copy, plan));
        }
        devices
    }
}

/// The same bytes on separate devices.
fn edit_again(devices: &[Arc<dyn Provider>]) -> Vec<Arc<dyn Provider>> {
    let copy = |device: &Arc<dyn Provider>| {
        let memory = Memory::new(device.name(), device.mediasize());
        let mut chunk = vec![0; 1 << 20];
        for offset in (0..device.mediasize()).step_by(chunk.len()) {
            device.read(offset, &mut chunk).unwrap();
            if chunk.iter().any(|byte| *byte != 0) {
                memory.write(offset, &chunk).unwrap();
            }
        }
        Arc::new(memory) as Arc<dyn Provider>
    };
    devices.iter().map(copy).collect()
}

/// What `zfs list -r` reads: everything about all datasets.
fn list(devices: &[Arc<dyn Provider>]) -> Result<()> {
    let spa = pool::open(devices, true)?;
    let dsl = spa.parts().dsl();
    for head in dsl.descendants("tank")? {
        let ds = dsl.dataset(&head)?;
        dsl.stats(&ds)?;
        for (_, snap) in dsl.snapshots(&ds)? {
            dsl.stats(&snap)?;
        }
    }
    Ok(())
}

#[track_caller]
fn assert_corrupt(outcome: Result<()>, words: &str) {
    let error = outcome.expect_err("it lies");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_chain_of_snapshots_that_is_a_circle_is_refused() {
    let target = Target::new(Kind::Snapshots);
    let first = target.dataset("tank/fs@a");
    for later in ["tank/fs@b", "tank/fs@c", "tank/fs@a"] {
        let later = target.dataset(later).0;
        let devices = target.damaged(|edit| edit.set_mos_bonus(first, DS_PREV_SNAP_OBJ, later));
        assert_corrupt(list(&devices), "ds_prev_snap_txg is");
    }
}

#[test]
fn a_head_that_is_its_own_predecessor_is_refused() {
    let target = Target::new(Kind::Snapshots);
    let tank = target.dataset("tank");
    let devices = target.damaged(|edit| edit.set_mos_bonus(tank, DS_PREV_SNAP_OBJ, tank.0));
    assert_corrupt(list(&devices), "is not a snapshot");
}

#[test]
fn directories_that_contain_each_other_are_refused() {
    let target = Target::new(Kind::Snapshots);
    let (above, below) = (target.dir("tank/clone"), target.dir("tank/clone/of"));
    let parent = |dir, parent: ObjectId| {
        target.damaged(|edit| edit.set_mos_bonus(dir, DD_PARENT_OBJ, parent.0))
    };
    assert_corrupt(list(&parent(above, below)), "dd_parent_obj is");
    assert_corrupt(list(&parent(above, above)), "dd_parent_obj is");
    let tank = target.dir("tank");
    assert_corrupt(list(&parent(tank, below)), "directory");
    // A directory whose children are those of its parent.
    let children = target
        .spa
        .parts()
        .dsl()
        .dir("tank")
        .unwrap()
        .fields()
        .child_dir_zapobj;
    let devices = target.damaged(|edit| edit.set_mos_bonus(below, DD_CHILD_DIR_ZAPOBJ, children));
    assert_corrupt(list(&devices), "dd_parent_obj is");
}

#[test]
fn a_clone_of_its_own_snapshot_is_refused() {
    let target = Target::new(Kind::Snapshots);
    let (clone, own) = (target.dir("tank/clone"), target.dataset("tank/clone@d"));
    let devices = target.damaged(|edit| edit.set_mos_bonus(clone, DD_ORIGIN_OBJ, own.0));
    let spa = pool::open(&devices, true).unwrap();
    let dsl = spa.parts().dsl();
    let of = |name| dsl.dataset(name).unwrap();
    let written = dsl.space_written(&of("tank/fs@a"), &of("tank/clone@d"));
    assert_corrupt(written.map(|_| ()), "branched off at");
}

#[test]
fn a_list_of_blocks_that_contains_itself_is_refused() {
    let target = Target::new(Kind::Snapshots);
    let (list, other) = (target.entry("sync_bplist"), target.entry("history"));
    let block = target.image[target.at].mos_block(other);
    let with_subobjs = |edit: &mut Edit<'_>| {
        edit.set_mos_bonus(list, BPO_SUBOBJS, other.0);
        edit.set_mos_bonus(list, BPO_NUM_SUBOBJS, 1);
        edit.content(block)[..8].copy_from_slice(&list.0.to_le_bytes());
    };
    let iterate = |devices: &[Arc<dyn Provider>]| {
        let spa = pool::open(devices, true).unwrap();
        let list = Bpobj::open(spa.parts().dsl().mos(), list).unwrap();
        list.iterate(&mut |_, _| Ok(()))
    };
    let devices = target.damaged(with_subobjs);
    assert_corrupt(iterate(&devices), "not a list of bpobjs");
    let devices = target.damaged(|edit| {
        with_subobjs(edit);
        edit.set_mos_type(other, ObjectType::BPOBJ_SUBOBJ);
    });
    assert_corrupt(iterate(&devices), "is a subobj twice");
}

#[test]
fn a_scrub_of_a_snapshot_that_is_its_own_successor_ends() {
    const SLICES_MAX: usize = 100;
    let target = Target::new(Kind::Snapshots);
    let first = target.dataset("tank/fs@a");
    let devices = target.damaged(|edit| edit.set_mos_bonus(first, DS_NEXT_SNAP_OBJ, first.0));
    let slices = rt::simulate(1, || {
        let spa = pool::open(&devices, false).unwrap();
        spa.scrub().unwrap();
        let mut slices = 0;
        let waited = spa.wait_scan(&mut |_| {
            slices += 1;
            slices < SLICES_MAX
        });
        waited.unwrap();
        spa.export().unwrap();
        slices
    });
    assert!(slices < SLICES_MAX);
}

#[test]
fn numbers_that_no_sum_can_hold_are_refused() {
    let target = Target::new(Kind::Snapshots);
    let refused = |object, offset, number: u64, words: &str| {
        let devices = target.damaged(|edit| edit.set_mos_bonus(object, offset, number));
        assert_corrupt(list(&devices), words);
    };
    let snap = target.dataset("tank/fs@a");
    refused(snap, DS_NUM_CHILDREN, u64::MAX, "ds_num_children is");
    let dir = target.dir("tank/fs");
    refused(dir, DD_RESERVED, 1 << 63, "dd_reserved is");
    let blocks = target.entry("sync_bplist");
    for number in [1 << 63, i64::MAX as u64] {
        let devices = target.damaged(|edit| edit.set_mos_bonus(blocks, BPO_BYTES, number));
        let spa = pool::open(&devices, true).unwrap();
        let opened = Bpobj::open(spa.parts().dsl().mos(), blocks);
        assert_corrupt(opened.map(|_| ()), "bpo_bytes is");
    }
}

#[test]
fn an_uberblock_from_the_end_of_time_is_not_believed() {
    let target = Target::new(Kind::Files);
    let devices = target.damaged(|edit| edit.uberblock.timestamp.set(1 << 63));
    assert!(pool::open(&devices, true).is_ok());
    for txg in [1 << 63, u64::MAX, (1 << 63) - 1] {
        let devices = target.damaged(|edit| edit.uberblock.txg.set(txg));
        // An older uberblock is used instead.
        let spa = pool::open(&devices, true).unwrap();
        assert!(spa.uberblock().txg() <= target.spa.uberblock().txg());
    }
}

#[test]
fn a_space_map_that_has_less_than_is_freed_suspends_the_pool() {
    let target = Target::new(Kind::Files);
    let tops = target.spa.parts().tree().tops();
    let maps = target.spa.parts().space_maps();
    let objects = maps
        .objects(base::VdevId(0), tops[0].metaslab_count())
        .unwrap();
    let devices = target.damaged(|edit| {
        for object in objects.iter().filter(|object| object.0 != 0) {
            edit.set_mos_bonus(*object, SMP_ALLOC, 0);
        }
    });
    // The first txg frees what the one before had deferred.
    let error = match pool::open(&devices, false) {
        Ok(spa) => spa
            .parts()
            .dsl()
            .destroy_head("tank/fs")
            .and_then(|()| spa.sync().map(|_| ()))
            .unwrap_err(),
        Err(error) => error,
    };
    assert!(error.to_string().contains("bytes allocated"), "{error}");
}

/// A disk that fails to write its front labels.
struct Unlabelled(Memory);

impl Provider for Unlabelled {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        if matches!(command, Command::Write(_)) && offset < phys::label::LABEL_START_SIZE {
            return Err(Error::new(ErrorKind::Io, "no power"));
        }
        self.0.execute(offset, command)
    }
}

#[test]
fn a_pool_whose_creation_fails_leaves_no_thread_behind() {
    let error = rt::simulate(1, || {
        let disk: Arc<dyn Provider> = Arc::new(Unlabelled(Memory::new("/disk0", 64 << 20)));
        let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
        let made = pool::create("tank", pool::Layout::Stripe, 9, &[disk], root);
        made.map(|_| ()).unwrap_err()
    });
    assert!(error.to_string().contains("no power"), "{error}");
}
