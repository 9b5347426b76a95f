//! What commands report about drives: `drives`, `camcontrol`, `diskinfo`, `machine fault`.

use std::path::Path;
use std::process::Command;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn ashift(machine: Option<&Path>, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashift"));
    command.env_remove("ASHIFT_MACHINE");
    if let Some(machine) = machine {
        command.env("ASHIFT_MACHINE", machine);
    }
    let output = command.args(args).output().expect("ashift runs");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

/// A machine with a drive that misreports its sectors, and one behind a USB bridge.
fn machine(dir: &Path) {
    let folder = dir.to_str().expect("UTF-8");
    let ran = ashift(
        None,
        &[
            "machine",
            "create",
            folder,
            "ada0=wd20ears,serial=WD-WCAZA1234567",
            "da0=wd160edgz-usb",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn profiles_are_listed_and_shown() {
    let list = ashift(None, &["drives"]);
    assert_eq!(list.code, 0);
    assert!(list.out.contains("wd20ears ") && list.out.contains("512/4096+1"));
    let all = json(&ashift(None, &["drives", "-j"]).out);
    assert_eq!(
        all["profiles"].as_array().map(Vec::len),
        Some(list.out.lines().count() - 1)
    );
    let bridges = ashift(None, &["drives", "-b"]);
    assert!(bridges.out.contains("usb:asm1051 ") && bridges.out.contains("4096 bytes"));
    let all = json(&ashift(None, &["drives", "-bj"]).out);
    assert_eq!(all["bridges"][1]["sector_bytes"], 4096);
    assert_eq!(ashift(None, &["drives", "-b", "wd20ears"]).code, 2);
    let shown = ashift(None, &["drives", "wd20ears-jumper"]);
    for text in [
        "word 106",
        "stripesize 4096",
        "disk.rpm",
        "WHAT",
        "phybs -w 4096@0",
        "mean square",
    ] {
        let text = text.replace("WHAT", "What it is");
        assert!(shown.out.contains(&text), "{text} in {}", shown.out);
    }
    let one = json(&ashift(None, &["drives", "-jn", "wd20ears"]).out);
    let says = &one["profiles"][0]["says"];
    assert_eq!(says["freebsd_quirk_4k"], "WDC WD????RS*");
    assert_eq!(says["linux"]["physical_block_size"], 512);
    assert_eq!(one["profiles"][0]["is"]["disk.rpm"]["value"], 5400.0);
    let missing = ashift(None, &["drives", "wd21"]);
    assert_eq!(missing.code, 1);
    assert!(
        missing.err.contains("no drive profile 'wd21'; there are"),
        "{}",
        missing.err
    );
}

#[test]
fn drives_of_a_machine_say_what_they_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let m = dir.path().join("m");
    machine(&m);
    let m = Some(m.as_path());
    let list = ashift(m, &["camcontrol", "devlist"]).out;
    assert_eq!(
        list.lines().next(),
        Some("<WDC WD20EARS-00MVWB0 51.0AB51>    at scbus0 target 0 lun 0 (pass0,ada0)")
    );
    let identify = ashift(m, &["camcontrol", "identify", "ada0"]).out;
    assert!(identify.contains("sector size           logical 512, physical 512, offset 0\n"));
    assert!(identify.contains("serial number         WD-WCAZA1234567\n"));
    let bridged = json(&ashift(m, &["camcontrol", "identify", "-j", "/dev/da0"]).out);
    assert_eq!(bridged["sectors"], 31_251_759_104u64);
    let info = ashift(m, &["diskinfo", "da0"]).out;
    assert!(
        info.starts_with("da0\t512\t16000867106816\t31251693568\t4096\t0\t"),
        "{info}"
    );
    let info = json(&ashift(m, &["diskinfo", "-jv", "ada0"]).out);
    assert_eq!(info["disks"][0]["stripesize"], 4096);
    let linux = ashift(m, &["diskinfo", "-l", "ada0"]).out;
    assert!(
        linux.contains("\t4096        \t# in truth, says FreeBSD's list\n"),
        "{linux}"
    );
    let wrong = ashift(m, &["camcontrol", "identify", "ada7"]);
    assert_eq!(
        (wrong.code, wrong.err.trim()),
        (1, "camcontrol: ada7: no such drive")
    );
}

#[test]
fn faults_come_and_go_and_the_right_bytes_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("m");
    machine(&folder);
    let m = Some(folder.as_path());
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7u8; 1 << 20]).expect("a file");
    let path = |p: &Path, what: &str| format!("{what}={}", p.display());
    let run = |args: &[&str]| ashift(m, args);
    assert_eq!(
        run(&["dd", &path(&from, "if"), "of=ada0", "bs=64k", "conv=fsync"]).code,
        0
    );
    assert_eq!(
        run(&["machine", "fault", "add", "ada0", "unreadable", "100+8"]).out,
        "fault 1\n"
    );
    assert_eq!(
        run(&["machine", "fault", "add", "ada0", "flipped", "random:2"])
            .out
            .lines()
            .count(),
        2
    );
    let list = run(&["machine", "fault", "list"]).out;
    assert!(
        list.starts_with("ada0  1  8 sectors at 100 cannot be read\n"),
        "{list}"
    );
    let copy = || run(&["dd", "if=ada0", &path(&to, "of"), "bs=64k", "count=16"]);
    let failed = copy();
    assert!(
        failed.code != 0 && failed.err.contains("Input/output error"),
        "{}",
        failed.err
    );
    assert_eq!(run(&["machine", "fault", "remove", "ada0", "1"]).code, 0);
    assert_eq!(copy().code, 0);
    assert_ne!(std::fs::read(&to).expect("a copy"), vec![7u8; 1 << 20]);
    assert_eq!(run(&["machine", "fault", "remove", "ada0", "all"]).code, 0);
    assert_eq!(copy().code, 0);
    assert_eq!(std::fs::read(&to).expect("a copy"), vec![7u8; 1 << 20]);
    assert_eq!(run(&["machine", "fault", "add", "ada0", "dead"]).code, 0);
    assert!(copy().err.contains("Input/output error"));
    for bad in [
        &["add", "ada0", "rusty", "1"][..],
        &["add", "ada0", "unreadable", "1e3"],
        &["remove", "ada0", "99"],
    ] {
        let ran = run(&[&["machine", "fault"], bad].concat());
        assert!(
            ran.code == 1 && ran.err.starts_with("ashift machine fault: "),
            "{}",
            ran.err
        );
    }
}
