//! `ashift bench parity`: computing and solving the parity of RAID-Z beside `raidz_test -B`.
//!
//! # What it is
//! `raidz_test -B` prints a row for each of its implementations, each operation and each size of a block; those with
//! an iosize of 131072 have the columns that are measured here: eight of data, 16 KiB each. Our side takes its turn
//! each time such a row arrives. `disk_bw` is MiB per second of one of the data columns; here it is all of them.
//! With `rec_q` we compute the missing P, too, and so on: `raidz_test` computes data alone.
//!
//! # Source
//! OpenZFS cmd/raidz_test/raidz_bench.c.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use base::{Context, Error, ErrorKind, Result};
use parity::Implementation;
use serde_json::json;

use super::Words;
use super::turns::median;
use crate::failure::Outcome;

const DATA_COLUMNS: usize = 8;
const COLUMN_BYTES: usize = 16 << 10;
const BLOCK_BYTES: &str = "131072";
const PAGE_BYTES: usize = 4096;
const TURN_NS: u64 = 20_000_000;
/// Our speed as a multiple of that of its fastest implementation.
const GOAL: f64 = 1.0;

/// The operations by their names in `raidz_test`: how many columns of parity there are, and which columns, parity
/// first, are missing; none: the parity is computed.
const OPERATIONS: [(&str, usize, &[usize]); 10] = [
    ("gen_p", 1, &[]),
    ("gen_pq", 2, &[]),
    ("gen_pqr", 3, &[]),
    ("rec_p", 3, &[3]),
    ("rec_q", 3, &[0, 3]),
    ("rec_r", 3, &[0, 1, 3]),
    ("rec_pq", 3, &[3, 4]),
    ("rec_pr", 3, &[1, 3, 4]),
    ("rec_qr", 3, &[0, 3, 4]),
    ("rec_pqr", 3, &[3, 4, 5]),
];

/// `ashift bench parity`
pub(super) fn run(words: &mut Words) -> Outcome {
    let program = words.take("raidz-test");
    words.check_all_taken()?;
    let mut block = Block::new();
    if words.operands == ["each"] {
        print_each(&mut block);
        return Ok(());
    }
    if !words.operands.is_empty() {
        return Err(super::usage_error());
    }
    let program = program.unwrap_or_else(|| "raidz_test".into());
    let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
    each_row(&program, &mut |implementation, operation, speed| {
        let ours = block.speed(Implementation::fastest(), operation);
        let row = rows.entry(operation).or_default();
        row.ours.push(ours);
        if speed > row.theirs {
            (row.theirs, row.by) = (speed, implementation.to_owned());
        }
    })?;
    print(&rows, words.is_json);
    Ok(())
}

/// What was measured of one operation, in bytes of data per second.
#[derive(Default)]
struct Row {
    ours: Vec<f64>,
    /// The fastest of theirs.
    theirs: f64,
    by: String,
}

fn print(rows: &BTreeMap<usize, Row>, is_json: bool) {
    let name = Implementation::fastest().name();
    if is_json {
        let row = |(operation, row): (&usize, &Row)| {
            let ours = median(&row.ours);
            json!({
                "operation": OPERATIONS[*operation].0, "ours_bytes_per_second": ours,
                "peer_bytes_per_second": row.theirs, "peer_implementation": row.by,
                "ratio": ours / row.theirs, "goal": GOAL,
            })
        };
        let all: Vec<_> = rows.iter().map(row).collect();
        println!("{}", json!({ "implementation": name, "operations": all }));
        return;
    }
    println!("GB/s of data, one core       ours ({name})  raidz_test     ours/raidz_test (goal)");
    for (operation, row) in rows {
        let (ours, operation) = (median(&row.ours), OPERATIONS[*operation].0);
        let (theirs, by) = (row.theirs / 1e9, &row.by);
        println!(
            "{operation:<10} {:>20.2}      {theirs:>7.2} ({by:<8}) {:>8.2} ({GOAL})",
            ours / 1e9,
            ours / row.theirs,
        );
    }
}

/// Shows `see` each row of `raidz_test -B` for these columns: implementation, operation, and bytes per second.
fn each_row(program: &str, see: &mut dyn FnMut(&str, usize, f64)) -> Result<()> {
    // Rows are wanted when they are printed, not when a buffer is full.
    let mut child = Command::new("stdbuf")
        .args(["-oL", program, "-B"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::from)
        .within(|| "stdbuf")?;
    let bar = crate::progress::progress(None, false);
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut count = 0;
    for line in lines.map_while(std::result::Result::ok) {
        if let Some((implementation, operation, speed)) = parse(&line) {
            bar.set_message(format!("{implementation} {}", OPERATIONS[operation].0));
            see(implementation, operation, speed);
            count += 1;
        }
    }
    bar.finish_and_clear();
    let status = child.wait()?;
    if !status.success() || count == 0 {
        let text = format!(
            "{program} -B ended with {status} after {count} rows (in Debian it is in the package zfs-test)"
        );
        return Err(Error::new(ErrorKind::Io, text));
    }
    Ok(())
}

/// A row: `impl, math, dcols, iosize, disk_bw, total_bw, iter`.
fn parse(line: &str) -> Option<(&str, usize, f64)> {
    let mut words = line.split(',').map(str::trim);
    let (implementation, name) = (words.next()?, words.next()?);
    let (columns, bytes, speed) = (words.next()?, words.next()?, words.next()?);
    let operation = OPERATIONS.iter().position(|(known, ..)| *known == name)?;
    if columns != DATA_COLUMNS.to_string() || bytes != BLOCK_BYTES {
        return None;
    }
    let mib: f64 = speed.parse().ok()?;
    Some((implementation, operation, mib * (DATA_COLUMNS << 20) as f64))
}

/// Our implementations side by side, without a peer.
fn print_each(block: &mut Block) {
    println!(
        "one core, {DATA_COLUMNS} data columns of {COLUMN_BYTES} bytes that stay in the cache"
    );
    for by in Implementation::available() {
        for (operation, (name, ..)) in OPERATIONS.iter().enumerate() {
            let speeds: Vec<f64> = (0..5).map(|_| block.speed(by, operation)).collect();
            println!(
                "{:>12} {name:>8} {:7.2} GB/s",
                by.name(),
                median(&speeds) / 1e9
            );
        }
    }
}

/// The columns of a block, parity first, one after the other in pages of their own, as in a pool.
struct Block {
    bytes: Vec<u8>,
    start: usize,
}

impl Block {
    fn new() -> Block {
        let all = (DATA_COLUMNS + 3) * COLUMN_BYTES;
        let mut bytes = vec![0u8; all + PAGE_BYTES];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (i as u32).wrapping_mul(2_654_435_761) as u8;
        }
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Block { bytes, start }
    }

    /// Bytes of data per second of one turn.
    fn speed(&mut self, by: Implementation, operation: usize) -> f64 {
        let (_, nparity, missing) = OPERATIONS[operation];
        let columns = self.bytes[self.start..].chunks_exact_mut(COLUMN_BYTES);
        let mut columns: Vec<&mut [u8]> = columns.take(DATA_COLUMNS + 3).collect();
        if !missing.is_empty() {
            return measure(|| by.reconstruct(nparity, black_box(&mut columns), missing));
        }
        let (parity, data) = columns[3 - nparity..].split_at_mut(nparity);
        let data: Vec<&[u8]> = data.iter().map(|column| &**column).collect();
        measure(|| by.generate(black_box(&data), parity))
    }
}

fn measure(mut run: impl FnMut()) -> f64 {
    let (start, mut bytes) = (rt::now_ns(), 0);
    loop {
        (0..4).for_each(|_| run());
        bytes += 4 * DATA_COLUMNS * COLUMN_BYTES;
        let ns = rt::now_ns() - start;
        if ns >= TURN_NS {
            return bytes as f64 * 1e9 / ns as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_these_columns_are_read() {
        let row = "  avx512bw,    gen_pq, 8,     131072, 1000.5, 2000.0, 32768";
        assert_eq!(
            parse(row),
            Some(("avx512bw", 1, 1000.5 * 8.0 * 1_048_576.0))
        );
        assert_eq!(
            parse("impl, math, dcols, iosize, disk_bw, total_bw, iter"),
            None
        );
        assert_eq!(parse(&row.replace("131072", "4096")), None);
        assert_eq!(parse("  scalar,    gen_pq, 8"), None);
    }
}
