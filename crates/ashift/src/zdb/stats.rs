//! `zdb -s`: the I/O that reading the pool took.
//!
//! # Source
//! OpenZFS lib/libzpool/util.c (`show_pool_stats`, `show_vdev_stats`).

use std::io::Write;
use std::sync::Arc;

use admin::number::nice_number;
use base::{Result, VdevId};
use metaslab::SpaceStats;
use vdev::Vdev;

use super::pool::Pool;
use super::text::Printer;

/// The column at which figures begin.
const NAME_WIDTH: usize = 25;

/// `zdb -s`.
pub(super) fn run(out: &mut Printer, pool: &Pool) -> Result<()> {
    writeln!(
        out,
        "                            capacity   operations   bandwidth  ---- errors ----"
    )?;
    writeln!(
        out,
        "description                used avail  read write  read write  read write cksum"
    )?;
    let root = pool.parts().tree().root();
    write(out, &root, &pool.name(), Some(pool.space()), 0)?;
    for (i, top) in root.children().iter().enumerate() {
        let space = pool.vdev_space(VdevId(i as u64)).ok();
        write_tree(out, top, space, 2)?;
    }
    Ok(())
}

fn write_tree(
    out: &mut Printer,
    vdev: &Arc<Vdev>,
    space: Option<SpaceStats>,
    indent: usize,
) -> Result<()> {
    let path = vdev.config().path.clone();
    let name = path.unwrap_or_else(|| vdev.kind().word().to_owned());
    write(out, vdev, &name, space, indent)?;
    for child in vdev.children() {
        write_tree(out, child, None, indent + 2)?;
    }
    Ok(())
}

fn write(
    out: &mut Printer,
    vdev: &Arc<Vdev>,
    name: &str,
    space: Option<SpaceStats>,
    indent: usize,
) -> Result<()> {
    let class = vdev.config().class().word();
    let suffix = class.map_or_else(String::new, |word| format!(" ({word})"));
    let space = space.filter(|space| space.space > 0);
    // As in printf, a negative width means left-justified, with the absolute value as the width.
    let used_width = indent + name.len();
    let end = NAME_WIDTH + if space.is_some() { 0 } else { 12 };
    let width = used_width.abs_diff(end);
    let suffix = if used_width < end {
        format!("{suffix:<width$}")
    } else {
        format!("{suffix:>width$}")
    };
    let capacity = space.map_or_else(String::new, |space| {
        let (used, avail) = (space.alloc, space.space.saturating_sub(space.alloc));
        format!("{:>6}{:>6}", nice_number(used), nice_number(avail))
    });
    let (stats, io) = (vdev.total_stats(), vdev.io_counts());
    let figures = [
        io.read_ops(),
        io.write_ops(),
        io.read_bytes(),
        io.write_bytes(),
        stats.read_errors,
        stats.write_errors,
        stats.checksum_errors,
    ];
    write!(out, "{:indent$}{name}{suffix}{capacity}", "")?;
    for figure in figures {
        write!(out, " {:>5}", nice_number(figure))?;
    }
    writeln!(out)?;
    Ok(())
}
