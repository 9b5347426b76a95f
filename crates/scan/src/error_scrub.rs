//! The error scrub: reading the blocks of the error log again.
//!
//! # On disk
//! Entry `error_scrub` of the pool directory: a `dsl_errorscrub_phys_t`, an array of integers. Its cursor is a position
//! among the heads of the last error log. The head that it names was not finished: what was read below it is read
//! again after an import, so what the entry counts leaves that out.
//!
//! # Crash argument
//! The entry is written in the txg in which blocks were read, and so is the log of those that are still damaged. After
//! a power cut the scrub goes on where that txg ended; entries are added to the log twice without harm.
//!
//! # Why not simpler
//! OpenZFS keeps only the position among the heads in memory, too: of a head with more blocks than one txg reads, it
//! leaves out the others. It counts the blocks to be examined by heads as well; here they are counted by entries.
//!
//! # Source
//! OpenZFS `module/zfs/dsl_scan.c` (`dsl_errorscrub_sync`, `dsl_errorscrub_sync_state`).

use std::sync::Arc;

use base::{ObjectId, Result, Txg};
use dmu::{Objset, Tx};
use dsl::{ErrorCursor, LoggedError};
use phys::ErrorScrubPhys;
use phys::pool_names::{ERRORSCRUB, POOL_DIRECTORY_OBJECT};
use phys::scan::{DSS_CANCELED, DSS_ERRORSCRUBBING, DSS_FINISHED, POOL_SCAN_ERRORSCRUB};
use rt::Mutex;
use zerocopy::IntoBytes;

use crate::issue::Issue;
use crate::slice::{Outcome, Pool};

/// The pool directory.
const DIRECTORY: ObjectId = ObjectId(POOL_DIRECTORY_OBJECT);

/// `zfs_scrub_error_blocks_per_txg`
const ENTRIES_PER_TXG: u64 = 4096;

/// The error scrub of a pool: the running one, or the last one.
#[derive(Default)]
pub struct ErrorScrub(Mutex<State>);

/// As it is at the end of a txg.
#[derive(Clone, Default)]
struct State {
    /// As it is on disk; `None` if there was no error scrub since the last scan began.
    phys: Option<ErrorScrubPhys>,
    /// What was done below the head that the cursor names.
    below: Below,
}

/// What was done below a head.
#[derive(Clone, Copy, Default)]
struct Below {
    within: u64,
    examined: u64,
    errors: u64,
}

impl ErrorScrub {
    /// Loads what the MOS has.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_scan_init")]
    pub fn load(&self, mos: &Arc<Objset>) -> Result<()> {
        let words = zap::lookup::<u64>(mos, DIRECTORY, ERRORSCRUB)?;
        let phys = words.map(|words| {
            let mut phys = ErrorScrubPhys::default();
            let bytes = words.as_bytes();
            let length = bytes.len().min(size_of::<ErrorScrubPhys>());
            phys.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
            // OpenZFS counts down from the number of heads, to below zero.
            if phys.to_examine.get().cast_signed() < 0 {
                phys.to_examine.set(0);
            }
            phys
        });
        let phys = phys.filter(|phys| phys.func.get() == POOL_SCAN_ERRORSCRUB);
        *self.0.lock() = State {
            phys,
            below: Below::default(),
        };
        Ok(())
    }

    /// The running error scrub, or the last one; `None` if a scan began since.
    #[must_use]
    pub fn phys(&self) -> Option<ErrorScrubPhys> {
        let mut state = self.0.lock().clone();
        state.settle();
        state.phys
    }

    /// Whether one has begun and not ended; it may be paused.
    #[must_use]
    #[doc(alias = "dsl_errorscrubbing")]
    pub fn is_running(&self) -> bool {
        let phys = self.0.lock().phys;
        phys.is_some_and(|phys| phys.state.get() == DSS_ERRORSCRUBBING)
    }

    /// Whether it is paused.
    #[must_use]
    #[doc(alias = "dsl_errorscrub_is_paused")]
    pub fn is_paused(&self) -> bool {
        let flags = self.0.lock().phys.map_or(0, |phys| phys.paused_flags.get());
        self.is_running() && flags != 0
    }

    /// Begins one in this txg. `to_examine`: entries of the log.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "dsl_errorscrub_setup_sync")]
    pub fn begin(&self, to_examine: u64, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let mut phys = ErrorScrubPhys::default();
        phys.func.set(POOL_SCAN_ERRORSCRUB);
        phys.state.set(DSS_ERRORSCRUBBING);
        phys.start_time.set(rt::wall_clock().secs);
        phys.to_examine.set(to_examine);
        let below = Below::default();
        let phys = Some(phys);
        self.put(State { phys, below }, mos, tx)
    }

    /// Pauses the running one, or resumes it.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "dsl_errorscrub_pause_resume_sync")]
    pub fn pause(&self, waits: bool, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        // It may have ended meanwhile.
        if !self.is_running() {
            return Ok(());
        }
        let mut state = self.0.lock().clone();
        if let Some(phys) = &mut state.phys {
            phys.paused_flags.set(waits.into());
        }
        self.put(state, mos, tx)
    }

    /// Ends the running one.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    #[doc(alias = "dsl_errorscrub_done")]
    pub fn end(&self, is_complete: bool, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let mut state = self.0.lock().clone();
        state.settle();
        if let Some(phys) = &mut state.phys {
            let how = if is_complete {
                DSS_FINISHED
            } else {
                DSS_CANCELED
            };
            phys.state.set(how);
            phys.paused_flags.set(0);
            phys.end_time.set(rt::wall_clock().secs);
        }
        self.put(state, mos, tx)
    }

    /// A scan begins: its state is all that is kept.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    pub fn erase(&self, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        if self.0.lock().phys.is_none() {
            return Ok(());
        }
        write(&ErrorScrubPhys::default(), mos, tx)?;
        *self.0.lock() = State::default();
        Ok(())
    }

    /// Reads the next blocks of the log, unless none runs or it is paused. In the first pass of a txg, when its
    /// datasets are written.
    ///
    /// # Errors
    /// Any error from reading the log and writing the MOS; damaged blocks are not an error.
    #[doc(alias = "dsl_errorscrub_sync")]
    pub fn slice(&self, pool: &Pool<'_>, tx: &Tx) -> Result<Outcome> {
        if !self.is_running() || self.is_paused() {
            return Ok(Outcome::default());
        }
        let mut state = self.0.lock().clone();
        let mut slice = Slice {
            issue: Issue::new(pool),
            counted: 0,
        };
        let mut is_complete = false;
        for _ in 0..ENTRIES_PER_TXG {
            let Some(logged) = pool.dsl.next_logged(state.cursor())? else {
                is_complete = true;
                break;
            };
            slice.take(&logged, &mut state);
            if slice.issue.is_slice_over() {
                break;
            }
        }
        slice.count_errors(&mut state);
        let tally = slice.issue.finish();
        self.put(state, pool.mos, tx)?;
        Ok(Outcome { tally, is_complete })
    }

    fn put(&self, state: State, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
        if let Some(phys) = &state.phys {
            write(phys, mos, tx)?;
        }
        *self.0.lock() = state;
        Ok(())
    }
}

/// What is read in one txg.
struct Slice<'a> {
    issue: Issue<'a>,
    /// Errors that the state counts.
    counted: u64,
}

impl Slice<'_> {
    /// Takes an entry; the head before it is finished, if it is the first of another one.
    fn take(&mut self, logged: &LoggedError, state: &mut State) {
        if logged.next.head != state.cursor().head {
            self.count_errors(state);
            state.settle();
        }
        for block in &logged.blocks {
            match &block.bp {
                Some(bp) => self.issue.take(bp, &block.at, Txg(0), Txg(u64::MAX)),
                None => self.issue.lost_at(&block.at, block.birth),
            }
        }
        state.advance(logged.next);
    }

    /// Reads what was taken, and counts what is still damaged.
    fn count_errors(&mut self, state: &mut State) {
        let errors = self.issue.errors();
        state.below.errors += errors - self.counted;
        self.counted = errors;
    }
}

impl State {
    fn cursor(&self) -> ErrorCursor {
        ErrorCursor {
            head: self.phys.map_or(0, |phys| phys.cursor.get()),
            within: self.below.within,
        }
    }

    fn advance(&mut self, to: ErrorCursor) {
        self.below.within = to.within;
        self.below.examined += 1;
        if let Some(phys) = &mut self.phys {
            phys.cursor.set(to.head);
        }
    }

    /// Counts what was done below a head as done.
    fn settle(&mut self) {
        let below = std::mem::take(&mut self.below);
        if let Some(phys) = &mut self.phys {
            let left = phys.to_examine.get().saturating_sub(below.examined);
            phys.to_examine.set(left);
            let examined = phys.examined.get().saturating_add(below.examined);
            phys.examined.set(examined);
            let errors = phys.errors.get().saturating_add(below.errors);
            phys.errors.set(errors);
        }
    }
}

#[doc(alias = "dsl_errorscrub_sync_state")]
fn write(phys: &ErrorScrubPhys, mos: &Arc<Objset>, tx: &Tx) -> Result<()> {
    let (words, _) = phys.as_bytes().as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    zap::update(mos, tx, DIRECTORY, ERRORSCRUB, &words[..])
}
