//! Experiments run on a fake shell with canned answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base::{Error, Result};
use lab::run::{Event, Options, count, run};
use lab::{
    Answer, AtOnce, DriveTrace, Experiment, MachinePlan, Outcome, Shell, TraceEntry, Verdict,
};

type Reply = fn(&MachinePlan, &[String]) -> Answer;

struct Fake {
    reply: Reply,
    plans: Mutex<Vec<(std::path::PathBuf, MachinePlan)>>,
}

impl Fake {
    fn new(reply: Reply) -> Fake {
        let plans = Mutex::new(Vec::new());
        Fake { reply, plans }
    }

    fn plan_of(&self, machine: &Path) -> MachinePlan {
        let plans = self.plans.lock().unwrap();
        let found = plans.iter().find(|(path, _)| path == machine);
        found.expect("the machine was created").1.clone()
    }
}

impl Shell for Fake {
    fn create(&self, machine: &Path, plan: &MachinePlan) -> Result<()> {
        if plan.drives.iter().any(|(_, profile)| profile == "nosuch") {
            return Err(Error::not_found("no drive profile 'nosuch'"));
        }
        let mut plans = self.plans.lock().unwrap();
        plans.push((machine.to_owned(), plan.clone()));
        Ok(())
    }

    fn run(&self, machine: &Path, words: &[String]) -> Result<Answer> {
        Ok((self.reply)(&self.plan_of(machine), words))
    }

    fn traces(&self, machine: &Path) -> Result<Vec<DriveTrace>> {
        let entry = TraceEntry {
            at_ns: 1,
            lba: 34,
            sectors: 256,
            is_write: true,
            is_partial: true,
        };
        let plan = self.plan_of(machine);
        let trace = |(drive, profile): &(String, String)| DriveTrace {
            drive: drive.clone(),
            profile: profile.clone(),
            sector_bytes: 512,
            sectors: 1 << 32,
            writes: 1,
            written_bytes: 131_072,
            partial_writes: 1,
            write_sizes: vec![(17, 1)],
            write_alignments: vec![(10, 1)],
            entries: vec![entry],
            ..DriveTrace::default()
        };
        Ok(plan.drives.iter().map(trace).collect())
    }
}

const MIRROR: &str = r#"
title = "A <title>"
[source]
title = "a write-up"
about = "somebody"
[parameters]
drive = "slow"
[drives]
ada0 = "{drive}"
[[case]]
name = "a"
commands = '''
prepare "two words"
# a comment

measure {drive}
'''
published = { rate = 10 }
[[case]]
name = "b"
commands = '''
-broken
measure {drive} fast
'''
published = { rate = 45 }
[[reading]]
name = "rate"
unit = "MB/s"
command = "measure"
pattern = 'rate (?<value>\S+)'
tolerance_percent = 20
[[ratio]]
reading = "rate"
of = "b"
to = "a"
published = 4.0
tolerance_percent = 15
"#;

fn reply(_: &MachinePlan, words: &[String]) -> Answer {
    let output = match words[0].as_str() {
        "measure" if words.len() == 3 => "rate 40\n",
        "measure" => "rate 9\nrate 10\n",
        _ => "",
    };
    Answer {
        output: output.into(),
        complaints: String::new(),
        code: i32::from(words[0] == "broken"),
        took_ns: 1_500_000_000,
        ..Answer::default()
    }
}

fn known(command: &str) -> bool {
    ["prepare", "measure", "broken"].contains(&command)
}

fn parse(text: &str) -> Result<Experiment> {
    Experiment::parse("mirror", "mirror.toml", text, &known)
}

fn run_on(experiment: &Experiment, fake: &Fake, jobs: usize) -> Result<Outcome> {
    run_in(experiment, fake, &Arc::new(AtOnce::new(jobs)))
}

fn run_in(experiment: &Experiment, fake: &Fake, at_once: &Arc<AtOnce>) -> Result<Outcome> {
    let options = Options {
        folder: "/machines".into(),
        at_once: Arc::clone(at_once),
        again: "ashift lab run mirror".into(),
        host: "none".into(),
        sensitivity: false,
    };
    run(experiment, fake, &options, &|_: Event<'_>| {})
}

#[test]
fn figures_and_ratios_are_judged() {
    let outcome = run_on(&parse(MIRROR).unwrap(), &Fake::new(reply), 2).unwrap();
    let rates: Vec<f64> = outcome.cases.iter().map(|c| c.figures[0].value).collect();
    assert_eq!(rates, [10.0, 40.0], "the last line that matches counts");
    assert_eq!(outcome.ratios[0].value, 4.0);
    assert_eq!(outcome.ratios[0].verdict, Verdict::Within);
    assert!(outcome.is_within_tolerances());
    let table = outcome.table();
    assert!(
        table.contains("45 MB/s") && table.contains("-11.1 %"),
        "{table}"
    );
    assert!((outcome.cases[0].seconds - 3.0).abs() < 1e-9);
}

#[test]
fn ratios_are_shown_without_published_ones() {
    let text = MIRROR.replace("published =", "# published =");
    let outcome = run_on(&parse(&text).unwrap(), &Fake::new(reply), 1).unwrap();
    let table = outcome.table();
    assert!(
        table.contains("ratio\n") && table.contains("  4\n"),
        "{table}"
    );
    let page = lab::report::page(&[outcome], "a test");
    assert!(page.contains("<th>ratio</th>"), "{page}");
}

#[test]
fn descriptions_have_the_values_of_parameters() {
    let text = MIRROR.replace("[source]", "about = \"On {drive}.\"\n[source]");
    let mut experiment = parse(&text).unwrap();
    let outcome = run_on(&experiment, &Fake::new(reply), 1).unwrap();
    assert_eq!(outcome.about, "On slow.");
    experiment.sweep.set("drive", vec!["x".into(), "y".into()]);
    let outcome = run_on(&experiment, &Fake::new(reply), 1).unwrap();
    assert_eq!(outcome.about, "On x, y.");
}

#[test]
fn a_case_is_run_once_for_each_value_of_what_it_depends_on() {
    let text = MIRROR
        .replace("measure {drive} fast", "measure x {speed}")
        .replace("ada0 = \"{drive}\"", "ada0 = \"ssd\"")
        .replace("published =", "# published =")
        + "[sweep]\ndrive = [\"p\", \"q\"]\nspeed = [1, 2, 3]\n";
    let outcome = run_on(&parse(&text).unwrap(), &Fake::new(reply), 2).unwrap();
    let labels: Vec<String> = outcome.cases.iter().map(|case| case.label(true)).collect();
    let expect = [
        "a: drive=p",
        "a: drive=q",
        "b: speed=1",
        "b: speed=2",
        "b: speed=3",
    ];
    assert_eq!(labels, expect);
    // Each that is above the line beside each that is below.
    assert_eq!(outcome.ratios.len(), 6);
}

#[test]
fn each_case_that_ends_well_names_its_machine() {
    let ended = Mutex::new(Vec::new());
    let options = Options {
        folder: "/machines".into(),
        at_once: Arc::new(AtOnce::new(1)),
        again: String::new(),
        host: "none".into(),
        sensitivity: false,
    };
    let tell = |event: Event<'_>| {
        if let Event::CaseDone { machine, .. } = event {
            ended.lock().unwrap().push(machine.to_owned());
        }
    };
    run(&parse(MIRROR).unwrap(), &Fake::new(reply), &options, &tell).unwrap();
    let ended = ended.into_inner().unwrap();
    assert_eq!(
        ended,
        ["/machines/01-a", "/machines/02-b"].map(PathBuf::from)
    );
    assert_eq!(count(&parse(MIRROR).unwrap(), false).unwrap(), 2);
}

#[test]
fn a_missed_tolerance_is_told() {
    let text = MIRROR.replace("rate = 45", "rate = 60");
    let outcome = run_on(&parse(&text).unwrap(), &Fake::new(reply), 1).unwrap();
    assert!(!outcome.is_within_tolerances());
    assert!(outcome.table().contains("MISSED"));
}

/// Experiments that run at the same time share the places of machines.
#[test]
fn no_more_machines_run_at_a_time_than_there_are_places() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    fn slow(plan: &MachinePlan, words: &[String]) -> Answer {
        let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
        MOST.fetch_max(running, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        reply(plan, words)
    }
    let at_once = Arc::new(AtOnce::new(2));
    let experiment = parse(MIRROR).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| run_in(&experiment, &Fake::new(slow), &at_once).unwrap());
        }
    });
    assert_eq!(MOST.load(Ordering::SeqCst), 2);
}

#[test]
fn the_order_of_work_does_not_show() {
    let experiment = parse(MIRROR).unwrap();
    let alone = run_on(&experiment, &Fake::new(reply), 1).unwrap();
    let together = run_on(&experiment, &Fake::new(reply), 4).unwrap();
    assert_eq!(alone, together);
}

#[test]
fn sweeping_runs_every_combination() {
    let mut experiment = parse(MIRROR).unwrap();
    experiment.sweep.set("drive", vec!["x".into(), "y".into()]);
    let outcome = run_on(&experiment, &Fake::new(reply), 2).unwrap();
    assert_eq!(outcome.cases.len(), 4);
    assert_eq!(outcome.ratios.len(), 2);
    assert_eq!(outcome.cases[1].drives[0].profile, "y");
}

#[test]
fn a_failing_command_names_file_line_and_command() {
    let fail: Reply = |_, words| Answer {
        complaints: "no space".into(),
        code: i32::from(words[0] == "measure") * 7,
        ..Answer::default()
    };
    let error = run_on(&parse(MIRROR).unwrap(), &Fake::new(fail), 1).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("mirror.toml:16: measure slow: exit code 7: no space"),
        "{text}"
    );
    assert!(
        text.contains("the machine is kept in /machines/01-a"),
        "{text}"
    );
}

#[test]
fn a_figure_that_is_not_printed_names_its_command() {
    let silent: Reply = |_, _| Answer::default();
    let error = run_on(&parse(MIRROR).unwrap(), &Fake::new(silent), 1).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("mirror.toml:16: measure slow: reading 'rate'"),
        "{error}"
    );
}

#[test]
fn a_drive_that_does_not_exist_is_named() {
    let mut experiment = parse(MIRROR).unwrap();
    experiment.parameters.set("drive", "nosuch");
    let error = run_on(&experiment, &Fake::new(reply), 1).unwrap_err();
    assert!(
        error.to_string().contains("no drive profile 'nosuch'"),
        "{error}"
    );
}

#[test]
fn mistakes_are_found_before_anything_runs() {
    let wrong = |from: &str, to: &str| parse(&MIRROR.replace(from, to)).unwrap_err().to_string();
    let expect = |text: String, part: &str| assert!(text.contains(part), "{text}");
    expect(
        wrong("measure {drive} fast", "meassure"),
        "mirror.toml:23: unknown command 'meassure'",
    );
    expect(
        wrong("{drive} fast", "{drvie}"),
        "mirror.toml:23: no parameter 'drvie'",
    );
    expect(
        wrong("title = \"A <title>\"", "titel = \"x\""),
        "mirror.toml:2:1: unknown field `titel`",
    );
    expect(wrong("of = \"b\"", "of = \"c\""), "no case 'c'");
    expect(
        wrong("command = \"measure\"", "command = \"dd\""),
        "has no command 'dd'",
    );
    expect(
        wrong("\"two words\"", "\"two words"),
        "mirror.toml:13: a quote is not closed",
    );
    expect(wrong("(?<value>", "("), "no group (?<value>");
    let outcome = run_on(
        &parse(&MIRROR.replace("rate = 45", "rat = 45")).unwrap(),
        &Fake::new(reply),
        1,
    );
    expect(
        outcome.unwrap_err().to_string(),
        "a figure 'rat' was published",
    );
}

#[test]
fn a_required_value_must_be_given() {
    let text = format!("{MIRROR}\n[required]\nsize = \"how large: --set size=N\"\n");
    let error = run_on(&parse(&text).unwrap(), &Fake::new(reply), 1).unwrap_err();
    assert!(
        error.to_string().contains("needs 'size': how large"),
        "{error}"
    );
}

#[test]
fn the_page_stands_alone_and_says_everything() {
    let outcome = run_on(&parse(MIRROR).unwrap(), &Fake::new(reply), 1).unwrap();
    let page = lab::report::page(&[outcome], "ashift");
    for part in [
        "A &lt;title&gt;",
        "ashift lab run mirror",
        "class=\"partial\"",
        "a write-up",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for part in ["http://", "https://", "<script", "url("] {
        assert!(!page.contains(part), "{part}");
    }
    let opened = page.matches("<svg").count();
    assert!(opened >= 3 && opened == page.matches("</svg>").count());
}

#[test]
fn the_experiments_that_come_along_are_understood() {
    for (name, _) in lab::builtin() {
        let experiment = Experiment::find(name, &|_| true).unwrap();
        assert_eq!(experiment.name, *name);
    }
}

#[test]
fn commands_are_shown_as_one_would_type_them() {
    let words = ["dd", "if=/dev/zero", "of=a b", "bs=1m"].map(str::to_owned);
    assert_eq!(lab::run::as_typed(&words), "dd if=/dev/zero 'of=a b' bs=1m");
    let words = ["find", ">", "> /dev/null", ">", "/dev/null"].map(str::to_owned);
    assert_eq!(
        lab::run::as_typed(&words),
        "find '>' '> /dev/null' > /dev/null"
    );
}

#[test]
fn what_drives_counted_is_a_figure() {
    let text = format!("{MIRROR}\n[[reading]]\nname = \"partial\"\ndrives = \"partial_writes\"\n");
    let outcome = run_on(&parse(&text).unwrap(), &Fake::new(reply), 1).unwrap();
    assert_eq!(outcome.cases[1].figure("partial").unwrap().value, 1.0);
    let text = text.replace("partial_writes", "partial");
    assert!(parse(&text).is_err());
}

#[test]
fn ratios_of_several_readings_have_a_column_each() {
    let text = MIRROR.replace("published =", "# published =")
        + "[[reading]]\nname = 'time'\ncommand = 'measure'\nseconds = true\n\
           [[ratio]]\nreading = 'time'\nof = 'b'\nto = 'a'\n";
    let outcome = run_on(&parse(&text).unwrap(), &Fake::new(reply), 1).unwrap();
    let table = outcome.table();
    assert!(
        table.contains("compared  ratio: rate  ratio: time\nb / a               4            1\n"),
        "{table}"
    );
}

#[test]
fn a_histogram_is_drawn_of_the_lines_that_match() {
    let text = format!(
        "{MIRROR}\n[[histogram]]\ntitle = 'rates'\ncommand = 'measure'\n\
         pattern = '^(?<label>rate) (?<value>[0-9]+)'\n"
    );
    let outcome = run_on(&parse(&text).unwrap(), &Fake::new(reply), 1).unwrap();
    let bars = |case: usize| &outcome.cases[case].tallies[0].bars;
    assert_eq!(
        bars(0)[..],
        [("rate".to_owned(), 9), ("rate".to_owned(), 10)]
    );
    assert_eq!(bars(1).len(), 1);
    let page = lab::report::page(&[outcome], "a test");
    assert!(page.contains("<h3>Histograms</h3>"), "{page}");
    assert!(page.contains("<title>rate: 10 (52.6 %)"), "{page}");
    let error = parse(&text.replace("(?<label>rate)", "rate")).unwrap_err();
    assert!(
        error.to_string().contains("no groups (?<label>…)"),
        "{error}"
    );
}

#[test]
fn a_trace_has_to_be_there() {
    let text = format!("trace = 'nosuch'\n{MIRROR}");
    let error = parse(&text).unwrap_err().to_string();
    assert!(
        error.contains("no trace 'nosuch'; there are bonnie-on-ext4"),
        "{error}"
    );
}
