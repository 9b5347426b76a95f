//! Names in a machine and on a host, and which layers are left after a loss of power.

use std::path::Path;
use std::sync::Arc;

use base::ErrorKind;
use geom::disk::OpenMode;
use geom::nop::NopConfig;
use geom::{Namespace, Provider};
use gpart::{Era, NewPartition, Scheme, Shape, Table, Wish};
use machine::{Layer, LayerKind, Machine, NewDrive, NewMachine, Patience, World};

fn create(folder: &Path) -> Machine {
    let drive = |name: &str| NewDrive::parse(&format!("{name}=wd20ears,size=64M")).unwrap();
    let new = NewMachine {
        seed: 5,
        host: None,
        memory: None,
        drives: vec![drive("ada0"), drive("ada1")],
    };
    Machine::create(folder, &new).unwrap()
}

fn open(folder: &Path) -> base::Result<Machine> {
    let patience = Patience {
        wait_ns: 0,
        on_wait: &|_| {},
    };
    Machine::open(folder, &patience)
}

/// Runs one command in the machine.
fn run<T: Send>(folder: &Path, f: impl FnOnce(&Arc<World>) -> T + Send) -> T {
    open(folder).unwrap().run(f).unwrap()
}

/// A table of one partition with that label.
fn label(world: &World, drive: &str, label: &str) {
    let provider = world.open(drive, OpenMode::ReadWrite).unwrap();
    let provider: &dyn Provider = &*provider;
    let (shape, era) = (Shape::of(provider), Era::Current);
    let mut table = Table::create(Scheme::Gpt, shape, None, era).unwrap();
    let new = NewPartition {
        wish: Wish::default(),
        index: None,
        label: Some(label.to_owned()),
        era,
    };
    table.add("freebsd-zfs", &new).unwrap();
    table.write(provider).unwrap();
}

fn nop(on: &str, secsize: u64) -> Layer {
    Layer {
        on: on.to_owned(),
        name: format!("{on}.nop"),
        transient: false,
        kind: LayerKind::Nop(NopConfig {
            secsize,
            ..NopConfig::default()
        }),
    }
}

fn names(world: &World) -> Vec<String> {
    let providers = world.providers().unwrap();
    providers.into_iter().map(|info| info.name).collect()
}

#[test]
fn everything_has_its_name_in_the_next_command_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    run(folder, |world| {
        label(world, "ada0", "d0");
        label(world, "/dev/ada1", "d1");
        world.add_layer(nop("/dev/gpt/d0", 4096)).unwrap();
        let again = world.add_layer(nop("gpt/d0", 4096)).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Exists);
        let provider = world.open("gpt/d0.nop", OpenMode::ReadWrite).unwrap();
        provider.write(8192, &[7; 4096]).unwrap();
        provider.flush().unwrap();
    });
    run(folder, |world| {
        let want = [
            "ada0",
            "ada0p1",
            "gpt/d0",
            "gpt/d0.nop",
            "ada1",
            "ada1p1",
            "gpt/d1",
        ];
        assert_eq!(names(world), want);
        let mut back = [0; 512];
        let part = world.open("ada0p1", OpenMode::ReadOnly).unwrap();
        part.read(8192, &mut back).unwrap();
        assert_eq!(back, [7; 512]);
        assert_eq!(world.nop_counters("gpt/d0.nop").unwrap().writes, 1);
        let scanned = world.names().unwrap();
        assert_eq!(scanned[..2], ["/dev/gpt/d0", "/dev/gpt/d1"]);
        let named = Namespace::open(&**world, "gpt/d0", OpenMode::Inspect).unwrap();
        assert_eq!(named.name(), "/dev/gpt/d0");
        let missing = world.open("ada2", OpenMode::Inspect).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let gone = world.remove_layer("gpt/d0.nop").unwrap();
        assert_eq!(gone, nop("gpt/d0", 4096));
        assert!(world.open("gpt/d0.nop", OpenMode::Inspect).is_err());
    });
}

#[test]
fn a_label_used_twice_leads_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    run(folder, |world| {
        label(world, "ada0", "same");
        label(world, "ada1", "same");
        let error = world.open("gpt/same", OpenMode::Inspect).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        let text = error.to_string();
        assert_eq!(
            text,
            "gpt/same: the label is used twice, by ada0p1 and ada1p1"
        );
        assert_eq!(names(world), ["ada0", "ada0p1", "ada1", "ada1p1"]);
    });
}

#[test]
fn what_is_transient_goes_with_the_power() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    run(folder, |world| {
        let transient = Layer {
            transient: true,
            ..nop("ada0", 4096)
        };
        world.add_layer(transient).unwrap();
        world.add_layer(nop("ada0.nop", 8192)).unwrap();
        world.add_layer(nop("ada1", 4096)).unwrap();
        let text = std::fs::read_to_string(folder.join("machine.toml")).unwrap();
        assert!(!text.contains("\"ada0\"\nnop"), "{text}");
        assert!(
            text.contains("on = \"ada1\"\nnop = { secsize = 4096 }\n"),
            "{text}"
        );
    });
    run(folder, |world| {
        assert_eq!(names(world).len(), 5);
        world.power_cut(3).unwrap();
    });
    run(folder, |world| {
        assert_eq!(names(world), ["ada0", "ada1", "ada1.nop"]);
    });
}

#[test]
fn unflushed_writes_may_be_lost_and_flushed_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    run(folder, |world| {
        let drive = world.open("ada0", OpenMode::ReadWrite).unwrap();
        drive.write(0, &[1; 4096]).unwrap();
        drive.flush().unwrap();
        for n in 1..200 {
            drive.write(n << 16, &[2; 4096]).unwrap();
        }
    });
    run(folder, |world| world.power_cut(11).unwrap());
    run(folder, |world| {
        let drive = world.open("ada0", OpenMode::ReadOnly).unwrap();
        let mut back = [0; 4096];
        drive.read(0, &mut back).unwrap();
        assert_eq!(back, [1; 4096]);
        let mut lost = 0;
        for n in 1..200 {
            drive.read(n << 16, &mut back).unwrap();
            lost += u32::from(back != [2; 4096]);
        }
        assert!(lost > 0, "a cache that forgets nothing");
    });
}

#[test]
fn a_pulled_drive_keeps_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    run(folder, |world| {
        let drive = world.open("ada1", OpenMode::ReadWrite).unwrap();
        drive.write(4096, &[9; 512]).unwrap();
        drive.flush().unwrap();
        drop(drive);
        world.running().unwrap().pull("ada1").unwrap();
        assert!(world.open("ada1", OpenMode::Inspect).is_err());
    });
    run(folder, |world| {
        assert_eq!(names(world), ["ada0"]);
        let error = world.running().unwrap().pull("ada1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        world.running().unwrap().push("ada1").unwrap();
        let mut back = [0; 512];
        let drive = world.open("ada1", OpenMode::Inspect).unwrap();
        drive.read(4096, &mut back).unwrap();
        assert_eq!(back, [9; 512]);
    });
}

#[test]
fn a_drive_stays_in_if_the_machine_cannot_note_that_it_is_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    let (toml, aside) = (folder.join("machine.toml"), folder.join("aside"));
    run(folder, |world| {
        let running = world.running().unwrap();
        std::fs::rename(&toml, &aside).unwrap();
        std::fs::create_dir(&toml).unwrap();
        assert!(running.pull("ada1").is_err());
        assert!(world.open("ada1", OpenMode::Inspect).is_ok());
        std::fs::remove_dir(&toml).unwrap();
        std::fs::rename(&aside, &toml).unwrap();
        running.pull("ada1").unwrap();
        assert!(world.open("ada1", OpenMode::Inspect).is_err());
    });
}

#[test]
fn a_machine_is_used_by_one_at_a_time_and_its_clock_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    let machine = create(folder);
    let busy = open(folder).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert!(
        busy.to_string().contains("m' is in use by `world"),
        "{busy}"
    );
    drop(machine);
    let first = run(folder, |_| {
        rt::sleep_ns(5_000_000);
        rt::random_u64()
    });
    let machine = open(folder).unwrap();
    assert_eq!(machine.clock_ns(), 5_000_000);
    let second = machine.run(|_| (rt::now_ns(), rt::random_u64())).unwrap();
    assert_eq!(second.0, 5_000_000);
    assert_ne!(first, second.1, "every command has chances of its own");
    let machine = open(folder).unwrap();
    machine.destroy().unwrap();
    assert!(!folder.exists());
    assert_eq!(open(folder).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn layers_in_a_circle_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    let path = folder.join("machine.toml");
    let text = std::fs::read_to_string(&path).unwrap()
        + "[[layer]]\nname = \"a.nop\"\non = \"b.nop\"\nnop = {}\n\
           [[layer]]\nname = \"b.nop\"\non = \"a.nop\"\nnop = {}\n";
    std::fs::write(&path, text).unwrap();
    run(folder, |world| {
        let error = world.open("a.nop", OpenMode::Inspect).unwrap_err();
        assert!(error.to_string().contains("circle"), "{error}");
        assert_eq!(names(world), ["ada0", "ada1"]);
    });
}

#[test]
fn layers_and_partitions_on_files_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let state = folder.path().join("state");
    let image = image.to_str().unwrap().to_owned();
    let world = World::host(&state).unwrap();
    label(&world, &image, "d0");
    world.add_layer(nop(&format!("{image}p1"), 4096)).unwrap();
    let layer = format!("{image}p1.nop");
    let provider = world.open(&layer, OpenMode::ReadWrite).unwrap();
    assert_eq!(provider.sectorsize(), 4096);
    provider.write(0, &[3; 4096]).unwrap();
    drop(provider);
    world.close().unwrap();
    let world = World::host(&state).unwrap();
    assert_eq!(world.nop_counters(&layer).unwrap().wrote_bytes, 4096);
    let labelled = world
        .open(&format!("{image}:gpt/d0"), OpenMode::ReadOnly)
        .unwrap();
    let mut back = [0; 512];
    labelled.read(0, &mut back).unwrap();
    assert_eq!(back, [3; 512]);
    world.reset_nop_counters(&layer).unwrap();
    assert_eq!(world.nop_counters(&layer).unwrap().writes, 0);
    assert!(world.drives().is_empty());
    world.remove_layer(&layer).unwrap();
    let error = world.open(&layer, OpenMode::Inspect).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_machine_can_be_switched_on_inside_of_a_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = &folder.path().join("m");
    drop(create(folder));
    let path = folder.join("machine.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("clock_ns = 7\nhost = \"modern\"\n{text}")).unwrap();
    rt::simulate(1, || {
        let world = World::machine(folder).unwrap();
        assert_eq!(
            rt::now_ns(),
            7,
            "the clock starts where the description says"
        );
        assert_eq!(world.running().unwrap().host().name, "modern");
        let provider = world.open("ada0", OpenMode::ReadOnly).unwrap();
        provider.read(0, &mut [0; 512]).unwrap();
        world.close().unwrap();
    });
    let machine = open(folder).unwrap();
    assert!(machine.clock_ns() > 1_000_000, "a read takes its time");
}
