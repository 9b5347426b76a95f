//! How fast the pipeline moves 128 KiB records into a file, against a plain loop.
//!
//! `cargo run --release -p zio --example pipeline_speed -- [FILE [MIB]]`
//!
//! The plain loop copies each record, sums it with Fletcher-4 and writes it with `pwrite`. The
//! target is a file in the host's page cache, so this measures the processor's part.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base::{BlkId, BlockBuf, Buf, ObjectId, ObjsetId, Result, Txg, VdevId, align_up};
use compress::Algorithm;
use phys::{DvaPhys, ObjectType};
use zio::{
    AllocClass, Allocator, BlockStore, Bookmark, DvaSet, Hint, Io, Pipeline, PipelineSettings,
    VdevOps, WritePolicy, WriteRequest,
};

const RECORD: usize = 128 << 10;
const RECORDS_PER_BATCH: usize = 512;

struct OneFile(File);

impl VdevOps for OneFile {
    fn read(
        &self,
        _io: &Io,
        _vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.0.read_exact_at(buf, offset)?;
        assert!(verify(buf), "the host's page cache does not lie");
        Ok(())
    }

    fn write(&self, _io: &Io, _vdev: VdevId, mut offset: u64, parts: &[&[u8]]) -> Result<()> {
        for part in parts {
            self.0.write_all_at(part, offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&self, _vdevs: &[VdevId]) -> Result<()> {
        Ok(())
    }

    fn psize_to_asize(&self, _vdev: VdevId, psize: u64, _birth: Txg) -> u64 {
        align_up(psize, 4096)
    }

    fn ashift(&self, _vdev: VdevId) -> u32 {
        12
    }
}

/// Wraps around at the end of the file.
struct Ring {
    next: AtomicU64,
    size: u64,
}

impl Allocator for Ring {
    fn allocate(
        &self,
        _txg: Txg,
        _class: AllocClass,
        psize: u64,
        copies: usize,
        _hint: &Hint,
    ) -> Result<DvaSet> {
        let asize = align_up(psize, 4096);
        let place = |_| {
            let at = self.next.fetch_add(asize, Ordering::Relaxed) % self.size;
            DvaPhys::new(VdevId(0), at, asize, false)
        };
        Ok((0..copies).map(place).collect())
    }

    fn free(&self, _txg: Txg, _birth: Txg, _dva: &DvaPhys) {}

    fn unallocate(&self, _txg: Txg, _dva: &DvaPhys) {}

    fn claim(&self, _txg: Txg, _dva: &DvaPhys) -> Result<()> {
        Ok(())
    }

    fn min_alloc(&self) -> u64 {
        4096
    }
}

fn records() -> Vec<Buf> {
    let mut x = 0x1234_5678_9abc_def1u64;
    let mut fresh = || {
        let mut buf = BlockBuf::scratch(RECORD);
        for chunk in buf.chunks_exact_mut(8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            chunk.copy_from_slice(&x.to_le_bytes());
        }
        buf.share()
    };
    (0..RECORDS_PER_BATCH).map(|_| fresh()).collect()
}

fn plain_loop(file: &File, records: &[Buf], batches: usize) -> u64 {
    let mut copy = BlockBuf::scratch(RECORD);
    let mut sum = 0;
    for batch in 0..batches {
        for (i, record) in records.iter().enumerate() {
            copy.copy_from_slice(record);
            sum ^= checksum::fletcher4(&copy)[0];
            let at = (batch * RECORDS_PER_BATCH + i) * RECORD;
            file.write_all_at(&copy, at as u64).expect("pwrite");
        }
    }
    sum
}

fn pipeline(store: &Pipeline, records: &[Buf], batches: usize, compress: Algorithm) {
    let policy = WritePolicy {
        compress,
        ..WritePolicy::default()
    };
    for batch in 0..batches {
        let request = |(i, record): (usize, &Buf)| {
            let bookmark = Bookmark::new(ObjsetId(1), ObjectId(2), 0, BlkId(i as u64));
            let type_ = ObjectType::PLAIN_FILE_CONTENTS.raw();
            WriteRequest::new(record.clone(), policy, type_, bookmark)
        };
        let requests = records.iter().enumerate().map(request).collect();
        let bps = store.write_batch(Txg(batch as u64 + 4), requests);
        assert_eq!(bps.expect("written").len(), records.len());
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args
        .next()
        .unwrap_or_else(|| "/tmp/pipeline_speed.img".into());
    let mib: usize = args
        .next()
        .map_or(1024, |n| n.parse().expect("a number of MiB"));
    let batches = (mib << 20) / (RECORD * RECORDS_PER_BATCH);
    let size = batches * RECORD * RECORDS_PER_BATCH;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(&path).expect("a file to write to");
    let records = records();
    // The first pass over the file allocates its pages and is not timed.
    plain_loop(&file, &records, batches);
    let space = Ring {
        next: AtomicU64::new(0),
        size: size as u64,
    };
    let vdevs = Arc::new(OneFile(file.try_clone().expect("a second handle")));
    let store = Pipeline::new(vdevs, Arc::new(space), PipelineSettings::default());
    let rate = |start: Instant| size as f64 / start.elapsed().as_secs_f64() / 1e9;
    for round in 0..3 {
        let start = Instant::now();
        plain_loop(&file, &records, batches);
        let plain = rate(start);
        let start = Instant::now();
        pipeline(&store, &records, batches, Algorithm::Off);
        let ours = rate(start);
        let start = Instant::now();
        pipeline(&store, &records, batches, Algorithm::Lz4);
        let lz4 = rate(start);
        let ratio = ours / plain;
        println!(
            "{round}: plain {plain:.2} GB/s, pipeline {ours:.2} GB/s ({ratio:.2}), lz4 on noise {lz4:.2} GB/s"
        );
    }
    std::fs::remove_file(path).expect("remove the file");
}
