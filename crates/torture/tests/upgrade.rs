//! Pools of versions before feature flags are brought up to version 5000: what is in them stays, and they are written
//! to like any other, whenever the power is cut.
//!
//! `CUTS=all` tries every single write; the default takes a sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, ObjectId};
use dsl::Deadlist;
use faulty::{PowerCut, PowerSupply};
use geom::Provider;
use geom::disk::OpenMode;
use phys::{ObjectType, PropValue, feature};
use ram::Memory;
use spa::{Obstacle, Spa};
use torture::hostile::{self, Image};
use torture::model::World;
use torture::{Dice, cuts, golden, pool, seed};
use zpl::mount::{mount, upgrade};
use zpl::{Attr, Create, FileType, Filesystem, SetAttr, SetXattr};

/// Pools made by OpenZFS: the name of the image, and its version.
const POOLS: [(&str, u64); 6] = [
    ("openzfs-2.3.2-v1", 1),
    ("openzfs-2.3.2-v8", 8),
    ("openzfs-2.3.2-v14", 14),
    ("openzfs-2.3.2-v20", 20),
    ("openzfs-2.3.2-v28", 28),
    ("openzfs-2.3.2-big-endian-v28", 28),
];
const CUTS: u64 = 30;

/// What a pool of an old version holds.
fn world_of(devices: &[Arc<dyn Provider>], version: u64) -> World {
    let spa = pool::open(devices, false).unwrap();
    assert_eq!(spa.obstacles(), [Obstacle::OldVersion(version)]);
    World::of(&spa).unwrap()
}

fn assert_whole(spa: &Spa, world: &World) {
    world.compare(spa.parts().dsl()).unwrap();
    pool::assert_clean(spa);
}

/// Checks an open pool, exports it and has zdb check it.
fn assert_whole_after(spa: Spa, world: &World, devices: &[Arc<dyn Provider>]) {
    assert_whole(&spa, world);
    let name = spa.name();
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(devices, &name);
}

#[test]
fn a_pool_of_any_version_holds_the_same_after_its_upgrade() {
    for (name, version) in POOLS {
        let devices = [golden::golden(name)];
        let world = world_of(&devices, version);
        let spa = pool::upgrade(&devices).unwrap();
        assert_eq!((spa.version(), spa.is_readonly()), (5000, false));
        assert_whole_after(spa, &world, &devices);
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!(spa.obstacles(), []);
        assert_eq!((spa.version(), spa.is_readonly()), (5000, false));
        assert_whole(&spa, &world);
        drop(spa);
        let again = pool::upgrade(&devices).err().map(|e| e.to_string());
        assert_eq!(again, Some("it is of version 5000".to_owned()));
    }
}

#[test]
fn an_upgraded_pool_is_worked_on_like_any_other() {
    for (name, version) in POOLS {
        for has_features in [false, true] {
            work_on(name, version, has_features);
        }
    }
}

fn work_on(name: &str, version: u64, has_features: bool) {
    let devices = [golden::golden(name)];
    let seed = seed(version);
    let mut dice = Dice::new(seed);
    let mut world = world_of(&devices, version);
    let mut spa = pool::upgrade(&devices).unwrap();
    if has_features {
        enable_all(&spa);
    }
    for round in 0..2 {
        for step in 0..60 {
            let outcome = world.step(&spa, &mut dice);
            outcome
                .unwrap_or_else(|e| panic!("{name}, SEED={seed}, round {round}, step {step}: {e}"));
        }
        spa.sync().unwrap();
        assert_whole(&spa, &world);
        spa.export().unwrap();
        spa = pool::open(&devices, false).unwrap();
    }
    destroy_all(&spa, &mut world);
    assert_whole_after(spa, &world, &devices);
}

fn enable_all(spa: &Spa) {
    let kept = feature::FEATURES.iter();
    for feature in kept.filter(|it| it.support == feature::Support::Kept) {
        spa.enable_feature(feature).unwrap();
    }
}

/// The type of a data set's deadlist, and its keys.
fn deadlist_of(spa: &Spa, name: &str) -> (ObjectType, Vec<u64>) {
    let dsl = spa.parts().dsl();
    let object = ObjectId(dsl.dataset(name).unwrap().fields().deadlist_obj);
    let type_ = spa.parts().mos().hold(object).unwrap().type_();
    let mut deadlist = Deadlist::open(dsl.mos(), object).unwrap();
    let keys = deadlist.entries().unwrap().into_keys();
    (type_, keys.collect())
}

#[test]
fn an_old_deadlist_is_split_when_something_happens_to_its_data_set() {
    let devices = [golden::golden("openzfs-2.3.2-v14")];
    let spa = pool::upgrade(&devices).unwrap();
    enable_all(&spa);
    let dsl = spa.parts().dsl();
    let taken = |name: &str| dsl.dataset(name).unwrap().fields().creation_txg;
    let old = (ObjectType::BPOBJ, vec![0]);
    for name in ["old/fs", "old/fs@one", "old/fs@two", "old/clone"] {
        assert_eq!(deadlist_of(&spa, name), old, "{name}");
    }
    // As before: of all blocks, and of a range.
    let (one, two) = (taken("old/fs@one"), taken("old/fs@two"));
    let written = |from: &str, to: &str| {
        let (from, to) = (dsl.dataset(from).unwrap(), dsl.dataset(to).unwrap());
        dsl.space_written(&from, &to).unwrap()
    };
    let before = written("old/fs@one", "old/fs");
    dsl.create_bookmark("old/fs#two", "old/fs@two").unwrap();
    assert_eq!(deadlist_of(&spa, "old/fs"), old);
    dsl.destroy_snapshots(&["old/fs@two"], false).unwrap();
    // What was born after `one` is freed. The bookmark needs the key of its snapshot later.
    dsl.snapshot(&["old/fs@three"], Vec::new()).unwrap();
    assert_eq!(
        deadlist_of(&spa, "old/fs@three"),
        (ObjectType::DEADLIST, vec![0, 1])
    );
    assert_eq!(
        deadlist_of(&spa, "old/fs"),
        (ObjectType::DEADLIST, vec![0, 1, one, two])
    );
    for name in ["old/fs@one", "old/clone"] {
        assert_eq!(deadlist_of(&spa, name), old, "{name}");
    }
    assert_eq!(written("old/fs@one", "old/fs"), before);
    dsl.destroy_bookmark("old/fs#two").unwrap();
    spa.sync().unwrap();
    pool::assert_clean(&spa);
}

/// Destroys all data sets with their snapshots, oldest snapshots first.
fn destroy_all(spa: &Spa, world: &mut World) {
    let dsl = spa.parts().dsl();
    while !world.heads.is_empty() {
        let before = world.clone();
        for (name, head) in before.heads {
            for (snap, _) in &head.snapshots {
                let full = format!("{name}@{snap}");
                let origins = world.heads.values().map(|head| head.origin.as_deref());
                if !origins.flatten().any(|origin| origin == full) {
                    dsl.destroy_snapshots(&[&full], false).unwrap();
                    let head = world.heads.get_mut(&name).unwrap();
                    head.snapshots.retain(|(it, _)| it != snap);
                }
            }
            if world.heads[&name].snapshots.is_empty() {
                dsl.destroy_head(&name).unwrap();
                world.heads.remove(&name);
            }
        }
    }
    spa.sync().unwrap();
    while dsl.is_freeing() {
        spa.sync().unwrap();
    }
}

#[test]
fn sim_a_power_cut_leaves_the_old_pool_or_the_upgraded_one() {
    for (name, version) in POOLS {
        let seed = seed(version);
        rt::simulate(seed, move || cut(name, version, seed));
    }
}

fn cut(name: &str, version: u64, seed: u64) {
    let supply = PowerSupply::new();
    let bytes = golden::bytes(name);
    let disk = PowerCut::fed_by(&supply, "/disk", bytes.len() as u64, 512);
    golden::fill(&disk, &bytes);
    disk.flush().unwrap();
    disk.forget();
    let disk = Arc::new(disk);
    let devices: [Arc<dyn Provider>; 1] = [disk.clone()];
    let world = world_of(&devices, version);
    let first = supply.commands();
    let spa = pool::upgrade(&devices).unwrap();
    spa.close().unwrap();
    drop(spa);
    let found = cuts::everywhere(first..=supply.commands(), CUTS, seed, |n| {
        let image: [Arc<dyn Provider>; 1] = [Arc::new(disk.image_after(n, seed ^ n))];
        let mut spa = pool::open(&image, false).map_err(|e| e.to_string())?;
        let left = spa.version();
        if left == version {
            assert!(spa.is_readonly());
            pool::assert_clean(&spa);
            drop(spa);
            spa = pool::upgrade(&image).map_err(|e| e.to_string())?;
        }
        world.compare(spa.parts().dsl())?;
        pool::assert_clean(&spa);
        Ok(left)
    });
    let versions: Vec<u64> = found.into_iter().map(|(_, left)| left).collect();
    assert_eq!(versions.first(), Some(&version));
    assert_eq!(versions.last(), Some(&5000));
}

/// Images that lie: as many as `HOSTILE_IMAGES` says, from `SEED` on.
#[test]
fn an_old_pool_that_lies_is_upgraded_or_refused() {
    let images = POOLS[..5].iter().map(|(name, _)| {
        let bytes = golden::bytes(name);
        let disk = Memory::new("/disk", bytes.len() as u64);
        golden::fill(&disk, &bytes);
        Image::of(vec![disk]).unwrap()
    });
    let images: Vec<Image> = images.collect();
    let count = std::env::var("HOSTILE_IMAGES").ok();
    let count = count.map_or(100, |count| count.parse().unwrap());
    let first = seed(1);
    let mut upgraded = 0;
    for seed in first..first + count {
        let devices = hostile::devices(&images, &mut Dice::new(seed));
        let is_upgraded = rt::simulate(seed % 32, || {
            let outcome = pool::upgrade(&devices).and_then(|spa| spa.close());
            hostile::exercise(&devices, seed);
            outcome.is_ok()
        });
        upgraded += u64::from(is_upgraded);
    }
    assert!(count < 100 || 2 * upgraded > count, "{upgraded} of {count}");
}

/// What `stat`, `readlink` and `read` say of everything below a directory, by path. Numbers of links and sizes of
/// directories change with what is made there.
fn tree_of(fs: &Filesystem) -> BTreeMap<String, (Attr, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(String::new(), fs.root())];
    while let Some((path, id)) = todo.pop() {
        let attr = fs.getattr(id).unwrap();
        let mut bytes = Vec::new();
        match attr.file_type().unwrap() {
            FileType::Directory => {
                for entry in fs.list(id).unwrap() {
                    let name = String::from_utf8(entry.name).unwrap();
                    todo.push((format!("{path}/{name}"), entry.id));
                }
            }
            FileType::Symlink => bytes = fs.readlink(id).unwrap(),
            FileType::Regular => {
                bytes = vec![0; attr.size as usize];
                fs.read(id, 0, &mut bytes).unwrap();
            }
            _ => {}
        }
        found.insert(path, (attr, bytes));
    }
    found
}

fn has_znode(fs: &Filesystem, id: ObjectId) -> bool {
    fs.objset().hold(id).unwrap().bonus_type() == ObjectType::ZNODE
}

#[test]
fn files_of_an_old_version_become_new_ones_when_they_are_changed() {
    for (name, version) in &POOLS[..4] {
        let devices = [golden::golden(name)];
        let spa = pool::upgrade(&devices).unwrap();
        if *version > 8 {
            enable_all(&spa);
        }
        let dsl = spa.parts().dsl();
        let fs = mount(dsl, "old/fs", false).unwrap();
        assert!(!fs.is_writable() && fs.is_old(), "{name}");
        let refused = fs.unlink(fs.root(), b"numbers").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly);
        assert_eq!(upgrade(dsl, "old/fs").unwrap_err().kind(), ErrorKind::Busy);
        let before = tree_of(&fs);
        drop(fs);
        upgrade(dsl, "old/fs").unwrap();
        upgrade(dsl, "old/fs").unwrap();
        // A day after they were last read, reading the files would change them.
        dsl.set_prop("old/fs", "atime", PropValue::Number(0))
            .unwrap();
        spa.sync().unwrap();

        let fs = mount(dsl, "old/fs", false).unwrap();
        assert!(fs.is_writable() && tree_of(&fs) == before, "{name}");
        // Each file gets another owner, which changes nothing else; regular ones are appended to.
        for (path, (attr, bytes)) in &before {
            assert!(has_znode(&fs, attr.id), "{name}: {path}");
            let owner = SetAttr {
                uid: Some(attr.uid + 5),
                ..SetAttr::default()
            };
            fs.setattr(attr.id, &owner).unwrap();
            assert!(!has_znode(&fs, attr.id), "{name}: {path}");
            if attr.file_type() == Some(FileType::Regular) {
                fs.write(attr.id, bytes.len() as u64, b"more").unwrap();
            }
        }
        spa.sync().unwrap();
        for (path, (attr, mut bytes)) in before {
            let (now, have) = (fs.getattr(attr.id).unwrap(), tree_of(&fs)[&path].1.clone());
            if attr.file_type() == Some(FileType::Regular) {
                bytes.extend_from_slice(b"more");
                assert_eq!(now.size, attr.size + 4);
            } else {
                assert_eq!((now.size, now.mtime), (attr.size, attr.mtime));
            }
            assert!(have == bytes, "{name}: {path}");
            let same = |attr: &Attr| (attr.mode, attr.links, attr.gid, attr.parent, attr.crtime);
            assert_eq!((same(&now), now.uid), (same(&attr), attr.uid + 5), "{path}");
        }
        let root = fs.root();
        let made = fs.create_file(root, b"made", &Create::default()).unwrap();
        fs.setxattr(made.id, b"user.a", b"b", SetXattr::Set)
            .unwrap();
        fs.setxattr(root, b"user.c", b"d", SetXattr::Set).unwrap();
        fs.unlink(root, b"numbers").unwrap();
        drop(fs);
        spa.sync().unwrap();
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&devices, "old");
    }
}

/// Pools upgraded here, 0 to 4, then two that the kernel upgrades.
const KERNEL: &str = r#"set -e
mkdir /tmp/image
for n in 0 1 2 3 4; do
  cp /host/disk$n /tmp/image/disk
  zpool import -d /tmp/image -R /mnt old
  zpool get -H -o value version,readonly old
  zpool scrub -w old
  zpool status old | grep -q "repaired 0B in .* with 0 errors"
  cd $(zfs get -H -o value mountpoint old/fs); find . -type f -exec sha256sum {} \; >/host/sums$n
  echo kernel >kernel; zfs snapshot -r old@kernel; rm kernel numbers
  cd $(zfs get -H -o value mountpoint old/clone)
  test "$(tail -c 4 "dir/below/file 17")" = more; ls -ldn long | grep -q " 5 "; test $(readlink long | wc -c) = 201
  echo more >>"dir/below/file 2"; chmod 600 "dir/below/file 17"
  cd /
  zfs destroy old/clone@two
  zpool sync old
  zfs list -t all -o name,used,refer,written
  zpool export old
  cp /tmp/image/disk /host/disk$n
done
for n in 5 6; do
  cp /host/disk$n /tmp/image/disk
  zpool import -d /tmp/image -R /mnt old
  zpool upgrade old
  cd $(zfs get -H -o value mountpoint old/fs); zfs snapshot old/fs@kernel; cat dir/below/file* >more; cd /
  zpool sync old
  zpool export old
  cp /tmp/image/disk /host/disk$n
done
"#;

/// The start of the checksum of each file of `old/fs`, which the kernel's host printed when the pool was made.
fn assert_sums(manifest: &str, said: &str, name: &str) {
    let fs = manifest.split("== ").find(|part| part.starts_with("fs\n"));
    let files = fs
        .unwrap()
        .lines()
        .skip(1)
        .filter(|line| !line.ends_with('-'));
    let mut count = 0;
    for line in files {
        // Sum, time, size, group, owner, mode, path.
        let parts: Vec<&str> = line.rsplitn(7, ' ').collect();
        let (sum, path) = (parts[0], parts[6]);
        let is_it = |line: &str| line.starts_with(sum) && line.ends_with(&format!("  {path}"));
        assert!(said.lines().any(is_it), "{name}: {line}, not in {said}");
        count += 1;
    }
    assert!(count > 20, "{name}: {count} files");
}

/// Makes `old/clone` a file system of the current version, and changes files there.
fn change_files(spa: &Spa) {
    let dsl = spa.parts().dsl();
    upgrade(dsl, "old/clone").unwrap();
    let fs = mount(dsl, "old/clone", false).unwrap();
    for (path, (attr, bytes)) in tree_of(&fs) {
        if attr.file_type() == Some(FileType::Regular) && path.contains("file 1") {
            fs.write(attr.id, bytes.len() as u64, b"more").unwrap();
        }
    }
    let link = fs.resolve_link("long").unwrap();
    let owner = SetAttr {
        uid: Some(5),
        ..SetAttr::default()
    };
    fs.setattr(link, &owner).unwrap();
}

/// `UPGRADE=all`: some minutes.
#[test]
fn the_kernel_takes_upgraded_pools_and_what_it_upgrades_is_written_to() {
    let guest = std::env::var_os("UPGRADE").and_then(|_| oracle::vm::Guest::find());
    let Some(guest) = guest else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let names = POOLS.iter().take(5).map(|(name, _)| *name);
    let names: Vec<&str> = names.chain([POOLS[1].0, POOLS[2].0]).collect();
    let path = |n: usize| host.path().join(format!("disk{n}"));
    let open = |n: usize| -> [Arc<dyn Provider>; 1] {
        [geom::disk::open(&path(n), OpenMode::ReadWrite).unwrap()]
    };
    for (n, name) in names.iter().enumerate() {
        std::fs::write(path(n), golden::bytes(name)).unwrap();
        if n < 5 {
            let spa = pool::upgrade(&open(n)).unwrap();
            enable_all(&spa);
            change_files(&spa);
            spa.export().unwrap();
        }
    }
    let outcome = guest.run(KERNEL, host.path(), &[]);
    println!("{}", outcome.output);
    outcome.assert_success();
    for (n, name) in names.iter().enumerate() {
        if n < 5 {
            let said = std::fs::read_to_string(host.path().join(format!("sums{n}"))).unwrap();
            let manifest = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
            assert_sums(&std::fs::read_to_string(manifest).unwrap(), &said, name);
        }
        let devices = open(n);
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!((spa.obstacles(), spa.version()), (&[][..], 5000));
        let mut world = World::of(&spa).unwrap();
        let mut dice = Dice::new(seed(n as u64));
        for step in 0..60 {
            let outcome = world.step(&spa, &mut dice);
            outcome.unwrap_or_else(|e| panic!("{name}, step {step}: {e}"));
        }
        spa.sync().unwrap();
        assert_whole(&spa, &world);
        destroy_all(&spa, &mut world);
        assert_whole_after(spa, &world, &devices);
    }
}
