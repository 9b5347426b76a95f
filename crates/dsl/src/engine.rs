//! Properties for the DMU: from stored numbers to [`ObjsetProps`].
//!
//! Source: OpenZFS module/zfs/dmu_objset.c (`checksum_changed_cb` and its neighbours),
//! module/zfs/zio_checksum.c (`zio_checksum_select`), module/zfs/zio_compress.c
//! (`zio_compress_select`), module/zcommon/zfs_prop.c @be7657e3

use std::collections::BTreeMap;

use compress::Algorithm;
use dmu::{ObjsetProps, RedundantMetadata};
use phys::ChecksumType;

use crate::env::PoolEnv;
use phys::feature;

/// The properties passed to the DMU, with the stored numbers of their defaults.
pub(crate) const DEFAULTS: &[(&str, u64)] = &[
    ("checksum", ChecksumType::On as u64),
    // `ZIO_COMPRESS_ON`
    ("compression", 1),
    ("copies", 1),
    ("recordsize", 128 << 10),
    ("dnodesize", DNSIZE_LEGACY),
    ("redundant_metadata", 0),
    ("special_small_blocks", 0),
    ("dedup", ChecksumType::Off as u64),
];

/// `ZIO_CHECKSUM_VERIFY`
const CHECKSUM_VERIFY: u64 = 1 << 8;

/// `ZFS_DNSIZE_LEGACY`: one slot.
const DNSIZE_LEGACY: u64 = 0;
/// `ZFS_DNSIZE_AUTO`: 1 KiB.
const DNSIZE_AUTO: u64 = 1;

/// Decodes the numbers of the properties in [`DEFAULTS`]; an invalid number counts as the default.
pub(crate) fn objset_props(raw: &BTreeMap<&str, u64>, env: &dyn PoolEnv) -> ObjsetProps {
    let number = |name: &str| raw.get(name).copied().unwrap_or(0);
    let on = compression_on(env);
    let compress = match Algorithm::from_property(number("compression")) {
        Ok(Algorithm::On) | Err(_) => on,
        Ok(algorithm) => algorithm,
    };
    let large_blocks = env.feature_is_enabled(feature::LARGE_BLOCKS);
    let max_blksz = if large_blocks {
        base::SPA_MAXBLOCKSIZE
    } else {
        base::SPA_OLD_MAXBLOCKSIZE
    };
    ObjsetProps {
        checksum: checksum(number("checksum")),
        compress,
        metadata_compress: on,
        copies: u8::try_from(number("copies").clamp(1, 3)).unwrap_or(1),
        redundant_metadata: match number("redundant_metadata") {
            1 => RedundantMetadata::Most,
            2 => RedundantMetadata::Some,
            3 => RedundantMetadata::None,
            _ => RedundantMetadata::All,
        },
        recordsize: number("recordsize").clamp(base::SPA_MINBLOCKSIZE, max_blksz),
        dnodesize: match number("dnodesize") {
            DNSIZE_LEGACY => 512,
            DNSIZE_AUTO => 1024,
            bytes => bytes.clamp(512, 16 << 10),
        },
        dedup: dedup(number("dedup")),
        encrypted: false,
        embed: env.feature_is_active(feature::EMBEDDED_DATA),
        hole_birth: env.feature_is_active(feature::HOLE_BIRTH),
        project_quota: env.feature_is_enabled(feature::PROJECT_QUOTA),
        special_small_blocks: number("special_small_blocks"),
        max_blksz,
    }
}

/// The DMU properties of the MOS, derived from the pool's features: it has no properties of its
/// own.
#[must_use]
pub fn mos_props(env: &dyn PoolEnv) -> ObjsetProps {
    let on = compression_on(env);
    ObjsetProps {
        compress: on,
        metadata_compress: on,
        embed: env.feature_is_active(feature::EMBEDDED_DATA),
        hole_birth: env.feature_is_active(feature::HOLE_BIRTH),
        ..ObjsetProps::mos()
    }
}

/// What `compression=on` means.
fn compression_on(env: &dyn PoolEnv) -> Algorithm {
    if env.feature_is_active(feature::LZ4_COMPRESS) {
        Algorithm::Lz4
    } else {
        Algorithm::Lzjb
    }
}

/// The checksum that blocks are deduplicated by, and whether their bytes are compared.
#[doc(alias = "zio_checksum_dedup_select")]
fn dedup(number: u64) -> Option<(ChecksumType, bool)> {
    let verify = number & CHECKSUM_VERIFY != 0;
    let raw = u8::try_from(number & !CHECKSUM_VERIFY).ok()?;
    match ChecksumType::try_from(raw).ok()? {
        ChecksumType::On => Some((ChecksumType::Sha256, verify)),
        strong @ (ChecksumType::Sha256
        | ChecksumType::Sha512
        | ChecksumType::Skein
        | ChecksumType::Blake3) => Some((strong, verify)),
        ChecksumType::EdonR => Some((ChecksumType::EdonR, true)),
        _ => None,
    }
}

fn checksum(number: u64) -> ChecksumType {
    ChecksumType::of_blocks(number).unwrap_or(ChecksumType::ON_VALUE)
}
