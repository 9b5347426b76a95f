//! Random operations on file systems, snapshots and clones of one pool, checked against a model in memory, with
//! exports and imports in between: `MODEL_OPS` operations (default 20,000), from a printed seed.
//!
//! `MODEL_OPS=1000000 cargo test --release -p torture --test model -- --nocapture`

use std::time::Instant;

use base::Result;
use oracle::{Zdb, have_zdb};
use torture::filesystems::{Filesystems, Session};
use torture::pair::{Pair, Terms};
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::NewFilesystem;
use zpl::mount::init;

/// A run exports and imports the pool about this often; long runs more often, as a session has at most 25,000
/// operations.
const SESSIONS: u64 = 10;

/// One random operation: nearly always on files.
fn step(world: &mut Filesystems, session: &mut Session, dice: &mut Dice) -> Result<()> {
    let Some(name) = world.any(dice) else {
        return world.create(session, dice);
    };
    match dice.below(4000) {
        0 => world.create(session, dice),
        1..4 => world.snapshot(session, &name),
        4..6 => world.clone_snapshot(session, &name, dice),
        6..8 => world.destroy_snapshots(session, &name, dice),
        8 => world.rollback(session, &name),
        9 => world.destroy(session, &name),
        10 => world.promote(session, &name),
        11 => world.rename(session, &name),
        12 => session.spa.sync().map(|_| ()),
        _ => {
            let head = world
                .heads
                .get_mut(&name)
                .expect("it was picked from there");
            let mut terms = Terms::default();
            let mut pair = Pair {
                fs: session.mount(&name),
                model: &mut head.fs,
                dice,
                terms: &mut terms,
            };
            pair.step();
            while pair.terms.is_thinning {
                pair.step();
            }
            Ok(())
        }
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
    let mut world = Filesystems::default();
    let (started, mut done) = (Instant::now(), 0);
    while done < ops {
        let disks = pool::images(folder.path(), 2, 0);
        let mut session = Session::new(pool::open(&disks, false).unwrap());
        world.compare(&mut session);
        let end = ops.min(done + 1 + dice.below(2 * ops.div_ceil(SESSIONS).min(25_000)));
        while done < end {
            step(&mut world, &mut session, &mut dice).unwrap();
            done += 1;
        }
        world.compare(&mut session);
        world.close(session).unwrap();
        drop(disks);
        eprintln!(
            "{done} operations after {} s: {} file systems, {} files",
            started.elapsed().as_secs(),
            world.heads.len(),
            world.heads.values().map(|h| h.fs.count()).sum::<usize>()
        );
        if have_zdb() && (dice.once_in(4) || done == ops) {
            Zdb::verify(folder.path(), "tank").assert_clean();
        }
    }
}
