//! What scripts said of devices, as columns of `zpool status -c` and `zpool iostat -c`.
//!
//! # What it is
//! A line of a script's output is `column=value`, or, as its last one, text without a column. The columns of all
//! devices are shown beside each, and what has no column after them.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_iter.c (`vdev_process_cmd_output`, `process_unique_cmd_columns`), cmd/zpool/zpool_main.c
//! (`zpool_print_cmd`, `zpool_nvlist_cmd`, `print_cmd_columns`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::VdevStatus;

/// What the scripts said of one device, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLines {
    columns: Vec<String>,
    values: Vec<String>,
}

impl DeviceLines {
    /// Takes the output of a script. It ends with the first line without a column; a column that is there already is
    /// left out.
    #[doc(alias = "vdev_process_cmd_output")]
    pub fn take(&mut self, output: &str) {
        for line in output.lines() {
            let Some((column, value)) = line.split_once('=') else {
                self.values.push(line.to_owned());
                return;
            };
            if !self.columns.iter().any(|other| other == column) {
                self.columns.push(column.to_owned());
                self.values.push(value.to_owned());
            }
        }
    }

    /// The value of a column; a dash if there is none.
    fn value(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|other| other == column);
        let value = at.map_or("", |at| &self.values[at]);
        match value.trim_matches([' ', '\t']) {
            "" => "-",
            _ => value,
        }
    }

    fn without_column(&self) -> &[String] {
        &self.values[self.columns.len()..]
    }
}

/// What the scripts said of all devices.
#[derive(Clone, Debug, Default)]
#[doc(alias = "vdev_cmd_data_list_t")]
pub struct ScriptOutput {
    /// By pool and path.
    devices: BTreeMap<(String, String), DeviceLines>,
    /// Names and widths.
    columns: Vec<(String, usize)>,
}

impl ScriptOutput {
    /// Of these devices, each with its pool and its path, in the order in which their columns are shown.
    #[must_use]
    #[doc(alias = "process_unique_cmd_columns")]
    pub fn new(devices: Vec<((String, String), DeviceLines)>) -> ScriptOutput {
        let mut columns: Vec<(String, usize)> = Vec::new();
        for (_, lines) in &devices {
            for (name, value) in lines.columns.iter().zip(&lines.values) {
                let longest = name.len().max(value.len());
                match columns.iter_mut().find(|(other, _)| other == name) {
                    Some((_, width)) => *width = longest.max(*width),
                    None => columns.push((name.clone(), longest)),
                }
            }
        }
        ScriptOutput {
            devices: devices.into_iter().collect(),
            columns,
        }
    }

    fn of(&self, pool: &str, vdev: &VdevStatus) -> Option<&DeviceLines> {
        let path = vdev.path.clone()?;
        self.devices.get(&(pool.to_owned(), path))
    }

    /// The titles of the columns, each after two spaces.
    #[must_use]
    #[doc(alias = "print_cmd_columns")]
    pub(crate) fn titles(&self) -> String {
        let title = |(name, width): &(String, usize)| format!("  {name:>width$}");
        self.columns.iter().map(title).collect()
    }

    /// The line below them.
    pub(crate) fn dashes(&self) -> String {
        let dashes = |(_, width): &(String, usize)| format!("  {}", "-".repeat(*width));
        self.columns.iter().map(dashes).collect()
    }

    /// What follows a vdev in its line; nothing if it is not a device.
    #[must_use]
    #[doc(alias = "zpool_print_cmd")]
    pub(crate) fn row(&self, pool: &str, vdev: &VdevStatus) -> String {
        if vdev.path.is_none() {
            return String::new();
        }
        let mut out = "  ".to_owned();
        let Some(lines) = self.of(pool, vdev) else {
            return out;
        };
        for (at, (name, width)) in self.columns.iter().enumerate() {
            let space = if at == 0 { "" } else { "  " };
            let _ = write!(out, "{space}{:>width$}", lines.value(name));
        }
        for text in lines.without_column() {
            let space = if self.columns.is_empty() { "" } else { "  " };
            let _ = write!(out, "{space}{text}");
        }
        out
    }

    /// The same, as members of an object.
    #[doc(alias = "zpool_nvlist_cmd")]
    pub(crate) fn push_json(&self, out: &mut Map<String, Value>, pool: &str, vdev: &VdevStatus) {
        let Some(lines) = self.of(pool, vdev) else {
            return;
        };
        for (name, _) in &self.columns {
            out.insert(name.clone(), json!(lines.value(name)));
        }
        for (text, number) in lines.without_column().iter().zip(1..) {
            out.insert(format!("extra_{number}"), json!(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str) -> VdevStatus {
        VdevStatus {
            path: Some(path.to_owned()),
            ..VdevStatus::default()
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_value_and_text_without_one_is_last() {
        let said = |path: &str, outputs: &[&str]| {
            let mut lines = DeviceLines::default();
            outputs.iter().for_each(|output| lines.take(output));
            (("tank".to_owned(), path.to_owned()), lines)
        };
        let output = ScriptOutput::new(vec![
            said("/a", &["size=1.5T\nslot= \n", "size=2\nnote\nnot=read\n"]),
            said("/b", &["x=a=b"]),
        ]);
        assert_eq!(output.titles(), "  size  slot    x");
        assert_eq!(output.dashes(), "  ----  ----  ---");
        assert_eq!(output.row("tank", &device("/a")), "  1.5T     -    -  note");
        assert_eq!(output.row("tank", &device("/b")), "     -     -  a=b");
        assert_eq!(output.row("other", &device("/b")), "  ");
        assert_eq!(output.row("tank", &VdevStatus::default()), "");
        let mut out = Map::new();
        output.push_json(&mut out, "tank", &device("/a"));
        let expected = json!({"size": "1.5T", "slot": "-", "x": "-", "extra_1": "note"});
        assert_eq!(Value::Object(out), expected);
        // As in OpenZFS, what a second script says is counted from where the first one ended.
        let quirk = said("/a", &["a=1\ntext", "b=2"]);
        let output = ScriptOutput::new(vec![quirk]);
        assert_eq!(output.row("tank", &device("/a")), "  1  text  2");
    }
}
