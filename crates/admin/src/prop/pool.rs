//! Properties of pools, in `zpool_prop_t` order.
//!
//! # Source
//! OpenZFS module/zcommon/zpool_prop.c, include/sys/fs/zfs.h; texts of 2.3.

use super::{Edit, Honoured, Kind, PropDesc, Types};

const NUMBER: Kind = Kind::Number(0);
const TEXT: Kind = Kind::Text(None);
const OFF_ON: &[(&str, u64)] = &[("off", 0), ("on", 1)];
const OFF: Kind = Kind::Index(0, OFF_ON);
const ON: Kind = Kind::Index(1, OFF_ON);
const FAILMODE: &[(&str, u64)] = &[("wait", 0), ("continue", 1), ("panic", 2)];

const KEPT: Honoured = Honoured::Kept;

const fn readonly(name: &'static str, kind: Kind) -> PropDesc {
    PropDesc::new(name, kind, Edit::ReadOnly, Types::NONE)
}

const fn own(name: &'static str, kind: Kind) -> PropDesc {
    PropDesc::new(name, kind, Edit::Default, Types::NONE)
}

/// `zpool_prop_table`
pub const POOL: &[PropDesc] = &[
    readonly("name", TEXT).hidden("NAME"),
    readonly("size", NUMBER).shown("SIZE", "<size>"),
    readonly("capacity", NUMBER).shown("CAP", "<percent>"),
    own("altroot", TEXT).shown("ALTROOT", "<path>"),
    readonly("health", NUMBER).shown("HEALTH", "<state>"),
    readonly("guid", NUMBER).shown("GUID", "<guid>").flexible(),
    own("version", NUMBER).shown("VERSION", "<version>"),
    own("bootfs", TEXT)
        .shown("BOOTFS", "<filesystem>")
        .honoured(KEPT),
    own("delegation", ON)
        .shown("DELEGATION", "on | off")
        .honoured(KEPT),
    own("autoreplace", OFF)
        .shown("REPLACE", "on | off")
        .honoured(KEPT),
    own("cachefile", TEXT).shown("CACHEFILE", "<file> | none"),
    own("failmode", Kind::Index(0, FAILMODE)).shown("FAILMODE", "wait | continue | panic"),
    own("listsnapshots", OFF).shown("LISTSNAPS", "on | off"),
    own("autoexpand", OFF)
        .shown("EXPAND", "on | off")
        .honoured(KEPT),
    own("dedupditto", NUMBER)
        .hidden("DEDUPDITTO")
        .honoured(Honoured::No),
    readonly("dedupratio", NUMBER).shown("DEDUP", "<1.00x or higher if deduped>"),
    readonly("free", NUMBER).shown("FREE", "<size>"),
    readonly("allocated", NUMBER).shown("ALLOC", "<size>"),
    own("readonly", OFF).shown("RDONLY", "on | off"),
    own("ashift", NUMBER).shown("ASHIFT", "<ashift, 9-16, or 0=default>"),
    own("comment", TEXT).shown("COMMENT", "<comment-string>"),
    readonly("expandsize", NUMBER).shown("EXPANDSZ", "<size>"),
    readonly("freeing", NUMBER).shown("FREEING", "<size>"),
    readonly("fragmentation", NUMBER).shown("FRAG", "<percent>"),
    readonly("leaked", NUMBER).shown("LEAKED", "<size>"),
    readonly("maxblocksize", NUMBER).hidden("MAXBLOCKSIZE"),
    PropDesc::new("tname", TEXT, Edit::OneTimeDefault, Types::NONE)
        .hidden("TNAME")
        .honoured(Honoured::No),
    readonly("maxdnodesize", NUMBER).hidden("MAXDNODESIZE"),
    own("multihost", OFF).shown("MULTIHOST", "on | off"),
    readonly("checkpoint", NUMBER).shown("CKPOINT", "<size>"),
    readonly("load_guid", NUMBER)
        .shown("LOAD_GUID", "<load_guid>")
        .flexible(),
    own("autotrim", OFF)
        .shown("AUTOTRIM", "on | off")
        .honoured(KEPT),
    own("compatibility", Kind::Text(Some("off")))
        .shown("COMPATIBILITY", "<file[,file...]> | off | legacy"),
    readonly("bcloneused", NUMBER).shown("BCLONE_USED", "<size>"),
    readonly("bclonesaved", NUMBER).shown("BCLONE_SAVED", "<size>"),
    readonly("bcloneratio", NUMBER).shown("BCLONE_RATIO", "<1.00x or higher if cloned>"),
    readonly("dedup_table_size", NUMBER).shown("DDTSIZE", "<size>"),
    own("dedup_table_quota", Kind::Number(u64::MAX)).shown("DDTQUOTA", "<size>"),
    readonly("dedupcached", NUMBER).hidden("DEDUPCACHED"),
    readonly("last_scrubbed_txg", NUMBER).shown("LAST_SCRUBBED_TXG", "<txg>"),
];
