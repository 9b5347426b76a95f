//! Lists as text, as `zdb -C` prints them.
//!
//! # Source
//! OpenZFS module/nvpair/nvpair.c (`nvlist_snprintf`) @be7657e3.

use crate::{NvList, NvString, NvValue};
use std::fmt::{self, Display, Write};

impl NvList {
    /// The text that `dump_nvlist` prints: a line per value, inner lists indented by 4 more.
    #[must_use]
    #[doc(alias = "dump_nvlist")]
    pub fn dump(&self, indent: usize) -> String {
        let mut out = String::new();
        let written = write_list(&mut out, self, indent);
        assert!(written.is_ok(), "writing to a String");
        out
    }
}

fn write_list(out: &mut impl Write, list: &NvList, indent: usize) -> fmt::Result {
    list.iter()
        .try_for_each(|(name, value)| write_pair(out, name, value, indent))
}

fn write_pair(
    out: &mut impl Write,
    name: &NvString,
    value: &NvValue,
    indent: usize,
) -> fmt::Result {
    let pad = format!("{:indent$}", "");
    let mut one = |value: &dyn Display| writeln!(out, "{pad}{name}: {value}");
    match value {
        NvValue::Boolean => writeln!(out, "{pad}{name}"),
        NvValue::Byte(v) | NvValue::Uint8(v) => one(v),
        NvValue::Int8(v) => one(v),
        NvValue::Int16(v) => one(v),
        NvValue::Uint16(v) => one(v),
        NvValue::Int32(v) => one(v),
        NvValue::Uint32(v) => one(v),
        NvValue::Int64(v) | NvValue::Hrtime(v) => one(v),
        NvValue::Uint64(v) => one(v),
        NvValue::Double(v) => one(v),
        NvValue::BooleanValue(v) => one(v),
        NvValue::String(v) => one(&format_args!("'{v}'")),
        NvValue::List(v) => {
            writeln!(out, "{pad}{name}:")?;
            write_list(out, v, indent.saturating_add(4))
        }
        NvValue::ListArray(v) => v.iter().enumerate().try_for_each(|(i, list)| {
            writeln!(out, "{pad}{name}[{i}]:")?;
            write_list(out, list, indent.saturating_add(4))
        }),
        _ => write_array(out, name, value, &pad),
    }
}

fn write_array(out: &mut impl Write, name: &NvString, value: &NvValue, pad: &str) -> fmt::Result {
    let texts: Vec<String> = match value {
        NvValue::ByteArray(v) | NvValue::Uint8Array(v) => texts(v),
        NvValue::Int8Array(v) => texts(v),
        NvValue::Int16Array(v) => texts(v),
        NvValue::Uint16Array(v) => texts(v),
        NvValue::Int32Array(v) => texts(v),
        NvValue::Uint32Array(v) => texts(v),
        NvValue::Int64Array(v) => texts(v),
        NvValue::Uint64Array(v) => texts(v),
        NvValue::BooleanArray(v) => texts(v),
        NvValue::StringArray(v) => v.iter().map(|v| format!("'{v}'")).collect(),
        _ => Vec::new(),
    };
    texts
        .iter()
        .enumerate()
        .try_for_each(|(i, text)| writeln!(out, "{pad}{name}[{i}]: {text}"))
}

fn texts<T: Display>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

impl Display for NvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self, 0)
    }
}

impl fmt::Debug for NvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
