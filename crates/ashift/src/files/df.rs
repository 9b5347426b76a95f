//! `ashift df`: how much space file systems have.

use admin::getopt::Parsed;
use admin::number::nice_bytes;
use base::Result;
use serde_json::{Value, json};
use service::Access;

use super::show::{line, put_json};
use super::{Location, Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::Outcome;

/// One file system's row.
struct Row {
    name: String,
    mountpoint: Option<String>,
    total_bytes: u64,
    available_bytes: u64,
}

pub(crate) const DF: Command<Entry> = Command::parsed(
    "df",
    "room that datasets have",
    "\
usage: ashift df [-hj] [POOL/DATASET[@SNAPSHOT]:/path…]

Room in KiB, of the datasets of these files or of all that are mounted.   -h  for people
                                                                        -j  JSON, in bytes
",
    ("hj", 0),
    df,
);

fn df(parsed: &Parsed) -> Outcome {
    let paths = Paths::new(Access::Read);
    let mut run = Run::new("df");
    let mut rows = Vec::new();
    if parsed.operands.is_empty() {
        let pools = paths.mounted();
        for (pool, datasets) in run.note("pools", pools).unwrap_or_default() {
            for (mountpoint, name) in run.note(&pool, datasets).unwrap_or_default() {
                let row = row_of(&paths, &name, Some(mountpoint));
                rows.extend(run.note(&name, row));
            }
        }
    }
    for operand in paths.expand(&parsed.operands) {
        let row = paths
            .find_file(&operand, true)
            .and_then(|_| match paths.locate(&operand)? {
                Location::Pool(name, _) => row_of(&paths, &name, None),
                Location::Host(_) => unreachable!("the file is in a pool"),
            });
        rows.extend(run.note(&operand, row));
    }
    if parsed.has('j') {
        put_json(&rows.iter().map(Row::to_json).collect::<Vec<_>>());
    } else {
        show(&rows, parsed.has('h'));
    }
    run.end(paths)
}

fn row_of(paths: &Paths, name: &str, mountpoint: Option<String>) -> Result<Row> {
    let space = paths.mount(name)?.statfs();
    Ok(Row {
        name: name.to_owned(),
        mountpoint,
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
    })
}

impl Row {
    fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.available_bytes)
    }

    /// Rounded up, as df does.
    fn used_percent(&self) -> u64 {
        let percent = u128::from(self.used_bytes()) * 100;
        percent.div_ceil(u128::from(self.total_bytes.max(1))) as u64
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "mountpoint": self.mountpoint, "size": self.total_bytes,
            "used": self.used_bytes(), "available": self.available_bytes,
        })
    }
}

fn show(rows: &[Row], is_for_people: bool) {
    let number = |bytes: u64| {
        if is_for_people {
            nice_bytes(bytes)
        } else {
            bytes.div_ceil(1024).to_string()
        }
    };
    let names = rows.iter().map(|row| row.name.len());
    let width = names.max().unwrap_or(0).max("Filesystem".len());
    let unit = if is_for_people { "Size" } else { "1K-blocks" };
    line(&format!(
        "{:width$} {unit:>12} {:>12} {:>12} {:>4} Mounted on",
        "Filesystem", "Used", "Available", "Use%"
    ));
    for row in rows {
        line(&format!(
            "{:width$} {:>12} {:>12} {:>12} {:>3}% {}",
            row.name,
            number(row.total_bytes),
            number(row.used_bytes()),
            number(row.available_bytes),
            row.used_percent(),
            row.mountpoint.as_deref().unwrap_or("-")
        ));
    }
}
