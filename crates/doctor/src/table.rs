//! A partition table: its copies, its place, and where partitions begin.

use gpart::{Partition, Scheme, Shape, Table};

use crate::disk::{Disk, Known};
use crate::{Finding, Severity};

/// The sectors of 512 bytes, and so on, that an MBR can number: 2^32.
const MBR_SECTORS: u64 = 1 << 32;

/// The sector that an image is judged by: most disks that it can be copied to have it.
const USUAL_SECTOR: u32 = 4096;

pub(crate) fn examine_table(disk: &Disk, table: &Table) -> Vec<Finding> {
    let mut found = Vec::from_iter(copies(disk, table));
    found.extend(bounds(disk, table));
    found.extend(alignment(disk, table));
    let sectors = table.shape().sectors();
    if table.scheme() == Scheme::Mbr && sectors > MBR_SECTORS {
        let lost = (sectors - MBR_SECTORS) * u64::from(table.shape().sectorsize);
        let what = "its table is an MBR, which numbers 2^32 sectors";
        let cost = format!("{lost} bytes at its end cannot be in a partition");
        let name = &disk.name;
        found.push(
            Finding::new((Severity::Warning, "mbr-too-small"), name, what, cost)
                .mend("# after a copy of all that is on it:")
                .mend(format!(
                    "gpart destroy -F {name}; gpart create -s gpt {name}"
                )),
        );
    }
    found
}

/// A GPT that was made where the disk showed other sectors.
pub(crate) fn of_other_sectors(disk: &Disk, table: &Table) -> Finding {
    let name = &disk.name;
    let (theirs, ours) = (
        u64::from(table.shape().sectorsize),
        u64::from(disk.topology.logical_block_size),
    );
    let what =
        format!("its GPT counts in sectors of {theirs} bytes, and here it has sectors of {ours}");
    let cost = "its partitions are not found; what is in them is whole (it was used behind a USB bridge that shows other \
                sectors, or is now)";
    let kind = (Severity::Critical, "gpt-of-other-sectors");
    let finding = Finding::new(kind, name, what, cost);
    let partitions = table.in_place();
    let here = |sectors: u64| {
        let bytes = sectors.checked_mul(theirs)?;
        bytes.is_multiple_of(ours).then_some(bytes / ours)
    };
    let mut lines = Vec::new();
    for one in partitions {
        let (Some(start), Some(sectors)) = (here(one.start_sector), here(one.sectors)) else {
            let index = one.index;
            return finding.mend(format!(
                "# only where it was made: partition {index} has no whole sectors of {ours} bytes"
            ));
        };
        let label = match one.label() {
            label if label.is_empty() => String::new(),
            label => format!(" -l {}", quoted(&label)),
        };
        let (index, kind) = (one.index, quoted(&one.kind.to_string()));
        lines.push(format!(
            "gpart add -i {index} -t {kind} -b {start} -s {sectors}{label} {name}"
        ));
    }
    let finding = finding
        .mend("# all is there on the bus on which it was made; to keep it here, with every partition where it is:")
        .mend(format!("gpart create -s gpt {name}"));
    lines.into_iter().fold(finding, Finding::mend)
}

/// A word of a command that a shell takes as it is: labels are whatever was written to the disk.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The two copies of a GPT.
fn copies(disk: &Disk, table: &Table) -> Option<Finding> {
    let name = &disk.name;
    let note = |text: &str| table.notes().iter().any(|note| note.contains(text));
    let (kind, what, cost) = if note("larger disk") || is_cut(table) {
        (
            (Severity::Critical, "gpt-disk-shrunk"),
            "its GPT was made on a larger disk: the backup at the end is gone".to_owned(),
            "what was at the end is out of reach (as behind a USB bridge that keeps sectors for itself), and systems \
             refuse the table",
        )
    } else if note("primary GPT table") {
        (
            (Severity::Warning, "gpt-primary-damaged"),
            "the GPT at its beginning is damaged; the backup at its end is good".to_owned(),
            "one more bad sector, and the partitions are gone; firmware may not boot from it",
        )
    } else if note("not in the last LBA") {
        (
            (Severity::Warning, "gpt-backup-displaced"),
            format!(
                "the backup of its GPT is not in its last sector: {} sectors at the end are not used (the disk was larger \
                 than its host saw, as behind a USB bridge, or grew)",
                table.unused_sectors()
            ),
            "systems look for the backup at the end: when the first copy is damaged, they find none",
        )
    } else if note("secondary GPT table") {
        (
            (Severity::Warning, "gpt-backup-damaged"),
            "the backup of its GPT is damaged or missing".to_owned(),
            "one more bad sector, and the partitions are gone",
        )
    } else if note("no protective MBR") {
        (
            (Severity::Warning, "gpt-unprotected"),
            "its GPT has no protective MBR".to_owned(),
            "tools that know no GPT take the disk for an empty one",
        )
    } else {
        return None;
    };
    let finding = Finding::new(kind, name, what, cost);
    Some(match kind.1 {
        "gpt-disk-shrunk" => finding
            .mend("# on the bus on which it was made the disk is whole; to keep it here, if nothing lies at the end:")
            .mend(format!("gpart recover {name}")),
        _ => finding.mend(format!("gpart recover {name}")),
    })
}

/// Whether a GPT says that the disk has sectors that it has not.
fn is_cut(table: &Table) -> bool {
    table.scheme() == Scheme::Gpt && table.last() >= table.shape().sectors()
}

/// Partitions that overlap, or end after the disk.
fn bounds(disk: &Disk, table: &Table) -> Vec<Finding> {
    let mut found = Vec::new();
    let sectors = table.shape().sectors();
    let partitions = table.in_place();
    let name = |one: &Partition| format!("{}{}", disk.name, one.suffix());
    for one in &partitions {
        if one.sectors > 0 && one.last_sector() >= sectors {
            let what = format!(
                "ends in sector {}, the disk in {}",
                one.last_sector(),
                sectors - 1
            );
            let cost = "its end cannot be read; a pool on it has lost two of its four labels, and what lies there";
            found.push(
                Finding::new(
                    (Severity::Critical, "partition-beyond-end"),
                    name(one),
                    what,
                    cost,
                )
                .mend("# connect the disk as it was when the partition was made"),
            );
        }
    }
    for pair in partitions.windows(2) {
        if pair[0].sectors > 0 && pair[1].start_sector <= pair[0].last_sector() {
            let what = format!("overlaps {}", name(pair[0]));
            let cost = "what is written to one is lost in the other";
            found.push(
                Finding::new(
                    (Severity::Critical, "partitions-overlap"),
                    name(pair[1]),
                    what,
                    cost,
                )
                .mend("# copy what is in the one that is used, then")
                .mend(format!("gpart delete -i {} {}", pair[1].index, disk.name)),
            );
        }
    }
    found
}

/// Partitions that begin within a physical sector.
fn alignment(disk: &Disk, table: &Table) -> Vec<Finding> {
    let (bytes, severity) = match disk.sector() {
        Some(sector) => (sector.bytes, Severity::Warning),
        None => (USUAL_SECTOR, Severity::Note),
    };
    let offset = u32::try_from(disk.topology.alignment_offset).unwrap_or(0);
    let shape = Shape {
        stripesize: bytes,
        stripeoffset: offset,
        ..table.shape()
    };
    let is_off = |one: &&&Partition| {
        one.sectors > 0 && !is_for_boot(one) && shape.misalignment(one.start_sector) > 0
    };
    let partitions = table.in_place();
    let finding = |one: &&Partition| {
        let (index, disk_name) = (one.index, &disk.name);
        let off = shape.misalignment(one.start_sector);
        let what = format!(
            "begins in sector {}, {off} bytes into a physical sector of {bytes}{}",
            one.start_sector,
            match disk.sector().map(|sector| sector.known) {
                None => ", as most disks have",
                Some(Known::Listed(_)) => ", which the disk does not report",
                Some(Known::Reported) => "",
            }
        );
        let cost = "each write that should fill whole sectors has the first and the last of them read, changed and \
                    written again: on a WD20EARS writes of 4 KiB took three times as long (`ashift lab run phybs-512e`)";
        let label = match one.label() {
            label if label.is_empty() => String::new(),
            label => format!(" -l {label}"),
        };
        Finding::new(
            (severity, "misaligned-partition"),
            format!("{disk_name}{}", one.suffix()),
            what,
            cost,
        )
        .mend("# after a copy of what is in it (of a mirror's side: zpool detach, later zpool attach):")
        .mend(format!("gpart delete -i {index} {disk_name}"))
        .mend(format!("gpart add -t {} -a {bytes} -i {index}{label} {disk_name}", one.kind))
    };
    partitions.iter().filter(is_off).map(finding).collect()
}

/// Whether it holds code that is read when a computer starts, and is otherwise left alone.
fn is_for_boot(one: &Partition) -> bool {
    one.kind.is("freebsd-boot") || one.kind.is("bios-boot")
}
