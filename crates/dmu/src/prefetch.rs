//! Sequential readers: which blocks to fetch before they are asked for.
//!
//! # What it is
//! Each object remembers up to eight streams, that is block ids at which a reader stopped. A read that
//! continues a stream doubles its window, from 256 KiB up to what the block store says; once a quarter
//! of the window is used up, it is refilled, so that fetching need not wait for the reader.
//!
//! # Source
//! OpenZFS module/zfs/dmu_zfetch.c @be7657e3.

const STREAMS_MAX: usize = 8;
const WINDOW_MIN_BYTES: u64 = 256 << 10;

#[derive(Clone, Copy)]
struct Stream {
    /// The block after the last one read.
    next: u64,
    /// The block after the last one fetched.
    ahead: u64,
    window_bytes: u64,
    /// Blocks read in sequence.
    run: u64,
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
        let known = self
            .0
            .iter()
            .position(|s| s.next == from || s.next == from + 1);
        let Some(at) = known else {
            if self.0.len() == STREAMS_MAX {
                self.0.remove(0);
            }
            self.0.push(Stream {
                next: to,
                ahead: to,
                window_bytes: 0,
                run: to - from,
            });
            return Progress {
                run_bytes: (to - from) * blksz,
                ..Progress::unknown(from)
            };
        };
        let mut stream = self.0.remove(at);
        let fetched = stream.ahead.clamp(from, to);
        if to > stream.next {
            let doubled = (stream.window_bytes * 2)
                .max(WINDOW_MIN_BYTES)
                .max((to - from) * blksz * 2);
            stream.window_bytes = doubled.min(window_max);
            stream.run += to - stream.next;
            stream.next = to;
        }
        let window = stream.window_bytes / blksz;
        let start = stream.ahead.max(stream.next);
        let target = stream.next + window;
        let fetch = start + window / 4 < target + 1 && start < target;
        if fetch {
            stream.ahead = target;
        }
        self.0.push(stream);
        Progress {
            run_bytes: stream.run * blksz,
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
}
