//! `ashift bench mount`: a mounted data set, beside file systems of the kernel and FUSE with nothing behind it.
//!
//! # What it is
//! In each turn every side ([`sides`]) is made anew on an image file in one folder, mounted, and does all the work
//! ([`loads`]): streams, small blocks by fio, a tree of small files. What counts are ratios of medians. Before
//! each piece of work the host writes back its dirty data; before what is to be read from the disk a side is mounted
//! again, so that no cache has it. A tree is unpacked when it is on the disk: sync(2) does not pass FUSE, so the
//! holder of our pool syncs it, and what is below FUSE alone is synced by itself. Needs root, for the loop devices, and
//! Debian's `fio`.

mod loads;
pub(super) mod passthrough;
mod sides;

use std::collections::BTreeMap;

use base::{Context, Result};
use serde_json::json;

use self::loads::{LOADS, Load, Loads};
use self::sides::{SIDES, Side, Sides};
use super::tree::SIZE_MAX;
use super::turns::median;
use super::{Words, usage_error};
use crate::failure::Outcome;

/// The most that a tree may take, as a multiple of what FUSE alone takes.
const FUSE_GOAL: f64 = 1.5;
/// Bytes of an image beyond what the work needs.
const ROOM_BYTES: u64 = 2 << 30;

/// The most memory that a mount may take: the cache's bound, and as much again.
const MEMORY_GOAL_BYTES: u64 = 512 << 20;

/// The most memory of the processes that serve sides, in bytes.
type Peaks = BTreeMap<&'static str, u64>;
/// Results by side and load, one of each turn.
type Results = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// `ashift bench mount`
pub(super) fn run(words: &mut Words) -> Outcome {
    let files = words.take_number("files", 50_000)?;
    let size_bytes = words.take_number("size", 1 << 30)?;
    let runs = words.take_number("runs", 5)?;
    let dir = words.take("dir");
    let only = words.take("load");
    words.check_all_taken()?;
    let loads: Vec<&Load> = LOADS
        .iter()
        .filter(|load| only.as_deref().is_none_or(|only| load.name.contains(only)))
        .collect();
    if !words.operands.is_empty() || size_bytes < 1 << 20 || loads.is_empty() {
        return Err(usage_error());
    }
    let folder = super::host_fs::folder(dir)?;
    let sides = Sides {
        own: super::turns::own_program()?,
        folder: folder.path().to_owned(),
        image_bytes: files * 4 * SIZE_MAX + 2 * size_bytes + ROOM_BYTES,
    };
    let setup = Loads::prepare(folder.path(), files, size_bytes)?;
    let (mut results, mut peaks) = (Results::new(), Peaks::new());
    for _ in 0..runs {
        for side in &SIDES {
            let peak = turn(&sides, side, &setup, &loads, &mut results)?;
            if let Some(bytes) = peak {
                let most = peaks.entry(side.name).or_default();
                *most = bytes.max(*most);
            }
        }
    }
    let medians: BTreeMap<_, _> = results
        .iter()
        .map(|(key, values)| (*key, median(values)))
        .collect();
    if words.is_json {
        print_json(&loads, &medians, &peaks, (files, size_bytes, runs));
    } else {
        print_table(&loads, &medians, &peaks);
    }
    Ok(())
}

/// All the work on one side; returns the most memory that its process has had.
fn turn(
    sides: &Sides,
    side: &Side,
    setup: &Loads,
    loads: &[&Load],
    results: &mut Results,
) -> Result<Option<u64>> {
    let mut mounted = sides.make(side)?;
    for load in loads {
        (load.prepare)(setup, mounted.place())?;
        if load.is_cold {
            mounted.again()?;
        }
        super::host_fs::settle();
        let mut value = (load.run)(setup, mounted.place()).within(|| side.name.to_owned())?;
        if load.is_written_out {
            value += mounted.write_out()?;
        }
        results
            .entry((side.name, load.name))
            .or_default()
            .push(value);
    }
    Ok(mounted.peak_bytes())
}

/// How many times as good `a` is as `b`.
fn ratio(load: &Load, a: f64, b: f64) -> f64 {
    match load.is_time {
        true => b / a,
        false => a / b,
    }
}

type Medians = BTreeMap<(&'static str, &'static str), f64>;

fn print_table(loads: &[&Load], medians: &Medians, peaks: &Peaks) {
    print!("medians                 ");
    for side in &SIDES {
        print!("{:>12}", side.name);
    }
    println!("   ours/btrfs (goal)  ours/FUSE alone (goal)");
    for load in loads {
        let value = |side: &str| medians[&(side, load.name)];
        print!("{:<16} {:<7}", load.name, load.unit);
        for side in &SIDES {
            print!("{:>12.2}", value(side.name));
        }
        let (ours, btrfs, fuse) = (value("ours"), value("btrfs"), value("passthrough"));
        print!("{:>12.2} ({})", ratio(load, ours, btrfs), load.goal);
        print!("{:>14.2}", ratio(load, ours, fuse));
        match load.is_time {
            true => println!(" ({:.2})", 1.0 / FUSE_GOAL),
            false => println!(),
        }
    }
    print!("{:<16} {:<7}", "memory, at most", "MiB");
    for side in &SIDES {
        let mib = peaks.get(side.name).map(|bytes| (bytes >> 20).to_string());
        print!("{:>12}", mib.unwrap_or_else(|| "-".to_owned()));
    }
    println!("   (ours: {})", MEMORY_GOAL_BYTES >> 20);
}

fn print_json(
    loads: &[&Load],
    medians: &Medians,
    peaks: &Peaks,
    (files, size_bytes, runs): (u64, u64, u64),
) {
    let rows: Vec<_> = loads
        .iter()
        .map(|load| {
            let value = |side: &str| medians[&(side, load.name)];
            json!({
                "what": load.name, "unit": load.unit,
                "ours": value("ours"), "btrfs": value("btrfs"), "ext4": value("ext4"),
                "passthrough": value("passthrough"),
                "ours_to_btrfs": ratio(load, value("ours"), value("btrfs")),
                "ours_to_btrfs_goal": load.goal,
                "ours_to_passthrough": ratio(load, value("ours"), value("passthrough")),
                "ours_to_passthrough_goal": load.is_time.then_some(1.0 / FUSE_GOAL),
            })
        })
        .collect();
    let memory = json!({ "peak_bytes": peaks, "goal_bytes": MEMORY_GOAL_BYTES });
    let value = json!({
        "files": files, "size_bytes": size_bytes, "runs": runs, "memory": memory, "results": rows,
    });
    println!("{value}");
}
