//! `ashift bench peer`: ours, the peer and the plain loop, in turns.

use std::path::PathBuf;

use base::Result;
use serde_json::json;

use super::layout::Files;
use super::turns::{Speeds, Streams, median, speeds};
use super::{Words, usage_error};
use crate::failure::{Fail, Outcome};

/// What is compared, and the goals: ratio to the peer, ratio to the plain loop.
const CASES: [(&str, f64, Option<f64>); 3] = [
    ("off", 3.0, Some(0.8)),
    ("lz4", 2.0, None),
    ("zstd", 2.0, None),
];

struct Setup {
    own: PathBuf,
    peer: PathBuf,
    data: String,
    layout: String,
    /// What pools are made on, one after the other.
    files: Files,
    mib: u64,
}

/// One side's results of all turns.
#[derive(Default)]
struct Side(Vec<Speeds>);

impl Side {
    fn write(&self) -> f64 {
        median(&self.0.iter().map(|s| s.write).collect::<Vec<_>>())
    }

    fn read(&self) -> f64 {
        median(&self.0.iter().map(|s| s.read).collect::<Vec<_>>())
    }
}

/// `ashift bench peer`
pub(super) fn run(words: &mut Words) -> Outcome {
    let peer = words.take("peer").ok_or_else(usage_error)?;
    let Streams {
        size,
        runs,
        own,
        data,
        dir,
    } = Streams::take(words, 2 << 30)?;
    let only = words.take("compression");
    let layout = words.take("layout").unwrap_or_else(|| "single".into());
    let devices = words.take_number("devices", 1)?;
    words.check_all_taken()?;
    if !words.operands.is_empty() || size < 1 << 20 {
        return Err(usage_error());
    }
    let files = Files::new(dir.as_ref(), devices);
    super::layout::specs(&layout, &files.names())?;
    let setup = Setup {
        own,
        peer: peer.into(),
        data,
        layout,
        files,
        mib: size >> 20,
    };
    let mut rows = Vec::new();
    let cases = CASES
        .iter()
        .filter(|case| only.as_deref().is_none_or(|only| only == case.0));
    for &(compression, goal, plain_goal) in cases {
        let plain_goal = plain_goal.filter(|_| devices == 1);
        let sides = measure(&setup, compression, plain_goal.is_some(), runs)?;
        rows.push((compression, goal, plain_goal, sides));
    }
    if rows.is_empty() {
        let known: Vec<&str> = CASES.iter().map(|case| case.0).collect();
        return Err(Fail::Failed(format!(
            "--compression is one of {}",
            known.join(", ")
        )));
    }
    if words.is_json {
        print_json(&rows, size, runs);
    } else {
        print_table(&rows);
    }
    Ok(())
}

struct Sides {
    ours: Side,
    peer: Side,
    plain: Side,
}

fn measure(setup: &Setup, compression: &str, plain_too: bool, runs: u64) -> Result<Sides> {
    let mut sides = Sides {
        ours: Side::default(),
        peer: Side::default(),
        plain: Side::default(),
    };
    let (mib, record) = (
        setup.mib.to_string(),
        super::stream::RECORD_BYTES.to_string(),
    );
    let files = setup.files.names();
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let (data, layout) = (&*setup.data, &*setup.layout);
    for _ in 0..runs {
        setup.files.make(layout, setup.mib << 20)?;
        let args = words(&[layout, &record, compression, &mib, data]);
        sides
            .peer
            .0
            .push(speeds(&setup.peer, &[args, files.clone()].concat())?);
        setup.files.make(layout, setup.mib << 20)?;
        let args = words(&["bench", "stream", layout, compression, &mib, data]);
        sides
            .ours
            .0
            .push(speeds(&setup.own, &[args, files.clone()].concat())?);
        if plain_too {
            let args = words(&["bench", "plain", &mib, data, &files[0]]);
            sides.plain.0.push(speeds(&setup.own, &args)?);
        }
    }
    Ok(sides)
}

type Row<'a> = (&'a str, f64, Option<f64>, Sides);

fn ratios(sides: &Sides) -> [(&'static str, f64, f64, f64); 2] {
    [
        (
            "write",
            sides.ours.write(),
            sides.peer.write(),
            sides.plain.write(),
        ),
        (
            "read",
            sides.ours.read(),
            sides.peer.read(),
            sides.plain.read(),
        ),
    ]
}

fn print_table(rows: &[Row<'_>]) {
    println!(
        "MB/s, medians         ours      peer     plain    ours/peer (goal)  ours/plain (goal)"
    );
    for (compression, goal, plain_goal, sides) in rows {
        for (what, ours, peer, plain) in ratios(sides) {
            let name = format!("{what} {compression}");
            print!("{name:<16} {ours:>9.0} {peer:>9.0} ");
            match plain_goal {
                None => println!("{:>9} {:>9.2} ({goal})", "-", ours / peer),
                Some(plain_goal) => println!(
                    "{plain:>9.0} {:>9.2} ({goal})    {:>9.2} ({plain_goal})",
                    ours / peer,
                    ours / plain
                ),
            }
        }
    }
}

fn print_json(rows: &[Row<'_>], size: u64, runs: u64) {
    let mut values = Vec::new();
    for (compression, goal, plain_goal, sides) in rows {
        for (what, ours, peer, plain) in ratios(sides) {
            let has_plain = plain_goal.is_some();
            values.push(json!({
                "what": what, "compression": compression,
                "ours_MBps": ours, "peer_MBps": peer, "plain_MBps": has_plain.then_some(plain),
                "ours_to_peer": ours / peer, "ours_to_peer_goal": goal,
                "ours_to_plain": has_plain.then_some(ours / plain), "ours_to_plain_goal": plain_goal,
            }));
        }
    }
    println!(
        "{}",
        json!({ "size_bytes": size, "runs": runs, "results": values })
    );
}
