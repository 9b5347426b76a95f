//! The reports of `iostat -x`, as FreeBSD and sysstat print them.
//!
//! # Source
//! FreeBSD usr.sbin/iostat/iostat.c (`devstats`), lib/libdevstat/devstat.c; sysstat 12 iostat.c
//! (`write_disk_stat_header`, `write_plain_ext_stat`).

use machine::System;

use super::rates::{Commands, Rates};

/// The two lines above the drives on FreeBSD; blanks at their ends are its own.
const FREEBSD_HEADER: &str = "                        extended device statistics  \n\
     device       r/s     w/s     kr/s     kw/s  ms/r  ms/w  ms/o  ms/t qlen  %b  \n";

/// How a report looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) system: System,
    /// `-m`: MiB instead of KiB, on Linux.
    pub(super) is_in_mib: bool,
    /// `-z`: without drives that did nothing.
    pub(super) omits_idle: bool,
    /// Drives are named: Linux shows one that has never done anything only then.
    pub(super) is_of_named: bool,
}

impl Layout {
    /// A report of what drives did.
    pub(super) fn report(self, drives: &[(&str, Rates)]) -> String {
        let shown = drives.iter().filter(|(_, rates)| self.is_shown(rates));
        match self.system {
            System::FreeBsd => {
                let lines = shown.map(|(name, rates)| freebsd_line(name, rates));
                format!("{FREEBSD_HEADER}{}", lines.collect::<String>())
            }
            System::Linux => {
                let lines = shown.map(|(name, rates)| self.linux_line(name, rates));
                format!("{}{}\n", self.linux_header(), lines.collect::<String>())
            }
        }
    }

    fn is_shown(self, rates: &Rates) -> bool {
        match self.system {
            System::FreeBsd => {
                let moves = |commands: Commands| {
                    rates.per_sec(commands.count) > 0.05 || rates.kib_per_sec(commands) > 0.0005
                };
                let is_idle = !moves(rates.reads) && !moves(rates.writes);
                !(self.omits_idle && is_idle && rates.busy_percent() <= 0.5)
            }
            System::Linux => {
                let has_moved = rates.reads.count + rates.writes.count > 0;
                (self.is_of_named || rates.ever > 0) && (has_moved || !self.omits_idle)
            }
        }
    }

    fn linux_header(self) -> String {
        let unit = if self.is_in_mib { "MB" } else { "kB" };
        let kind = |letter: char| {
            format!(
                "     {letter}/s     {letter}{unit}/s   {letter}rqm/s  %{letter}rqm {letter}_await {letter}areq-sz"
            )
        };
        let kinds: String = ['r', 'w', 'd'].map(kind).concat();
        format!("Device       {kinds}     f/s f_await  aqu-sz  %util\n")
    }

    fn linux_line(self, name: &str, rates: &Rates) -> String {
        let kind = |commands: Commands| {
            let amount = rates.kib_per_sec(commands) / if self.is_in_mib { 1024.0 } else { 1.0 };
            format!(
                " {:7.2} {amount:9.2} {:8.2} {:6.2} {:7.2} {:8.2}",
                rates.per_sec(commands.count),
                0.0,
                0.0,
                commands.ms_each(),
                commands.kib_each()
            )
        };
        let kinds = [rates.reads, rates.writes, rates.trims].map(kind).concat();
        format!(
            "{name:<13}{kinds} {:7.2} {:7.2} {:7.2} {:6.2}\n",
            rates.per_sec(rates.flushes.count),
            rates.flushes.ms_each(),
            rates.per_sec(rates.all().ns) / 1e9,
            rates.busy_percent()
        )
    }
}

fn freebsd_line(name: &str, rates: &Rates) -> String {
    let [reads, writes, flushes] = [rates.reads, rates.writes, rates.flushes];
    format!(
        "{name:<8.8} {:7} {:7} {:8.1} {:8.1} {:5} {:5} {:5} {:5} {:4} {:3.0} \n",
        rates.per_sec(reads.count) as u64,
        rates.per_sec(writes.count) as u64,
        rates.kib_per_sec(reads),
        rates.kib_per_sec(writes),
        reads.ms_each() as u64,
        writes.ms_each() as u64,
        flushes.ms_each() as u64,
        rates.all().ms_each() as u64,
        rates.queue_length,
        rates.busy_percent()
    )
}

#[cfg(test)]
mod tests {
    use super::super::rates::tests::example;
    use super::*;

    const LAYOUT: Layout = Layout {
        system: System::FreeBsd,
        is_in_mib: false,
        omits_idle: false,
        is_of_named: false,
    };

    #[test]
    fn freebsds_report_has_its_columns() {
        let report = LAYOUT.report(&[("ada0", example()), ("ada10", Rates::default())]);
        let expected = "                        extended device statistics  \n\
            device       r/s     w/s     kr/s     kw/s  ms/r  ms/w  ms/o  ms/t qlen  %b  \n\
            ada0         150      20   2400.0   2624.0     4    12    12     5    3  62 \n\
            ada10          0       0      0.0      0.0     0     0     0     0    0   0 \n";
        assert_eq!(report, expected);
        let busy = Layout {
            omits_idle: true,
            ..LAYOUT
        };
        let report = busy.report(&[("ada0", example()), ("ada10", Rates::default())]);
        assert_eq!(report.lines().count(), 3, "{report}");
    }

    #[test]
    fn sysstats_report_has_its_columns() {
        let linux = Layout {
            system: System::Linux,
            ..LAYOUT
        };
        let idle = Rates {
            ever: 1,
            ..Rates::default()
        };
        let drives = [
            ("ada0", example()),
            ("ada1", idle),
            ("ada2", Rates::default()),
        ];
        let expected = "\
Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     \
d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util
ada0           150.00   2400.00     0.00   0.00    4.20    16.00   20.50   2624.00     0.00   0.00   12.20   128.00    \
1.00   1024.00     0.00   0.00    1.50  1024.00    2.00   12.50    0.91  61.70
ada1             0.00      0.00     0.00   0.00    0.00     0.00    0.00      0.00     0.00   0.00    0.00     0.00    \
0.00      0.00     0.00   0.00    0.00     0.00    0.00    0.00    0.00   0.00

";
        assert_eq!(linux.report(&drives), expected);
        let named = Layout {
            is_of_named: true,
            is_in_mib: true,
            ..linux
        };
        let report = named.report(&drives);
        assert!(report.contains("\nada2     "), "{report}");
        assert!(
            report.starts_with("Device            r/s     rMB/s   rrqm/s"),
            "{report}"
        );
        assert!(
            report.contains("\nada0           150.00      2.34     0.00"),
            "{report}"
        );
        let busy = Layout {
            omits_idle: true,
            ..linux
        };
        assert_eq!(busy.report(&drives).lines().count(), 3);
    }
}
