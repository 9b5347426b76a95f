//! `zfs project` beside the kernel's: what both print is in `projects.txt`; `PROJECTS_RECORD=1` asks the kernel anew.

use std::path::Path;

use oracle::vm::Guest;

use crate::Place;

/// What is typed, one after another. Names after `@` are in the file system.
const LINES: &str = "\
zfs project @d
zfs project @f
zfs project -p 7 @d
zfs project -d @d @f
zfs project -s -r @d
zfs project @d
zfs project -r @d
touch @d/e/new
mkdir @d/e/deeper
zfs project -r @d/e
zfs project -p 8 -s @d/e
zfs project -c -r @d
zfs project -c -p 8 @d
zfs project -c -d -p 8 @d
zfs project -c -0 -r @d
zfs project -C -k @d/e
zfs project -c -r @d
zfs project -r -d @d
zfs project -d -r @d
zfs project -C -r @d
zfs project -r @d
zfs project -p 0x10 @f
zfs project @f
zfs project -p 010 @f
zfs project @f
zfs project -s @f
zfs project -C @f
zfs project -p 4294967294 @f @d
zfs project @f @d
zfs project -d -C @d
zfs project -d -p 3 @d
zfs project -k @d
zfs project -0 @d
zfs project -C -p 3 @d
zfs project -k -c @d
zfs project -C -c @d
zfs project -p 4294967295 @d
zfs project -p x @d
zfs project -r @f
zfs project -c -d @f
zfs project @nothing @f
zfs project @fifo
zfs project -r
zfs project
zfs project -q @d";

/// What is printed on a command: its status, the first line of complaints, and its output, sorted, since names in a
/// directory are in the order of hashes.
fn entry(line: &str, code: i32, complaints: &str, output: &str) -> String {
    let complaint = complaints.lines().next().unwrap_or_default();
    let mut lines: Vec<&str> = output.split(['\n', '\0']).collect();
    lines.sort_unstable();
    lines.retain(|line| !line.is_empty());
    format!("{line}\n[{code}] {complaint}\n{}\n", lines.join("\n"))
}

/// A file system with a directory in a directory, files, a link and a pipe.
fn place() -> Place {
    let place = Place::with_pool("-O mountpoint=/tank");
    place.zfs("create tank/p");
    for line in [
        "mkdir tank/p:/d",
        "mkdir tank/p:/d/e",
        "touch tank/p:/f tank/p:/d/a tank/p:/d/e/b",
        "ln -s a tank/p:/d/l",
    ] {
        assert_eq!(place.run(line).code, 0, "{line}");
    }
    place.with_files("tank/p", |fs| {
        fs.mknod(
            fs.root(),
            b"fifo",
            zpl::FileType::Fifo,
            0,
            &zpl::Create::default(),
        )
        .unwrap();
    });
    place
}

fn ours(place: &Place) -> String {
    let run = |line: &str| {
        let said = place.run(&line.replace('@', "tank/p:/"));
        let here = |text: &str| text.replace("tank/p:/", "");
        entry(line, said.code, &here(&said.err), &here(&said.out))
    };
    LINES.lines().map(run).collect()
}

/// What the kernel's OpenZFS prints on the same files.
fn record(guest: &Guest, expected: &Path) {
    let place = place();
    assert_eq!(place.run("zpool export tank").code, 0);
    let mut script = "zpool import -d /host -R /mnt tank; cd /mnt/tank/p\n".to_owned();
    for (at, line) in LINES.lines().enumerate() {
        let line = line.replace('@', "");
        script += &format!("{line} >/host/out{at} 2>/host/err{at}; echo $? >/host/code{at}\n");
    }
    script += "cd /; zpool export tank\n";
    let share = place.images();
    guest.run(&script, &share, &[]).assert_success();
    let read =
        |name: &str, at: usize| std::fs::read_to_string(share.join(format!("{name}{at}"))).unwrap();
    let said = |(at, line): (usize, &str)| {
        let code = read("code", at).trim().parse().unwrap();
        entry(line, code, &read("err", at), &read("out", at))
    };
    let all: String = LINES.lines().enumerate().map(said).collect();
    std::fs::write(expected, all).unwrap();
}

#[test]
fn projects_are_listed_checked_set_and_cleared_as_by_the_kernel() {
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zfs/projects.txt");
    if std::env::var_os("PROJECTS_RECORD").is_some() {
        record(&Guest::find().expect("QEMU is there"), &expected);
    }
    let place = place();
    let expected = std::fs::read_to_string(expected).unwrap();
    assert_eq!(ours(&place), expected);
    place.verify();
}

/// Files of this host are none of a machine's.
#[test]
fn a_machine_does_not_reach_this_hosts_files() {
    let place = Place {
        folder: tempfile::tempdir().unwrap(),
    };
    let (machine, file) = (place.folder.path().join("m"), place.folder.path().join("f"));
    std::fs::write(&file, "text").unwrap();
    let create = format!("machine create {} ada0=wd20ears,size=1G", machine.display());
    assert_eq!(place.run(&create).code, 0);
    let set = format!(
        "-m {} zfs project -p 7 {}",
        machine.display(),
        file.display()
    );
    let said = place.run(&set);
    let expected = format!(
        "failed to stat {}: no data set is mounted there\n",
        file.display()
    );
    assert_eq!((said.code, said.err), (255, expected));
}
