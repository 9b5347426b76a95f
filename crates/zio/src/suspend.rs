//! An I/O that failed on every copy: whether it is issued again.
//!
//! # What it is
//! The pipeline cannot undo half a txg, so a write that no device took must be repeated until one does.
//! [`reissue`] is the loop around such an I/O; [`Suspend`], implemented above, makes it wait while the
//! pool is suspended and says when there is no point in another attempt. The thread that issued the I/O
//! waits inside of `reissue`, and still holds the bytes.
//!
//! # Invariants
//! 1. A write returns an error only after [`Suspend::wait_resumed`] refused another attempt.
//! 2. Only errors of devices are waited for: [`Io`](ErrorKind::Io), and
//!    [`NoSpace`](ErrorKind::NoSpace) of a sparse file whose host is full.
//!
//! # Why not simpler
//! Parking failed writes in a list of their own would free the threads that wait, but nothing can
//! make progress while the pool is suspended, so these threads are not missed.
//!
//! # Source
//! OpenZFS `module/zfs/zio.c` (`zio_suspend`, `zio_resume`, `zio_reexecute`).

use base::{Error, ErrorKind, Result};

/// What kind of I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedIo {
    /// A write that must not be lost. It waits in every failure mode.
    Write,
    /// A read for which no device answers any more.
    Read,
    /// A read for which no device answers that has the block; those that answer missed it. It waits only where
    /// it cannot fail, while a txg is synced: elsewhere it is an error, since the device may never come back.
    MissedRead,
}

/// Decides what becomes of I/O that failed on every copy.
pub trait Suspend: Send + Sync {
    /// How many times the pool was resumed. To be read before an I/O is issued.
    fn resumed_count(&self) -> u64;

    /// Suspends the pool because of `error`, if it is not suspended already, and waits until it is
    /// resumed. Returns at once if it was resumed since [`resumed_count`](Suspend::resumed_count)
    /// returned `issued_at`: the I/O was issued before the devices were back.
    ///
    /// # Errors
    /// `error`, when the I/O is not to be issued again.
    #[doc(alias = "zio_suspend")]
    fn wait_resumed(&self, io: FailedIo, issued_at: u64, error: Error) -> Result<()>;

    /// An I/O that had to wait has succeeded: its device answers again.
    fn note_success(&self);
}

/// As what a write that failed with `error` waits: repeating it may help.
#[must_use]
pub fn failed_write(error: &Error) -> Option<FailedIo> {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace).then_some(FailedIo::Write)
}

/// Issues an I/O, and again each time that the pool is resumed, until it succeeds. `kind` says as what a failed
/// one waits, if it does; without `suspend` there is no second attempt.
///
/// # Errors
/// The last error of `issue`.
#[doc(alias = "zio_reexecute")]
pub fn reissue<T>(
    suspend: Option<&dyn Suspend>,
    kind: impl Fn(&Error) -> Option<FailedIo>,
    mut issue: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut has_waited = false;
    loop {
        let issued_at = suspend.map_or(0, Suspend::resumed_count);
        match issue() {
            Ok(done) => {
                if let Some(suspend) = suspend.filter(|_| has_waited) {
                    suspend.note_success();
                }
                return Ok(done);
            }
            Err(error) => {
                let Some((suspend, io)) = suspend.zip(kind(&error)) else {
                    return Err(error);
                };
                suspend.wait_resumed(io, issued_at, error)?;
            }
        }
        has_waited = true;
    }
}
