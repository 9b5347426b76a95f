//! Runs every test program of the workspace, several at a time.
//!
//! # What it is
//! `cargo test` runs one program after the other, and waits for the slowest test of each. Many tests wait for
//! disks, for virtual machines, or for a bound to pass, so the processors are idle for half the time. Here the programs
//! are built by cargo and share the machine: the output of each is shown as a whole when it ends. Those that take
//! minutes begin first.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use serde_json::Value;

/// Programs that take minutes, the slowest first.
const LONG: [&str; 12] = [
    "kernel", "host", "storm", "matrix", "zfs", "reflow", "mount", "removal", "upgrade", "tree",
    "sweep", "plan",
];
/// Programs at a time; each runs as many tests at a time as there are processors. Three take as long on two processors.
const AT_ONCE: usize = 2;

/// A test program.
struct Program {
    /// The folder of its package, where cargo would run it.
    folder: PathBuf,
    name: String,
    path: PathBuf,
}

/// How many tests passed and failed.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    /// Programs that did not end well.
    bad: Vec<String>,
}

impl Count {
    /// Adds the closing lines of a program's output, and how it ended.
    fn add(&mut self, name: &str, output: &str, is_success: bool) {
        let mut seen = false;
        for line in output.lines() {
            if let Some(counts) = line.strip_prefix("test result: ") {
                seen = true;
                self.passed += number_before(counts, " passed");
                self.failed += number_before(counts, " failed");
            }
        }
        if !is_success || !seen {
            self.bad.push(name.to_owned());
        }
    }
}

/// Runs all of them and the examples in documentation: passed, failed, and how it ended.
pub(crate) fn run() -> Result<(u64, u64, Result<(), String>), String> {
    let mut programs = build()?;
    programs.sort_by_key(|program| {
        let at = LONG.iter().position(|name| *name == program.name);
        at.unwrap_or(LONG.len())
    });
    programs.reverse();
    let waiting = Mutex::new(programs);
    let count = Mutex::new(Count::default());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no worker panics").pop();
                    let Some(program) = next else { break };
                    let started = Instant::now();
                    let (output, is_success) = run_one(&program);
                    let mut count = count.lock().expect("no worker panics");
                    let seconds = started.elapsed().as_secs();
                    let folder = program.folder.file_name().unwrap_or_default();
                    println!(
                        "     Running {}/{} ({seconds} s)",
                        folder.display(),
                        program.name
                    );
                    println!("{output}");
                    count.add(&program.name, &output, is_success);
                }
            });
        }
    });
    let mut count = count.into_inner().expect("no worker panics");
    let examples = Program {
        folder: crate::root(),
        name: "documentation".into(),
        path: "cargo".into(),
    };
    let (output, is_success) = captured(
        Command::new(&examples.path)
            .args(["test", "--workspace", "--doc", "--quiet"])
            .current_dir(&examples.folder),
    );
    println!("{output}");
    count.add(&examples.name, &output, is_success);
    let outcome = match &count.bad[..] {
        [] if count.passed > 0 => Ok(()),
        [] => Err("there are no tests".to_owned()),
        bad => Err(format!("failed: {}", bad.join(", "))),
    };
    Ok((count.passed, count.failed, outcome))
}

/// Builds the test programs.
fn build() -> Result<Vec<Program>, String> {
    eprintln!("$ cargo test --workspace --no-run");
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(crate::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err("the tests do not build".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let programs: Vec<Program> = text.lines().filter_map(program).collect();
    Ok(programs)
}

/// The test program that a message of cargo tells of.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    Some(Program {
        folder: manifest.parent()?.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
    })
}

fn run_one(program: &Program) -> (String, bool) {
    captured(
        Command::new(&program.path)
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder),
    )
}

/// What a command printed on both streams, in order, and whether it ended well.
fn captured(command: &mut Command) -> (String, bool) {
    run_captured(command).unwrap_or_else(|error| (format!("{command:?}: {error}"), false))
}

fn run_captured(command: &mut Command) -> std::io::Result<(String, bool)> {
    let (mut reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    // The ends for writing that the command holds are closed, so that reading ends with the child.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let status = child.wait()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((text, status.success()))
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
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let mut count = Count::default();
        let line = "test result: ok. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        count.add("one", line, true);
        count.add("two", line, false);
        assert_eq!((count.passed, count.failed), (24, 6));
        assert_eq!(count.bad, ["two"]);
    }

    #[test]
    fn a_program_that_says_nothing_has_failed() {
        let mut count = Count::default();
        count.add("silent", "", true);
        assert_eq!(count.bad, ["silent"]);
    }

    #[test]
    fn output_is_kept_in_order() {
        let mut shell = Command::new("sh");
        let (output, is_success) =
            captured(shell.args(["-c", "echo a; echo b >&2; echo c; exit 3"]));
        assert_eq!((&*output, is_success), ("a\nb\nc\n", false));
        assert!(!captured(&mut Command::new("/is/not/there")).1);
    }

    #[test]
    fn messages_of_cargo_name_test_programs() {
        let message = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/b/Cargo.toml","target":{{"name":"t"}},
                "profile":{{"test":{test}}},"executable":"/t/t-1"}}"#
            )
        };
        let found = program(&message(true)).unwrap();
        assert_eq!(found.folder, PathBuf::from("/a/b"));
        assert_eq!((&*found.name, found.path), ("t", PathBuf::from("/t/t-1")));
        assert!(program(&message(false)).is_none() && program("{").is_none());
    }
}
