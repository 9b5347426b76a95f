//! `ashift machine up`, `down`, `reboot` and `status`: a machine that stays switched on.

use std::path::Path;

use serde_json::json;

use super::command::{Request, check_none, seconds};
use crate::background;
use crate::failure::{Fail, Outcome};
use crate::holder::{self, Restart};
use crate::world::{is_entered, open};

/// What is done to a machine from outside, or refused while it is up.
const OUTSIDE: [&str; 7] = [
    "up",
    "down",
    "reboot",
    "status",
    "power-cut",
    "mount",
    "destroy",
];

/// Has the process that keeps a machine up do what `ashift machine` is asked; `None` if that is done here.
pub(super) fn forward(verb: &str, folder: &Path, args: &[String]) -> Option<Outcome> {
    if is_entered() || OUTSIDE.contains(&verb) {
        return None;
    }
    let words = [&["machine".to_owned()], args].concat();
    holder::forward(&folder.join("state"), &words)
}

fn fail<T>(folder: &Path, what: &str) -> Outcome<T> {
    let text = format!("machine '{}' {what}", folder.display());
    Err(Fail::Failed(text))
}

/// Refuses what cannot be done by a command that runs in a machine.
fn check_outside(folder: &Path) -> Outcome {
    match is_entered() {
        true => fail(folder, "cannot be switched off by what runs in it"),
        false => Ok(()),
    }
}

/// Refuses what cannot be done to a machine that is up.
pub(super) fn check_down(folder: &Path) -> Outcome {
    check_outside(folder)?;
    match holder::process(&folder.join("state"))?.is_some() {
        true => fail(folder, "is up: 'ashift machine down' switches it off"),
        false => Ok(()),
    }
}

/// `ashift machine up`.
pub(super) fn up(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    check_none(operands)?;
    check_outside(folder)?;
    if holder::process(&folder.join("state"))?.is_some() {
        return fail(folder, "is up already");
    }
    if request.is_background && !background::is_background() {
        let words = ["machine", "up", "--background"].map(AsRef::as_ref);
        let words = [&words[..], &[folder.as_os_str()]].concat();
        return Ok(background::start(&words, "ashift machine: ")?);
    }
    holder::serve_machine(folder)
}

/// `ashift machine down`.
pub(super) fn down(folder: &Path, operands: &[String], _: &Request) -> Outcome {
    check_none(operands)?;
    check_outside(folder)?;
    holder::stop(&folder.join("state")).unwrap_or_else(|| fail(folder, "is not up"))
}

/// `ashift machine reboot`.
pub(super) fn reboot(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    check_none(operands)?;
    check_outside(folder)?;
    let how = match request.cuts_power {
        true => Restart::PowerCut(request.seed),
        false => Restart::Reboot,
    };
    restart(folder, how).unwrap_or_else(|| fail(folder, "is not up"))
}

/// Has a machine begin anew; `None` if it is not up.
pub(super) fn restart(folder: &Path, how: Restart) -> Option<Outcome> {
    if is_entered() {
        return Some(check_outside(folder));
    }
    holder::restart(&folder.join("state"), how)
}

/// `ashift machine status`.
pub(super) fn status(folder: &Path, operands: &[String], request: &Request) -> Outcome {
    check_none(operands)?;
    let process = holder::process(&folder.join("state"))?;
    if process.is_some() && !is_entered() {
        let mut words = vec!["machine".to_owned(), "status".to_owned()];
        words.extend(request.is_json.then(|| "-j".to_owned()));
        if let Some(outcome) = holder::forward(&folder.join("state"), &words) {
            return outcome;
        }
    }
    let clock_ns = match is_entered() {
        true => rt::now_ns(),
        false => open(folder)?.clock_ns(),
    };
    let clock = seconds(clock_ns);
    match process {
        _ if request.is_json => {
            let is_up = process.is_some();
            let value = json!({ "is_up": is_up, "process": process, "clock_ns": clock_ns });
            println!("{value:#}");
        }
        Some(process) => println!("up (process {process}), clock at {clock}"),
        None => println!("down, clock at {clock}"),
    }
    Ok(())
}
