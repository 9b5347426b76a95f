//! diskmark: sequential and random speed at given queue depths, best of five.
//!
//! # What it is
//! CrystalDiskMark's method on a provider. A test area is filled once; then every [`Test`] runs for
//! some seconds unmeasured and five times measured, first all reads, then all writes, with a pause
//! between tests. The score is the best rate of the five, the latency the least mean of the five.
//! Commands bypass every cache of the host, but not the drive's own: nothing is flushed.
//!
//! # Invariants
//! 1. While a test runs, `queues * threads` commands are in flight; when one completes, the next is
//!    submitted at once.
//! 2. Only commands that complete within the time count.
//! 3. Every run of a random test uses the same offsets in the same order, as the original does.
//!
//! # Concurrency
//! One thread submits; completions are put into a list under one lock, by whichever thread reports
//! them. In simulated time the outcome is determined by the seed.
//!
//! # Source
//! CrystalDiskMark 8.0.4 and diskspd: profiles, times, order and report.

mod report;

use rt::SeededRandom;
use std::sync::Arc;

use base::{BlockBuf, Buf, Error, ErrorKind, Result};
use geom::{Bio, BioOp, Provider};

use crate::ends::Ends;

pub use report::Report;

const NS_PER_S: u64 = 1_000_000_000;
/// The test area is filled in writes of this size: 1 MiB.
const FILL_BYTES: u64 = 1 << 20;
/// After this many commands without any time passing, the provider is taken to cost no time, and
/// the run would never end.
const TIMELESS_COMMANDS: u64 = 1 << 12;

/// One way of reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// At random offsets; otherwise sequentially.
    pub is_random: bool,
    /// The size of a command, in bytes.
    pub block_bytes: u64,
    /// Commands in flight per thread.
    pub queues: u32,
    /// Threads.
    pub threads: u32,
}

const fn test(is_random: bool, block_kib: u64, queues: u32, threads: u32) -> Test {
    Test {
        is_random,
        block_bytes: block_kib << 10,
        queues,
        threads,
    }
}

/// The default profile.
pub const DEFAULT: &[Test] = &[
    test(false, 1024, 8, 1),
    test(false, 1024, 1, 1),
    test(true, 4, 32, 1),
    test(true, 4, 1, 1),
];
/// The profile for NVMe drives.
pub const NVME: &[Test] = &[
    test(false, 1024, 8, 1),
    test(false, 128, 32, 1),
    test(true, 4, 32, 16),
    test(true, 4, 1, 1),
];

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The tests to run.
    pub tests: Vec<Test>,
    /// Measure reading.
    pub reads: bool,
    /// Measure writing.
    pub writes: bool,
    /// Fill the area first.
    pub prepares: bool,
    /// Where the area begins.
    pub offset_bytes: u64,
    /// The size of the area.
    pub size_bytes: u64,
    /// Measured runs of each test.
    pub runs: u32,
    /// The length of each run.
    pub measure_ns: u64,
    /// The pause between tests.
    pub interval_ns: u64,
    /// Write zeros instead of random bytes.
    pub zeros: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tests: DEFAULT.to_vec(),
            reads: true,
            writes: true,
            prepares: true,
            offset_bytes: 0,
            size_bytes: 1 << 30,
            runs: 5,
            measure_ns: 5 * NS_PER_S,
            interval_ns: 5 * NS_PER_S,
            zeros: false,
        }
    }
}

/// One measured run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Commands that completed in time.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The sum of their times from submission to completion.
    pub latency_ns: u64,
    /// How long the run was measured.
    pub elapsed_ns: u64,
}

/// The outcome of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// The test.
    pub test: Test,
    /// Writing, not reading.
    pub is_write: bool,
    /// All measured runs.
    pub runs: Vec<Run>,
}

/// What a run reports to its observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// Bytes of the area filled so far.
    Filled(u64),
    /// A run of a test begins: the test, whether it writes, and the run's number (0 is unmeasured).
    Running(Test, bool, u32),
    /// A test is done.
    Done(&'a Score),
}

impl Run {
    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * NS_PER_S as f64 / self.elapsed_ns.max(1) as f64
    }

    /// The mean latency in microseconds.
    #[must_use]
    pub fn latency_us(&self) -> f64 {
        self.latency_ns as f64 / 1000.0 / self.commands.max(1) as f64
    }
}

impl Score {
    /// The best rate, in MB (10⁶ bytes) per second.
    #[must_use]
    pub fn mb_per_s(&self) -> f64 {
        self.runs.iter().map(Run::bytes_per_s).fold(0.0, f64::max) / 1e6
    }

    /// Commands per second at the best rate.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.mb_per_s() * 1e6 / self.test.block_bytes as f64
    }

    /// The least mean latency, in microseconds; 0 if no command completed.
    #[must_use]
    pub fn latency_us(&self) -> f64 {
        let means = self
            .runs
            .iter()
            .filter(|run| run.commands > 0)
            .map(Run::latency_us);
        means.reduce(f64::min).unwrap_or(0.0)
    }
}

/// Runs all tests, reporting progress to `observe`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the area does not fit the provider or a test; what the provider says.
pub fn run(
    provider: &dyn Provider,
    options: &Options,
    mut observe: impl FnMut(Progress<'_>),
) -> Result<Vec<Score>> {
    check(provider, options)?;
    if options.prepares {
        fill(provider, options, &mut observe)?;
    }
    let mut scores = Vec::new();
    for is_write in [false, true] {
        let wanted = if is_write {
            options.writes
        } else {
            options.reads
        };
        for test in options.tests.iter().filter(|_| wanted) {
            if !scores.is_empty() {
                rt::sleep_ns(options.interval_ns);
            }
            let mut runs = Vec::new();
            for n in 0..=options.runs {
                observe(Progress::Running(*test, is_write, n));
                let run = measure(provider, options, *test, is_write)?;
                if n > 0 {
                    runs.push(run);
                }
            }
            let score = Score {
                test: *test,
                is_write,
                runs,
            };
            observe(Progress::Done(&score));
            scores.push(score);
        }
    }
    Ok(scores)
}

fn check(provider: &dyn Provider, options: &Options) -> Result<()> {
    let name = provider.name();
    let sector = u64::from(provider.sectorsize());
    let end = options.offset_bytes.checked_add(options.size_bytes);
    if end.is_none_or(|end| end > provider.mediasize()) {
        let text = format!(
            "{name}: a test area of {} bytes at {} does not fit into {}",
            options.size_bytes,
            options.offset_bytes,
            provider.mediasize()
        );
        return Err(Error::invalid(text));
    }
    for test in &options.tests {
        let block = test.block_bytes;
        if !block.is_multiple_of(sector) || !options.offset_bytes.is_multiple_of(sector) {
            let text = format!("{name}: blocks of {block} bytes are not whole sectors of {sector}");
            return Err(Error::invalid(text));
        }
        if options.size_bytes < block {
            let text = format!("a test area of {} bytes is too small", options.size_bytes);
            return Err(Error::invalid(text));
        }
    }
    Ok(())
}

/// Random bytes, the same ones every time.
fn data(len: u64, zeros: bool) -> Result<Buf> {
    let len = usize::try_from(len).map_err(|_| Error::invalid("a block that large"))?;
    let mut block = BlockBuf::paged(len);
    if !zeros {
        let mut random = SeededRandom::new(1);
        for chunk in block.chunks_mut(8) {
            let bytes = random.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
    Ok(block.share())
}

fn fill(
    provider: &dyn Provider,
    options: &Options,
    observe: &mut impl FnMut(Progress<'_>),
) -> Result<()> {
    let block = data(FILL_BYTES, options.zeros)?;
    let sector = u64::from(provider.sectorsize());
    let size = options.size_bytes - options.size_bytes % sector;
    let mut done = 0;
    while done < size {
        observe(Progress::Filled(done));
        let len = FILL_BYTES.min(size - done);
        let len = usize::try_from(len).expect("at most a megabyte");
        provider.write(options.offset_bytes + done, &block[..len])?;
        done += len as u64;
    }
    provider.flush()
}

/// A completed command: when it was submitted, when it completed, and its result.
struct Ended {
    submitted_ns: u64,
    ended_ns: u64,
    result: Result<()>,
}

/// One run of a test.
struct Load<'a> {
    provider: &'a dyn Provider,
    test: Test,
    /// What is written; `None` to read.
    data: Option<Buf>,
    offset_bytes: u64,
    blocks: u64,
    places: SeededRandom,
    next_block: u64,
    ends: Arc<Ends<Ended>>,
}

impl Load<'_> {
    fn submit(&mut self) {
        let block = if self.test.is_random {
            self.places.below(self.blocks)
        } else {
            let block = self.next_block;
            self.next_block = (block + 1) % self.blocks;
            block
        };
        let len = usize::try_from(self.test.block_bytes).expect("checked: data was made");
        let op = match &self.data {
            Some(data) => BioOp::Write(data.clone()),
            None => BioOp::Read { len },
        };
        let ends = Arc::clone(&self.ends);
        let submitted_ns = rt::now_ns();
        self.provider.submit(Bio {
            op,
            offset: self.offset_bytes + block * self.test.block_bytes,
            done: Box::new(move |result| {
                let ended = Ended {
                    submitted_ns,
                    ended_ns: rt::now_ns(),
                    result: result.map(drop),
                };
                ends.push(ended);
            }),
        });
    }
}

fn measure(provider: &dyn Provider, options: &Options, test: Test, is_write: bool) -> Result<Run> {
    let data = data(test.block_bytes, options.zeros)?;
    let mut load = Load {
        provider,
        test,
        data: is_write.then_some(data),
        offset_bytes: options.offset_bytes,
        blocks: options.size_bytes / test.block_bytes,
        places: SeededRandom::new(0),
        next_block: 0,
        ends: Arc::default(),
    };
    let start = rt::now_ns();
    let deadline = start.saturating_add(options.measure_ns);
    let mut run = Run {
        elapsed_ns: options.measure_ns,
        ..Run::default()
    };
    let mut under_way = u64::from(test.queues) * u64::from(test.threads);
    (0..under_way).for_each(|_| load.submit());
    let mut failed = None;
    while under_way > 0 {
        let ended = load.ends.next();
        match ended.result {
            Err(error) => failed = failed.or(Some(error)),
            Ok(()) if ended.ended_ns <= deadline => {
                run.commands += 1;
                run.bytes += test.block_bytes;
                run.latency_ns += ended.ended_ns - ended.submitted_ns;
            }
            Ok(()) => {}
        }
        if run.commands >= TIMELESS_COMMANDS && rt::now_ns() == start {
            let text = format!("{}: no time passes on it", provider.name());
            failed = failed.or(Some(Error::new(ErrorKind::Unsupported, text)));
        }
        if failed.is_none() && rt::now_ns() < deadline {
            load.submit();
        } else {
            under_way -= 1;
        }
    }
    failed.map_or(Ok(run), Err)
}

#[cfg(test)]
mod tests;
