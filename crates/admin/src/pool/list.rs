//! `zpool list -v`: a line for each pool, and below it one for each vdev.

use super::{AllocClass, CLASSES, NameStyle, PoolStatus, VdevStatus, heading};
use crate::listing::{Column, Item, Style, columns, header, item_line, line};
use crate::number::NumberStyle;
use crate::prop::{PropDesc, PropName, TableKind};

/// Formats pools with their vdevs. Each pool comes with its properties.
#[must_use]
#[doc(alias = "list_callback")]
pub fn list_verbose(
    style: &Style,
    names: &[PropName],
    pools: &[(Item, &PoolStatus)],
    vdev_names: NameStyle,
) -> String {
    let items: Vec<Item> = pools.iter().map(|(item, _)| item.clone()).collect();
    let mut columns = columns(style, names, &items);
    let name_width = pools
        .iter()
        .map(|(_, pool)| pool.name_width(vdev_names))
        .max();
    let name_width = name_width.unwrap_or(0).max(9);
    if let Some(first) = columns.first_mut() {
        first.width = name_width;
    }
    let mut out = String::new();
    if !style.is_scripted {
        out += &header(style, &columns);
    }
    for (item, pool) in pools {
        out += &item_line(style, &columns, item);
        let table = Table {
            style,
            names,
            columns: &columns,
            vdev_names,
            name_width,
        };
        table.push_pool(&mut out, pool);
    }
    out
}

struct Table<'a> {
    style: &'a Style,
    names: &'a [PropName],
    columns: &'a [Column],
    vdev_names: NameStyle,
    name_width: usize,
}

impl Table<'_> {
    fn push_pool(&self, out: &mut String, pool: &PoolStatus) {
        for top in pool.tops(AllocClass::Normal) {
            self.push_vdev(out, top, 2, false);
        }
        for class in CLASSES {
            let mut tops = pool.tops(class).peekable();
            if tops.peek().is_some() {
                *out += &self.heading(heading(class));
            }
            tops.for_each(|top| self.push_vdev(out, top, 2, false));
        }
        for (heading, vdevs, is_spare) in
            [("cache", &pool.cache, false), ("spare", &pool.spares, true)]
        {
            if !vdevs.is_empty() {
                *out += &self.heading(heading);
            }
            vdevs
                .iter()
                .for_each(|vdev| self.push_vdev(out, vdev, 2, is_spare));
        }
    }

    /// The heading of a class: its name and dashes. Separated by blanks even with `-H`, as in OpenZFS.
    fn heading(&self, name: &str) -> String {
        let plain = Style {
            is_scripted: false,
            ..*self.style
        };
        let rest = self.names.iter().zip(self.columns).skip(1);
        let rest: Vec<Column> = rest
            .filter(|(name, _)| name.as_str() != "altroot")
            .map(|(_, column)| column.flush_right())
            .collect();
        let dashes = vec!["-".to_owned(); rest.len()];
        let rest = line(&plain, &rest, &dashes);
        format!("{name:<width$}  {rest}", width = self.name_width)
    }

    #[doc(alias = "print_list_stats")]
    fn push_vdev(&self, out: &mut String, vdev: &VdevStatus, depth: usize, is_spare: bool) {
        let name = vdev.name(self.vdev_names);
        let width = self.name_width.saturating_sub(depth);
        *out += &match self.style.is_scripted {
            true => format!("\t{name}"),
            false => format!("{:depth$}{name:<width$}", ""),
        };
        for name in self
            .names
            .iter()
            .map(PropName::as_str)
            .filter(|name| *name != "name")
        {
            let Some(cell) = vdev_cell(self.style, vdev, name, is_spare) else {
                continue;
            };
            let width = match name {
                "health" => 8,
                _ => TableKind::Pool.lookup(name).map_or(0, PropDesc::width),
            };
            *out += &match self.style.is_scripted {
                true => format!("\t{cell}"),
                false => format!("  {cell:>width$}"),
            };
        }
        out.push('\n');
        for child in &vdev.children {
            self.push_vdev(out, child, depth + 2, is_spare);
        }
    }
}

/// A vdev's value in a column: `-` where vdevs have no value, `None` where they have no column at
/// all (the alternate root).
#[doc(alias = "print_one_column")]
pub(super) fn vdev_cell(
    style: &Style,
    vdev: &VdevStatus,
    name: &str,
    is_spare: bool,
) -> Option<String> {
    let is_top = vdev.space_bytes != 0;
    let is_exact = style.numbers == NumberStyle::Exact;
    let number = |value: u64| style.numbers.number(value);
    let or_dash = |value: u64| {
        if value == 0 {
            "-".to_owned()
        } else {
            number(value)
        }
    };
    let top_only = |text: String| if is_top { text } else { "-".to_owned() };
    Some(match name {
        "size" if vdev.physical_bytes > 0 => or_dash(vdev.physical_bytes),
        "size" => top_only(or_dash(vdev.space_bytes)),
        "allocated" => top_only(number(vdev.alloc_bytes)),
        "free" => top_only(number(vdev.space_bytes.saturating_sub(vdev.alloc_bytes))),
        "checkpoint" => top_only(or_dash(vdev.checkpoint_bytes)),
        "expandsize" => or_dash(vdev.expandable_bytes),
        "fragmentation" => match vdev.fragmentation {
            Some(percent) => top_only(style.numbers.percent(percent)),
            None => "-".to_owned(),
        },
        "capacity" if !is_top => "-".to_owned(),
        "capacity" => capacity(vdev, is_exact),
        "health" if is_spare => vdev.spare_state_name().to_owned(),
        "health" => vdev.state_name().to_owned(),
        "altroot" => return None,
        _ => "-".to_owned(),
    })
}

/// Used space in percent, with more digits than the pool's own column has.
fn capacity(vdev: &VdevStatus, is_exact: bool) -> String {
    let parts = vdev.alloc_bytes as u128 * 10_000 / vdev.space_bytes as u128;
    let percent = parts as f64 / 100.0;
    match parts {
        parts if is_exact => (parts / 100).to_string(),
        0..1000 => format!("{percent:.2}%"),
        1000..10_000 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}
