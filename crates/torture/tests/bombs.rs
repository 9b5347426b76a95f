//! Bombs: a few blocks in which all pointers are the same, so that they pose as more blocks than any disk
//! holds. Whatever walks a whole tree stops at the first block that it meets again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{ErrorKind, ObjectId, Result};
use geom::Provider;
use metaslab::{SpaceMapExtent, SpaceMapStore, for_each_entry};
use spa::Spa;
use torture::hostile::seeds::{self, Kind};
use torture::hostile::{Edit, bombs};
use torture::pool;
use zpl::mount::mount;

/// Limit of real time: visiting what poses as a thousand million blocks takes far longer.
const AT_MOST: Duration = Duration::from_secs(10);
/// The pool of files, in which "sparse" is a bomb: of data, or of holes where the fill counts claim blocks.
fn sparse_bomb(is_hollow: bool) -> Vec<Arc<dyn Provider>> {
    let images = seeds::all();
    let mut edit = images[Kind::Files as usize].edit();
    bombs::sparse(&mut edit, is_hollow);
    edit.finish()
}

/// The pool of files, in which this object of the MOS has the block tree of the bomb.
fn grafted(object: ObjectId, change: impl FnOnce(&mut Edit<'_>)) -> Vec<Arc<dyn Provider>> {
    let images = seeds::all();
    let mut edit = images[Kind::Files as usize].edit();
    let dnode = bombs::sparse(&mut edit, false);
    edit.graft(dnode, object);
    change(&mut edit);
    edit.finish()
}

/// The pool of files, unchanged.
fn good() -> Spa {
    let images = seeds::all();
    pool::open(&images[Kind::Files as usize].edit().finish(), true).unwrap()
}

/// Runs it in simulated time; it must end within [`AT_MOST`] of real time.
fn soon<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let begun = Instant::now();
    let result = rt::simulate(1, what);
    let took = begun.elapsed();
    assert!(took < AT_MOST, "it took {took:?}");
    result
}

#[track_caller]
fn assert_met(result: Result<impl Sized>) {
    let error = result.map(|_| ()).expect_err("it is a bomb");
    assert!(error.to_string().contains("met elsewhere"), "{error}");
}

/// Opens the pool for writing, changes "sparse", and syncs.
fn change(act: impl Fn(&zpl::mount::Mount, ObjectId) -> Result<()> + Send) -> Result<()> {
    let devices = sparse_bomb(false);
    soon(move || {
        let spa = pool::open(&devices, false)?;
        let fs = mount(spa.parts().dsl(), "tank/fs", false)?;
        let file = fs.lookup(fs.root(), b"sparse")?;
        let acted = act(&fs, file.id);
        drop(fs);
        let synced = acted.and(spa.sync().map(|_| ()));
        drop(spa.close());
        synced
    })
}

#[test]
fn data_is_not_looked_for_without_end() {
    let devices = sparse_bomb(true);
    assert_met(soon(move || {
        let spa = pool::open(&devices, true)?;
        let fs = mount(spa.parts().dsl(), "tank/fs", true)?;
        let file = fs.lookup(fs.root(), b"sparse")?;
        fs.seek_data(file.id, 0)
    }));
}

#[test]
fn truncating_a_bomb_suspends_the_pool() {
    assert_met(change(|fs, file| fs.truncate(file, 10).map(|_| ())));
}

#[test]
fn a_hole_punched_into_a_bomb_suspends_the_pool() {
    assert_met(change(|fs, file| fs.punch_hole(file, 0, 1 << 40)));
}

#[test]
fn unlinking_a_bomb_suspends_the_pool() {
    assert_met(change(|fs, _| {
        let dir = fs.lookup(fs.root(), b"dir")?;
        fs.unlink(dir.id, b"second name")?;
        fs.unlink(fs.root(), b"sparse")
    }));
}

#[test]
fn a_dataset_with_a_bomb_stays_on_the_list_of_what_is_to_be_freed() {
    let devices = sparse_bomb(false);
    soon(move || {
        let spa = pool::open(&devices, false).unwrap();
        let destroyed = spa.parts().dsl().destroy_head("tank/fs");
        let synced = (0..3).try_for_each(|_| spa.sync().map(|_| ()));
        // Freeing the same block twice may be detected first.
        if destroyed.and(synced).is_ok() {
            assert!(spa.parts().dsl().is_freeing());
        }
        drop(spa.close());
    });
}

#[test]
fn objects_are_not_listed_without_end() {
    let images = seeds::all();
    let image = &images[Kind::Files as usize];
    let mut edit = image.edit();
    bombs::dnodes(&mut edit);
    let devices = edit.finish();
    soon(move || {
        let spa = pool::open(&devices, true).unwrap();
        for name in spa.parts().dsl().descendants("tank").unwrap() {
            let objset = spa.parts().dsl().dataset(&name).and_then(|ds| ds.objset());
            let Ok(objset) = objset else { continue };
            let (mut at, mut walk) = (ObjectId(0), dmu::ObjectWalk::default());
            let end = loop {
                match objset.next_object_of(at, &mut walk) {
                    Ok(Some(next)) => at = next,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            if end.is_err() {
                return assert_met(end);
            }
        }
        panic!("no dataset has the bomb");
    });
}

#[test]
fn a_list_of_blocks_that_is_a_bomb_is_refused() {
    let spa = good();
    let list = zap::directory::get(spa.parts().mos(), "sync_bplist").unwrap();
    drop(spa);
    let devices = grafted(list, |edit| edit.set_mos_bonus(list, 0, 1 << 31));
    assert_met(soon(move || {
        let spa: Spa = pool::open(&devices, false)?;
        let synced = spa.sync();
        drop(spa.close());
        synced
    }));
}

#[test]
fn a_space_map_that_is_a_bomb_is_refused() {
    /// Offset of `smp_length` in the bonus of a space map.
    const SMP_LENGTH: usize = 8;
    let spa = good();
    let count = spa.parts().tree().tops()[0].metaslab_count();
    let maps = spa
        .parts()
        .space_maps()
        .objects(base::VdevId(0), count)
        .unwrap();
    let map = *maps.iter().find(|object| object.0 != 0).unwrap();
    drop(spa);
    let devices = grafted(map, |edit| edit.set_mos_bonus(map, SMP_LENGTH, 1 << 20));
    soon(move || {
        let spa = pool::open(&devices, true).unwrap();
        let (object, phys) = spa.parts().space_maps().open(map).unwrap();
        let extent = SpaceMapExtent {
            start: 0,
            size: 1 << 60,
            shift: 9,
        };
        let length = phys.length.get();
        let maps = spa.parts().space_maps();
        assert_met(for_each_entry(
            &**maps,
            &object,
            length,
            &extent,
            &mut |_, _, _| Ok(()),
        ));
        assert!(!pool::verify(&spa).unwrap().is_clean());
    });
}

#[test]
fn the_history_of_a_bomb_is_refused() {
    let spa = good();
    let history = zap::directory::get(spa.parts().mos(), "history").unwrap();
    drop(spa);
    // sh_pool_create_len, sh_phys_max_off, sh_bof, sh_eof
    let words = [0, 1 << 30, 0, 1 << 29];
    let devices = grafted(history, |edit| {
        for (at, word) in words.into_iter().enumerate() {
            edit.set_mos_bonus(history, 8 * at, word);
        }
    });
    let result = soon(move || {
        let spa = pool::open(&devices, true)?;
        spa.for_each_record(&mut |_| Ok(()))
    });
    assert_eq!(result.as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_met(result);
}
