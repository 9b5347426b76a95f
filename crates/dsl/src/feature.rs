//! The features whose reference counts the DSL keeps, by guid.
//!
//! Source: OpenZFS `module/zcommon/zfeature_common.c`.

/// Destroys spread over txgs (`bptree_obj`).
pub const ASYNC_DESTROY: &str = "com.delphix:async_destroy";
/// One shared empty bpobj for all empty deadlist entries.
pub const EMPTY_BPOBJ: &str = "com.delphix:empty_bpobj";
/// Directories and data sets that are also ZAPs.
pub const EXTENSIBLE_DATASET: &str = "com.delphix:extensible_dataset";
/// Bookmarks.
pub const BOOKMARKS: &str = "com.delphix:bookmarks";
/// Larger bookmark records.
pub const BOOKMARK_V2: &str = "com.datto:bookmark_v2";
/// Bookmarks that know how much was freed before the next snapshot.
pub const BOOKMARK_WRITTEN: &str = "com.delphix:bookmark_written";
/// Redaction lists of bookmarks.
pub const REDACTION_BOOKMARKS: &str = "com.delphix:redaction_bookmarks";
/// Limits of the number of file systems and snapshots.
pub const FS_SS_LIMIT: &str = "com.joyent:filesystem_limits";
/// Lists of the blocks of a clone that its origin does not have.
pub const LIVELIST: &str = "com.delphix:livelist";
/// Blocks larger than 128 KiB.
pub const LARGE_BLOCKS: &str = "org.open-zfs:large_blocks";
/// Dnodes larger than 512 bytes.
pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
/// SHA-512/256.
pub const SHA512: &str = "org.illumos:sha512";
/// Skein.
pub const SKEIN: &str = "org.illumos:skein";
/// Edon-R.
pub const EDONR: &str = "org.illumos:edonr";
/// BLAKE3.
pub const BLAKE3: &str = "org.openzfs:blake3";
/// Zstandard.
pub const ZSTD_COMPRESS: &str = "org.freebsd:zstd_compress";
/// Counting of objects per user and group.
pub const USEROBJ_ACCOUNTING: &str = "org.zfsonlinux:userobj_accounting";
/// Errors are logged by head.
pub const HEAD_ERRLOG: &str = "com.delphix:head_errlog";
/// Counting per project.
pub const PROJECT_QUOTA: &str = "org.zfsonlinux:project_quota";
/// Extended attributes in the intent log.
pub const ZILSAXATTR: &str = "org.openzfs:zilsaxattr";
/// LZ4.
pub const LZ4_COMPRESS: &str = "org.illumos:lz4_compress";

/// `ZFEATURE_FLAG_PER_DATASET`: counted once per data set that uses them; the data set's ZAP has
/// an entry of that name.
pub const PER_DATASET: &[&str] = &[
    LARGE_BLOCKS,
    LARGE_DNODE,
    SHA512,
    SKEIN,
    EDONR,
    "com.delphix:redacted_datasets",
    USEROBJ_ACCOUNTING,
    "com.datto:encryption",
    PROJECT_QUOTA,
    ZSTD_COMPRESS,
    ZILSAXATTR,
    BLAKE3,
    "org.zfsonlinux:longname",
    "com.klarasystems:large_microzap",
    "com.truenas:physical_rewrite",
];
