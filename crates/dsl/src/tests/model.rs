//! Random operations compared with a model of the contents; all invariants are checked after each.

use phys::PropValue;
use std::collections::BTreeMap;

use base::ErrorKind;
use proptest::prelude::*;

use super::check::{check, remember};
use super::harness::TestPool;

/// (object, block) -> byte.
type Content = BTreeMap<(u64, u64), u8>;

#[derive(Clone, Debug)]
enum Op {
    Create {
        parent: usize,
    },
    Write {
        fs: usize,
        object: u64,
        block: u64,
        byte: u8,
    },
    Remove {
        fs: usize,
        object: u64,
    },
    Snapshot {
        fs: usize,
    },
    Clone {
        snap: usize,
        fs: usize,
    },
    Promote {
        fs: usize,
    },
    Rollback {
        fs: usize,
    },
    /// Bookmarks the snapshot; `again` also makes a copy.
    Bookmark {
        snap: usize,
        again: bool,
    },
    DestroyBookmark {
        bookmark: usize,
    },
    DestroyHead {
        fs: usize,
    },
    DestroySnap {
        snap: usize,
        defer: bool,
    },
    Rename {
        fs: usize,
        parent: usize,
    },
    Reserve {
        fs: usize,
        megabytes: u64,
        of_head: bool,
    },
    Budget {
        blocks: u64,
    },
    Limit {
        fs: usize,
    },
    Sync,
    Reopen,
    /// Logged writes (file system, object, block), then a crash.
    Crash {
        writes: Vec<(usize, u64, u64)>,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let fs = 0..6usize;
    let snap = 0..12usize;
    prop_oneof![
        3 => fs.clone().prop_map(|parent| Op::Create { parent }),
        12 => (fs.clone(), 10..14u64, 0..40u64, 1..=9u8)
            .prop_map(|(fs, object, block, byte)| Op::Write { fs, object, block, byte }),
        2 => (fs.clone(), 10..14u64).prop_map(|(fs, object)| Op::Remove { fs, object }),
        8 => fs.clone().prop_map(|fs| Op::Snapshot { fs }),
        4 => (snap.clone(), fs.clone()).prop_map(|(snap, fs)| Op::Clone { snap, fs }),
        3 => fs.clone().prop_map(|fs| Op::Promote { fs }),
        2 => fs.clone().prop_map(|fs| Op::Rollback { fs }),
        5 => (snap.clone(), any::<bool>()).prop_map(|(snap, again)| Op::Bookmark { snap, again }),
        2 => snap.clone().prop_map(|bookmark| Op::DestroyBookmark { bookmark }),
        3 => fs.clone().prop_map(|fs| Op::DestroyHead { fs }),
        6 => (snap, any::<bool>()).prop_map(|(snap, defer)| Op::DestroySnap { snap, defer }),
        2 => (fs.clone(), fs.clone()).prop_map(|(fs, parent)| Op::Rename { fs, parent }),
        1 => (fs.clone(), 0..8u64, any::<bool>())
            .prop_map(|(fs, megabytes, of_head)| Op::Reserve { fs, megabytes, of_head }),
        1 => (1..60u64).prop_map(|blocks| Op::Budget { blocks }),
        1 => fs.clone().prop_map(|fs| Op::Limit { fs }),
        2 => Just(Op::Sync),
        1 => Just(Op::Reopen),
        2 => prop::collection::vec((0..6usize, 10..14u64, 0..40u64), 0..6)
            .prop_map(|writes| Op::Crash { writes }),
    ]
}

struct Model {
    test: TestPool,
    /// Contents of heads and snapshots by full name.
    contents: BTreeMap<String, Content>,
    serial: u64,
}

impl Model {
    fn new() -> Model {
        let test = TestPool::create();
        let contents = BTreeMap::from([("tank".to_string(), Content::new())]);
        Model {
            test,
            contents,
            serial: 0,
        }
    }

    fn heads(&self) -> Vec<String> {
        self.contents
            .keys()
            .filter(|name| !name.contains('@'))
            .cloned()
            .collect()
    }

    fn snaps(&self) -> Vec<String> {
        self.contents
            .keys()
            .filter(|name| name.contains('@'))
            .cloned()
            .collect()
    }

    /// One of the heads but the root; `None` while there is none.
    fn head(&self, at: usize) -> Option<String> {
        let heads: Vec<_> = self
            .heads()
            .into_iter()
            .filter(|name| name != "tank")
            .collect();
        (!heads.is_empty()).then(|| heads[at % heads.len()].clone())
    }

    fn fresh(&mut self, letter: char) -> String {
        self.serial += 1;
        format!("{letter}{}", self.serial)
    }

    fn snaps_of(&self, head: &str) -> Vec<String> {
        let ds = self.test.pool.dataset(head).unwrap();
        let snaps = self.test.pool.snapshots(&ds).unwrap().into_iter();
        snaps.map(|(snap, _)| format!("{head}@{snap}")).collect()
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one random run: a table of operations"
    )]
    fn apply(mut self, op: &Op) -> Model {
        match op {
            Op::Create { parent } => {
                let heads = self.heads();
                let parent = heads[parent % heads.len()].clone();
                let name = format!("{parent}/{}", self.fresh('f'));
                if name.matches('/').count() < 4 {
                    self.test.create_fs(&name);
                    self.contents.insert(name, Content::new());
                }
            }
            Op::Write {
                fs,
                object,
                block,
                byte,
            } => {
                if let Some(name) = self.head(*fs) {
                    self.test.write(&name, *object, *block, *byte);
                    let content = self.contents.get_mut(&name).unwrap();
                    content.insert((*object, *block), *byte);
                }
            }
            Op::Remove { fs, object } => {
                if let Some(name) = self.head(*fs) {
                    let content = self.contents.get_mut(&name).unwrap();
                    let before = content.len();
                    content.retain(|(found, _), _| found != object);
                    if content.len() < before {
                        self.test.remove(&name, *object);
                    }
                }
            }
            Op::Snapshot { fs } => {
                if let Some(head) = self.head(*fs) {
                    let name = format!("{head}@{}", self.fresh('s'));
                    match self.test.pool.snapshot(&[&name], Vec::new()) {
                        Ok(()) => {
                            let content = self.contents[&head].clone();
                            self.contents.insert(name, content);
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}"),
                    }
                }
            }
            Op::Clone { snap, fs } => self.clone_snap(*snap, *fs),
            Op::Promote { fs } => self.promote(*fs),
            Op::Rollback { fs } => self.rollback(*fs),
            Op::Bookmark { snap, again } => self.bookmark(*snap, *again),
            Op::DestroyBookmark { bookmark } => self.destroy_bookmark(*bookmark),
            Op::DestroyHead { fs } => self.destroy_head(*fs),
            Op::DestroySnap { snap, defer } => self.destroy_snap(*snap, *defer),
            Op::Rename { fs, parent } => self.rename(*fs, *parent),
            Op::Reserve {
                fs,
                megabytes,
                of_head,
            } => {
                if let Some(name) = self.head(*fs) {
                    let prop = if *of_head {
                        "refreservation"
                    } else {
                        "reservation"
                    };
                    let bytes = PropValue::Number(megabytes << 20);
                    self.test.pool.set_prop(&name, prop, bytes).unwrap();
                }
            }
            Op::Limit { fs } => {
                if let Some(name) = self.head(*fs) {
                    let limit = PropValue::Number(1000);
                    self.test
                        .pool
                        .set_prop(&name, "snapshot_limit", limit)
                        .unwrap();
                }
            }
            Op::Budget { blocks } => *self.test.env.destroy_budget.lock() = *blocks,
            Op::Sync => self.test.sync(),
            Op::Crash { writes } => return self.crash(writes),
            Op::Reopen => {
                self.test.sync();
                let Model {
                    test,
                    contents,
                    serial,
                } = self;
                return Model {
                    test: test.reopen(),
                    contents,
                    serial,
                };
            }
        }
        self
    }

    fn crash(mut self, writes: &[(usize, u64, u64)]) -> Model {
        self.test.sync();
        for (fs, object, block) in writes {
            let Some(name) = self.head(*fs) else { continue };
            let content = self.contents.get_mut(&name).unwrap();
            if content.keys().any(|(found, _)| found == object) {
                self.serial += 1;
                let byte = (self.serial % 200 + 20) as u8;
                self.test.write_logged(&name, *object, *block, byte);
                content.insert((*object, *block), byte);
            }
        }
        let Model {
            test,
            contents,
            serial,
        } = self;
        let test = test.crash();
        let model = Model {
            test,
            contents,
            serial,
        };
        for name in model.heads().iter().filter(|name| *name != "tank") {
            model.test.replay(name);
        }
        model
    }

    fn clone_snap(&mut self, snap: usize, parent: usize) {
        let snaps = self.snaps();
        if snaps.is_empty() {
            return;
        }
        let snap = snaps[snap % snaps.len()].clone();
        let heads = self.heads();
        let name = format!("{}/{}", heads[parent % heads.len()], self.fresh('c'));
        if name.matches('/').count() < 4 {
            self.test
                .pool
                .clone_dataset(&name, &snap, Vec::new())
                .unwrap();
            self.contents.insert(name, self.contents[&snap].clone());
        }
    }

    fn bookmark(&mut self, snap: usize, again: bool) {
        let snaps = self.snaps();
        if snaps.is_empty() {
            return;
        }
        let snap = snaps[snap % snaps.len()].clone();
        let head = snap.split_once('@').unwrap().0.to_owned();
        let name = format!("{head}#{}", self.fresh('b'));
        self.test.pool.create_bookmark(&name, &snap).unwrap();
        remember(&self.test, &snap);
        if again {
            let copy = format!("{head}#{}", self.fresh('b'));
            self.test.pool.create_bookmark(&copy, &name).unwrap();
        }
    }

    fn bookmarks(&self) -> Vec<String> {
        let mut all = Vec::new();
        for head in self.heads() {
            let ds = self.test.pool.dataset(&head).unwrap();
            let found = self.test.pool.bookmarks(&ds).unwrap().into_iter();
            all.extend(found.map(|found| format!("{head}#{}", found.name)));
        }
        all
    }

    fn destroy_bookmark(&mut self, bookmark: usize) {
        let all = self.bookmarks();
        if !all.is_empty() {
            let name = &all[bookmark % all.len()];
            self.test.pool.destroy_bookmark(name).unwrap();
        }
    }

    fn promote(&mut self, fs: usize) {
        let Some(name) = self.head(fs) else { return };
        let ds = self.test.pool.dataset(&name).unwrap();
        let Some(origin) = self.test.pool.stats(&ds).unwrap().origin else {
            let error = self.test.pool.promote(&name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            return;
        };
        let origin_head = origin.split_once('@').unwrap().0.to_string();
        let all = self.snaps_of(&origin_head);
        self.test.pool.promote(&name).unwrap();
        let moved = all.iter().position(|snap| *snap == origin).unwrap() + 1;
        for old in &all[..moved] {
            let last = old.split_once('@').unwrap().1;
            let content = self.contents.remove(old).unwrap();
            self.contents.insert(format!("{name}@{last}"), content);
        }
    }

    fn rollback(&mut self, fs: usize) {
        let Some(name) = self.head(fs) else { return };
        self.test.close_zil(&name);
        let snaps = self.snaps_of(&name);
        match self
            .test
            .pool
            .rollback(&name, snaps.last().map(String::as_str), 0)
        {
            Ok(()) => {
                let ds = self.test.pool.dataset(&name).unwrap();
                let origin = self.test.pool.stats(&ds).unwrap().origin;
                let to = snaps.last().cloned().or(origin).unwrap();
                let content = self.contents[&to].clone();
                self.contents.insert(name, content);
            }
            Err(error) => {
                let ds = self.test.pool.dataset(&name).unwrap();
                let is_clone = self.test.pool.stats(&ds).unwrap().origin.is_some();
                let none = snaps.is_empty() && !is_clone;
                let newer = self.test.pool.bookmarks(&ds).unwrap();
                let newer = newer.iter().any(|it| it.createtxg > ds.prev_snap_txg());
                let expected = if newer && !none {
                    ErrorKind::Exists
                } else if none {
                    ErrorKind::NotFound
                } else {
                    ErrorKind::NoSpace
                };
                assert_eq!(error.kind(), expected, "{error}");
            }
        }
    }

    /// Removes from the model the snapshots that were destroyed with their last clone.
    fn forget_deferred(&mut self) {
        let names: Vec<String> = self.contents.keys().cloned().collect();
        for name in names {
            if self.test.pool.dataset(&name).is_err() {
                assert!(name.contains('@'), "{name} is gone");
                self.contents.remove(&name);
            }
        }
    }

    fn destroy_head(&mut self, fs: usize) {
        let Some(name) = self.head(fs) else { return };
        let below = format!("{name}/");
        let has_children = self.contents.keys().any(|other| other.starts_with(&below));
        let has_snaps = !self.snaps_of(&name).is_empty();
        self.test.close_zil(&name);
        match self.test.pool.destroy_head(&name) {
            Ok(()) => {
                assert!(!has_children && !has_snaps);
                self.contents.remove(&name);
                self.forget_deferred();
            }
            Err(error) if has_snaps => assert_eq!(error.kind(), ErrorKind::Busy),
            Err(error) if has_children => assert_eq!(error.kind(), ErrorKind::NotEmpty),
            Err(error) => panic!("destroy {name}: {error}"),
        }
    }

    fn destroy_snap(&mut self, snap: usize, defer: bool) {
        let snaps = self.snaps();
        if snaps.is_empty() {
            return;
        }
        let name = snaps[snap % snaps.len()].clone();
        let ds = self.test.pool.dataset(&name).unwrap();
        let clones = self.test.pool.stats(&ds).unwrap().clones;
        drop(ds);
        match self.test.pool.destroy_snapshots(&[&name], defer) {
            Ok(()) => {
                assert!(clones.is_empty() || defer);
                if clones.is_empty() {
                    self.contents.remove(&name);
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Exists);
                assert!(!clones.is_empty());
            }
        }
    }

    fn rename(&mut self, fs: usize, parent: usize) {
        let Some(name) = self.head(fs) else { return };
        let heads = self.heads();
        let parent = heads[parent % heads.len()].clone();
        let new = format!("{parent}/{}", self.fresh('r'));
        if new.matches('/').count() > 3 {
            return;
        }
        let below = parent == name || parent.starts_with(&format!("{name}/"));
        match self.test.pool.rename(&name, &new) {
            Ok(()) => {
                assert!(!below);
                let all: Vec<String> = self.contents.keys().cloned().collect();
                for old in all {
                    let Some(rest) = old.strip_prefix(&name) else {
                        continue;
                    };
                    if rest.is_empty() || rest.starts_with(['/', '@']) {
                        let content = self.contents.remove(&old).unwrap();
                        self.contents.insert(format!("{new}{rest}"), content);
                    }
                }
            }
            Err(error) => {
                assert!(below, "{error}");
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
            }
        }
    }

    fn verify(&self) {
        for (name, content) in &self.contents {
            for object in 10..14 {
                let exists = content.keys().any(|(found, _)| *found == object);
                for block in 0..40 {
                    let expected =
                        exists.then(|| content.get(&(object, block)).copied().unwrap_or(0));
                    let found = self.test.read(name, object, block);
                    assert_eq!(found, expected, "{name}: object {object}, block {block}");
                }
            }
        }
    }
}

fn run(ops: &[Op]) {
    let mut model = Model::new();
    for op in ops {
        model = model.apply(op);
    }
    *model.test.env.destroy_budget.lock() = u64::MAX;
    model.test.settle();
    check(&model.test);
    model.verify();
    let model = Model {
        test: model.test.reopen(),
        ..model
    };
    check(&model.test);
    model.verify();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn prop_no_block_leaks_and_all_accounts_agree(ops in prop::collection::vec(op(), 1..60)) {
        run(&ops);
    }
}

fn cases() -> u32 {
    std::env::var("DSL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(6)
}
