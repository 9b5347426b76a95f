//! What is on disk: layouts, object types, old file systems.

use base::ObjectId;
use dmu::{NewObject, ObjsetProps};
use phys::ObjectType;
use phys::sa::ZplAttr;
use phys::znode::{ZnodePhys, master_node};
use zap::Zap;
use zerocopy::IntoBytes;

use super::{Pool, create, props};
use crate::{OpenOptions, SetXattr};

#[test]
fn the_master_node_is_as_openzfs_makes_it() {
    let pool = Pool::new();
    let fs = pool.mount();
    let master = Zap::open(fs.objset(), ObjectId(1)).unwrap();
    let mut names: Vec<String> = master
        .iter()
        .map(|e| e.unwrap().name_str().into_owned())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "DELETE_QUEUE",
            "ROOT",
            "SA_ATTRS",
            "VERSION",
            "casesensitivity",
            "normalization",
            "utf8only"
        ]
    );
    assert_eq!(master.lookup_u64("VERSION").unwrap(), Some(5));
    let sa = ObjectId(master.lookup_u64("SA_ATTRS").unwrap().unwrap());
    let registry = zap::lookup_u64(fs.objset(), sa, "REGISTRY")
        .unwrap()
        .unwrap();
    let registry = Zap::open(fs.objset(), ObjectId(registry)).unwrap();
    assert_eq!(registry.count().unwrap(), 22);
    assert_eq!(registry.lookup_u64("ZPL_ATIME").unwrap(), Some(16 << 24));
    assert_eq!(
        registry.lookup_u64("ZPL_DACL_ACES").unwrap(),
        Some(4 << 16 | 19)
    );
    assert_eq!(
        registry.lookup_u64("ZPL_PROJID").unwrap(),
        Some(8 << 24 | 21)
    );
    let layouts = zap::lookup_u64(fs.objset(), sa, "LAYOUTS")
        .unwrap()
        .unwrap();
    let layout = zap::lookup::<u16>(fs.objset(), ObjectId(layouts), "2")
        .unwrap()
        .unwrap();
    assert_eq!(layout, [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]);
}

#[test]
fn attributes_spill_and_come_back() {
    for dnodesize in [512, 1024, 2048, 16384] {
        let props = ObjsetProps {
            dnodesize,
            ..props()
        };
        let log = std::sync::Arc::new(crate::NoLog);
        let pool = Pool::with(props, crate::Settings::default(), log);
        let mut fs = pool.mount();
        let file = fs.create_file(fs.root(), b"file", &create(0o644)).unwrap();
        let dnode = fs.objset().hold(file.id).unwrap();
        assert_eq!(u64::from(dnode.slots()) * 512, dnodesize);
        assert_eq!(
            (dnode.bonus_type(), dnode.bonus_len()),
            (ObjectType::SA, 176)
        );
        drop(dnode);
        let mut was_spilled = false;
        for len in (0..20_000).step_by(711) {
            let value = vec![len as u8; len];
            fs.setxattr(file.id, b"user.x", &value, SetXattr::Set)
                .unwrap();
            let dnode = fs.objset().hold(file.id).unwrap();
            was_spilled |= dnode.has_spill();
            let limit = u64::from(dnode.slots()) * 512 - 192;
            assert!(dnode.bonus_len() as u64 <= limit - 128 * u64::from(dnode.has_spill()));
            drop(dnode);
            assert_eq!(fs.getxattr(file.id, b"user.x").unwrap(), Some(value));
            let now = fs.getattr(file.id).unwrap();
            assert_eq!(
                (now.mode, now.uid, now.crtime),
                (file.mode, file.uid, file.crtime)
            );
        }
        assert!(was_spilled);
        fs = pool.remount(fs);
        assert!(fs.getxattr(file.id, b"user.x").unwrap().unwrap().len() > 19_000);
        // Attributes that stay in the bonus are changed next to a spill block.
        let set = crate::SetAttr {
            uid: Some(5),
            ..crate::SetAttr::default()
        };
        assert_eq!(fs.setattr(file.id, &set).unwrap().uid, 5);
        fs.setxattr(file.id, b"user.x", b"", SetXattr::Set).unwrap();
        assert!(!fs.objset().hold(file.id).unwrap().has_spill());
        fs = pool.remount(fs);
        assert_eq!(fs.getattr(file.id).unwrap().uid, 5);
        assert_eq!(fs.getxattr(file.id, b"user.x").unwrap(), Some(vec![]));
    }
}

#[test]
fn unknown_attributes_are_carried_through() {
    let pool = Pool::new();
    let mut fs = pool.mount();
    let file = fs.create_file(fs.root(), b"file", &create(0o644)).unwrap();
    let sa = zap::lookup_u64(fs.objset(), ObjectId(1), "SA_ATTRS")
        .unwrap()
        .unwrap();
    let registry = zap::lookup_u64(fs.objset(), ObjectId(sa), "REGISTRY")
        .unwrap()
        .unwrap();
    let layouts = zap::lookup_u64(fs.objset(), ObjectId(sa), "LAYOUTS")
        .unwrap()
        .unwrap();
    {
        // Another implementation registers an attribute of 8 bytes, and gives it to the file.
        let tx = pool.groups.hold_open(0).unwrap();
        let word = 8 << 24 | 22;
        zap::add_u64(fs.objset(), &tx, ObjectId(registry), "ZPL_FUTURE", word).unwrap();
        let layout = [5u16, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19, 22];
        zap::add(fs.objset(), &tx, ObjectId(layouts), "9", &layout).unwrap();
        let dnode = fs.objset().hold(file.id).unwrap();
        let mut bonus = dnode.bonus().to_vec();
        bonus.extend_from_slice(b"VALUE...");
        bonus[4] = 9;
        dnode.set_bonus(&tx, &bonus).unwrap();
    }
    fs = pool.remount(fs);
    fs.setxattr(file.id, b"user.x", &[1; 100], SetXattr::Set)
        .unwrap();
    fs.setxattr(file.id, b"user.y", &[1; 1000], SetXattr::Set)
        .unwrap();
    let dnode = fs.objset().hold(file.id).unwrap();
    let spill = dnode.spill().unwrap();
    let both = [&dnode.bonus()[..], &spill.unwrap()[..]].concat();
    assert!(both.windows(8).any(|window| window == b"VALUE..."));
    assert_eq!(fs.getattr(file.id).unwrap().mode, file.mode);
}

#[test]
fn old_znodes_are_read() {
    let pool = Pool::new();
    let fs = pool.mount();
    let id = {
        let tx = pool.groups.hold_open(0).unwrap();
        let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).bonus(ObjectType::ZNODE, 264);
        let dnode = fs.objset().object_alloc(&tx, &new).unwrap();
        let mut znode = ZnodePhys::default();
        znode.mode.set(0o120_777);
        znode.links.set(1);
        znode.size.set(6);
        znode.uid.set(42);
        znode.mtime[0].set(1_000_000_000);
        znode.xattr.set(0);
        let bonus = [znode.as_bytes(), b"target"].concat();
        dnode.set_bonus(&tx, &bonus).unwrap();
        dnode.id()
    };
    let attr = fs.getattr(id).unwrap();
    assert_eq!(
        (attr.mode, attr.uid, attr.mtime.secs),
        (0o120_777, 42, 1_000_000_000)
    );
    assert_eq!(fs.readlink(id).unwrap(), b"target");
    // Attributes that exist can be changed in place.
    let set = crate::SetAttr {
        uid: Some(43),
        ..crate::SetAttr::default()
    };
    assert_eq!(fs.setattr(id, &set).unwrap().uid, 43);
}

#[test]
fn file_systems_of_other_kinds_are_refused() {
    let pool = Pool::new();
    let fs = pool.mount();
    let set = |name: &str, value: u64| {
        let tx = pool.groups.hold_open(0).unwrap();
        zap::update_u64(fs.objset(), &tx, ObjectId(1), name, value).unwrap();
    };
    let kind = || {
        let result = crate::Filesystem::open(pool.objset(), OpenOptions::default());
        result.err().map(|error| error.kind())
    };
    set(master_node::NORMALIZATION, 0x30);
    assert_eq!(kind(), Some(base::ErrorKind::Unsupported));
    set(master_node::NORMALIZATION, 0);
    set(master_node::VERSION, 6);
    assert_eq!(kind(), Some(base::ErrorKind::Unsupported));
    set(master_node::VERSION, 3);
    assert_eq!(kind(), None);
}

#[test]
fn every_attribute_has_its_length() {
    for attr in ZplAttr::ALL {
        let len = attr.facts().length;
        assert!(len.is_multiple_of(8) || len == 0, "{attr:?}");
    }
}
