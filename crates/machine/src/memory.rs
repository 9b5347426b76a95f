//! What ZFS makes of a computer's memory: the size of its cache, how much may be dirty, how long a txg lasts.
//!
//! # Why not simpler
//! The figures of the time are several times as large as what a simulation may take of this computer. The cache is
//! packed, and evicts what does not fit all the same (see `arc`), which is counted and told. Dirty data is kept as it
//! is, so there is a bound on it, [`DIRTY_BYTES_MAX`]: `machine show` tells where that is less than it would have been.
//!
//! # Source
//! FreeBSD 8 and 9: `sys/cddl/contrib/opensolaris/uts/common/fs/zfs/arc.c` (`arc_init`: five eighths of the kernel's
//! memory, or all but 1 GiB, whichever is more), `dsl_pool.c` (`zfs_write_limit_shift`: an eighth of the memory; the
//! adaption to a drive's rate is not modelled), `txg.c` (`zfs_txg_timeout`: 30 s up to pool version 15, 5 s with 28),
//! `sys/amd64/include/vmparam.h` (`VM_KMEM_SIZE_SCALE`: the kernel has a third of the memory in 8.0 and 8.1, all of it
//! from 8.2 on). OpenZFS 2.1 and today: `module/zfs/arc.c` (a tenth of the memory may be dirty, at most a quarter of it
//! and 4 GiB), `module/os/freebsd/zfs/arc_os.c` (`arc_default_max`, as before), `module/zfs/txg.c` (5 s). Since 2.3
//! Linux has the same figures, so today there is one set.

/// A ZFS of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zfs {
    /// FreeBSD 8.0 and 8.1: pool versions 13 and 14.
    FreeBsd8,
    /// FreeBSD 9: pool version 28.
    FreeBsd9,
    /// OpenZFS 2.1 on FreeBSD 13.
    OpenZfs21,
    /// OpenZFS of today.
    Today,
}

/// What a ZFS makes of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The computer's memory.
    pub bytes: u64,
    /// `arc_c_max`: the size of the cache.
    pub arc_bytes: u64,
    /// How much could be dirty at a time there.
    pub dirty_data_there_bytes: u64,
    /// `zfs_txg_timeout`
    pub txg_timeout_ns: u64,
}

/// The most dirty data here: what stays of 2 GiB beside the caches of pool and drives.
const DIRTY_BYTES_MAX: u64 = 1 << 30;
/// The most that the cache's blocks take of this computer's memory.
const ARC_REAL_BYTES: u64 = 512 << 20;

const GIB: u64 = 1 << 30;

impl Zfs {
    /// What it makes of a memory of that size.
    #[must_use]
    pub fn memory(self, bytes: u64) -> Memory {
        let kernel_bytes = match self {
            Zfs::FreeBsd8 => bytes / 3,
            _ => bytes,
        };
        let dirty_data_there_bytes = match self {
            Zfs::FreeBsd8 | Zfs::FreeBsd9 => bytes / 8,
            Zfs::OpenZfs21 | Zfs::Today => (bytes / 10).min(bytes / 4).min(4 * GIB),
        };
        Memory {
            bytes,
            arc_bytes: (kernel_bytes / 8 * 5).max(kernel_bytes.saturating_sub(GIB)),
            dirty_data_there_bytes,
            txg_timeout_ns: match self {
                Zfs::FreeBsd8 => 30_000_000_000,
                _ => 5_000_000_000,
            },
        }
    }
}

impl Memory {
    /// How much may be dirty at a time here.
    #[must_use]
    pub fn dirty_data_max_bytes(&self) -> u64 {
        self.dirty_data_there_bytes.min(DIRTY_BYTES_MAX)
    }

    /// The most that the cache's blocks take of this computer's memory.
    #[must_use]
    pub fn arc_real_bytes(&self) -> u64 {
        ARC_REAL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_made_something_else_of_eight_gibibytes() {
        let of = |zfs: Zfs| {
            let memory = zfs.memory(8 * GIB);
            (
                memory.arc_bytes >> 20,
                memory.dirty_data_max_bytes() >> 20,
                memory.txg_timeout_ns / 1_000_000_000,
            )
        };
        assert_eq!(of(Zfs::FreeBsd8), (1706, 1024, 30));
        assert_eq!(of(Zfs::FreeBsd9), (7168, 1024, 5));
        assert_eq!(of(Zfs::OpenZfs21), (7168, 819, 5));
        assert_eq!(of(Zfs::Today), (7168, 819, 5));
    }

    #[test]
    fn of_large_memories_less_is_dirty_here_than_there() {
        let memory = Zfs::Today.memory(64 * GIB);
        assert_eq!(memory.dirty_data_there_bytes, 4 * GIB);
        assert_eq!(memory.dirty_data_max_bytes(), GIB);
        assert_eq!(Zfs::Today.memory(GIB).arc_bytes, GIB / 8 * 5);
    }
}
