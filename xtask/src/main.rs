//! What is done to this repository: `cargo xtask install|test|tidy|fuzz`.

mod fuzz;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  install   installs from Debian what the tests need (as root)
  test      install, then format, lints, tidy and every test; ends with their count
  tidy      the rules of STYLE.md that a program can check
  fuzz      runs each fuzz target for SECONDS (default 60): cargo xtask fuzz [SECONDS]
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let outcome = match args.next().as_deref() {
        Some("install") => oracle::install::install(),
        Some("test") => test::run(),
        Some("tidy") => tidy::run(),
        Some("fuzz") => fuzz::run(args.next().as_deref()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("xtask: {complaint}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ is in it")
        .into()
}

/// Runs a command at the root, showing its output.
fn run(program: &str, args: &[&str]) -> Result<(), String> {
    eprintln!("$ {program} {}", args.join(" "));
    let status = std::process::Command::new(program)
        .args(args)
        .current_dir(root())
        .status()
        .map_err(|e| format!("{program}: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program} {} failed", args.join(" ")))
    }
}
