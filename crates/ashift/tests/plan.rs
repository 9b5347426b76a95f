//! `ashift plan` with the built binary: real files, real pools on emulated drives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.0.path())
            .env("ASHIFT_STATE", self.path("state"))
            .env_remove("ASHIFT_MACHINE")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_ashift"));
        command.args(line.split_whitespace()).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let (out, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {out}{complaint}");
        out
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let text = self.ok(line);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// Stderr of a command that fails.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(!output.status.success(), "{line}: {}", text(&output.stdout));
        assert!(output.stdout.is_empty(), "{line}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Folders of files of many sizes, half of whose bytes compress.
fn make_tree(root: &Path, files: u64, bytes: u64) {
    let mut random = 88172645463325252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    // From the average / 16 to four times that, small ones more often.
    let average = bytes / files;
    for at in 0..files {
        let folder = root.join(format!("{:02}/{:03}", at / 400, at / 20));
        fs::create_dir_all(&folder).unwrap();
        let size = average / 16 * (1 + next() % 8 * (next() % 8));
        let mut contents = Vec::new();
        while (contents.len() as u64) < size {
            contents.extend_from_slice(&next().to_le_bytes());
            contents.extend_from_slice(b"the same");
        }
        fs::write(folder.join(format!("file-{at}")), contents).unwrap();
    }
}

/// A figure of the only combination, or of the one at this place.
#[track_caller]
fn figure(plan: &Value, place: usize, path: &str) -> f64 {
    let figures = &plan["rows"][place]["tried"]["measured"];
    let found = figures.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no {path} in {figures}"))
}

const TIMES: [&str; 5] = [
    "/copy/seconds",
    "/walk/seconds",
    "/read/seconds",
    "/scrub/seconds",
    "/replace/seconds",
];

/// Three drives, of flash: with few files, what disks take depends on where their heads happen to be, and on what their
/// caches hold.
const THREE: &str = "--drives p4500,size=8GB,p4500,size=8GB,p4500,size=8GB";

/// Differences in seconds that do not count.
const ROUNDING_S: f64 = 0.05;

#[track_caller]
fn assert_near(what: &str, planned: f64, measured: f64) {
    let off = (planned - measured).abs();
    assert!(
        off < ROUNDING_S.max(measured * 0.1),
        "{what}: planned {planned} s, measured {measured} s"
    );
}

/// An experiment that does what a plan does for one combination, with readings named as its figures.
fn as_experiment(create: &str, drive: &str, data: &Path) -> String {
    format!(
        r#"
title = "The pool that was planned"
host = "modern"
[drives]
ada0 = "{drive}"
ada1 = "{drive}"
ada2 = "{drive}"
new0 = "{drive}"
[[case]]
name = "planned"
commands = '''
{create}
sleep 60
machine power-cut
cp -a {} tank:/
zpool list -Hp -o alloc tank
sleep 60
machine power-cut
find tank:/
sha256sum -rU tank:/
zpool scrub -w tank
zpool offline tank ada0
sleep 60
machine power-cut
zpool replace -w tank ada0 new0
'''
[[reading]]
name = "space"
command = "zpool list"
pattern = '^(?<value>\d+)$'
[[reading]]
name = "/copy/seconds"
command = "cp"
seconds = true
[[reading]]
name = "/walk/seconds"
command = "find"
seconds = true
[[reading]]
name = "/read/seconds"
command = "sha256sum"
seconds = true
[[reading]]
name = "/scrub/seconds"
command = "zpool scrub"
seconds = true
[[reading]]
name = "/replace/seconds"
command = "zpool replace"
seconds = true
"#,
        data.display()
    )
}

/// What the plan says of a pool, and what the lab measures on such a pool. `PLAN_DATA=/usr` takes that folder, and
/// disks.
#[test]
fn the_pool_uses_what_was_planned_and_the_lab_measures_the_same_times() {
    let bench = Bench::new();
    let (drive, data) = match std::env::var_os("PLAN_DATA") {
        Some(data) => ("wd30ezrx", PathBuf::from(data)),
        None => ("p4500,size=8GB", bench.path("data")),
    };
    make_tree(&bench.path("data"), 600, 30 << 20);
    let plan = bench.json(&format!(
        "plan -jq --drives {drive},{drive},{drive} -l raidz1 -a 12 -r 128K -c lz4 --sample all {}",
        data.display()
    ));
    let create = plan["advice"][0]["commands"][0].as_str().unwrap();
    let create = create
        .replace("DISK1", "ada0")
        .replace("DISK2", "ada1")
        .replace("DISK3", "ada2");
    let experiment = as_experiment(&create, drive, &data);
    fs::write(bench.path("planned.toml"), experiment).unwrap();
    let lab = bench.json("lab run -j planned.toml");
    let figures = lab["cases"][0]["figures"].as_array().unwrap();
    let measured = |name: &str| {
        let found = figures
            .iter()
            .find(|figure| figure["name"] == *name)
            .unwrap();
        found["value"].as_f64().unwrap()
    };
    let space = figure(&plan, 0, "/space/used") / measured("space");
    assert!(
        (space - 1.0).abs() < 0.01,
        "space: {space} of what the pool uses"
    );
    for time in TIMES {
        assert_near(time, figure(&plan, 0, time), measured(time));
    }
}

/// A quarter of the files says what all of them would.
#[test]
fn a_sample_predicts_the_whole() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 6000, 96 << 20);
    let options = format!("plan -jq {THREE} -l raidz1 -a 12 -r 128K -c lz4");
    let all = bench.json(&format!("{options} --sample all data"));
    let part = bench.json(&format!("{options} --sample 26M data"));
    assert_eq!(part["sample"]["one_in"], 4);
    let space = figure(&part, 0, "/space/used") / figure(&all, 0, "/space/used");
    assert!((space - 1.0).abs() < 0.01, "space: {space}");
    for time in TIMES {
        assert_near(time, figure(&part, 0, time), figure(&all, 0, time));
    }
}

/// What is advised is tried with all files, as if there were no sample.
#[test]
fn what_is_advised_is_confirmed_with_all_files() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 400, 16 << 20);
    let drives = "--drives wd30ezrx,wd30ezrx -a 12 -r 128K";
    let line = format!(
        "plan -q {drives} -l stripe,mirror -c lz4,off --sample 4M --results known --report page.html data"
    );
    let sampled = bench.ok(&line);
    assert!(!sampled.contains("with all files"), "{sampled}");
    let confirmed = bench.ok(&format!("{line} --confirm"));
    assert_eq!(
        confirmed.matches("with all files: ").count(),
        2,
        "{confirmed}"
    );
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    assert_eq!(page.matches("with all files: ").count(), 2, "{page}");
    assert!(page.contains("--confirm"), "{page}");
    let known = fs::read(bench.path("known")).unwrap();
    let plan = bench.json(&format!("{line} -j"));
    assert_eq!(fs::read(bench.path("known")).unwrap(), known);
    let taken: Vec<u64> = plan["advice"]
        .as_array()
        .unwrap()
        .iter()
        .map(|advice| advice["take"].as_u64().unwrap())
        .collect();
    for (place, row) in (0..).zip(plan["rows"].as_array().unwrap()) {
        if !taken.contains(&place) {
            assert!(row["confirmed"].is_null(), "{row}");
            continue;
        }
        let word = |name: &str| row["combination"][name].as_str().unwrap().to_owned();
        let (layout, compression) = (word("layout"), word("compression"));
        let whole = bench.json(&format!(
            "plan -jq {drives} -l {layout} -c {compression} --sample all data"
        ));
        assert_eq!(row["confirmed"], whole["rows"][0]["tried"]);
    }
    let complaint = bench.fails(&format!("plan {drives} --shard 1/2 --confirm data"));
    assert!(complaint.contains("not for a --shard of it"), "{complaint}");
}

/// Three computers, by GNU parallel, find what one does.
#[test]
fn parts_run_by_gnu_parallel_are_the_whole() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 60, 1 << 20);
    let options = "plan -q --drives wd30ezrx,wd30ezrx --special p4500 -l stripe,mirror -a 12 -r 128K -c lz4,off -b 0,32K";
    let whole = bench.json(&format!("{options} -j data"));
    assert_eq!(whole["rows"].as_array().unwrap().len(), 12);
    let line = format!(
        "{} {options} --jobs 1 --shard {{}}/3 --results part{{}} data > out{{}}",
        env!("CARGO_BIN_EXE_ashift")
    );
    let mut parallel = bench.command("parallel");
    match parallel
        .args(["--will-cite", "-j2", &line, ":::", "1", "2", "3"])
        .output()
    {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            oracle::skip("GNU parallel is missing: apt-get install parallel");
            return;
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
    }
    let merged = bench.json("plan merge -j part1 part2 part3");
    assert_eq!(merged, whole);
    let note = "4 of 12 combinations have not been tried yet";
    assert!(bench.ok("plan merge part1 part2").contains(note));
    assert!(text(&fs::read(bench.path("out3")).unwrap()).contains("8 of 12"));
    // Without a second SSD the special vdev has less redundancy than a mirror, which has to be forced.
    let thin = merged["rows"].as_array().unwrap().iter().position(|row| {
        row["combination"]["layout"] == "mirror" && row["combination"]["special"] == "32K"
    });
    assert!(figure(&merged, thin.unwrap(), "/special/used") > 0.0);
}

#[test]
fn what_is_known_is_not_tried_again() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 60, 1 << 20);
    let line = "plan -q --drives wd30ezrx -a 12 -r 128K,1M -c lz4,off --results known --report page.html data";
    let first = bench.ok(line);
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    assert!(
        page.contains("<svg") && page.contains("ashift plan --drives wd30ezrx"),
        "{page}"
    );
    let known = fs::read(bench.path("known")).unwrap();
    assert_eq!(bench.ok(line), first);
    assert_eq!(
        fs::read(bench.path("known")).unwrap(),
        known,
        "nothing was added"
    );
    // Half of it, as after a power cut.
    fs::write(bench.path("known"), &known[..known.len() * 2 / 3]).unwrap();
    assert_eq!(bench.ok(line), first);
    fs::write(bench.path("data/new"), "more").unwrap();
    let complaint = bench.fails(line);
    assert!(
        complaint.contains("the files have changed since"),
        "{complaint}"
    );
    // Where no file is given, other files are another plan.
    bench.ok("plan -q --drives wd30ezrx -a 12 -r 128K -c lz4 data");
    fs::write(bench.path("data/newer"), "more").unwrap();
    bench.ok("plan -q --drives wd30ezrx -a 12 -r 128K -c lz4 data");
    assert_eq!(fs::read_dir(bench.path("state/plan")).unwrap().count(), 2);
}

#[test]
fn machines_are_kept_for_a_look_at_them() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 20, 1 << 18);
    bench.ok("plan -q --drives wd30ezrx -a 12 -r 128K -c lz4,off --keep kept data");
    for machine in ["kept/0001", "kept/0002"] {
        let list = format!("-m {} ls -A tank:/", bench.path(machine).display());
        assert_eq!(bench.ok(&list), "data\n");
    }
}

/// Each number of SSDs with each layout: what `zpool create` minds is forced.
#[test]
fn special_vdevs_of_any_redundancy_are_tried() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 20, 1 << 18);
    for ssds in ["p4500", "p4500,p4500", "p4500,p4500,p4500"] {
        let drives = "--drives wd30ezrx,wd30ezrx,wd30ezrx,wd30ezrx";
        let layouts = "-l stripe,mirrors,raidz1,raidz2";
        let plan = bench.json(&format!(
            "plan -jq {drives} --special {ssds} {layouts} -a 12 -r 128K -c lz4 -b 32K data"
        ));
        let rows = plan["rows"].as_array().unwrap();
        assert!(
            rows.iter().all(|row| row["tried"]["measured"].is_object()),
            "{ssds}: {plan}"
        );
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_behind_and_goes_on() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 60, 1 << 20);
    let temporary = bench.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let line = "plan -q --jobs 1 --drives wd30ezrx,wd30ezrx -a 9,12 --results known data";
    let mut command = bench.command(env!("CARGO_BIN_EXE_ashift"));
    command
        .args(line.split_whitespace())
        .env("TMPDIR", &temporary);
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = || fs::read_to_string(bench.path("known")).map_or(0, |text| text.lines().count());
    while lines() < 3 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it has more to do than that"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = text(&output.stderr);
    assert!(
        said.contains("interrupted; what has been tried is kept"),
        "{said}"
    );
    assert_eq!(
        fs::read_dir(&temporary).unwrap().count(),
        0,
        "nothing is left"
    );
    let known = fs::read_to_string(bench.path("known")).unwrap();
    assert!(known.lines().count() < 17, "{known}");
    bench.ok(line);
    let all = fs::read_to_string(bench.path("known")).unwrap();
    assert!(
        all.starts_with(&known) && all.lines().count() == 17,
        "{all}"
    );
}

#[test]
fn what_has_no_room_is_said() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 100, 100 << 20);
    let small = "wd30ezrx,size=128MB";
    let text = bench.ok(&format!(
        "plan -q --drives {small},{small} -a 12 -r 128K -c off --sample all data"
    ));
    assert!(
        text.contains("1 of 2 combinations have no room for the files"),
        "{text}"
    );
    assert!(
        text.contains("no drive may be lost") && !text.contains("one drive may be lost"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_planned_is_said_at_once() {
    let bench = Bench::new();
    make_tree(&bench.path("data"), 20, 1 << 20);
    fs::create_dir(bench.path("empty")).unwrap();
    for (line, complaint) in [
        ("plan data", "no drives: give their profiles with --drives"),
        ("plan --drives nosuch data", "nosuch"),
        (
            "plan --drives wd30ezrx --layouts raidz1 data",
            "raidz1 is not possible with 1 drive; try stripe",
        ),
        (
            "plan --drives wd30ezrx --layouts tape data",
            "no layout 'tape'",
        ),
        (
            "plan --drives wd30ezrx --recordsize 128K,3K data",
            "must be power of 2",
        ),
        ("plan --drives wd30ezrx --compression lz5 data", "lz5"),
        (
            "plan --drives wd30ezrx --ashift x data",
            "'x' is not a number",
        ),
        (
            "plan --drives wd30ezrx --host nosuch data",
            "no host 'nosuch'",
        ),
        (
            "plan --drives wd30ezrx --sample much data",
            "--sample takes a size or 'all', not 'much'",
        ),
        (
            "plan --drives wd30ezrx --shard 3/2 data",
            "'3/2' is not a part",
        ),
        ("plan --drives wd30ezrx missing", "missing"),
        ("plan --drives wd30ezrx empty", "no files are in it"),
        ("plan --drives wd30ezrx data/00/000/file-0", "not a folder"),
        ("plan merge missing", "missing"),
        ("plan merge data/00/000/file-0", "file-0"),
        ("plan merge", "merge needs the files"),
        ("plan merge --ashift 9 missing", "merge takes -j"),
        ("plan", "usage"),
    ] {
        let said = bench.fails(line);
        assert!(said.contains(complaint), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
    assert!(bench.ok("plan -h").contains("--special-small-blocks"));
}
