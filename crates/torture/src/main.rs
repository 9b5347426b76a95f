//! `cargo run -p torture -- storm`: the whole-pool simulator, for as long as it is allowed to run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use torture::storm::{Act, Count, Failure, Report, Script, plan, reduce, run_and_verify};

const USAGE: &str = "\
usage: torture storm [--seed N] [--hours H] [--minutes M] [--script FILE] [--runs R]

Runs random scripts of everything that can happen to pools, in simulated time, beside a model.

  --seed N       the script of this seed; otherwise the first one is random, and printed
  --hours H      simulated hours of each script (default 1)
  --minutes M    goes on with new seeds for so many minutes of real time
  --script FILE  runs the script in a file
  --runs R       tries at most so many scripts to shorten one that fails (default 400; 0: shortens none)

Exits with 1 after a failure: the shortened script is printed, and kept in a file that --script takes.
";

/// What the command line asks for.
struct Args {
    seed: Option<u64>,
    hours: f64,
    minutes: Option<f64>,
    script: Option<PathBuf>,
    runs: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args = match args.split_first() {
        Some((word, rest)) if word == "storm" => parse(rest),
        _ => Err("the only command is 'storm'".into()),
    };
    let args = match args {
        Ok(args) => args,
        Err(complaint) => {
            eprint!("torture: {complaint}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match storm(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("torture: {complaint}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Args, String> {
    let mut args = Args {
        seed: None,
        hours: 1.0,
        minutes: None,
        script: None,
        runs: 400,
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else {
            return Err(format!("{} needs a value", pair[0]));
        };
        let wrong = || format!("{option} {value}: not a number");
        match option.as_str() {
            "--seed" => args.seed = Some(value.parse().map_err(|_| wrong())?),
            "--hours" => args.hours = value.parse().map_err(|_| wrong())?,
            "--minutes" => args.minutes = Some(value.parse().map_err(|_| wrong())?),
            "--runs" => args.runs = value.parse().map_err(|_| wrong())?,
            "--script" => args.script = Some(value.into()),
            _ => return Err(format!("there is no option {option}")),
        }
    }
    Ok(args)
}

fn storm(args: &Args) -> Result<(), String> {
    if let Some(path) = &args.script {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let script = text
            .parse()
            .map_err(|e| format!("{}: {e}", path.display()))?;
        return run_one(&script, args).map(|_| ());
    }
    let first = args.seed.unwrap_or_else(|| rt::random_below(1 << 32));
    let end = args
        .minutes
        .map(|m| Instant::now() + Duration::from_secs_f64(60.0 * m));
    let mut total = Totals::default();
    for seed in first.. {
        println!("storm: --seed {seed} --hours {}", args.hours);
        // Idling is a part of the time that a script takes.
        let mut script = plan(seed, args.hours);
        script.end_ms = Some((args.hours * 3_600_000.0) as u64);
        total.add(&run_one(&script, args)?);
        if end.is_none_or(|end| Instant::now() >= end) {
            break;
        }
    }
    total.print();
    Ok(())
}

/// Runs a script; shortens it when it fails.
fn run_one(script: &Script, args: &Args) -> Result<Report, String> {
    let began = Instant::now();
    match run_and_verify(script) {
        Ok(report) => {
            println!(
                "storm: {} steps on {} pools, {:.2} h simulated in {:.1} s, digest {:016x}",
                report.steps,
                script.pools.len(),
                hours(report.simulated_ns),
                began.elapsed().as_secs_f64(),
                report.digest
            );
            Ok(report)
        }
        Err(failure) => Err(explain(script, failure, args)),
    }
}

/// Shortens a script that failed, and says how to run the shortened one.
fn explain(script: &Script, failure: Failure, args: &Args) -> String {
    println!("storm: step {} failed: {}", failure.step, failure.message);
    let (mut short, mut last, mut runs) = (script.clone(), failure, 0);
    if args.runs > 0 {
        let reduction = quietly(|| reduce(script, &last, args.runs));
        (short, last, runs) = (reduction.script, reduction.failure, reduction.runs);
    }
    let path = std::env::temp_dir().join(format!("storm-{}.script", script.seed));
    let kept = keep(&path, &short);
    format!(
        "seed {}, shortened to {} steps in {runs} runs:\n\n{short}\n{}\n\n{kept}",
        script.seed,
        short.steps.len(),
        last.message
    )
}

fn keep(path: &Path, script: &Script) -> String {
    match std::fs::write(path, script.to_string()) {
        Ok(()) => format!("cargo run -p torture -- storm --script {}", path.display()),
        Err(e) => format!("{}: {e}", path.display()),
    }
}

/// Runs `f` without the messages that panics print.
fn quietly<T>(f: impl FnOnce() -> T) -> T {
    static IS_QUIET: AtomicBool = AtomicBool::new(false);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !IS_QUIET.load(Ordering::SeqCst) {
            before(info);
        }
    }));
    IS_QUIET.store(true, Ordering::SeqCst);
    let value = f();
    IS_QUIET.store(false, Ordering::SeqCst);
    value
}

fn hours(ns: u64) -> f64 {
    ns as f64 / 3.6e12
}

/// Totals over all runs.
#[derive(Default)]
struct Totals {
    runs: u64,
    simulated_ns: u64,
    counts: std::collections::BTreeMap<Act, Count>,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.simulated_ns += report.simulated_ns;
        for (act, count) in &report.counts {
            let sum = self.counts.entry(*act).or_default();
            sum.drawn += count.drawn;
            sum.done += count.done;
        }
    }

    fn print(&self) {
        let counts = self.counts.iter();
        let counts: Vec<String> = counts
            .map(|(act, Count { drawn, done })| format!("{} {done}/{drawn}", act.word()))
            .collect();
        println!(
            "storm: {} runs, {:.1} simulated hours; done of drawn: {}",
            self.runs,
            hours(self.simulated_ns),
            counts.join(", ")
        );
    }
}
