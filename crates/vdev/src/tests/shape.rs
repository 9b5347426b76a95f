//! Trees that grow and shrink.

use super::*;
use ram::Memory;

fn disk(n: u64) -> Arc<dyn Provider> {
    Arc::new(Memory::new(format!("/md{n}"), DISK_BYTES))
}

#[test]
fn attach_makes_a_mirror_and_detach_unmakes_it() {
    let tree = tree(vec![as_top(leaf(101, disk(1)), 12)]);
    tree.write_block(VdevId(0), 0, &[7; 4096]).unwrap();
    let new = leaf(102, disk(2));
    tree.attach(Guid(101), &new, false, Txg(10)).unwrap();
    let top = tree.top(VdevId(0)).unwrap();
    assert_eq!(
        (top.kind(), top.config().ms_array, top.config().ashift),
        (VdevKind::Mirror, 256, 12)
    );
    assert_eq!(gaps(&new), [(4, 11)]);
    tree.attach(Guid(102), &leaf(103, disk(3)), false, Txg(11))
        .unwrap();
    assert_eq!(tree.top(VdevId(0)).unwrap().children().len(), 3);

    // The new sides have not caught up yet.
    assert!(tree.detach(Guid(101)).is_err());
    let mut bytes = [0; 4096];
    for _ in 0..3 {
        tree.scrub_block(VdevId(0), 0, &mut bytes, &|bytes| bytes[0] == 7)
            .unwrap();
    }
    new.leaf().clear_dtl(&(0..20));
    tree.detach(Guid(101)).unwrap();
    tree.detach(Guid(103)).unwrap();
    let last = tree.top(VdevId(0)).unwrap();
    assert_eq!((last.kind(), last.guid()), (VdevKind::File, top.guid()));
    assert_eq!(last.config().ms_array, 256);
    tree.read_block(VdevId(0), 0, &mut bytes, &|bytes| bytes[0] == 7)
        .unwrap();
    assert!(tree.detach(last.guid()).is_err());
}

#[test]
fn replacing_inside_a_mirror_nests() {
    let tree = mirror_tree(&[disk(1), disk(2)]);
    let new = leaf(103, disk(3));
    tree.attach(Guid(101), &new, true, Txg(10)).unwrap();
    let top = tree.top(VdevId(0)).unwrap();
    assert_eq!(
        (top.guid(), top.children()[0].kind()),
        (Guid(100), VdevKind::Replacing)
    );
    assert_eq!(top.devices().len(), 3);
    tree.write_block(VdevId(0), 0, &[7; 4096]).unwrap();
    new.leaf().clear_dtl(&(0..20));
    tree.detach(Guid(101)).unwrap();
    let top = tree.top(VdevId(0)).unwrap();
    let guids: Vec<_> = top.children().iter().map(|side| side.guid().0).collect();
    assert_eq!(guids, [103, 102]);
    assert_eq!(top.children()[0].config().asize, 0);
}

#[test]
fn tops_are_added_in_holes_and_removed_to_holes() {
    let tree = tree(vec![
        as_top(leaf(101, disk(1)), 12),
        as_top(leaf(102, disk(2)), 12),
    ]);
    tree.remove_top(VdevId(0));
    assert_eq!(tree.top(VdevId(0)).unwrap().kind(), VdevKind::Hole);
    assert!(tree.write_block(VdevId(0), 0, &[0; 4096]).is_err());
    assert_eq!(tree.add_top(as_top(leaf(103, disk(3)), 12)), VdevId(0));
    assert_eq!(tree.add_top(as_top(leaf(104, disk(4)), 12)), VdevId(2));
    tree.remove_top(VdevId(1));
    tree.remove_top(VdevId(2));
    assert_eq!(tree.tops().len(), 1);
    let small = Arc::new(Memory::new("/small", DISK_BYTES));
    let big = as_top(leaf(105, Arc::new(Memory::new("/big", 2 * DISK_BYTES))), 12);
    tree.add_top(big);
    assert!(
        tree.attach(Guid(105), &leaf(106, small), false, Txg(9))
            .is_err()
    );
}
