//! `zpool` and `zfs` beside the real ones: the same command lines, what they print, and their exit codes.
//!
//! # What it is
//! `lists/` has the command lines, in the order of a pool's life. `real/` has what OpenZFS's own tools and
//! kernel module printed, recorded once in QEMU. The test runs the lists with this program and compares. Each
//! difference stands in `reviewed/` with the reason for it; a difference that is not there, or one that is
//! there and has vanished or changed, fails the test.
//!
//! ```text
//! PARITY_UPDATE=1                writes the differences anew, keeps their reasons, marks new ones with [?]
//! PARITY_RECORD=all|LIST,LIST    boots QEMU once for each list and records (minutes)
//! PARITY_RECORD=normalise        normalises anew what the last boots have left, where that is whole
//! ```
//!
//! A list's new command needs a recording; a mended command needs `PARITY_UPDATE=1`.

mod lists;
mod normal;
mod recording;
mod review;
mod runner;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use lists::{Command, List, Section};
use review::{Class, Difference, Reasons, Review, UNREVIEWED};
use runner::Said;

/// Of the commands that are there, so many in a hundred print what the real ones print.
const EQUAL_AT_LEAST: usize = 90;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/parity")
        .join(name)
}

fn file(kind: &str, list: &List) -> PathBuf {
    folder(kind).join(format!("{}.txt", list.name))
}

/// Runs all sections of all lists, on as many threads as there are processors.
fn run_all(lists: &[List]) -> BTreeMap<(&str, &Command), Said> {
    let sections: Vec<(&List, &Section)> = lists
        .iter()
        .flat_map(|list| list.sections.iter().map(move |section| (list, section)))
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

/// Records what the real tools print.
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

/// How many commands of a list are what.
#[derive(Default)]
struct Count {
    commands: usize,
    equal: usize,
    harmless: usize,
    follows: usize,
    missing: usize,
    wrong: usize,
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.commands += other.commands;
        self.equal += other.equal;
        self.harmless += other.harmless;
        self.follows += other.follows;
        self.missing += other.missing;
        self.wrong += other.wrong;
    }

    /// Percentage of the commands whose doing is not missing that are equal.
    fn percent_equal(&self) -> usize {
        self.equal * 100 / (self.commands - self.follows - self.missing).max(1)
    }

    fn print(&self, name: &str) {
        let parts = [
            self.commands,
            self.equal,
            self.harmless,
            self.follows,
            self.missing,
            self.wrong,
        ];
        let parts = parts.map(|n| format!("{n:>9}")).concat();
        eprintln!("{name:<12}{parts} {:>8}%", self.percent_equal());
    }
}

/// Compares a list; gives what differs and adds to `complaints` what the review does not have.
fn compare(
    list: &List,
    here: &BTreeMap<(&str, &Command), Said>,
    reviewed: &Review,
    reasons: &Reasons,
    complaints: &mut Vec<String>,
) -> (Vec<(Command, Difference)>, Count) {
    let real = std::fs::read_to_string(file("real", list)).unwrap_or_default();
    let real = recording::read(&real);
    let mut differences = Vec::new();
    let mut count = Count::default();
    for command in list.commands() {
        let Some(real) = real.get(command) else {
            complaints.push(format!("not recorded, see PARITY_RECORD: {command}"));
            continue;
        };
        count.commands += 1;
        let lines = review::difference(real, &here[&(list.name.as_str(), command)]);
        if lines.is_empty() {
            count.equal += 1;
            if reviewed.contains_key(command) {
                complaints.push(format!("no longer differs: {command}"));
            }
            continue;
        }
        let known = reviewed.get(command);
        if known.is_none_or(|known| known.lines != lines) {
            let kind = if known.is_some() {
                "differs otherwise than reviewed"
            } else {
                "differs"
            };
            complaints.push(format!("{kind}: {command}\n{}", lines.join("\n")));
        }
        let why = known.map_or_else(|| vec![UNREVIEWED.to_owned()], |k| k.reasons.clone());
        match why.iter().filter_map(|r| reasons.get(r)).max() {
            Some(Class::Harmless) => count.harmless += 1,
            Some(Class::Follows) => count.follows += 1,
            Some(Class::Missing) => count.missing += 1,
            Some(Class::Wrong) => count.wrong += 1,
            None => {}
        }
        for unknown in why.iter().filter(|r| !reasons.contains_key(*r)) {
            complaints.push(format!("no such reason as '{unknown}': {command}"));
        }
        differences.push((
            command.clone(),
            Difference {
                reasons: why,
                lines,
            },
        ));
    }
    let commands: BTreeSet<&Command> = list.commands().collect();
    let gone = reviewed
        .keys()
        .filter(|command| !commands.contains(command));
    complaints.extend(gone.map(|command| format!("no longer in the list: {command}")));
    (differences, count)
}

#[test]
fn each_difference_from_the_real_tools_was_reviewed() {
    let lists = lists::read_all(&folder("lists"));
    if let Ok(which) = std::env::var("PARITY_RECORD") {
        record(&lists, &which);
        return;
    }
    let updates = std::env::var_os("PARITY_UPDATE").is_some();
    let reasons = review::read_reasons(&folder("reviewed"));
    let here = run_all(&lists);
    let mut complaints = Vec::new();
    let mut unused: BTreeSet<&str> = reasons.keys().map(String::as_str).collect();
    let mut all = Count::default();
    eprintln!(
        "list         commands    equal harmless  follows  missing    wrong    equal of what is there"
    );
    for list in &lists {
        let reviewed = std::fs::read_to_string(file("reviewed", list)).unwrap_or_default();
        let reviewed = review::read(&reviewed);
        let (differences, count) = compare(list, &here, &reviewed, &reasons, &mut complaints);
        count.print(&list.name);
        all.add(&count);
        for reason in differences.iter().flat_map(|(_, d)| &d.reasons) {
            unused.remove(reason.as_str());
        }
        if updates {
            let text = review::write(differences.iter().map(|(c, d)| (c, d)));
            std::fs::write(file("reviewed", list), text).unwrap();
        }
    }
    all.print("all");
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
