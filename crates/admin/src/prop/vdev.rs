//! Properties of vdevs, in `vdev_prop_t` order: the words of 2.3.
//!
//! # Source
//! OpenZFS module/zcommon/zpool_prop.c `vdev_prop_init`; those of 2.3.

use super::{Edit, Honoured, Kind, PropDesc, Types};

const KEPT: Honoured = Honoured::Kept;
const NUMBER: Kind = Kind::Number(0);
const NO_LIMIT: Kind = Kind::Number(u64::MAX);
const TEXT: Kind = Kind::Text(None);
const OFF_ON: &[(&str, u64)] = &[("off", 0), ("on", 1)];
/// `allocating` also has a word for vdevs that cannot have it; it can be typed, and the engine refuses its number.
const ALLOCATING: &[(&str, u64)] = &[("off", 0), ("on", 1), ("-", 2)];

const fn readonly(
    name: &'static str,
    kind: Kind,
    column: &'static str,
    values: &'static str,
) -> PropDesc {
    PropDesc::new(name, kind, Edit::ReadOnly, Types::NONE).shown(column, values)
}

const fn own(
    name: &'static str,
    kind: Kind,
    column: &'static str,
    values: &'static str,
) -> PropDesc {
    PropDesc::new(name, kind, Edit::Default, Types::NONE).shown(column, values)
}

/// `vdev_prop_table`
pub const VDEV: &[PropDesc] = &[
    readonly("name", TEXT, "NAME", "").hidden("NAME"),
    readonly("capacity", NUMBER, "CAP", "<percent>"),
    readonly("state", NUMBER, "STATE", "<state>"),
    readonly("guid", NUMBER, "GUID", "<guid>").flexible(),
    readonly("asize", NUMBER, "ASIZE", "<asize>"),
    readonly("psize", NUMBER, "PSIZE", "<psize>"),
    readonly("ashift", NUMBER, "ASHIFT", "<ashift>"),
    readonly("size", NUMBER, "SIZE", "<size>"),
    readonly("free", NUMBER, "FREE", "<size>"),
    readonly("allocated", NUMBER, "ALLOC", "<size>"),
    own("comment", TEXT, "COMMENT", "<comment-string>"),
    readonly("expandsize", NUMBER, "EXPANDSZ", "<size>"),
    readonly("fragmentation", NUMBER, "FRAG", "<percent>"),
    readonly("bootsize", NUMBER, "BOOTSIZE", "<size>"),
    readonly("parity", NUMBER, "PARITY", "<parity>"),
    own("path", TEXT, "PATH", "<device-path>"),
    readonly("devid", TEXT, "DEVID", "<devid>"),
    readonly("physpath", TEXT, "PHYSPATH", "<physpath>"),
    readonly("encpath", TEXT, "ENCPATH", "<encpath>"),
    readonly("fru", TEXT, "FRU", "<fru>"),
    readonly("parent", TEXT, "PARENT", "<parent>"),
    readonly("children", TEXT, "CHILDREN", "<child[,...]>"),
    readonly("numchildren", NUMBER, "NUMCHILD", "<number-of-children>"),
    readonly("read_errors", NUMBER, "RDERR", "<errors>"),
    readonly("write_errors", NUMBER, "WRERR", "<errors>"),
    readonly("checksum_errors", NUMBER, "CKERR", "<errors>"),
    readonly("initialize_errors", NUMBER, "INITERR", "<errors>"),
    readonly("null_ops", NUMBER, "NULLOP", "<operations>"),
    readonly("read_ops", NUMBER, "READOP", "<operations>"),
    readonly("write_ops", NUMBER, "WRITEOP", "<operations>"),
    readonly("free_ops", NUMBER, "FREEOP", "<operations>"),
    readonly("claim_ops", NUMBER, "CLAIMOP", "<operations>"),
    readonly("trim_ops", NUMBER, "TRIMOP", "<operations>"),
    readonly("null_bytes", NUMBER, "NULLBYTE", "<bytes>"),
    readonly("read_bytes", NUMBER, "READBYTE", "<bytes>"),
    readonly("write_bytes", NUMBER, "WRITEBYTE", "<bytes>"),
    readonly("free_bytes", NUMBER, "FREEBYTE", "<bytes>"),
    readonly("claim_bytes", NUMBER, "CLAIMBYTE", "<bytes>"),
    readonly("trim_bytes", NUMBER, "TRIMBYTE", "<bytes>"),
    readonly("removing", Kind::Index(0, OFF_ON), "REMOVING", "on | off"),
    own(
        "allocating",
        Kind::Index(1, ALLOCATING),
        "ALLOCATING",
        "on | off",
    ),
    own("failfast", Kind::Index(1, OFF_ON), "FAILFAST", "on | off").honoured(KEPT),
    own("checksum_n", NO_LIMIT, "CKSUM_N", "<events>"),
    own("checksum_t", NO_LIMIT, "CKSUM_T", "<seconds>"),
    own("io_n", NO_LIMIT, "IO_N", "<events>"),
    own("io_t", NO_LIMIT, "IO_T", "<seconds>"),
    readonly(
        "raidz_expanding",
        Kind::Index(0, OFF_ON),
        "RAIDZ_EXPANDING",
        "on | off",
    ),
    own("slow_io_n", NO_LIMIT, "SLOW_IO_N", "<events>"),
    own("slow_io_t", NO_LIMIT, "SLOW_IO_T", "<seconds>"),
    readonly(
        "trim_support",
        Kind::Index(0, OFF_ON),
        "TRIMSUP",
        "on | off",
    ),
    readonly("trim_errors", NUMBER, "TRIMERR", "<errors>"),
    readonly("slow_ios", NUMBER, "SLOW", "<slowios>"),
];
