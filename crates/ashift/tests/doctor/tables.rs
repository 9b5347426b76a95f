//! Partition tables on images.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::bench::Bench;
use crate::expect;

const MIB: u64 = 1 << 20;

/// An image of 160 MiB with a GPT and two partitions.
fn gpt() -> Bench {
    let bench = Bench::new(&[]);
    bench.image("d", 160);
    bench.ok("gpart create -s gpt {d}");
    bench.ok("gpart add -t freebsd-zfs -a 4K -s 70M {d}");
    bench.ok("gpart add -t freebsd-zfs -a 4K {d}");
    bench
}

fn disk(bench: &Bench) -> File {
    File::options().write(true).open(bench.path("d")).unwrap()
}

/// Changes the image, looks at it, and undoes that.
#[track_caller]
fn look(bench: &Bench, change: impl Fn(&File), findings: &[&str]) {
    let before = std::fs::read(bench.path("d")).unwrap();
    change(&disk(bench));
    expect(bench, "{d}", findings);
    std::fs::write(bench.path("d"), before).unwrap();
}

#[test]
fn copies_of_a_gpt_and_their_places_are_judged() {
    let bench = gpt();
    expect(&bench, "{d}", &[]);
    let wipe = |file: &File, sector: u64| file.write_all_at(&[0; 512], sector * 512).unwrap();
    let last = 160 * MIB / 512 - 1;
    look(
        &bench,
        |file| wipe(file, last),
        &["warning gpt-backup-damaged d"],
    );
    look(
        &bench,
        |file| wipe(file, 1),
        &["warning gpt-primary-damaged d"],
    );
    look(&bench, |file| wipe(file, 0), &["warning gpt-unprotected d"]);
    let spoil = |file: &File, sector: u64| file.write_all_at(&[9; 8], sector * 512 + 40).unwrap();
    let both = |file: &File| [1, last].into_iter().for_each(|sector| spoil(file, sector));
    look(&bench, both, &["critical gpt-lost d"]);
    let grow = |file: &File| file.set_len(192 * MIB).unwrap();
    look(&bench, grow, &["warning gpt-backup-displaced d"]);
    let cut = |file: &File| file.set_len(150 * MIB).unwrap();
    look(
        &bench,
        cut,
        &[
            "critical gpt-disk-shrunk d",
            "critical partition-beyond-end dp2",
        ],
    );
    // What is to be typed mends it.
    grow(&disk(&bench));
    bench.ok("gpart recover {d}");
    expect(&bench, "{d}", &[]);
}

#[test]
fn partitions_that_are_out_of_place_are_named() {
    let bench = Bench::new(&[]);
    bench.image("d", 100);
    bench.ok("parted -s -a none {d} mklabel msdos mkpart primary 63s 20000s mkpart primary 40960s 60000s");
    expect(&bench, "{d}", &["note misaligned-partition ds1"]);
    // The second begins within the first: its entry is the second of four, the start 8 bytes into it.
    disk(&bench)
        .write_all_at(&1000_u32.to_le_bytes(), 446 + 16 + 8)
        .unwrap();
    expect(
        &bench,
        "{d}",
        &[
            "critical partitions-overlap ds2",
            "note misaligned-partition ds1",
        ],
    );
    bench.image("e", 3 << 20);
    bench.ok("gpart create -s mbr {e}");
    expect(&bench, "{e}", &["warning mbr-too-small e"]);
}

#[test]
fn a_loop_device_with_large_sectors_is_told_from_its_image() {
    let bench = Bench::new(&[]);
    bench.image("d", 100);
    bench.ok("zpool create -o ashift=9 tank {d}");
    bench.ok("zpool export tank");
    expect(&bench, "{d}", &[]);
    let d = bench.path("d").display().to_string();
    let losetup = |words: &[&str]| std::process::Command::new("losetup").args(words).output();
    let device = losetup(&["-f", "--show", "-b", "4096", &d]);
    let device = device.ok().filter(|output| output.status.success());
    let Some(device) = device.map(|output| String::from_utf8(output.stdout).unwrap()) else {
        eprintln!("SKIPPED: no loop device can be had here");
        return;
    };
    let device = device.trim();
    let found = bench.run(&format!("doctor -j {device}"));
    losetup(&["-d", device]).unwrap();
    // Nothing can read sectors of 512 bytes from it, so no system opens that pool.
    let expect = vec!["critical pool-unavailable tank".to_owned()];
    assert_eq!(crate::said(found, ""), crate::Said(4, expect));
}
