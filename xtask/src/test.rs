//! Format, lints, tidy, every test, every fuzz target, a storm.

use std::path::PathBuf;

use crate::programs;

/// Runs everything that must hold before a change lands, and prints the count of tests: a fuzz target
/// that survives its minute counts as one, and so does a storm.
pub(crate) fn run(with_fuzz: bool) -> Result<(), String> {
    let seconds = if with_fuzz { fuzz_seconds()? } else { 0 };
    crate::room::check(&target_folder())?;
    oracle::install::install()?;
    crate::run("cargo", &["fmt", "--all", "--check"])?;
    crate::run(
        "cargo",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    )?;
    crate::tidy::run()?;
    if seconds > 0 {
        // Built here, so that one that does not build is told of before all tests have run.
        crate::fuzz::build()?;
    }
    let (mut passed, mut failed, mut outcome) = programs::run()?;
    if seconds == 0 {
        println!("SKIPPED: fuzz targets");
    } else {
        match crate::fuzz::run(seconds, &[]) {
            Ok(count) => {
                passed += count.passed;
                failed += count.failed;
            }
            Err(complaint) => outcome = outcome.and(Err(complaint)),
        }
    }
    if let Some(outcome) = crate::storm::for_the_test(with_fuzz)? {
        match outcome {
            Ok(()) => passed += 1,
            Err(complaint) => {
                failed += 1;
                println!("storm ... FAILED\n{complaint}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 {
        return Err("tests failed".into());
    }
    outcome
}

/// Where cargo builds.
fn target_folder() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| crate::root().join("target"))
}

/// How long each fuzz target runs: `FUZZ_SECONDS`, or a minute.
fn fuzz_seconds() -> Result<u32, String> {
    std::env::var("FUZZ_SECONDS").map_or(Ok(60), |seconds| {
        seconds
            .parse()
            .map_err(|_| format!("FUZZ_SECONDS={seconds} is not a number"))
    })
}
