//! `ashift bench compress`: what each algorithm takes of a core, beside the prices that simulations charge.
//!
//! # What it is
//! A sample of a folder, in records, and as many records of noise are compressed with each algorithm, and what
//! shrank is decompressed again. Times are those of the processor, not of the clock on the wall, and the least of a
//! few runs counts, so that other work on this computer matters little. Cycles are counted by a chain of
//! multiplications, each of which has to wait for the one before: a processor's stated clock is not the one it runs at.
//!
//! # Source
//! That a multiplication of 64 bits takes three cycles and an exclusive or one: Agner Fog, Instruction tables (Intel
//! since Nehalem, AMD since Zen); Arm's optimization guides say the same of Cortex-A76 and Neoverse.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::path::Path;

use base::{Context, Error, Result};
use compress::{Algorithm, Cost};
use serde_json::json;

use super::Words;
use crate::failure::Outcome;

/// A sample takes as many bytes of a folder.
const SAMPLE_BYTES: usize = 4 << 20;
/// What a record may be long.
const RECORD_BYTES: RangeInclusive<usize> = 512..=SAMPLE_BYTES;
/// At most as many bytes are from one file.
const FILE_BYTES: usize = 128 << 10;
/// A turn takes at least so long: far longer than the processor's time is apart from the last one told.
const TURN_NS: u64 = 40_000_000;
const CHAIN: u64 = 5_000_000;
const CHAIN_CYCLES: f64 = 4.0;

/// `ashift bench compress`
pub(super) fn run(words: &mut Words) -> Outcome {
    let data = words.take("data").unwrap_or_else(|| "/usr/lib".into());
    let record = words.take_number("record", 128 << 10)? as usize;
    let runs = words.take_number("runs", 3)?;
    words.check_all_taken()?;
    if !RECORD_BYTES.contains(&record) || runs == 0 {
        return Err(super::usage_error());
    }
    let named = words.operands.iter().map(|word| word.parse());
    let mut algorithms = named.collect::<Result<Vec<Algorithm>>>()?;
    if algorithms.is_empty() {
        algorithms = Algorithm::all()
            .filter(|algorithm| is_work(*algorithm))
            .collect();
    }
    let sample = sample(Path::new(&data))?;
    if sample.len() < record {
        let text = format!(
            "{data}: {} bytes are too few for a record of {record}",
            sample.len()
        );
        return Err(Error::invalid(text).into());
    }
    let mut noise = vec![0; SAMPLE_BYTES];
    rt::fill_random(&mut noise);
    let mut rows = Vec::new();
    if !words.is_json {
        println!(
            "cycles of one core for a byte: records of {record} bytes of {data}, and of noise"
        );
        println!(
            "algorithm       ratio  compress (charged)    refuse (charged)  decompress (charged)"
        );
    }
    for algorithm in algorithms {
        let row = Row::measure(algorithm, &sample, &noise, record, runs);
        if !words.is_json {
            println!("{}", row.text());
        }
        rows.push(row);
    }
    if words.is_json {
        let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
        println!(
            "{}",
            json!({ "data": data, "record": record, "clock_ghz": clock_ghz(), "algorithms": rows })
        );
    }
    Ok(())
}

fn is_work(algorithm: Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Off | Algorithm::Empty | Algorithm::On)
}

/// What was measured of an algorithm, in cycles per byte.
struct Row {
    algorithm: Algorithm,
    ratio: f64,
    compress: f64,
    refuse: f64,
    decompress: f64,
}

impl Row {
    fn measure(algorithm: Algorithm, sample: &[u8], noise: &[u8], record: usize, runs: u64) -> Row {
        let mut row = Row {
            algorithm,
            ratio: 0.0,
            compress: f64::INFINITY,
            refuse: f64::INFINITY,
            decompress: f64::INFINITY,
        };
        for _ in 0..runs {
            let ghz = clock_ghz();
            let (blocks, size, ns) = compressed(algorithm, sample, record);
            let bytes = sample.len() / record * record;
            row.ratio = bytes as f64 / size as f64;
            row.compress = row.compress.min(ns * ghz / bytes as f64);
            let (_, _, ns) = compressed(algorithm, noise, record);
            row.refuse = row
                .refuse
                .min(ns * ghz / (noise.len() / record * record) as f64);
            row.decompress = row
                .decompress
                .min(decompressed(algorithm, &blocks, record) * ghz);
        }
        row
    }

    fn text(&self) -> String {
        let cost = Cost::of(self.algorithm);
        let pair = |value: f64, charged: u32| {
            format!("{value:>9.2} ({:>8.2})", f64::from(charged) / 100.0)
        };
        format!(
            "{:<14} {:>6.3} {} {} {}",
            self.algorithm.to_string(),
            self.ratio,
            pair(self.compress, cost.compress),
            pair(self.refuse, cost.refuse),
            pair(self.decompress, cost.decompress)
        )
    }

    fn to_json(&self) -> serde_json::Value {
        let cost = Cost::of(self.algorithm);
        let per_ghz = |cycles: f64| 1e9 / cycles;
        json!({
            "algorithm": self.algorithm.to_string(),
            "ratio": self.ratio,
            "compress_cycles": self.compress,
            "compress_bytes_per_second_and_ghz": per_ghz(self.compress),
            "refuse_cycles": self.refuse,
            "decompress_cycles": self.decompress,
            "decompress_bytes_per_second_and_ghz": per_ghz(self.decompress),
            "charged": {
                "compress_cycles": f64::from(cost.compress) / 100.0,
                "refuse_cycles": f64::from(cost.refuse) / 100.0,
                "decompress_cycles": f64::from(cost.decompress) / 100.0,
            },
        })
    }
}

/// The records that shrank, as they are stored, all their bytes, and how long that took, in ns.
fn compressed(algorithm: Algorithm, bytes: &[u8], record: usize) -> (Vec<Vec<u8>>, usize, f64) {
    let mut target = vec![0; record];
    let max = compress::max_compressed_len_in_pool(algorithm, record, 4096, 4096);
    let ns = timed(|| {
        for block in bytes.chunks_exact(record) {
            black_box(compress::compress(algorithm, block, &mut target[..max]));
        }
    });
    let (mut blocks, mut size) = (Vec::new(), 0);
    for block in bytes.chunks_exact(record) {
        let len = compress::compress(algorithm, block, &mut target[..max]);
        blocks.extend(len.map(|len| target[..len].to_vec()));
        size += len.unwrap_or(record);
    }
    (blocks, size, ns)
}

/// How long decompressing takes, in ns per byte.
fn decompressed(algorithm: Algorithm, blocks: &[Vec<u8>], record: usize) -> f64 {
    let mut target = vec![0; record];
    let ns = timed(|| {
        for block in blocks {
            let done = compress::decompress(algorithm.kind(), block, &mut target);
            done.expect("it was compressed here");
        }
    });
    ns / (blocks.len() * record) as f64
}

/// How long work takes on the processor, in ns; it is repeated for as long as the processor's time is told.
fn timed(mut work: impl FnMut()) -> f64 {
    let (begun, mut times) = (rt::cpu_ns(), 0);
    loop {
        work();
        times += 1;
        let ns = rt::cpu_ns() - begun;
        if ns >= TURN_NS {
            return ns as f64 / f64::from(times);
        }
    }
}

/// The clock that this core runs at now.
fn clock_ghz() -> f64 {
    let (factor, mask) = (black_box(0x9e37_79b9_7f4a_7c15_u64), black_box(0x5555_u64));
    let mut x = black_box(1u64);
    let ns = timed(|| {
        for _ in 0..CHAIN / 4 {
            x = x.wrapping_mul(factor) ^ mask;
            x = x.wrapping_mul(factor) ^ mask;
            x = x.wrapping_mul(factor) ^ mask;
            x = x.wrapping_mul(factor) ^ mask;
        }
        x = black_box(x);
    });
    CHAIN as f64 * CHAIN_CYCLES / ns
}

/// Evenly spaced files of a folder, the beginning of each; or a file.
fn sample(path: &Path) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let kind = folder
            .symlink_metadata()
            .map_err(Error::from)
            .within(|| folder.display().to_string())?;
        if kind.is_file() && kind.len() > 0 {
            files.push(folder);
        } else if kind.is_dir() {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()));
        }
    }
    files.sort();
    let each = if files.len() == 1 {
        SAMPLE_BYTES
    } else {
        FILE_BYTES
    };
    let step = (files.len() * 8 * 1024 / SAMPLE_BYTES).max(1);
    let mut sample = Vec::new();
    for start in 0..step {
        for file in files.iter().skip(start).step_by(step) {
            let Ok(bytes) = std::fs::read(file) else {
                continue;
            };
            sample.extend_from_slice(&bytes[..bytes.len().min(each)]);
            if sample.len() >= SAMPLE_BYTES {
                sample.truncate(SAMPLE_BYTES);
                return Ok(sample);
            }
        }
    }
    Ok(sample)
}
