//! `zpool iostat`: what the devices of pools have done, in tables.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`print_vdev_stats` and what it calls).

use std::collections::BTreeMap;
use std::fmt::Write;

use vdev::IoCounts;

use super::{
    AllocClass, CLASSES, NameStyle, PoolStatus, ScriptOutput, VdevKind, VdevStatus, heading,
};
use crate::number::{NumberStyle, nice_number, nice_time};

/// What a vdev and those below it have done.
#[derive(Clone, Debug, Default)]
pub struct VdevIo {
    /// For how long they were counted.
    pub age_ns: u64,
    /// The counts.
    pub counts: IoCounts,
}

/// What the vdevs of a pool have done up to a moment.
#[derive(Clone, Debug, Default)]
pub struct PoolIo {
    /// Its vdevs and their space.
    pub status: PoolStatus,
    /// The moment.
    pub at_ns: u64,
    /// By guid.
    pub vdevs: BTreeMap<u64, VdevIo>,
}

/// Which tables are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoTables {
    /// Capacity, operations and bandwidth, with others beside them.
    Default {
        /// `-l`: average latencies.
        has_latency: bool,
        /// `-q`: lengths of the queues.
        has_queues: bool,
    },
    /// `-w`: how many commands took how long.
    Latencies,
    /// `-r`: how many commands had which length.
    Sizes,
}

/// What is shown, and how.
#[derive(Clone, Debug)]
pub struct IoStyle {
    /// The tables.
    pub tables: IoTables,
    /// `-p`
    pub numbers: NumberStyle,
    /// `-H`
    pub is_scripted: bool,
    /// `-v`, or vdevs were given.
    pub is_verbose: bool,
    /// How vdevs are named.
    pub names: NameStyle,
    /// Only vdevs of these names, unless it is empty.
    pub only: Vec<String>,
    /// The width of the screen, in characters.
    pub screen_width: usize,
}

/// Columns that are shown together.
#[derive(Clone, Copy)]
enum Group {
    Default,
    Latency,
    Queues,
    Latencies,
    Sizes,
}

const READ_WRITE: [&str; 2] = ["read", "write"];

impl Group {
    /// The titles above the columns, each with the number of columns below it.
    #[doc(alias = "iostat_top_labels")]
    fn top(self) -> &'static [(&'static str, usize)] {
        match self {
            Group::Default => &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
            Group::Latency => &[
                ("total_wait", 2),
                ("disk_wait", 2),
                ("syncq_wait", 2),
                ("asyncq_wait", 2),
                ("scrub", 1),
                ("trim", 1),
                ("rebuild", 1),
            ],
            Group::Queues => &[
                ("syncq_read", 2),
                ("syncq_write", 2),
                ("asyncq_read", 2),
                ("asyncq_write", 2),
                ("scrubq_read", 2),
                ("trimq_write", 2),
                ("rebuildq_write", 2),
            ],
            Group::Latencies => &[
                ("total_wait", 2),
                ("disk_wait", 2),
                ("syncq_wait", 2),
                ("asyncq_wait", 2),
            ],
            Group::Sizes => &[
                ("sync_read", 2),
                ("sync_write", 2),
                ("async_read", 2),
                ("async_write", 2),
                ("scrub", 2),
                ("trim", 2),
                ("rebuild", 2),
            ],
        }
    }

    /// The title of each column.
    #[doc(alias = "iostat_bottom_labels")]
    fn bottom(self) -> Vec<(&'static str, usize)> {
        let titles = match self {
            Group::Default => [&["alloc", "free"][..], &READ_WRITE, &READ_WRITE].concat(),
            Group::Latency => [&READ_WRITE.repeat(4)[..], &["wait"; 3]].concat(),
            Group::Queues => ["pend", "activ"].repeat(7),
            Group::Latencies => [&READ_WRITE.repeat(4)[..], &["scrub", "trim", "rebuild"]].concat(),
            Group::Sizes => ["ind", "agg"].repeat(7),
        };
        titles.into_iter().map(|title| (title, 1)).collect()
    }

    #[doc(alias = "default_column_width")]
    fn width(self, numbers: NumberStyle) -> usize {
        match (numbers, self) {
            (NumberStyle::Nice, _) => 5,
            (NumberStyle::Exact, Group::Default) => 15,
            (NumberStyle::Exact, Group::Latency | Group::Latencies) => 10,
            (NumberStyle::Exact, Group::Queues | Group::Sizes) => 6,
        }
    }
}

impl IoTables {
    /// Whether each vdev gets a table of its own.
    #[must_use]
    pub fn is_histogram(self) -> bool {
        !matches!(self, IoTables::Default { .. })
    }

    fn groups(self) -> Vec<Group> {
        match self {
            IoTables::Default {
                has_latency,
                has_queues,
            } => {
                let mut groups = vec![Group::Default];
                groups.extend(has_latency.then_some(Group::Latency));
                groups.extend(has_queues.then_some(Group::Queues));
                groups
            }
            IoTables::Latencies => vec![Group::Latencies],
            IoTables::Sizes => vec![Group::Sizes],
        }
    }
}

/// What the default tables take beside the names, in characters.
const DEFAULT_WIDTH: usize = 42;
/// Names have this many characters at least.
const NAME_WIDTH_MIN: usize = 10;

/// Prints pools: the names have the same width in all.
pub struct IoPrinter<'a> {
    style: &'a IoStyle,
    name_width: usize,
    /// `-c`: what scripts said of the devices.
    scripts: Option<ScriptOutput>,
}

impl<'a> IoPrinter<'a> {
    /// For these pools.
    #[must_use]
    #[doc(alias = "get_namewidth_iostat")]
    pub fn new(
        style: &'a IoStyle,
        pools: &[PoolIo],
        scripts: Option<ScriptOutput>,
    ) -> IoPrinter<'a> {
        let most = style.screen_width.saturating_sub(DEFAULT_WIDTH);
        let widen = |width: usize, pool: &PoolIo| {
            let name = pool.status.name.chars().count();
            let widest = match style.is_verbose {
                true => name.max(width).max(pool.status.name_width(style.names)),
                false => name.max(width),
            };
            widest.min(most).max(NAME_WIDTH_MIN)
        };
        IoPrinter {
            style,
            name_width: pools.iter().fold(0, widen),
            scripts,
        }
    }

    /// The lines above the default tables.
    #[must_use]
    pub fn header(&self) -> String {
        self.header_of(None, None)
    }

    /// The line below them.
    #[must_use]
    pub fn separator(&self) -> String {
        self.dashes(None, None) + &self.script_dashes() + "\n"
    }

    /// A pool. `before`: what it had done at an earlier moment, to show only what it has done since.
    #[must_use]
    #[doc(alias = "print_iostat")]
    pub fn pool(&self, pool: &PoolIo, before: Option<&PoolIo>) -> String {
        let mut out = String::new();
        let shown = Shown {
            printer: self,
            pool,
            before,
        };
        let is_shown = shown.push(&mut out, &pool.status.root, &pool.status.name, 0);
        let ends = self.style.is_verbose && self.style.only.is_empty() && !self.style.is_scripted;
        if is_shown && ends && !self.style.tables.is_histogram() {
            out += &self.separator();
        }
        out
    }

    fn title(&self) -> &'static str {
        match self.style.tables {
            IoTables::Latencies => "latency",
            IoTables::Sizes => "req_size",
            IoTables::Default { .. } if !self.style.only.is_empty() => "vdev",
            IoTables::Default { .. } => "pool",
        }
    }

    #[doc(alias = "print_iostat_header_impl")]
    fn header_of(&self, width: Option<usize>, vdev: Option<&str>) -> String {
        let title = self.title();
        let vdev = vdev.unwrap_or_default();
        let names = self.name_width.max(title.len()).max(vdev.chars().count());
        let mut out = format!("{vdev:<names$}");
        for group in self.style.tables.groups() {
            self.labels(&mut out, group, width, group.top());
        }
        let _ = write!(out, "\n{title:<names$}");
        for group in self.style.tables.groups() {
            self.labels(&mut out, group, width, &group.bottom());
        }
        if let Some(scripts) = &self.scripts {
            out += &scripts.titles();
        }
        out + "\n" + &self.dashes(width, None) + &self.script_dashes() + "\n"
    }

    fn script_dashes(&self) -> String {
        let scripts = self.scripts.as_ref();
        scripts.map_or_else(String::new, ScriptOutput::dashes)
    }

    #[doc(alias = "print_iostat_labels")]
    fn labels(
        &self,
        out: &mut String,
        group: Group,
        width: Option<usize>,
        labels: &[(&str, usize)],
    ) {
        let width = width.unwrap_or_else(|| group.width(self.style.numbers));
        for (name, columns) in labels {
            let all = width * columns + 2 * (columns - 1);
            let start = (all / columns).saturating_sub(name.len() / columns);
            let rest = all.saturating_sub(start + name.len());
            let _ = write!(out, "  {:start$}{name}{:rest$}", "", "");
        }
    }

    /// A line of dashes, or the heading of a class.
    #[doc(alias = "print_iostat_dashes")]
    fn dashes(&self, width: Option<usize>, name: Option<&str>) -> String {
        let names = self.name_width.max(self.title().len());
        let names = names.max(name.unwrap_or_default().len());
        let mut out = match name {
            Some(name) => format!("{name:<names$}"),
            None => "-".repeat(names),
        };
        for group in self.style.tables.groups() {
            let width = width.unwrap_or_else(|| group.width(self.style.numbers));
            for _ in group.bottom() {
                match name {
                    Some(_) => out += &format!("  {:>width$}", "-"),
                    None => out += &format!("  {}", "-".repeat(width)),
                }
            }
        }
        out
    }

    fn cell(&self, out: &mut String, text: &str, width: usize) {
        *out += &match self.style.is_scripted {
            true => format!("\t{text}"),
            false => format!("  {text:>width$}"),
        };
    }

    fn number(&self, out: &mut String, value: u64, width: usize) {
        self.cell(out, &self.style.numbers.number(value), width);
    }
}

/// A pool while it is printed.
struct Shown<'a> {
    printer: &'a IoPrinter<'a>,
    pool: &'a PoolIo,
    before: Option<&'a PoolIo>,
}

impl Shown<'_> {
    /// Prints a vdev and, if wanted, those below it; returns whether there was anything to print.
    #[doc(alias = "print_vdev_stats")]
    fn push(&self, out: &mut String, vdev: &VdevStatus, name: &str, depth: usize) -> bool {
        let style = self.printer.style;
        let is_only = style.only.iter().any(|only| only == name);
        let mut is_shown = is_only || style.only.is_empty();
        if is_shown {
            self.push_line(out, vdev, name, if is_only { 0 } else { depth });
        }
        if !style.is_verbose {
            return is_shown;
        }
        let depth = if is_only { 2 } else { depth + 2 };
        if vdev.kind != VdevKind::Root {
            for child in &vdev.children {
                is_shown |= self.push(out, child, &child.name(style.names), depth);
            }
            return is_shown;
        }
        let status = &self.pool.status;
        for top in status.tops(AllocClass::Normal) {
            is_shown |= self.push(out, top, &top.name(style.names), depth);
        }
        for class in CLASSES {
            let tops: Vec<&VdevStatus> = status.tops(class).collect();
            is_shown |= self.push_class(out, heading(class), &tops, depth);
        }
        let caches: Vec<&VdevStatus> = status.cache.iter().collect();
        self.push_class(out, "cache", &caches, depth) || is_shown
    }

    /// Prints the vdevs of a class below its heading, which is an empty line where it has no columns.
    fn push_class(
        &self,
        out: &mut String,
        heading: &str,
        vdevs: &[&VdevStatus],
        depth: usize,
    ) -> bool {
        let style = self.printer.style;
        if vdevs.is_empty() {
            return false;
        }
        if !style.tables.is_histogram() && !style.is_scripted && style.only.is_empty() {
            *out += &self.printer.dashes(None, Some(heading));
        }
        out.push('\n');
        let mut is_shown = false;
        for vdev in vdevs {
            is_shown |= self.push(out, vdev, &vdev.name(style.names), depth);
        }
        is_shown
    }

    fn push_line(&self, out: &mut String, vdev: &VdevStatus, name: &str, depth: usize) {
        let style = self.printer.style;
        // What was counted before a vdev was removed was another device's.
        let of = |pool: &PoolIo| match vdev.kind {
            VdevKind::Indirect => None,
            _ => pool.vdevs.get(&vdev.guid).cloned(),
        };
        let io = of(self.pool).unwrap_or_default();
        let before = self.before.and_then(of);
        // A device that is new since then has no earlier counts.
        let elapsed_ns = match (&before, self.before) {
            (Some(_), Some(pool)) => self.pool.at_ns.saturating_sub(pool.at_ns),
            _ => io.age_ns,
        };
        let counts = before.map_or_else(
            || io.counts.clone(),
            |before| io.counts.since(&before.counts),
        );
        let is_lifetime = self.before.is_none() && style.tables.is_histogram();
        let scale = if is_lifetime || elapsed_ns == 0 {
            1.0
        } else {
            1e9 / elapsed_ns as f64
        };
        if style.tables.is_histogram() {
            out.push('\n');
            return self.push_histogram(out, &counts, scale, name);
        }
        let width = self.printer.name_width.saturating_sub(depth);
        *out += &match style.is_scripted {
            true => name.to_owned(),
            false => format!("{:depth$}{name:<width$}", ""),
        };
        for group in style.tables.groups() {
            let width = group.width(style.numbers);
            match group {
                Group::Latency => {
                    for histogram in latencies(&counts) {
                        let text = match (style.numbers, average(histogram)) {
                            (NumberStyle::Exact, average) if average > 0 => average.to_string(),
                            (_, average) => nice_time(average),
                        };
                        self.printer.cell(out, &text, width);
                    }
                }
                Group::Queues => {
                    for length in queue_lengths(&counts) {
                        self.printer.number(out, length, width);
                    }
                }
                _ => self.push_default(out, vdev, &counts, scale),
            }
        }
        if let Some(scripts) = &self.printer.scripts {
            *out += &scripts.row(&self.pool.status.name, vdev);
        }
        out.push('\n');
    }

    #[doc(alias = "print_iostat_default")]
    fn push_default(&self, out: &mut String, vdev: &VdevStatus, counts: &IoCounts, scale: f64) {
        let style = self.printer.style;
        let width = Group::Default.width(style.numbers);
        if vdev.space_bytes == 0 {
            let none = match style.numbers {
                NumberStyle::Nice => "-",
                NumberStyle::Exact => "0",
            };
            self.printer.cell(out, none, width);
            self.printer.cell(out, none, width);
        } else {
            let free = vdev.space_bytes.saturating_sub(vdev.alloc_bytes);
            self.printer.number(out, vdev.alloc_bytes, width);
            self.printer.number(out, free, width);
        }
        for value in [
            counts.read_ops(),
            counts.write_ops(),
            counts.read_bytes(),
            counts.write_bytes(),
        ] {
            let scaled = (value as f64 * scale) as u64;
            self.printer.number(out, scaled, width);
        }
    }

    #[doc(alias = "print_iostat_histos")]
    fn push_histogram(&self, out: &mut String, counts: &IoCounts, scale: f64, name: &str) {
        let (printer, style) = (self.printer, self.printer.style);
        let is_latency = style.tables == IoTables::Latencies;
        let columns = if is_latency {
            latencies(counts)
        } else {
            sizes(counts)
        };
        let most = columns.iter().flat_map(|column| column.iter()).max();
        let width = match style.numbers {
            NumberStyle::Nice => 5,
            NumberStyle::Exact => most.map_or(1, |most| most.to_string().len()).max(5),
        };
        let names = printer.name_width.max(printer.title().len());
        *out += &match style.is_scripted {
            true => format!("{name}\n"),
            false => printer.header_of(Some(width), Some(name)),
        };
        // Commands are not shorter than a sector.
        let first = if is_latency { 0 } else { 9 };
        for bucket in first..columns[0].len() {
            let (value, label) = if is_latency {
                let end = (2u64 << bucket) - 1;
                (end, nice_time(end))
            } else {
                (1 << bucket, nice_number(1 << bucket))
            };
            *out += &match style.is_scripted {
                true => value.to_string(),
                false => format!("{label:<names$}"),
            };
            for column in &columns {
                let scaled = (column[bucket] as f64 * scale) as u64;
                printer.number(out, scaled, width);
            }
            out.push('\n');
        }
        if !style.is_scripted {
            *out += &"-".repeat(names + (width + 2) * columns.len());
            out.push('\n');
        }
    }
}

/// Nothing is rebuilt here.
const NO_LATENCIES: &[u64] = &[0; vdev::LATENCY_BUCKETS];
const NO_SIZES: &[u64] = &[0; vdev::SIZE_BUCKETS];

/// The classes that have columns: synchronous reads and writes, asynchronous ones, scrub, trim. What is overwritten to
/// initialize a device has none.
const SHOWN_CLASSES: [usize; 6] = [0, 1, 2, 3, 4, 6];

fn latencies(counts: &IoCounts) -> Vec<&[u64]> {
    let rows = counts.total.iter().chain(&counts.disk);
    let queues = SHOWN_CLASSES.iter().map(|class| &counts.queue[*class]);
    rows.chain(queues)
        .map(|row| &row[..])
        .chain([NO_LATENCIES])
        .collect()
}

fn sizes(counts: &IoCounts) -> Vec<&[u64]> {
    let both = |class: usize| [&counts.single[class][..], &counts.merged[class]];
    let shown = SHOWN_CLASSES.into_iter().flat_map(both);
    shown.chain([NO_SIZES; 2]).collect()
}

fn queue_lengths(counts: &IoCounts) -> Vec<u64> {
    let both = |class: usize| [counts.waiting[class], counts.active[class]];
    let shown = SHOWN_CLASSES.into_iter().flat_map(both);
    shown.chain([0; 2]).collect()
}

/// The average of a histogram, with the middle of each bucket for what is in it.
#[doc(alias = "single_histo_average")]
fn average(histogram: &[u64]) -> u64 {
    let (mut count, mut total) = (0u128, 0u128);
    for (bucket, n) in histogram.iter().enumerate() {
        let middle = (1u128 << bucket) + (1 << bucket) / 2;
        total += u128::from(*n) * middle;
        count += u128::from(*n);
    }
    u64::try_from(total.checked_div(count).unwrap_or(0)).unwrap_or(u64::MAX)
}
