//! Properties of vdevs, in `vdev_prop_t` order: without the values they take, since none can be set
//! yet.
//!
//! # Source
//! OpenZFS module/zcommon/zpool_prop.c `vdev_prop_init`; those of 2.3.

use super::{Edit, Honoured, Kind, PropDesc, Types};

const NUMBER: Kind = Kind::Number(0);
const NO_LIMIT: Kind = Kind::Number(u64::MAX);
const TEXT: Kind = Kind::Text(None);
const OFF_ON: &[(&str, u64)] = &[("off", 0), ("on", 1)];

const fn readonly(name: &'static str, kind: Kind, column: &'static str) -> PropDesc {
    PropDesc::new(name, kind, Edit::ReadOnly, Types::NONE).shown(column, "")
}

const fn own(name: &'static str, kind: Kind, column: &'static str) -> PropDesc {
    PropDesc::new(name, kind, Edit::Default, Types::NONE)
        .shown(column, "")
        .honoured(Honoured::No)
}

/// `vdev_prop_table`
pub const VDEV: &[PropDesc] = &[
    readonly("name", TEXT, "NAME").hidden("NAME"),
    readonly("capacity", NUMBER, "CAP"),
    readonly("state", NUMBER, "STATE"),
    readonly("guid", NUMBER, "GUID").flexible(),
    readonly("asize", NUMBER, "ASIZE"),
    readonly("psize", NUMBER, "PSIZE"),
    readonly("ashift", NUMBER, "ASHIFT"),
    readonly("size", NUMBER, "SIZE"),
    readonly("free", NUMBER, "FREE"),
    readonly("allocated", NUMBER, "ALLOC"),
    own("comment", TEXT, "COMMENT"),
    readonly("expandsize", NUMBER, "EXPANDSZ"),
    readonly("fragmentation", NUMBER, "FRAG"),
    readonly("bootsize", NUMBER, "BOOTSIZE"),
    readonly("parity", NUMBER, "PARITY"),
    readonly("path", TEXT, "PATH"),
    readonly("devid", TEXT, "DEVID"),
    readonly("physpath", TEXT, "PHYSPATH"),
    readonly("encpath", TEXT, "ENCPATH"),
    readonly("fru", TEXT, "FRU"),
    readonly("parent", TEXT, "PARENT"),
    readonly("children", TEXT, "CHILDREN"),
    readonly("numchildren", NUMBER, "NUMCHILD"),
    readonly("read_errors", NUMBER, "RDERR"),
    readonly("write_errors", NUMBER, "WRERR"),
    readonly("checksum_errors", NUMBER, "CKERR"),
    readonly("initialize_errors", NUMBER, "INITERR"),
    readonly("null_ops", NUMBER, "NULLOP"),
    readonly("read_ops", NUMBER, "READOP"),
    readonly("write_ops", NUMBER, "WRITEOP"),
    readonly("free_ops", NUMBER, "FREEOP"),
    readonly("claim_ops", NUMBER, "CLAIMOP"),
    readonly("trim_ops", NUMBER, "TRIMOP"),
    readonly("null_bytes", NUMBER, "NULLBYTE"),
    readonly("read_bytes", NUMBER, "READBYTE"),
    readonly("write_bytes", NUMBER, "WRITEBYTE"),
    readonly("free_bytes", NUMBER, "FREEBYTE"),
    readonly("claim_bytes", NUMBER, "CLAIMBYTE"),
    readonly("trim_bytes", NUMBER, "TRIMBYTE"),
    readonly("removing", Kind::Index(0, OFF_ON), "REMOVING"),
    own("allocating", Kind::Index(1, OFF_ON), "ALLOCATING"),
    own("failfast", Kind::Index(1, OFF_ON), "FAILFAST"),
    own("checksum_n", NO_LIMIT, "CKSUM_N"),
    own("checksum_t", NO_LIMIT, "CKSUM_T"),
    own("io_n", NO_LIMIT, "IO_N"),
    own("io_t", NO_LIMIT, "IO_T"),
    readonly("raidz_expanding", Kind::Index(0, OFF_ON), "RAIDZ_EXPANDING"),
    own("slow_io_n", NO_LIMIT, "SLOW_IO_N"),
    own("slow_io_t", NO_LIMIT, "SLOW_IO_T"),
    readonly("trim_support", Kind::Index(0, OFF_ON), "TRIMSUP"),
    readonly("trim_errors", NUMBER, "TRIMERR"),
    readonly("slow_ios", NUMBER, "SLOW"),
];
