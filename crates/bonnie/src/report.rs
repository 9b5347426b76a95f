//! The tables for people, and the line for programs.

use crate::options::{
    DEFAULT_CHUNK_BYTES, DEFAULT_SEEKERS, DEFAULT_SEEKS, Era, Kind, Options, THOUSAND,
};
use crate::results::{FILE_TESTS, FILES_TESTS, Results, Taken, Test};

/// A test that took less says nothing about the rate, in ns.
const TOO_SHORT_NS: u64 = 500_000_000;
/// Columns for the name of the computer and the size, with the space after them.
const NAME_COLUMNS: usize = 20;

/// What the line of values has in front of a series of lines. Both versions print that of 1.96.
const HEADER: &str = "format_version,bonnie_version,name,concurrency,seed,file_size,io_chunk_size,\
putc,putc_cpu,put_block,put_block_cpu,rewrite,rewrite_cpu,getc,getc_cpu,get_block,get_block_cpu,seeks,seeks_cpu,\
num_files,max_size,min_size,num_dirs,file_chunk_size,seq_create,seq_create_cpu,seq_stat,seq_stat_cpu,seq_del,\
seq_del_cpu,ran_create,ran_create_cpu,ran_stat,ran_stat_cpu,ran_del,ran_del_cpu,putc_latency,put_block_latency,\
rewrite_latency,getc_latency,get_block_latency,seeks_latency,seq_create_latency,seq_stat_latency,seq_del_latency,\
ran_create_latency,ran_stat_latency,ran_del_latency\n";

/// The results of a run, with what was asked for.
pub struct Report<'a> {
    /// The version whose layout it has.
    pub era: Era,
    /// What was measured.
    pub options: &'a Options,
    /// What the computer is called.
    pub machine: &'a str,
    /// The seed, or the name of the file with random numbers.
    pub seed: &'a str,
    /// What the tests took.
    pub results: &'a Results,
}

impl Era {
    /// What it is called in tables.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Era::V1_96 => "1.96",
            Era::V2_00 => "2.00a",
        }
    }

    /// What its lines of values begin with.
    pub(crate) fn format(self) -> &'static str {
        match self {
            Era::V1_96 => "1.96",
            Era::V2_00 => "1.98",
        }
    }
}

/// A number with the largest unit of which it is a multiple; a blank unit is left out.
fn with_unit(number: u32, units: &str) -> String {
    let (mut number, mut units) = (number, units.chars());
    let mut unit = units.next().expect("at least one unit");
    while number > 0 && number.is_multiple_of(1024) {
        let Some(larger) = units.next() else { break };
        (number, unit) = (number / 1024, larger);
    }
    format!("{number}{unit}").trim_end().to_owned()
}

/// `12us`, and larger units where the number would be long.
fn latency(taken: Option<Taken>) -> String {
    let Some(taken) = taken else {
        return String::new();
    };
    let us = taken.latency_ns / 1000;
    match us {
        100_000_000.. => format!("{}s", us / 1_000_000),
        100_000.. => format!("{}ms", us / 1000),
        _ => format!("{us}us"),
    }
}

fn is_too_short(taken: &Taken) -> bool {
    taken.elapsed_ns < TOO_SHORT_NS
}

/// Operations, or KiB, in a second.
fn rate(taken: &Taken, amount: u64) -> f64 {
    amount as f64 / (taken.elapsed_ns as f64 / 1e9)
}

fn percent(taken: &Taken) -> u64 {
    (taken.cpu_ns as f64 / taken.elapsed_ns as f64 * 100.0) as u64
}

fn seeks_per_s(rate: f64) -> String {
    match rate >= 1000.0 {
        true => format!("{rate:.0}"),
        false => format!("{rate:.1}"),
    }
}

/// A rate in KiB with a unit, in five columns if it fits.
pub(crate) fn kib_with_unit(rate: f64) -> String {
    let mib = rate / 1024.0;
    if rate < 10_000.0 {
        format!("{:4}k", rate as u64)
    } else if mib >= 1000.0 {
        format!("{:4.1}g", mib / 1024.0)
    } else if mib < 100.0 {
        format!("{mib:4.1}m")
    } else {
        format!("{:4}m", (mib + 0.5) as u64)
    }
}

impl Report<'_> {
    /// The names of the values, before a series of lines.
    #[must_use]
    pub fn header() -> &'static str {
        HEADER
    }

    /// The tables.
    #[must_use]
    pub fn text(&self) -> String {
        self.file_table() + &self.files_table()
    }

    /// What a test did: KiB, seeks or files.
    fn amount(&self, test: Test) -> u64 {
        let options = self.options;
        let kib = |mib: u32| u64::from(mib) * 1024;
        match test {
            Test::ByteWrite | Test::ByteRead => kib(options.tested_byte_mib()),
            Test::Write | Test::Rewrite | Test::Read => kib(options.file_mib),
            Test::Seek => u64::from(options.seeks),
            _ => u64::from(options.thousands) * u64::from(THOUSAND),
        }
    }

    /// Rate and share of the processor, in ten columns.
    fn cell(&self, test: Test) -> String {
        let Some(taken) = self.results.of(test) else {
            return " ".repeat(10);
        };
        if is_too_short(&taken) {
            return " +++++ +++".to_owned();
        }
        let rate = rate(&taken, self.amount(test));
        let rate = match (test, self.era) {
            (Test::Seek, _) => seeks_per_s(rate),
            (Test::ByteWrite | Test::Write | Test::Rewrite, Era::V2_00)
            | (Test::ByteRead | Test::Read, Era::V2_00) => kib_with_unit(rate),
            _ => (rate as u64).to_string(),
        };
        format!(" {rate:>5} {:3}", percent(&taken))
    }

    fn cells(&self, tests: [Test; 6]) -> String {
        let cells: String = tests.iter().map(|test| self.cell(*test)).collect();
        let latencies = tests.map(|test| format!(" {:>9}", latency(self.results.of(test))));
        format!("{cells}\nLatency          {}\n", latencies.concat())
    }

    fn file_table(&self) -> String {
        let options = self.options;
        if options.file_mib == 0 {
            return String::new();
        }
        let (second, third) = match self.era {
            Era::V1_96 => {
                let size = match options.chunk_bytes {
                    DEFAULT_CHUNK_BYTES => "Machine        Size ",
                    _ => "Machine   Size:chnk ",
                };
                let units = "K/sec %CP ".repeat(5);
                let second = format!("Concurrency {:3}     ", options.concurrency);
                (second, format!("{size}{units} /sec %CP"))
            }
            Era::V2_00 => {
                let units = " /sec %CP".repeat(6);
                let third = format!("Name:Size etc       {}", units.replace("CP ", "CP  "));
                (" ".repeat(NAME_COLUMNS), third)
            }
        };
        format!(
            "Version {:>5}       ------Sequential Output------ --Sequential Input- --Random-\n\
             {second}-Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--\n\
             {third}\n{}{}",
            self.era.version(),
            self.name_and_size(),
            self.cells(FILE_TESTS)
        )
    }

    /// The name, cut off where the size begins.
    fn name_and_size(&self) -> String {
        let options = self.options;
        let mut size = with_unit(options.file_mib, "MG");
        let chunk = match options.chunk_bytes {
            DEFAULT_CHUNK_BYTES => String::new(),
            bytes => with_unit(bytes, " km"),
        };
        match self.era {
            Era::V1_96 if chunk.is_empty() => {}
            Era::V1_96 => size += &format!(":{chunk}"),
            Era::V2_00 => {
                let unless = |value: u32, usual: u32| match value == usual {
                    true => String::new(),
                    false => value.to_string(),
                };
                let rest = [
                    chunk,
                    unless(options.concurrency, 1),
                    unless(options.seeks, DEFAULT_SEEKS),
                    unless(options.seekers, DEFAULT_SEEKERS),
                ];
                size += format!(":{}", rest.join(":")).trim_end_matches(':');
            }
        }
        match (NAME_COLUMNS - 2).checked_sub(size.len()) {
            Some(columns) => {
                let name: String = self.machine.chars().take(columns).collect();
                format!("{name:columns$} {size}")
            }
            None => size,
        }
    }

    fn files_table(&self) -> String {
        let options = self.options;
        if options.thousands == 0 {
            // The original ends the line of a table that it has not begun.
            return "\n".to_owned();
        }
        let mut what = options.thousands.to_string();
        let columns = match options.kind {
            Kind::Links => {
                what += ":link";
                "files:max           "
            }
            Kind::Symlinks => {
                what += ":symlink";
                "files:max           "
            }
            Kind::Files { max_bytes: 0, .. } => "              files ",
            Kind::Files {
                max_bytes,
                min_bytes,
            } => {
                what += &format!(":{max_bytes}:{min_bytes}");
                match min_bytes {
                    0 => "files:max           ",
                    _ => "files:max:min       ",
                }
            }
        };
        if options.directories > 1 {
            what += &format!("/{}", options.directories);
        }
        let name: String = self.machine.chars().take(19).collect();
        let units = " /sec %CP".repeat(6).replace("CP ", "CP  ");
        format!(
            "Version {:>5}       ------Sequential Create------ --------Random Create--------\n\
             {name:19} -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--\n\
             {columns}{units}\n{what:>19}{}",
            self.era.version(),
            self.cells(FILES_TESTS)
        )
    }

    /// The line of values.
    #[must_use]
    pub fn csv(&self) -> String {
        let options = self.options;
        let mut line = format!(
            "{},{},{},{},{},",
            self.era.format(),
            self.era.version(),
            self.machine,
            options.concurrency,
            self.seed
        );
        line += &match (options.file_mib, self.era) {
            (0, Era::V1_96) => ",".repeat(13),
            (0, Era::V2_00) => ",".repeat(15),
            _ => self.file_values(),
        };
        line += &match options.thousands {
            0 => ",".repeat(17),
            _ => self.files_values(),
        };
        for test in FILE_TESTS.into_iter().chain(FILES_TESTS) {
            line += &format!(",{}", latency(self.results.of(test)));
        }
        line + "\n"
    }

    fn file_values(&self) -> String {
        let options = self.options;
        let size = with_unit(options.file_mib, "MG");
        let rest = match (self.era, options.chunk_bytes) {
            (Era::V1_96, DEFAULT_CHUNK_BYTES) => String::new(),
            (Era::V1_96, bytes) => with_unit(bytes, " km"),
            // The chunk size is not said.
            (Era::V2_00, _) => format!(",{},{}", options.seeks, options.seekers),
        };
        format!("{size},{rest}{}", self.values(FILE_TESTS))
    }

    fn files_values(&self) -> String {
        let options = self.options;
        let sizes = match options.kind {
            Kind::Links => "link,".to_owned(),
            Kind::Symlinks => "symlink,".to_owned(),
            Kind::Files { max_bytes: 0, .. } => ",".to_owned(),
            Kind::Files {
                max_bytes,
                min_bytes: 0,
            } => format!("{max_bytes},"),
            Kind::Files {
                max_bytes,
                min_bytes,
            } => format!("{max_bytes},{min_bytes}"),
        };
        // The number of directories is where the chunk size would be.
        let directories = match options.directories {
            1 => String::new(),
            directories => directories.to_string(),
        };
        let values = self.values(FILES_TESTS);
        format!(",{},{sizes},,{directories}{values}", options.thousands)
    }

    fn values(&self, tests: [Test; 6]) -> String {
        let value = |test: Test| match self.results.of(test) {
            None => ",,".to_owned(),
            Some(taken) if is_too_short(&taken) => ",+++++,+++".to_owned(),
            Some(taken) => {
                let rate = rate(&taken, self.amount(test));
                let rate = match test {
                    Test::Seek => seeks_per_s(rate),
                    _ => (rate as u64).to_string(),
                };
                format!(",{rate},{}", percent(&taken))
            }
        };
        tests.map(value).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_the_unit_that_keeps_them_short() {
        let cases = [
            (0, "0us"),
            (99_999_999, "99999us"),
            (100_000_000, "100ms"),
            (99_999_999_000, "99999ms"),
            (100_000_000_000, "100s"),
        ];
        for (latency_ns, expected) in cases {
            let taken = Taken {
                latency_ns,
                ..Taken::default()
            };
            assert_eq!(latency(Some(taken)), expected);
        }
        assert_eq!(latency(None), "");
    }

    #[test]
    fn rates_have_the_unit_that_keeps_them_short() {
        let cases = [
            (9999.0, "9999k"),
            (10_000.0, " 9.8m"),
            (102_399.0, "100.0m"),
            (102_400.0, " 100m"),
            (1_024_000.0, " 1.0g"),
        ];
        for (rate, expected) in cases {
            assert_eq!(kib_with_unit(rate), expected);
        }
    }

    /// Results in which each test took a little longer than the one before.
    fn results() -> Results {
        let mut results = Results::default();
        for (n, test) in (0..).zip(FILE_TESTS.into_iter().chain(FILES_TESTS)) {
            let taken = Taken {
                elapsed_ns: 400_000_000 + n * 200_000_000,
                cpu_ns: 100_000_000,
                latency_ns: 90_000_000 + n * 10_000_000,
            };
            results.record(test, taken);
        }
        results
    }

    #[test]
    fn the_report_of_1_96_has_kib_and_the_concurrency() {
        let mut options = Options::default();
        options.set_file("1g").unwrap();
        options.set_files("64:102400:128:8").unwrap();
        let report = Report {
            era: Era::V1_96,
            options: &options,
            machine: "box",
            seed: "5",
            results: &results(),
        };
        let expected = "\
Version  1.96       ------Sequential Output------ --Sequential Input- --Random-
Concurrency   1     -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP
box              1G +++++ +++ 1747626  16 1310720  12  3072  10 873813   8  5851   7
Latency             90000us     100ms     110ms     120ms     130ms     140ms
Version  1.96       ------Sequential Create------ --------Random Create--------
box                 -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--
files:max:min        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
    64:102400:128/8 40960   6 36408   5 32768   5 29789   4 27306   4 25206   3
Latency               150ms     160ms     170ms     180ms     190ms     200ms
";
        assert_eq!(report.text(), expected);
        let line = report.csv();
        assert!(line.starts_with("1.96,1.96,box,1,5,1G,,+++++,+++,1747626,16,"));
        assert!(line.contains(",5851,7,64,102400,128,,8,40960,6,"));
        assert!(line.ends_with(
            ",90000us,100ms,110ms,120ms,130ms,140ms,150ms,160ms,170ms,180ms,190ms,200ms\n"
        ));
        assert_eq!(line.split(',').count(), HEADER.split(',').count());
    }

    #[test]
    fn the_report_of_2_00_has_units_and_what_is_unusual() {
        let mut options = Options::default();
        options.set_file("10:64k:100:3").unwrap();
        options.concurrency = 4;
        options.thousands = 0;
        let report = Report {
            era: Era::V2_00,
            options: &options,
            machine: "a long name of a computer",
            seed: "5",
            results: &results(),
        };
        let expected = "\
Version 2.00a       ------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Name:Size etc        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
a l 10M:64k:4:100:3 +++++ +++ 16.7m  16 12.5m  12 3072k  10 8533k   8  71.4   7
Latency             90000us     100ms     110ms     120ms     130ms     140ms
";
        assert_eq!(report.text(), format!("{expected}\n"));
        assert_eq!(
            report.csv().split(",71.4,7,").next().unwrap(),
            "1.98,2.00a,a long name of a computer,4,5,10M,,100,3,+++++,+++,17066,16,12800,12,3072,10,8533,8"
        );
        assert_eq!(report.csv().split(',').count(), 50);
    }
}
