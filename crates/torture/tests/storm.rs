//! The whole-pool simulator: some seeds for a while, and whether it detects planted mistakes.
//!
//! `SEED=7 HOURS=10 cargo test -p torture --test storm` runs another seed, or longer;
//! `cargo run -p torture -- storm` also shortens a script that fails.

use std::collections::BTreeMap;
use std::path::Path;

use torture::storm::{Act, Mistake, Report, Script, plan, reduce, run, run_and_verify};

/// The most scripts that the reduction of a planted mistake may try.
const RUNS_MAX: usize = 200;

/// After so many storms everything has happened at least once.
const SEEDS_MAX: u64 = 9;

/// In one of so many storms a planted mistake shows that needs some luck.
const STORMS_MAX: u64 = 5;

/// What needs some luck to happen in a short storm.
const RARE: &str = "\
seed 5
pool stripe devices=4 ashift=12 mib=256 latency_us=1000
pool raidz1 devices=3 ashift=12 mib=100 latency_us=50
pool mirror devices=2 ashift=12 mib=100 latency_us=50
create pool=0 pick=0 amount=1 seed=1
files pool=0 pick=0 amount=40 seed=2
create pool=1 pick=0 amount=1 seed=3
files pool=1 pick=0 amount=40 seed=4
cancel-remove pool=0 pick=0 amount=1 seed=5
finish-remove pool=0 pick=1 amount=1 seed=5
finish-widening pool=1 pick=0 amount=1 seed=6
files pool=1 pick=0 amount=40 seed=7
finish-widening pool=1 pick=0 amount=1 seed=8
cut pool=1 pick=0 amount=1 seed=9
cut pool=0 pick=0 amount=1 seed=9
check pool=0 pick=0 amount=1 seed=9
create pool=2 pick=0 amount=1 seed=10
files pool=2 pick=0 amount=40 seed=11
split pool=2 pick=0 amount=1 seed=12
check pool=2 pick=0 amount=1 seed=13
";

fn assert_passes(script: &Script) -> Report {
    run_and_verify(script)
        .unwrap_or_else(|failure| panic!("step {} of\n{script}\n{}", failure.step, failure.message))
}

fn storm(default_seed: u64, hours: f64) -> Report {
    assert_passes(&plan(torture::seed(default_seed), hours))
}

#[test]
fn sim_a_storm_of_a_quarter_of_an_hour() {
    storm(101, 0.25);
    storm(102, 0.25);
}

#[test]
fn sim_everything_happens_in_storms_of_some_hours() {
    let mut counts: BTreeMap<Act, u64> = BTreeMap::new();
    let add = |counts: &mut BTreeMap<Act, u64>, report: Report| {
        for (act, count) in report.counts {
            *counts.entry(act).or_default() += count.done;
        }
    };
    let rare: Script = RARE.parse().expect("a script");
    let report = assert_passes(&rare);
    let words = ["cancel-remove", "finish-remove", "finish-widening", "split"];
    let done = report.counts.iter().filter(|(_, count)| count.done > 0);
    let done: Vec<&str> = done.map(|(act, _)| act.word()).collect();
    assert!(words.iter().all(|word| done.contains(word)), "{done:?}");
    add(&mut counts, report);
    // As many as it takes until everything has happened.
    let mut never = Vec::new();
    for seed in 200..200 + SEEDS_MAX {
        add(&mut counts, storm(seed, 0.4));
        never = Act::all().filter(|act| counts[act] == 0).collect();
        if never.is_empty() && seed > 201 {
            break;
        }
    }
    assert!(never.is_empty(), "{never:?} never happened: {counts:?}");
}

#[test]
fn sim_the_same_seed_gives_the_same_storm() {
    let script = plan(torture::seed(7), 0.15);
    let (once, again) = (assert_passes(&script), assert_passes(&script));
    assert_eq!(once.digest, again.digest);
    assert_eq!(once.simulated_ns, again.simulated_ns);
    let other = assert_passes(&plan(8, 0.05));
    assert_ne!(once.digest, other.digest);
}

/// Scripts that failed once.
#[test]
fn sim_storms_that_failed_once_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/storms");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("there are some") {
        let path = entry.expect("it can be listed").path();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let script = text.parse();
        let script: Script = script.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        eprintln!("{}", path.display());
        assert_passes(&script);
        seen += 1;
    }
    assert!(seen > 0);
}

fn is_found_and_made_short(mistake: Mistake, steps_max: usize) {
    let mut script = plan(torture::seed(3), 0.5);
    script.mistake = Some(mistake);
    let failure = run(&script).err().expect("the mistake is found");
    let short = reduce(&script, &failure, RUNS_MAX);
    eprintln!(
        "{} runs:\n{}\n{}",
        short.runs, short.script, short.failure.message
    );
    assert!(short.script.steps.len() <= steps_max);
    // The script as printed fails in the same way.
    let printed: Script = short.script.to_string().parse().expect("it can be parsed");
    assert_eq!(run(&printed).err(), Some(short.failure));
    let without = Script {
        mistake: None,
        ..printed
    };
    assert_passes(&without);
}

#[test]
fn sim_a_model_that_is_told_another_byte_is_found() {
    is_found_and_made_short(Mistake::WrongByte, 6);
}

#[test]
fn sim_writes_that_both_sides_drop_are_found() {
    // What both sides drop may have been written again before it is read.
    let seed = torture::seed(3);
    let found = (seed..seed + STORMS_MAX).find_map(|seed| {
        let mut script = plan(seed, 0.5);
        script.mistake = Some(Mistake::LostWrites);
        Some((run(&script).err()?, script.steps.len()))
    });
    let (failure, steps) = found.expect("the mistake is found");
    eprintln!("step {}: {}", failure.step, failure.message);
    assert!(failure.step < steps, "before zdb looks");
}
