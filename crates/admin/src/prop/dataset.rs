//! Properties of file systems, volumes, snapshots and bookmarks, in `zfs_prop_t` order, which is the
//! order in which `zfs get all` shows them.
//!
//! # Source
//! OpenZFS module/zcommon/zfs_prop.c, include/sys/fs/zfs.h; texts of 2.3.

use super::{Edit, Honoured, Kind, PropDesc, Types};

const FS: Types = Types::FILESYSTEM;
const VOL: Types = Types::VOLUME;
const SNAP: Types = Types::SNAPSHOT;
const BOOK: Types = Types::BOOKMARK;
const ALL: Types = Types::DATASET;
const FS_VOL: Types = FS.or(VOL);
const FS_SNAP: Types = FS.or(SNAP);
const ALL_BOOK: Types = ALL.or(BOOK);

const NUMBER: Kind = Kind::Number(0);
const TEXT: Kind = Kind::Text(None);
/// `UINT64_MAX`: no limit
const NO_LIMIT: Kind = Kind::Number(u64::MAX);

const OFF_ON: &[(&str, u64)] = &[("off", 0), ("on", 1)];
const OFF: Kind = Kind::Index(0, OFF_ON);
const ON: Kind = Kind::Index(1, OFF_ON);

const CHECKSUM: &[(&str, u64)] = &[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
];

/// `ZIO_CHECKSUM_VERIFY`
const VERIFY: u64 = 1 << 8;
const DEDUP: &[(&str, u64)] = &[
    ("on", 1),
    ("off", 2),
    ("verify", 1 | VERIFY),
    ("sha256", 8),
    ("sha256,verify", 8 | VERIFY),
    ("sha512", 11),
    ("sha512,verify", 11 | VERIFY),
    ("skein", 12),
    ("skein,verify", 12 | VERIFY),
    ("edonr,verify", 13 | VERIFY),
    ("blake3", 14),
    ("blake3,verify", 14 | VERIFY),
];

/// `ZIO_COMPLEVEL_ZSTD`: the level is in the bits above the seven of the algorithm.
const fn zstd(level: u64) -> u64 {
    16 | level << 7
}

/// `ZIO_ZSTD_LEVEL_FAST`: the n-th fast level is stored as this plus n.
const FAST: u64 = 102;

const COMPRESSION: &[(&str, u64)] = &[
    ("on", 1),
    ("off", 2),
    ("lzjb", 3),
    ("gzip", 10),
    ("gzip-1", 5),
    ("gzip-2", 6),
    ("gzip-3", 7),
    ("gzip-4", 8),
    ("gzip-5", 9),
    ("gzip-6", 10),
    ("gzip-7", 11),
    ("gzip-8", 12),
    ("gzip-9", 13),
    ("zle", 14),
    ("lz4", 15),
    ("zstd", 16),
    ("zstd-fast", zstd(FAST + 1)),
    ("zstd-1", zstd(1)),
    ("zstd-2", zstd(2)),
    ("zstd-3", zstd(3)),
    ("zstd-4", zstd(4)),
    ("zstd-5", zstd(5)),
    ("zstd-6", zstd(6)),
    ("zstd-7", zstd(7)),
    ("zstd-8", zstd(8)),
    ("zstd-9", zstd(9)),
    ("zstd-10", zstd(10)),
    ("zstd-11", zstd(11)),
    ("zstd-12", zstd(12)),
    ("zstd-13", zstd(13)),
    ("zstd-14", zstd(14)),
    ("zstd-15", zstd(15)),
    ("zstd-16", zstd(16)),
    ("zstd-17", zstd(17)),
    ("zstd-18", zstd(18)),
    ("zstd-19", zstd(19)),
    ("zstd-fast-1", zstd(FAST + 1)),
    ("zstd-fast-2", zstd(FAST + 2)),
    ("zstd-fast-3", zstd(FAST + 3)),
    ("zstd-fast-4", zstd(FAST + 4)),
    ("zstd-fast-5", zstd(FAST + 5)),
    ("zstd-fast-6", zstd(FAST + 6)),
    ("zstd-fast-7", zstd(FAST + 7)),
    ("zstd-fast-8", zstd(FAST + 8)),
    ("zstd-fast-9", zstd(FAST + 9)),
    ("zstd-fast-10", zstd(FAST + 10)),
    ("zstd-fast-20", zstd(FAST + 11)),
    ("zstd-fast-30", zstd(FAST + 12)),
    ("zstd-fast-40", zstd(FAST + 13)),
    ("zstd-fast-50", zstd(FAST + 14)),
    ("zstd-fast-60", zstd(FAST + 15)),
    ("zstd-fast-70", zstd(FAST + 16)),
    ("zstd-fast-80", zstd(FAST + 17)),
    ("zstd-fast-90", zstd(FAST + 18)),
    ("zstd-fast-100", zstd(FAST + 19)),
    ("zstd-fast-500", zstd(FAST + 20)),
    ("zstd-fast-1000", zstd(FAST + 21)),
];

const ENCRYPTION: &[(&str, u64)] = &[
    ("on", 1),
    ("off", 2),
    ("aes-128-ccm", 3),
    ("aes-192-ccm", 4),
    ("aes-256-ccm", 5),
    ("aes-128-gcm", 6),
    ("aes-192-gcm", 7),
    ("aes-256-gcm", 8),
];

const CACHE: &[(&str, u64)] = &[("none", 0), ("metadata", 1), ("all", 2)];
const CACHE_ALL: Kind = Kind::Index(2, CACHE);

const ACL_MODE: &[(&str, u64)] = &[
    ("discard", 0),
    ("groupmask", 2),
    ("passthrough", 3),
    ("restricted", 4),
];
const ACL_INHERIT: &[(&str, u64)] = &[
    ("discard", 0),
    ("noallow", 1),
    ("restricted", 4),
    ("passthrough", 3),
    ("secure", 4),
    ("passthrough-x", 5),
];
const ACL_TYPE: &[(&str, u64)] = &[
    ("off", 0),
    ("posix", 1),
    ("nfsv4", 2),
    ("disabled", 0),
    ("noacl", 0),
    ("posixacl", 1),
];
const CANMOUNT: &[(&str, u64)] = &[("off", 0), ("on", 1), ("noauto", 2)];
const CASE: &[(&str, u64)] = &[("sensitive", 0), ("insensitive", 1), ("mixed", 2)];
const COPIES: &[(&str, u64)] = &[("1", 1), ("2", 2), ("3", 3)];
const DIRECT: &[(&str, u64)] = &[("disabled", 0), ("standard", 1), ("always", 2)];
const DNODESIZE: &[(&str, u64)] = &[
    ("legacy", 0),
    ("auto", 1),
    ("1k", 1024),
    ("2k", 2048),
    ("4k", 4096),
    ("8k", 8192),
    ("16k", 16384),
];
const KEYFORMAT: &[(&str, u64)] = &[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)];
const KEYSTATUS: &[(&str, u64)] = &[("none", 0), ("unavailable", 1), ("available", 2)];
const LOGBIAS: &[(&str, u64)] = &[("latency", 0), ("throughput", 1)];
/// `U8_TEXTPREP_NF…`
const NORMALIZATION: &[(&str, u64)] = &[
    ("none", 0),
    ("formD", 0x10),
    ("formKC", 0x60),
    ("formC", 0x50),
    ("formKD", 0x20),
];
const REDUNDANT: &[(&str, u64)] = &[("all", 0), ("most", 1), ("some", 2), ("none", 3)];
const SNAPDEV: &[(&str, u64)] = &[("hidden", 0), ("visible", 1)];
const SNAPDIR: &[(&str, u64)] = &[("hidden", 0), ("visible", 1), ("disabled", 2)];
const SYNC: &[(&str, u64)] = &[("standard", 0), ("always", 1), ("disabled", 2)];
const VERSION: &[(&str, u64)] = &[
    ("1", 1),
    ("2", 2),
    ("3", 3),
    ("4", 4),
    ("5", 5),
    ("current", 5),
];
const VOLMODE: &[(&str, u64)] = &[
    ("default", 0),
    ("full", 1),
    ("geom", 1),
    ("dev", 2),
    ("none", 3),
];
const XATTR: &[(&str, u64)] = &[("off", 0), ("on", 2), ("sa", 2), ("dir", 1)];

const KEPT: Honoured = Honoured::Kept;
const ONLY_OFF: Honoured = Honoured::Only(&["off"]);
const ONLY_NONE: Honoured = Honoured::Only(&["none"]);

/// A property that cannot be set.
const fn readonly(name: &'static str, kind: Kind, types: Types) -> PropDesc {
    PropDesc::new(name, kind, Edit::ReadOnly, types)
}

/// A property of one dataset, not inherited.
const fn own(name: &'static str, kind: Kind, types: Types) -> PropDesc {
    PropDesc::new(name, kind, Edit::Default, types)
}

/// A property that children inherit.
const fn inherited(name: &'static str, kind: Kind, types: Types) -> PropDesc {
    PropDesc::new(name, kind, Edit::Inherit, types)
}

/// A property that is set at creation, or inherited then.
const fn onetime(name: &'static str, kind: Kind, types: Types) -> PropDesc {
    PropDesc::new(name, kind, Edit::OneTime, types)
}

/// `zfs_prop_table`
pub const DATASET: &[PropDesc] = &[
    readonly("type", TEXT, ALL_BOOK).shown("TYPE", "filesystem | volume | snapshot | bookmark"),
    readonly("creation", NUMBER, ALL_BOOK)
        .shown("CREATION", "<date>")
        .flexible(),
    readonly("used", NUMBER, ALL).shown("USED", "<size>"),
    readonly("available", NUMBER, FS_VOL).shown("AVAIL", "<size>"),
    readonly("referenced", NUMBER, ALL_BOOK).shown("REFER", "<size>"),
    readonly("compressratio", NUMBER, ALL_BOOK).shown("RATIO", "<1.00x or higher if compressed>"),
    readonly("mounted", OFF, FS).shown("MOUNTED", "yes | no"),
    readonly("origin", TEXT, FS_VOL).shown("ORIGIN", "<snapshot>"),
    own("quota", NUMBER, FS).shown("QUOTA", "<size> | none"),
    own("reservation", NUMBER, FS_VOL).shown("RESERV", "<size> | none"),
    own("volsize", NUMBER, SNAP.or(VOL)).shown("VOLSIZE", "<size>"),
    onetime("volblocksize", Kind::Number(16 << 10), VOL)
        .shown("VOLBLOCK", "512 to 128k, power of 2"),
    inherited("recordsize", Kind::Number(128 << 10), FS).shown("RECSIZE", "512 to 1M, power of 2"),
    inherited("mountpoint", Kind::Text(Some("/")), FS)
        .shown("MOUNTPOINT", "<path> | legacy | none"),
    inherited("sharenfs", Kind::Text(Some("off")), FS)
        .shown("SHARENFS", "on | off | NFS share options")
        .honoured(KEPT),
    inherited("checksum", Kind::Index(1, CHECKSUM), FS_VOL).shown(
        "CHECKSUM",
        "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3",
    ),
    inherited("compression", Kind::Index(1, COMPRESSION), FS_VOL).shown(
        "COMPRESS",
        "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | \
         zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]",
    ),
    inherited("atime", ON, FS).shown("ATIME", "on | off"),
    inherited("devices", ON, FS_SNAP)
        .shown("DEVICES", "on | off")
        .honoured(KEPT),
    inherited("exec", ON, FS_SNAP)
        .shown("EXEC", "on | off")
        .honoured(KEPT),
    inherited("setuid", ON, FS_SNAP)
        .shown("SETUID", "on | off")
        .honoured(KEPT),
    inherited("readonly", OFF, FS_VOL).shown("RDONLY", "on | off"),
    inherited("zoned", OFF, FS)
        .shown("ZONED", "on | off")
        .honoured(ONLY_OFF),
    inherited("snapdir", Kind::Index(0, SNAPDIR), FS)
        .shown("SNAPDIR", "disabled | hidden | visible"),
    inherited("aclmode", Kind::Index(0, ACL_MODE), FS)
        .shown("ACLMODE", "discard | groupmask | passthrough | restricted")
        .honoured(KEPT),
    inherited("aclinherit", Kind::Index(4, ACL_INHERIT), FS)
        .shown(
            "ACLINHERIT",
            "discard | noallow | restricted | passthrough | passthrough-x",
        )
        .honoured(KEPT),
    readonly("createtxg", NUMBER, ALL_BOOK)
        .shown("CREATETXG", "<uint64>")
        .flexible(),
    readonly("name", TEXT, ALL_BOOK).hidden("NAME"),
    own("canmount", Kind::Index(1, CANMOUNT), FS).shown("CANMOUNT", "on | off | noauto"),
    inherited("iscsioptions", TEXT, VOL)
        .hidden("ISCSIOPTIONS")
        .honoured(Honoured::No),
    inherited("xattr", Kind::Index(2, XATTR), FS_SNAP).shown("XATTR", "on | off | dir | sa"),
    readonly("numclones", NUMBER, SNAP).hidden("NUMCLONES"),
    inherited("copies", Kind::Index(1, COPIES), FS_VOL).shown("COPIES", "1 | 2 | 3"),
    own("version", Kind::Index(0, VERSION), FS_SNAP)
        .shown("VERSION", "1 | 2 | 3 | 4 | 5 | current")
        .honoured(Honoured::Only(&["5", "current"])),
    onetime("utf8only", OFF, FS_SNAP).shown("UTF8ONLY", "on | off"),
    onetime("normalization", Kind::Index(0, NORMALIZATION), FS_SNAP)
        .shown("NORMALIZATION", "none | formC | formD | formKC | formKD"),
    onetime("casesensitivity", Kind::Index(0, CASE), FS_SNAP)
        .shown("CASE", "sensitive | insensitive | mixed"),
    inherited("vscan", OFF, FS)
        .shown("VSCAN", "on | off")
        .honoured(KEPT),
    inherited("nbmand", OFF, FS_SNAP)
        .shown("NBMAND", "on | off")
        .honoured(KEPT),
    inherited("sharesmb", Kind::Text(Some("off")), FS)
        .shown("SHARESMB", "on | off | SMB share options")
        .honoured(KEPT),
    own("refquota", NUMBER, FS).shown("REFQUOTA", "<size> | none"),
    own("refreservation", NUMBER, FS_VOL).shown("REFRESERV", "<size> | none"),
    readonly("guid", NUMBER, ALL_BOOK)
        .shown("GUID", "<uint64>")
        .flexible(),
    inherited("primarycache", CACHE_ALL, ALL)
        .shown("PRIMARYCACHE", "all | none | metadata")
        .honoured(Honoured::Only(&["all"])),
    inherited("secondarycache", CACHE_ALL, ALL)
        .shown("SECONDARYCACHE", "all | none | metadata")
        .honoured(KEPT),
    readonly("usedbysnapshots", NUMBER, FS_VOL).shown("USEDSNAP", "<size>"),
    readonly("usedbydataset", NUMBER, FS_VOL).shown("USEDDS", "<size>"),
    readonly("usedbychildren", NUMBER, FS_VOL).shown("USEDCHILD", "<size>"),
    readonly("usedbyrefreservation", NUMBER, FS_VOL).shown("USEDREFRESERV", "<size>"),
    readonly("useraccounting", NUMBER, ALL).hidden("USERACCOUNTING"),
    inherited("stmf_sbd_lu", TEXT, VOL)
        .hidden("STMF_SBD_LU")
        .honoured(Honoured::No),
    readonly("defer_destroy", OFF, SNAP).shown("DEFER_DESTROY", "yes | no"),
    readonly("userrefs", NUMBER, SNAP).shown("USERREFS", "<count>"),
    inherited("logbias", Kind::Index(0, LOGBIAS), FS_VOL).shown("LOGBIAS", "latency | throughput"),
    readonly("unique", NUMBER, ALL).hidden("UNIQUE"),
    readonly("objsetid", NUMBER, ALL)
        .shown("OBJSETID", "<uint64>")
        .flexible(),
    inherited("dedup", Kind::Index(2, DEDUP), FS_VOL).shown(
        "DEDUP",
        "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | \
             edonr,verify | blake3[,verify]",
    ),
    inherited("mlslabel", Kind::Text(Some("none")), ALL)
        .shown("MLSLABEL", "<sensitivity label>")
        .honoured(ONLY_NONE),
    inherited("sync", Kind::Index(0, SYNC), FS_VOL).shown("SYNC", "standard | always | disabled"),
    inherited("dnodesize", Kind::Index(0, DNODESIZE), FS)
        .shown("DNSIZE", "legacy | auto | 1k | 2k | 4k | 8k | 16k"),
    readonly("refcompressratio", NUMBER, ALL).shown("REFRATIO", "<1.00x or higher if compressed>"),
    readonly("written", NUMBER, ALL).shown("WRITTEN", "<size>"),
    readonly("clones", TEXT, SNAP).shown("CLONES", "<dataset>[,...]"),
    readonly("logicalused", NUMBER, FS_VOL).shown("LUSED", "<size>"),
    readonly("logicalreferenced", NUMBER, ALL_BOOK).shown("LREFER", "<size>"),
    readonly("inconsistent", NUMBER, ALL).hidden("INCONSISTENT"),
    inherited("volmode", Kind::Index(0, VOLMODE), FS_VOL)
        .shown("VOLMODE", "default | full | geom | dev | none")
        .honoured(KEPT),
    own("filesystem_limit", NO_LIMIT, FS)
        .shown("FSLIMIT", "<count> | none")
        .honoured(KEPT),
    own("snapshot_limit", NO_LIMIT, FS_VOL)
        .shown("SSLIMIT", "<count> | none")
        .honoured(KEPT),
    readonly("filesystem_count", NO_LIMIT, FS).shown("FSCOUNT", "<count>"),
    readonly("snapshot_count", NO_LIMIT, FS_VOL).shown("SSCOUNT", "<count>"),
    inherited("snapdev", Kind::Index(0, SNAPDEV), FS_VOL)
        .shown("SNAPDEV", "hidden | visible")
        .honoured(KEPT),
    inherited("acltype", Kind::Index(0, ACL_TYPE), FS_SNAP).shown("ACLTYPE", "off | nfsv4 | posix"),
    own("context", Kind::Text(Some("none")), ALL)
        .shown("CONTEXT", "<selinux context>")
        .honoured(KEPT),
    own("fscontext", Kind::Text(Some("none")), ALL)
        .shown("FSCONTEXT", "<selinux fscontext>")
        .honoured(KEPT),
    own("defcontext", Kind::Text(Some("none")), ALL)
        .shown("DEFCONTEXT", "<selinux defcontext>")
        .honoured(KEPT),
    own("rootcontext", Kind::Text(Some("none")), ALL)
        .shown("ROOTCONTEXT", "<selinux rootcontext>")
        .honoured(KEPT),
    inherited("relatime", ON, FS).shown("RELATIME", "on | off"),
    inherited("redundant_metadata", Kind::Index(0, REDUNDANT), FS_VOL)
        .shown("REDUND_MD", "all | most | some | none"),
    inherited("overlay", ON, FS)
        .shown("OVERLAY", "on | off")
        .honoured(KEPT),
    readonly("prevsnap", TEXT, FS_VOL).hidden("PREVSNAP"),
    readonly("receive_resume_token", TEXT, FS_VOL).shown("RESUMETOK", "<string token>"),
    onetime("encryption", Kind::Index(2, ENCRYPTION), ALL)
        .shown(
            "ENCRYPTION",
            "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | \
             aes-256-gcm",
        )
        .honoured(ONLY_OFF),
    own("keylocation", Kind::Text(Some("none")), FS_VOL)
        .shown(
            "KEYLOCATION",
            "prompt | <file URI> | <https URL> | <http URL>",
        )
        .honoured(ONLY_NONE),
    PropDesc::new(
        "keyformat",
        Kind::Index(0, KEYFORMAT),
        Edit::OneTimeDefault,
        FS_VOL,
    )
    .shown("KEYFORMAT", "none | raw | hex | passphrase")
    .honoured(ONLY_NONE),
    PropDesc::new("pbkdf2salt", NUMBER, Edit::OneTimeDefault, FS_VOL).hidden("PBKDF2SALT"),
    PropDesc::new("pbkdf2iters", NUMBER, Edit::OneTimeDefault, FS_VOL)
        .shown("PBKDF2ITERS", "<iters>")
        .flexible()
        .honoured(Honoured::No),
    readonly("encryptionroot", TEXT, ALL).shown("ENCROOT", "<filesystem | volume>"),
    readonly("keyguid", NUMBER, ALL).hidden("KEYGUID"),
    readonly("keystatus", Kind::Index(0, KEYSTATUS), ALL)
        .shown("KEYSTATUS", "none | unavailable | available"),
    readonly("remaptxg", NUMBER, ALL).hidden("REMAPTXG"),
    inherited("special_small_blocks", NUMBER, FS_VOL).shown("SPECIAL_SMALL_BLOCKS", "0 to 16M"),
    readonly("ivsetguid", NUMBER, ALL_BOOK).hidden("IVSETGUID"),
    readonly("redacted", NUMBER, ALL).hidden("REDACTED"),
    readonly("redact_snaps", TEXT, ALL_BOOK).shown("RSNAPS", "<snapshot>[,...]"),
    readonly("snapshots_changed", NUMBER, FS_VOL)
        .shown("SNAPSHOTS_CHANGED", "<date>")
        .flexible(),
    inherited("prefetch", CACHE_ALL, ALL)
        .shown("PREFETCH", "none | metadata | all")
        .honoured(Honoured::Only(&["all"])),
    own("volthreading", ON, VOL)
        .shown("zvol threading", "on | off")
        .honoured(KEPT),
    inherited("direct", Kind::Index(1, DIRECT), FS)
        .shown("DIRECT", "disabled | standard | always")
        .honoured(KEPT),
    inherited("longname", OFF, FS)
        .shown("LONGNAME", "on | off")
        .honoured(KEPT),
];
