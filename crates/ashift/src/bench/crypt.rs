//! `ashift bench crypt`: an encrypted data set beside AES-GCM, with a file and alone, in turns.
//!
//! # What it is
//! All sides encrypt the same records with AES-256-GCM on all cores. `bench seal` does nothing else: it copies and
//! encrypts each record, and decrypts and compares it. Such records are within the processor's caches; what a disk
//! costs beside that, `bench seal` with a file shows: it writes there what it has encrypted, and decrypts what it
//! reads; with `--cipher none` it does the same but for the cipher. The last is the most that anything can have that
//! stores, whatever encryption costs. `bench stream --encryption` writes an encrypted data set and reads it; without
//! encryption it shows what the rest costs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use aws_lc_rs::error::Unspecified;
use base::{Error, Result};
use serde_json::json;

use super::layout::Files;
use super::plain::on_all_cores;
use super::stream::{RECORD_BYTES, Watch, payload};
use super::turns::{Speeds, Streams, median, speeds};
use super::{Words, number, usage_error};
use crate::failure::Outcome;

/// Speed beside that of AES-GCM with a file, at least.
const GOAL: f64 = 0.8;
/// The suite that `encryption=on` stands for.
const SUITE: &str = "aes-256-gcm";

/// The results of all turns: of the encrypted data set, one in the clear, a file, AES-GCM with a file and alone.
#[derive(Default)]
struct Turns {
    encrypted: Vec<Speeds>,
    clear: Vec<Speeds>,
    file: Vec<Speeds>,
    with_file: Vec<Speeds>,
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
        files.make("single", size)?;
        let with_file = [alone, names.clone()].concat();
        turns.with_file.push(speeds(own, &with_file)?);
        files.make("single", size)?;
        let file = [with_file, args(&["--cipher", "none"])].concat();
        turns.file.push(speeds(own, &file)?);
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
        let peers = [&turns.clear, &turns.file, &turns.with_file, &turns.alone];
        let peers = peers.map(|all| of(all, speed));
        (what, of(&turns.encrypted, speed), peers)
    });
    if is_json {
        let rows = rows.map(|(what, ours, [clear, file, with_file, alone])| {
            json!({ "what": what, "encrypted_MBps": ours, "clear_MBps": clear, "file_MBps": file,
                    "with_file_MBps": with_file, "alone_MBps": alone, "ours_to_with_file": ours / with_file,
                    "ours_to_alone": ours / alone, "file_to_alone": file / alone, "goal": GOAL })
        });
        println!(
            "{}",
            json!({ "suite": SUITE, "size_bytes": size, "runs": runs, "results": rows })
        );
        return;
    }
    println!(
        "                                      a file   AES-GCM             beside AES-GCM (goal)"
    );
    println!(
        "MB/s, medians    encrypted     clear     alone  and file     alone  and file      alone  file, no cipher"
    );
    for (what, ours, [clear, file, with_file, alone]) in rows {
        print!("{what:<16} {ours:>9.0} {clear:>9.0} {file:>9.0} {with_file:>9.0} {alone:>9.0}");
        let (beside_file, beside_alone) = (ours / with_file, ours / alone);
        print!("{beside_file:>10.2} ({GOAL}) {beside_alone:>11.2}");
        println!("{:>17.2}", file / alone);
    }
}

/// `ashift bench seal [--cipher none] MIB DATA [FILE]`: AES-GCM alone, in memory, or with a file; or the file alone.
pub(super) fn seal(words: &mut Words) -> Outcome {
    let key = match words.take("cipher").as_deref() {
        None => {
            let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).map_err(failed)?;
            Some(LessSafeKey::new(key))
        }
        Some("none") => None,
        Some(other) => return Err(Error::invalid(format!("cipher '{other}'")).into()),
    };
    words.check_all_taken()?;
    let (mib, data, path) = match &words.operands[..] {
        [mib, data] => (mib, data, None),
        [mib, data, path] => (mib, data, Some(path)),
        _ => return Err(usage_error()),
    };
    let total = number(mib)? << 20;
    let sealing = Sealing {
        key,
        payload: payload(data)?,
    };
    match path {
        None => sealing.in_memory(total)?,
        Some(path) => {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            sealing.with_file(total, &file)?;
        }
    }
    Ok(())
}

fn failed(_: Unspecified) -> Error {
    Error::corrupt("what was encrypted cannot be decrypted")
}

/// A key, or none, and what is encrypted by it.
struct Sealing {
    key: Option<LessSafeKey>,
    payload: Vec<u8>,
}

impl Sealing {
    /// The bytes of a chunk.
    fn chunk(&self, from: u64, len: usize) -> &[u8] {
        let at = (from % self.payload.len() as u64) as usize;
        &self.payload[at..at + len]
    }

    fn nonce() -> Nonce {
        Nonce::assume_unique_for_key([1; 12])
    }

    /// Encrypts a record, if there is a key; returns its tag.
    fn encrypt(&self, record: &mut [u8]) -> Result<Option<Tag>> {
        let seal =
            |key: &LessSafeKey| key.seal_in_place_separate_tag(Self::nonce(), Aad::empty(), record);
        self.key.as_ref().map(seal).transpose().map_err(failed)
    }

    /// Decrypts a record that has a tag, and compares it with what it was.
    fn decrypt(&self, record: &mut [u8], tag: Option<&Tag>, was: &[u8]) -> Result<()> {
        if let Some((key, tag)) = self.key.as_ref().zip(tag) {
            let (nonce, aad) = (Self::nonce(), Aad::empty());
            key.open_in_place_separate_tag(nonce, aad, tag.as_ref(), record)
                .map_err(failed)?;
        }
        match record == was {
            true => Ok(()),
            false => Err(Error::corrupt("what was decrypted is something else")),
        }
    }

    fn in_memory(&self, total: u64) -> Result<()> {
        let watch = Watch::start();
        on_all_cores(total, |from, buf| {
            buf.copy_from_slice(self.chunk(from, buf.len()));
            for record in buf.chunks_mut(RECORD_BYTES as usize) {
                let _ = std::hint::black_box(self.encrypt(record)?);
            }
            Ok(())
        })?;
        watch.print("write", total);

        // One record, encrypted once, is decrypted again and again.
        let was = &self.payload[..RECORD_BYTES as usize];
        let mut sealed = was.to_vec();
        let tag = self.encrypt(&mut sealed)?;
        let watch = Watch::start();
        on_all_cores(total, |_, buf| {
            for record in buf.chunks_mut(RECORD_BYTES as usize) {
                record.copy_from_slice(&sealed);
                self.decrypt(record, tag.as_ref(), was)?;
            }
            Ok(())
        })?;
        watch.print("read", total);
        Ok(())
    }

    fn with_file(&self, total: u64, file: &File) -> Result<()> {
        let tags: Vec<OnceLock<Option<Tag>>> =
            (0..total / RECORD_BYTES).map(|_| OnceLock::new()).collect();
        let watch = Watch::start();
        on_all_cores(total, |from, buf| {
            buf.copy_from_slice(self.chunk(from, buf.len()));
            let first = (from / RECORD_BYTES) as usize;
            for (record, tag) in buf.chunks_mut(RECORD_BYTES as usize).zip(&tags[first..]) {
                let sealed = self.encrypt(record)?;
                tag.get_or_init(|| sealed);
            }
            Ok(file.write_all_at(buf, from)?)
        })?;
        watch.print("write", total);

        let watch = Watch::start();
        on_all_cores(total, |from, buf| {
            file.read_exact_at(buf, from)?;
            let first = (from / RECORD_BYTES) as usize;
            let chunk = self.chunk(from, buf.len()).chunks(RECORD_BYTES as usize);
            let records = buf.chunks_mut(RECORD_BYTES as usize).zip(chunk);
            for ((record, was), tag) in records.zip(&tags[first..]) {
                let tag = tag.get().ok_or_else(|| failed(Unspecified))?;
                self.decrypt(record, tag.as_ref(), was)?;
            }
            Ok(())
        })?;
        watch.print("read", total);
        Ok(())
    }
}
