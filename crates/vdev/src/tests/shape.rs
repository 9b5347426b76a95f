//! Trees that grow and shrink.

use super::*;
use base::ErrorKind;
use ram::Memory;

fn disk(n: u64) -> Arc<dyn Provider> {
    Arc::new(Memory::new(format!("/md{n}"), DISK_BYTES))
}

#[test]
fn attach_makes_a_mirror_and_detach_unmakes_it() {
    let tree = tree(vec![as_top(leaf(101, disk(1)), 12)]);
    tree.write_block(VdevId(0), 0, &[7; 4096]).unwrap();
    let new = leaf(102, disk(2));
    tree.attach(Guid(101), &new, Attach::Side, Txg(10)).unwrap();
    let top = tree.top(VdevId(0)).unwrap();
    assert_eq!(
        (top.kind(), top.config().ms_array, top.config().ashift),
        (VdevKind::Mirror, 256, 12)
    );
    assert_eq!(gaps(&new), [(4, 13)]);
    tree.attach(Guid(102), &leaf(103, disk(3)), Attach::Side, Txg(11))
        .unwrap();
    assert_eq!(tree.top(VdevId(0)).unwrap().children().len(), 3);

    // The new sides have not caught up yet.
    assert_eq!(refusal(tree.check_detach(Guid(101))), ErrorKind::Busy);
    let mut bytes = [0; 4096];
    for _ in 0..3 {
        tree.scrub_block(VdevId(0), 0, &mut bytes, &|bytes| bytes[0] == 7)
            .unwrap();
    }
    new.leaf().clear_dtl(&(0..20));
    tree.check_detach(Guid(101)).unwrap();
    tree.detach(Guid(101)).unwrap();
    tree.detach(Guid(103)).unwrap();
    let last = tree.top(VdevId(0)).unwrap();
    assert_eq!((last.kind(), last.guid()), (VdevKind::File, top.guid()));
    assert_eq!(last.config().ms_array, 256);
    tree.read_block(VdevId(0), 0, &mut bytes, &|bytes| bytes[0] == 7)
        .unwrap();
    assert_eq!(
        refusal(tree.check_detach(last.guid())),
        ErrorKind::Unsupported
    );
}

#[test]
fn replacing_inside_a_mirror_nests() {
    let tree = mirror_tree(&[disk(1), disk(2)]);
    let new = leaf(103, disk(3));
    tree.attach(Guid(101), &new, Attach::Replacement, Txg(10))
        .unwrap();
    let top = tree.top(VdevId(0)).unwrap();
    assert_eq!(
        (top.guid(), top.children()[0].kind()),
        (Guid(100), VdevKind::Replacing)
    );
    assert_eq!(top.devices().len(), 3);
    tree.write_block(VdevId(0), 0, &[7; 4096]).unwrap();
    assert!(tree.replaced().is_empty());
    new.leaf().clear_dtl(&(0..20));
    let old = tree.replaced().remove(0);
    assert_eq!(old.guid(), Guid(101));
    tree.detach(Guid(101)).unwrap();
    let top = tree.top(VdevId(0)).unwrap();
    let guids: Vec<_> = top.children().iter().map(|side| side.guid().0).collect();
    assert_eq!(guids, [103, 102]);
    assert_eq!(top.children()[0].config().asize, 0);
}

#[test]
fn a_replacement_is_replaced_beside_it() {
    let tree = mirror_tree(&[disk(1), disk(2)]);
    let (new, newer) = (leaf(103, disk(3)), leaf(104, disk(4)));
    tree.attach(Guid(101), &new, Attach::Replacement, Txg(10))
        .unwrap();
    tree.attach(Guid(103), &newer, Attach::Replacement, Txg(20))
        .unwrap();
    let replacing = Arc::clone(&tree.top(VdevId(0)).unwrap().children()[0]);
    let guids: Vec<_> = replacing
        .children()
        .iter()
        .map(|side| side.guid().0)
        .collect();
    assert_eq!(guids, [101, 103, 104]);
    newer.leaf().clear_dtl(&(0..40));
    while let Some(old) = tree.replaced().pop() {
        tree.detach(old.guid()).unwrap();
    }
    assert_eq!(tree.top(VdevId(0)).unwrap().children()[0].guid(), Guid(104));
    assert_eq!(
        refusal(tree.check_attach(Guid(1), &newer, Attach::Side)),
        ErrorKind::NotFound
    );
}

#[test]
fn a_device_at_the_same_path_takes_it_over_and_gives_it_back() {
    let tree = tree(vec![as_top(leaf(101, disk(1)), 12)]);
    let path = |guid| {
        tree.find(Guid(guid))
            .unwrap()
            .config()
            .path
            .clone()
            .unwrap()
    };
    let (first, second) = (leaf(102, disk(1)), leaf(103, disk(1)));
    tree.find(Guid(101))
        .unwrap()
        .update(|config| config.path = Some("/md1".to_owned()));
    for new in [&first, &second] {
        new.update(|config| config.path = Some("/md1".to_owned()));
        tree.attach(tree.devices()[0].guid(), new, Attach::Replacement, Txg(10))
            .unwrap();
        assert_eq!(tree.devices()[0].config().path.as_deref(), Some("/md1/old"));
        tree.detach(new.guid()).unwrap();
        assert_eq!(path(tree.devices()[0].guid().0), "/md1");
    }
}

#[test]
fn tops_are_added_behind_others_and_removed_to_holes() {
    let tree = tree(vec![
        as_top(leaf(101, disk(1)), 12),
        as_top(leaf(102, disk(2)), 12),
    ]);
    tree.remove_top(VdevId(0));
    assert_eq!(tree.top(VdevId(0)).unwrap().kind(), VdevKind::Hole);
    assert!(tree.write_block(VdevId(0), 0, &[0; 4096]).is_err());
    assert_eq!(tree.add_top(as_top(leaf(104, disk(4)), 12)), VdevId(2));
    tree.remove_top(VdevId(1));
    tree.remove_top(VdevId(2));
    assert_eq!(tree.tops().len(), 0);
    let small = Arc::new(Memory::new("/small", DISK_BYTES));
    let big = as_top(leaf(105, Arc::new(Memory::new("/big", 2 * DISK_BYTES))), 12);
    tree.add_top(big);
    let attached = tree.check_attach(Guid(105), &leaf(106, small), Attach::Side);
    assert_eq!(refusal(attached), ErrorKind::TooBig);
}

fn refusal(outcome: base::Result<()>) -> ErrorKind {
    outcome.unwrap_err().kind()
}
