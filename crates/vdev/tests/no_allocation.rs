//! Reading a good block allocates nothing, whatever the kind of the vdev.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use base::{Guid, Txg, VdevId};
use geom::Provider;
use ram::Memory;
use vdev::{Vdev, VdevConfig, VdevKind, VdevTree};
use zio::{Io, Priority, VdevOps};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn tree(kind: Option<VdevKind>, sides: u64) -> Arc<VdevTree> {
    let leaf = |n: u64| {
        let disk: Arc<dyn Provider> = Arc::new(Memory::new(format!("/d{n}"), 64 << 20));
        let vdev = Vdev::new(
            VdevKind::File,
            Guid(100 + n),
            VdevConfig::default(),
            Vec::new(),
        );
        vdev.leaf().open(disk).unwrap();
        vdev
    };
    let mut leaves: Vec<_> = (0..sides).map(leaf).collect();
    let top = match kind {
        Some(kind) => Vdev::new(kind, Guid(10), VdevConfig::default(), leaves),
        None => leaves.remove(0),
    };
    top.update(|config| (config.asize, config.ashift) = (32 << 20, 12));
    let root = Vdev::new(VdevKind::Root, Guid(1), VdevConfig::default(), vec![top]);
    VdevTree::new(root)
}

#[test]
fn a_read_allocates_nothing() {
    let raidz = |nparity| Some(VdevKind::RaidZ { nparity });
    let mirror = Some(VdevKind::Mirror);
    for (kind, sides) in [
        (None, 1),
        (mirror, 2),
        (mirror, 3),
        (raidz(1), 3),
        (raidz(2), 4),
    ] {
        let tree = tree(kind, sides);
        let block = vec![7; 8192];
        let io = Io::write(Txg(4), Priority::AsyncWrite);
        for n in 0..8 {
            tree.write(&io, VdevId(0), n << 21, &[&block]).unwrap();
        }
        let mut buf = vec![0; 8192];
        let before = COUNT.with(Cell::get);
        for n in 0..8 {
            let verify = |bytes: &[u8]| bytes[0] == 7;
            tree.read(&Io::read(Txg(4)), VdevId(0), n << 21, &mut buf, &verify)
                .unwrap();
        }
        let allocated = COUNT.with(Cell::get) - before;
        assert_eq!(allocated, 0, "{kind:?}, {sides} devices");
        assert_eq!(buf, block);
    }
}
