//! A pool that OpenZFS made with its defaults opens for writing, and what the defaults need is maintained:
//! space by owner and project, log space maps, the error log by head.

use phys::objset::{PROJECTUSED_OBJECT, USERUSED_OBJECT};
use spa::Spa;
use torture::golden::golden;
use torture::pool;
use zpl::mount::mount;
use zpl::{Create, SetAttr};

/// Space and number of files by owner in a dataset.
fn used(spa: &Spa, name: &str, table: u64) -> Vec<(u64, u64, u64)> {
    let objset = spa.parts().dsl().dataset(name).unwrap().objset().unwrap();
    let all = zpl::space_by_owner(&objset, base::ObjectId(table)).unwrap();
    all.iter().map(|u| (u.id, u.bytes, u.objects)).collect()
}

#[test]
fn a_pool_with_the_defaults_of_openzfs_is_written_to() {
    let devices = [golden("openzfs-2.3.2-default")];
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    // As `zfs projectspace` and `zfs userspace` printed in OpenZFS.
    let projects = [(0, 512, 1), (7, 257_536, 7)];
    let users = [(0, 92_160, 4), (1, 82_944, 2), (2, 82_944, 2)];
    assert_eq!(used(&spa, "tank/d", PROJECTUSED_OBJECT), projects);
    assert_eq!(used(&spa, "tank/d", USERUSED_OBJECT), users);
    pool::assert_clean(&spa);

    let fs = mount(spa.parts().dsl(), "tank/d", false).unwrap();
    let folder = fs.resolve("p").unwrap();
    let one = fs.create_file(folder, b"one", &Create::default()).unwrap();
    assert_eq!(one.projid, 7, "the folder hands its project on");
    fs.write(one.id, 0, &[1; 40_000]).unwrap();
    let other = fs.create_file(fs.root(), b"other", &Create::default());
    fs.write(other.unwrap().id, 0, &[2; 8000]).unwrap();
    fs.unlink(folder, b"f6").unwrap();
    let uid = SetAttr {
        uid: Some(9),
        ..SetAttr::default()
    };
    fs.setattr(fs.resolve("p/f1").unwrap(), &uid).unwrap();
    drop(fs);
    spa.sync().unwrap();
    // A file's space: its blocks of 4 KiB, two copies of an indirect block, and the dnode.
    let file = |blocks: u64| (blocks + 2) * 4096 + 512;
    let projects = [(0, 512 + file(2), 2), (7, 257_536 - file(8) + file(10), 7)];
    assert_eq!(used(&spa, "tank/d", PROJECTUSED_OBJECT), projects);
    let by_user: u64 = used(&spa, "tank/d", USERUSED_OBJECT)
        .iter()
        .map(|u| u.1)
        .sum();
    assert_eq!(by_user, projects[0].1 + projects[1].1);
    pool::create_fs(&spa, "tank/new", &[]).unwrap();
    spa.parts().dsl().promote("tank/c").unwrap();
    spa.parts().dsl().destroy_head("tank/d").unwrap();
    spa.export().unwrap();
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    pool::assert_clean(&spa);
    assert_eq!(used(&spa, "tank/c", USERUSED_OBJECT), users);
}
