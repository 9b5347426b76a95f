//! Drives of machines: what they say, and what they are.

use crate::bench::Bench;

/// Compares what the doctor says in the machine `m`.
#[track_caller]
fn expect(bench: &Bench, names: &str, code: i32, findings: &[&str]) {
    let ran = bench.run(format!("-m {{dir}}/m doctor -j {names}").trim_end());
    let findings: Vec<String> = findings
        .iter()
        .map(|finding| (*finding).to_owned())
        .collect();
    assert_eq!(crate::said(ran, ""), crate::Said(code, findings), "{names}");
}

#[test]
fn sectors_of_drives_are_compared_with_partitions_and_pools() {
    let bench = Bench::new(&[]);
    let run = |line: &str| bench.ok(&format!("-m {{dir}}/m {line}"));
    run(
        "machine create --seed 7 ada0=wd20ears,size=100MB ada1=wd30ezrx,size=100MB ada2=huh721010ale600,size=100MB ada3=mal32000,size=100MB",
    );
    let liar = "note lying-disk ada0 (WDC WD20EARS-00MVWB0)";
    expect(&bench, "", 0, &[liar]);
    for drive in ["ada0", "ada1", "ada2", "ada3"] {
        run(&format!("gpart create -s gpt {drive}"));
        run(&format!(
            "gpart add -t freebsd-zfs -a 4K -l {drive}-zfs {drive}"
        ));
    }
    run("zpool create -o ashift=12 tank mirror gpt/ada1-zfs gpt/ada2-zfs");
    run("zpool create -o ashift=9 small gpt/ada3-zfs");
    expect(&bench, "", 0, &[liar]);
    run("zpool create -o ashift=9 old gpt/ada0-zfs");
    expect(
        &bench,
        "old",
        3,
        &[liar, "warning small-ashift old: gpt/ada0-zfs"],
    );
    expect(&bench, "tank small", 0, &[]);
    run("zpool destroy old");
    run("gpart delete -i 1 ada0");
    run("gpart add -t freebsd-boot -b 41 -s 100 ada0");
    run("gpart add -t freebsd-zfs -b 163 -s 100000 -l old ada0");
    expect(
        &bench,
        "ada0",
        3,
        &[liar, "warning misaligned-partition ada0p2"],
    );
    run("gpart delete -i 2 ada0");
    run("machine pull ada1");
    expect(
        &bench,
        "tank",
        4,
        &["critical one-sided-mirror tank: gpt/ada1-zfs"],
    );
    bench.fails(
        "doctor {dir}/m",
        1,
        "ashift doctor: {dir}/m: a machine of emulated drives ('ashift -m {dir}/m doctor')",
    );
}

#[test]
fn an_honest_drive_is_believed() {
    let bench = Bench::new(&[]);
    let run = |line: &str| bench.ok(&format!("-m {{dir}}/m {line}"));
    run("machine create --seed 7 ada0=wd30ezrx,size=100MB ada1=wd30ezrx,size=100MB");
    run("zpool create -o ashift=9 tank mirror ada0 ada1");
    expect(&bench, "", 3, &["warning small-ashift tank: mirror-0"]);
}

#[test]
fn two_sides_of_a_mirror_on_one_disk_are_no_mirror() {
    let bench = Bench::new(&[]);
    let run = |line: &str| bench.ok(&format!("-m {{dir}}/m {line}"));
    run("machine create --seed 7 ada0=huh721010ale600,size=200MB");
    run("gpart create -s gpt ada0");
    run("gpart add -t freebsd-zfs -a 4K -s 80M ada0");
    run("gpart add -t freebsd-zfs -a 4K -s 80M ada0");
    run("zpool create tank mirror ada0p1 ada0p2");
    let found = ["critical same-disk tank: ada0p2"];
    expect(&bench, "tank", 4, &found);
    expect(&bench, "ada0p1", 4, &found);
    run("zpool export tank");
    expect(&bench, "ada0", 4, &found);
}

#[test]
fn a_disk_that_moves_from_a_bridge_to_sata_and_back_is_told() {
    let bench = Bench::new(&[]);
    let run = |line: &str| bench.ok(&format!("-m {{dir}}/m {line}"));
    run("machine create --seed 7 ada0=wd160edgz-usb,size=200MB");
    run("gpart create -s gpt ada0");
    run("gpart add -t freebsd-zfs -a 4K -l d ada0");
    run("zpool create tank gpt/d");
    run("zpool export tank");
    expect(&bench, "", 0, &[]);
    // The bridge has kept 65,536 sectors for itself, and the backup of the table is before them.
    run("machine move ada0=sata");
    expect(&bench, "", 3, &["warning gpt-backup-displaced ada0"]);
    run("gpart recover ada0");
    expect(&bench, "", 0, &[]);
    run("machine move ada0=usb");
    expect(&bench, "", 4, &["critical gpt-disk-shrunk ada0"]);
    run("zpool import tank");
}

#[test]
fn a_table_of_other_sectors_is_told_and_mended_by_the_commands_shown() {
    let bench = Bench::new(&[]);
    let run = |line: &str| bench.ok(&format!("-m {{dir}}/m {line}"));
    run("machine create --seed 7 ada0=wd160edgz,size=200MB,bus=usb:asm1051");
    run("gpart create -s gpt ada0");
    run("gpart add -t freebsd-swap -a 4K -s 10M ada0");
    run("gpart add -t freebsd-zfs -a 4K -l d ada0");
    run("zpool create tank gpt/d");
    run("zpool export tank");
    expect(&bench, "", 0, &[]);
    let told = ["critical gpt-of-other-sectors ada0"];
    run("machine move ada0=sata");
    expect(&bench, "", 4, &told);
    run("machine move ada0=usb:asm1051");
    expect(&bench, "", 0, &[]);
    run("machine move ada0=sata");
    let (_, said, _) = bench.run("-m {dir}/m doctor");
    assert!(
        said.contains("counts in sectors of 4096 bytes, and here it has sectors of 512"),
        "{said}"
    );
    let lines = said.lines().map(str::trim);
    let commands = lines.filter(|line| line.starts_with("gpart "));
    for command in commands {
        run(&command.replace('\'', ""));
    }
    expect(&bench, "", 0, &[]);
    run("zpool import tank");
    run("zpool scrub -w tank");
    run("zpool export tank");
    // And the other way round.
    run("machine move ada0=usb:asm1051");
    expect(&bench, "", 4, &told);
}

#[test]
fn a_bridge_that_hides_the_drive_leaves_its_sectors_unknown() {
    let bench = Bench::new(&[]);
    let run = |line: &str| bench.ok(&format!("-m {{dir}}/m {line}"));
    run("machine create --seed 7 ada0=wd160edgz,size=200MB");
    let by_sata = run("diskinfo ada0");
    assert!(by_sata.contains("\t4096\t0"), "{by_sata}");
    run("machine move ada0=usb:at2");
    let by_usb = run("diskinfo ada0");
    assert_eq!(by_usb, by_sata.replace("\t4096\t0", "\t0\t0"));
    let list = run("camcontrol devlist");
    assert!(list.contains("<Cypress AT2>"), "{list}");
    let (code, _, said) = bench.run("-m {dir}/m camcontrol identify ada0");
    assert_eq!(code, 1);
    assert!(said.contains("passes no ATA command on"), "{said}");
}
