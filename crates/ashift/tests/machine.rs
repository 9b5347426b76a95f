//! Whole sessions in machines of emulated drives, with the built binary.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use oracle::{Zdb, have_zdb};

#[path = "machine/churn.rs"]
mod churn;
#[path = "machine/script.rs"]
mod script;
#[path = "machine/tar.rs"]
mod tar;
#[path = "machine/up.rs"]
mod up;
#[path = "machine/watch.rs"]
mod watch;

/// A machine in a temporary folder, with files of the host beside it.
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

    /// Stderr of a command that must fail.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        text(&output.stderr).trim_end().to_owned()
    }

    /// Copies the partition of a drive to a file, for other programs.
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
fn a_spare_takes_over_for_a_drive_that_is_pulled() {
    let bench = Bench::new(4);
    bench.ok("zpool create tank raidz gpt/d0 gpt/d1 gpt/d2 spare gpt/d3");
    fs::write(bench.path("file"), vec![5; 3 << 20]).unwrap();
    bench.ok("cp file /tank/one");
    bench.ok("machine pull ada1");
    bench.ok("cp file /tank/two");
    bench.ok("zpool wait -t resilver tank");
    let status = bench.ok("zpool status");
    for part in ["spare-1 ", "gpt/d3 ", "INUSE     currently in use"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    // The spare has everything: one more may go.
    bench.ok("machine pull ada0");
    for name in ["one", "two"] {
        assert_eq!(bench.ok(&format!("cat /tank/{name}")).len(), 3 << 20);
    }
    bench.ok("machine add ada0");
    bench.ok("machine add ada1");
    assert_eq!(bench.ok("zpool scrub tank"), "");
    bench.ok("zpool detach tank gpt/d3");
    let status = bench.ok("zpool status");
    assert!(
        status.contains(" state: ONLINE\n") && status.contains("AVAIL"),
        "{status}"
    );
    if have_zdb() {
        for n in 0..3 {
            bench.copy_out(&format!("d{n}"));
        }
        let folder = bench.copy_out("d3");
        Zdb::verify(&folder, "tank").assert_clean();
    }
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
        // The nop is gone; the pool is found at its old place.
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
        let packed = fs::read(bench.path("m/drives/ada0.img.packed")).unwrap();
        (shown["clock_ns"].clone(), bytes, packed)
    };
    let (one, other) = (session(), session());
    assert_eq!(one.0, other.0);
    assert!(one.1 == other.1, "other bytes");
    assert!(one.2 == other.2, "packed in another way");
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
        said.starts_with("waiting for machine '") && said.contains("in use by another command"),
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
    assert_eq!(missing, "cannot resolve path '/dev/ada7'");
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
    // That the pool is suspended, how long the command waits, and the one error.
    assert_eq!(full.lines().count(), 3, "{full}");
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

/// Providers on `ada0` that a pool may be on: the commands that make the provider, and the provider.
const LAYERS: [(&str, &str); 5] = [
    ("gpart destroy -F ada0", "ada0"),
    ("gpart show ada0", "ada0p1"),
    ("gpart show ada0", "gpt/d0"),
    ("gnop create -S 4096 gpt/d0", "gpt/d0.nop"),
    ("geli onetime -s 4096 gpt/d0", "gpt/d0.eli"),
];

/// What must be refused below a pool, and the message if it is on a partition, and on the raw drive.
const OVERWRITES: [(&str, &str, &str); 16] = [
    (
        "dd if=/dev/zero of=/dev/ada0 count=1",
        "dd: /dev/ada0: Operation not permitted (",
        "",
    ),
    (
        "dd if=/dev/zero of=/dev/ada0p1 count=1",
        "dd: /dev/ada0p1: Operation not permitted (",
        "",
    ),
    (
        "dd if=/dev/zero of=gpt/d0 count=1",
        "dd: gpt/d0: Operation not permitted (",
        "No such file",
    ),
    (
        "phybs -w ada0",
        "phybs: ada0: Operation not permitted (",
        "",
    ),
    (
        "diskmark --yes-write-to-device ada0",
        "diskmark: ada0: Operation not permitted (",
        "",
    ),
    (
        "gpart create -s gpt ada0",
        "gpart: geom 'ada0': File exists",
        "gpart: geom 'ada0': Operation not permitted (",
    ),
    (
        "gpart delete -i 1 ada0",
        "gpart: Device busy (",
        "Operation not permitted",
    ),
    (
        "gpart destroy -F ada0",
        "gpart: Device busy (",
        "Operation not permitted",
    ),
    (
        "gpart resize -i 1 -s 70m ada0",
        "gpart: Device busy (",
        "Operation not permitted",
    ),
    (
        "gpart bootcode -p m/machine.toml -i 1 ada0",
        "gpart: /dev/ada0p1: Operation not permitted (",
        "Operation not permitted",
    ),
    (
        "parted -s ada0 mklabel gpt",
        "Error: Partition(s) on /dev/ada0 are being used.",
        "",
    ),
    (
        "parted -s ada0 rm 1",
        "Warning: Partition /dev/ada0p1 is being used.",
        "unrecognised disk label",
    ),
    (
        "geli init -P -K m/machine.toml ada0",
        "Operation not permitted (",
        "",
    ),
    ("geli onetime ada0", "Operation not permitted (", ""),
    (
        "zpool create -f other ada0",
        "cannot create 'other': one or more vdevs refer to the same device",
        "is part of active pool 'tank'",
    ),
    (
        "zpool labelclear -f ada0",
        "Operation not permitted (",
        "ACTIVE",
    ),
];

#[test]
fn nobody_writes_below_a_pool() {
    for (make, device) in LAYERS {
        let bench = Bench::new(2);
        bench.ok(make);
        bench.ok(&format!("zpool create tank {device}"));
        bench.ok("dd if=/dev/random of=/tank/file bs=1m count=2");
        let sum = bench.ok("sha256sum /tank/file");
        let files = ["ada0.img", "ada0.img.packed"].map(|name| bench.path("m/drives").join(name));
        let read = || files.each_ref().map(|file| fs::read(file).ok());
        let before = read();
        for (line, on_partition, on_drive) in OVERWRITES {
            let output = bench.run(line);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{device}: {line}: {said}");
            let is_whole = device == "ada0" && !on_drive.is_empty();
            let expect = if is_whole { on_drive } else { on_partition };
            assert!(said.contains(expect), "{device}: {line}: {said}");
        }
        assert!(before == read(), "{device}: something was written");
        bench.ok("dd if=ada0 of=/dev/null bs=1m count=1");
        bench.ok("dd if=/dev/zero of=ada1 bs=1m count=1");
        bench.ok("zpool scrub tank");
        assert_eq!(bench.ok("sha256sum /tank/file"), sum);
        // What is no longer in use is free.
        bench.ok("zpool export tank");
        if device != "gpt/d0.eli" {
            bench.ok("dd if=/dev/zero of=ada0 bs=1m count=1");
        }
    }
}

#[test]
fn a_table_changes_around_the_partitions_in_use() {
    let bench = Bench::new(1);
    bench.ok("gpart delete -i 1 ada0");
    bench.ok("gpart add -t freebsd-zfs -s 70m -l d0 ada0");
    bench.ok("gpart add -t freebsd-swap -s 4m ada0");
    bench.ok("zpool create tank gpt/d0");
    for line in [
        "gpart add -t freebsd-boot -s 512k -i 7 ada0",
        "gpart bootcode -p m/machine.toml -i 7 ada0",
        "gpart set -a bootme -i 1 ada0",
        "gpart resize -i 2 -s 3m ada0",
        "gpart delete -i 2 ada0",
        "dd if=/dev/zero of=ada0p7 count=1",
        "gnop create ada0p7",
        "parted -s ada0 mkpart x 90MB 95MB",
        "zpool scrub tank",
    ] {
        bench.ok(line);
    }
    // A nop may be created on a provider in use, but writes through it would reach the pool.
    bench.ok("gnop create ada0p1");
    let said = bench.fails("dd if=/dev/zero of=ada0p1.nop count=1");
    assert_eq!(
        said,
        "dd: ada0p1.nop: Operation not permitted (pool 'tank' is on it)"
    );
    bench.ok("machine add ada9=wd20ears,size=100MB");
    bench.ok("gnop create ada9");
    let said = bench.fails("zpool create -f p ada9 ada9.nop");
    assert!(said.contains("refer to the same device"), "{said}");
}

#[test]
fn an_image_of_an_imported_pool_is_in_use_though_nobody_has_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_ashift"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .env("ASHIFT_STATE", folder.path().join("state"))
            .env_remove("ASHIFT_MACHINE")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.success(), text(&output.stderr))
    };
    let image = folder.path().join("a.img");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    std::os::unix::fs::symlink("a.img", folder.path().join("link")).unwrap();
    let (succeeded, said) = run(&format!("zpool create tank {}", image.display()));
    assert!(succeeded, "{said}");
    fs::write(folder.path().join("file"), b"contents").unwrap();
    let (succeeded, said) = run("cp file tank:/");
    assert!(succeeded, "{said}");
    let before = fs::read(&image).unwrap();
    for line in [
        "dd if=/dev/zero of=a.img count=1 conv=notrunc",
        "dd if=/dev/zero of=link count=1",
        "cp tank:/file a.img",
        "cp -a tank:/file a.img",
        "phybs -w a.img",
        "diskmark --yes-write-to-device a.img",
        "gpart create -s gpt a.img",
        "parted -s link mklabel gpt",
        "geli init -P -K state/zpool.cache a.img",
        "zpool labelclear -f a.img",
        "zpool create -f p link",
    ] {
        let (succeeded, said) = run(line);
        assert!(!succeeded, "{line}");
        let names_user = said.contains("pool 'tank'") || said.contains("pool \"tank\"");
        assert!(
            names_user || said.contains("are being used"),
            "{line}: {said}"
        );
    }
    assert!(fs::read(&image).unwrap() == before, "something was written");
    let (succeeded, said) = run("zpool export tank");
    assert!(succeeded, "{said}");
    let (succeeded, said) = run("dd if=/dev/zero of=a.img count=1 conv=notrunc");
    assert!(succeeded, "{said}");
}

#[test]
fn dd_leaves_a_file_alone_that_another_program_has_locked() {
    let bench = Bench::new(1);
    let path = bench.path("file");
    fs::write(&path, b"precious").unwrap();
    let open = fs::File::open(&path).unwrap();
    open.lock().unwrap();
    let said = bench.fails(&format!("dd if=/dev/zero of={} count=1", path.display()));
    assert!(said.contains("in use by another program"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

/// Bytes per second in the last line of `dd`.
fn rate(output: &Output) -> f64 {
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rate = said.rsplit('(').next().unwrap().split(' ').next().unwrap();
    rate.parse().unwrap_or_else(|_| panic!("no rate: {said}"))
}

#[test]
fn the_bus_and_the_drives_wire_carry_bytes_at_the_same_time() {
    let bench = Bench(tempfile::tempdir().unwrap());
    bench.ok("machine create --host freebsd-9 ada0=wd15ears");
    // The drive writes 100 MB/s, the bus transfers 125 MB/s: together not less than the slower one.
    for line in [
        "dd if=ada0 of=/dev/null bs=1m count=300",
        "dd if=/dev/zero of=ada0 bs=1m count=300",
    ] {
        let rate = rate(&bench.run(line)) / 1e6;
        assert!((90.0..125.0).contains(&rate), "{line}: {rate} MB/s");
    }
    // Two drives at the same time share the bus.
    bench.ok("machine add ada1=wd15ears ada2=wd15ears");
    bench.ok("zpool create -O compression=off tank ada1 ada2");
    bench.ok("dd if=/dev/zero of=/tank/f bs=1m count=200");
    let both = rate(&bench.run("dd if=/tank/f of=/dev/null bs=1m")) / 1e6;
    assert!(both < 125.0, "{both} MB/s");
}

#[test]
fn a_stripe_of_n_disks_reads_n_times_as_fast() {
    let read = |drives: usize| {
        let bench = Bench(tempfile::tempdir().unwrap());
        let names: String = (0..drives).map(|n| format!(" ada{n}=wd20ears")).collect();
        bench.ok(&format!("machine create{names}"));
        let names: String = (0..drives).map(|n| format!(" ada{n}")).collect();
        bench.ok(&format!("zpool create -O compression=off tank{names}"));
        bench.ok("dd if=/dev/zero of=/tank/f bs=1m count=256");
        rate(&bench.run("dd if=/tank/f of=/dev/null bs=1m"))
    };
    let [one, two, four] = [1, 2, 4].map(read);
    assert!(two > 1.7 * one, "{one} {two}");
    assert!(four > 3.2 * one, "{one} {two} {four}");
}

#[test]
fn a_power_cut_while_the_pool_is_opened_is_not_taken_for_a_missing_file() {
    let bench = Bench::new(1);
    bench.ok("zpool create t gpt/d0");
    for after in ["0.001", "0.05", "0.1", "0.15", "0.5"] {
        let line =
            format!("machine power-cut --after {after} -- dd if=/dev/zero of=/t/g bs=1m count=50");
        let said = text(&bench.run(&line).stderr);
        assert!(!said.contains("No such file"), "{after}: {said}");
    }
}

#[test]
fn names_that_no_drive_could_have_are_files_of_the_host() {
    let bench = Bench::new(1);
    let back = fs::File::create(bench.path("in"));
    back.unwrap().write_all_at(&[7; 4096], 0).unwrap();
    fs::create_dir(bench.path("sub")).unwrap();
    for (from, to) in [("in", "out"), ("out", "sub/out"), ("./sub/out", "./again")] {
        bench.ok(&format!("dd if={from} of={to}"));
        assert_eq!(fs::read(bench.path(to)).unwrap(), [7; 4096], "{to}");
    }
    let said = bench.fails("dd if=in of=ada9");
    assert_eq!(said, "dd: ada9: No such file or directory");
    assert!(!bench.path("ada9").exists());
}

#[test]
fn no_time_is_no_rate() {
    let bench = Bench::new(1);
    let said = text(
        &bench
            .run("dd if=/dev/zero of=/dev/null bs=1m count=10")
            .stderr,
    );
    let last = said.lines().last();
    assert_eq!(
        last,
        Some("10485760 bytes transferred in 0.000000 secs (inf bytes/sec)")
    );
}

#[test]
fn drives_have_the_names_under_which_they_are_sold() {
    let bench = Bench(tempfile::tempdir().unwrap());
    bench.ok("machine create ada0=WD20EARS,size=100MB ada1=wd160edgz-11b2da0");
    let shown = bench.ok("machine show");
    assert!(shown.contains("ada0   wd20ears "), "{shown}");
    assert!(shown.contains("ada1   wd160edgz "), "{shown}");
    let toml = fs::read_to_string(bench.path("m/machine.toml")).unwrap();
    assert!(toml.contains("profile = \"wd20ears\""), "{toml}");
    assert!(bench.ok("drives -n WD20EARS-00MVWB0").contains("wd20ears"));
    let said = bench.fails("drives -n WD");
    assert!(
        said.contains("no drive profile 'WD'; there are wd15ears"),
        "{said}"
    );
}

#[test]
fn a_drive_moves_behind_a_bridge_and_back() {
    let bench = Bench::new(2);
    bench.ok("dd if=/dev/random of=ada1 bs=1m count=2 seek=3");
    let before = bench.ok("diskinfo ada1");
    let identify = |name: &str| bench.ok(&format!("camcontrol identify {name}"));
    assert!(
        identify("ada1").contains("300.000MB/s transfers (SATA 2.x"),
        "{}",
        identify("ada1")
    );
    bench.ok("machine move ada1=usb");
    let lines = identify("ada1");
    assert_eq!(
        lines.lines().nth(1),
        Some("pass1: 400.000MB/s transfers"),
        "{lines}"
    );
    let behind = bench.ok("diskinfo ada1");
    let sectors = |line: &str| {
        line.split_whitespace()
            .nth(3)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!(sectors(&before) - sectors(&behind), 65_536);
    let toml = fs::read_to_string(bench.path("m/machine.toml")).unwrap();
    assert!(toml.contains("bus = \"usb\""), "{toml}");
    bench.ok("machine move ada1=sata");
    assert_eq!(bench.ok("diskinfo ada1"), before);
    bench.ok("machine pull ada0");
    bench.ok("machine move ada0=usb");
    assert!(bench.ok("machine show").contains("pulled"));
    bench.ok("machine push ada0");
    let refused = |line: &str, code: i32, words: &str| {
        let output = bench.run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
    };
    refused(
        "machine move ada1",
        2,
        "'ada1': where to? NAME=sata, NAME=usb or NAME=usb:BRIDGE",
    );
    refused(
        "machine move ada1=scsi",
        2,
        "no bus 'scsi'; there are sata, usb, usb:jms579, usb:asm1051, usb:at2",
    );
    refused(
        "machine move ada7=usb",
        1,
        "there is no drive 'ada7' in this machine",
    );
    bench.ok("machine add ada2=p4500");
    refused(
        "machine move ada2=usb",
        1,
        "only SATA drives change the bus",
    );
    bench.ok("machine add ada3=wd20ears,size=100MB,bus=usb");
    assert!(identify("ada3").contains("400.000MB/s"));
}

#[test]
fn a_drive_is_not_taken_for_the_folder_of_a_machine() {
    for line in [
        "push ada1",
        "pull ada0 ada1",
        "move ada0=usb",
        "add ada2=wd20ears",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_ashift"))
            .arg("machine")
            .args(line.split_whitespace())
            .env_remove("ASHIFT_MACHINE")
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert!(
            said.contains("which machine? Name its folder, or use -m or ASHIFT_MACHINE"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
}

#[test]
fn gpart_follows_the_host_and_parted_is_linux() {
    let bench = Bench(tempfile::tempdir().unwrap());
    bench
        .ok("machine create --host freebsd-9 ada0=wd20ears,size=100MB ada1=st2000dm001,size=100MB");
    bench.ok("gpart create -s gpt ada0");
    let shown = bench.ok("gpart show ada0");
    assert!(shown.starts_with("=>    34  "), "{shown}");
    bench.ok("gpart destroy ada0");
    bench.ok("gpart create --era current -s gpt ada0");
    let shown = bench.ok("gpart show ada0");
    assert!(shown.starts_with("=>    40  "), "{shown}");
    // C's strtoimax skips blanks, so an option and its number may be one argument.
    let mut add = bench.command("gpart add -t freebsd-zfs");
    let output = add
        .args(["-a 4K", "-s 10m", "-i 3", "ada0"])
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "ada0p3 added\n",
        "{}",
        text(&output.stderr)
    );
    // Linux does not have FreeBSD's list of drives that misreport their sectors; a model has 16 characters.
    let said = bench.ok("parted -s ada0 print");
    assert!(
        said.contains("Model: ATA WDC WD20EARS-00M (scsi)\n"),
        "{said}"
    );
    assert!(
        said.contains("Sector size (logical/physical): 512B/512B\n"),
        "{said}"
    );
    let said = text(&bench.run("parted -s ada1 print").stdout);
    assert!(
        said.contains("Sector size (logical/physical): 512B/4096B\n"),
        "{said}"
    );
    assert!(
        bench.ok("diskinfo -v ada0").contains("4096 "),
        "FreeBSD knows better"
    );
}

/// Makes a drive stop answering `after_s` seconds into the next command, and come back after `for_s`
/// seconds, if ever.
fn drive_dies(bench: &Bench, after_s: f64, for_s: Option<f64>) {
    let until = for_s.map_or_else(String::new, |secs| format!("--for {secs}"));
    bench.ok(&format!(
        "machine fault add --after {after_s} {until} ada0 dead"
    ));
}

#[test]
fn a_spare_takes_over_for_a_drive_that_dies_while_it_is_written_to() {
    let bench = Bench::new(3);
    bench.ok("zpool create -O compression=off tank mirror gpt/d0 gpt/d1 spare gpt/d2");
    drive_dies(&bench, 0.2, None);
    bench.ok("dd if=/dev/random of=/tank/file bs=1m count=30");
    let sum = bench.ok("sha256sum /tank/file");
    bench.ok("zpool wait tank");
    let status = bench.ok("zpool status");
    let has = |part: &str| assert!(status.contains(part), "{part}: {status}");
    for part in [
        " state: DEGRADED\n",
        "spare-0 ",
        "gpt/d0 ",
        "INUSE     currently in use",
    ] {
        has(part);
    }
    // The spare has everything.
    bench.ok("machine pull ada1");
    assert_eq!(bench.ok("sha256sum /tank/file"), sum);
    bench.ok("machine add ada1");
    bench.ok("machine fault remove ada0 all");
    bench.ok("zpool wait tank");
    bench.ok("zpool detach tank gpt/d2");
    bench.ok("zpool clear tank");
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status");
    assert!(status.contains(" state: ONLINE\n"), "{status}");
}

/// A side of a mirror hangs: what it was too slow for is counted and told, and it is degraded if its properties say so.
#[test]
fn a_drive_that_hangs_is_counted_as_slow_and_replaced_if_that_is_wanted() {
    let bench = Bench::new(3);
    bench.ok("zpool create tank mirror gpt/d0 gpt/d1 spare gpt/d2");
    assert!(
        bench
            .ok("zpool status -s")
            .contains("gpt/d1  ONLINE       0     0     0     0\n")
    );
    bench.ok("machine fault add --by 31 ada1 slow");
    bench.ok("zfs create tank/fs");
    bench.ok("machine fault remove ada1 all");
    let slow = |name: &str| -> u64 {
        let value = bench.ok(&format!("zpool get -Hpo value slow_ios tank {name}"));
        value.trim_end().parse().unwrap()
    };
    let count = slow("gpt/d1");
    assert!(count > 0 && slow("gpt/d0") == 0);
    assert_eq!(slow("mirror-0"), count);
    let status = bench.ok("zpool status -s");
    let row = format!("gpt/d1  ONLINE       0     0     0 {count:>5}\n");
    assert!(status.contains(&row), "{status}");
    assert!(
        status.contains("mirror-0  ONLINE       0     0     0     -\n"),
        "{status}"
    );
    let shown = bench.ok("zpool status -e");
    assert!(
        !shown.contains("gpt/d1") && bench.ok("zpool status -es").contains("gpt/d1"),
        "{shown}"
    );
    let events = bench.ok("zpool events -v tank");
    let told = events
        .split("\n\n")
        .filter(|event| event.contains("ereport.fs.zfs.delay"));
    let told: Vec<&str> = told.collect();
    assert!(
        told.len() as u64 <= count && told[0].contains("        zio_delay = 0x7"),
        "{events}"
    );
    bench.ok("zpool clear tank");
    assert_eq!(slow("gpt/d1"), 0);

    bench.ok("zpool set slow_io_n=1 tank mirror-0");
    bench.ok("zpool set slow_io_t=600 tank mirror-0");
    bench.ok("machine fault add --by 31 ada1 slow");
    bench.ok("zfs create tank/other");
    bench.ok("machine fault remove ada1 all");
    bench.ok("zpool wait tank");
    let status = bench.ok("zpool status -s");
    assert!(status.contains("INUSE     currently in use"), "{status}");
    assert!(
        bench
            .ok("zpool events -v tank")
            .contains("        vdev_state = \"DEGRADED\" (0x6)\n")
    );
}

/// A machine with a pool, a file on the host, and the seconds that copying it into the pool takes.
fn copying() -> (Bench, f64) {
    let bench = Bench::new(1);
    bench.ok("zpool create -O compression=off tank gpt/d0");
    let bytes: Vec<u8> = (0..20_000_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    fs::write(bench.path("big"), bytes).unwrap();
    let clock = || {
        let shown: serde_json::Value = serde_json::from_str(&bench.ok("machine show -j")).unwrap();
        shown["clock_ns"].as_f64().unwrap() / 1e9
    };
    let begun = clock();
    bench.ok("cp big tank:/first");
    let took = clock() - begun;
    (bench, took)
}

fn assert_copied(bench: &Bench, name: &str) {
    bench.ok(&format!("cp tank:/{name} copy"));
    let read = |name| fs::read(bench.path(name)).unwrap();
    assert!(read("copy") == read("big"), "{name}");
}

#[test]
fn a_command_goes_on_when_its_drive_comes_back() {
    let (bench, took) = copying();
    let mut times = 0;
    for tenths in 2..10 {
        drive_dies(&bench, took * f64::from(tenths) / 10.0, Some(10.0));
        let output = bench.run("cp big tank:/second");
        let said = text(&output.stderr);
        bench.ok("machine fault remove ada0 all");
        if output.status.success() {
            assert_copied(&bench, "second");
            bench.ok("rm tank:/second");
        } else {
            assert!(said.contains("cannot open 'tank'"), "{tenths}: {said}");
            continue;
        }
        let lines: Vec<&str> = said.lines().collect();
        if let [suspended, waiting, resumed] = lines[..] {
            assert!(
                suspended.starts_with("pool 'tank' is suspended: ") && suspended.contains("ada0"),
                "{said}"
            );
            assert!(waiting.starts_with("waiting 30 s for its devices"));
            assert_eq!(resumed, "pool 'tank' goes on");
            times += 1;
        } else {
            assert!(lines.is_empty(), "{said}");
        }
    }
    assert!(times >= 3, "{times}");
    bench.ok("zpool scrub tank");
}

#[test]
fn a_command_whose_drive_stays_away_ends_with_one_error_and_the_pool_is_as_it_was() {
    let (bench, took) = copying();
    let attempt = |tenths: u32, wait: Option<&str>| {
        drive_dies(&bench, took * f64::from(tenths) / 10.0, None);
        let mut command = bench.command("cp big tank:/second");
        command.envs(wait.map(|wait| ("ASHIFT_WAIT", wait)));
        let output = command.output().unwrap();
        bench.ok("machine fault remove ada0 all");
        // In any case: errors are cleared, and the pool can be written again.
        bench.ok("zpool clear tank");
        let status = bench.ok("zpool status tank");
        assert!(status.contains("    0     0     0\n"), "{status}");
        assert_copied(&bench, "first");
        bench.ok("rm -f tank:/second");
        let said = text(&output.stderr);
        let lines: Vec<String> = said.lines().map(str::to_owned).collect();
        (output.status.code(), lines)
    };
    // It may fail before the pool is open, or when everything is done.
    let dies = |mode: &str, wait: Option<&str>| {
        bench.ok(&format!("zpool set failmode={mode} tank"));
        let mut attempts = (3..10).rev().map(|tenths| attempt(tenths, wait));
        let is_midway = |(code, said): &(Option<i32>, Vec<String>)| {
            *code != Some(0) && !said[0].contains("cannot open")
        };
        attempts.find(is_midway).expect("it dies midway")
    };
    let (code, said) = dies("wait", None);
    assert_eq!((code, said.len()), (Some(1), 3), "{said:#?}");
    assert!(said[1].starts_with("waiting 30 s"));
    assert!(said[2].contains("pool suspended: ") && said[2].contains("does not answer"));
    for (mode, wait) in [("wait", Some("0")), ("continue", None)] {
        let (code, said) = dies(mode, wait);
        assert_eq!((code, said.len()), (Some(1), 1), "{said:#?}");
        assert!(said[0].contains("pool suspended: "), "{said:#?}");
    }
    let (code, said) = dies("panic", None);
    assert_eq!((code, said.len()), (Some(134), 1), "{said:#?}");
    assert!(
        said[0].starts_with("ashift: pool 'tank' has failmode=panic, and I/O to it failed: "),
        "{said:#?}"
    );
    bench.ok("zpool scrub tank");
}

#[test]
fn clear_takes_a_side_of_a_mirror_back_that_had_too_many_errors() {
    let bench = Bench::new(2);
    bench.ok("zpool create tank mirror gpt/d0 gpt/d1");
    fs::write(bench.path("f"), vec![7u8; 3_000_000]).unwrap();
    bench.ok("machine fault add ada1 unwritable 0+190000");
    bench.ok("cp f tank:/f");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("(awaiting resilver)"), "{status}");
    bench.ok("machine fault remove ada1 all");
    bench.ok("zpool clear tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("resilvered"), "{status}");
    assert!(
        status.contains("gpt/d1  ONLINE       0     0     0\n"),
        "{status}"
    );
    bench.ok("zpool scrub tank");
    assert!(bench.ok("zpool status tank").contains("scrub repaired 0B"));
}

/// In the machine's time, a resilver takes longer than the command that begins it.
#[test]
fn a_resilver_goes_on_with_each_command_until_the_device_is_complete() {
    let bench = Bench::new(4);
    bench.ok("zpool create tank gpt/d0");
    let bytes: Vec<u8> = (0..10_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(bench.path("f"), &bytes).unwrap();
    bench.ok("cp f tank:/f");
    bench.ok("zpool attach tank gpt/d0 gpt/d1");
    let status = bench.ok("zpool status tank");
    for line in [
        " state: ONLINE\n",
        "  scan: resilver in progress since ",
        "\t  mirror-0  ONLINE ",
        "\t    gpt/d0  ONLINE       0     0     0\n",
        "\t    gpt/d1  ONLINE       0     0     0  (resilvering)\n",
    ] {
        assert!(status.contains(line), "{line}\n{status}");
    }
    let refused = bench.run("zpool detach tank gpt/d0");
    assert_eq!(refused.status.code(), Some(255));
    assert_eq!(
        text(&refused.stderr),
        "cannot detach gpt/d0: no valid replicas\n"
    );
    bench.ok("zpool wait -t resilver tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("  scan: resilvered "), "{status}");
    bench.ok("zpool replace tank gpt/d0 gpt/d2");
    let status = bench.ok("zpool status tank");
    for line in [
        "\t  mirror-0       ONLINE ",
        "\t    replacing-0  ONLINE ",
        "\t      gpt/d0     ONLINE       0     0     0\n",
        "\t      gpt/d2     ONLINE       0     0     0  (resilvering)\n",
        "\t    gpt/d1       ONLINE       0     0     0\n",
    ] {
        assert!(status.contains(line), "{line}\n{status}");
    }
    // Another command that has the pool open for long enough ends it.
    bench.ok("zfs create tank/fs");
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status tank");
    assert!(
        !status.contains("replacing") && !status.contains("gpt/d0"),
        "{status}"
    );
    assert!(status.contains("gpt/d2"), "{status}");
    bench.ok("zpool create other gpt/d0");
    bench.ok("zpool offline tank gpt/d1");
    assert!(bench.run("cat /tank/f").stdout == bytes);
}

/// A disk has no deletes; what a flash drive deleted reads as anything, also after a power cut.
#[test]
fn the_free_space_of_a_flash_drive_is_deleted() {
    let bench = Bench(tempfile::tempdir().unwrap());
    let drives = "ada0=wd20ears,size=100MB ada1=p4500,size=100MB";
    bench.ok(&format!("machine create --seed 7 {drives}"));
    let refused = |line: &str| {
        let output = bench.run(line);
        assert_eq!(output.status.code(), Some(255), "{line}");
        text(&output.stderr)
    };
    bench.ok("zpool create tank ada0");
    let none = "cannot trim: no devices in pool support trim operations\n";
    assert_eq!(refused("zpool trim tank"), none);
    assert!(
        bench
            .ok("zpool status -t tank")
            .contains("  (trim unsupported)")
    );
    bench.ok("zpool destroy tank");
    bench.ok("zpool create tank ada0 ada1");
    fs::write(bench.path("file"), vec![7; 9_000_000]).unwrap();
    bench.ok("cp file tank:/file");
    bench.ok("zpool trim tank");
    let one = "cannot trim 'ada0': trim operations are not supported by this device\n";
    assert_eq!(refused("zpool trim tank ada0"), one);
    assert!(bench.ok("zpool status tank").contains("  (trimming)"));
    for option in ["-s", "", "-s", "-c", ""] {
        bench.ok(&format!("zpool trim {option} tank"));
    }
    bench.ok("zpool wait -t trim tank");
    let events = bench.ok("zpool events -H tank");
    let trims = events.lines().filter_map(|line| line.split_once("trim_"));
    let trims: Vec<&str> = trims.map(|(_, what)| what).collect();
    let expected = [
        "start", "suspend", "resume", "suspend", "cancel", "start", "finish",
    ];
    assert_eq!(trims, expected);
    let status = bench.ok("zpool status -t tank");
    assert!(
        status.contains("  (100% trimmed, completed at "),
        "{status}"
    );
    bench.ok("machine power-cut");
    bench.ok("zpool scrub tank");
    bench.ok("zpool initialize -w tank");
    bench.ok("cp tank:/file back");
    assert!(fs::read(bench.path("back")).unwrap() == vec![7; 9_000_000]);
}
