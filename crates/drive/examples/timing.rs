//! How fast the timing model is, and what it says:
//! `cargo run --release -p drive --example timing [PROFILE [EXPERIMENT]]`.

use std::time::Instant;

use drive::Profile;
use drive::timing::{Experiment, PHYBS_PASSES, reproduce};

/// Commands of all passes of `phybs`.
const COMMANDS: u32 = 671_744;

/// What is run if no experiment is named.
const EXPERIMENTS: [&str; 14] = [
    "sequential read outer",
    "sequential read inner",
    "sequential read whole",
    "sequential write outer",
    "sequential write outer +512",
    "random read 4096 depth 1",
    "random read 4096 depth 4",
    "random read 4096 depth 32",
    "random write 4096 depth 1",
    "random write 4096 depth 1 +512",
    "random write 4096 depth 32",
    "random write 4096 depth 1 sync",
    "random write 4096 depth 1 sync +512",
    "random write 131072 depth 1 sync",
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let name = args.first().map_or("wd20ears", String::as_str);
    let profile = match Profile::find(name) {
        Ok(profile) => profile,
        Err(e) => return eprintln!("{e}"),
    };
    if args.len() > 1 {
        match args[1..].join(" ").parse::<Experiment>() {
            Ok(e) => println!("{e}: {:.3} {}", e.run(&profile, 1), e.unit()),
            Err(e) => eprintln!("{e}"),
        }
        return;
    }
    for text in EXPERIMENTS {
        let experiment: Experiment = text.parse().expect("it is one");
        let start = Instant::now();
        let (value, unit) = (experiment.run(&profile, 1), experiment.unit());
        println!("{text:40} {value:10.3} {unit:5} {:?}", start.elapsed());
    }
    for r in reproduce(&profile) {
        println!(
            "{:40} {:10.2} {:5} published {:10.2}: {:+.1} %",
            r.published.experiment,
            r.value,
            r.published.unit,
            r.published.value,
            r.error_percent()
        );
    }
    let start = Instant::now();
    for (size, offset) in PHYBS_PASSES {
        let _ = Experiment::Phybs { size, offset }.run(&profile, 1);
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = f64::from(COMMANDS) / seconds;
    println!("14 passes of phybs: {COMMANDS} commands in {seconds:.2} s: {rate:.0} commands/s");
}
