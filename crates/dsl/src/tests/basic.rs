//! One behaviour at a time.

use base::ErrorKind;
use phys::PropValue;
use phys::pool_names;
use zap::directory;

use super::check::{check, remember};
use super::harness::TestPool;
use crate::{PropChange, PropSource, Used};

#[test]
fn a_new_pool_has_its_hidden_directories_and_no_leak() {
    let test = TestPool::create();
    check(&test);
    let test = test.reopen();
    check(&test);
    assert_eq!(test.pool.descendants("tank").unwrap(), ["tank"]);
    let root = test.pool.dataset("tank").unwrap();
    assert_eq!(test.pool.stats(&root).unwrap().createtxg.0, 1);
}

#[test]
fn a_snapshot_keeps_what_the_head_overwrites() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.write("tank/a", 10, 5, 2);
    test.snapshot("tank/a@one");
    test.write("tank/a", 10, 0, 3);
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a", 10, 0), Some(3));
    assert_eq!(test.read("tank/a@one", 10, 0), Some(1));
    let test = test.reopen();
    check(&test);
    assert_eq!(test.read("tank/a@one", 10, 0), Some(1));
    assert_eq!(test.read("tank/a@one", 10, 5), Some(2));
    test.pool.destroy_snapshots(&["tank/a@one"], false).unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a", 10, 0), Some(3));
}

#[test]
fn destroying_the_middle_snapshot_frees_what_only_it_had() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    for step in 1..=4 {
        test.write("tank/a", 10, 0, step);
        test.write("tank/a", 10, u64::from(step), step);
        test.snapshot(&format!("tank/a@{step}"));
        check(&test);
    }
    for gone in ["tank/a@2", "tank/a@1", "tank/a@4", "tank/a@3"] {
        test.pool.destroy_snapshots(&[gone], false).unwrap();
        test.settle();
        check(&test);
    }
    assert_eq!(test.read("tank/a", 10, 0), Some(4));
    assert_eq!(test.read("tank/a", 10, 2), Some(2));
}

#[test]
fn a_clone_shares_with_its_origin_and_is_destroyed_alone() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.write("tank/a", 11, 0, 2);
    test.snapshot("tank/a@one");
    test.pool
        .clone_dataset("tank/b", "tank/a@one", Vec::new())
        .unwrap();
    check(&test);
    test.write("tank/b", 10, 0, 7);
    test.remove("tank/b", 11);
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a", 10, 0), Some(1));
    assert_eq!(test.read("tank/b", 10, 0), Some(7));
    assert_eq!(test.read("tank/b", 11, 0), None);
    let busy = test
        .pool
        .destroy_snapshots(&["tank/a@one"], false)
        .unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Exists);
    test.pool.destroy_head("tank/b").unwrap();
    test.settle();
    check(&test);
    test.pool.destroy_snapshots(&["tank/a@one"], false).unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a", 11, 0), Some(2));
}

#[test]
fn a_destroy_pauses_and_goes_on_in_later_txgs() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    for object in 10..14 {
        for block in 0..70 {
            test.write("tank/a", object, block, 1);
        }
    }
    test.sync();
    *test.env.destroy_budget.lock() = 7;
    test.pool.destroy_head("tank/a").unwrap();
    assert!(test.pool.is_freeing());
    assert!(test.used("tank/$FREE") > 0);
    test.sync();
    let test = test.reopen();
    assert!(test.pool.is_freeing());
    *test.env.destroy_budget.lock() = 11;
    test.settle();
    check(&test);
    assert_eq!(test.used("tank/$FREE"), 0);
}

#[test]
fn rollback_brings_the_snapshot_back() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.snapshot("tank/a@one");
    test.write("tank/a", 10, 0, 2);
    test.write("tank/a", 12, 3, 2);
    test.sync();
    test.pool.rollback("tank/a", Some("tank/a@one"), 0).unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a", 10, 0), Some(1));
    assert_eq!(test.read("tank/a", 12, 3), None);
    test.write("tank/a", 10, 0, 5);
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a@one", 10, 0), Some(1));
}

#[test]
fn promote_moves_snapshots_and_who_pays() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    for step in 1..=3 {
        test.write("tank/a", 10, 0, step);
        test.write("tank/a", 20 + u64::from(step), 0, step);
        test.snapshot(&format!("tank/a@{step}"));
    }
    test.pool
        .clone_dataset("tank/b", "tank/a@2", Vec::new())
        .unwrap();
    test.write("tank/b", 10, 0, 9);
    test.snapshot("tank/b@mine");
    test.settle();
    check(&test);
    test.pool.promote("tank/b").unwrap();
    test.settle();
    check(&test);
    let snaps = |name: &str| {
        let ds = test.pool.dataset(name).unwrap();
        let snaps = test.pool.snapshots(&ds).unwrap().into_iter();
        snaps.map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(snaps("tank/b"), ["1", "2", "mine"]);
    assert_eq!(snaps("tank/a"), ["3"]);
    let a = test.pool.dataset("tank/a").unwrap();
    assert_eq!(
        test.pool.stats(&a).unwrap().origin.as_deref(),
        Some("tank/b@2")
    );
    assert_eq!(test.read("tank/b@1", 10, 0), Some(1));
    let test = test.reopen();
    check(&test);
    test.pool.destroy_snapshots(&["tank/a@3"], false).unwrap();
    test.pool.destroy_head("tank/a").unwrap();
    test.settle();
    check(&test);
    test.pool
        .destroy_snapshots(&["tank/b@1", "tank/b@2", "tank/b@mine"], false)
        .unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/b", 10, 0), Some(9));
}

#[test]
fn names_move_with_what_is_below_them() {
    let test = TestPool::create();
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        test.create_fs(name);
        test.write(name, 10, 0, 1);
    }
    test.snapshot("tank/a/b@s");
    test.pool.rename("tank/a", "tank/c/d").unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/c/d/b@s", 10, 0), Some(1));
    test.pool.rename_snapshot("tank/c", "s", "t", true).unwrap();
    assert_eq!(test.read("tank/c/d/b@t", 10, 0), Some(1));
    let error = test.pool.rename("tank/c", "tank/c/d/e").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        test.pool.rename("tank/c", "tank/c/d").unwrap_err().kind(),
        ErrorKind::Exists
    );
    let test = test.reopen();
    assert_eq!(
        test.pool.descendants("tank").unwrap(),
        ["tank", "tank/c", "tank/c/d", "tank/c/d/b"]
    );
    check(&test);
}

#[test]
fn properties_are_inherited_received_and_reverted() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.create_fs("tank/a/b");
    let number = PropValue::Number;
    test.pool.set_prop("tank/a", "atime", number(0)).unwrap();
    let b = test.pool.dataset("tank/a/b").unwrap();
    let prop = test.pool.prop(&b, "atime").unwrap().unwrap();
    assert_eq!(prop.value, number(0));
    assert_eq!(prop.source, PropSource::Inherited("tank/a".to_string()));
    let change = |change: PropChange| {
        test.pool
            .set_props("tank/a/b", vec![("atime".to_string(), change)])
            .unwrap();
        test.pool
            .prop(&b, "atime")
            .unwrap()
            .map(|prop| (prop.value, prop.source))
    };
    test.pool
        .set_prop("tank/a/b", "$hasrecvd", number(0))
        .unwrap();
    let received = change(PropChange::Receive(number(7)));
    assert_eq!(received, Some((number(7), PropSource::Received)));
    assert_eq!(
        change(PropChange::Set(number(3))),
        Some((number(3), PropSource::Local))
    );
    let inherited = Some((number(0), PropSource::Inherited("tank/a".to_string())));
    assert_eq!(change(PropChange::Inherit), inherited);
    assert_eq!(
        change(PropChange::Revert),
        Some((number(7), PropSource::Received))
    );
    assert_eq!(change(PropChange::ForgetReceived), inherited);

    test.pool
        .set_prop("tank/a", "org.me:note", PropValue::Text("x".into()))
        .unwrap();
    test.pool
        .set_prop("tank/a", "quota", number(1 << 30))
        .unwrap();
    let props = test.pool.props(&b).unwrap();
    assert_eq!(props["org.me:note"].value, PropValue::Text("x".into()));
    assert!(!props.contains_key("quota"), "a quota is not inherited");
    test.snapshot("tank/a/b@s");
    test.pool
        .set_prop("tank/a/b@s", "org.me:note", PropValue::Text("y".into()))
        .unwrap();
    let snap = test.pool.dataset("tank/a/b@s").unwrap();
    assert_eq!(
        test.pool.props(&snap).unwrap()["org.me:note"].source,
        PropSource::Local
    );
    check(&test);
    let note = vec![("org.me:note".to_string(), PropChange::Inherit)];
    test.pool.set_props("tank/a/b@s", note).unwrap();
    check(&test);
}

#[test]
fn engine_properties_reach_open_objsets() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    let ds = test.pool.dataset("tank/a").unwrap();
    let os = ds.objset().unwrap();
    assert_eq!(os.props().copies, 1);
    test.pool
        .set_prop("tank", "copies", PropValue::Number(2))
        .unwrap();
    assert_eq!(os.props().copies, 2);
    test.write("tank/a", 10, 0, 1);
    test.settle();
    check(&test);
}

#[test]
fn reservations_and_quotas_are_charged_and_enforced() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.create_fs("tank/a/b");
    let set = |name: &str, prop: &str, bytes: u64| {
        test.pool
            .set_prop(name, prop, PropValue::Number(bytes))
            .map_err(|e| e.kind())
    };
    set("tank/a/b", "reservation", 5 << 20).unwrap();
    set("tank/a/b", "refreservation", 4 << 20).unwrap();
    check(&test);
    assert!(test.used("tank/a") >= 5 << 20);
    assert_eq!(set("tank/a", "quota", 4 << 20), Err(ErrorKind::NoSpace));
    set("tank/a", "quota", 16 << 20).unwrap();
    assert_eq!(
        set("tank/a/b", "refreservation", 32 << 20),
        Err(ErrorKind::NoSpace)
    );
    for block in 0..100 {
        test.write("tank/a/b", 10, block, 1);
    }
    test.snapshot("tank/a/b@s");
    test.settle();
    check(&test);
    for block in 0..100 {
        test.write("tank/a/b", 10, block, 2);
    }
    test.settle();
    check(&test);
    test.pool.destroy_snapshots(&["tank/a/b@s"], false).unwrap();
    test.settle();
    check(&test);
    set("tank/a/b", "refreservation", 0).unwrap();
    set("tank/a/b", "reservation", 0).unwrap();
    set("tank/a", "quota", test.used("tank/a") + (64 << 10)).unwrap();
    let b = test.pool.dataset("tank/a/b").unwrap();
    test.pool.check_space(&b, 4096, false).unwrap();
    for block in 0..100 {
        test.write("tank/a/b", 11, block, 1);
    }
    test.settle();
    let error = test.pool.check_space(&b, 4096, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quota);
    test.pool.check_space(&b, 4096, true).unwrap();
    *test.env.dspace.lock() = 1 << 20;
    let root = test.pool.dataset("tank").unwrap();
    let error = test.pool.check_space(&root, 4096, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    check(&test);
}

#[test]
fn holds_keep_snapshots_and_let_them_go() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.snapshot("tank/a@s");
    test.pool.hold(&["tank/a@s"], "keep").unwrap();
    check(&test);
    let error = test
        .pool
        .destroy_snapshots(&["tank/a@s"], false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    test.pool.destroy_snapshots(&["tank/a@s"], true).unwrap();
    let snap = test.pool.dataset("tank/a@s").unwrap();
    assert!(snap.is_defer_destroy());
    assert_eq!(test.pool.holds(&snap).unwrap()[0].0, "keep");
    test.pool.release(&["tank/a@s"], "keep").unwrap();
    assert_eq!(
        test.pool.dataset("tank/a@s").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    test.settle();
    check(&test);
}

#[test]
fn a_deferred_origin_goes_with_its_last_clone() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.snapshot("tank/a@s");
    test.pool
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    test.write("tank/a", 10, 0, 2);
    test.pool.destroy_snapshots(&["tank/a@s"], true).unwrap();
    test.pool.destroy_head("tank/b").unwrap();
    assert_eq!(
        test.pool.dataset("tank/a@s").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    test.settle();
    check(&test);
}

#[test]
fn bookmarks_outlive_their_snapshot_and_move_with_a_promotion() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.snapshot("tank/a@s");
    let guid = test.pool.dataset("tank/a@s").unwrap().fields().guid;
    test.pool.create_bookmark("tank/a#m", "tank/a@s").unwrap();
    remember(&test, "tank/a@s");
    test.pool
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    check(&test);
    test.pool.promote("tank/b").unwrap();
    check(&test);
    let b = test.pool.dataset("tank/b").unwrap();
    assert_eq!(test.pool.bookmarks(&b).unwrap()[0].guid.0, guid);
    test.pool.destroy_head("tank/a").unwrap();
    test.pool.destroy_snapshots(&["tank/b@s"], false).unwrap();
    test.settle();
    check(&test);
    test.pool.destroy_bookmark("tank/b#m").unwrap();
    check(&test);
    test.pool
        .create_bookmark("tank/b#n", "tank/b@s")
        .unwrap_err();
}

/// The check compares what a bookmark says was freed with the blocks that are gone.
#[test]
fn a_bookmark_counts_what_is_freed_and_forgets_what_a_rollback_brings_back() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.write("tank/a", 10, 1, 1);
    test.snapshot("tank/a@s");
    test.pool.create_bookmark("tank/a#m", "tank/a@s").unwrap();
    remember(&test, "tank/a@s");
    test.write("tank/a", 10, 0, 2);
    test.sync();
    check(&test);
    test.pool.rollback("tank/a", None, 0).unwrap();
    test.settle();
    check(&test);
}

#[test]
fn statistics_tell_who_has_what() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    for block in 0..20 {
        test.write("tank/a", 10, block, 1);
    }
    test.snapshot("tank/a@1");
    for block in 0..10 {
        test.write("tank/a", 10, block, 2);
    }
    test.snapshot("tank/a@2");
    test.settle();
    let ds = test.pool.dataset("tank/a").unwrap();
    let first = test.pool.dataset("tank/a@1").unwrap();
    let stats = test.pool.stats(&ds).unwrap();
    assert_eq!(stats.used, stats.usedbydataset + stats.usedbysnapshots);
    assert_eq!(stats.written, 0);
    assert_eq!(stats.prev_snap.as_deref(), Some("tank/a@2"));
    let written = test.pool.space_written(&first, &ds).unwrap().used;
    assert!(written >= 10 * 4096, "{written}");
    assert!(
        written.cast_unsigned() < stats.referenced - 10 * 4096,
        "{written}"
    );
    let freed = test.pool.space_would_free(&first, &first).unwrap().used;
    assert_eq!(freed.cast_unsigned(), first.fields().unique_bytes);
    assert_eq!(stats.usedbysnapshots, ds.dir().fields().used_by(Used::Snap));
    test.pool
        .clone_dataset("tank/b", "tank/a@1", Vec::new())
        .unwrap();
    assert_eq!(test.pool.stats(&first).unwrap().clones, ["tank/b"]);
}

#[test]
fn large_blocks_are_recorded_as_a_feature_of_the_data_set() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    let ds = test.pool.dataset("tank/a").unwrap();
    {
        let os = ds.objset().unwrap();
        let tx = test.pool.groups().hold_open(0).unwrap();
        let new = dmu::NewObject::new(phys::ObjectType::PLAIN_FILE_CONTENTS).blksz(1 << 20);
        let dnode = os.object_alloc(&tx, &new).unwrap();
        dnode.write(&tx, 0, &vec![1; 1 << 20]).unwrap();
    }
    test.settle();
    assert!(ds.feature_is_active(phys::feature::LARGE_BLOCKS));
    test.snapshot("tank/a@s");
    test.pool
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    let count = |guid: &str| test.env.features.lock().get(guid).copied().unwrap_or(0);
    assert_eq!(count(phys::feature::LARGE_BLOCKS), 3);
    check(&test);
    let test = test.reopen();
    let ds = test.pool.dataset("tank/a@s").unwrap();
    assert!(ds.feature_is_active(phys::feature::LARGE_BLOCKS));
    drop(ds);
    test.pool.destroy_head("tank/b").unwrap();
    test.pool.rollback("tank/a", None, 0).unwrap();
    test.settle();
    check(&test);
    let count = test.env.features.lock()[phys::feature::LARGE_BLOCKS];
    assert_eq!(count, 2);
}

#[test]
fn a_clone_goes_back_to_its_origin_which_stays_what_it_was() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.snapshot("tank/a@s");
    test.pool
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    test.write("tank/a", 10, 0, 2);
    test.write("tank/b", 10, 0, 3);
    test.settle();
    let unique = test.pool.dataset("tank/a@s").unwrap().fields().unique_bytes;
    assert!(unique > 0);
    test.pool.rollback("tank/b", None, 0).unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/b", 10, 0), Some(1));
    assert_eq!(
        test.pool.dataset("tank/a@s").unwrap().fields().unique_bytes,
        unique
    );
}

#[test]
fn logs_of_heads_are_claimed_replayed_and_freed_with_them() {
    let test = TestPool::create();
    test.create_fs("tank/a");
    test.write("tank/a", 10, 0, 1);
    test.sync();
    test.write_logged("tank/a", 10, 0, 2);
    test.write_logged("tank/a", 10, 3, 3);
    test.snapshot("tank/a@s");
    test.write_logged("tank/a", 10, 0, 4);
    let test = test.crash();
    assert_eq!(test.read("tank/a", 10, 0), Some(2), "as of the last txg");
    assert_eq!(test.replay("tank/a"), 1);
    assert_eq!(test.read("tank/a", 10, 0), Some(4));
    assert_eq!(test.read("tank/a@s", 10, 0), Some(2));
    test.settle();
    check(&test);

    // A clone does not inherit the log; rollback and destroy free it.
    test.write_logged("tank/a", 10, 0, 5);
    test.snapshot("tank/a@t");
    test.pool
        .clone_dataset("tank/b", "tank/a@t", Vec::new())
        .unwrap();
    let b = test.pool.dataset("tank/b").unwrap();
    assert!(b.objset().unwrap().zil_header().log.is_hole());
    drop(b);
    test.write_logged("tank/b", 10, 0, 6);
    test.close_zil("tank/b");
    test.close_zil("tank/a");
    test.pool.rollback("tank/a", None, 0).unwrap();
    test.pool.destroy_head("tank/b").unwrap();
    test.settle();
    check(&test);
    assert_eq!(test.read("tank/a", 10, 0), Some(5));
}

#[test]
fn livelists_of_destroyed_clones_are_worked_off() {
    use crate::{Bpobj, Deadlist, Space};
    use base::{Buf, ObjsetId};
    use phys::feature;
    use zio::{Bookmark, WritePolicy, WriteRequest};

    let test = TestPool::create();
    let tx = test.pool.groups().hold_open(0).unwrap();
    test.pool.queue_task(&tx, |pool, tx| {
        let mos = pool.mos();
        let bps: Vec<_> = (1..=6u8)
            .map(|byte| {
                let mut data = Buf::zeroed(4096);
                data.make_mut().fill(byte);
                let mark = Bookmark::root(ObjsetId(99));
                let request = WriteRequest::new(data, WritePolicy::default(), 19, mark);
                pool.store().write(tx.txg(), request).unwrap()
            })
            .collect();
        mos.env().feature_incr(feature::LIVELIST, tx)?;
        let livelist = Deadlist::alloc(mos, tx)?;
        let mut deadlist = Deadlist::open(mos, livelist)?;
        deadlist.add_key(0, tx)?;
        let list = Bpobj::alloc(mos, tx)?;
        Bpobj::release_empty(mos, tx)?;
        mos.zap_int_update(livelist, 0, list.0, tx)?;
        // Blocks 0 and 3 were freed again, 3 was allocated twice.
        let list = Bpobj::open(mos, list)?;
        list.enqueue(&bps[..4], false, tx)?;
        list.enqueue(&[bps[0], bps[3]], true, tx)?;
        list.enqueue(&bps[3..], false, tx)?;
        let space = list.space()?;
        pool.store().free(tx.txg(), &bps[0]);
        let clones = mos.zap_create(phys::ObjectType::N_ZAP_METADATA, tx)?;
        mos.zap_int_add(clones, livelist.0, livelist.0, tx)?;
        directory::add(mos.objset(), pool_names::DELETED_CLONES, clones, tx)?;
        let deadlist = Deadlist::open(mos, livelist)?;
        deadlist.add_space_for_test(space, tx)?;
        pool.diduse_space(pool.free_dir()?, Used::Head, space);
        assert_eq!(
            space,
            Space {
                used: 5 * 4096,
                comp: 5 * 4096,
                uncomp: 5 * 4096
            }
        );
        Ok(())
    });
    drop(tx);
    test.settle();
    assert!(!test.pool.is_freeing());
    check(&test);
    assert_eq!(test.env.features.lock()[feature::LIVELIST], 0);
}
