//! The output of `parted print`: human-readable, machine-readable, and JSON.

use std::fmt::Write;

use super::flags::{Marks, PMBR_BOOT, is_pmbr_boot};
use super::unit::Unit;
use crate::listing::rows;
use crate::{Partition, Scheme, Shape, Table};

/// Facts about the disk other than its table.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// `/dev/ada0`, or the path of an image.
    pub path: String,
    /// `ATA WDC WD30EZRX-00M`
    pub model: String,
    /// `file`, `scsi`
    pub transport: String,
    /// Sectors per track: an MBR keeps the first track free.
    pub track: u64,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// Human-readable.
    #[default]
    Human,
    /// `-m`
    Machine,
    /// `-j`
    Json,
}

/// A table as parted sees it.
#[derive(Clone, Copy, Debug)]
pub struct TableView<'a> {
    /// `None`: no known table.
    pub table: Option<&'a Table>,
    /// The shape of the disk.
    pub shape: Shape,
    /// The file systems in the partitions.
    pub file_system: &'a dyn FileSystems,
}

/// Identifies the contents of partitions.
pub trait FileSystems: std::fmt::Debug {
    /// parted's name of the file system; empty if not known.
    fn name(&self, one: &Partition) -> &'static str;

    /// The flags of the partition.
    fn flags(&self, one: &Partition) -> Vec<&'static str> {
        Marks::of(one, None).flags(one)
    }
}

impl FileSystems for () {
    fn name(&self, _one: &Partition) -> &'static str {
        ""
    }
}

/// A line of the listing; without a number it is free space.
struct Line {
    number: Option<u32>,
    start: u64,
    end: u64,
    kind: &'static str,
    name: String,
    file_system: &'static str,
    flags: Vec<&'static str>,
}

fn lines(view: &TableView<'_>, with_free: bool, track: u64) -> Vec<Line> {
    let Some(table) = view.table else {
        return Vec::new();
    };
    let mut found = table.clone();
    if table.scheme() == Scheme::Mbr {
        let lowest = table.partitions.iter().map(|p| p.start_sector).min();
        found.first = if lowest.is_some_and(|l| l < track) {
            0
        } else {
            track
        };
    }
    let rows = rows(&found);
    let line = |row: &crate::listing::Row<'_>| {
        let one = row.partition;
        let is_extended = one.is_some_and(|p| p.kind.is_extended());
        Line {
            number: one.map(|p| p.index),
            start: row.start,
            end: row.start.saturating_add(row.sectors.saturating_sub(1)),
            kind: match one {
                None => "free",
                Some(_) if is_extended => "extended",
                Some(_) => "primary",
            },
            name: one.map(Partition::label).unwrap_or_default(),
            file_system: one.map_or("", |p| view.file_system.name(p)),
            flags: one.map(|p| view.file_system.flags(p)).unwrap_or_default(),
        }
    };
    let is_shown = |line: &Line| line.number.is_some() || with_free;
    rows.iter().map(line).filter(is_shown).collect()
}

fn label(view: &TableView<'_>) -> &'static str {
    match view.table.map(Table::scheme) {
        None => "unknown",
        Some(Scheme::Gpt) => "gpt",
        Some(Scheme::Mbr) => "msdos",
    }
}

/// The flags of the disk.
fn disk_flags(view: &TableView<'_>) -> &'static str {
    match view.table {
        Some(table) if is_pmbr_boot(table) => PMBR_BOOT,
        _ => "",
    }
}

/// `print` or `print free`.
#[must_use]
pub fn print(
    view: &TableView<'_>,
    disk: &Disk,
    unit: Unit,
    with_free: bool,
    format: Format,
) -> String {
    let lines = lines(view, with_free, disk.track);
    match format {
        Format::Human => human(view, disk, unit, &lines),
        Format::Machine => machine(view, disk, unit, &lines),
        Format::Json => json(view, disk, unit, &lines),
    }
}

fn physical(shape: &Shape) -> u32 {
    shape.stripesize.max(shape.sectorsize)
}

fn human(view: &TableView<'_>, disk: &Disk, unit: Unit, lines: &[Line]) -> String {
    let shape = &view.shape;
    let mut text = format!(
        "Model: {} ({})\nDisk {}: {}\nSector size (logical/physical): {}B/{}B\nPartition Table: {}\n\
         Disk Flags: {}\n",
        disk.model,
        disk.transport,
        disk.path,
        unit.format(shape, shape.mediasize),
        shape.sectorsize,
        physical(shape),
        label(view),
        disk_flags(view)
    );
    let Some(table) = view.table else {
        return text;
    };
    let has_names = table.scheme() == Scheme::Gpt;
    let mut head = vec!["Number", "Start", "End", "Size"];
    head.extend(if has_names {
        ["File system", "Name", "Flags"]
    } else {
        ["Type", "File system", "Flags"]
    });
    let mut cells: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    for line in lines {
        let sectors = line.end - line.start + 1;
        let system = if line.number.is_some() {
            line.file_system.to_owned()
        } else {
            "Free Space".to_owned()
        };
        let mut row = vec![
            line.number.map_or(String::new(), |n| format!("{n:>2}")),
            unit.format_sector(shape, line.start),
            unit.format_end(shape, line.end),
            unit.format_sector(shape, sectors),
        ];
        let kind = if line.number.is_some() { line.kind } else { "" };
        if has_names {
            row.extend([system, line.name.clone()]);
        } else {
            row.extend([kind.to_owned(), system]);
        }
        row.push(line.flags.join(", "));
        cells.push(row);
    }
    text.push('\n');
    let columns = cells[0].len();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    for row in &cells {
        let padded = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line: Vec<String> = padded.collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text.push('\n');
    text
}

/// Escapes colons and backslashes with a backslash.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(':', "\\:")
}

fn machine(view: &TableView<'_>, disk: &Disk, unit: Unit, lines: &[Line]) -> String {
    let shape = &view.shape;
    let mut text = format!(
        "BYT;\n{}:{}:{}:{}:{}:{}:{}:{};\n",
        escaped(&disk.path),
        unit.format(shape, shape.mediasize),
        disk.transport,
        shape.sectorsize,
        physical(shape),
        label(view),
        escaped(&disk.model),
        disk_flags(view)
    );
    for line in lines {
        let sectors = line.end - line.start + 1;
        let place = format!(
            "{}:{}:{}",
            unit.format_sector(shape, line.start),
            unit.format_end(shape, line.end),
            unit.format_sector(shape, sectors)
        );
        let _ = match line.number {
            None => writeln!(text, "1:{place}:free;"),
            Some(number) => writeln!(
                text,
                "{number}:{place}:{}:{}:{};",
                line.file_system,
                escaped(&line.name),
                line.flags.join(", ")
            ),
        };
    }
    text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if u32::from(c) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn json(view: &TableView<'_>, disk: &Disk, unit: Unit, lines: &[Line]) -> String {
    let shape = &view.shape;
    let mut fields = vec![
        format!("\"path\": {}", quoted(&disk.path)),
        format!("\"size\": {}", quoted(&unit.format(shape, shape.mediasize))),
        format!("\"model\": {}", quoted(&disk.model)),
        format!("\"transport\": {}", quoted(&disk.transport)),
        format!("\"logical-sector-size\": {}", shape.sectorsize),
        format!("\"physical-sector-size\": {}", physical(shape)),
        format!("\"label\": \"{}\"", label(view)),
    ];
    if let Some(table) = view.table {
        fields.push(format!("\"max-partitions\": {}", table.entries()));
    }
    let flags = disk_flags(view);
    if !flags.is_empty() {
        fields.push(format!("\"flags\": [\n          \"{flags}\"\n      ]"));
    }
    if view.table.is_some() {
        let objects: Vec<String> = lines.iter().map(|l| json_line(shape, unit, l)).collect();
        let mut objects = objects.join(",");
        if !objects.is_empty() {
            objects.insert_str(0, "         ");
        }
        fields.push(format!("\"partitions\": [\n{objects}\n      ]"));
    }
    let fields = fields.join(",\n      ");
    format!("{{\n   \"disk\": {{\n      {fields}\n   }}\n}}\n")
}

fn json_line(shape: &Shape, unit: Unit, line: &Line) -> String {
    let sectors = line.end - line.start + 1;
    let mut fields = vec![
        format!("\"number\": {}", line.number.unwrap_or(0)),
        format!("\"start\": \"{}\"", unit.format_sector(shape, line.start)),
        format!("\"end\": \"{}\"", unit.format_end(shape, line.end)),
        format!("\"size\": \"{}\"", unit.format_sector(shape, sectors)),
        format!("\"type\": \"{}\"", line.kind),
    ];
    if !line.name.is_empty() {
        fields.push(format!("\"name\": {}", quoted(&line.name)));
    }
    if !line.file_system.is_empty() {
        fields.push(format!("\"filesystem\": \"{}\"", line.file_system));
    }
    if !line.flags.is_empty() {
        let flags: Vec<String> = line.flags.iter().map(|f| format!("\"{f}\"")).collect();
        let flags = flags.join(",\n                ");
        fields.push(format!(
            "\"flags\": [\n                {flags}\n            ]"
        ));
    }
    let fields = fields.join(",\n            ");
    format!("{{\n            {fields}\n         }}")
}
