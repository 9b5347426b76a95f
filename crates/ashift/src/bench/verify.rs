//! `ashift bench verify`: our check of every block of a pool beside `zdb -bcc`.

use std::path::Path;
use std::process::{Command, Stdio};

use base::{Context, Error, ErrorKind, Result};
use serde_json::json;

use super::turns::{median, own_program};
use super::{Words, usage_error};
use crate::failure::Outcome;

/// The speed-up over `zdb` to reach.
const GOAL: f64 = 5.0;

/// `ashift bench verify`
pub(super) fn run(words: &mut Words) -> Outcome {
    let dir = words.take("dir").ok_or_else(usage_error)?;
    let zdb = words.take("zdb").unwrap_or_else(|| "zdb".into());
    let runs = words.take_number("runs", 5)?;
    words.check_all_taken()?;
    let [pool] = &words.operands[..] else {
        return Err(usage_error());
    };
    let own = own_program()?;
    let args = ["-e", "-p", &dir, "-bcc", pool];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        theirs.push(seconds(Path::new(&zdb), &args)?);
        let own_args = [&["zdb"], &args[..]].concat();
        ours.push(seconds(&own, &own_args)?);
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    let ratio = theirs / ours;
    if words.is_json {
        let value = json!({
            "ours_seconds": ours, "zdb_seconds": theirs, "ratio": ratio, "goal": GOAL, "runs": runs,
        });
        println!("{value}");
    } else {
        println!("seconds, medians      ours       zdb    zdb/ours (goal)");
        println!("verify           {ours:>9.2} {theirs:>9.2} {ratio:>9.2} ({GOAL})");
    }
    Ok(())
}

/// The seconds that a program runs; it must succeed.
fn seconds(program: &Path, args: &[&str]) -> Result<f64> {
    let name = || program.display().to_string();
    let start = rt::now_ns();
    // Progress goes to stderr, which matters only if the program fails.
    let output = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .output()
        .map_err(Error::from)
        .within(name)?;
    let seconds = (rt::now_ns() - start) as f64 / 1e9;
    if output.status.success() {
        return Ok(seconds);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().next_back().unwrap_or_default();
    Err(Error::new(
        ErrorKind::Io,
        format!("{} ended with {}: {last}", name(), output.status),
    ))
}
