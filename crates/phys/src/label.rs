//! Labels: four copies per device of its identity, each with a ring of uberblocks.
//!
//! # On disk
//! ```text
//! device:  L0 256K | L1 256K | boot 3.5M | allocatable ... | L2 256K | L3 256K
//! label:   0      8K  blank
//!          8K     8K  boot environment: version, text or nvlist, eck
//!          16K  112K  nvlist (XDR), eck in the last 40 bytes
//!          128K 128K  uberblock ring: slots of max(1K, sector) up to 8K, eck at each end
//! ```
//! The size of the device is rounded down to a multiple of 256 KiB; DVA offsets count from the end
//! of the boot area, 4 MiB. See docs/spec/label.md.
//!
//! # Crash argument
//! Labels 0 and 2 are written and flushed, then the uberblocks, then labels 1 and 3: at every
//! moment two labels are whole, and an uberblock is chosen only by txg and checksum.
//!
//! # Source
//! OpenZFS include/sys/vdev_impl.h (`vdev_label_t`), module/zfs/vdev_label.c,
//! include/sys/zio.h (`zio_eck_t`) @be7657e3.

use crate::layout::phys_struct;
use crate::uberblock::{MAX_UBERBLOCK_SHIFT, UBERBLOCK_SHIFT};
use std::mem::size_of;
use zerocopy::little_endian::U64;

/// `sizeof (vdev_label_t)`.
pub const LABEL_SIZE: u64 = 256 << 10;
/// `VDEV_LABELS`: copies per device.
pub const LABELS: usize = 4;
/// `VDEV_PAD_SIZE`: bytes left blank at the start of a label; also the size of the boot environment.
pub const PAD_SIZE: u64 = 8 << 10;
/// Offset of the boot environment block in a label.
pub const BOOT_ENV_OFFSET: u64 = 8 << 10;
/// Offset of the nvlist in a label.
pub const NVLIST_OFFSET: u64 = 16 << 10;
/// `VDEV_PHYS_SIZE`: bytes of the nvlist and its checksum.
pub const NVLIST_SIZE: u64 = 112 << 10;
/// The most bytes of nvlist.
pub const NVLIST_MAX: u64 = NVLIST_SIZE - 40;
/// Offset of the uberblock ring in a label.
pub const UBERBLOCK_RING_OFFSET: u64 = 128 << 10;
/// `VDEV_UBERBLOCK_RING`: bytes of the ring.
pub const UBERBLOCK_RING_SIZE: u64 = 128 << 10;
/// `MMP_BLOCKS_PER_LABEL`: slots at the end of the ring reserved for multihost.
pub const MMP_BLOCKS_PER_LABEL: u64 = 1;
/// `VDEV_BOOT_OFFSET`: the boot area follows the first two labels.
pub(crate) const BOOT_OFFSET: u64 = 512 << 10;
/// `VDEV_BOOT_SIZE`: 3.5 MiB.
pub const BOOT_SIZE: u64 = 7 << 19;
/// `VDEV_LABEL_START_SIZE`: labels and boot area, 4 MiB; offset 0 of a DVA is here.
pub const LABEL_START_SIZE: u64 = BOOT_OFFSET + BOOT_SIZE;
/// `VDEV_LABEL_END_SIZE`: the last two labels.
pub const LABEL_END_SIZE: u64 = 512 << 10;
/// `SPA_MINDEVSIZE`: smaller devices are refused.
pub const SPA_MINDEVSIZE: u64 = 64 << 20;
/// `ASHIFT_MIN`.
pub const ASHIFT_MIN: u32 = 9;
/// `ASHIFT_MAX`.
pub const ASHIFT_MAX: u32 = 16;

const _: () = {
    assert!(LABEL_START_SIZE == 4 << 20);
    assert!(NVLIST_OFFSET + NVLIST_SIZE == UBERBLOCK_RING_OFFSET);
    assert!(UBERBLOCK_RING_OFFSET + UBERBLOCK_RING_SIZE == LABEL_SIZE);
};

/// The size of a device as the labels see it: rounded down to a multiple of 256 KiB.
#[must_use]
#[doc(alias = "vdev_psize")]
pub const fn label_device_size(device_size: u64) -> u64 {
    device_size & !(LABEL_SIZE - 1)
}

/// `vdev_label_offset`: offset of label `index`, `0..4`, on a device; `None` if it is too small.
#[must_use]
#[doc(alias = "vdev_label_offset")]
pub const fn label_offset(device_size: u64, index: usize) -> Option<u64> {
    assert!(index < LABELS);
    let size = label_device_size(device_size);
    let index = index as u64;
    if size < LABEL_START_SIZE + LABEL_END_SIZE {
        None
    } else if index < 2 {
        Some(index.saturating_mul(LABEL_SIZE))
    } else {
        let from_end = 4u64.saturating_sub(index).saturating_mul(LABEL_SIZE);
        Some(size.saturating_sub(from_end))
    }
}

/// Bytes for allocation: the device less labels and boot area; 0 if it is too small.
#[must_use]
pub const fn allocatable_size(device_size: u64) -> u64 {
    label_device_size(device_size).saturating_sub(LABEL_START_SIZE + LABEL_END_SIZE)
}

/// `VDEV_UBERBLOCK_SHIFT`: log2 of an uberblock slot on a top-level vdev of this ashift.
#[must_use]
pub const fn uberblock_shift(ashift: u32) -> u32 {
    if ashift < UBERBLOCK_SHIFT {
        UBERBLOCK_SHIFT
    } else if ashift > MAX_UBERBLOCK_SHIFT {
        MAX_UBERBLOCK_SHIFT
    } else {
        ashift
    }
}

/// `VDEV_UBERBLOCK_SIZE`: bytes of an uberblock slot.
#[must_use]
pub const fn uberblock_size(ashift: u32) -> u64 {
    1u64.wrapping_shl(uberblock_shift(ashift))
}

/// `VDEV_UBERBLOCK_COUNT`: slots in the ring, 16 to 128.
#[must_use]
pub const fn uberblock_count(ashift: u32) -> u64 {
    UBERBLOCK_RING_SIZE.wrapping_shr(uberblock_shift(ashift))
}

/// `VDEV_UBERBLOCK_OFFSET`: offset of slot `slot` from the start of the label.
#[must_use]
pub const fn uberblock_offset(ashift: u32, slot: u64) -> u64 {
    assert!(
        slot < uberblock_count(ashift),
        "no such slot in the uberblock ring"
    );
    UBERBLOCK_RING_OFFSET.saturating_add(slot.wrapping_shl(uberblock_shift(ashift)))
}

/// `ZEC_MAGIC`: marks an embedded checksum.
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

phys_struct! {
    /// `zio_eck_t`: a checksum inside the block it covers.
    #[doc(alias = "zio_eck_t")]
    pub struct EckPhys: 40 {
        /// zec_magic: [`ZEC_MAGIC`]
        0 magic: U64,
        /// zec_cksum
        8 cksum: [U64; 4],
    }

    /// `vdev_boot_envblock_t`: boot loader variables in a label.
    #[doc(alias = "vdev_boot_envblock_t")]
    pub struct BootEnvPhys: 8192 {
        /// vbe_version: 0 raw text (GRUB), 1 nvlist
        0 version: U64,
        /// vbe_bootenv
        8 bootenv: [u8; 8144],
        /// vbe_zbt
        8152 eck: EckPhys,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_at_both_ends() {
        let size = (64 << 20) + 100_000;
        let all: Vec<_> = (0..4)
            .map(|i| label_offset(size, i).unwrap() >> 10)
            .collect();
        assert_eq!(all, [0, 256, 65536 - 512, 65536 - 256]);
        assert_eq!(allocatable_size(size), (64 << 20) - (4 << 20) - (512 << 10));
        assert_eq!(label_offset(1 << 20, 3), None);
    }

    #[test]
    fn ring_slots_grow_with_the_sector() {
        let facts = [9, 10, 12, 13, 16].map(|a| (uberblock_size(a), uberblock_count(a)));
        assert_eq!(
            facts,
            [(1024, 128), (1024, 128), (4096, 32), (8192, 16), (8192, 16)]
        );
        assert_eq!(uberblock_offset(12, 31), (256 << 10) - 4096);
    }
}
