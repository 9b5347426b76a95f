//! Whole sessions in machines of emulated drives, by the built binary.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use oracle::{Zdb, have_zdb};

/// A machine in a folder of its own, with files of the host beside it.
struct Bench(tempfile::TempDir);

impl Bench {
    /// A machine with drives of 100 MB whose partitions have the labels `d0`, `d1`, ….
    fn new(drives: usize) -> Bench {
        let bench = Bench(tempfile::tempdir().unwrap());
        let words: String = (0..drives)
            .map(|n| format!(" ada{n}=wd20ears,size=100MB"))
            .collect();
        bench.ok(&format!("machine create --seed 7{words}"));
        for n in 0..drives {
            bench.ok(&format!("gpart create -s gpt ada{n}"));
            bench.ok(&format!("gpart add -t freebsd-zfs -a 4K -l d{n} ada{n}"));
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashift"));
        command
            .args(["-m".into(), self.path("m")])
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("ASHIFT_STATE", self.path("state"))
            .env_remove("ASHIFT_MACHINE")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let complaint = text(&output.stderr);
        assert!(output.status.success(), "{line}: {complaint}");
        text(&output.stdout)
    }

    /// What a command that must fail says.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        text(&output.stderr).trim_end().to_owned()
    }

    /// The partition of a drive as a file that other programs can look at.
    fn copy_out(&self, label: &str) -> PathBuf {
        let folder = self.path("out");
        fs::create_dir_all(&folder).unwrap();
        let target = folder.join(format!("{label}.img"));
        self.ok(&format!(
            "dd if=/dev/gpt/{label} of={} bs=1m",
            target.display()
        ));
        folder
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_pool_made_through_nops_keeps_its_ashift_without_them() {
    let bench = Bench::new(2);
    bench.ok("gnop create -S 4096 /dev/gpt/d0");
    bench.ok("zpool create tank mirror gpt/d0.nop gpt/d1");
    let status = bench.ok("zpool status");
    assert!(status.contains("\t    gpt/d0.nop  ONLINE "), "{status}");
    bench.ok("zpool export tank");
    bench.ok("gnop destroy gpt/d0.nop");
    let found = bench.ok("zpool import");
    assert!(found.contains("\t    gpt/d0  ONLINE\n"), "{found}");
    bench.ok("zpool import tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("\t    gpt/d0  ONLINE "), "{status}");
    let config = bench.ok("zdb -C tank");
    for line in [
        "ashift: 12",
        "path: '/dev/gpt/d0'",
        "type: 'disk'",
        "hostname: 'machine'",
    ] {
        assert!(config.contains(line), "{line}\n{config}");
    }
    let history = bench.ok("zpool history tank");
    let line = " zpool create tank mirror gpt/d0.nop gpt/d1\n";
    assert!(history.contains(line), "{history}");
    bench.ok("zfs create -o compression=lz4 tank/sub");
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    bench.ok(&format!("cp {readme} /tank/sub/"));
    let sum = bench.ok("cat /tank/sub/Cargo.toml");
    assert_eq!(sum, fs::read_to_string(readme).unwrap());
    assert_eq!(bench.ok("cat tank/sub:/Cargo.toml"), sum);
    bench.ok("zpool export tank");
    if have_zdb() {
        bench.copy_out("d0");
        let folder = bench.copy_out("d1");
        Zdb::verify(&folder, "tank").assert_clean();
    }
}

#[test]
fn a_pulled_drive_is_missed_and_comes_back() {
    let bench = Bench::new(2);
    bench.ok("zpool create tank mirror gpt/d0 gpt/d1");
    bench.ok("machine pull ada1");
    let status = bench.ok("zpool status");
    assert!(status.contains(" state: DEGRADED\n"), "{status}");
    assert!(
        status.contains("gpt/d1 ") && status.contains("cannot open"),
        "{status}"
    );
    fs::write(bench.path("file"), vec![5; 3 << 20]).unwrap();
    bench.ok("cp file /tank/");
    let shown = bench.ok("machine show");
    assert!(
        shown.contains("pulled") && !shown.contains("ada1p1"),
        "{shown}"
    );
    bench.ok("machine add ada1");
    assert_eq!(bench.ok("zpool scrub tank"), "");
    bench.ok("machine pull ada0");
    let sum = bench.ok("cat /tank/file");
    assert_eq!(sum.len(), 3 << 20, "what was resilvered is whole");
    assert!(bench.fails("machine pull ada0").contains("pulled already"));
    bench.ok("machine pull ada1");
    let status = bench.ok("zpool status");
    assert!(status.contains(" state: UNAVAIL\n"), "{status}");
}

#[test]
fn a_pool_survives_power_cuts() {
    let bench = Bench::new(1);
    bench.ok("gnop create --transient -S 4096 gpt/d0");
    bench.ok("zpool create tank gpt/d0.nop");
    fs::write(bench.path("file"), vec![5; 3 << 20]).unwrap();
    for seed in 0..3 {
        bench.ok(&format!("cp file /tank/file{seed}"));
        bench.ok(&format!("machine power-cut --seed {seed}"));
        // The nop is gone; the pool is found where it was all the time.
        let status = bench.ok("zpool status");
        assert!(status.contains("\t  gpt/d0 "), "{status}");
        let whole = bench.ok(&format!("cat /tank/file{seed}"));
        assert_eq!(whole.len(), 3 << 20);
    }
    assert_eq!(bench.ok("zpool scrub tank"), "");
    for after in ["0.005", "0.04", "0.1", "0.15"] {
        let cut = format!("machine power-cut --after {after} -- cp file /tank/late{after}");
        bench.ok(&cut);
        bench.ok("zdb -bcc tank");
        assert_eq!(bench.ok("cat /tank/file2").len(), 3 << 20);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_times() {
    let session = || {
        let bench = Bench::new(1);
        fs::write(bench.path("file"), vec![5; 1 << 20]).unwrap();
        bench.ok("zpool create -O compression=lz4 tank gpt/d0");
        bench.ok("cp file /tank/");
        bench.ok("zpool export tank");
        let shown: serde_json::Value = serde_json::from_str(&bench.ok("machine show -j")).unwrap();
        let media = fs::File::open(bench.path("m/drives/ada0.img")).unwrap();
        let mut bytes = vec![0; 64 << 20];
        media.read_exact_at(&mut bytes, 0).unwrap();
        (shown["clock_ns"].clone(), bytes)
    };
    let (one, other) = (session(), session());
    assert_eq!(one.0, other.0);
    assert!(one.1 == other.1, "other bytes");
}

#[test]
fn commands_wait_for_each_other() {
    let bench = Bench::new(1);
    let lock = fs::File::options()
        .write(true)
        .open(bench.path("m/state/lock"))
        .unwrap();
    lock.lock().unwrap();
    let child = bench
        .command("machine show")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let child = child.unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    lock.unlock().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(
        said.contains("is in use by another command") && said.contains("waiting"),
        "{said}"
    );
}

#[test]
fn what_makes_no_sense_is_said_once() {
    let bench = Bench::new(2);
    bench.ok("gpart modify -i 1 -l d0 ada1");
    let twice = "cannot open 'gpt/d0': gpt/d0: the label is used twice, by ada0p1 and ada1p1";
    assert_eq!(bench.fails("zpool create tank gpt/d0"), twice);
    let missing = bench.fails("zpool create tank ada7");
    assert!(
        missing.starts_with("cannot open 'ada7': no such device in /dev"),
        "{missing}"
    );
    let missing = bench.fails("zpool create tank /dev/ada7");
    assert_eq!(
        missing,
        "cannot open '/dev/ada7': No such file or directory"
    );
    let missing = bench.fails("machine pull ada7");
    assert_eq!(
        missing,
        "ashift machine: there is no drive 'ada7' in this machine"
    );
    let toml = bench.path("m/machine.toml");
    let good = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, good.replacen("profile", "profil", 1)).unwrap();
    let typo = bench.fails("zpool status");
    assert!(
        typo.contains("machine.toml: line 6, column 1: unknown field `profil`"),
        "{typo}"
    );
    fs::write(&toml, good).unwrap();
    bench.ok("machine show");
    let exists = bench.fails("machine create ada0=wd20ears");
    assert!(exists.ends_with("exists and is not empty"), "{exists}");
    bench.ok(&format!("machine destroy {}", bench.path("m").display()));
    assert!(!bench.path("m").exists());
    assert!(bench.fails("zpool status").contains("is not a machine"));
}

#[test]
fn a_full_host_is_named_and_nothing_is_lost() {
    let small = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(small.path())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    if !mount("size=6m") {
        oracle::skip("a file system that is full: mounting one needs root");
        return;
    }
    let _unmount = Unmount(small.path().to_owned());
    let bench = Bench(tempfile::tempdir_in(small.path()).unwrap());
    bench.ok("machine create ada0=wd20ears,size=100MB");
    bench.ok("zpool create tank ada0");
    bench.ok("zfs create tank/sub");
    let rubbish = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; 9 << 20];
    let mut state = 1u32;
    bytes.fill_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    fs::write(rubbish.path(), &bytes).unwrap();
    let copy = format!("cp {} /tank/sub/file", rubbish.path().display());
    let full = bench.fails(&copy);
    assert!(
        full.contains("the file system that holds it is full"),
        "{full}"
    );
    assert_eq!(full.lines().count(), 1, "{full}");
    assert!(mount("remount,size=40m"));
    bench.ok("zdb -bcc tank");
    bench.ok(&copy);
    let back = bench.run("cat /tank/sub/file").stdout;
    assert!(back == bytes);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
