//! bonnie++: its phases on files, its reports, and what is made of its lines afterwards.
//!
//! # What it is
//! The benchmark without its command line. It works on [`Files`], so the same phases run on a folder of this host
//! ([`HostFiles`]), which may be a mount, and in a data set of a pool, where the binary has the other
//! implementation. Time is [`rt::now_ns`] and the processor's [`rt::cpu_ns`]: real on a host, simulated in a machine.
//! - [`Bench`]: the twelve tests in their order, with the file names, sizes and calls of the original;
//! - [`Report`]: the tables and the line of comma-separated values, as version 1.96 or 2.00 has them;
//! - [`semaphores`]: several runs begin each test together;
//! - [`csv_to_text`], [`csv_to_html`]: tables of such lines;
//! - [`zcav`]: the rate of a drive at each place.
//!
//! # Invariants
//! With the same seed the names, their order, the sizes and the places of the seeks are those of the original on a
//! system with glibc, whose generator [`Random`] is.
//!
//! # Source
//! bonnie++ 2.00a as Debian 12 has it: `bonnie++.cpp`, `bon_io.cpp`, `bon_file.cpp`, `bon_time.cpp`; the layout of
//! 1.96 is that of 1.97's `bon_time.cpp`.

mod bench;
mod csv_html;
mod csv_text;
mod directory;
mod files;
mod host;
mod options;
mod random;
mod report;
mod results;
pub mod semaphores;
mod stream;
pub mod zcav;

pub use bench::{Bench, Observer, Stop};
pub use csv_html::csv_to_html;
pub use csv_text::csv_to_text;
pub use files::{File, Files, How};
pub use host::HostFiles;
pub use options::{Era, Kind, Options};
pub use random::Random;
pub use report::Report;
pub use results::{Results, TESTS, Test};
