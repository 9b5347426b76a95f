//! GNU parted's treatment of the same tables: units, placement by ranges, and output.
//!
//! # Source
//! parted 3.5: its manual, and its output on image files. The tests compare with it where it is
//! installed.

mod place;
mod print;
mod unit;

pub use place::{Alignment, Placed, Refusal, Topology, place, resize_end};
pub use print::{Disk, FileSystems, Format, TableView, kind_for, print};
pub use unit::{Location, Unit, parse_location};
