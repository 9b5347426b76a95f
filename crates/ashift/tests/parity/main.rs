//! `zpool` and `zfs` compared with the real ones: the same command lines, their output and exit codes.
//!
//! # What it is
//! `lists/` has the command lines, in the order of a pool's life. `real/` has the output of OpenZFS's own
//! tools and kernel module, recorded once in QEMU. The test runs the lists with this program and compares.
//! Each difference is in `reviewed/` with the reason for it; a difference that is not in there, or one that
//! is but has vanished or changed, fails the test. [`oracle::parity`] defines the format of these files.
//!
//! ```text
//! PARITY_UPDATE=1                rewrites the differences, keeps their reasons, marks new ones with [?]
//! PARITY_RECORD=all|LIST,LIST    boots QEMU once for each list and records (minutes)
//! PARITY_RECORD=normalise        normalises the raw output of the last boots again, where it is complete
//! ```
//!
//! A command added to a list needs a recording; a corrected command needs `PARITY_UPDATE=1`.

mod lists;
mod normal;
mod recording;
mod runner;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use oracle::parity::{Comparison, Count, Reasons, Said, difference, read_reasons};

use lists::{Command, List, Section};

/// Percentage of the supported commands whose output equals that of the real ones, at least.
const EQUAL_AT_LEAST: usize = 90;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/parity")
        .join(name)
}

fn file(kind: &str, list: &List) -> PathBuf {
    folder(kind).join(format!("{}.txt", list.name))
}

/// Whether this host lets the tests mount; sections that hold pools are left out where it does not.
fn can_mount() -> bool {
    Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root()
}

/// Runs all sections of all lists, on one thread per processor.
fn run_all(lists: &[List]) -> BTreeMap<(&str, &Command), Said> {
    let sections: Vec<(&List, &Section)> = lists
        .iter()
        .flat_map(|list| list.sections.iter().map(move |section| (list, section)))
        .filter(|(_, section)| can_mount() || !section.commands.iter().any(|c| c.line == "hold"))
        .collect();
    let next = Mutex::new(sections.iter());
    let said = Mutex::new(BTreeMap::new());
    let work = || loop {
        let Some((list, section)) = next.lock().unwrap().next() else {
            return;
        };
        let ran = runner::run_here(section);
        let mut said = said.lock().unwrap();
        for (command, what) in section.commands.iter().zip(ran) {
            said.insert((list.name.as_str(), command), what);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    said.into_inner().unwrap()
}

/// Records the output of the real tools.
fn record(lists: &[List], which: &str) {
    let is_wanted = |list: &List| which == "all" || which.split(',').any(|w| w == list.name);
    if which == "normalise" {
        for list in lists {
            if let Some(said) = runner::recorded_before(list) {
                write_recording(list, &said);
            }
        }
        return;
    }
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    for list in lists.iter().filter(|list| is_wanted(list)) {
        write_recording(list, &runner::run_in_guest(&guest, list));
        eprintln!("recorded {}", list.name);
    }
}

fn write_recording(list: &List, said: &[Said]) {
    let text = recording::write(list.commands().zip(said));
    std::fs::write(file("real", list), text).unwrap();
}

/// Compares a list with its recording and review.
fn compare<'r>(
    list: &List,
    here: &BTreeMap<(&str, &Command), Said>,
    reasons: &'r Reasons,
) -> Comparison<'r> {
    let read = |kind| std::fs::read_to_string(file(kind, list)).unwrap_or_default();
    let real = recording::read(&read("real"));
    let mut comparison = Comparison::new(reasons, &read("reviewed"));
    let mut names = Vec::new();
    for command in list.commands() {
        let name = command.to_string();
        match (real.get(&name), here.get(&(list.name.as_str(), command))) {
            (Some(real), Some(here)) => comparison.compare(&name, &difference(real, here)),
            (Some(_), None) => eprintln!("SKIPPED: mounting needs /dev/fuse and root: {name}"),
            (None, _) => {
                let text = format!("not recorded, see PARITY_RECORD: {name}");
                comparison.complaints.push(text);
            }
        }
        names.push(name);
    }
    comparison.check_list(names.iter().map(String::as_str));
    comparison
}

#[test]
fn each_difference_from_the_real_tools_was_reviewed() {
    let lists = lists::read_all(&folder("lists"));
    if let Ok(which) = std::env::var("PARITY_RECORD") {
        record(&lists, &which);
        return;
    }
    let updates = std::env::var_os("PARITY_UPDATE").is_some();
    let reasons = read_reasons(include_str!("reviewed/reasons.txt"));
    let here = run_all(&lists);
    let mut complaints = Vec::new();
    let mut unused: BTreeSet<&str> = reasons.keys().map(String::as_str).collect();
    let mut all = Count::default();
    eprintln!("{}", Count::HEADING);
    for list in &lists {
        let comparison = compare(list, &here, &reasons);
        eprintln!("{:<12}{}", list.name, comparison.count);
        all.add(&comparison.count);
        for reason in comparison.used_reasons() {
            unused.remove(reason);
        }
        if updates {
            std::fs::write(file("reviewed", list), comparison.review()).unwrap();
        }
        complaints.extend(comparison.complaints);
    }
    eprintln!("{:<12}{all}", "all");
    complaints.extend(
        unused
            .iter()
            .map(|r| format!("nothing has the reason '{r}' any more")),
    );
    assert!(
        complaints.is_empty(),
        "{} complaints (PARITY_UPDATE=1 writes the differences to reviewed/):\n{}",
        complaints.len(),
        complaints.join("\n")
    );
    assert_eq!(all.wrong, 0, "commands that mean something else");
    assert!(
        all.percent_equal() >= EQUAL_AT_LEAST,
        "{}% of what is there is equal",
        all.percent_equal()
    );
}
