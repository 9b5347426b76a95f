//! Our tables as read by sgdisk, parted and blkid, and theirs as read by us.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use geom::Provider;
use geom::disk::{self, OpenMode};
use gpart::parted::{Disk, Format, TableView, Topology, Unit, parse_location, place, print};
use gpart::{Era, NewPartition, Scheme, Shape, Table, Wish};
use tempfile::TempDir;

const DISK_BYTES: u64 = 3 << 30;

/// Whether a tool is installed; prints a notice if not.
fn has(tool: &str, package: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {tool} is missing (install {package} to run this test)");
    }
    found
}

fn run(tool: &str, args: &[&str]) -> Output {
    let mut command = Command::new(tool);
    command.env("LC_ALL", "C.UTF-8").args(args);
    command.output().unwrap_or_else(|e| panic!("{tool}: {e}"))
}

fn text(output: &Output) -> String {
    let of = |bytes| String::from_utf8_lossy(bytes).into_owned();
    of(&output.stdout) + &of(&output.stderr)
}

/// An image file that is deleted with its folder.
struct Image {
    _folder: TempDir,
    path: PathBuf,
}

impl Image {
    fn new(bytes: u64) -> Image {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("disk.img");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        Image {
            _folder: folder,
            path,
        }
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn open(&self) -> Arc<dyn Provider> {
        disk::open(&self.path, OpenMode::ReadWrite).unwrap()
    }

    fn table(&self) -> Table {
        Table::read(&*self.open()).unwrap().unwrap()
    }
}

/// A loop device with sectors of 4096 bytes.
struct Loop {
    path: String,
    _image: Image,
}

impl Loop {
    fn new(bytes: u64) -> Option<Loop> {
        let image = Image::new(bytes);
        let made = Command::new("losetup")
            .args(["-b", "4096", "-f", "--show", image.name()])
            .output();
        let path = made.ok().filter(|o| o.status.success());
        let path = path.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        let Some(path) = path else {
            eprintln!("SKIPPED: no loop device (needs root, and losetup of util-linux)");
            return None;
        };
        Some(Loop {
            path,
            _image: image,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.path]).output();
    }
}

fn new(label: Option<&str>, start: Option<u64>, size: Option<u64>) -> NewPartition {
    NewPartition {
        wish: Wish {
            alignment: Some(8),
            start,
            size,
        },
        label: label.map(str::to_owned),
        ..NewPartition::default()
    }
}

/// A table with some of everything.
fn write_sample(provider: &dyn Provider, scheme: Scheme, era: Era) -> Table {
    let mut table = Table::create(scheme, Shape::of(provider), None, era).unwrap();
    if scheme == Scheme::Gpt {
        table
            .add("freebsd-boot", &new(None, None, Some(128)))
            .unwrap();
        table
            .add("efi", &new(Some("EFI größer"), None, Some(4096)))
            .unwrap();
        table
            .add("freebsd-swap", &new(None, Some(100_000), Some(80_000)))
            .unwrap();
        table
            .add("freebsd-zfs", &new(Some("d1"), None, None))
            .unwrap();
    } else {
        for kind in ["freebsd", "linux-data", "fat32lba"] {
            table.add(kind, &new(None, None, Some(40_000))).unwrap();
        }
        table.add("ntfs", &new(None, None, None)).unwrap();
        table.set("active", Some(1), true).unwrap();
    }
    table.write(provider).unwrap();
    table
}

fn check_with_sgdisk(path: &str, table: &Table, is_roomy: bool) {
    if !has("sgdisk", "gdisk") {
        return;
    }
    let verdict = text(&run("sgdisk", &["-v", path]));
    assert!(verdict.contains("No problems found"), "{verdict}");
    // current FreeBSD rounds the usable range, which sgdisk calls unusual
    assert!(is_roomy || !verdict.contains("Warning"), "{verdict}");
    assert!(!verdict.contains("Caution"), "{verdict}");
    for one in table.partitions() {
        let index = one.index.to_string();
        let says = text(&run("sgdisk", &["-i", &index, path]));
        for expect in [
            format!("First sector: {} ", one.start_sector),
            format!("Last sector: {} ", one.last_sector()),
            format!("Partition name: '{}'", one.label()),
            format!("Partition GUID code: {} ", one.kind.raw().to_uppercase()),
            format!(
                "Partition unique GUID: {}",
                one.guid.to_string().to_uppercase()
            ),
        ] {
            assert!(says.contains(&expect), "no {expect} in {says}");
        }
    }
}

fn check_with_parted(path: &str, table: &Table, is_roomy: bool) {
    if !has("parted", "parted") {
        return;
    }
    let out = run("parted", &["-s", "-m", path, "unit", "s", "print"]);
    assert!(out.status.success(), "{}", text(&out));
    let complaints = String::from_utf8_lossy(&out.stderr).into_owned();
    let is_known = is_roomy && complaints.contains("Not all of the space");
    assert!(is_known || complaints.is_empty(), "{complaints}");
    let says = String::from_utf8_lossy(&out.stdout).into_owned();
    for one in table.partitions() {
        let (index, start, end) = (one.index, one.start_sector, one.last_sector());
        let expect = format!("\n{index}:{start}s:{end}s:{}s:", one.sectors);
        assert!(says.contains(&expect), "no {expect} in {says}");
    }
}

fn check_with_blkid(path: &str, table: &Table) {
    if !has("blkid", "util-linux") {
        return;
    }
    let says = text(&run("blkid", &["-p", path]));
    let expect = match table.disk_guid() {
        Some(guid) => format!("PTUUID=\"{guid}\" PTTYPE=\"gpt\""),
        None => format!("PTUUID=\"{:08x}\" PTTYPE=\"dos\"", table.serial()),
    };
    assert!(says.contains(&expect), "no {expect} in {says}");
}

#[test]
fn our_gpt_is_read_by_others_without_a_complaint() {
    for era in [Era::Nine, Era::Current] {
        let image = Image::new(DISK_BYTES);
        let table = write_sample(&*image.open(), Scheme::Gpt, era);
        let is_roomy = era == Era::Current;
        check_with_sgdisk(image.name(), &table, is_roomy);
        check_with_parted(image.name(), &table, is_roomy);
        check_with_blkid(image.name(), &table);
    }
}

#[test]
fn our_mbr_is_read_by_others_without_a_complaint() {
    let image = Image::new(DISK_BYTES);
    let table = write_sample(&*image.open(), Scheme::Mbr, Era::Current);
    check_with_parted(image.name(), &table, false);
    check_with_blkid(image.name(), &table);
}

#[test]
fn large_disks_have_a_protective_entry_of_the_largest_size() {
    // four times as many sectors as 32 bits can count
    let image = Image::new(8 << 40);
    let table = write_sample(&*image.open(), Scheme::Gpt, Era::Nine);
    check_with_sgdisk(image.name(), &table, false);
    check_with_parted(image.name(), &table, false);
}

#[test]
fn what_we_recover_is_right_in_the_eyes_of_others() {
    let image = Image::new(DISK_BYTES);
    let mut table = write_sample(&*image.open(), Scheme::Gpt, Era::Nine);
    let provider = image.open();
    for sector in [1, 20, DISK_BYTES / 512 - 1, DISK_BYTES / 512 - 20] {
        provider.write(sector * 512, &[0x5a; 512]).unwrap();
        let mut read = Table::read(&*provider).unwrap().unwrap();
        assert!(read.recover("disk.img", Era::Nine).unwrap());
        assert_eq!(read.partitions(), table.partitions());
        read.write(&*provider).unwrap();
        check_with_sgdisk(image.name(), &read, false);
    }
    drop(provider);
    // the disk grows, then shrinks below its original size
    table.delete(4).unwrap();
    table.write(&*image.open()).unwrap();
    for bytes in [5 << 30, 1 << 30] {
        let file = std::fs::File::options().write(true).open(&image.path);
        file.unwrap().set_len(bytes).unwrap();
        let mut read = image.table();
        assert!(read.is_corrupt());
        assert!(read.recover("disk.img", Era::Nine).unwrap());
        assert_eq!(read.partitions(), table.partitions());
        read.write(&*image.open()).unwrap();
        check_with_sgdisk(image.name(), &read, false);
        check_with_parted(image.name(), &read, false);
    }
}

#[test]
fn sectors_of_4096_bytes_are_understood_by_others() {
    let Some(device) = Loop::new(400 << 20) else {
        return;
    };
    for scheme in [Scheme::Gpt, Scheme::Mbr] {
        let provider = disk::open(Path::new(&device.path), OpenMode::ReadWrite).unwrap();
        assert_eq!(provider.sectorsize(), 4096);
        let mut table = Table::create(scheme, Shape::of(&*provider), None, Era::Current).unwrap();
        let kinds = match scheme {
            Scheme::Gpt => ["freebsd-zfs", "linux-data"],
            Scheme::Mbr => ["freebsd", "linux-data"],
        };
        table.add(kinds[0], &new(None, None, Some(10_000))).unwrap();
        table.add(kinds[1], &new(None, None, None)).unwrap();
        if let Some(old) = Table::read(&*provider).unwrap() {
            old.destroy(&*provider).unwrap();
        }
        table.write(&*provider).unwrap();
        drop(provider);
        if scheme == Scheme::Gpt {
            check_with_sgdisk(&device.path, &table, true);
        }
        check_with_parted(&device.path, &table, false);
        check_with_blkid(&device.path, &table);
        if has("parted", "parted") {
            let made = run(
                "parted",
                &[
                    "-s",
                    &device.path,
                    "rm",
                    "2",
                    "mkpart",
                    "primary",
                    "60%",
                    "90%",
                ],
            );
            assert!(made.status.success(), "{}", text(&made));
            let provider = disk::open(Path::new(&device.path), OpenMode::Inspect).unwrap();
            let back = Table::read(&*provider).unwrap().unwrap();
            assert!(!back.is_corrupt(), "{:?}", back.notes());
            assert_eq!(back.partitions()[0], table.partitions()[0]);
            assert_eq!(back.partition(2).unwrap().start_sector % 256, 0);
        }
    }
}

#[test]
fn tables_of_sgdisk_are_read() {
    if !has("sgdisk", "gdisk") {
        return;
    }
    let image = Image::new(DISK_BYTES);
    let made = run(
        "sgdisk",
        &[
            "-n",
            "1:0:+100M",
            "-t",
            "1:ef00",
            "-c",
            "1:EFI",
            "-n",
            "5:0:+1G",
            "-t",
            "5:a504",
            "-c",
            "5:tänk",
            "-n",
            "7:0:0",
            "-t",
            "7:bf01",
            "-A",
            "5:set:59",
            "-u",
            "7:01234567-89AB-CDEF-0123-456789ABCDEF",
            image.name(),
        ],
    );
    assert!(made.status.success(), "{}", text(&made));
    let table = image.table();
    assert!(!table.is_corrupt(), "{:?}", table.notes());
    assert_eq!(table.notes(), [""; 0]);
    let of = |p: &gpart::Partition| (p.index, p.kind.to_string(), p.label());
    let facts: Vec<_> = table.partitions().iter().map(of).collect();
    let expect = |i, kind: &str, label: &str| (i, kind.to_owned(), label.to_owned());
    assert_eq!(
        facts,
        [
            expect(1, "efi", "EFI"),
            expect(5, "freebsd-zfs", "tänk"),
            expect(7, "apple-zfs", ""),
        ]
    );
    assert_eq!(table.partition(5).unwrap().attribute_names(), ["bootme"]);
    let guid = table.partition(7).unwrap().guid.to_string();
    assert_eq!(guid, "01234567-89ab-cdef-0123-456789abcdef");
    // written back, it is byte for byte the same
    let before = ends_of(&image);
    table.write(&*image.open()).unwrap();
    assert!(ends_of(&image) == before, "rewriting changed bytes");
}

/// The first and the last 64 KiB, which include both copies of the table.
fn ends_of(image: &Image) -> Vec<u8> {
    let provider = image.open();
    let mut bytes = vec![0; 2 << 16];
    let (head, tail) = bytes.split_at_mut(1 << 16);
    provider.read(0, head).unwrap();
    provider
        .read(provider.mediasize() - (1 << 16), tail)
        .unwrap();
    bytes
}

/// Numbers determined by a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn location(&mut self, bytes: u64) -> String {
        let megabytes = bytes / 1_000_000;
        match self.below(8) {
            0 => format!("{}%", self.below(101)),
            1 => format!("{}MiB", self.below(megabytes)),
            2 => format!("{}s", self.below(bytes / 512)),
            3 => format!("{}kB", self.below(megabytes * 1000)),
            4 => format!("{}GB", self.below(bytes / 1_000_000_000 + 1)),
            _ => format!("{}", self.below(megabytes)),
        }
    }
}

/// One `mkpart`, by parted on the image and by this crate on a copy of the table in memory.
fn compare_mkpart(image: &Image, dice: &mut Dice, align: &str) {
    let mut table = image.table();
    let shape = table.shape();
    let (start, end) = (
        dice.location(shape.mediasize),
        dice.location(shape.mediasize),
    );
    let theirs = run(
        "parted",
        &[
            "-s",
            "-a",
            align,
            image.name(),
            "mkpart",
            "primary",
            &start,
            &end,
        ],
    );
    let topology = Topology::of(&shape);
    let alignment = match align {
        "none" => None,
        "min" => Some(topology.minimal),
        _ => Some(topology.optimal),
    };
    let parse = |text: &str| parse_location(text, Unit::Compact, &shape, image.name());
    let ours = parse(&start).and_then(|from| {
        let until = parse(&end)?.as_end(&end, Unit::Compact, &from);
        place(&table, &from, &until, alignment, (Unit::Compact, 32))
    });
    let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
    let what = format!("-a {align} mkpart {start} {end} beside {:?}", {
        let of = |p: &gpart::Partition| (p.start_sector, p.last_sector());
        table.partitions().iter().map(of).collect::<Vec<_>>()
    });
    let ours = ours.and_then(|placed| match &placed.moved {
        Some(text) => Err(format!("Error: {text}")),
        None => Ok(placed),
    });
    match ours {
        Err(refusal) => {
            assert!(!theirs.status.success(), "{what}: we say {refusal}");
            assert_eq!(said.trim_end(), refusal, "{what}");
        }
        Ok(placed) => {
            let is = format!("{placed:?}");
            assert!(theirs.status.success(), "{what}: we say {is}, they {said}");
            let warning = placed.misaligned.map_or(String::new(), |off| {
                format!("Warning: The resulting partition is not properly aligned for best performance: {off}\n")
            });
            assert_eq!(said, warning, "{what}");
            let size = placed.end - placed.start + 1;
            let mut new = new(None, Some(placed.start), Some(size));
            new.wish.alignment = None;
            table.allow_from(placed.start);
            table.add("linux-data", &new).unwrap();
            let of = |t: &Table| -> Vec<_> {
                let of = |p: &gpart::Partition| (p.index, p.start_sector, p.sectors, p.kind);
                t.partitions().iter().map(of).collect()
            };
            assert_eq!(of(&image.table()), of(&table), "{what}");
        }
    }
}

fn compare_listings(image: &Image) {
    let table = image.table();
    let view = TableView {
        table: Some(&table),
        shape: table.shape(),
        file_system: &(),
    };
    let disk = Disk {
        path: image.name().to_owned(),
        transport: "file".to_owned(),
        track: 32,
        ..Disk::default()
    };
    for unit in ["compact", "s", "B", "MB", "MiB", "GB", "KiB", "%", "TB"] {
        for (option, format) in [
            ("-s", Format::Human),
            ("-m", Format::Machine),
            ("-j", Format::Json),
        ] {
            for free in [&[] as &[&str], &["free"]] {
                let mut args = vec!["-s", option, image.name(), "unit", unit, "print"];
                args.extend(free);
                let theirs = run("parted", &args);
                let unit = Unit::parse(unit).unwrap();
                let ours = print(&view, &disk, unit, !free.is_empty(), format);
                assert_eq!(ours, String::from_utf8_lossy(&theirs.stdout), "{args:?}");
            }
        }
    }
}

#[test]
fn partitions_go_where_parted_puts_them() {
    if !has("parted", "parted") {
        return;
    }
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or(0x5eed_0001);
    eprintln!("SEED={seed}");
    let mut dice = Dice(seed);
    for (label, bytes) in [
        ("gpt", 3 << 30),
        ("msdos", 20_000_000_000),
        ("gpt", 104_857_600),
    ] {
        let image = Image::new(bytes);
        let made = run("parted", &["-s", image.name(), "mklabel", label]);
        assert!(made.status.success(), "{}", text(&made));
        for step in 0..24 {
            let align =
                ["opt", "opt", "opt", "min", "none"][usize::try_from(dice.below(5)).unwrap()];
            if label == "msdos" && image.table().partitions().len() == 4 || dice.below(9) == 0 {
                let table = image.table();
                let count = table.partitions().len() as u64;
                if count > 0 {
                    let at = usize::try_from(dice.below(count)).unwrap();
                    let index = table.partitions()[at].index.to_string();
                    run("parted", &["-s", image.name(), "rm", &index]);
                }
                continue;
            }
            compare_mkpart(&image, &mut dice, align);
            if step == 11 {
                compare_listings(&image);
            }
        }
    }
}
