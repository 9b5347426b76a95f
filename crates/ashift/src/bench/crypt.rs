//! `ashift bench crypt`: an encrypted data set beside AES-GCM alone, in turns.
//!
//! # What it is
//! Both sides encrypt the same records with AES-256-GCM on all cores. `bench seal` does nothing else: it copies and
//! encrypts each record, and decrypts and compares it. `bench stream --encryption` writes an encrypted data set
//! and reads it; without encryption it shows what the rest costs.

use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base::{Error, Result};
use serde_json::json;

use super::layout::Files;
use super::plain::on_all_cores;
use super::stream::{RECORD_BYTES, Watch, payload};
use super::turns::{Speeds, Streams, median, speeds};
use super::{Words, number, usage_error};
use crate::failure::Outcome;

/// Speed beside that of AES-GCM alone, at least.
const GOAL: f64 = 0.8;
/// The suite that `encryption=on` stands for.
const SUITE: &str = "aes-256-gcm";

/// The results of all turns: of the encrypted data set, one in the clear, AES-GCM alone.
#[derive(Default)]
struct Turns {
    encrypted: Vec<Speeds>,
    clear: Vec<Speeds>,
    alone: Vec<Speeds>,
}

/// `ashift bench crypt`
pub(super) fn run(words: &mut Words) -> Outcome {
    let Streams {
        size,
        runs,
        own,
        data,
        dir,
    } = Streams::take(words, 1 << 30)?;
    words.check_all_taken()?;
    if !words.operands.is_empty() || size < 1 << 20 {
        return Err(usage_error());
    }
    let files = Files::new(dir.as_ref(), 1);
    let turns = measure(&own, &files, (size, &data), runs)?;
    print(&turns, words.is_json, size, runs);
    Ok(())
}

fn measure(own: &Path, files: &Files, (size, data): (u64, &str), runs: u64) -> Result<Turns> {
    let mib = (size >> 20).to_string();
    let names = files.names();
    let args = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let stream = ["bench", "stream", "single", "off", &mib, data];
    let mut turns = Turns::default();
    for _ in 0..runs {
        let alone = args(&["bench", "seal", &mib, data]);
        turns.alone.push(speeds(own, &alone)?);
        let encrypted = [args(&stream), names.clone(), args(&["--encryption", SUITE])];
        files.make("single", size)?;
        turns.encrypted.push(speeds(own, &encrypted.concat())?);
        files.make("single", size)?;
        let clear = [args(&stream), names.clone()];
        turns.clear.push(speeds(own, &clear.concat())?);
    }
    Ok(turns)
}

/// One of the speeds.
type Speed = fn(&Speeds) -> f64;

fn print(turns: &Turns, is_json: bool, size: u64, runs: u64) {
    let of = |all: &[Speeds], speed: Speed| median(&all.iter().map(speed).collect::<Vec<_>>());
    let kinds: [(&str, Speed); 2] = [("write", |s| s.write), ("read", |s| s.read)];
    let rows = kinds.map(|(what, speed)| {
        let ours = of(&turns.encrypted, speed);
        (what, ours, of(&turns.clear, speed), of(&turns.alone, speed))
    });
    if is_json {
        let rows = rows.map(|(what, ours, clear, alone)| {
            json!({ "what": what, "encrypted_MBps": ours, "clear_MBps": clear, "alone_MBps": alone,
                    "ours_to_alone": ours / alone, "goal": GOAL })
        });
        println!(
            "{}",
            json!({ "suite": SUITE, "size_bytes": size, "runs": runs, "results": rows })
        );
        return;
    }
    println!("MB/s, medians    encrypted     clear   AES-GCM    encrypted/AES-GCM (goal)");
    for (what, ours, clear, alone) in rows {
        let ratio = ours / alone;
        println!("{what:<16} {ours:>9.0} {clear:>9.0} {alone:>9.0} {ratio:>9.2} ({GOAL})");
    }
}

/// `ashift bench seal MIB DATA`: AES-GCM alone, in memory.
pub(super) fn seal(words: &mut Words) -> Outcome {
    words.check_all_taken()?;
    let [mib, data] = &words.operands[..] else {
        return Err(usage_error());
    };
    let total = number(mib)? << 20;
    let payload = payload(data)?;
    let failed = |_| Error::corrupt("what was encrypted cannot be decrypted");
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).map_err(failed)?);
    let nonce = || Nonce::assume_unique_for_key([1; 12]);
    let encrypt = |block: &mut [u8]| key.seal_in_place_separate_tag(nonce(), Aad::empty(), block);
    let record = RECORD_BYTES as usize;
    let watch = Watch::start();
    on_all_cores(total, |from, buf| {
        let at = (from % payload.len() as u64) as usize;
        buf.copy_from_slice(&payload[at..at + buf.len()]);
        for block in buf.chunks_mut(record) {
            let _ = std::hint::black_box(encrypt(block).map_err(failed)?);
        }
        Ok(())
    })?;
    watch.print("write", total);

    // One record, encrypted once, is decrypted again and again.
    let mut sealed = payload[..record].to_vec();
    let tag = encrypt(&mut sealed).map_err(failed)?;
    let watch = Watch::start();
    on_all_cores(total, |_, buf| {
        for block in buf.chunks_mut(record) {
            block.copy_from_slice(&sealed);
            key.open_in_place_separate_tag(nonce(), Aad::empty(), tag.as_ref(), block)
                .map_err(failed)?;
            if block != &payload[..record] {
                return Err(Error::corrupt("what was decrypted is something else"));
            }
        }
        Ok(())
    })?;
    watch.print("read", total);
    Ok(())
}
