//! Format, lints, tidy, every test, every fuzz target, a storm.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Runs everything that must hold before a change lands, and prints the count of tests: a fuzz target
/// that survives its minute counts as one, and so does a storm.
pub(crate) fn run(with_fuzz: bool) -> Result<(), String> {
    let seconds = if with_fuzz { fuzz_seconds()? } else { 0 };
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
    let (mut passed, mut failed, mut outcome) = tests()?;
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

/// How long each fuzz target runs: `FUZZ_SECONDS`, or a minute.
fn fuzz_seconds() -> Result<u32, String> {
    std::env::var("FUZZ_SECONDS").map_or(Ok(60), |seconds| {
        seconds
            .parse()
            .map_err(|_| format!("FUZZ_SECONDS={seconds} is not a number"))
    })
}

/// Runs `cargo test`, shows its output, adds up its closing lines: passed, failed, and how it ended.
fn tests() -> Result<(u64, u64, Result<(), String>), String> {
    eprintln!("$ cargo test --workspace");
    let mut child = Command::new("cargo")
        .args(["test", "--workspace", "--no-fail-fast"])
        .current_dir(crate::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cargo: {e}"))?;
    let output = child.stdout.take().expect("it is piped");
    let (mut passed, mut failed) = (0u64, 0u64);
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        println!("{line}");
        if let Some(counts) = line.strip_prefix("test result: ") {
            passed += number_before(counts, " passed");
            failed += number_before(counts, " failed");
        }
    }
    let status = child.wait().map_err(|e| format!("cargo: {e}"))?;
    let outcome = if status.success() && passed > 0 {
        Ok(())
    } else {
        Err("cargo test failed".into())
    };
    Ok((passed, failed, outcome))
}

/// The number that stands right before `word`; 0 when there is none.
fn number_before(text: &str, word: &str) -> u64 {
    let Some(end) = text.find(word) else { return 0 };
    let digits = text[..end]
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or("");
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::number_before;

    #[test]
    fn closing_lines_are_counted() {
        let line = "ok. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            (
                number_before(line, " passed"),
                number_before(line, " failed")
            ),
            (12, 3)
        );
    }
}
