//! What is done to this repository: `cargo xtask install|test|tidy|fuzz|storm|mutants`.

mod fuzz;
mod mutants;
mod programs;
mod room;
mod storm;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  install   installs from Debian what the tests need (as root)
  test      install, then format, lints, tidy, every test, a minute of each fuzz target, a storm of 90
            seconds; ends with their count. FUZZ_SECONDS=N changes the minute, STORM_SECONDS=N the 90 seconds;
            0 leaves them out, and so does --no-fuzz
  tidy      the rules of STYLE.md that a program can check
  fuzz      runs fuzz targets for SECONDS each (default 60): cargo xtask fuzz [SECONDS] [TARGET...]
  storm     everything that can happen to pools, from one random seed after the other, for SECONDS (default
            90): cargo xtask storm [SECONDS]. One seed: cargo run -p torture -- storm --seed N
  mutants   plants the mistakes of xtask/mutants.txt and says which test finds each: all, or those whose description
            or file has a word: cargo xtask mutants [WORD]
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = args
        .split_first()
        .map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    let outcome = match (name, rest) {
        ("install", []) => oracle::install::install(),
        ("test", []) => test::run(true),
        ("test", [switch]) if switch == "--no-fuzz" => test::run(false),
        ("tidy", []) => tidy::run(),
        ("fuzz", rest) => fuzz::command(rest),
        ("storm", rest) => storm::command(rest),
        ("mutants", rest) => mutants::command(rest),
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
