//! Sequential readers: which blocks to fetch before they are asked for.
//!
//! # What it is
//! Each object remembers up to eight streams, that is block ids at which a reader stopped. A read that
//! continues a stream doubles its window, from 256 KiB up to what the block store says; once a quarter
//! of the window is used up, it is refilled, so that fetching need not wait for the reader.
//!
//! A kernel that reads ahead asks for several pieces at a time, which threads take in any order. A read a little before
//! its turn belongs to the stream, too, and is remembered until what is between has been read; if that does not
//! happen, the stream goes on behind it.
//!
//! # Source
//! OpenZFS module/zfs/dmu_zfetch.c @be7657e3.

const STREAMS_MAX: usize = 8;
const WINDOW_MIN_BYTES: u64 = 256 << 10;
/// How far before its turn a read may come, at most, in bytes, and if the stream is at least as long.
#[doc(alias = "zfetch_max_reorder")]
const EARLY_BYTES: u64 = 16 << 20;
/// Ranges of blocks that were read before their turn, at most.
#[doc(alias = "ZFETCH_RANGES")]
const EARLY_MAX: usize = 8;

struct Stream {
    /// The block after the last one read.
    next: u64,
    /// The block after the last one fetched.
    ahead: u64,
    window_bytes: u64,
    /// Blocks read in sequence.
    run: u64,
    /// Ranges `[from, to)` that were read before their turn, in order.
    early: Vec<(u64, u64)>,
}

impl Stream {
    /// Whether a read from block `from` on continues it.
    fn continues(&self, from: u64) -> bool {
        self.next == from || self.next == from + 1
    }

    /// Whether a read from block `from` on belongs to it, before its turn.
    fn is_early(&self, from: u64, blksz: u64) -> bool {
        let most = self.run.min(EARLY_BYTES / blksz);
        from > self.next && from - self.next <= most
    }

    /// Blocks `[from, to)` were read, which begin at `next` or before it.
    fn go_on(&mut self, to: u64) {
        if to > self.next {
            self.run += to - self.next;
            self.next = to;
        }
    }

    /// Blocks `[from, to)` were read before their turn.
    fn note_early(&mut self, from: u64, to: u64) {
        let at = self.early.partition_point(|(other, _)| *other < from);
        self.early.insert(at, (from, to));
        if self.early.len() > EARLY_MAX {
            // What is before the first one was passed over.
            self.next = self.early[0].0;
        }
        self.take_early();
    }

    /// Goes on behind what was read early, if its turn has come.
    fn take_early(&mut self) {
        let next = |stream: &Stream| stream.early.first().copied();
        while let Some((from, to)) = next(self)
            && from <= self.next
        {
            self.go_on(to);
            self.early.remove(0);
        }
    }
}

/// What is known of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How much was read in sequence.
    pub(crate) run_bytes: u64,
    /// The blocks of this read before this one were fetched already.
    pub(crate) fetched: u64,
    /// Blocks `[from, to)` are to be fetched.
    pub(crate) fetch: Option<(u64, u64)>,
}

impl Progress {
    /// A reader with no history, from block `from` on.
    pub(crate) fn unknown(from: u64) -> Progress {
        Progress {
            run_bytes: 0,
            fetched: from,
            fetch: None,
        }
    }
}

/// The streams of one object, the latest last.
#[derive(Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// Blocks `[from, to)` are read. The window is at most `window_max` bytes.
    pub(crate) fn advance(
        &mut self,
        (from, to): (u64, u64),
        blksz: u64,
        window_max: u64,
    ) -> Progress {
        let position = |is_it: &dyn Fn(&Stream) -> bool| self.0.iter().position(is_it);
        let known = position(&|stream| stream.continues(from))
            .or_else(|| position(&|stream| stream.is_early(from, blksz)));
        let Some(at) = known else {
            if self.0.len() == STREAMS_MAX {
                self.0.remove(0);
            }
            self.0.push(Stream {
                next: to,
                ahead: to,
                window_bytes: 0,
                run: to - from,
                early: Vec::new(),
            });
            return Progress {
                run_bytes: (to - from) * blksz,
                ..Progress::unknown(from)
            };
        };
        let mut stream = self.0.remove(at);
        let fetched = stream.ahead.clamp(from, to);
        let before = stream.next;
        if stream.continues(from) {
            stream.go_on(to);
            stream.take_early();
        } else {
            stream.note_early(from, to);
        }
        if stream.next > before {
            let doubled = (stream.window_bytes * 2)
                .max(WINDOW_MIN_BYTES)
                .max((to - from) * blksz * 2);
            stream.window_bytes = doubled.min(window_max);
        }
        let window = stream.window_bytes / blksz;
        let start = stream.ahead.max(stream.next);
        let target = stream.next + window;
        let fetch = start + window / 4 < target + 1 && start < target;
        if fetch {
            stream.ahead = target;
        }
        let run_bytes = stream.run * blksz;
        self.0.push(stream);
        Progress {
            run_bytes,
            fetched,
            fetch: fetch.then_some((start, target)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 8 << 20;

    #[test]
    fn a_sequential_reader_is_kept_ahead_of() {
        let mut streams = Streams::default();
        let mut fetched = 0;
        for blk in 0..1000 {
            let progress = streams.advance((blk, blk + 1), 131_072, WINDOW);
            assert_eq!(progress.run_bytes, (blk + 1) * 131_072);
            if let Some((from, to)) = progress.fetch {
                assert!(
                    from > blk && to > from && to - blk <= 65,
                    "{blk}: {from}..{to}"
                );
                assert!(from >= fetched, "fetched twice: {from} < {fetched}");
                fetched = to;
            }
            assert!(
                blk < 3 || fetched > blk + 1,
                "block {blk}, fetched up to {fetched}"
            );
        }
    }

    #[test]
    fn random_readers_fetch_nothing() {
        let mut streams = Streams::default();
        for i in 0..100u64 {
            let at = i * 7919 % 1000 * 2;
            let progress = streams.advance((at, at + 1), 131_072, WINDOW);
            assert_eq!((progress.run_bytes, progress.fetch), (131_072, None));
        }
    }

    #[test]
    fn small_reads_within_a_block_belong_to_the_stream() {
        let mut streams = Streams::default();
        let mut read = |i: u64| streams.advance((i / 32, i / 32 + 1), 131_072, WINDOW);
        let fetches = (0..64).filter(|i| read(*i).fetch.is_some());
        assert_eq!(fetches.count(), 1);
    }

    #[test]
    fn reads_that_come_in_another_order_belong_to_the_stream() {
        for seed in 0..100 {
            let mut state = seed;
            let mut streams = Streams::default();
            let mut fetched = 0;
            // Pieces of eight blocks; of each four any may come first.
            for group in 0..50 {
                let mut pieces = [0, 1, 2, 3].map(|n| (4 * group + n) * 8);
                for n in (1..4).rev() {
                    pieces.swap(n, rt::splitmix64(&mut state) as usize % (n + 1));
                }
                if group == 0 {
                    pieces.sort_unstable();
                }
                for from in pieces {
                    let progress = streams.advance((from, from + 8), 131_072, WINDOW);
                    if let Some((from, to)) = progress.fetch {
                        assert!(from >= fetched, "fetched twice: {from} < {fetched}");
                        fetched = to;
                    }
                }
                assert_eq!(streams.0.len(), 1, "seed {seed}");
                let stream = &streams.0[0];
                let all = (group + 1) * 32;
                assert_eq!((stream.next, stream.run, stream.early.len()), (all, all, 0));
                assert!(fetched >= all);
            }
        }
    }

    #[test]
    fn a_stream_goes_on_behind_what_its_reader_passes_over() {
        let mut streams = Streams::default();
        streams.advance((0, 64), 131_072, WINDOW);
        // Every other block from here on.
        for n in 0..100 {
            let from = 65 + 2 * n;
            streams.advance((from, from + 1), 131_072, WINDOW);
        }
        assert_eq!(streams.0.len(), 1);
        let stream = &streams.0[0];
        assert!(stream.next >= 248 && stream.early.len() <= EARLY_MAX);
        // Too far away.
        streams.advance((5000, 5001), 131_072, WINDOW);
        assert_eq!(streams.0.len(), 2);
    }
}
