//! What FreeBSD's tools print about a drive.
//!
//! # Source
//! FreeBSD `sbin/camcontrol/camcontrol.c` and `usr.sbin/diskinfo/diskinfo.c`, for the layout of
//! the lines; the text of real outputs.

use std::fmt::Write;

use super::{
    COMMAND1_LOOK_AHEAD, COMMAND1_POWER, COMMAND1_SMART, COMMAND1_WRITE_CACHE, COMMAND2_FLUSH,
    IdentifyData, SATA_NCQ,
};
use crate::profile::Transport;

impl IdentifyData {
    /// The highest version of the standard that the drive claims: word 80.
    fn ata_version(&self) -> u32 {
        match self.words[80] {
            0 | 0xffff => 0,
            word => 15 - word.leading_zeros(),
        }
    }

    /// The generation of the wire: word 76.
    fn sata_generation(&self) -> Option<u32> {
        match self.words[76] {
            0 | 0xffff => None,
            word => [3, 2, 1].into_iter().find(|n| word & (1 << n) != 0),
        }
    }

    fn standard(&self) -> String {
        match self.ata_version() {
            0 => "ATA".to_owned(),
            version @ 1..=7 => format!("ATA-{version}"),
            8 => "ATA8-ACS".to_owned(),
            version => format!("ACS-{} ATA", version - 7),
        }
    }

    fn wire(&self) -> String {
        self.sata_generation()
            .map_or_else(String::new, |n| format!(" SATA {n}.x"))
    }
}

fn yes_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

/// `camcontrol identify`, for the device `pass{unit}`.
#[must_use]
pub fn camcontrol_identify(data: &IdentifyData, unit: u32) -> String {
    let mut out = String::new();
    let (model, firmware) = (data.model(), data.firmware());
    if data.transport == Transport::Nvme {
        let serial = data.serial();
        let _ = writeln!(out, "pass{unit}: <{model} {firmware} {serial}>");
        let _ = writeln!(out, "pass{unit}: NVMe\n");
    } else {
        let (standard, wire) = (data.standard(), data.wire());
        let _ = writeln!(
            out,
            "pass{unit}: <{model} {firmware}> {standard}{wire} device"
        );
        let (speed, wire) = match (data.usb_mb_s, data.sata_generation()) {
            (Some(rate), _) => (rate, ""),
            (None, Some(3)) => (600, " (SATA 3.x, UDMA6, PIO 8192bytes)"),
            (None, Some(2)) => (300, " (SATA 2.x, UDMA6, PIO 8192bytes)"),
            (None, _) => (150, " (SATA 1.x, UDMA6, PIO 8192bytes)"),
        };
        let _ = writeln!(out, "pass{unit}: {speed}.000MB/s transfers{wire}\n");
    }
    write_facts(&mut out, data);
    if data.transport == Transport::Sata {
        write_features(&mut out, data);
    }
    out
}

fn write_facts(out: &mut String, data: &IdentifyData) {
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<22}{value}");
    };
    let is_sata = data.transport == Transport::Sata;
    if is_sata {
        let version = match data.ata_version() {
            0 => "ATA/ATAPI".to_owned(),
            version => format!("ATA/ATAPI-{version}"),
        };
        line("protocol", &format!("{version}{}", data.wire()));
    } else {
        line("protocol", "NVMe");
    }
    line("device model", &data.model());
    line("firmware revision", &data.firmware());
    line("serial number", &data.serial());
    if let Some(wwn) = data.wwn() {
        line("WWN", &format!("{wwn:016x}"));
    }
    if is_sata {
        line("cylinders", &data.word(1).to_string());
        line("heads", &data.word(3).to_string());
        line("sectors/track", &data.word(6).to_string());
    }
    let sizes = format!(
        "logical {}, physical {}, offset {}",
        data.logical_sector_bytes(),
        data.physical_sector_bytes(),
        data.alignment_offset_bytes()
    );
    line("sector size", &sizes);
    line("LBA supported", &format!("{} sectors", data.sectors_28()));
    if let Some(sectors) = data.sectors_48() {
        line("LBA48 supported", &format!("{sectors} sectors"));
    }
    if is_sata {
        line("PIO supported", "PIO4");
        line("DMA supported", "WDMA2 UDMA6 ");
    }
    match data.rotation_rpm() {
        Some(1) => line("media RPM", "non-rotating"),
        Some(rpm) if rpm > 0x400 => line("media RPM", &rpm.to_string()),
        _ => {}
    }
    if is_sata {
        line("Zoned-Device Commands", "no");
    }
}

/// A feature's name, the word that says it is supported, the word that says it is enabled, and the bit in both.
type Feature = (&'static str, usize, usize, u16);

const FEATURES: &[Feature] = &[
    ("read ahead", 82, 85, COMMAND1_LOOK_AHEAD),
    ("write cache", 82, 85, COMMAND1_WRITE_CACHE),
    ("flush cache", 83, 86, COMMAND2_FLUSH),
    ("Tagged Command Queuing (TCQ)", 83, 86, 1 << 1),
];

/// Those after the line about NCQ.
const MORE_FEATURES: &[Feature] = &[
    ("SMART", 82, 85, COMMAND1_SMART),
    ("microcode download", 83, 86, 1),
    ("security", 82, 85, 1 << 1),
    ("power management", 82, 85, COMMAND1_POWER),
    ("advanced power management", 83, 86, 1 << 3),
    ("automatic acoustic management", 83, 86, 1 << 9),
    ("media status notification", 83, 86, 1 << 4),
    ("power-up in Standby", 83, 86, 1 << 5),
    ("write-read-verify", 119, 120, 1 << 1),
    ("unload", 84, 87, 1 << 13),
    ("general purpose logging", 84, 87, 1 << 5),
    ("free-fall", 119, 120, 1 << 5),
];

fn write_features(out: &mut String, data: &IdentifyData) {
    let _ = writeln!(
        out,
        "\nFeature                      Support  Enabled   Value           Vendor"
    );
    let both = |out: &mut String, (name, support, state, bit): &Feature| {
        let can = yes_no(data.word(*support) & bit != 0);
        let does = yes_no(data.word(*state) & bit != 0);
        let _ = writeln!(out, "{name:<31}{can}\t{does}");
    };
    FEATURES.iter().for_each(|feature| both(out, feature));
    let has_ncq = data.word(76) & SATA_NCQ != 0 && data.word(76) != 0xffff;
    let queue = match has_ncq {
        true => format!("yes\t\t{} tags", data.queue_depth()),
        false => "no".to_owned(),
    };
    let _ = writeln!(out, "{:<31}{queue}", "Native Command Queuing (NCQ)");
    MORE_FEATURES.iter().for_each(|feature| both(out, feature));
    let trim = yes_no(data.has_trim());
    let _ = writeln!(out, "{:<31}{trim}", "Data Set Management (DSM/TRIM)");
}

/// A line of `camcontrol devlist`.
#[must_use]
pub fn camcontrol_devlist(data: &IdentifyData, name: &str, bus: u32, unit: u32) -> String {
    let inquiry = format!("<{} {}>", data.model(), data.firmware());
    format!("{inquiry:<33}  at scbus{bus} target 0 lun 0 (pass{unit},{name})")
}

/// What `diskinfo` prints about a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskInfo {
    /// The name.
    pub name: String,
    /// In bytes.
    pub mediasize: u64,
    /// In bytes.
    pub sectorsize: u32,
    /// In bytes; 0 if it equals the sector.
    pub stripesize: u32,
    /// In bytes.
    pub stripeoffset: u32,
    /// What a drive reports about itself; `None` for partitions and layers without a drive below.
    pub drive: Option<DriveInfo>,
}

/// The part of `diskinfo` that comes from the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveInfo {
    /// The model.
    pub descr: String,
    /// The serial number.
    pub ident: String,
    /// Whether it supports deletes.
    pub can_delete: bool,
    /// The rotation rate; 1 for flash, `None` if not reported.
    pub rotation_rpm: Option<u16>,
}

impl DriveInfo {
    /// From IDENTIFY.
    #[must_use]
    pub fn of(data: &IdentifyData) -> DriveInfo {
        DriveInfo {
            descr: data.model(),
            ident: data.serial(),
            can_delete: data.has_trim(),
            rotation_rpm: data.rotation_rpm(),
        }
    }
}

/// The CHS geometry that drives of this size report.
const HEADS: u64 = 16;
const SECTORS_PER_TRACK: u64 = 63;

impl DiskInfo {
    fn cylinders(&self) -> u64 {
        self.mediasize / (HEADS * SECTORS_PER_TRACK * u64::from(self.sectorsize.max(1)))
    }
}

/// The line of `diskinfo` without `-v`.
#[must_use]
pub fn diskinfo_line(info: &DiskInfo) -> String {
    let sectors = info.mediasize / u64::from(info.sectorsize.max(1));
    let mut line = format!(
        "{}\t{}\t{}\t{sectors}\t{}\t{}",
        info.name, info.sectorsize, info.mediasize, info.stripesize, info.stripeoffset
    );
    if info.drive.is_some() {
        let _ = write!(line, "\t{}\t{HEADS}\t{SECTORS_PER_TRACK}", info.cylinders());
    }
    line
}

/// The lines of `diskinfo -v`.
#[must_use]
pub fn diskinfo(info: &DiskInfo) -> String {
    let mut out = format!("{}\n", info.name);
    let mut line = |value: &str, what: &str| {
        let _ = writeln!(out, "\t{value:<12}\t# {what}");
    };
    let sectors = info.mediasize / u64::from(info.sectorsize.max(1));
    line(&info.sectorsize.to_string(), "sectorsize");
    let size = format!("mediasize in bytes ({})", humanized(info.mediasize));
    line(&info.mediasize.to_string(), &size);
    line(&sectors.to_string(), "mediasize in sectors");
    line(&info.stripesize.to_string(), "stripesize");
    line(&info.stripeoffset.to_string(), "stripeoffset");
    if let Some(drive) = &info.drive {
        let cylinders = info.cylinders().to_string();
        line(&cylinders, "Cylinders according to firmware.");
        line(&HEADS.to_string(), "Heads according to firmware.");
        line(
            &SECTORS_PER_TRACK.to_string(),
            "Sectors according to firmware.",
        );
        line(&drive.descr, "Disk descr.");
        line(&drive.ident, "Disk ident.");
        let trim = if drive.can_delete { "Yes" } else { "No" };
        line(trim, "TRIM/UNMAP support");
        let rate = match drive.rotation_rpm {
            None => "Unknown".to_owned(),
            Some(1) => "0".to_owned(),
            Some(rpm) => rpm.to_string(),
        };
        line(&rate, "Rotation rate in RPM");
        line("Not_Zoned", "Zone Mode");
    }
    out
}

/// Three figures and a letter, as `humanize_number` does: `1.8T`, `932G`.
fn humanized(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if value < 9.95 && !unit.is_empty() {
            return format!("{value:.1}{unit}");
        }
        if value < 999.5 {
            return format!("{value:.0}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0}E")
}
