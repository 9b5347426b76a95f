//! IDENTIFY DEVICE: the 512 bytes in which a drive describes itself, and how hosts interpret them.
//!
//! # On disk
//! 256 little-endian words. Strings have their bytes swapped in each word and are padded with
//! spaces. What matters here:
//! ```text
//! 10-19 serial number      23-26 firmware         27-46 model
//! 60-61 sectors (28 bits)  100-103 sectors (48 bits)
//! 75    queue depth - 1    76 SATA generation, NCQ
//! 82-87 features, and which are switched on: write cache, look-ahead, flush, 48-bit addresses
//! 106   bits 15:14 = 01: valid; 13: several logical sectors per physical one, 3:0 how many (log2);
//!       12: the logical sector has not 512 bytes, but those of words 117-118 (in words)
//! 117-118 logical sector size in words
//! 209   bits 15:14 = 01: valid; 13:0 offset of logical sector 0 within its physical sector
//! 217   rotation rate, 1 for none
//! ```
//!
//! # Source
//! ACS-2 and ACS-3 for the words; FreeBSD `sys/cam/ata/ata_all.c`, `ata_da.c` and Linux `libata`,
//! `sd.c` for their interpretation.

pub mod speed;
mod text;

use base::{Error, Result};
use geom::topology::{self, Topology};

use crate::profile::{Identify, Profile, Transport};
use rt::splitmix64;
pub use text::{
    DiskInfo, DriveInfo, camcontrol_devlist, camcontrol_identify, diskinfo, diskinfo_line,
};

/// Word 82 (and 85): look-ahead.
const COMMAND1_LOOK_AHEAD: u16 = 1 << 6;
/// Word 82 (and 85): a write cache.
const COMMAND1_WRITE_CACHE: u16 = 1 << 5;
/// Word 82 (and 85): power management.
const COMMAND1_POWER: u16 = 1 << 3;
/// Word 82 (and 85): SMART.
const COMMAND1_SMART: u16 = 1;
/// Word 83 (and 86): 48-bit addresses.
const COMMAND2_LBA48: u16 = 1 << 10;
/// Word 83 (and 86): FLUSH CACHE.
const COMMAND2_FLUSH: u16 = 1 << 12;
/// Word 83 (and 86): FLUSH CACHE EXT.
const COMMAND2_FLUSH_EXT: u16 = 1 << 13;
/// Word 84 (and 87): a world wide name in words 108-111.
const EXTENSION_WWN: u16 = 1 << 8;
/// Word 76: native command queuing.
const SATA_NCQ: u16 = 1 << 8;
/// Words 83, 84, 87, 106, 209: bits 15:14 of a word that is valid.
const VALID: u16 = 1 << 14;
/// What FreeBSD reports for any USB 2 device, in MB/s; bridges up to this rate count as USB 2.
const USB_2_MB_S: u32 = 40;
/// What FreeBSD reports for any USB 3 device, in MB/s.
const USB_3_MB_S: u32 = 400;
/// The largest number of sectors that words 60-61 can hold.
const LBA28_MAX: u64 = 0x0fff_ffff;

/// The answer to IDENTIFY DEVICE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentifyData {
    words: [u16; 256],
    transport: Transport,
    /// Behind a USB bridge: the transfer rate that FreeBSD reports, in MB/s.
    usb_mb_s: Option<u32>,
    /// Nobody can ask the drive: this is what the bridge before it says.
    is_hidden: bool,
}

/// What the host is told: by the drive, or by a bridge that does not pass the question on.
fn answer(profile: &Profile) -> Identify {
    let own = &profile.identify;
    match profile
        .bridge
        .as_ref()
        .filter(|bridge| bridge.hides_identify)
    {
        None => own.clone(),
        Some(bridge) => Identify {
            model: bridge.model.clone(),
            firmware: String::new(),
            serial_prefix: "USB".to_owned(),
            physical_sector_bytes: own.logical_sector_bytes,
            alignment_offset_bytes: 0,
            rotation_rpm: 0,
            queue_depth: 1,
            ..own.clone()
        },
    }
}

/// The transfer rate that FreeBSD reports for the bridge of a profile (`umass.c`: the base rate of the bus).
fn usb_mb_s(profile: &Profile) -> Option<u32> {
    profile.bridge.as_ref()?;
    let is_slow = profile.interface.rate_mb_s <= f64::from(USB_2_MB_S);
    Some(if is_slow { USB_2_MB_S } else { USB_3_MB_S })
}

impl IdentifyData {
    /// The answer of a drive of a profile; its serial number is derived from `seed` if none is given. For an NVMe
    /// drive, which has no such command, this is a translation of its answers.
    ///
    /// # Errors
    /// `InvalidInput` for strings that do not fit.
    pub fn of(profile: &Profile, serial: Option<&str>, seed: u64) -> Result<IdentifyData> {
        let says = &answer(profile);
        let mut data = IdentifyData {
            words: [0; 256],
            transport: says.transport,
            usb_mb_s: usb_mb_s(profile),
            is_hidden: profile.bridge.as_ref().is_some_and(|b| b.hides_identify),
        };
        let serial = match serial {
            Some(serial) => serial.to_owned(),
            None => made_up_serial(&says.serial_prefix, seed),
        };
        data.put_text("serial number", 10, 10, &serial)?;
        data.put_text("firmware", 23, 4, &says.firmware)?;
        data.put_text("model", 27, 20, &says.model)?;
        data.put_capacity(says.sectors);
        data.put_features(profile, says.queue_depth);
        data.put_sectors(
            says.logical_sector_bytes,
            says.physical_sector_bytes,
            says.alignment_offset_bytes,
        );
        data.put_name(&says.model, &serial);
        data.words[217] = says.rotation_rpm;
        data.put_checksum();
        Ok(data)
    }

    fn put_text(&mut self, what: &str, at: usize, words: usize, text: &str) -> Result<()> {
        let fits = text.len() <= words * 2 && text.bytes().all(|b| (0x20..0x7f).contains(&b));
        if !fits {
            let most = words * 2;
            return Err(Error::invalid(format!(
                "{what} '{text}': at most {most} printable characters"
            )));
        }
        let padded = format!("{text:<width$}", width = words * 2);
        for (word, pair) in self.words[at..].iter_mut().zip(padded.as_bytes().chunks(2)) {
            *word = u16::from_be_bytes([pair[0], pair[1]]);
        }
        Ok(())
    }

    fn put_capacity(&mut self, sectors: u64) {
        let words = &mut self.words;
        // No removable medium; the geometry that every large drive reports.
        (words[0], words[1], words[3], words[6]) = (0x0040, 16_383, 16, 63);
        (words[54], words[55], words[56]) = (16_383, 16, 63);
        put_number(&mut words[57..59], 16_383 * 16 * 63);
        put_number(&mut words[60..62], sectors.min(LBA28_MAX));
        put_number(&mut words[100..104], sectors);
    }

    fn put_features(&mut self, profile: &Profile, queue_depth: u32) {
        let words = &mut self.words;
        let generation = match profile.interface.rate_mb_s {
            rate if rate > 300.0 => 3,
            rate if rate > 150.0 => 2,
            _ => 1,
        };
        // LBA, DMA, IORDY; words 54-58, 64-70 and 88 are valid; MWDMA 2, PIO 4, UDMA 6.
        (words[49], words[50], words[53]) = (0x2f00, VALID, 7);
        (words[47], words[63], words[64], words[88]) = (0x8010, 7, 3, 0x407f);
        words[65..69].fill(120);
        let depth = queue_depth.clamp(1, 32);
        words[75] = u16::try_from(depth - 1).expect("below 32");
        words[76] = (2u16 << generation) - 2;
        if depth > 1 {
            words[76] |= SATA_NCQ;
        }
        words[78] = 0x0004;
        // ATA8-ACS, and ACS-2 for drives of the third generation.
        words[80] = if generation == 3 { 0x03fe } else { 0x01fe };
        // An NVMe drive whose cache survives a loss of power has no volatile one (VWC in Identify Controller).
        let is_safe = (profile.flash.as_ref()).is_some_and(|flash| flash.power_loss_protected);
        let is_nvme = profile.identify.transport == Transport::Nvme;
        let has_write_cache = profile.cache.write_cache_kib > 0 && !(is_nvme && is_safe);
        words[82] = COMMAND1_SMART | COMMAND1_POWER | COMMAND1_LOOK_AHEAD;
        if has_write_cache {
            words[82] |= COMMAND1_WRITE_CACHE;
        }
        words[83] = VALID | COMMAND2_LBA48 | COMMAND2_FLUSH | COMMAND2_FLUSH_EXT;
        words[84] = VALID | EXTENSION_WWN | 3;
        (words[85], words[86], words[87]) = (words[82], words[83] & !VALID, words[84]);
        words[169] = u16::from(profile.flash.is_some());
        words[222] = 0x101f | (generation << 5);
    }

    fn put_sectors(&mut self, logical: u32, physical: u32, offset: u32) {
        let words = &mut self.words;
        let per_physical = (physical / logical).max(1);
        // A drive whose sectors are all of 512 bytes may say so or leave the word empty.
        words[106] = VALID;
        if per_physical > 1 {
            let shift = u16::try_from(per_physical.trailing_zeros()).expect("below 32");
            words[106] |= (1 << 13) | shift;
        }
        if logical != 512 {
            words[106] |= 1 << 12;
            put_number(&mut words[117..119], u64::from(logical / 2));
        }
        let offset = u16::try_from(offset / logical).unwrap_or(0);
        words[209] = VALID | (offset & 0x3fff);
    }

    /// A world wide name: NAA 5, the manufacturer's OUI, and a number derived from the serial number.
    fn put_name(&mut self, model: &str, serial: &str) {
        let maker: u64 = match model {
            m if m.starts_with("WDC") => 0x00_14ee,
            m if m.starts_with("ST") => 0x00_0c50,
            m if m.starts_with("HGST") || m.starts_with("Hitachi") => 0x00_0cca,
            _ => 0x00_25d8,
        };
        let mut seed = serial.bytes().fold(0u64, |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let unique = splitmix64(&mut seed) & 0xf_ffff_ffff;
        let name = (5 << 60) | (maker << 36) | unique;
        for (n, word) in self.words[108..112].iter_mut().enumerate() {
            *word = (name >> (48 - 16 * n)) as u16;
        }
    }

    /// Word 255: the signature, and the byte that makes the sum of all bytes zero.
    fn put_checksum(&mut self) {
        self.words[255] = 0x00a5;
        let sum = self
            .to_bytes()
            .iter()
            .fold(0u8, |sum, b| sum.wrapping_add(*b));
        self.words[255] |= u16::from(sum.wrapping_neg()) << 8;
    }

    /// The 512 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 512] {
        let mut bytes = [0; 512];
        for (pair, word) in bytes.chunks_exact_mut(2).zip(&self.words) {
            pair.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the 512 bytes of a SATA drive.
    ///
    /// # Errors
    /// `InvalidInput` for another length; `Corrupt` if word 255 has a checksum and it is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<IdentifyData> {
        if bytes.len() != 512 {
            let len = bytes.len();
            return Err(Error::invalid(format!("identify data of {len} bytes")));
        }
        let mut words = [0; 256];
        for (word, pair) in words.iter_mut().zip(bytes.chunks_exact(2)) {
            *word = u16::from_le_bytes([pair[0], pair[1]]);
        }
        let sum = bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
        if words[255] & 0xff == 0xa5 && sum != 0 {
            let text = format!(
                "identify data: word 255 is {:#06x}, sum {sum:#04x}",
                words[255]
            );
            return Err(Error::corrupt(text));
        }
        Ok(IdentifyData {
            words,
            transport: Transport::Sata,
            usb_mb_s: None,
            is_hidden: false,
        })
    }

    /// A word, by its number in the standard.
    #[must_use]
    pub fn word(&self, number: usize) -> u16 {
        self.words[number]
    }

    /// Decodes `vpd_pg89`, as Linux shows it for a SATA drive: the 512 bytes follow a 60-byte header.
    ///
    /// # Errors
    /// `Corrupt` if it is too short or is not page 0x89.
    pub fn from_vpd(page: &[u8]) -> Result<IdentifyData> {
        match page.get(60..572) {
            Some(bytes) if page.get(1) == Some(&0x89) => IdentifyData::from_bytes(bytes),
            _ => Err(Error::corrupt(format!(
                "{} bytes are not page 0x89 of a SATA drive",
                page.len()
            ))),
        }
    }

    /// Whether this is what a USB bridge says in place of the drive, which nobody can ask.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Whether it describes a drive with ATA commands rather than NVMe.
    #[must_use]
    pub fn is_sata(&self) -> bool {
        self.transport == Transport::Sata
    }

    fn text(&self, at: usize, words: usize) -> String {
        let bytes: Vec<u8> = (self.words[at..at + words].iter())
            .flat_map(|word| word.to_be_bytes())
            .collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// Words 27-46.
    #[must_use]
    pub fn model(&self) -> String {
        self.text(27, 20)
    }

    /// Words 23-26.
    #[must_use]
    pub fn firmware(&self) -> String {
        self.text(23, 4)
    }

    /// Words 10-19.
    #[must_use]
    pub fn serial(&self) -> String {
        self.text(10, 10)
    }

    /// Words 108-111, if there is a name.
    #[must_use]
    pub fn wwn(&self) -> Option<u64> {
        let words = &self.words[108..112];
        let name = words
            .iter()
            .fold(0, |name, word| (name << 16) | u64::from(*word));
        (self.words[87] & EXTENSION_WWN != 0).then_some(name)
    }

    /// Words 60-61.
    #[must_use]
    pub(crate) fn sectors_28(&self) -> u64 {
        number(&self.words[60..62])
    }

    /// Words 100-103, if there are 48-bit addresses.
    #[must_use]
    pub(crate) fn sectors_48(&self) -> Option<u64> {
        (self.words[83] & COMMAND2_LBA48 != 0).then(|| number(&self.words[100..104]))
    }

    /// The number of logical sectors.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        let large = self.sectors_48().filter(|sectors| *sectors > 0);
        large.unwrap_or_else(|| self.sectors_28())
    }

    fn sector_word(&self) -> Option<u16> {
        Some(self.words[106]).filter(|word| word >> 14 == 1)
    }

    /// The logical sector: words 106 and 117-118.
    #[must_use]
    pub fn logical_sector_bytes(&self) -> u32 {
        let words = number(&self.words[117..119]);
        match self.sector_word() {
            Some(word) if word & (1 << 12) != 0 => {
                u32::try_from(words.saturating_mul(2)).unwrap_or(u32::MAX)
            }
            _ => 512,
        }
    }

    /// The physical sector: word 106.
    #[must_use]
    pub fn physical_sector_bytes(&self) -> u64 {
        let logical = u64::from(self.logical_sector_bytes());
        match self.sector_word() {
            Some(word) if word & (1 << 13) != 0 => logical << (word & 15),
            _ => logical,
        }
    }

    /// Offset of logical sector 0 within its physical sector: word 209.
    #[must_use]
    pub fn alignment_offset_bytes(&self) -> u64 {
        let word = self.words[209];
        match word >> 14 {
            1 => u64::from(word & 0x3fff) * u64::from(self.logical_sector_bytes()),
            _ => 0,
        }
    }

    /// Word 217: `None` if not reported, 1 for flash.
    #[must_use]
    pub fn rotation_rpm(&self) -> Option<u16> {
        Some(self.words[217]).filter(|rpm| *rpm != 0 && *rpm != 0xffff)
    }

    /// Commands that it queues; 1 without NCQ.
    #[must_use]
    pub fn queue_depth(&self) -> u32 {
        match self.words[76] {
            0xffff => 1,
            word if word & SATA_NCQ == 0 => 1,
            _ => u32::from(self.words[75] & 31) + 1,
        }
    }

    /// Whether it supports DATA SET MANAGEMENT / TRIM.
    #[must_use]
    pub fn has_trim(&self) -> bool {
        self.words[169] & 1 != 0
    }

    /// Whether the host sends no flushes because the drive has no volatile write cache. Drivers for NVMe go by that
    /// (Linux `drivers/nvme/host/core.c`, FreeBSD `sys/dev/nvme/nvme_ns.c`); a SATA drive always gets them.
    #[must_use]
    pub(crate) fn needs_no_flush(&self) -> bool {
        self.transport == Transport::Nvme && !self.write_cache().1
    }

    /// Whether there is a write cache, and whether it is on.
    #[must_use]
    pub fn write_cache(&self) -> (bool, bool) {
        let bit = |word: usize| self.words[word] & COMMAND1_WRITE_CACHE != 0;
        (bit(82), bit(85))
    }

    /// `stripesize` and `stripeoffset` as ada(4) derives them: the physical sector if the drive
    /// reports one, else 4096 if it is on the list of known liars, else 0.
    #[must_use]
    pub fn stripe(&self, has_quirks: bool) -> (u32, u32) {
        let logical = u64::from(self.logical_sector_bytes());
        let physical = self.physical_sector_bytes();
        if physical != logical && physical <= 1 << 30 {
            let offset = (physical - self.alignment_offset_bytes() % physical) % physical;
            let small = |n: u64| u32::try_from(n).expect("at most 2^30");
            return (small(physical), small(offset));
        }
        if has_quirks && self.transport == Transport::Sata && logical < 4096 {
            let liar = topology::freebsd_quirk_4k(&self.model());
            return (if liar.is_some() { 4096 } else { 0 }, 0);
        }
        (0, 0)
    }

    /// What Linux would show below `/sys/block/sdX/queue`.
    #[must_use]
    pub fn linux_topology(&self) -> Topology {
        let logical = self.logical_sector_bytes();
        let physical = u32::try_from(self.physical_sector_bytes()).unwrap_or(u32::MAX);
        let offset = self.alignment_offset_bytes() % u64::from(physical.max(1));
        let lowest = (u64::from(physical) - offset) % u64::from(physical.max(1));
        Topology {
            mediasize: self.sectors().saturating_mul(u64::from(logical)),
            logical_block_size: logical,
            physical_block_size: physical,
            minimum_io_size: physical,
            optimal_io_size: 0,
            alignment_offset: i64::try_from(lowest).unwrap_or(0),
            is_rotational: Some(self.rotation_rpm() != Some(1)),
            model: Some(self.model()),
        }
    }
}

fn put_number(words: &mut [u16], value: u64) {
    for (n, word) in words.iter_mut().enumerate() {
        *word = (value >> (16 * n)) as u16;
    }
}

fn number(words: &[u16]) -> u64 {
    let parts = words.iter().rev();
    parts.fold(0, |sum, word| (sum << 16) | u64::from(*word))
}

/// The manufacturer's prefix and seven digits derived from a seed.
fn made_up_serial(prefix: &str, mut seed: u64) -> String {
    let digits = splitmix64(&mut seed) % 10_000_000;
    format!("{prefix}{digits:07}")
}

#[cfg(test)]
mod tests;
