//! Uberblocks: the root pointer of the pool and the state it was written in.
//!
//! # What it is
//! The uberblock with the highest txg (then timestamp, then multihost sequence) whose checksum is
//! right names the MOS. It is in a ring of slots in every label, each slot `1 << shift` bytes with
//! a [`crate::label::EckPhys`] at its end; see [`crate::label`] and docs/spec/label.md.
//!
//! # On disk
//! ```text
//! 0    8  magic 0x00bab10c        168  8  software version
//! 8    8  version                 176  8  mmp magic 0xa11cea11
//! 16   8  txg                     184  8  mmp delay, ns
//! 24   8  guid sum                192  8  mmp config
//! 32   8  timestamp, seconds      200  8  checkpoint txg
//! 40 128  root block pointer      208  8  raidz reflow info
//! ```
//!
//! # Source
//! OpenZFS include/sys/uberblock_impl.h, module/zfs/uberblock.c @be7657e3.

use crate::bits::Field;
use crate::byteswap::swap_words;
use crate::layout::phys_struct;
use crate::{BlkPtrPhys, Phys};
use base::{Error, ErrorKind, Result, Txg};
use std::mem::size_of;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// `UBERBLOCK_MAGIC`.
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// `MMP_MAGIC`: the multihost fields are present.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// `UBERBLOCK_SHIFT`: log2 of the smallest slot.
pub const UBERBLOCK_SHIFT: u32 = 10;
/// `MAX_UBERBLOCK_SHIFT`: log2 of the largest slot.
pub const MAX_UBERBLOCK_SHIFT: u32 = 13;
/// `SPA_VERSION_FEATURES`: the version of pools with feature flags.
pub const SPA_VERSION_FEATURES: u64 = 5000;
/// `SPA_VERSION_BEFORE_FEATURES`: the last numbered version.
pub(crate) const SPA_VERSION_BEFORE_FEATURES: u64 = 28;

/// `MMP_INTERVAL_VALID_BIT` of mmp_config.
pub(crate) const MMP_INTERVAL_VALID: u64 = 1;
/// `MMP_SEQ_VALID_BIT` of mmp_config.
pub(crate) const MMP_SEQ_VALID: u64 = 2;
/// `MMP_FAIL_INT_VALID_BIT` of mmp_config.
pub(crate) const MMP_FAIL_INT_VALID: u64 = 4;

const MMP_INTERVAL: Field = Field::new(8, 24);
const MMP_SEQ: Field = Field::new(32, 16);
const MMP_FAIL_INT: Field = Field::new(48, 16);
const REFLOW_OFFSET: Field = Field::new(0, 55);
const REFLOW_STATE: Field = Field::new(55, 9);

/// The highest txg accepted. No pool reaches it: that takes a txg per microsecond for 2,000 years.
/// Higher numbers could overflow when later txgs are computed from them.
const TXG_MAX: u64 = 1 << 56;

phys_struct! {
    /// `uberblock_t`.
    #[doc(alias = "uberblock")]
    pub struct UberblockPhys: 216 {
        /// ub_magic: [`UBERBLOCK_MAGIC`]
        0 magic: U64,
        /// ub_version: 5000 with feature flags
        8 version: U64,
        /// ub_txg: of the last sync
        16 txg: U64,
        /// ub_guid_sum: sum of the guids of all vdevs, wrapping
        24 guid_sum: U64,
        /// ub_timestamp: seconds since 1970, UTC
        32 timestamp: U64,
        /// ub_rootbp: the objset of the MOS
        40 rootbp: BlkPtrPhys,
        /// ub_software_version: highest version that the writer knows
        168 software_version: U64,
        /// ub_mmp_magic: [`MMP_MAGIC`], or zero in old pools
        176 mmp_magic: U64,
        /// ub_mmp_delay: ns since the last multihost write; 0: multihost is off
        184 mmp_delay: U64,
        /// ub_mmp_config: interval, sequence, fail intervals, which of them are valid
        192 mmp_config: U64,
        /// ub_checkpoint_txg: 0, or the txg in which this checkpoint was taken
        200 checkpoint_txg: U64,
        /// ub_raidz_reflow_info: state and offset of a RAID-Z expansion
        208 raidz_reflow_info: U64,
    }
}

/// `RRSS_SCRATCH_VALID`: the first sectors that were copied are in the scratch area alone.
pub const RRSS_SCRATCH_VALID: u64 = 1;
/// `RRSS_SCRATCH_INVALID_SYNCED`: the first sectors are where they belong.
pub const RRSS_SCRATCH_INVALID_SYNCED: u64 = 2;
/// `RRSS_SCRATCH_INVALID_SYNCED_REFLOW`: more than the first sectors are where they belong.
pub const RRSS_SCRATCH_INVALID_SYNCED_REFLOW: u64 = 4;

impl UberblockPhys {
    /// Reads an uberblock of either byte order and checks magic and version, as `uberblock_verify`.
    ///
    /// # Errors
    /// `Unsupported` for unknown versions, `Corrupt` for no magic.
    pub fn parse(bytes: &[u8]) -> Result<UberblockPhys> {
        let mut ub = UberblockPhys::read(bytes)?;
        if ub.magic.get() == UBERBLOCK_MAGIC.swap_bytes() {
            swap_words(ub.as_mut_bytes());
        }
        let magic = ub.magic.get();
        if magic != UBERBLOCK_MAGIC {
            return Err(Error::corrupt(format!("ub_magic {magic:#x}")));
        }
        let version = ub.version.get();
        let known = (1..=SPA_VERSION_BEFORE_FEATURES).contains(&version);
        if !known && version != SPA_VERSION_FEATURES {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("ub_version {version}"),
            ));
        }
        if ub.txg.get() > TXG_MAX {
            return Err(Error::corrupt(format!("ub_txg {}", ub.txg)));
        }
        Ok(ub)
    }

    /// The txg of the sync that wrote it.
    #[must_use]
    pub fn txg(&self) -> Txg {
        Txg(self.txg.get())
    }

    /// The first txg whose log blocks are not allocated in this state, unless they are claimed: the next one, or, if a
    /// rewind wrote the uberblock, the one after that of the checkpoint.
    #[doc(alias = "spa_min_claim_txg")]
    #[must_use]
    pub fn min_claim_txg(&self) -> Txg {
        match self.checkpoint_txg.get() {
            0 => self.txg().next(),
            checkpoint => Txg(checkpoint.min(TXG_MAX)).next(),
        }
    }

    /// The sort key of `vdev_uberblock_compare`: txg, timestamp, multihost sequence.
    #[must_use]
    pub fn rank(&self) -> (u64, u64, u64) {
        (
            self.txg.get(),
            self.timestamp.get(),
            self.mmp_seq().map_or(0, u64::from),
        )
    }

    fn mmp_field(&self, valid: u64, field: Field) -> Option<u64> {
        let config = self.mmp_config.get();
        let there = self.mmp_magic.get() == MMP_MAGIC && config & valid != 0;
        there.then(|| field.get(config))
    }

    /// `MMP_INTERVAL`: milliseconds between multihost writes.
    #[must_use]
    pub fn mmp_interval_ms(&self) -> Option<u32> {
        self.mmp_field(MMP_INTERVAL_VALID, MMP_INTERVAL)
            .map(|value| value as u32)
    }

    /// `MMP_SEQ`: orders uberblocks within one second.
    #[must_use]
    pub fn mmp_seq(&self) -> Option<u16> {
        self.mmp_field(MMP_SEQ_VALID, MMP_SEQ)
            .map(|value| value as u16)
    }

    /// `MMP_FAIL_INT`: intervals after which the pool suspends.
    #[must_use]
    pub fn mmp_fail_intervals(&self) -> Option<u16> {
        self.mmp_field(MMP_FAIL_INT_VALID, MMP_FAIL_INT)
            .map(|value| value as u16)
    }

    /// Sets the multihost fields and their valid bits; clears the sequence if `seq` is `None`.
    pub fn set_mmp(&mut self, interval_ms: u32, fail_intervals: u16, seq: Option<u16>) {
        let mut config = MMP_INTERVAL_VALID | MMP_FAIL_INT_VALID;
        config = MMP_INTERVAL.set(config, u64::from(interval_ms));
        config = MMP_FAIL_INT.set(config, u64::from(fail_intervals));
        if let Some(seq) = seq {
            config = MMP_SEQ.set(config | MMP_SEQ_VALID, u64::from(seq));
        }
        self.mmp_magic.set(MMP_MAGIC);
        self.mmp_config.set(config);
    }

    /// `RRSS_GET_OFFSET`: bytes reflowed by a RAID-Z expansion.
    #[must_use]
    pub fn reflow_offset(&self) -> u64 {
        REFLOW_OFFSET.get_sectors(self.raidz_reflow_info.get(), 0)
    }

    /// `RAIDZ_REFLOW_SET`: how far a RAID-Z expansion is, in bytes, and the state of its scratch area.
    pub fn set_reflow(&mut self, state: u64, offset: u64) {
        let word = REFLOW_STATE.set(REFLOW_OFFSET.set_sectors(0, offset, 0), state);
        self.raidz_reflow_info.set(word);
    }

    /// Whether the first sectors that a RAID-Z expansion has copied are in the scratch area alone.
    #[must_use]
    pub fn has_reflow_in_scratch(&self) -> bool {
        self.reflow_state() == RRSS_SCRATCH_VALID
    }

    /// `RRSS_GET_STATE`: state of the scratch area of a RAID-Z expansion; 0: not in use.
    #[must_use]
    pub fn reflow_state(&self) -> u64 {
        REFLOW_STATE.get(self.raidz_reflow_info.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn magic_and_version_are_checked() {
        let mut ub = UberblockPhys::default();
        assert_eq!(
            UberblockPhys::parse(ub.as_bytes()).unwrap_err().context(),
            "ub_magic 0x0"
        );
        ub.magic.set(UBERBLOCK_MAGIC);
        ub.version.set(5001);
        let error = UberblockPhys::parse(ub.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        ub.version.set(5000);
        assert_eq!(UberblockPhys::parse(ub.as_bytes()).unwrap(), ub);
        let mut swapped = ub;
        swapped.magic.set(UBERBLOCK_MAGIC.swap_bytes());
        let error = UberblockPhys::parse(swapped.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn multihost_fields_need_magic_and_valid_bits() {
        let mut ub = UberblockPhys::default();
        ub.set_mmp(1000, 10, None);
        assert_eq!(ub.mmp_config.get(), 10 << 48 | 1000 << 8 | 5);
        assert_eq!((ub.mmp_interval_ms(), ub.mmp_seq()), (Some(1000), None));
        ub.set_mmp(1000, 10, Some(3));
        assert_eq!(ub.rank(), (0, 0, 3));
        ub.mmp_magic.set(0);
        assert_eq!(ub.mmp_interval_ms(), None);
    }
}
