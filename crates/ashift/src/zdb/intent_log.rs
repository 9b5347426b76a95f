//! `zdb -i`: the intent log of a dataset, block by block and record by record.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb_il.c.

use std::fmt::Write as _;
use std::io::Write as _;

use base::{BlkId, ObjectId, Result, Txg};
use phys::zil::{
    LrAclPhys, LrAclV0Phys, LrCloneRangePhys, LrCreatePhys, LrLinkPhys, LrRemovePhys, LrRenamePhys,
    LrSetattrPhys, LrSetsaxattrPhys, LrTruncatePhys, LrWritePhys, TX_CI, ZIL_ZC_SEQ, foid_object,
    foid_slots, tx,
};
use phys::{BlkPtrPhys, LrPhys, Phys};
use zerocopy::FromBytes;
use zio::Bookmark;

use super::datasets::Subject;
use super::text::{Printer, time};

/// Names of record types; the first is that of their sum.
const NAMES: [&str; tx::MAX_TYPE as usize] = [
    "Total              ",
    "TX_CREATE          ",
    "TX_MKDIR           ",
    "TX_MKXATTR         ",
    "TX_SYMLINK         ",
    "TX_REMOVE          ",
    "TX_RMDIR           ",
    "TX_LINK            ",
    "TX_RENAME          ",
    "TX_WRITE           ",
    "TX_TRUNCATE        ",
    "TX_SETATTR         ",
    "TX_ACL_V0          ",
    "TX_ACL_ACL         ",
    "TX_CREATE_ACL      ",
    "TX_CREATE_ATTR     ",
    "TX_CREATE_ACL_ATTR ",
    "TX_MKDIR_ACL       ",
    "TX_MKDIR_ATTR      ",
    "TX_MKDIR_ACL_ATTR  ",
    "TX_WRITE2          ",
    "TX_SETSAXATTR      ",
    "TX_RENAME_EXCHANGE ",
    "TX_RENAME_WHITEOUT ",
    "TX_CLONE_RANGE     ",
];
const TAB: &str = "\t\t\t";
/// Bytes of a write that are shown, unless all are requested.
const SHOWN_BYTES: usize = 20;
/// `AT_*`: bits of lr_mask, as zdb reads them.
const AT_MODE: u64 = 0x2;
const AT_UID: u64 = 0x4;
const AT_GID: u64 = 0x8;
const AT_SIZE: u64 = 0x80;
const AT_ATIME: u64 = 0x100;
const AT_MTIME: u64 = 0x200;

/// Writes the log of an objset; `level` is the level of detail.
#[doc(alias = "dump_intent_log")]
pub(super) fn run(out: &mut Printer, subject: &Subject, level: usize) -> Result<()> {
    let header = subject.objset.zil_header();
    if header.log.is_hole() || level < 1 || subject.objset.is_mos() {
        return Ok(());
    }
    writeln!(
        out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags {:#x}",
        header.claim_txg.get(),
        header.claim_blk_seq.get(),
        header.claim_lr_seq.get(),
        header.replay_seq.get(),
        header.flags.get()
    )?;
    if level < 2 {
        return Ok(());
    }
    let mut listing = Listing {
        subject,
        level,
        claim_txg: Txg(header.claim_txg.get()),
        text: Vec::new(),
        counts: [0; NAMES.len()],
    };
    let store = subject.log_store();
    zil::parse(&**store, subject.objset.id(), &header, &mut listing)?;
    writeln!(out)?;
    out.write_all(&listing.text)?;
    write_counts(out, &listing.counts, level)
}

/// The output about a log while it is read.
struct Listing<'a> {
    subject: &'a Subject,
    level: usize,
    claim_txg: Txg,
    text: Vec<u8>,
    counts: [u64; NAMES.len()],
}

impl zil::Visitor for Listing<'_> {
    fn block(&mut self, bp: &BlkPtrPhys) -> Result<()> {
        if self.level <= 3 {
            return Ok(());
        }
        let pointer = if self.level >= 5 {
            format!(", {bp}")
        } else {
            String::new()
        };
        let claim = if self.claim_txg.0 != 0 {
            "already claimed"
        } else {
            self.claim_of(bp)
        };
        let seq = bp.cksum_words()[ZIL_ZC_SEQ];
        writeln!(self.text, "\tBlock seqno {seq}, {claim}{pointer}")?;
        Ok(())
    }

    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        let type_ = common.tx_type();
        let Some(name) = NAMES.get(type_ as usize).filter(|_| type_ != tx::COMMIT) else {
            writeln!(self.text, "\t\tunknown record type {type_}")?;
            return Ok(());
        };
        let folded = if common.txtype.get() & TX_CI != 0 {
            "CI-"
        } else {
            ""
        };
        let (length, txg, seq) = (common.reclen.get(), common.txg.get(), common.seq.get());
        writeln!(
            self.text,
            "\t\t{folded}{name} len {length:6}, txg {txg}, seq {seq}"
        )?;
        if self.level >= 3 {
            let text = self.details(type_, record);
            let text = text.unwrap_or_else(|error| format!("{TAB}({error})\n"));
            self.text.write_all(text.as_bytes())?;
        }
        self.counts[type_ as usize] += 1;
        self.counts[0] += 1;
        Ok(())
    }
}

impl Listing<'_> {
    fn claim_of(&self, bp: &BlkPtrPhys) -> &'static str {
        if bp.allocation_birth() >= self.subject.next_txg {
            "will claim"
        } else {
            "won't claim"
        }
    }

    fn details(&self, type_: u64, record: &[u8]) -> Result<String> {
        match type_ {
            tx::CREATE..=tx::SYMLINK | tx::CREATE_ACL..=tx::MKDIR_ACL_ATTR => create(type_, record),
            tx::REMOVE | tx::RMDIR => {
                let doid = LrRemovePhys::read(record)?.doid.get();
                let name = name_at(record, LrRemovePhys::SIZE);
                Ok(format!("{TAB}doid {doid}, name {name}\n"))
            }
            tx::LINK => {
                let lr = LrLinkPhys::read(record)?;
                let (doid, object) = (lr.doid.get(), lr.link_obj.get());
                let name = name_at(record, LrLinkPhys::SIZE);
                Ok(format!(
                    "{TAB}doid {doid}, link_obj {object}, name {name}\n"
                ))
            }
            tx::RENAME | tx::RENAME_EXCHANGE | tx::RENAME_WHITEOUT => rename(type_, record),
            tx::WRITE | tx::WRITE2 => self.write(type_, record),
            tx::TRUNCATE => {
                let lr = LrTruncatePhys::read(record)?;
                let (foid, offset, length) = (lr.foid.get(), lr.offset.get(), lr.length.get());
                Ok(format!(
                    "{TAB}foid {foid}, offset {offset:#x}, length {length:#x}\n"
                ))
            }
            tx::SETATTR => Ok(setattr(&LrSetattrPhys::read(record)?)),
            tx::ACL_V0 => {
                let lr = LrAclV0Phys::read(record)?;
                Ok(format!(
                    "{TAB}foid {}, aclcnt {}\n",
                    lr.foid.get(),
                    lr.aclcnt.get()
                ))
            }
            tx::ACL => {
                let lr = LrAclPhys::read(record)?;
                Ok(format!(
                    "{TAB}foid {}, aclcnt {}\n",
                    lr.foid.get(),
                    lr.aclcnt.get()
                ))
            }
            tx::SETSAXATTR => set_xattr(record),
            tx::CLONE_RANGE => self.clone_range(record),
            _ => Ok(String::new()),
        }
    }

    #[doc(alias = "zil_prt_rec_write")]
    fn write(&self, type_: u64, record: &[u8]) -> Result<String> {
        let lr = LrWritePhys::read(record)?;
        let (foid, offset, length) = (lr.foid.get(), lr.offset.get(), lr.length.get());
        let mut text = format!("{TAB}foid {foid}, offset {offset:x}, length {length:x}\n");
        if type_ == tx::WRITE2 || self.level < 4 {
            return Ok(text);
        }
        let bp = &lr.blkptr;
        let bytes = if record.len() == LrWritePhys::SIZE {
            let claim = if bp.is_hole() {
                "won't claim"
            } else {
                self.claim_of(bp)
            };
            let _ = writeln!(text, "{TAB}has blkptr, {claim}\n{TAB}{bp}");
            if self.level < 5 {
                return Ok(text);
            }
            if bp.is_hole() {
                let _ = writeln!(text, "{TAB}LSIZE {:#x}\n{TAB}<hole>", bp.lsize());
                return Ok(text);
            }
            if bp.allocation_birth() < self.claim_txg {
                let _ = writeln!(text, "{TAB}<block already committed>");
                return Ok(text);
            }
            let bookmark = Bookmark {
                objset: self.subject.objset.id(),
                object: ObjectId(foid),
                level: Bookmark::ZIL_LEVEL,
                blkid: BlkId(offset / bp.lsize().max(1)),
            };
            match self.subject.objset.store().read(bp, &bookmark) {
                Ok(data) => data.to_vec(),
                Err(_) => return Ok(text),
            }
        } else if self.level < 5 {
            return Ok(text);
        } else {
            record[LrWritePhys::SIZE..].to_vec()
        };
        let most = if self.level < 6 {
            SHOWN_BYTES
        } else {
            bytes.len()
        };
        let shown = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        text += TAB;
        for byte in bytes.iter().take(shown) {
            let _ = match byte {
                b' '..=b'~' => write!(text, "{} ", *byte as char),
                // Sign-extended, as C promotes a `char`.
                _ => write!(text, "{:2X}", i32::from(*byte as i8)),
            };
        }
        text.push('\n');
        Ok(text)
    }

    fn clone_range(&self, record: &[u8]) -> Result<String> {
        let lr = LrCloneRangePhys::read(record)?;
        let mut text = format!(
            "{TAB}foid {}, offset {:x}, length {:x}, blksize {:x}\n",
            lr.foid.get(),
            lr.offset.get(),
            lr.length.get(),
            lr.blksz.get()
        );
        if self.level >= 4 {
            let pointers = record[LrCloneRangePhys::SIZE..].chunks_exact(size_of::<BlkPtrPhys>());
            for (i, bytes) in pointers.enumerate() {
                if let Ok(bp) = BlkPtrPhys::read_from_bytes(bytes) {
                    let _ = writeln!(text, "{TAB}[{}/{}] {bp}", i + 1, lr.nbps.get());
                }
            }
        }
        Ok(text)
    }
}

/// The text from byte `at` of a record up to its NUL.
fn name_at(record: &[u8], at: usize) -> String {
    let bytes = record.get(at..).unwrap_or_default();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[doc(alias = "zil_prt_rec_create")]
fn create(type_: u64, record: &[u8]) -> Result<String> {
    /// `ZIL_XVAT_SIZE`: the attributes in front of the name, without their bitmap.
    const ATTR_BYTES: usize = 64;
    let lr = LrCreatePhys::read(record)?;
    let mut at = LrCreatePhys::SIZE;
    if matches!(type_, tx::CREATE_ATTR | tx::MKDIR_ATTR) {
        let words = record.get(at..at + 4).and_then(|b| b.first_chunk::<4>());
        let words = words.map_or(0, |b| u32::from_le_bytes(*b)) as usize;
        at = at.saturating_add(ATTR_BYTES + words.saturating_sub(1).saturating_mul(4));
    }
    let name = name_at(record, at);
    let mut text = String::new();
    if type_ == tx::SYMLINK {
        let target = name_at(record, at + name.len() + 1);
        let _ = writeln!(text, "{TAB}{name} -> {target}");
    } else if type_ != tx::MKXATTR {
        let _ = writeln!(text, "{TAB}{name}");
    }
    let foid = lr.foid.get();
    let _ = writeln!(text, "{TAB}{}", time(lr.crtime[0].get()));
    let _ = writeln!(
        text,
        "{TAB}doid {}, foid {}, slots {}, mode {:o}",
        lr.doid.get(),
        foid_object(foid),
        foid_slots(foid),
        lr.mode.get()
    );
    let _ = writeln!(
        text,
        "{TAB}uid {}, gid {}, gen {}, rdev {:#x}",
        lr.uid.get(),
        lr.gid.get(),
        lr.gen_.get(),
        lr.rdev.get()
    );
    Ok(text)
}

#[doc(alias = "zil_prt_rec_rename")]
fn rename(type_: u64, record: &[u8]) -> Result<String> {
    let lr = LrRenamePhys::read(record)?;
    let source = name_at(record, LrRenamePhys::SIZE);
    let target = name_at(record, LrRenamePhys::SIZE + source.len() + 1);
    let (from, to) = (lr.sdoid.get(), lr.tdoid.get());
    let flags = match type_ {
        tx::RENAME_EXCHANGE => format!("{TAB}flags RENAME_EXCHANGE\n"),
        tx::RENAME_WHITEOUT => format!("{TAB}flags RENAME_WHITEOUT\n"),
        _ => String::new(),
    };
    Ok(format!(
        "{TAB}sdoid {from}, tdoid {to}\n{TAB}src {source} tgt {target}\n{flags}"
    ))
}

#[doc(alias = "zil_prt_rec_setattr")]
fn setattr(lr: &LrSetattrPhys) -> String {
    let mask = lr.mask.get();
    let mut text = format!("{TAB}foid {}, mask {mask:#x}\n", lr.foid.get());
    let [atime, mtime] = [lr.atime, lr.mtime].map(|t| {
        let (secs, nanos) = (t[0].get(), t[1].get());
        format!("{secs}.{nanos:09} {}", time(secs))
    });
    let rows = [
        (AT_MODE, format!("AT_MODE  {:o}", lr.mode.get())),
        (AT_UID, format!("AT_UID   {}", lr.uid.get())),
        (AT_GID, format!("AT_GID   {}", lr.gid.get())),
        (AT_SIZE, format!("AT_SIZE  {}", lr.size.get())),
        (AT_ATIME, format!("AT_ATIME {atime}")),
        (AT_MTIME, format!("AT_MTIME {mtime}")),
    ];
    for (bit, row) in rows {
        if mask & bit != 0 {
            let _ = writeln!(text, "{TAB}{row}");
        }
    }
    text
}

#[doc(alias = "zil_prt_rec_setsaxattr")]
fn set_xattr(record: &[u8]) -> Result<String> {
    let lr = LrSetsaxattrPhys::read(record)?;
    let name = name_at(record, LrSetsaxattrPhys::SIZE);
    let mut text = format!("{TAB}foid {}\n{TAB}XAT_NAME  {name}\n", lr.foid.get());
    let size = usize::try_from(lr.size.get()).unwrap_or(usize::MAX);
    if size == 0 {
        text += &format!("{TAB}XAT_VALUE  NULL\n");
    } else {
        let at = LrSetsaxattrPhys::SIZE + name.len() + 1;
        let value = record.get(at..).unwrap_or_default();
        let value = &value[..size.min(value.len())];
        // No line feed follows, as in OpenZFS.
        text += &format!("{TAB}XAT_VALUE  {}", String::from_utf8_lossy(value));
    }
    Ok(text)
}

#[doc(alias = "print_log_stats")]
fn write_counts(out: &mut Printer, counts: &[u64; NAMES.len()], level: usize) -> Result<()> {
    if level > 3 {
        writeln!(out)?;
    }
    if counts[0] == 0 {
        return Ok(());
    }
    let width = counts[0].to_string().len();
    for (name, count) in NAMES.iter().zip(counts) {
        if *count > 0 || level >= 3 {
            writeln!(out, "\t\t{name} {count:width$}")?;
        }
    }
    writeln!(out)?;
    Ok(())
}
