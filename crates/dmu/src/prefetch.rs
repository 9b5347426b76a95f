//! Sequential readers: which blocks to fetch before they are asked for.
//!
//! # What it is
//! Each object remembers up to eight streams, that is block ids at which somebody stopped
//! reading. A read that goes on where a stream stopped doubles its window, from 256 KiB up to
//! 8 MiB; when less than half of the window is left ahead, it is filled up.
//!
//! # Source
//! OpenZFS module/zfs/dmu_zfetch.c @be7657e3.

const STREAMS_MAX: usize = 8;
const WINDOW_MIN_BYTES: u64 = 256 << 10;
const WINDOW_MAX_BYTES: u64 = 8 << 20;

#[derive(Clone, Copy)]
struct Stream {
    /// The block behind the last one read.
    next: u64,
    /// The block behind the last one fetched.
    ahead: u64,
    window_bytes: u64,
    /// Blocks read in sequence.
    run: u64,
}

/// Blocks to be fetched, and how much their reader has read in sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) run_bytes: u64,
}

/// The streams of one object, the latest last.
#[derive(Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    /// Blocks `[from, to)` are read; answers the blocks to be fetched, if any.
    pub(crate) fn advance(&mut self, from: u64, to: u64, blksz: u64) -> Option<Fetch> {
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
            return None;
        };
        let mut stream = self.0.remove(at);
        if to > stream.next {
            let doubled = (stream.window_bytes * 2)
                .max(WINDOW_MIN_BYTES)
                .max((to - from) * blksz * 2);
            stream.window_bytes = doubled.min(WINDOW_MAX_BYTES);
            stream.run += to - stream.next;
            stream.next = to;
        }
        let window = stream.window_bytes / blksz;
        let start = stream.ahead.max(stream.next);
        let target = stream.next + window;
        let fetch = start + window / 2 < target + 1 && start < target;
        if fetch {
            stream.ahead = target;
        }
        self.0.push(stream);
        fetch.then_some(Fetch {
            from: start,
            to: target,
            run_bytes: stream.run * blksz,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_is_kept_ahead_of() {
        let mut streams = Streams::default();
        let mut fetched = 0;
        for blk in 0..1000 {
            if let Some(Fetch {
                from,
                to,
                run_bytes,
            }) = streams.advance(blk, blk + 1, 131_072)
            {
                assert_eq!(run_bytes, (blk + 1) * 131_072);
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
            assert_eq!(
                streams.advance(i * 7919 % 1000 * 2, i * 7919 % 1000 * 2 + 1, 131_072),
                None
            );
        }
    }

    #[test]
    fn small_reads_within_a_block_belong_to_the_stream() {
        let mut streams = Streams::default();
        let fetches = (0..64).filter(|i| streams.advance(i / 32, i / 32 + 1, 131_072).is_some());
        assert_eq!(fetches.count(), 1);
    }
}
