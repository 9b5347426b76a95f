//! How long something takes, and how the tools named `time` print that.
//!
//! # What it is
//! A [`Stopwatch`] reads the clock and the processors' count before and after: in a machine those of its simulation,
//! on this host those of this process.
//!
//! # Source
//! bash `execute_cmd.c` (`time_command`), POSIX `time`, FreeBSD usr.bin/time/time.c.

use machine::System;
use rt::CpuTimes;

use crate::system::host_system;

/// How times are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `-p`
    Posix,
    /// That of bash.
    Bash,
    /// That of FreeBSD's program.
    FreeBsd,
}

impl Layout {
    /// That of the machine's host, unless POSIX's is wanted.
    pub(crate) fn of_host(is_posix: bool) -> Layout {
        match is_posix {
            true => Layout::Posix,
            false => Layout::of(host_system()),
        }
    }

    pub(crate) fn of(system: System) -> Layout {
        match system {
            System::FreeBsd => Layout::FreeBsd,
            System::Linux => Layout::Bash,
        }
    }
}

/// What is measured while a command runs.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    began_ns: u64,
    cpu: CpuTimes,
}

/// How long a command took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    real_ns: u64,
    cpu: CpuTimes,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch {
            began_ns: rt::now_ns(),
            cpu: rt::cpu_times(),
        }
    }

    pub(crate) fn read(&self) -> Taken {
        let (real_ns, cpu) = (rt::now_ns() - self.began_ns, rt::cpu_times());
        Taken {
            real_ns,
            cpu: CpuTimes {
                user_ns: cpu.user_ns.saturating_sub(self.cpu.user_ns),
                system_ns: cpu.system_ns.saturating_sub(self.cpu.system_ns),
            },
        }
    }
}

impl Taken {
    pub(crate) fn text(self, layout: Layout) -> String {
        let times = [self.real_ns, self.cpu.user_ns, self.cpu.system_ns];
        match layout {
            Layout::Posix => {
                let [real, user, sys] = times.map(hundredths);
                format!("real {real}\nuser {user}\nsys {sys}\n")
            }
            Layout::Bash => {
                let [real, user, sys] = times.map(minutes);
                format!("\nreal\t{real}\nuser\t{user}\nsys\t{sys}\n")
            }
            Layout::FreeBsd => {
                let [real, user, sys] = times.map(hundredths);
                format!("{real:>12} real {user:>12} user {sys:>12} sys\n")
            }
        }
    }
}

/// `1.23`
fn hundredths(ns: u64) -> String {
    format!("{}.{:02}", ns / 1_000_000_000, ns / 10_000_000 % 100)
}

/// `0m1.234s`
fn minutes(ns: u64) -> String {
    let ms = ns / 1_000_000;
    format!("{}m{}.{:03}s", ms / 60_000, ms / 1000 % 60, ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_each_system_prints_them() {
        let taken = Taken {
            real_ns: 83_459_999_999,
            cpu: CpuTimes {
                user_ns: 9_000_000,
                system_ns: 1_230_000_000,
            },
        };
        assert_eq!(
            taken.text(Layout::Bash),
            "\nreal\t1m23.459s\nuser\t0m0.009s\nsys\t0m1.230s\n"
        );
        assert_eq!(
            taken.text(Layout::Posix),
            "real 83.45\nuser 0.00\nsys 1.23\n"
        );
        assert_eq!(
            taken.text(Layout::FreeBsd),
            "       83.45 real         0.00 user         1.23 sys\n"
        );
    }
}
