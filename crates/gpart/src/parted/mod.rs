//! GNU parted's treatment of the same tables: units, placement by ranges, and output.
//!
//! # Source
//! parted 3.5: its manual, and its output on image files. The tests compare with it where it is
//! installed.

mod flags;
mod place;
mod print;
mod system;
mod unit;

pub use flags::{FLAGS, Marks, PMBR_BOOT, flags_for, is_pmbr_boot};
pub use place::{Alignment, Placed, Refusal, Topology, place, resize_end};
pub use print::{Disk, FileSystems, Format, TableView, print};
pub use system::{SYSTEMS, system_named};
pub use unit::{Location, Unit, parse_location};
