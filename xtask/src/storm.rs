//! Runs the whole-pool simulator (`torture::storm`) for a while, with random seeds.

use std::path::PathBuf;

/// So long, unless told otherwise; the last script may take some more.
const SECONDS: u32 = 90;
/// Simulated hours of each script.
const HOURS: &str = "1";

/// `cargo xtask storm [SECONDS]`.
pub(crate) fn command(args: &[String]) -> Result<(), String> {
    let seconds = match args {
        [] => SECONDS,
        [seconds] => seconds.parse().map_err(|_| "SECONDS is a number")?,
        _ => return Err("storm takes one number".into()),
    };
    run(seconds)
}

/// The storm of `cargo xtask test`: so many seconds as `STORM_SECONDS` says. `None` without one.
pub(crate) fn for_the_test(is_wanted: bool) -> Result<Option<Result<(), String>>, String> {
    let seconds = std::env::var("STORM_SECONDS").map_or(Ok(SECONDS), |seconds| {
        let number = seconds.parse();
        number.map_err(|_| format!("STORM_SECONDS={seconds} is not a number"))
    })?;
    if seconds == 0 || !is_wanted {
        println!("SKIPPED: storm");
        return Ok(None);
    }
    Ok(Some(run(seconds)))
}

fn run(seconds: u32) -> Result<(), String> {
    // With the features that the tests were built with: nothing is built twice.
    let build = ["build", "--workspace", "--quiet", "--bin", "torture"];
    crate::run("cargo", &build)?;
    let program = std::env::var_os("CARGO_TARGET_DIR")
        .map_or(crate::root().join("target"), PathBuf::from)
        .join("debug/torture");
    let minutes = format!("{}", f64::from(seconds) / 60.0);
    let args = ["storm", "--hours", HOURS, "--minutes", &minutes];
    crate::run(&program.display().to_string(), &args)
}
