//! The rules of STYLE.md that a program can check: floors, file sizes, banned words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most lines of a file, its tests not counted.
const FILE_LINES_MAX: usize = 1000;

/// Checks everything; the error lists every breach.
pub(crate) fn run() -> Result<(), String> {
    let mut breaches = floors()?;
    let files = rust_files(&crate::root());
    for file in &files {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        breaches.extend(file_breaches(file, &text));
    }
    if breaches.is_empty() {
        println!("tidy: {} files", files.len());
        Ok(())
    } else {
        Err(format!("tidy:\n  {}", breaches.join("\n  ")))
    }
}

/// Each crate depends on crates of lower floors only.
fn floors() -> Result<Vec<String>, String> {
    let output = Command::new("cargo")
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(crate::root())
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?;
    let floor = |p: &serde_json::Value| p["metadata"]["ashift"]["floor"].as_u64();
    let floors: BTreeMap<&str, Option<u64>> = packages
        .iter()
        .filter_map(|p| Some((p["name"].as_str()?, floor(p))))
        .collect();
    let mut breaches = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or("?");
        let Some(own) = floor(package) else {
            breaches.push(format!(
                "{name}: Cargo.toml has no package.metadata.ashift.floor"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let below = dependency["name"].as_str().unwrap_or("?");
            let dev = dependency["kind"].as_str() == Some("dev");
            if let Some(Some(other)) = floors.get(below)
                && *other >= own
                && !dev
            {
                breaches.push(format!(
                    "{name} (floor {own}) depends on {below} (floor {other})"
                ));
            }
        }
    }
    Ok(breaches)
}

fn rust_files(root: &Path) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root)
        .output();
    let text = output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default();
    text.lines()
        .map(|l| root.join(l))
        .filter(|p| p.exists())
        .collect()
}

/// What engine crates may not name: time, threads and randomness come from `rt`.
const OUTSIDE_RT: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "std::thread",
    "thread::spawn",
    "thread::sleep",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
];
/// Crates below the front ends, in which nothing is printed and `rt` is the only clock.
const ENGINE: &[&str] = &[
    "phys", "nvpair", "checksum", "compress", "geom", "zio", "vdev", "metaslab", "arc", "dmu",
    "zap", "zil", "dsl", "spa", "zpl", "check", "admin",
];

fn file_breaches(path: &Path, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let relative = path
        .strip_prefix(crate::root())
        .unwrap_or(path)
        .display()
        .to_string();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = code.lines().count();
    let is_test = ["/tests/", "/benches/", "/examples/"]
        .iter()
        .any(|d| relative.contains(d))
        || relative.ends_with("tests.rs");
    if lines > FILE_LINES_MAX && !is_test {
        breaches.push(format!(
            "{relative}: {lines} lines, more than {FILE_LINES_MAX}"
        ));
    }
    if !text.starts_with("//!") && !relative.starts_with("fuzz/") && !is_test {
        breaches.push(format!("{relative}: does not open with a //! sentence"));
    }
    let crate_name = relative
        .strip_prefix("crates/")
        .and_then(|r| r.split('/').next());
    let engine = crate_name.is_some_and(|c| ENGINE.contains(&c)) && !is_test;
    for (at, line) in code
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim_start().starts_with("//"))
    {
        let here = format!("{relative}:{}", at + 1);
        if engine && OUTSIDE_RT.iter().any(|w| line.contains(w)) {
            breaches.push(format!("{here}: clocks, threads and locks come from rt"));
        }
        if engine
            && ["println!(", "eprintln!(", "print!("]
                .iter()
                .any(|w| line.contains(w))
        {
            breaches.push(format!("{here}: nothing is printed from the engine"));
        }
    }
    breaches
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
