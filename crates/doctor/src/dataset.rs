//! A dataset: its records beside its files and its pool.

use admin::number::nice_bytes;
use admin::pool::{VdevKind, VdevStatus};
use zio::AllocClass;

use crate::pool::Pool;
use crate::{Finding, Severity};

/// What is known of a file system.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// `recordsize`
    pub record_bytes: u64,
    /// `special_small_blocks`
    pub small_bytes: u64,
    /// Whether blocks are compressed, so that the zeros at the end of a last record take no room.
    pub is_compressed: bool,
    /// Its files, or the first of them.
    pub files: Files,
}

/// What files have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// How many regular files there are.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes after the end of files that are in their last records.
    pub tail_bytes: u64,
    /// How many have more than one block.
    pub large_count: u64,
    /// The bytes of those.
    pub large_bytes: u64,
    /// Bytes of those whose blocks are smaller than a record would be today.
    pub older_bytes: u64,
    /// There are more files than were looked at.
    pub is_sample: bool,
}

impl Files {
    /// Adds a file of this size, in blocks of this size, to those of a dataset with this record size.
    pub fn add(&mut self, bytes: u64, block_bytes: u64, record_bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        if block_bytes == 0 || bytes <= block_bytes {
            return;
        }
        self.large_count += 1;
        self.large_bytes += bytes;
        self.tail_bytes += bytes.next_multiple_of(block_bytes) - bytes;
        if block_bytes < record_bytes {
            self.older_bytes += bytes;
        }
    }

    fn which(&self) -> String {
        let sample = if self.is_sample { "the first " } else { "" };
        format!("{sample}{} files, {}", self.count, nice_bytes(self.bytes))
    }
}

/// Bytes of files below which their sizes say nothing.
const ENOUGH_BYTES: u64 = 4 << 20;

/// Percent of the bytes of files that last records may waste.
const TAIL_PERCENT: u64 = 10;

/// Percent of the room that a RAID-Z may need more than by its number of disks.
const PARITY_PERCENT: u64 = 20;

/// What is wrong with a dataset of a pool.
#[must_use]
pub fn examine_dataset(dataset: &Dataset, pool: &Pool) -> Vec<Finding> {
    let mut found = special(dataset, pool);
    found.extend(parity(dataset, pool));
    found.extend(tails(dataset));
    found.extend(small_records(dataset));
    found.extend(older_records(dataset));
    found
}

/// `special_small_blocks` that takes all blocks, or none.
fn special(dataset: &Dataset, pool: &Pool) -> Vec<Finding> {
    let (name, small, record) = (&dataset.name, dataset.small_bytes, dataset.record_bytes);
    let has_special = pool.tops(AllocClass::Special).next().is_some();
    if small == 0 {
        return Vec::new();
    }
    let sizes = format!(
        "special_small_blocks={}, recordsize={}",
        nice_bytes(small),
        nice_bytes(record)
    );
    let finding = match has_special {
        false => Finding::new(
            (Severity::Note, "small-blocks-nowhere"),
            name,
            format!("{sizes}, and there is no special vdev"),
            "it has no effect until there is one",
        )
        .mend(format!("zfs inherit special_small_blocks {name}")),
        true if small >= record => Finding::new(
            (Severity::Warning, "special-takes-all"),
            name,
            format!("{sizes}: every block is a small one"),
            "all files go to the special vdev until it is full, and the disks stay idle",
        )
        .mend(format!(
            "zfs set special_small_blocks={} {name}",
            nice_size(record / 4)
        ))
        .mend(format!(
            "zfs set recordsize=1M {name}   # or this; both for what is written from now on"
        )),
        true => return Vec::new(),
    };
    vec![finding]
}

/// `16K`, as `zfs set` reads it.
fn nice_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// Sectors that a block of so many takes on a vdev with parity, for each sector of data, and those that it would take
/// there at best; both times 1000.
#[doc(alias = "vdev_raidz_psize_to_asize")]
fn room(vdev: &VdevStatus, sectors: u64) -> Option<(u64, u64)> {
    let (taken, best) = match vdev.kind {
        VdevKind::Raidz { parity } => {
            let columns = vdev.children.len() as u64;
            let data = columns.checked_sub(parity).filter(|data| *data > 0)?;
            let taken = sectors + parity * sectors.div_ceil(data);
            (taken.next_multiple_of(parity + 1), columns * 1000 / data)
        }
        VdevKind::Draid { parity, data, .. } if data > 0 => {
            let rows = sectors.div_ceil(data);
            (rows * (data + parity), (data + parity) * 1000 / data)
        }
        _ => return None,
    };
    Some((taken * 1000 / sectors, best))
}

/// Records that are too small for a vdev with parity.
fn parity(dataset: &Dataset, pool: &Pool) -> Option<Finding> {
    let record = dataset.record_bytes;
    let needs = |top: &VdevStatus, record: u64| {
        let sectors = (record >> top.configured_ashift).max(1);
        let (taken, best) = room(top, sectors)?;
        (taken * 100 > best * (100 + PARITY_PERCENT)).then_some((taken, best))
    };
    let worst = pool
        .tops(AllocClass::Normal)
        .filter_map(|top| Some((top, needs(top, record)?)));
    let (top, (taken, best)) = worst.max_by_key(|(_, (taken, _))| *taken)?;
    // Of one or two records the first that is good, or the usual one.
    let mut larger = (1..8).map(|shift| record << shift);
    let good = larger
        .find(|record| needs(top, *record).is_none())
        .unwrap_or(128 << 10);
    let name = &dataset.name;
    let what = format!(
        "recordsize={} on {}: {}.{:02} bytes for each byte of data, {}.{:02} with large records",
        nice_bytes(record),
        pool.subject(top),
        taken / 1000,
        taken % 1000 / 10,
        best / 1000,
        best % 1000 / 10
    );
    let cost =
        "parity and padding of small records take room that `zfs list` shows as used by files";
    Some(
        Finding::new((Severity::Warning, "records-and-parity"), name, what, cost).mend(format!(
            "zfs set recordsize={} {name}   # for files written from now on",
            nice_size(good)
        )),
    )
}

/// Last records that are mostly empty, and not compressed.
fn tails(dataset: &Dataset) -> Option<Finding> {
    let (files, name) = (&dataset.files, &dataset.name);
    let is_much = files.tail_bytes * 100 >= files.bytes * TAIL_PERCENT;
    if dataset.is_compressed || files.bytes < ENOUGH_BYTES || !is_much {
        return None;
    }
    let what = format!(
        "recordsize={}, compression=off: the last records of {} have {} after the end of the files",
        nice_bytes(dataset.record_bytes),
        files.which(),
        nice_bytes(files.tail_bytes)
    );
    let cost = format!(
        "{}% more room than the files have",
        files.tail_bytes * 100 / files.bytes.max(1)
    );
    Some(
        Finding::new((Severity::Warning, "empty-tails"), name, what, cost)
            .mend(format!("zfs set compression=lz4 {name}   # zeros then take no room; for files written from now on")),
    )
}

/// Files of very many records.
fn small_records(dataset: &Dataset) -> Option<Finding> {
    let (files, record, name) = (&dataset.files, dataset.record_bytes, &dataset.name);
    let mean = files.large_bytes.checked_div(files.large_count)?;
    let is_most = files.large_bytes * 10 >= files.bytes * 9;
    if record > 16 << 10 || mean < record * 256 || !is_most || files.bytes < ENOUGH_BYTES {
        return None;
    }
    let what = format!(
        "recordsize={}, and a large file has {} on average ({})",
        nice_bytes(record),
        nice_bytes(mean),
        files.which()
    );
    let cost = "each record has a checksum, a pointer of 128 bytes and an allocation of its own, and is read by itself; \
                that is right for databases, and slow for files that are read from end to end";
    Some(
        Finding::new((Severity::Note, "small-records"), name, what, cost).mend(format!(
            "zfs set recordsize=1M {name}   # for files written from now on, if they are read as a whole"
        )),
    )
}

/// Files that were written before `recordsize` was changed.
fn older_records(dataset: &Dataset) -> Option<Finding> {
    let (files, name) = (&dataset.files, &dataset.name);
    if files.older_bytes * 2 < files.bytes || files.bytes < ENOUGH_BYTES {
        return None;
    }
    let what = format!(
        "recordsize={}, and {} of {} are in smaller records",
        nice_bytes(dataset.record_bytes),
        nice_bytes(files.older_bytes),
        files.which()
    );
    let cost = "recordsize counts when a file is written: these keep what they have";
    Some(
        Finding::new((Severity::Note, "older-records"), name, what, cost).mend(format!(
            "ashift cp -a {name}:/FILE {name}:/FILE.new; ashift mv {name}:/FILE.new {name}:/FILE"
        )),
    )
}
