//! The rules of STYLE.md and ARCHITECTURE.md that a program can check. Each file here is one check; all of them work on
//! syntax trees (`syn`), except where the rule is about the text itself.

mod arrows;
mod circles;
mod dead;
mod layout;
mod paths;
mod runtime;
mod tree;
mod words;

use std::fmt;
use std::fs;
use std::process::Command;

use tree::{Source, Tree};

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Breach {
    path: String,
    /// From 1; 0 if the whole file is meant.
    line: usize,
    message: String,
}

impl Breach {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Breach {
        Breach {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks everything; the error lists every breach.
pub(crate) fn run() -> Result<(), String> {
    let root = crate::root();
    let read = |name: &str| fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
    let architecture = read("ARCHITECTURE.md")?;
    let banned = words::Banned::parse(&read("STYLE.md")?)?;
    let tree = Tree::load(&root)?;

    let mut breaches = tree.orphans();
    breaches.extend(arrows::check(&architecture, &metadata()?, &tree)?);
    breaches.extend(dead::check(&tree));
    breaches.extend(circles::check(&tree, "ashift"));
    for source in &tree.sources {
        breaches.extend(runtime::check(source));
        breaches.extend(layout::check(source));
        breaches.extend(words::check(source, &banned));
    }
    for (path, text) in tree::documents(&root)? {
        breaches.extend(words::check_document(&path, &text, &banned));
    }
    breaches.sort();
    if breaches.is_empty() {
        println!("tidy: {} files", tree.sources.len());
        return Ok(());
    }
    let lines: Vec<String> = breaches.iter().map(ToString::to_string).collect();
    Err(format!("tidy:\n  {}", lines.join("\n  ")))
}

/// What `cargo metadata` says of the crates of this workspace.
fn metadata() -> Result<serde_json::Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(crate::root())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn repository_is_tidy() {
        if let Err(breaches) = super::run() {
            panic!("{breaches}");
        }
    }
}
