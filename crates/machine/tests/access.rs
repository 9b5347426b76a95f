//! Which providers can be opened for writing while others are open, or are held without a process.

use std::path::Path;
use std::sync::Arc;

use base::ErrorKind;
use geom::Provider;
use geom::disk::OpenMode;
use geom::nop::NopConfig;
use gpart::{Era, NewPartition, Scheme, Shape, Table, Wish};
use machine::{Holder, Layer, LayerKind, Machine, NewDrive, NewMachine, World};

/// Runs `f` in a machine whose `ada0` has the partitions `a` and `b` and a nop on the first; `ada1` is empty.
fn in_machine(f: impl FnOnce(&Arc<World>) + Send) {
    let folder = tempfile::tempdir().unwrap();
    let drive = |name: &str| NewDrive::parse(&format!("{name}=wd20ears,size=64M")).unwrap();
    let new = NewMachine {
        seed: 5,
        host: None,
        memory: None,
        drives: vec![drive("ada0"), drive("ada1")],
    };
    let machine = Machine::create(&folder.path().join("m"), &new).unwrap();
    machine
        .run(|world| {
            partition(world, "ada0", &["a", "b"]);
            world.add_layer(nop("gpt/a")).unwrap();
            f(world);
        })
        .unwrap();
}

fn partition(world: &World, disk: &str, labels: &[&str]) {
    let provider = world.open(disk, OpenMode::ReadWrite).unwrap();
    let provider: &dyn Provider = &*provider;
    let mut table = Table::create(Scheme::Gpt, Shape::of(provider), None, Era::Current).unwrap();
    for label in labels {
        let new = NewPartition {
            wish: Wish {
                size: Some(20_000),
                ..Wish::default()
            },
            index: None,
            label: Some((*label).to_owned()),
            era: Era::Current,
        };
        table.add("freebsd-zfs", &new).unwrap();
    }
    table.write(provider).unwrap();
}

fn nop(on: &str) -> Layer {
    Layer {
        on: on.to_owned(),
        name: format!("{on}.nop"),
        transient: false,
        kind: LayerKind::Nop(NopConfig::default()),
    }
}

/// Which of these names can be opened for writing.
fn writable<'a>(world: &World, names: &[&'a str]) -> Vec<&'a str> {
    let can_open = |name: &&&str| match world.open(name, OpenMode::ReadWrite) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            false
        }
    };
    names.iter().filter(can_open).copied().collect()
}

const ALL: [&str; 7] = [
    "ada0",
    "ada0p1",
    "/dev/gpt/a",
    "gpt/a.nop",
    "ada0p2",
    "gpt/b",
    "ada1",
];

fn with_pool(world: &World, devices: &'static [&'static str]) {
    let devices: Vec<String> = devices.iter().map(|d| (*d).to_owned()).collect();
    world.set_pools(Box::new(move || {
        Ok(vec![("tank".to_owned(), devices.clone())])
    }));
}

#[test]
fn a_pool_holds_what_it_is_on_and_what_that_is_on() {
    let cases: [(&'static [&'static str], &[&str]); 5] = [
        (&["/dev/gpt/a.nop"], &["ada0p2", "gpt/b", "ada1"]),
        (&["/dev/gpt/a"], &["ada0p2", "gpt/b", "ada1"]),
        (&["/dev/ada0p1"], &["ada0p2", "gpt/b", "ada1"]),
        (&["/dev/ada0"], &["ada1"]),
        (
            &["/dev/ada0p2", "/dev/ada1"],
            &["ada0p1", "/dev/gpt/a", "gpt/a.nop"],
        ),
    ];
    for (devices, free) in cases {
        in_machine(|world| {
            with_pool(world, devices);
            assert_eq!(writable(world, &ALL), free, "{devices:?}");
            let holder = || Holder::Pool("tank".to_owned());
            for device in devices {
                world
                    .open_as(device, OpenMode::ReadWrite, &holder())
                    .unwrap();
                world.open(device, OpenMode::ReadOnly).unwrap();
                assert_eq!(world.holders(device).unwrap(), [holder()]);
            }
            let error = world.hold("/dev/ada0", &Holder::Program).err().unwrap();
            let text = "/dev/ada0: Operation not permitted (pool 'tank' is on it)";
            assert_eq!(error.to_string(), text);
        });
    }
}

#[test]
fn open_providers_are_held_until_they_are_closed() {
    in_machine(|world| {
        let raw = world.open("ada0", OpenMode::ReadWrite).unwrap();
        // Programs may share a raw provider, but not one below an open partition.
        assert_eq!(writable(world, &ALL), ["ada0", "ada1"]);
        assert!(world.hold("ada0", &Holder::Device("p".to_owned())).is_err());
        drop(raw);
        let first = world.open("ada0p1", OpenMode::ReadWrite).unwrap();
        assert_eq!(writable(world, &ALL), ["ada0p1", "ada0p2", "gpt/b", "ada1"]);
        world.hold("ada0", &Holder::Table).unwrap();
        drop(first);
        assert_eq!(writable(world, &ALL), ALL);
        assert!(world.holders("ada0").unwrap().is_empty());
    });
}

#[test]
fn devices_of_a_new_pool_must_not_lie_on_each_other() {
    in_machine(|world| {
        let device = || Holder::Device("p".to_owned());
        let _one = world.hold("gpt/a", &device()).unwrap();
        for other in ["ada0", "ada0p1", "gpt/a.nop"] {
            assert!(world.hold(other, &device()).is_err(), "{other}");
        }
        world.hold("gpt/b", &device()).unwrap();
    });
}

fn image(path: &Path) {
    std::fs::File::create(path)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
}

#[test]
fn a_file_is_one_by_whatever_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    image(Path::new(&at("disk.img")));
    std::os::unix::fs::symlink(at("disk.img"), at("link")).unwrap();
    std::fs::hard_link(at("disk.img"), at("hard")).unwrap();
    let world = World::host(&folder.path().join("state")).unwrap();
    partition(&world, &at("disk.img"), &["a", "b"]);
    let device = format!("{}:gpt/a", at("link"));
    world.set_pools(Box::new(move || {
        Ok(vec![("tank".to_owned(), vec![device.clone()])])
    }));
    for name in ["disk.img", "hard", "hardp1", "linkp1", "disk.img:gpt/a"] {
        assert!(
            world.open(&at(name), OpenMode::ReadWrite).is_err(),
            "{name}"
        );
        world.open(&at(name), OpenMode::ReadOnly).unwrap();
    }
    world.open(&at("hard:gpt/b"), OpenMode::ReadWrite).unwrap();
}

#[test]
fn block_devices_are_seen_through_what_is_on_them() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let world = World::host(folder.path()).unwrap();
    let file = folder.path().join("disk.img");
    image(&file);
    assert_eq!(world.block_device_below(&file.display().to_string()), None);
    assert_eq!(world.block_device_below("ada0"), None);
    assert_eq!(world.block_device_below("/dev/null"), None);
    let loops = Path::new("/dev/loop0");
    if !std::fs::metadata(loops).is_ok_and(|m| m.file_type().is_block_device()) {
        eprintln!("SKIPPED: no block device /dev/loop0 here: load the loop module");
        return;
    }
    for name in ["/dev/loop0", "/dev/loop0p97", "/dev/loop0:gpt/x"] {
        assert_eq!(
            world.block_device_below(name).as_deref(),
            Some(loops),
            "{name}"
        );
    }
}
