//! Planted mistakes: each has to be found by a test.
//!
//! # What it is
//! `xtask/mutants.txt` lists mistakes as lines that are replaced by others. Each is made in a checkout of its own
//! (`target/mutants/tree`, so that nobody's work is touched), built, and the tests that should find it are run, then
//! storms. What no test finds *survives*, and the command fails. A test that hangs is stopped, and has found it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIST: &str = "xtask/mutants.txt";
/// A run of tests that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20 * 60);
/// How long storms are tried where tests have found nothing.
const STORM_MINUTES: &str = "3";

/// One mistake.
#[derive(Debug, Default)]
struct Mutant {
    what: String,
    file: String,
    tests: Vec<String>,
    before: String,
    after: String,
}

/// `cargo xtask mutants [WORD]`: all, or those whose description or file has the word.
pub(crate) fn command(args: &[String]) -> Result<(), String> {
    let word = match args {
        [] => "",
        [word] => word,
        _ => return Err("mutants takes one word".into()),
    };
    let root = crate::root();
    let mutants = read(&root)?;
    let wanted = |mutant: &&Mutant| mutant.what.contains(word) || mutant.file.contains(word);
    let mutants: Vec<&Mutant> = mutants.iter().filter(wanted).collect();
    let bench = Bench::new(&root)?;
    let mut survivors = Vec::new();
    for mutant in &mutants {
        match bench.find(mutant)? {
            Some(by) => println!("found by {by}: {}", mutant.what),
            None => {
                println!("SURVIVES: {} ({})", mutant.what, mutant.file);
                survivors.push(mutant.what.as_str());
            }
        }
    }
    println!("{} mistakes, {} survive", mutants.len(), survivors.len());
    match survivors.is_empty() {
        true => Ok(()),
        false => Err(format!("no test finds: {}", survivors.join("; "))),
    }
}

fn read(root: &Path) -> Result<Vec<Mutant>, String> {
    let text = fs::read_to_string(root.join(LIST)).map_err(|e| format!("{LIST}: {e}"))?;
    let mutants = parse(&text)?;
    for mutant in &mutants {
        let source = fs::read_to_string(root.join(&mutant.file));
        let source = source.map_err(|e| format!("{}: {e}", mutant.file))?;
        mutant.apply(&source)?;
    }
    Ok(mutants)
}

fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let at = |what: &str| format!("{LIST}:{}: {what}", n + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(what) = line.strip_prefix("mutant ") {
            mutants.push(Mutant {
                what: what.to_owned(),
                ..Mutant::default()
            });
            continue;
        }
        let mutant = mutants.last_mut().ok_or_else(|| at("no mutant yet"))?;
        match line.split_at(1) {
            ("-", line) => mutant.before += &format!("{line}\n"),
            ("+", line) => mutant.after += &format!("{line}\n"),
            _ => match line.split_once(' ') {
                Some(("file", file)) => mutant.file = file.to_owned(),
                Some(("test", names)) => {
                    mutant.tests = names.split_whitespace().map(str::to_owned).collect();
                }
                _ => return Err(at("neither mutant, file, test, - nor +")),
            },
        }
    }
    Ok(mutants)
}

impl Mutant {
    /// The source with the mistake. The last of the lines may be the beginning of one.
    fn apply(&self, source: &str) -> Result<String, String> {
        let (before, after) = (self.before.trim_end(), self.after.trim_end());
        match source.matches(before).count() {
            _ if before.is_empty() || before == after => {
                Err(format!("nothing to do: {}", self.what))
            }
            1 => Ok(source.replacen(before, after, 1)),
            count => {
                let Mutant { what, file, .. } = self;
                Err(format!("{file} has the lines {count} times: {what}"))
            }
        }
    }
}

/// A checkout in which mistakes are made.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
}

impl Bench {
    /// A checkout of what is committed.
    fn new(root: &Path) -> Result<Bench, String> {
        let folder = root.join("target/mutants");
        let bench = Bench {
            tree: folder.join("tree"),
            target: folder.join("target"),
        };
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        if !bench.tree.exists() {
            let tree = bench.tree.display().to_string();
            crate::run("git", &["worktree", "prune"])?;
            crate::run("git", &["worktree", "add", "--quiet", "--detach", &tree])?;
        }
        let head = Command::new("git")
            .args(["rev-parse", "HEAD"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git: {e}"))?;
        let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
        bench.git(&["checkout", "--quiet", "--force", "--detach", &head])?;
        Ok(bench)
    }

    fn git(&self, args: &[&str]) -> Result<(), String> {
        let status = Command::new("git")
            .args(args)
            .current_dir(&self.tree)
            .status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("git {}: {other:?}", args.join(" "))),
        }
    }

    /// What finds the mistake.
    fn find(&self, mutant: &Mutant) -> Result<Option<String>, String> {
        let path = self.tree.join(&mutant.file);
        let source = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", mutant.file))?;
        let wrong = mutant.apply(&source)?;
        fs::write(&path, wrong).map_err(|e| format!("{}: {e}", mutant.file))?;
        let found = self.run_tests(mutant);
        fs::write(&path, source).map_err(|e| format!("{}: {e}", mutant.file))?;
        found
    }

    fn run_tests(&self, mutant: &Mutant) -> Result<Option<String>, String> {
        let mut which = vec!["--workspace".to_owned()];
        for test in &mutant.tests {
            match test.as_str() {
                "lib" => which.push("--lib".into()),
                name => which.extend(["--test".into(), name.to_owned()]),
            }
        }
        let build = [
            &["test".to_owned(), "--quiet".into(), "--no-run".into()][..],
            &which,
        ]
        .concat();
        if !self.cargo(&build) {
            return Err(format!("it does not build: {}", mutant.what));
        }
        if !self.cargo(&[&["test".to_owned(), "--quiet".into()][..], &which].concat()) {
            return Ok(Some(mutant.tests.join(" ")));
        }
        let build = ["build", "--quiet", "--workspace", "--bin", "torture"];
        if !self.cargo(&build.map(str::to_owned)) {
            return Err(format!("torture does not build: {}", mutant.what));
        }
        let storm = ["storm", "--minutes", STORM_MINUTES].map(str::to_owned);
        let program = self.target.join("debug/torture");
        let is_calm = self.is_well(Command::new(program).args(storm));
        Ok((!is_calm).then(|| "a storm".to_owned()))
    }

    /// Whether cargo says that all is well, in time.
    fn cargo(&self, args: &[String]) -> bool {
        self.is_well(Command::new("cargo").args(args))
    }

    /// Whether a command succeeds in time. One that does not is stopped with all that it has started.
    fn is_well(&self, command: &mut Command) -> bool {
        let child = command
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let Ok(mut child) = child else { return false };
        let begun = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                _ => {
                    let group = format!("-{}", child.id());
                    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                    let _ = child.wait();
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_can_be_made_in_the_code_as_it_is() {
        let mutants = read(&crate::root()).unwrap_or_else(|e| panic!("{e}"));
        assert!(mutants.len() >= 30);
        for mutant in mutants {
            assert!(!mutant.tests.is_empty(), "{}", mutant.what);
        }
    }

    #[test]
    fn a_list_is_parsed_and_lines_are_replaced() {
        let text = "# note\nmutant x is 2\nfile a.rs\ntest one two\n-let x = 1;\n+let x = 2;\n";
        let mutants = parse(text).unwrap();
        assert_eq!(mutants[0].tests, ["one", "two"]);
        let source = "fn f() {\nlet x = 1;\n}\n";
        let wrong = mutants[0].apply(source).unwrap();
        assert_eq!(wrong, "fn f() {\nlet x = 2;\n}\n");
        assert!(mutants[0].apply("let x = 1; let x = 1;").is_err());
        assert!(parse("-let").is_err());
    }
}
