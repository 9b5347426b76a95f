//! `ashift bench lab`: how long experiments take, in real time and on their own clock.

use std::process::Command;
use std::time::Instant;

use base::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::Words;
use super::turns::{median, own_program};
use crate::failure::Outcome;

/// Experiments run by default, and the limit for each in seconds, on two cores.
const LIMITS: [(&str, f64); 3] = [
    ("zfs-on-512e-mirror", 20.0),
    ("phybs-512e", 3.0),
    ("sector-size-sweep", 60.0),
];

/// One experiment, several times.
struct Turns {
    name: String,
    seconds: f64,
    limit: Option<f64>,
    simulated_seconds: f64,
    commands: u64,
}

/// Runs `bench lab ARGS`.
pub(super) fn run(words: &mut Words) -> Outcome {
    let runs = words.take_number("runs", 5)?;
    let data = words.take("data");
    words.check_all_taken()?;
    let mut names = words.operands.clone();
    if names.is_empty() {
        let mut all: Vec<&str> = LIMITS.iter().map(|(name, _)| *name).collect();
        all.truncate(if data.is_some() {
            all.len()
        } else {
            all.len() - 1
        });
        names = all.into_iter().map(str::to_owned).collect();
    }
    let mut all = Vec::new();
    for name in names {
        let turns = measure(&name, data.as_deref(), runs)?;
        if !words.is_json {
            say(&turns);
        }
        all.push(to_json(&turns));
    }
    if words.is_json {
        println!("{}", serde_json::to_string_pretty(&all).unwrap_or_default());
    }
    Ok(())
}

fn measure(name: &str, data: Option<&str>, runs: u64) -> Result<Turns> {
    let mut seconds = Vec::new();
    let mut outcome = Value::Null;
    for _ in 0..runs {
        let mut command = Command::new(own_program()?);
        command.args(["lab", "run", "-j", name]);
        if let Some(data) = data.filter(|_| name == "sector-size-sweep") {
            command.args(["--data", data]);
        }
        let begun = Instant::now();
        let output = command.output()?;
        seconds.push(begun.elapsed().as_secs_f64());
        if output.status.code() == Some(2) {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::new(ErrorKind::Io, text));
        }
        outcome = serde_json::from_slice(&output.stdout)
            .map_err(|e| Error::invalid(format!("{name}: {e}")))?;
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let cases = list(&outcome["cases"]);
    let drives = cases.iter().flat_map(|case| list(&case["drives"]));
    let count = |drive: &Value, what: &str| drive[what].as_u64().unwrap_or(0);
    Ok(Turns {
        name: name.to_owned(),
        seconds: median(&seconds),
        limit: LIMITS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, limit)| *limit),
        simulated_seconds: cases
            .iter()
            .filter_map(|case| case["seconds"].as_f64())
            .sum(),
        commands: drives
            .map(|d| count(&d, "writes") + count(&d, "reads"))
            .sum(),
    })
}

fn say(turns: &Turns) {
    let limit = turns
        .limit
        .map_or(String::new(), |limit| format!(" (to reach: {limit} s)"));
    println!(
        "{:<20} {:.2} s{limit} for {:.0} s of the machines' time; {} commands to drives, {:.0} a second",
        turns.name,
        turns.seconds,
        turns.simulated_seconds,
        turns.commands,
        turns.commands as f64 / turns.seconds
    );
}

fn to_json(turns: &Turns) -> Value {
    json!({
        "experiment": turns.name,
        "seconds": turns.seconds,
        "limit_seconds": turns.limit,
        "simulated_seconds": turns.simulated_seconds,
        "commands": turns.commands,
    })
}
