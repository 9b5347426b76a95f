//! Builds the fuzz targets and runs each for a while, as many at a time as there are cores.
//!
//! # What it is
//! `fuzz/` is a workspace of its own; each file of `fuzz/fuzz_targets` is a libFuzzer program. They
//! are built with the stable compiler, told by `RUSTC_BOOTSTRAP` to accept what the address sanitizer
//! needs, and with the flags that `cargo fuzz` gives: nothing has to be installed but a C++
//! compiler. `cargo fuzz` itself stays useful by hand (`fuzz/README.md`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// What makes libFuzzer see which paths an input takes, and the address sanitizer watch.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Zsanitizer=address",
    "-Cdebug-assertions",
    "--cfg=fuzzing",
];
/// A target may take this much memory, and this long for one input.
const LIMITS: &[&str] = &["-rss_limit_mb=2048", "-timeout=60"];
/// The end of a failed target's output that is shown.
const LINES_SHOWN: usize = 60;

/// How many targets survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    /// Without a panic.
    pub(crate) passed: u64,
    /// With one; all about it was printed.
    pub(crate) failed: u64,
}

/// `cargo xtask fuzz [SECONDS] [TARGET…]`.
pub(crate) fn command(args: &[String]) -> Result<(), String> {
    let (seconds, wanted) = match args.split_first() {
        Some((first, rest)) if first.starts_with(|c: char| c.is_ascii_digit()) => {
            let number = first.parse();
            (number.map_err(|_| "SECONDS is a number")?, rest)
        }
        _ => (60, args),
    };
    let count = run(seconds, wanted)?;
    println!("{} passed, {} failed", count.passed, count.failed);
    if count.failed == 0 {
        Ok(())
    } else {
        Err("fuzz targets failed".into())
    }
}

/// Builds all targets and runs those that are `wanted` (all, if none is named) for `seconds` each.
pub(crate) fn run(seconds: u32, wanted: &[String]) -> Result<Count, String> {
    let mut targets = targets()?;
    if let Some(unknown) = wanted.iter().find(|w| !targets.contains(w)) {
        return Err(format!("there is no fuzz target {unknown}"));
    }
    targets.retain(|t| wanted.is_empty() || wanted.contains(t));
    let programs = build()?;
    let todo = Mutex::new(targets.iter());
    let count = Mutex::new(Count {
        passed: 0,
        failed: 0,
    });
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers.min(targets.len()) {
            scope.spawn(|| {
                loop {
                    let next = todo.lock().expect("no worker panics").next();
                    let Some(target) = next else { break };
                    let outcome = run_one(target, &programs, seconds);
                    let mut count = count.lock().expect("no worker panics");
                    match outcome {
                        Ok(runs) => {
                            count.passed += 1;
                            println!("fuzz {target} ... ok ({runs} inputs in {seconds} s)");
                        }
                        Err(what) => {
                            count.failed += 1;
                            println!("fuzz {target} ... FAILED\n{what}");
                        }
                    }
                }
            });
        }
    });
    let count = *count.lock().expect("no worker panics");
    Ok(count)
}

/// The names of the files of `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>, String> {
    let folder = crate::root().join("fuzz/fuzz_targets");
    let mut targets: Vec<String> = fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|e| e.ok()?.path().file_stem()?.to_str().map(String::from))
        .collect();
    targets.sort();
    if targets.is_empty() {
        return Err("there is no fuzz target".into());
    }
    Ok(targets)
}

/// Builds every target; the folder of the programs.
pub(crate) fn build() -> Result<PathBuf, String> {
    let host = host_triple()?;
    let folder = std::env::var_os("CARGO_TARGET_DIR")
        .map_or(crate::root().join("target"), PathBuf::from)
        .join("fuzz");
    eprintln!(
        "$ cargo build --release --bins  (in fuzz/, with coverage and the address sanitizer)"
    );
    let started = Instant::now();
    let status = Command::new("cargo")
        .args(["build", "--release", "--bins", "--quiet", "--target", &host])
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(crate::root().join("fuzz"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build".into());
    }
    eprintln!("fuzz targets built in {} s", started.elapsed().as_secs());
    Ok(folder.join(host).join("release"))
}

fn host_triple() -> Result<String, String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|l| l.strip_prefix("host: "));
    Ok(host.ok_or("rustc names no host")?.to_owned())
}

/// Runs one target; how many inputs it survived, or all about the one that it did not.
fn run_one(target: &str, programs: &Path, seconds: u32) -> Result<u64, String> {
    let fuzz = crate::root().join("fuzz");
    let (corpus, crashes) = (
        fuzz.join("corpus").join(target),
        fuzz.join("artifacts").join(target),
    );
    for folder in [&corpus, &crashes] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut command = Command::new(programs.join(target));
    command
        .args(LIMITS)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .arg("-print_final_stats=1")
        .arg(&corpus);
    let seeds = fuzz.join("seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{target}: {e}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(inputs_run(&log));
    }
    let mut what = last_lines(&log, LINES_SHOWN);
    if let Some(file) = crash_file(&log) {
        what.push_str(&format!("\nthe input, {file}:\n"));
        what.push_str(&hex(&fs::read(&file).unwrap_or_default()));
        what.push_str(&format!("again with: cargo fuzz run {target} {file}\n"));
    }
    Err(what)
}

/// libFuzzer's own count.
fn inputs_run(log: &str) -> u64 {
    let line = log
        .lines()
        .find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// Where libFuzzer put the input that failed.
fn crash_file(log: &str) -> Option<String> {
    log.lines()
        .find_map(|l| l.split_once("Test unit written to ").map(|(_, file)| file))
        .map(|file| file.trim().to_owned())
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// 32 bytes in a line.
fn hex(bytes: &[u8]) -> String {
    let line = |chunk: &[u8]| chunk.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n";
    bytes.chunks(32).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_understood() {
        let log = "#12\tDONE\nstat::number_of_executed_units: 4711\n\
                   artifact_prefix='a/'; Test unit written to a/crash-1f\nBase64: AA==\n";
        assert_eq!(inputs_run(log), 4711);
        assert_eq!(crash_file(log).as_deref(), Some("a/crash-1f"));
        assert_eq!(crash_file("stat::"), None);
    }

    #[test]
    fn inputs_are_printed_whole() {
        let text = hex(&[0xab; 33]);
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [64, 2]);
    }
}
