//! gpart and parted on image files, and in a machine.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// What a command printed and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    out: String,
    err: String,
    code: i32,
}

fn ashift_with(folder: &Path, args: &[&str], input: &str) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ashift"))
        .args(args)
        .current_dir(folder)
        .env("ASHIFT_STATE", folder.join("state"))
        .env_remove("ASHIFT_MACHINE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // a command that does not read may have ended already
    let _ = std::io::Write::write_all(&mut pipe, input.as_bytes());
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        out: text(&output.stdout),
        err: text(&output.stderr),
        code: output.status.code().unwrap_or(-1),
    }
}

fn ashift(folder: &Path, line: &str) -> Said {
    let args: Vec<&str> = line.split(' ').collect();
    ashift_with(folder, &args, "")
}

/// A command that must succeed and print `out`.
fn expect(folder: &Path, line: &str, out: &str) {
    let said = ashift(folder, line);
    assert_eq!((said.code, &*said.out), (0, out), "{line}: {}", said.err);
}

/// A command that must fail with the message `err`.
fn refuse(folder: &Path, line: &str, err: &str) {
    let said = ashift(folder, line);
    assert_eq!(said.code, 1, "{line}: {}", said.out);
    assert!(said.err.contains(err), "{line}: {}", said.err);
}

fn image(folder: &Path, bytes: u64) {
    let file = std::fs::File::create(folder.join("d.img")).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn gpart_answers_as_on_freebsd() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    image(at, 3_000_592_982_016);
    refuse(at, "gpart show d.img", "gpart: No such geom: d.img.");
    refuse(
        at,
        "gpart add -t efi d.img",
        "gpart: No partitioning scheme found on geom d.img.",
    );
    expect(at, "gpart create -s gpt --era 9 d.img", "d.img created\n");
    refuse(
        at,
        "gpart create -s gpt d.img",
        "gpart: geom 'd.img': File exists",
    );
    expect(
        at,
        "gpart add -t freebsd-boot -s 64k d.img",
        "d.imgp1 added\n",
    );
    expect(
        at,
        "gpart add -t freebsd-zfs -a 4K -l d1 d.img",
        "d.imgp2 added\n",
    );
    expect(
        at,
        "gpart show d.img",
        "=>        34  5860533101  d.img  GPT  (2.7T)\n          \
         34         128      1  freebsd-boot  (64K)\n         \
         162           6         - free -  (3.0K)\n         \
         168  5860532960      2  freebsd-zfs  (2.7T)\n  \
         5860533128           7         - free -  (3.5K)\n\n",
    );
    refuse(at, "gpart destroy d.img", "gpart: Device busy");
    refuse(
        at,
        "gpart delete -i 3 d.img",
        "gpart: index '3': No such file or directory",
    );
    refuse(
        at,
        "gpart add d.img",
        "gpart: Option 't' (type) not specified.\nusage: gpart add",
    );
    let backup = ashift(at, "gpart backup d.img").out;
    expect(at, "gpart destroy -F d.img", "d.img destroyed\n");
    let restored = ashift_with(at, &["gpart", "restore", "-l", "d.img"], &backup);
    assert_eq!((restored.code, &*restored.out), (0, ""), "{}", restored.err);
    expect(at, "gpart backup d.img", &backup);
    let json = ashift(at, "gpart show -j d.img").out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tables"][0]["partitions"][1]["label"], "d1");
    expect(
        at,
        "gpart recover d.img",
        "d.img recovering is not needed\n",
    );
}

#[test]
fn a_shortened_disk_is_refused_until_its_partitions_fit() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    image(at, 1 << 30);
    expect(at, "gpart create -s gpt d.img", "d.img created\n");
    expect(at, "gpart add -t freebsd-zfs d.img", "d.imgp1 added\n");
    // the sectors that a USB bridge hides
    image_cut(at, (1 << 30) - 65_536 * 512);
    let shown = ashift(at, "gpart show d.img");
    assert!(shown.out.contains("[CORRUPT]"), "{}", shown.out);
    assert!(
        shown.err.contains("it was made on a larger disk"),
        "{}",
        shown.err
    );
    refuse(
        at,
        "gpart add -t efi -s 10 d.img",
        "gpart: table 'd.img' is corrupt: Operation not permitted",
    );
    refuse(
        at,
        "gpart recover d.img",
        "gpart: recovering 'd.img' failed: partition 1 ends in",
    );
    image_cut(at, 1 << 30);
    let shown = ashift(at, "gpart show d.img");
    assert!(!shown.out.contains("[CORRUPT]") || shown.err.contains("secondary"));
    expect(at, "gpart recover d.img", "d.img recovered\n");
    assert!(!ashift(at, "gpart show d.img").out.contains("[CORRUPT]"));
}

fn image_cut(folder: &Path, bytes: u64) {
    let file = std::fs::File::options()
        .write(true)
        .open(folder.join("d.img"));
    file.unwrap().set_len(bytes).unwrap();
}

#[test]
fn parted_answers_as_gnu_parted() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    image(at, 3 << 30);
    refuse(at, "parted -s d.img print", "unrecognised disk label");
    expect(at, "parted -s d.img mklabel gpt", "");
    expect(at, "parted -s d.img mkpart d1 0% 1GiB name 1 data", "");
    let said = ashift(at, "parted -s d.img mkpart d2 34s 2047s");
    assert_eq!(said.code, 0);
    assert_eq!(
        said.err,
        "Warning: The resulting partition is not properly aligned for best performance: 34s % 2048s != 0s\n"
    );
    expect(at, "parted -s d.img align-check opt 1", "");
    refuse(at, "parted -s d.img align-check opt 2", "");
    expect(at, "parted d.img align-check min 2", "2 aligned\n");
    expect(
        at,
        "parted d.img align-check optimal 2",
        "2 not aligned: 34s % 2048s != 0s\n",
    );
    refuse(
        at,
        "parted -s d.img mkpart d3 0 5",
        "Error: Unable to satisfy all constraints on the partition.",
    );
    refuse(
        at,
        "parted -s d.img rm 9",
        "Error: Partition doesn't exist.",
    );
    let path = at.join("d.img");
    let path = path.display();
    expect(
        at,
        "parted -m d.img unit s print",
        &format!(
            "BYT;\n{path}:6291456s:file:512:512:gpt::;\n2:34s:2047s:2014s::d2:;\n1:2048s:2097151s:2095104s::data:;\n"
        ),
    );
    expect(
        at,
        "parted -s d.img rm 2 print",
        &format!(
            "Model:  (file)\nDisk {path}: 3221MB\nSector size (logical/physical): 512B/512B\n\
             Partition Table: gpt\nDisk Flags: \n\nNumber  Start   End     Size    File system  Name  Flags\n 1      \
             1049kB  1074MB  1073MB               data\n\n"
        ),
    );
}

/// As GNU parted 3.5: a name may be cut short as long as no other begins so.
#[test]
fn commands_of_parted_may_be_cut_short() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    image(at, 1 << 30);
    expect(at, "parted -s d.img mklab gpt mkp d1 0% 50% na 1 data", "");
    expect(at, "parted -s d.img alig opt 1 rm 1 q rm 1", "");
    refuse(
        at,
        "parted -s d.img resizep 1 100%",
        "Partition doesn't exist.",
    );
    refuse(
        at,
        "parted -s d.img resc 1 2",
        "Error: rescue is not kept up here",
    );
    refuse(
        at,
        "parted -s d.img mkp d1 0%",
        "Error: no answer to 'End?'",
    );
    for ambiguous in ["mk", "r", "se", "resi"] {
        let said = ashift(at, &format!("parted -s d.img {ambiguous}"));
        let complaint = format!("parted: invalid token: {ambiguous}\n");
        assert_eq!((said.err, said.code), (complaint, 0));
    }
}

#[test]
fn drives_of_a_machine_have_partitions_and_labels() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let made = ashift(at, "machine create m ada0=wd30ezrx ada1=wd15ears");
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    for drive in ["ada0", "/dev/ada1"] {
        let name = drive.trim_start_matches("/dev/");
        expect(
            at,
            &format!("-m m gpart create -s gpt {drive}"),
            &format!("{name} created\n"),
        );
        let add = format!("-m m gpart add -t freebsd-zfs -a 4K -l {name} {drive}");
        expect(at, &add, &format!("{name}p1 added\n"));
    }
    let shown = ashift(at, "-m m gpart show -l -p");
    assert!(
        shown
            .out
            .contains("=>        40  5860533088    ada0  GPT  (2.7T)\n"),
        "{}",
        shown.out
    );
    assert!(shown.out.contains("ada1p1  ada1  ("), "{}", shown.out);
    let parted = ashift(at, "-m m parted -s /dev/ada0 print");
    assert!(
        parted.out.contains("\nDisk /dev/ada0: 3001GB\n"),
        "{}",
        parted.out
    );
    assert!(parted.out.contains("512B/4096B"), "{}", parted.out);
    refuse(
        at,
        "-m m gpart show ada7",
        "gpart: arg0 'ada7': Invalid argument",
    );
}

#[test]
fn a_block_device_is_not_written_to_without_consent() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    image(at, 64 << 20);
    // a loop device of our own: a mistake must not destroy a real disk
    let made = Command::new("losetup")
        .args(["-f", "--show", "d.img"])
        .current_dir(at)
        .output();
    let Some(made) = made.ok().filter(|o| o.status.success()) else {
        eprintln!("SKIPPED: no loop device (needs root, and losetup of util-linux)");
        return;
    };
    let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let consent = "--yes-write-to-device";
    let said = [
        ashift(at, &format!("gpart create -s gpt {device}")),
        ashift(at, &format!("parted -s {device} mklabel gpt")),
        ashift(at, &format!("gpart create -s gpt {consent} {device}")),
        ashift(at, &format!("gpart destroy -F {device}")),
        ashift(at, &format!("gpart show {device}")),
        ashift(
            at,
            &format!("parted {consent} -s {device} mklabel msdos print"),
        ),
    ];
    let gone = Command::new("losetup").args(["-d", &device]).status();
    assert!(gone.unwrap().success());
    let codes = said.each_ref().map(|s| s.code);
    assert_eq!(codes, [1, 1, 0, 1, 0, 0], "{said:#?}");
    for refused in [&said[0], &said[1], &said[3]] {
        assert!(refused.err.contains(consent), "{refused:?}");
    }
    assert!(said[5].out.contains("Partition Table: msdos"), "{said:#?}");
}
