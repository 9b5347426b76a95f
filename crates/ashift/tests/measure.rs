//! `ashift dd`, `phybs`, `diskmark` and `machine mount`, in machines and on image files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a machine of two drives in it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            folder: tempfile::tempdir().unwrap(),
        };
        bench.ok("machine create m ada0=wd20ears,size=4G ada1=wd20ears,size=4G");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ashift"))
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env("ASHIFT_STATE", self.path("state"))
            .env_remove("ASHIFT_MACHINE")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Stderr of a command, and whether it succeeded.
    fn says(&self, line: &str) -> (bool, String) {
        let output = self.run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }
}

#[test]
fn dd_copies_between_drives_pools_and_files() {
    let bench = Bench::new();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 / 5) as u8).collect();
    std::fs::write(bench.path("in"), &bytes).unwrap();
    bench.ok("-m m zpool create tank ada0");
    bench.ok("-m m dd if=./in of=/tank/file bs=64k");
    bench.ok("-m m dd if=/tank/file of=ada1 bs=1m conv=sync");
    bench.ok("-m m dd if=/dev/ada1 of=tank:/copy bs=512 count=5000 skip=2 seek=1");
    bench.ok("-m m dd if=/tank/copy of=./out ibs=777 obs=333");
    let mut expect = vec![0; 512];
    expect.extend_from_slice(&bytes[1024..1024 + 5000 * 512]);
    assert_eq!(std::fs::read(bench.path("out")).unwrap(), expect);

    bench.ok("-m m dd if=/dev/zero of=/tank/file bs=1k count=1 seek=3 conv=notrunc oflag=sync");
    bench.ok("-m m dd if=./in of=/tank/file bs=10 count=1 conv=notrunc oflag=append");
    bench.ok("-m m dd if=/tank/file of=./out bs=1m");
    let mut expect = bytes.clone();
    expect[3072..4096].fill(0);
    expect.extend_from_slice(&bytes[..10]);
    assert_eq!(std::fs::read(bench.path("out")).unwrap(), expect);
}

#[test]
fn dd_complains_in_the_words_of_the_place() {
    let bench = Bench::new();
    bench.ok("-m m zpool create tank ada0");
    let check = |line: &str, expect: &str| {
        let (succeeded, text) = bench.says(line);
        assert!(!succeeded, "{line}");
        assert_eq!(text.lines().next(), Some(expect), "{line}");
    };
    check(
        "-m m dd if=ada9 of=/dev/null",
        "dd: ada9: No such file or directory",
    );
    check(
        "-m m dd if=/dev/ada1 bs=100 of=/dev/null",
        "dd: /dev/ada1: Invalid argument",
    );
    let in_use = "dd: ada0: Operation not permitted (pool 'tank' is on it)";
    check("-m m dd if=/dev/zero of=ada0", in_use);
    check("-m m dd if=/dev/zero of=/tank", "dd: /tank: Is a directory");
    check(
        "-m m dd if=/dev/zero of=ada1 bs=1m seek=4096",
        "dd: ada1: end of device",
    );
    check(
        "dd if=nothing",
        "dd: failed to open 'nothing': No such file or directory",
    );
    check("dd iff=nothing", "dd: unrecognized operand 'iff=nothing'");
    let (succeeded, text) = bench.says("-m m dd if=/dev/zero of=ada1 bs=1m count=10");
    assert!(succeeded);
    assert!(text.starts_with("10+0 records in\n10+0 records out\n10485760 bytes transferred in "));
}

#[test]
fn phybs_prints_the_passes_of_the_original() {
    let bench = Bench::new();
    let text = bench.ok("-m m phybs -w -t 64k ada0");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 4 + 14);
    assert_eq!(lines[0].split_whitespace().last(), Some("kBps"));
    assert!(
        lines[2].starts_with("      64    1024       0    4096  "),
        "{}",
        lines[2]
    );
    let rows = bench.json("-m m phybs -w -t 1m -l 4k -h 4k -j ada0");
    let msec = |at: usize| rows["passes"][at]["usec"].as_u64().unwrap();
    assert_eq!(rows["passes"].as_array().unwrap().len(), 4);
    assert!(
        msec(1) > 2 * msec(0),
        "misaligned writes take longer: {rows}"
    );

    let check = |line: &str, expect: &str| {
        let (succeeded, text) = bench.says(line);
        assert!(!succeeded, "{line}");
        assert_eq!(text.lines().next(), Some(expect));
    };
    check("-m m phybs -l 3k ada0", "phybs: -l: not a power of two");
    check(
        "-m m phybs -l 256 ada0",
        "phybs: minsize (256) is not a multiple of block size (512)",
    );
    let small =
        "phybs: ada0: too small: a pass sweeps 8589934592 bytes of 4294967296 (-t takes less)";
    check("-m m phybs -t 2g ada0", small);
}

#[test]
fn diskmark_gives_the_same_scores_for_the_same_machine() {
    let run = || {
        let bench = Bench::new();
        bench.json("-m m diskmark ada0 -j --size 16m --seconds 0.2 --runs 2")
    };
    let first = run();
    assert_eq!(first, run());
    assert_eq!(first["tests"].as_array().unwrap().len(), 8);

    let bench = Bench::new();
    bench.ok("-m m zpool create tank ada0");
    let line = "-m m diskmark ada0 --size 16m";
    assert!(bench.says(line).1.contains("pool 'tank' is on it"));
    bench.ok("-m m zpool export tank");
    assert!(bench.says(line).1.contains("not blank"));
    let text = bench.ok("-m m diskmark --read --size 16m --seconds 0.2 --runs 1 ada0");
    assert!(text.contains("[Read]") && !text.contains("[Write]"));

    std::fs::create_dir(bench.path("folder")).unwrap();
    bench.ok("diskmark folder --size 4m --seconds 0.01 --runs 1");
    assert_eq!(std::fs::read_dir(bench.path("folder")).unwrap().count(), 0);
}

/// Unmounts on drop.
struct Mounted(PathBuf);

impl Mounted {
    fn unmount(&self) -> bool {
        let how: [&[&str]; 2] = [&["umount"], &["fusermount3", "-u"]];
        how.iter().any(|words| {
            let status = Command::new(words[0])
                .args(&words[1..])
                .arg(&self.0)
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn host(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("SKIPPED: no {program} here: install it");
            None
        }
    }
}

#[test]
fn the_hosts_own_programs_see_a_mounted_machine() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: no /dev/fuse here: load the fuse module, or let the container have it");
        return;
    }
    let bench = Bench::new();
    bench.ok("-m m gpart create -s gpt ada1");
    bench.ok("-m m gpart add -t freebsd-zfs -a 4k -s 64m -l d1 ada1");
    let folder = bench.path("mnt");
    std::fs::create_dir(&folder).unwrap();
    let (succeeded, text) = bench.says("machine mount m mnt");
    if !succeeded {
        eprintln!(
            "SKIPPED: this host lets us mount nothing ({}): run as root, or install fuse3",
            text.trim()
        );
        return;
    }
    let mounted = Mounted(folder.clone());
    let at = |name: &str| folder.join(name).display().to_string();
    assert_eq!(std::fs::metadata(at("gpt/d1")).unwrap().len(), 64 << 20);

    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n * 11 / 3) as u8).collect();
    std::fs::write(bench.path("in"), &bytes).unwrap();
    let (from, to) = (
        format!("if={}/in", bench.folder.path().display()),
        format!("of={}", at("ada0")),
    );
    let done = host("dd", &[&from, &to, "bs=1000", "seek=3", "conv=fsync"]).unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(
        std::fs::metadata(at("ada0")).unwrap().len(),
        4 << 30,
        "a drive is not cut off"
    );
    if let Some(done) = host(
        "fio",
        &[
            "--name=x",
            &format!("--filename={}", at("gpt/d1")),
            "--rw=randwrite",
            "--bs=4k",
            "--size=4m",
            "--direct=1",
            "--verify=crc32c",
            "--verify_state_save=0",
        ],
    ) {
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    if let Some(done) = host("sgdisk", &["-v", &at("ada1")]) {
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(text.contains("No problems found"), "{text}");
    }
    assert!(mounted.unmount(), "nobody uses it any more");
    bench.ok("-m m dd if=ada0 of=./out bs=1m count=1");
    let back = std::fs::read(bench.path("out")).unwrap();
    assert_eq!(back[3000..1_003_000], bytes);
}

#[test]
fn a_mounted_drive_of_an_imported_pool_cannot_be_written_to() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("SKIPPED: no /dev/fuse here: load the fuse module, or let the container have it");
        return;
    }
    let bench = Bench::new();
    bench.ok("-m m zpool create tank ada1");
    let folder = bench.path("mnt");
    std::fs::create_dir(&folder).unwrap();
    let (succeeded, text) = bench.says("machine mount m mnt");
    if !succeeded {
        eprintln!(
            "SKIPPED: this host lets us mount nothing ({}): run as root, or install fuse3",
            text.trim()
        );
        return;
    }
    let mounted = Mounted(folder.clone());
    let write = |name: &str| {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).open(folder.join(name))
    };
    write("ada0").unwrap();
    let error = write("ada1").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    std::fs::File::open(folder.join("ada1")).unwrap();
    assert!(mounted.unmount(), "nobody uses it any more");
}

/// What `bench peer` measures is written on any layout, and is what was to be written.
#[test]
fn a_stream_is_written_to_any_layout_and_read_again() {
    let bench = Bench::new();
    let files: Vec<String> = (0..7).map(|n| format!("disk{n}")).collect();
    for (layout, count) in [
        ("single", 2),
        ("mirror", 2),
        ("raidz2", 4),
        ("draid1:2d:7c:1s", 7),
    ] {
        let files = &files[..count];
        for file in files {
            let file = std::fs::File::create(bench.path(file)).unwrap();
            file.set_len(128 << 20).unwrap();
        }
        let exe = env!("CARGO_BIN_EXE_ashift");
        let line = format!("bench stream {layout} lz4 20 {exe} {}", files.join(" "));
        let said = bench.ok(&line);
        let has = |what: &str| said.lines().any(|line| line.starts_with(what));
        assert!(has("write_MBps ") && has("read_MBps "), "{layout}: {said}");
        if oracle::have_zdb() {
            oracle::Zdb::verify(bench.folder.path(), "bench").assert_clean();
        }
    }
}
