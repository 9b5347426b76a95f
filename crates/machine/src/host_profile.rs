//! The computer around the drives: what work on its processor costs, and how its ZFS behaved.
//!
//! # What it is
//! A drive of 2012 was measured on a computer of 2012, by a ZFS of 2012. A [`HostProfile`] names
//! both: prices of work for the simulated processor, and the settings of the pool that differed
//! then. `none` charges nothing and has today's settings.
//!
//! # Source
//! The settings: FreeBSD 9.0 `sys/cddl/contrib/opensolaris/uts/common/fs/zfs/vdev_queue.c` (ten
//! commands in flight, merged up to 128 KiB), `vdev_geom.c` (only the logical sector counts),
//! `dsl_pool.c` (dirty data is bounded by an eighth of the memory). The prices are assumed, not
//! measured: the write-up says of its computer only that it was four to five years old in 2012.
//! Round figures for 2 GHz: 1.6 cycles to copy a byte, 2 for fletcher, 26 for AES in C; and
//! 125 MB/s on a conventional PCI bus (32 bits, 33 MHz: 133 at best).
//! eSATA ports of that time hang on a chip of their own, on one lane of PCI Express 1.0 (SiI3132, JMB363): 250 MB/s
//! after its coding, of which 60 to 70 % are left with packets of 128 bytes (M. Bevand, "From 32 to 2 ports: Ideal
//! SATA/SAS Controllers for ZFS & Linux MD RAID").

use gpart::Era;
use rt::{Processor, Work};

use crate::memory::Zfs;

/// An operating system, as far as its tools print other things than those of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// FreeBSD.
    FreeBsd,
    /// Linux.
    Linux,
}

/// A computer and the software of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProfile {
    /// `freebsd-9`
    pub name: &'static str,
    /// A description, one line.
    pub about: &'static str,
    /// What work costs on its processor.
    pub processor: Processor,
    /// The clock of its cores; 0 where computing is free.
    pub clock_mhz: u32,
    /// Device writes in flight at a time.
    pub io_threads: usize,
    /// The largest write that adjacent writes are merged into, in bytes.
    pub aggregation_limit_bytes: u64,
    /// Limit on dirty data, in bytes.
    pub dirty_data_max_bytes: u64,
    /// The largest physical sector considered when ashift is chosen, as a power of two: 9 is 512 bytes.
    pub max_auto_ashift: u32,
    /// Its ZFS, which decides what a machine's memory is used for.
    pub zfs: Zfs,
    /// How its gpart aligns partitions when no alignment is given.
    pub era: Era,
    /// Its operating system.
    pub system: System,
}

/// All host profiles.
#[must_use]
pub fn host_profiles() -> Vec<HostProfile> {
    let now = HostProfile {
        name: "none",
        about: "computing is free",
        processor: Processor::default(),
        clock_mhz: 0,
        io_threads: 10,
        aggregation_limit_bytes: 1 << 20,
        dirty_data_max_bytes: 128 << 20,
        max_auto_ashift: 14,
        zfs: Zfs::Today,
        era: Era::Current,
        system: System::Linux,
    };
    let modern = HostProfile {
        name: "modern",
        about: "four cores of 3 GHz with instructions for AES",
        clock_mhz: 3_000,
        processor: Processor::new(4)
            .with(Work::Command, 5_000_000)
            .with(Work::SystemCall, 300_000)
            .with(Work::Copy, 120)
            .with(Work::Fletcher, 150)
            .with(Work::Digest, 1_500)
            .with(Work::Cycle, 1_000_000 / 3_000)
            .with(Work::CipherSector, 300_000)
            .with(Work::Cipher, 400),
        ..now
    };
    let freebsd_9 = HostProfile {
        name: "freebsd-9",
        about: "FreeBSD 9 on a plain computer of 2007: one core of 2 GHz, AES in software, both \
                drives on one PCI bus",
        clock_mhz: 2_000,
        processor: of_2_ghz(1).with(Work::Transfer, 8_000),
        io_threads: 10,
        aggregation_limit_bytes: 128 << 10,
        dirty_data_max_bytes: 128 << 20,
        max_auto_ashift: 9,
        zfs: Zfs::FreeBsd9,
        era: Era::Nine,
        system: System::FreeBsd,
    };
    let freebsd_8 = HostProfile {
        name: "freebsd-8",
        about: "FreeBSD 8 on a computer of 2009: two cores of 2 GHz, AES in software, the drives by eSATA, \
                on a chip with one lane of PCI Express 1.0",
        processor: of_2_ghz(2).with(Work::Transfer, PS_PER_BYTE_OF_A_LANE),
        zfs: Zfs::FreeBsd8,
        ..freebsd_9
    };
    let freebsd_13 = HostProfile {
        name: "freebsd-13",
        about: "FreeBSD 13 with OpenZFS 2.1: four cores of 3 GHz with instructions for AES",
        zfs: Zfs::OpenZfs21,
        system: System::FreeBsd,
        ..modern
    };
    vec![now, modern, freebsd_8, freebsd_9, freebsd_13]
}

/// 65 % of 250 MB/s.
const PS_PER_BYTE_OF_A_LANE: u64 = 6_154;

/// Cores of 2 GHz of 2007 to 2009, without instructions for AES.
fn of_2_ghz(cores: u32) -> Processor {
    Processor::new(cores)
        .with(Work::Command, 15_000_000)
        .with(Work::SystemCall, 1_000_000)
        .with(Work::Copy, 800)
        .with(Work::Fletcher, 1_000)
        .with(Work::Digest, 15_000)
        .with(Work::Cycle, 1_000_000 / 2_000)
        .with(Work::CipherSector, 2_000_000)
        .with(Work::Cipher, 13_000)
}

impl HostProfile {
    /// The profile of this name; with `@1.5GHz` behind it at that clock, all that its processor does as much slower
    /// or faster; with `@160MB/s`, all its drives behind a bus of that rate.
    #[must_use]
    pub fn find(name: &str) -> Option<HostProfile> {
        let mut parts = name.split('@');
        let name = parts.next()?;
        let host = host_profiles().into_iter().find(|host| host.name == name)?;
        parts.try_fold(host, HostProfile::with)
    }

    /// The same host at another clock, or with another bus.
    fn with(mut self, figure: &str) -> Option<HostProfile> {
        if self.clock_mhz == 0 {
            return None;
        }
        let within = |text: &str, scale: f64, most: f64| {
            let value: f64 = text.parse().ok()?;
            Some((value * scale).round()).filter(|value| (1.0..=most).contains(value))
        };
        if let Some(rate) = figure.strip_suffix("MB/s") {
            let ps_per_byte = 1e6 / within(rate, 1.0, 1e6)?;
            self.processor = self.processor.with(Work::Transfer, ps_per_byte as u64);
            return Some(self);
        }
        let clock_mhz = within(figure.strip_suffix("GHz")?, 1000.0, 1e6)? as u32;
        self.processor = self.processor.at_clock(self.clock_mhz, clock_mhz);
        self.clock_mhz = clock_mhz;
        Some(self)
    }

    /// Name, description and prices in one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        let price = |work| self.processor.price_ps(work) as f64 / 1000.0;
        if self.processor.cores == 0 {
            return format!("{}: {}", self.name, self.about);
        }
        format!(
            "{}: {}; at {} GHz; assumed, not measured: per byte {} ns to copy, {} ns of fletcher, {} ns of AES, {} ns on the \
             bus; {} us per command; compression by the cycles that it takes here (`ashift bench compress`)",
            self.name,
            self.about,
            f64::from(self.clock_mhz) / 1000.0,
            price(Work::Copy),
            price(Work::Fletcher),
            price(Work::Cipher),
            price(Work::Transfer),
            price(Work::Command) / 1000.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        for host in host_profiles() {
            assert_eq!(HostProfile::find(host.name), Some(host));
        }
        assert_eq!(HostProfile::find("abacus"), None);
    }

    #[test]
    fn hosts_of_freebsd_are_called_so() {
        for host in host_profiles() {
            let is_freebsd = host.system == System::FreeBsd;
            assert_eq!(
                is_freebsd,
                host.name.starts_with("freebsd"),
                "{}",
                host.name
            );
        }
    }

    #[test]
    fn at_half_the_clock_all_but_the_bus_takes_twice_as_long() {
        let host = HostProfile::find("freebsd-9").unwrap();
        let half = HostProfile::find("freebsd-9@1GHz").unwrap();
        let price = |host: &HostProfile, work| host.processor.price_ps(work);
        for work in [Work::Copy, Work::Cycle, Work::Command] {
            assert_eq!(price(&half, work), 2 * price(&host, work));
        }
        assert_eq!(price(&half, Work::Transfer), price(&host, Work::Transfer));
        assert!(half.describe().contains("at 1 GHz"));
        for wrong in [
            "freebsd-9@",
            "freebsd-9@0GHz",
            "freebsd-9@2",
            "none@2GHz",
            "freebsd-9@-1GHz",
            "freebsd-9@0MB/s",
            "freebsd-9@MB/s",
            "none@100MB/s",
        ] {
            assert_eq!(HostProfile::find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_bus_has_the_rate_that_is_asked_for() {
        let price = |name| {
            let host = HostProfile::find(name).unwrap();
            host.processor.price_ps(Work::Transfer)
        };
        assert_eq!(price("freebsd-8@100MB/s"), 10_000);
        assert_eq!(price("modern@500MB/s@2GHz"), 2_000);
        let slow = HostProfile::find("modern@500MB/s@2GHz").unwrap();
        assert_eq!(slow.clock_mhz, 2_000);
    }

    #[test]
    fn only_one_is_free() {
        let free = host_profiles()
            .into_iter()
            .filter(|host| host.processor.cores == 0);
        assert_eq!(free.map(|host| host.name).collect::<Vec<_>>(), ["none"]);
    }
}
