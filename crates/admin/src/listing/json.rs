//! `zfs list -j`, `zfs get -j`, and the parts of JSON output that pools share.

use serde_json::{Map, Value, json};

use crate::number::NumberStyle;
use crate::prop::Source;

use super::get::get_rows;
use super::{GetRequest, Item, Style};

/// The options of JSON output.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonStyle {
    /// `--json-int`: numbers as numbers, exactly.
    pub has_numbers: bool,
    /// `--json-pool-key-guid`: pools under their guids rather than their names.
    pub has_guid_keys: bool,
}

impl JsonStyle {
    /// A number, as text or as a number.
    pub(crate) fn number(self, value: u64) -> Value {
        if self.has_numbers {
            json!(value)
        } else {
            json!(value.to_string())
        }
    }

    /// A formatted value: a number if it is all digits and numbers are wanted, else text.
    pub(crate) fn cell(self, text: &str) -> Value {
        match text.parse::<u64>() {
            Ok(number) if self.has_numbers => json!(number),
            _ => json!(text),
        }
    }
}

/// Wraps `body` in the envelope of all JSON output, on one line.
#[must_use]
pub fn json_document(command: &str, body: Map<String, Value>) -> String {
    let mut document = Map::new();
    let version = json!({ "command": command, "vers_major": 0, "vers_minor": 1 });
    document.insert("output_version".to_owned(), version);
    document.extend(body);
    Value::Object(document).to_string() + "\n"
}

fn json_source(source: &Source) -> Value {
    let data = match source {
        Source::Inherited(from) => from.as_str(),
        _ => "-",
    };
    json!({ "type": source.json_type(), "data": data })
}

/// The properties of an item, by name.
pub(crate) fn json_properties(
    style: &Style,
    json_style: JsonStyle,
    request: &GetRequest,
    item: &Item,
) -> Map<String, Value> {
    let mut out = Map::new();
    for row in get_rows(style, request, std::slice::from_ref(item)) {
        let [_, name, value, ..] = &row.cells;
        if name != "name" && request.admits(&row.source) {
            let value = json_style.cell(value);
            let entry = json!({ "value": value, "source": json_source(&row.source) });
            out.insert(name.clone(), entry);
        }
    }
    out
}

/// The style for JSON: with `--json-int`, numbers are exact.
pub(crate) fn json_numbers(style: &Style, json_style: JsonStyle) -> Style {
    let numbers = if json_style.has_numbers {
        NumberStyle::Exact
    } else {
        style.numbers
    };
    Style { numbers, ..*style }
}

/// `zfs list -j` and `zfs get -j`: `command` is which of them. Every item needs `createtxg` and
/// `type` among its properties, whether asked for or not.
#[must_use]
pub fn datasets_json(
    command: &str,
    style: &Style,
    json_style: JsonStyle,
    request: &GetRequest,
    items: &[Item],
) -> String {
    let style = json_numbers(style, json_style);
    let mut datasets = Map::new();
    for item in items {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(item.name));
        let kind = item
            .get("type")
            .and_then(|prop| prop.value.as_text())
            .unwrap_or("");
        entry.insert("type".to_owned(), json!(kind.to_ascii_uppercase()));
        entry.insert("pool".to_owned(), json!(crate::name::pool_of(&item.name)));
        entry.insert(
            "createtxg".to_owned(),
            json_style.number(item.number("createtxg")),
        );
        if let Some((dataset, snapshot)) = item.name.split_once('@') {
            entry.insert("dataset".to_owned(), json!(dataset));
            entry.insert("snapshot_name".to_owned(), json!(snapshot));
        }
        let properties = json_properties(&style, json_style, request, item);
        entry.insert("properties".to_owned(), Value::Object(properties));
        datasets.insert(item.name.clone(), Value::Object(entry));
    }
    let mut body = Map::new();
    body.insert("datasets".to_owned(), Value::Object(datasets));
    json_document(command, body)
}
