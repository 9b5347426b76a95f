//! How an objset writes its blocks.
//!
//! # Source
//! OpenZFS module/zfs/dmu.c (`dmu_write_policy`), include/sys/dmu_objset.h @be7657e3.

use compress::Algorithm;
use phys::{ChecksumType, ObjectType};
use zio::{Dedup, WritePolicy};

/// `zfs_redundant_metadata_type_t`: which metadata gets an extra copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedundantMetadata {
    /// All of it.
    #[default]
    All,
    /// All but the lowest level of indirect blocks of files.
    Most,
    /// What more than one file depends on.
    Some,
    /// None.
    None,
}

/// `zfs_redundant_metadata_most_ditto_level`: from here up, "most" includes indirect blocks.
const MOST_DITTO_LEVEL: u8 = 2;

/// Copies of an encrypted block: its salt and IV are where the third one would be entered.
const ENCRYPTED_COPIES_MAX: u8 = 2;

/// Properties of an objset as the DMU sees them; may change while it is open.
#[derive(Clone, Debug)]
pub struct ObjsetProps {
    /// os_checksum: concrete, never "on" or "inherit"
    pub checksum: ChecksumType,
    /// os_compress with its level
    pub compress: Algorithm,
    /// What metadata is compressed with: `Lz4` on every pool with that feature.
    pub metadata_compress: Algorithm,
    /// os_copies: 1 to 3
    pub copies: u8,
    /// os_redundant_metadata
    pub redundant_metadata: RedundantMetadata,
    /// os_recordsize: in bytes, for the layers above
    pub recordsize: u64,
    /// os_dnodesize: in bytes, for the layers above
    pub dnodesize: u64,
    /// os_dedup_checksum, os_dedup_verify: the checksum by which file data is deduplicated, and whether bytes are
    /// compared as well.
    pub dedup: Option<(ChecksumType, bool)>,
    /// os_encrypted: whether blocks are encrypted, by the key that the block store has for the objset.
    pub encrypted: bool,
    /// Whether the pool has `embedded_data`.
    pub embed: bool,
    /// Whether holes carry their birth txg (`hole_birth`).
    pub hole_birth: bool,
    /// Whether objset blocks have room for project accounting (`project_quota`): 4 KiB, not 2.
    pub project_quota: bool,
    /// Blocks of file data that take up to so many bytes on disk go to the special class (0: none).
    pub special_small_blocks: u64,
    /// The largest block: 16 MiB with `large_blocks`, otherwise 128 KiB.
    pub max_blksz: u64,
}

impl Default for ObjsetProps {
    /// A dataset with default properties on a new pool.
    fn default() -> Self {
        ObjsetProps {
            checksum: ChecksumType::Fletcher4,
            compress: Algorithm::Lz4,
            metadata_compress: Algorithm::Lz4,
            copies: 1,
            redundant_metadata: RedundantMetadata::All,
            recordsize: 128 << 10,
            dnodesize: 512,
            dedup: None,
            encrypted: false,
            embed: true,
            hole_birth: true,
            project_quota: true,
            special_small_blocks: 0,
            max_blksz: base::SPA_MAXBLOCKSIZE,
        }
    }
}

impl ObjsetProps {
    /// What the MOS has: three copies of everything.
    #[must_use]
    pub fn mos() -> Self {
        ObjsetProps {
            copies: 3,
            ..ObjsetProps::default()
        }
    }

    /// Whether a block of file data of that size would be written in the same way with other properties.
    #[must_use]
    #[doc(alias = "zfs_bclone_strict_properties")]
    pub fn writes_like(&self, other: &ObjsetProps, blksz: u64, has_special: bool) -> bool {
        let written = |props: &ObjsetProps| {
            let (checksum, compress) = (props.checksum, props.compress);
            (checksum, compress, props.copies, props.dedup)
        };
        let small = [self.special_small_blocks, other.special_small_blocks];
        let (least, most) = (small[0].min(small[1]), small[0].max(small[1]));
        // A compressed block may be of any smaller size.
        let is_between = least < blksz && (self.compress != Algorithm::Off || most >= blksz);
        written(self) == written(other) && !(has_special && least != most && is_between)
    }

    /// How a block is to be encoded. The type of a spill block is the bonus type.
    #[doc(alias = "dmu_write_policy")]
    pub(crate) fn write_policy(&self, block: &BlockKind) -> WritePolicy {
        let mut policy = self.plain_policy(block);
        if self.encrypted {
            policy.encrypt = true;
            policy.embed = false;
            policy.dedup = Dedup::Off;
            if block.type_.is_encrypted() {
                policy.copies = policy.copies.min(ENCRYPTED_COPIES_MAX);
            }
        }
        policy
    }

    fn plain_policy(&self, block: &BlockKind) -> WritePolicy {
        let metadata = block.level > 0 || block.is_spill || block.type_.is_metadata();
        let embed = self.embed && block.level == 0 && !block.type_.has_fill();
        if !metadata {
            let (checksum, dedup) = match self.dedup {
                Some((checksum, true)) => (checksum, Dedup::Verify),
                Some((checksum, false)) => (checksum, Dedup::On),
                None => (block.checksum.unwrap_or(self.checksum), Dedup::Off),
            };
            return WritePolicy {
                checksum,
                compress: block.compress.unwrap_or(self.compress),
                copies: self.copies,
                embed,
                special_small_blocks: self.special_small_blocks,
                dedup,
                encrypt: false,
                storage: block.storage,
            };
        }
        let extra = match self.redundant_metadata {
            RedundantMetadata::All => true,
            RedundantMetadata::Most => {
                block.level >= MOST_DITTO_LEVEL || block.is_spill || block.type_.is_metadata()
            }
            RedundantMetadata::Some => block.type_.is_critical(block.level),
            RedundantMetadata::None => false,
        };
        let checksum = match self.checksum {
            strong if is_for_metadata(strong) => strong,
            _ => ChecksumType::Fletcher4,
        };
        WritePolicy {
            checksum,
            compress: self.metadata_compress,
            copies: (self.copies + u8::from(extra)).min(3),
            embed,
            special_small_blocks: 0,
            dedup: Dedup::Off,
            encrypt: false,
            storage: block.storage,
        }
    }
}

/// What [`ObjsetProps::write_policy`] looks at.
pub(crate) struct BlockKind {
    pub(crate) type_: ObjectType,
    pub(crate) level: u8,
    pub(crate) is_spill: bool,
    /// dn_checksum, unless "inherit"
    pub(crate) checksum: Option<ChecksumType>,
    /// dn_compress, unless "inherit"
    pub(crate) compress: Option<Algorithm>,
    /// dn_storage_type
    pub(crate) storage: Option<ObjectType>,
}

/// `ZCHECKSUM_FLAG_METADATA`: strong enough for metadata, and not embedded in the block.
fn is_for_metadata(checksum: ChecksumType) -> bool {
    matches!(
        checksum,
        ChecksumType::Fletcher4
            | ChecksumType::Sha256
            | ChecksumType::Sha512
            | ChecksumType::Skein
            | ChecksumType::EdonR
            | ChecksumType::Blake3
    )
}
