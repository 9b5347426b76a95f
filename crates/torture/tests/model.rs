//! Random operations on file systems, snapshots and clones of one pool, beside a model in memory, with
//! export and import between: `MODEL_OPS` of them (20,000 unless told), from the seed that is printed.
//!
//! `MODEL_OPS=1000000 cargo test --release -p torture --test model -- --nocapture`

use std::collections::BTreeMap;
use std::time::Instant;

use oracle::{Zdb, have_zdb};
use spa::Spa;
use torture::memfs::MemFs;
use torture::pair::{Pair, compare};
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::NewFilesystem;
use zpl::mount::{Mount, init, mount};

/// More file systems or snapshots of one than this are not made.
const HEADS_MAX: usize = 6;
const SNAPSHOTS_MAX: usize = 5;
/// The pool is exported and imported this often, and when the dice say so.
const SESSIONS: u64 = 10;

/// A file system, its snapshots, oldest first, and where it came from.
struct Head {
    fs: MemFs,
    snapshots: Vec<(String, MemFs)>,
    origin: Option<String>,
}

/// What the pool is to hold.
struct World {
    heads: BTreeMap<String, Head>,
    next: u64,
    dice: Dice,
}

/// An imported pool; file systems are mounted as they are needed.
struct Session {
    spa: Spa,
    mounts: BTreeMap<String, Mount>,
}

impl Session {
    fn mount(&mut self, name: &str) -> &Mount {
        let dsl = self.spa.dsl();
        self.mounts
            .entry(name.to_owned())
            .or_insert_with(|| mount(dsl, name, false).unwrap_or_else(|e| panic!("{name}: {e}")))
    }
}

impl World {
    fn fresh(&mut self, stem: &str) -> String {
        self.next += 1;
        format!("{stem}{}", self.next)
    }

    fn any(&mut self) -> Option<String> {
        let names: Vec<String> = self.heads.keys().cloned().collect();
        self.dice.pick(&names).cloned()
    }

    /// One random operation: nearly always on files.
    fn step(&mut self, session: &mut Session) {
        let Some(name) = self.any() else {
            return self.create(session);
        };
        match self.dice.below(4000) {
            0 => self.create(session),
            1..4 => self.snapshot(session, &name),
            4..6 => self.clone_snapshot(session, &name),
            6..8 => self.destroy_snapshots(session, &name),
            8 => self.rollback(session, &name),
            9 => self.destroy(session, &name),
            10 => self.promote(session, &name),
            11 => self.rename(session, &name),
            12 => {
                session.spa.sync().unwrap();
            }
            _ => {
                let head = self.heads.get_mut(&name).expect("it was picked from there");
                Pair {
                    fs: session.mount(&name),
                    model: &mut head.fs,
                    dice: &mut self.dice,
                }
                .step();
            }
        }
    }

    fn create(&mut self, session: &mut Session) {
        if self.heads.len() >= HEADS_MAX {
            return;
        }
        let name = format!("tank/{}", self.fresh("fs"));
        let mut one_of = |values: &[u64]| *self.dice.pick(values).expect("there are some");
        let props = [
            ("compression", one_of(&[2, 3, 10, 14, 15, 16])),
            ("recordsize", one_of(&[4096, 16 << 10, 128 << 10, 1 << 20])),
            ("checksum", one_of(&[6, 7, 8, 11, 12, 13, 14])),
            ("copies", one_of(&[1, 1, 1, 2, 3])),
            ("dnodesize", one_of(&[0, 1024, 2048])),
            ("xattr", one_of(&[1, 2])),
        ];
        pool::create_fs(&session.spa, &name, &props).unwrap();
        let root = session.mount(&name).root();
        let head = Head {
            fs: MemFs::new(root),
            snapshots: Vec::new(),
            origin: None,
        };
        self.heads.insert(name, head);
    }

    fn snapshot(&mut self, session: &mut Session, name: &str) {
        let snap = self.fresh("s");
        let head = self.heads.get_mut(name).expect("it was picked from there");
        if head.snapshots.len() >= SNAPSHOTS_MAX {
            return;
        }
        let full = format!("{name}@{snap}");
        session.spa.dsl().snapshot(&[&full], Vec::new()).unwrap();
        let mut fs = head.fs.clone();
        fs.forget_holds();
        head.snapshots.push((snap, fs));
    }

    fn clone_snapshot(&mut self, session: &mut Session, name: &str) {
        let picked = self.dice.pick(&self.heads[name].snapshots).cloned();
        let Some((snap, fs)) = picked.filter(|_| self.heads.len() < HEADS_MAX) else {
            return;
        };
        let (origin, clone) = (
            format!("{name}@{snap}"),
            format!("tank/{}", self.fresh("clone")),
        );
        let dsl = session.spa.dsl();
        dsl.clone_dataset(&clone, &origin, Vec::new()).unwrap();
        let head = Head {
            fs,
            snapshots: Vec::new(),
            origin: Some(origin),
        };
        self.heads.insert(clone, head);
    }

    fn has_clones(&self, snapshot: &str) -> bool {
        let mut origins = self.heads.values().filter_map(|h| h.origin.as_deref());
        origins.any(|origin| origin == snapshot)
    }

    /// Some snapshots of a head: all go, or none.
    fn destroy_snapshots(&mut self, session: &mut Session, name: &str) {
        let all = &self.heads[name].snapshots;
        let doomed: Vec<String> = all
            .iter()
            .filter(|_| self.dice.once_in(2))
            .map(|(snap, _)| format!("{name}@{snap}"))
            .collect();
        let names: Vec<&str> = doomed.iter().map(String::as_str).collect();
        let outcome = session.spa.dsl().destroy_snapshots(&names, false);
        if names.iter().any(|full| self.has_clones(full)) {
            assert!(outcome.is_err(), "one of {names:?} has a clone");
            return;
        }
        outcome.unwrap();
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let is_doomed = |snap: &str| names.contains(&format!("{name}@{snap}").as_str());
        head.snapshots.retain(|(snap, _)| !is_doomed(snap));
    }

    fn rollback(&mut self, session: &mut Session, name: &str) {
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let Some((_, fs)) = head.snapshots.last() else {
            return;
        };
        session.mounts.remove(name);
        session.spa.dsl().rollback(name, None, 0).unwrap();
        head.fs = fs.clone();
    }

    fn destroy(&mut self, session: &mut Session, name: &str) {
        session.mounts.remove(name);
        let head = self.heads.get_mut(name).expect("it was picked from there");
        head.fs.forget_holds();
        let outcome = session.spa.dsl().destroy_head(name);
        if head.snapshots.is_empty() {
            outcome.unwrap();
            self.heads.remove(name);
        } else {
            assert!(outcome.is_err(), "{name} has snapshots");
        }
    }

    /// The snapshots up to the origin move to the clone.
    fn promote(&mut self, session: &mut Session, name: &str) {
        let Some(origin) = self.heads[name].origin.clone() else {
            return;
        };
        session.spa.dsl().promote(name).unwrap();
        let (parent, snap) = origin.split_once('@').expect("a snapshot");
        let old = self.heads.get_mut(parent).expect("an origin has its head");
        let at = old.snapshots.iter().position(|(s, _)| s == snap);
        let later = old.snapshots.split_off(at.expect("it is there") + 1);
        let moved = std::mem::replace(&mut old.snapshots, later);
        let above = old.origin.replace(format!("{name}@{snap}"));
        for head in self.heads.values_mut() {
            let Some((of, snap)) = head.origin.as_ref().and_then(|o| o.split_once('@')) else {
                continue;
            };
            if of == parent && moved.iter().any(|(s, _)| s == snap) {
                head.origin = Some(format!("{name}@{snap}"));
            }
        }
        let head = self.heads.get_mut(name).expect("it was picked from there");
        head.origin = above;
        head.snapshots.splice(0..0, moved);
    }

    fn rename(&mut self, session: &mut Session, name: &str) {
        let new = format!("tank/{}", self.fresh("renamed"));
        session.mounts.remove(name);
        session.spa.dsl().rename(name, &new).unwrap();
        let mut head = self.heads.remove(name).expect("it was picked from there");
        head.fs.forget_holds();
        self.heads.insert(new.clone(), head);
        for head in self.heads.values_mut() {
            if let Some((of, snap)) = head.origin.as_ref().and_then(|o| o.split_once('@'))
                && of == name
            {
                head.origin = Some(format!("{new}@{snap}"));
            }
        }
    }

    /// Reads everything back: file systems, and snapshots through mounts of their own.
    fn compare(&self, session: &mut Session) {
        for (name, head) in &self.heads {
            compare(session.mount(name), &head.fs);
            for (snap, fs) in &head.snapshots {
                let full = format!("{name}@{snap}");
                let there = mount(session.spa.dsl(), &full, true);
                compare(&there.unwrap_or_else(|e| panic!("{full}: {e}")), fs);
            }
        }
    }

    fn close(&mut self, session: Session) {
        let Session { spa, mounts } = session;
        drop(mounts);
        for head in self.heads.values_mut() {
            head.fs.forget_holds();
        }
        spa.sync().unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
    }
}

fn operations() -> u64 {
    let given = std::env::var("MODEL_OPS").ok();
    given.map_or(20_000, |ops| ops.parse().expect("MODEL_OPS is a number"))
}

#[test]
fn files_snapshots_and_clones_agree_with_a_model() {
    let (ops, seed) = (operations(), seed(5));
    let mut dice = Dice::new(seed);
    let layouts = [
        (Layout::Stripe, 9),
        (Layout::Mirror, 12),
        (Layout::Stripe, 13),
    ];
    let (layout, ashift) = *dice.pick(&layouts).expect("there are some");
    let folder = tempfile::tempdir().unwrap();
    let disks = pool::images(folder.path(), 2, 4 << 30);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", layout, ashift, &disks, root).unwrap();
    spa.export().unwrap();
    drop((spa, disks));
    let mut world = World {
        heads: BTreeMap::new(),
        next: 0,
        dice,
    };
    let (started, mut done) = (Instant::now(), 0);
    while done < ops {
        let disks = pool::images(folder.path(), 2, 0);
        let spa = pool::open(&disks, false).unwrap();
        let mut session = Session {
            spa,
            mounts: BTreeMap::new(),
        };
        world.compare(&mut session);
        let end = ops.min(done + 1 + world.dice.below(2 * ops.div_ceil(SESSIONS).min(25_000)));
        while done < end {
            world.step(&mut session);
            done += 1;
        }
        world.compare(&mut session);
        world.close(session);
        drop(disks);
        eprintln!(
            "{done} operations after {} s: {} file systems, {} files",
            started.elapsed().as_secs(),
            world.heads.len(),
            world.heads.values().map(|h| h.fs.count()).sum::<usize>()
        );
        if have_zdb() && (world.dice.once_in(4) || done == ops) {
            Zdb::verify(folder.path(), "tank").assert_clean();
        }
    }
}
