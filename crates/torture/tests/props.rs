//! A changed property takes effect on a file system that is already mounted.

use std::sync::Arc;

use base::ErrorKind;
use geom::Provider;
use phys::PropValue;
use ram::Memory;
use torture::pool::{self, Layout};
use zil::SyncMode;
use zpl::mount::mount;
use zpl::{AtimePolicy, Create};

#[test]
fn an_open_file_system_hears_of_its_properties() {
    let disk: Arc<dyn Provider> = Arc::new(Memory::new("/disk0", 64 << 20));
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &[disk], root).unwrap();
    pool::create_fs(&spa, "tank/a", &[]).unwrap();
    let set = |name: &str, prop: &str, number| {
        let value = PropValue::Number(number);
        spa.parts().dsl().set_prop(name, prop, value).unwrap();
    };
    let fs = mount(spa.parts().dsl(), "tank/a", false).unwrap();
    let looked_at = mount(spa.parts().dsl(), "tank/a", true).unwrap();
    let make = |name: &str| {
        fs.create_file(fs.root(), name.as_bytes(), &Create::default())
            .map(|_| ())
    };
    make("before").unwrap();
    set("tank/a", "readonly", 1);
    assert_eq!(make("while").unwrap_err().kind(), ErrorKind::ReadOnly);
    set("tank/a", "readonly", 0);
    make("after").unwrap();
    assert!(looked_at.settings().read_only, "as it was mounted");
    // Inherited values take effect as well.
    set("tank", "atime", 0);
    assert_eq!(fs.settings().atime, AtimePolicy::Off);
    set("tank", "sync", 1);
    assert_eq!(fs.settings().sync, SyncMode::Always);
    set("tank/a", "sync", 2);
    assert_eq!(fs.settings().sync, SyncMode::Disabled);
    // A mount that is gone is not notified.
    drop(fs);
    drop(looked_at);
    set("tank", "atime", 1);
    spa.close().unwrap();
}
