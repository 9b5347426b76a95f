//! `ashift bench plain`: the machine's speed without a file system: copy, checksum, write.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{BlockBuf, Error, Result};

use super::stream::{CHUNK_BYTES, RECORD_BYTES, Watch, payload};
use super::{Words, number, usage_error};
use crate::failure::Outcome;

/// `ashift bench plain MIB DATA FILE`
pub(super) fn run(words: &mut Words) -> Outcome {
    words.check_all_taken()?;
    let [mib, data, path] = &words.operands[..] else {
        return Err(usage_error());
    };
    let total = number(mib)? << 20;
    let payload = payload(data)?;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(Path::new(path))?;
    file.set_len(total)?;
    let record = RECORD_BYTES as usize;

    let sums: Vec<Mutex<[u64; 4]>> = (0..total / RECORD_BYTES)
        .map(|_| Mutex::default())
        .collect();
    let watch = Watch::start();
    on_all_cores(total, |from, buf| {
        let at = (from % payload.len() as u64) as usize;
        buf.copy_from_slice(&payload[at..at + buf.len()]);
        for (i, block) in buf.chunks(record).enumerate() {
            let slot = &sums[(from / RECORD_BYTES) as usize + i];
            *slot.lock().expect("no panic") = checksum::fletcher4(block);
        }
        Ok(file.write_all_at(buf, from)?)
    })?;
    watch.print("write", total);

    let back = Mutex::new(Vec::new());
    let watch = Watch::start();
    on_all_cores(total, |from, buf| {
        file.read_exact_at(buf, from)?;
        for (i, block) in buf.chunks(record).enumerate() {
            let slot = &sums[(from / RECORD_BYTES) as usize + i];
            if *slot.lock().expect("no panic") != checksum::fletcher4(block) {
                return Err(Error::corrupt(format!("plain file differs near {from}")));
            }
        }
        let mut copy: BlockBuf = {
            let taken: Option<BlockBuf> = back.lock().expect("no panic").pop();
            taken.unwrap_or_else(|| BlockBuf::scratch(CHUNK_BYTES as usize))
        };
        copy.copy_from_slice(buf);
        let at = (from % payload.len() as u64) as usize;
        if copy[..] != payload[at..at + copy.len()] {
            return Err(Error::corrupt(format!("plain file differs near {from}")));
        }
        back.lock().expect("no panic").push(copy);
        Ok(())
    })?;
    watch.print("read", total);
    Ok(())
}

/// Calls `work` for each chunk of `[0, total)`, from as many threads as there are processors.
pub(super) fn on_all_cores(
    total: u64,
    work: impl Fn(u64, &mut [u8]) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let threads = (0..rt::parallelism()).collect();
    let results: Vec<Result<()>> = rt::parallel_map(threads, |_: usize| {
        let mut buf = BlockBuf::scratch(CHUNK_BYTES as usize);
        loop {
            let from = next.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
            if from >= total {
                return Ok(());
            }
            work(from, &mut buf)?;
        }
    });
    results.into_iter().collect()
}
