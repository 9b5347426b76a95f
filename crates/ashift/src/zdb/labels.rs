//! `zdb -l`: the four labels of a device, equal ones once.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_label`, `dump_config_from_label`).

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use base::{Error, Result};
use geom::disk::OpenMode;
use nvpair::{NvList, NvValue};
use phys::label::LABELS;
use serde_json::{Value, json};
use vdev::label::{Label, Labels, RingSlot};

use super::text::{self, Printer};
use super::{Request, usage_error};
use crate::machine::current;

/// Bytes of a label's nvlist part that an nvlist may fill.
const NVLIST_BYTES: usize = phys::label::NVLIST_MAX as usize;
const RULE: &str = "------------------------------------";

/// `zdb -l DEVICE…`.
pub(super) fn run(request: &Request, out: &mut Printer) -> Result<u8> {
    if request.args.operands.is_empty() {
        return Err(usage_error());
    }
    let mut code = 0;
    let world = current()?;
    for typed in &request.args.operands {
        let path = device_path(typed);
        let provider = world
            .open(typed, OpenMode::Inspect)
            .or_else(|_| world.open(&path, OpenMode::Inspect))
            .map_err(|e| Error::new(e.kind(), format!("cannot open '{typed}': {e}")))?;
        let labels = Labels::read(&*provider)?;
        if request.has('j') {
            writeln!(out, "{}", json_of(&path, &labels, request))?;
        } else {
            write_labels(out, &labels, request)?;
        }
        let readable = labels.readable().any(|l| l.valid_config().is_some());
        code |= if readable { 0 } else { 2 };
    }
    Ok(code)
}

fn device_path(typed: &str) -> String {
    if typed.contains('/') || Path::new(typed).exists() {
        typed.to_owned()
    } else {
        format!("/dev/{typed}")
    }
}

/// Numbers of the labels for which `same` holds.
fn label_numbers(labels: &Labels, same: impl Fn(&Label) -> bool) -> String {
    let mut out = String::new();
    for label in labels.readable().filter(|label| same(label)) {
        let _ = write!(out, "{} ", label.index);
    }
    out
}

fn write_labels(out: &mut Printer, labels: &Labels, request: &Request) -> Result<()> {
    let mut shown: Vec<&NvList> = Vec::new();
    let mut rings: Vec<&RingSlot> = Vec::new();
    let verbosity = request.count('l') + request.count('v');
    for index in 0..LABELS {
        let heading = format!("{RULE}\nLABEL {index} \n{RULE}");
        let Ok(label) = &labels.0[index] else {
            writeln!(out, "{heading}\nfailed to read label {index}")?;
            continue;
        };
        let mut is_headed = false;
        match &label.config {
            Err(_) => {
                writeln!(out, "{heading}\nfailed to unpack label {index}")?;
                is_headed = true;
            }
            Ok(config) if !shown.contains(&config) => {
                let bad = if label.checksum.is_ok() {
                    ""
                } else {
                    "(Bad label cksum)"
                };
                writeln!(out, "{RULE}\nLABEL {index} {bad}\n{RULE}")?;
                is_headed = true;
                write!(out, "{}", config.dump(4))?;
                let same = |l: &Label| l.config.as_ref().ok() == Some(config);
                writeln!(out, "    labels = {}", label_numbers(labels, same))?;
                if verbosity >= 2 {
                    write!(out, "{}", nvlist_stats(config))?;
                }
                shown.push(config);
            }
            Ok(_) => {}
        }
        if request.has('u') {
            write_ring(out, labels, label, &mut rings, (&heading, is_headed))?;
        }
    }
    Ok(())
}

fn write_ring<'l>(
    out: &mut Printer,
    labels: &Labels,
    label: &'l Label,
    shown: &mut Vec<&'l RingSlot>,
    heading: (&str, bool),
) -> Result<()> {
    let (heading, mut is_headed) = heading;
    for slot in &label.ring {
        if shown.contains(&slot) {
            continue;
        }
        if !is_headed {
            writeln!(out, "{heading}")?;
            is_headed = true;
        }
        write!(
            out,
            "    Uberblock[{}]\n{}",
            slot.slot,
            text::uberblock(&slot.uberblock)
        )?;
        let numbers = label_numbers(labels, |l| l.ring.contains(slot));
        writeln!(out, "        labels = {numbers}")?;
        shown.push(slot);
    }
    Ok(())
}

#[derive(Default)]
struct Sizes {
    integers: (usize, usize),
    strings: (usize, usize),
    booleans: (usize, usize),
    nvlists: (usize, usize),
    /// Of the vdevs in arrays: how many, bytes of all, bytes of the largest.
    leaves: (usize, usize, usize),
}

/// Bytes that a pair takes as XDR, without what an nvlist in it takes.
fn pair_bytes(name: &str, value: &NvValue) -> usize {
    let mut list = NvList::new();
    let empty = nvpair::encode_xdr(&list).len();
    match value {
        NvValue::List(_) => list.add(name, NvList::new()),
        NvValue::ListArray(lists) => list.add(name, vec![NvList::new(); lists.len()]),
        other => list.add(name, other.clone()),
    };
    nvpair::encode_xdr(&list).len() - empty
}

fn count_pairs(list: &NvList, sizes: &mut Sizes) {
    for (name, value) in list.iter() {
        let name = name.to_string();
        let bytes = pair_bytes(&name, value);
        let slot = match value {
            NvValue::Boolean | NvValue::BooleanValue(_) => &mut sizes.booleans,
            NvValue::String(_) | NvValue::StringArray(_) => &mut sizes.strings,
            NvValue::List(_) | NvValue::ListArray(_) => &mut sizes.nvlists,
            _ => &mut sizes.integers,
        };
        slot.0 += if let NvValue::ListArray(lists) = value {
            lists.len()
        } else {
            1
        };
        slot.1 += bytes;
        if let NvValue::ListArray(lists) = value {
            for list in lists {
                let bytes = nvpair::encode_xdr(list).len();
                sizes.leaves.0 += 1;
                sizes.leaves.1 += bytes;
                sizes.leaves.2 = sizes.leaves.2.max(bytes);
            }
        }
        match value {
            NvValue::List(inner) => count_pairs(inner, sizes),
            NvValue::ListArray(lists) => lists.iter().for_each(|inner| count_pairs(inner, sizes)),
            _ => {}
        }
    }
}

/// How the config fills the label.
#[doc(alias = "dump_nvlist_stats")]
fn nvlist_stats(config: &NvList) -> String {
    let total = nvpair::encode_xdr(config).len();
    let mut sizes = Sizes::default();
    count_pairs(config, &mut sizes);
    sizes.nvlists.0 += 1;
    let known = sizes.integers.1 + sizes.strings.1 + sizes.booleans.1;
    sizes.nvlists.1 = total.saturating_sub(known);
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole as f64;
    let free = NVLIST_BYTES.saturating_sub(total);
    let mut out = format!(
        "\n\nZFS Label NVList Config Stats:\n  {total} bytes used, {free} bytes free (using \
         {:4.1}%)\n\n",
        percent(total, NVLIST_BYTES)
    );
    let rows = [
        ("integers:", sizes.integers),
        ("strings:", sizes.strings),
        ("booleans:", sizes.booleans),
        ("nvlists:", sizes.nvlists),
    ];
    for (name, (count, bytes)) in rows {
        let _ = writeln!(
            out,
            "{name:>12} {count:4} {bytes:6} bytes ({:5.2}%)",
            percent(bytes, total)
        );
    }
    let (count, total, largest) = sizes.leaves;
    out.push('\n');
    if let Some(average) = total.checked_div(count) {
        let _ = writeln!(
            out,
            "{:>12} {count:4} {:6} bytes average",
            "leaf vdevs:", average
        );
        let _ = writeln!(out, "{largest:24} bytes largest");
    }
    out + "\n"
}

fn json_of(path: &str, labels: &Labels, request: &Request) -> Value {
    let all = labels
        .0
        .iter()
        .enumerate()
        .map(|(index, label)| match label {
            Err(error) => json!({ "label": index, "error": error.to_string() }),
            Ok(label) => {
                let mut entry = json!({
                    "label": index,
                    "is_checksum_valid": label.checksum.is_ok(),
                    "config": label.config.as_ref().ok().map(NvList::to_json),
                });
                if let Err(error) = &label.config {
                    entry["error"] = json!(error.to_string());
                }
                if request.has('u') {
                    let ring = label.ring.iter().map(|slot| {
                    json!({ "slot": slot.slot, "uberblock": text::uberblock_json(&slot.uberblock) })
                });
                    entry["uberblocks"] = ring.collect();
                }
                entry
            }
        });
    json!({ "device": path, "labels": all.collect::<Vec<_>>() })
}
