//! Planted mistakes: each has to be found by a test.
//!
//! # What it is
//! `xtask/mutants.txt` lists mistakes as lines that are replaced by others. All are made at once in a checkout of its
//! own (`target/mutants/tree`, so that nobody's work is touched): a function that gets one has its body twice, as it
//! is and with the mistake, and `PLANTED_MISTAKE` says at run time which of all mistakes is alive. So everything is
//! built once. Then, for each mistake, the tests that should find it are run, then storms. What no test finds
//! *survives*, and the command fails. A test that hangs is stopped, and has found it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const LIST: &str = "xtask/mutants.txt";
/// Names the mistake that is alive, by its number in the list.
const ALIVE: &str = "PLANTED_MISTAKE";
/// A run of tests that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
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
    let wanted = |mutant: &Mutant| mutant.what.contains(word) || mutant.file.contains(word);
    let wanted: Vec<usize> = (0..mutants.len())
        .filter(|n| wanted(&mutants[*n]))
        .collect();
    let bench = Bench::new(&root, &mutants)?;
    let mut survivors = Vec::new();
    for n in &wanted {
        let mutant = &mutants[*n];
        let begun = Instant::now();
        match bench.find(*n, mutant)? {
            Some(by) => {
                let seconds = begun.elapsed().as_secs();
                println!("found by {by} in {seconds} s: {}", mutant.what);
            }
            None => {
                println!("SURVIVES: {} ({})", mutant.what, mutant.file);
                survivors.push(mutant.what.as_str());
            }
        }
    }
    println!("{} mistakes, {} survive", wanted.len(), survivors.len());
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
        mutant.plant(&source)?;
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
    /// The body of the function that has the lines, its place in the source, and as it is with the mistake.
    /// The last of the lines may be the beginning of one.
    fn plant(&self, source: &str) -> Result<(Range<usize>, String), String> {
        let Mutant { what, file, .. } = self;
        let (before, after) = (self.before.trim_end(), self.after.trim_end());
        if before.is_empty() || before == after {
            return Err(format!("nothing to do: {what}"));
        }
        let at = match source.matches(before).count() {
            1 => source.find(before).expect("counted"),
            count => return Err(format!("{file} has the lines {count} times: {what}")),
        };
        let lines = at..at + before.len();
        let body = body_around(source, &lines).map_err(|e| format!("{file}: {e}: {what}"))?;
        let (ahead, behind) = (
            &source[body.start..lines.start],
            &source[lines.end..body.end],
        );
        Ok((body, format!("{ahead}{after}{behind}")))
    }
}

/// The innermost body of a function around these bytes.
fn body_around(source: &str, lines: &Range<usize>) -> Result<Range<usize>, String> {
    struct Bodies(Vec<Range<usize>>);
    impl<'a> Visit<'a> for Bodies {
        fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
            self.0.push(item.block.span().byte_range());
            visit::visit_item_fn(self, item);
        }
        fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
            self.0.push(item.block.span().byte_range());
            visit::visit_impl_item_fn(self, item);
        }
    }
    let file = syn::parse_file(source).map_err(|e| e.to_string())?;
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(&file);
    let around = bodies.0.into_iter();
    around
        .filter(|body| body.start < lines.start && lines.end < body.end)
        .min_by_key(ExactSizeIterator::len)
        .ok_or_else(|| "the lines are not in one function".into())
}

/// The source with all these mistakes in it, each behind its number.
fn plant_all(source: &str, mutants: &[(usize, &Mutant)]) -> Result<String, String> {
    let mut bodies: BTreeMap<usize, (Range<usize>, String)> = BTreeMap::new();
    for (n, mutant) in mutants {
        let (body, wrong) = mutant.plant(source)?;
        let (_, text) = bodies
            .entry(body.start)
            .or_insert_with(|| (body.clone(), source[body].to_owned()));
        *text = format!(
            "{{ static PLANTED: ::std::sync::OnceLock<bool> = ::std::sync::OnceLock::new(); \
             if *PLANTED.get_or_init(|| ::std::env::var(\"{ALIVE}\").is_ok_and(|n| n == \"{n}\")) \
             {wrong} else {text} }}"
        );
    }
    let mut planted = source.to_owned();
    for (body, text) in bodies.into_values().rev() {
        planted.replace_range(body, &text);
    }
    Ok(planted)
}

/// A checkout in which mistakes were made, and what was built there.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
    /// The tests of each package, with the folder in which they run: the crate's own are called `lib`.
    tests: BTreeMap<(PathBuf, String), PathBuf>,
}

impl Bench {
    /// What is committed, with all these mistakes.
    fn new(root: &Path, mutants: &[Mutant]) -> Result<Bench, String> {
        let folder = root.join("target/mutants");
        let mut bench = Bench {
            tree: folder.join("tree"),
            target: folder.join("target"),
            tests: BTreeMap::new(),
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
        bench.plant(mutants)?;
        bench.build(mutants)?;
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

    fn plant(&self, mutants: &[Mutant]) -> Result<(), String> {
        let mut files: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (n, mutant) in mutants.iter().enumerate() {
            files.entry(&mutant.file).or_default().push((n, mutant));
        }
        for (file, mutants) in files {
            let path = self.tree.join(file);
            let source = fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
            let planted = plant_all(&source, &mutants)?;
            fs::write(&path, planted).map_err(|e| format!("{file}: {e}"))?;
        }
        Ok(())
    }

    /// Builds all tests that any mistake wants, and the storms.
    fn build(&mut self, mutants: &[Mutant]) -> Result<(), String> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--workspace", "--no-run", "--lib", "--quiet"]);
        let mut names: Vec<&String> = mutants.iter().flat_map(|m| &m.tests).collect();
        names.sort();
        names.dedup();
        for name in names.into_iter().filter(|name| *name != "lib") {
            cargo.args(["--test", name]);
        }
        let tests = self.cargo(cargo.arg("--message-format=json-render-diagnostics"))?;
        for line in tests.lines() {
            let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let text = |path: &str| message.pointer(path).and_then(|value| value.as_str());
            let (Some(program), Some(manifest)) = (text("/executable"), text("/manifest_path"))
            else {
                continue;
            };
            let folder = Path::new(manifest).parent().unwrap_or(Path::new("/"));
            let name = match text("/target/kind/0") {
                Some("test") => text("/target/name").unwrap_or_default(),
                _ => "lib",
            };
            let key = (folder.to_owned(), name.to_owned());
            self.tests.insert(key, program.into());
        }
        let storms = ["build", "--quiet", "--workspace", "--bin", "torture"];
        self.cargo(Command::new("cargo").args(storms)).map(drop)
    }

    /// What cargo prints on its standard output.
    fn cargo(&self, cargo: &mut Command) -> Result<String, String> {
        let output = cargo
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "--cap-lints=allow")
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("cargo: {e}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err("the code with the mistakes does not build".into()),
        }
    }

    /// What finds a mistake.
    fn find(&self, n: usize, mutant: &Mutant) -> Result<Option<String>, String> {
        for name in &mutant.tests {
            let (folder, program) = self.test(name, mutant)?;
            if !self.is_well(n, folder, &mut Command::new(program)) {
                return Ok(Some(name.clone()));
            }
        }
        let storm = ["storm", "--minutes", STORM_MINUTES];
        let mut program = Command::new(self.target.join("debug/torture"));
        let is_calm = self.is_well(n, &self.tree, program.args(storm));
        Ok((!is_calm).then(|| "a storm".to_owned()))
    }

    /// A test by its name: of the mistake's own crate, or of the only one that has it.
    fn test(&self, name: &str, mutant: &Mutant) -> Result<(&Path, &Path), String> {
        let own = self.tree.join(&mutant.file);
        let mut named = self.tests.iter().filter(|((folder, test), _)| {
            test == name && (name != "lib" || own.starts_with(folder))
        });
        let Some(((folder, _), program)) = named.next() else {
            return Err(format!(
                "{LIST}: there is no test '{name}': {}",
                mutant.what
            ));
        };
        Ok((folder, program))
    }

    /// Whether a command succeeds in time with a mistake. One that does not is stopped with all that it has started.
    fn is_well(&self, n: usize, folder: &Path, command: &mut Command) -> bool {
        let child = command
            .current_dir(folder)
            .env(ALIVE, n.to_string())
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
    fn a_list_is_parsed_and_mistakes_are_planted_side_by_side() {
        let text = "# note\nmutant x is 2\nfile a.rs\ntest one two\n-let x = 1;\n+let x = 2;\n\
                    mutant y\nfile a.rs\ntest lib\n-x + 1\n+x + 3\n";
        let mutants = parse(text).unwrap();
        assert_eq!(mutants[0].tests, ["one", "two"]);
        let source = "fn f() -> u8 {\nlet x = 1;\nx + 1\n}\nfn g() {}\n";
        let (body, wrong) = mutants[0].plant(source).unwrap();
        assert_eq!(&source[body], "{\nlet x = 1;\nx + 1\n}");
        assert_eq!(wrong, "{\nlet x = 2;\nx + 1\n}");
        let all: Vec<_> = mutants.iter().enumerate().collect();
        let planted = plant_all(source, &all).unwrap();
        syn::parse_file(&planted).unwrap();
        for line in [
            "let x = 2;\nx + 1",
            "let x = 1;\nx + 3",
            "let x = 1;\nx + 1",
        ] {
            assert_eq!(planted.matches(line).count(), 1, "{planted}");
        }
        assert!(planted.ends_with("fn g() {}\n"));
        assert!(
            mutants[0]
                .plant("fn f() { let x = 1; let x = 1; }")
                .is_err()
        );
        assert!(mutants[0].plant("const _: () = {\nlet x = 1;\n};").is_err());
        assert!(parse("-let").is_err());
    }
}
