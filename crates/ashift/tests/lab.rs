//! The lab, with the built binary: published experiments on the real engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use oracle::have_zdb;

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ashift"))
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("ASHIFT_STATE", self.path("state"))
            .env_remove("ASHIFT_MACHINE")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let (out, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {out}{complaint}");
        out
    }

    /// Stderr of a command that ends with 2.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        self.fails_with(2, line)
    }

    #[track_caller]
    fn fails_with(&self, code: i32, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {}",
            text(&output.stdout)
        );
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A machine whose providers are files of the host; unmounted when it is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The pool on the labelled partitions of a machine passes OpenZFS's own check.
fn check_with_zdb(bench: &Bench, machine: &str) {
    let folder = bench.path("mnt");
    fs::create_dir_all(&folder).unwrap();
    let mounted = bench.run(&format!("machine mount machines/{machine} mnt"));
    if !mounted.status.success() {
        oracle::skip("nothing can be mounted by FUSE: the lab's pools are not checked by zdb");
        return;
    }
    let mounted = Mounted(folder);
    let output = Command::new("zdb")
        .args(["-e", "-p"])
        .arg(mounted.0.join("gpt"))
        .args(["-bcc", "tank"])
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(
        output.status.success() && said.contains("No leaks"),
        "{said}"
    );
}

#[test]
fn a_mirror_on_512e_drives_is_as_slow_and_as_fast_as_published() {
    let bench = Bench::new();
    let first = bench.ok("lab run -j --report page.html zfs-on-512e-mirror");
    let outcome = json(&first);
    let cases = outcome["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    let ashifts: Vec<f64> = cases
        .iter()
        .filter_map(|c| c["figures"][1]["value"].as_f64())
        .collect();
    assert_eq!(ashifts, [9.0, 12.0, 12.0]);
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script"));
    if have_zdb() {
        // Of less data, which is soon read; the figures are other ones then.
        bench.run("lab run -q --keep machines --set count=40 zfs-on-512e-mirror");
        check_with_zdb(&bench, "01-ashift9");
        check_with_zdb(&bench, "03-gnop");
    }
    let again = json(&bench.ok("lab run -j --jobs 1 zfs-on-512e-mirror"));
    assert_eq!(
        again["cases"], outcome["cases"],
        "the same seed gives the same figures"
    );
}

#[test]
fn help_may_be_asked_for_after_any_verb() {
    let bench = Bench::new();
    for command in ["lab run", "lab report", "bench peer"] {
        for flag in ["-h", "--help"] {
            let told = bench.ok(&format!("{command} {flag}"));
            assert!(told.contains(&format!("ashift {command}")), "{told}");
        }
    }
}

#[test]
fn a_report_that_cannot_be_written_is_told_of_before_anything_runs() {
    let bench = Bench::new();
    fs::create_dir(bench.path("folder")).unwrap();
    for (file, why) in [
        ("folder", "Is a directory"),
        ("nowhere/page.html", "No such file"),
    ] {
        let complaint = bench.fails(&format!("lab run bonnie-on-512e --report {file}"));
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.contains(why), "{complaint}");
        let complaint = bench.fails_with(1, &format!("plan --drives p4500 --report {file} folder"));
        assert!(complaint.contains(why), "{complaint}");
    }
}

#[test]
fn the_machines_of_an_experiment_have_its_memory() {
    let bench = Bench::new();
    let run =
        "lab run -j --case raw --set count=20 --keep machines --report page.html bonnie-on-512e";
    let outcome = json(&bench.ok(run));
    assert_eq!(outcome["cases"][0]["name"], "raw");
    let memory =
        "memory 8G: 1.67G of cache for each pool, 1G of dirty data, a txg at least every 30 s";
    assert!(bench.ok("machine show machines/01-raw").contains(memory));
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    assert!(page.contains(memory), "{page}");
}

#[test]
fn phybs_finds_the_sectors_that_the_drive_hides() {
    let bench = Bench::new();
    let outcome = json(&bench.ok("lab run -j phybs-512e"));
    assert_eq!(outcome["rms"][0][3], "within");
    assert!(bench.ok("lab report -o r.html").contains("r.html"));
    assert!(
        fs::read_to_string(bench.path("r.html"))
            .unwrap()
            .contains("Ulf Lilleengen")
    );
}

#[test]
fn a_sweep_recommends_what_fits_the_drive() {
    let bench = Bench::new();
    fs::create_dir(bench.path("data")).unwrap();
    for n in 0..40u32 {
        let bytes: Vec<u8> = (0..n * 997).map(|at| (at * at % 251) as u8).collect();
        fs::write(bench.path("data").join(format!("f{n}")), bytes).unwrap();
    }
    let outcome = json(&bench.ok(
        "lab run -j sector-size-sweep --data data --sweep ashift=9,12 --sweep recordsize=16K,128K",
    ));
    assert_eq!(outcome["cases"].as_array().unwrap().len(), 8);
    let choices = outcome["recommendation"]["choices"].as_array().unwrap();
    for choice in choices {
        assert!(
            choice["take"].as_str().unwrap().contains("ashift=12"),
            "{choice}"
        );
    }
    let complaint = bench.fails("lab run -q sector-size-sweep");
    assert!(complaint.contains("--data DIR"), "{complaint}");
}

#[test]
fn partitions_that_begin_inside_of_a_sector_are_slower() {
    let bench = Bench::new();
    let outcome = json(&bench.ok("lab run -j alignment --set count=50"));
    let rate = |at: usize| {
        outcome["cases"][at]["figures"][1]["value"]
            .as_f64()
            .unwrap()
    };
    let cases = outcome["cases"].as_array().unwrap();
    let of = |drive: &str, start: &str| {
        let is = |c: &serde_json::Value| {
            let parameters = c["parameters"].to_string();
            parameters.contains(drive) && parameters.contains(&format!("\"{start}\""))
        };
        rate(cases.iter().position(is).unwrap())
    };
    assert!(of("wd30ezrx", "2048") > 1.5 * of("wd30ezrx", "63"));
    assert!((of("mal32000", "2048") / of("mal32000", "63") - 1.0).abs() < 0.05);
}

/// The parts of the trace of bonnie++: its six phases with files.
const PHASES: [&str; 6] = [
    "create",
    "read",
    "delete",
    "create-random",
    "read-random",
    "delete-random",
];

/// What ext4 did to a disk under bonnie++, replayed: only partial sectors that a drive does not hide cost anything.
#[test]
fn ext4_off_its_sectors_is_slower_where_a_drive_does_not_hide_it() {
    let bench = Bench::new();
    let run = || {
        let outcome = json(&bench.ok("lab run -j --report page.html alignment-on-ext4"));
        (
            outcome,
            fs::read_to_string(bench.path("page.html")).unwrap(),
        )
    };
    let (outcome, page) = run();
    let all = outcome["cases"].as_array().unwrap();
    assert_eq!(all.len(), 20);
    let of = |name: &str, drive: &str| {
        let mut found = all.iter();
        found
            .find(|case| case["name"] == name && case["parameters"][0][1] == drive)
            .unwrap()
    };
    // On three disks which writes go together hangs on who is done first, which where a partition begins decides, too.
    for (off, aligned, noise) in [("off", "aligned", 0.05), ("md-off", "md-aligned", 0.25)] {
        let ratios = |drive: &str| {
            PHASES.map(|phase| figure(of(off, drive), phase) / figure(of(aligned, drive), phase))
        };
        let partial = |name: &str, drive: &str| figure(of(name, drive), "partial");
        for drive in ["mal32000", "st2000dm001"] {
            let ratios = ratios(drive);
            assert!(
                ratios.iter().all(|ratio| (ratio - 1.0).abs() < noise),
                "{drive}: {ratios:?}"
            );
        }
        assert_eq!(partial(off, "mal32000"), 0.0);
        for drive in ["st2000dm001", "wd30ezrx"] {
            // What is partial where the partition is right are the tables of partitions.
            assert!(partial(aligned, drive) < 50.0);
            assert!(partial(off, drive) > 10_000.0);
        }
        // Every phase writes: the reading ones the times of access.
        for drive in ["wd30ezrx", "st2000dm001,rmw=unbatched"] {
            let ratios = ratios(drive);
            assert!(
                ratios.iter().all(|ratio| *ratio > 2.0),
                "{drive}: {ratios:?}"
            );
        }
        if off == "off" {
            let ratios = ratios("st2000dm001,rmw=batched");
            assert!(ratios.iter().all(|ratio| *ratio > 1.3), "{ratios:?}");
        }
    }
    for part in [
        "commands that took less than",
        "ratio: create",
        "md RAID-5, sector 34",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(run().1, page, "the same seed gives the same page");
}

/// The script that recorded the trace, with fewer files: each phase writes, the disk's own sectors are not in it.
#[test]
fn what_ext4_does_under_bonnie_is_recorded_by_a_script() {
    let bench = Bench::new();
    let needs = "test $(id -u) = 0 && losetup -f && command -v bonnie++ mkfs.ext4 flock && test -e /dev/fuse";
    let has_all = Command::new("sh").args(["-c", needs]).output();
    if !has_all.is_ok_and(|output| output.status.success()) {
        oracle::skip("no root, loop devices, FUSE, bonnie++ or mkfs.ext4: no trace is recorded");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/traces/bonnie-on-ext4.sh");
    let output = Command::new("sh")
        .arg(script)
        .args([env!("CARGO_BIN_EXE_ashift"), "t.log.gz", "1"])
        .current_dir(bench.0.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    bench.ok("machine create m ada0=st2000dm001");
    for phase in PHASES {
        let seen = json(&bench.ok(&format!("-m m replay -aj -o {phase} t.log.gz ada0")));
        assert!(
            seen["commands"]["write"]["count"].as_u64() > Some(0),
            "{phase}: {seen}"
        );
        assert!(
            seen["commands"]["flush"]["count"].as_u64() > Some(0),
            "{phase}: {seen}"
        );
    }
    let told = bench.fails_with(1, "-m m replay -a t.log.gz ada0");
    assert!(
        told.contains(
            "commands for create, create-random, delete, delete-random, read, read-random"
        ),
        "{told}"
    );
}

/// The value of a figure of a case.
#[track_caller]
fn figure(case: &serde_json::Value, name: &str) -> f64 {
    let figures = case["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {figures:?}"))["value"]
        .as_f64()
        .unwrap()
}

/// The cases of an experiment, run with these options.
#[track_caller]
fn cases(bench: &Bench, options: &str) -> Vec<serde_json::Value> {
    let outcome = json(&bench.ok(&format!("lab run -j {options}")));
    outcome["cases"].as_array().unwrap().clone()
}

#[test]
fn a_drive_of_16_tb_is_as_fast_as_published_behind_a_bridge_that_leaves_nothing_to_reorder() {
    let bench = Bench::new();
    let all = cases(&bench, "diskmark-wd160edgz");
    let [usb, sata] = &all[..] else {
        panic!("{all:?}")
    };
    let figures = usb["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 8);
    for figure in figures {
        let percent = figure["deviation_percent"].as_f64().unwrap();
        assert!(percent.abs() <= 8.0, "{figure}");
    }
    let reordered = |case| figure(case, "read RND Q32") / figure(case, "read RND Q1");
    assert!((reordered(usb) - 1.0).abs() < 0.1);
    assert!(reordered(sata) > 3.0);
}

#[test]
fn the_rate_over_a_whole_drive_is_between_those_at_its_edges() {
    let bench = Bench::new();
    let all = cases(
        &bench,
        "--set count=256 --set small=2GB --set whole=1800 zero-fill-wd160edgz",
    );
    let rate = figure(&all[0], "rate");
    assert!(figure(&all[0], "inner") < rate && rate < figure(&all[0], "outer"));
    assert!(
        (figure(&all[1], "rate") / rate - 1.0).abs() < 0.25,
        "the parts are small here"
    );
}

#[test]
fn a_table_written_behind_a_bridge_is_mended_and_its_pool_grows() {
    let bench = Bench::new();
    let all = cases(&bench, "usb-bridge");
    // gpart leaves seven sectors before the end of what it sees
    assert_eq!(figure(&all[0], "hidden"), 65_536.0 + 7.0);
    let ran = all[0]["ran"].as_array().unwrap();
    let said = |command: &str| -> Vec<&str> {
        let of = ran
            .iter()
            .filter(|ran| ran["command"].as_str().unwrap() == command);
        of.map(|ran| ran["output"].as_str().unwrap()).collect()
    };
    let [behind, moved, mended] = said("gpart show da0")[..] else {
        panic!("{ran:?}")
    };
    assert!(
        !behind.contains("CORRUPT") && moved.contains("CORRUPT") && !mended.contains("CORRUPT")
    );
    assert!(said("doctor da0")[0].contains("gpt-backup-displaced"));
    assert!(!said("doctor da0")[1].contains("gpt-backup-displaced"));
}

#[test]
fn more_effort_of_compression_makes_less_and_keeps_the_processor_busy() {
    let bench = Bench::new();
    fs::create_dir(bench.path("data")).unwrap();
    let mut sources: Vec<_> = fs::read_dir("tests")
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    sources.retain(|path| path.is_file());
    sources.sort();
    let mut text: Vec<u8> = sources
        .iter()
        .flat_map(|path| fs::read(path).unwrap())
        .collect();
    for n in 0..20 {
        text.rotate_left(1000);
        fs::write(bench.path("data").join(format!("f{n}")), &text).unwrap();
    }
    let options = "--data data --sweep compression=off,lz4,gzip-9 --sweep recordsize=128K --sensitivity --report page.html";
    let all = cases(&bench, &format!("{options} compression"));
    let [off, lz4, gzip] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(
        figure(off, "used") > figure(lz4, "used") && figure(lz4, "used") > figure(gzip, "used")
    );
    assert!(figure(gzip, "processor") > figure(lz4, "processor"));
    assert!(figure(gzip, "write") < figure(lz4, "write"));
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    assert!(
        page.contains("ghz 1.50") && page.contains("ghz 6"),
        "{page}"
    );
}

#[test]
fn a_special_vdev_makes_listing_names_fast_and_takes_the_small_files() {
    let bench = Bench::new();
    let all = cases(
        &bench,
        "--set one_in=1000 --sweep recordsize=128K --sweep small=0,64K special-vdev",
    );
    let [plain, none, some] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(figure(none, "find") < figure(plain, "find") / 2.0);
    assert!(figure(some, "special") > figure(none, "special"));
}

#[test]
fn a_lost_special_vdev_ends_the_pool_until_it_is_back() {
    let bench = Bench::new();
    let all = cases(&bench, "--set one_in=4000 lost-special");
    assert_eq!(figure(&all[0], "repaired"), 0.0);
    let page = all[0]["ran"].to_string();
    assert!(page.contains("UNAVAIL"), "{page}");
}

#[test]
fn a_special_vdev_is_removed_and_that_of_a_raidz_stays() {
    let bench = Bench::new();
    let all = cases(&bench, "--set one_in=400 special-vdev-removal");
    let [removal, raidz] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(figure(removal, "seconds") > 0.0 && figure(removal, "special") > 1e7);
    let said = removal["ran"].to_string();
    for words in [
        "Evacuation of nvd0 in progress",
        "(removing)",
        "memory used for removed device mappings",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = raidz["ran"].to_string();
    for words in [
        "mismatched replication level: both raidz and disk vdevs are present",
        "must have the same sector size and not be raidz",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_disk_of_a_raidz2_and_of_a_draid_is_replaced() {
    let bench = Bench::new();
    let options = "--set size=300MB --set part=80 --set half=40 --set scattered=20";
    let all = cases(&bench, &format!("{options} raidz2-replace"));
    assert_eq!(all.len(), 3);
    for case in &all {
        assert!(figure(case, "seconds") > 0.1, "{case}");
        let last = case["ran"].as_array().unwrap().last().unwrap()["output"].to_string();
        assert!(
            last.contains("ada5") && !last.contains("ada4") && last.contains("with 0 errors"),
            "{last}"
        );
    }
}

#[test]
fn all_experiments_run_with_the_parameters_that_each_has() {
    let bench = Bench::new();
    let complaint = bench.fails("lab run all --set nosuch=1");
    assert!(
        complaint.contains("no experiment has a parameter 'nosuch'"),
        "{complaint}"
    );
    let complaint = bench.fails("lab run all --case plain");
    assert!(
        complaint.contains("--case is for one experiment"),
        "{complaint}"
    );
    if !is_whole() {
        return;
    }
    let output = bench.run("lab run all -q --report page.html");
    let (out, complaint) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{complaint}");
    assert!(
        complaint.contains("sector-size-sweep is left out, it needs 'data'"),
        "{complaint}"
    );
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    assert_eq!(page.matches("<section ").count(), 13);
}

/// Whether what takes a quarter of an hour is to be run, too.
fn is_whole() -> bool {
    std::env::var_os("LAB").is_some_and(|value| value == "all")
}

#[test]
fn what_goes_wrong_is_named_and_the_machine_kept() {
    let bench = Bench::new();
    let experiment = |commands: &str| {
        let text = format!(
            "title = 't'\n[drives]\nada0 = 'wd20ears'\n[[case]]\nname = 'a'\ncommands = '''\n{commands}\n'''\n"
        );
        fs::write(bench.path("x.toml"), text).unwrap();
    };
    experiment("zpool create tank ada0\nzpol status");
    let complaint = bench.fails("lab run x.toml");
    assert!(
        complaint.contains("x.toml:8: unknown command 'zpol'"),
        "{complaint}"
    );
    experiment("zpool create tank ada0\nzpool create tank ada0");
    let complaint = bench.fails("lab run x.toml");
    assert!(
        complaint.contains("x.toml:8: zpool create tank ada0: exit code 1"),
        "{complaint}"
    );
    let (_, kept) = complaint.split_once("the machine is kept in ").unwrap();
    let kept = Path::new(kept.trim());
    let status = bench.ok(&format!("-m {} zpool status tank", kept.display()));
    assert!(status.contains("ada0"), "{status}");
    fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    let complaint = bench.fails("lab run phybs-512e --set drive=abacus");
    assert!(complaint.contains("abacus"), "{complaint}");
    let complaint = bench.fails("lab run nosuch");
    assert!(complaint.contains("zfs-on-512e-mirror"), "{complaint}");
    let complaint = bench.fails("lab run phybs-512e --set drvie=wd20ears");
    assert!(complaint.contains("no parameter 'drvie'"), "{complaint}");
}

#[test]
fn memory_does_not_grow_with_what_is_written() {
    let bench = Bench::new();
    bench.ok("machine create m ada0=wd30ezrx");
    bench.ok("-m m zpool create -O compression=off tank ada0");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ashift"))
        .args([
            "-m",
            "m",
            "dd",
            "if=/dev/zero",
            "of=/tank/test",
            "bs=1m",
            "count=1500",
        ])
        .current_dir(bench.0.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak_kib = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0u64));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    assert!(
        (10_000..1 << 20).contains(&peak_kib),
        "{peak_kib} KiB at most"
    );
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let program = env!("CARGO_BIN_EXE_ashift");
    let output = Command::new("sh")
        .args([
            "-c",
            "{ sleep 0.3; \"$0\" lab show zfs-on-512e-mirror; } | true",
            program,
        ])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
}
