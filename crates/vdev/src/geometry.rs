//! Sizes: the sectors and the metaslabs of a new top-level vdev.
//!
//! # Source
//! OpenZFS `module/zfs/vdev.c` (`vdev_open`, `vdev_ashift_optimize`, `vdev_metaslab_set_size`).

use base::highbit;
use geom::Provider;
use phys::label::ASHIFT_MIN;

/// `zfs_vdev_default_ms_shift`: metaslabs are 512 MiB unless there would be too few or too many.
const DEFAULT_MS_SHIFT: u32 = 29;
/// `zfs_vdev_min_ms_count`: a small vdev still gets about this many metaslabs.
const MIN_MS_COUNT: u64 = 16;
/// `zfs_vdev_default_ms_count`: a large vdev gets about this many.
const DEFAULT_MS_COUNT: u64 = 200;
/// `zfs_vdev_max_ms_shift`: metaslabs grow up to 16 GiB.
const MAX_MS_SHIFT: u32 = 34;
/// `zfs_vdev_ms_count_limit`: above this many metaslabs they grow further.
const MS_COUNT_LIMIT: u64 = 1 << 17;
/// `SPA_MAXBLOCKSHIFT`: a metaslab holds at least one block of the largest size.
const SPA_MAXBLOCKSHIFT: u32 = 24;
/// `zfs_vdev_max_auto_ashift`: a physical sector above 16 KiB is ignored.
const MAX_AUTO_ASHIFT: u32 = 14;

/// log2 of the metaslab size for a new top-level vdev of `asize` bytes.
#[must_use]
#[doc(alias = "vdev_metaslab_set_size")]
pub fn metaslab_shift(asize: u64) -> u32 {
    let count = asize >> DEFAULT_MS_SHIFT;
    let wanted = if count < MIN_MS_COUNT {
        highbit(asize / MIN_MS_COUNT)
    } else if count > DEFAULT_MS_COUNT {
        highbit(asize / DEFAULT_MS_COUNT)
    } else {
        DEFAULT_MS_SHIFT
    };
    if wanted <= MAX_MS_SHIFT {
        wanted.max(SPA_MAXBLOCKSHIFT)
    } else if asize >> MAX_MS_SHIFT > MS_COUNT_LIMIT {
        highbit(asize / MS_COUNT_LIMIT)
    } else {
        MAX_MS_SHIFT
    }
}

/// log2 of a provider's logical sector.
#[must_use]
pub fn logical_ashift(provider: &dyn Provider) -> u32 {
    provider.sectorsize().max(1 << ASHIFT_MIN).trailing_zeros()
}

/// log2 of a provider's physical sector.
#[must_use]
pub fn physical_ashift(provider: &dyn Provider) -> u32 {
    provider
        .stripesize()
        .max(provider.sectorsize())
        .max(1 << ASHIFT_MIN)
        .trailing_zeros()
}

/// The bounds within which the physical sector determines the ashift, as exponents of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoAshift {
    /// `zfs_vdev_min_auto_ashift`: no new vdev gets less.
    pub min: u32,
    /// `zfs_vdev_max_auto_ashift`: a larger physical sector is ignored. With 9, only the logical sector
    /// counts.
    pub max: u32,
}

impl Default for AutoAshift {
    fn default() -> Self {
        AutoAshift {
            min: ASHIFT_MIN,
            max: MAX_AUTO_ASHIFT,
        }
    }
}

/// The sector of a new top-level vdev. `requested` is 0 if none was asked for; a request below the
/// logical sector is ignored.
#[must_use]
#[doc(alias = "vdev_ashift_optimize")]
pub fn choose_ashift(requested: u32, logical: u32, physical: u32, auto: AutoAshift) -> u32 {
    if requested >= logical {
        requested
    } else if logical < physical && physical <= auto.max {
        physical.max(auto.min)
    } else {
        logical.max(auto.min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metaslabs_follow_the_table_of_openzfs() {
        const GIB: u64 = 1 << 30;
        let cases = [
            (59_768_832, 24), // a 64 MiB file: blocks of 16 MiB need metaslabs of 16 MiB
            (GIB, 27),        // below 8 GiB: about 16
            (8 * GIB, 29),    // up to 100 GiB: 512 MiB each
            (100 * GIB, 29),
            (101 * GIB, 30), // about 200
            (1024 * GIB, 33),
            (100 * 1024 * GIB, 34),
            (4096 * 1024 * GIB, 36),
        ];
        for (asize, shift) in cases {
            assert_eq!(metaslab_shift(asize), shift, "asize {asize}");
        }
    }

    #[test]
    fn ashift_follows_the_physical_sector_unless_asked_otherwise() {
        let choose = |requested, logical, physical| {
            choose_ashift(requested, logical, physical, AutoAshift::default())
        };
        assert_eq!(choose(0, 9, 9), 9);
        assert_eq!(choose(0, 9, 12), 12);
        assert_eq!(choose(9, 9, 12), 9);
        assert_eq!(choose(9, 12, 12), 12);
        assert_eq!(choose(13, 9, 12), 13);
        assert_eq!(choose(0, 9, 16), 9);
    }

    #[test]
    fn the_bounds_of_the_choice_are_settings() {
        let unheeding = AutoAshift { min: 9, max: 9 };
        assert_eq!(choose_ashift(0, 9, 12, unheeding), 9);
        assert_eq!(choose_ashift(12, 9, 12, unheeding), 12);
        let at_least = AutoAshift { min: 12, max: 14 };
        assert_eq!(choose_ashift(0, 9, 9, at_least), 12);
        assert_eq!(choose_ashift(0, 9, 13, at_least), 13);
        assert_eq!(choose_ashift(9, 9, 9, at_least), 9);
    }
}
