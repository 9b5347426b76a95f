//! `lab`: published experiments, replayed.

mod kept;
mod options;
mod shell;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use base::{Context, Error, Result};
use indicatif::ProgressBar;
use lab::run::{Event, Options};
use lab::{AtOnce, Experiment};
use machine::HostProfile;

use crate::caller;
use crate::command::{Command, Entry, Table, verb};
use crate::failure::{Fail, Outcome};
use options::{REPORT, RunOptions};
pub(crate) use shell::Children;

/// How many experiments run at a time, and share the machines that may.
const EXPERIMENTS_AT_ONCE: usize = 2;

pub(crate) const LAB: Command<Entry> = Command::explained(
    "lab",
    "replay published experiments",
    "\
usage: ashift lab list [-j]
       ashift lab show NAME|FILE
       ashift lab run [-jq] [--set NAME=VALUE]… [--sweep NAME=VALUE,VALUE…]… [--data DIR]
                      [--case NAME] [--host NAME] [--seed N] [--jobs N] [--keep DIR]
                      [--sensitivity] NAME|FILE|all [--report [FILE]]
       ashift lab report [-o FILE] [NAME…]

list    the experiments that come along
show    an experiment as the file that it is: copy it, change it, run it
run     runs every command of an experiment on a machine of emulated drives, then sets what was
        measured beside what was published; ends with 1 if a stated tolerance is missed. all: those that
        come along, two at a time; options are for those that have the parameter
report  one page of HTML about the last runs

  -q             only the table          -j             JSON
  --set          gives a parameter another value
  --sweep        runs every combination of these values
  --data DIR     the same as --set data=DIR
  --case NAME    only this case (again for more)
  --host NAME    whose processor time is charged: none, modern, freebsd-8, -9, -13; at another clock:
                 modern@1.5GHz; with all drives behind one bus: modern@160MB/s
  --sensitivity  runs all of it again at half and at twice the value of what it assumes
  --jobs N       machines at a time (default: one for each processor)
  --keep DIR     leaves the machines in DIR, for `ashift -m DIR/01-…`
  --report FILE  the page about this run (as the last word, without FILE: ashift-report.html)
",
    run,
)
.apart();

const VERBS: Table<fn(&[String]) -> Outcome> = Table {
    program: "ashift lab",
    commands: &[
        verb("list", list),
        verb("show", show),
        verb("run", run_experiment),
        verb("report", report),
    ],
};

fn run(args: &[String]) -> Outcome {
    let (command, rest) = VERBS.pick(args)?;
    (command.run)(rest).map_err(|fail| match fail {
        // 1 is for a tolerance that was missed.
        Fail::Failed(text) => Fail::Exits(2, text),
        fail => fail,
    })
}

fn misused(verb: &str) -> Fail {
    let text = format!("'{verb}' is not used like this ('ashift lab help' says how)");
    Fail::Failed(text)
}

fn find(name: &str) -> Result<Experiment> {
    let is_builtin = lab::builtin().iter().any(|(known, _)| *known == name);
    if is_builtin || !Path::new(name).exists() {
        return Experiment::find(name, &crate::is_command);
    }
    let text = fs::read_to_string(name)
        .map_err(Error::from)
        .within(|| name.to_owned())?;
    let stem = Path::new(name).file_stem().unwrap_or_default();
    Experiment::parse(&stem.to_string_lossy(), name, &text, &crate::is_command)
}

fn list(args: &[String]) -> Outcome {
    let json = match args {
        [] => false,
        [flag] if flag == "-j" => true,
        _ => return Err(misused("list")),
    };
    let mut all = Vec::new();
    for (name, _) in lab::builtin() {
        let experiment = Experiment::find(name, &crate::is_command)?;
        let published = experiment
            .source
            .as_ref()
            .map(|source| source.title.clone());
        if json {
            all.push(serde_json::json!({
                "name": name, "title": experiment.title, "published": published,
            }));
        } else {
            println!("{name:<20} {}", experiment.title);
            let from = published.map_or("predictions".into(), |title| format!("from “{title}”"));
            println!("{:<20} {from}", "");
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&all).unwrap_or_default());
    }
    Ok(())
}

fn show(args: &[String]) -> Outcome {
    let [name] = args else {
        return Err(misused("show"));
    };
    match lab::builtin().iter().find(|(known, _)| known == name) {
        Some((_, text)) => print!("{text}"),
        None => {
            find(name)?;
            print!("{}", fs::read_to_string(name)?);
        }
    }
    Ok(())
}

fn report(args: &[String]) -> Outcome {
    let mut file = PathBuf::from(REPORT);
    let mut names = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-o" => {
                let value = args
                    .next()
                    .ok_or_else(|| Error::invalid("-o needs a file"))?;
                file = PathBuf::from(value);
            }
            flag if flag.starts_with('-') => return Err(misused("report")),
            name => names.push(name.to_owned()),
        }
    }
    let outcomes = kept::load(&names)?;
    write_page(&file, &outcomes)?;
    println!("{}", file.display());
    Ok(())
}

fn write_page(file: &Path, outcomes: &[lab::Outcome]) -> Result<()> {
    let made_by = format!("ashift {}", env!("CARGO_PKG_VERSION"));
    let page = lab::report::page(outcomes, &made_by);
    fs::write(file, page)
        .map_err(Error::from)
        .within(|| file.display().to_string())
}

/// The folder of the machines: one the user gave, or a temporary one that is removed after success.
pub(crate) enum Folder {
    Kept(PathBuf),
    Passing(tempfile::TempDir),
}

impl Folder {
    /// `prefix`: how the name of a temporary one begins.
    ///
    /// # Errors
    /// When it cannot be made, or something is in it.
    pub(crate) fn make(prefix: &str, keep: Option<&Path>) -> Result<Folder> {
        let Some(path) = keep else {
            let passing = tempfile::Builder::new().prefix(prefix).tempdir();
            return Ok(Folder::Passing(passing?));
        };
        fs::create_dir_all(path)
            .map_err(Error::from)
            .within(|| path.display().to_string())?;
        let mut entries = fs::read_dir(path)?;
        if entries.next().is_some() {
            let text = format!("{}: the folder is not empty", path.display());
            return Err(Error::invalid(text));
        }
        Ok(Folder::Kept(path.canonicalize()?))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Passing(passing) => passing.path(),
        }
    }

    /// It stays, also if it was temporary.
    pub(crate) fn keep(self) {
        if let Folder::Passing(passing) = self {
            let _ = passing.keep();
        }
    }
}

/// That a report can be written to this file, before minutes are spent on what is in it.
///
/// # Errors
/// What the file system says.
pub(crate) fn check_report(file: &Path) -> Result<()> {
    // A pipe would end for its reader.
    if fs::metadata(file).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Ok(());
    }
    let is_new = fs::symlink_metadata(file).is_err();
    let opened = fs::OpenOptions::new().append(true).create(true).open(file);
    let checked = opened.and_then(|_| {
        if is_new {
            fs::remove_file(file)
        } else {
            Ok(())
        }
    });
    checked
        .map_err(Error::from)
        .within(|| file.display().to_string())
}

fn run_experiment(args: &[String]) -> Outcome {
    let options = RunOptions::parse(args)?;
    options.report.as_deref().map_or(Ok(()), check_report)?;
    let experiments = match options.name.as_str() {
        "all" => all(&options)?,
        name => {
            let mut experiment = find(name)?;
            options.apply(&mut experiment)?;
            vec![experiment]
        }
    };
    let results = run_each(&experiments, &options);
    let (mut outcomes, mut failed) = (Vec::new(), 0);
    for (experiment, result) in experiments.iter().zip(results) {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) if options.name != "all" => return Err(error.into()),
            Err(error) => {
                eprintln!("ashift lab: {}: {error}", experiment.name);
                failed += 1;
            }
        }
    }
    tell(&options, &outcomes)?;
    if failed > 0 {
        let of = experiments.len();
        return Err(Fail::Failed(format!("{failed} of {of} experiments failed")));
    }
    let is_within = outcomes.iter().all(lab::Outcome::is_within_tolerances);
    Fail::exit((!is_within).into())
}

/// The experiments that come along and need nothing, as the options change them; those that need a value if it is
/// given.
fn all(options: &RunOptions) -> Result<Vec<Experiment>> {
    let mut experiments = Vec::new();
    for (name, _) in lab::builtin() {
        experiments.push(Experiment::find(name, &crate::is_command)?);
    }
    options.apply_to_all(&mut experiments)?;
    experiments.retain(|experiment| {
        let missing = experiment.missing();
        if let Some((name, what)) = missing {
            eprintln!(
                "ashift lab: {} is left out, it needs '{name}': {what}",
                experiment.name
            );
        }
        missing.is_none()
    });
    Ok(experiments)
}

/// Runs experiments, two at a time, so that no processor waits while the last case of one runs; the results are in
/// their order.
fn run_each(experiments: &[Experiment], options: &RunOptions) -> Vec<Result<lab::Outcome>> {
    let cases = experiments
        .iter()
        .map(|one| lab::run::count(one, options.sensitivity));
    // What cannot be counted fails below.
    let cases: usize = cases.flatten().sum();
    let bar = crate::progress::progress(Some(cases as u64), false);
    let at_once = Arc::new(AtOnce::new(options.jobs));
    let run = |experiment: &Experiment| {
        let keep = match (&options.keep, experiments.len()) {
            (Some(folder), 2..) => Some(folder.join(&experiment.name)),
            (folder, _) => folder.clone(),
        };
        let folder = Folder::make("ashift-lab-", keep.as_deref())?;
        let outcome = run_one(experiment, options, folder.path(), &at_once, &bar);
        let outcome = outcome.and_then(|outcome| kept::save(&outcome).map(|()| outcome));
        if outcome.is_err() {
            folder.keep();
        }
        outcome
    };
    let next = AtomicUsize::new(0);
    let results: Vec<_> = experiments.iter().map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for _ in 0..EXPERIMENTS_AT_ONCE {
            scope.spawn(|| {
                while let n = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(experiment) = experiments.get(n)
                {
                    let _ = results[n].set(run(experiment));
                }
            });
        }
    });
    bar.finish_and_clear();
    let result = |cell: OnceLock<_>| cell.into_inner().expect("each has run");
    results.into_iter().map(result).collect()
}

fn run_one(
    experiment: &Experiment,
    options: &RunOptions,
    folder: &Path,
    at_once: &Arc<AtOnce>,
    bar: &ProgressBar,
) -> Result<lab::Outcome> {
    let name = experiment.parameters.fill(&experiment.host)?;
    let host = HostProfile::find(&name).ok_or_else(|| {
        let text = format!("{}: no host '{name}'", experiment.path);
        Error::invalid(text)
    })?;
    let titled = |case: &str| match options.name.as_str() {
        "all" => format!("{}: {case}", experiment.name),
        _ => case.to_owned(),
    };
    let progress = |event: Event<'_>| match event {
        Event::Ran {
            case,
            command,
            answer,
        } if !options.is_quiet => {
            bar.suspend(|| say(&titled(case), command, answer));
        }
        Event::CaseDone { case, machine } => {
            if options.keep.is_none() {
                // The whole folder goes in the end; until then its drives would take up space.
                let _ = fs::remove_dir_all(machine);
            }
            bar.inc(1);
            bar.set_message(titled(case));
        }
        Event::Ran { .. } => {}
    };
    let lab_options = Options {
        folder: folder.to_owned(),
        at_once: Arc::clone(at_once),
        sensitivity: options.sensitivity,
        again: options.again(experiment),
        host: described(&host, experiment.memory.as_deref())?,
    };
    lab::run::run(experiment, &Children, &lab_options, &progress)
}

/// The host for the report, with what its ZFS makes of the machine's memory.
fn described(host: &HostProfile, memory: Option<&str>) -> Result<String> {
    let Some(memory) = memory else {
        return Ok(host.describe());
    };
    let memory = host.zfs.memory(machine::parse_size(memory)?);
    Ok(format!(
        "{}; {}",
        host.describe(),
        crate::machine::memory_line(&memory)
    ))
}

fn tell(options: &RunOptions, outcomes: &[lab::Outcome]) -> Result<()> {
    if let Some(file) = &options.report {
        write_page(file, outcomes)?;
    }
    if options.is_json {
        let value = |outcome: &lab::Outcome| {
            let mut value = serde_json::to_value(outcome).unwrap_or_default();
            forget_entries(&mut value);
            value
        };
        let value = match outcomes {
            [one] if options.name != "all" => value(one),
            all => all.iter().map(value).collect(),
        };
        println!(
            "{}",
            serde_json::to_string_pretty(&value).unwrap_or_default()
        );
        return Ok(());
    }
    for outcome in outcomes {
        if options.name == "all" {
            println!("\n{}: {}", outcome.name, outcome.title);
        }
        print!("{}", outcome.table());
    }
    if let Some(file) = &options.report {
        println!("\nThe report is in {}.", file.display());
    }
    if let Some(folder) = &options.keep {
        let below = if options.name == "all" { "NAME/" } else { "" };
        println!(
            "\nThe machines are in {}: try `ashift -m {}/{below}01-… zpool status`.",
            folder.display(),
            folder.display()
        );
    }
    Ok(())
}

/// Removes the single drive commands, which only pictures need.
fn forget_entries(outcome: &mut serde_json::Value) {
    let cases = outcome["cases"].as_array_mut().into_iter().flatten();
    for case in cases {
        for drive in case["drives"].as_array_mut().into_iter().flatten() {
            if let Some(drive) = drive.as_object_mut() {
                drive.remove("entries");
            }
        }
    }
}

/// Prints one command and its output in one write, so that two cases do not mix.
fn say(case: &str, command: &str, answer: &lab::Answer) {
    let mut text = format!("[{case}] # {command}\n{}", lab::excerpt(&answer.output));
    for complaint in answer.complaints.lines() {
        text.push_str(&format!("{complaint}\n"));
    }
    let _ = caller::stdout().write_all(text.as_bytes());
}
