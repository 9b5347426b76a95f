//! The attributes of a device command: its txg, its purpose, its priority.
//!
//! # Source
//! OpenZFS `include/sys/zio.h` (`io_txg`, `io_flags`), `include/sys/zio_priority.h`.

use base::Txg;

/// How urgent a command is, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "zio_priority_t")]
pub enum Priority {
    /// A thread waits for these bytes (`ZIO_PRIORITY_SYNC_READ`).
    SyncRead,
    /// A thread called fsync (`ZIO_PRIORITY_SYNC_WRITE`).
    SyncWrite,
    /// Read ahead: no thread waits for these bytes yet (`ZIO_PRIORITY_ASYNC_READ`).
    AsyncRead,
    /// The txg that is being synced (`ZIO_PRIORITY_ASYNC_WRITE`).
    AsyncWrite,
    /// A sequential write of the open txg, which no thread waits for yet.
    WriteBehind,
    /// A scrub or a resilver (`ZIO_PRIORITY_SCRUB`).
    Scrub,
    /// Free space that is overwritten (`ZIO_PRIORITY_INITIALIZING`).
    Initializing,
    /// Free space that is deleted (`ZIO_PRIORITY_TRIM`).
    Trim,
}

/// What a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Reads: bytes that the caller needs; errors are counted and bad copies repaired. Writes: new blocks.
    Normal,
    /// A read of bytes that may well not verify, such as the block after the last one of an intent log:
    /// nothing is counted as an error and nothing repaired (`ZIO_FLAG_SPECULATIVE`).
    Speculative,
    /// A write of good bytes over bad ones: a device that fails it misses no more than before
    /// (`ZIO_FLAG_IO_REPAIR`).
    Repair,
}

/// What a vdev is told about a command, besides offset and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zio_t")]
pub struct Io {
    /// The txg in which the bytes were first written, or are being written: a device that missed that
    /// txg does not have them.
    pub birth: Txg,
    /// How urgent it is.
    pub priority: Priority,
    /// What it is for.
    pub purpose: Purpose,
}

impl Io {
    /// A read that a thread waits for.
    #[must_use]
    pub fn read(birth: Txg) -> Io {
        Io {
            birth,
            priority: Priority::SyncRead,
            purpose: Purpose::Normal,
        }
    }

    /// A read of bytes that may well not verify.
    #[must_use]
    pub fn speculative(birth: Txg) -> Io {
        Io {
            purpose: Purpose::Speculative,
            ..Io::read(birth)
        }
    }

    /// A write of a new block.
    #[must_use]
    pub fn write(birth: Txg, priority: Priority) -> Io {
        Io {
            birth,
            priority,
            purpose: Purpose::Normal,
        }
    }

    /// A write of good bytes over bad ones.
    #[must_use]
    pub fn repair(birth: Txg) -> Io {
        Io {
            birth,
            priority: Priority::AsyncWrite,
            purpose: Purpose::Repair,
        }
    }

    /// A read of every copy.
    #[must_use]
    pub fn scrub(birth: Txg) -> Io {
        Io {
            priority: Priority::Scrub,
            ..Io::read(birth)
        }
    }
}
