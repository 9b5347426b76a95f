//! How much of its space in a label a configuration takes.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_nvlist_stats`, `collect_nvlist_stats`).

use std::fmt::Write as _;

use nvpair::{NvList, NvValue};

/// Bytes of a label's nvlist part that an nvlist may fill.
const NVLIST_BYTES: usize = phys::label::NVLIST_MAX as usize;

#[derive(Default)]
struct Sizes {
    integers: (usize, usize),
    strings: (usize, usize),
    booleans: (usize, usize),
    nvlists: (usize, usize),
    /// For the vdevs in arrays: their number, bytes of all, bytes of the largest.
    leaves: (usize, usize, usize),
}

/// Bytes that a pair takes in XDR encoding, without the contents of an nvlist in it.
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

/// How the config fills the label; `level`: how often `-l` was given.
#[doc(alias = "dump_nvlist_stats")]
pub(super) fn text(config: &NvList, level: usize) -> String {
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
        if level >= 3 && average > 0 {
            let more = free / average;
            let _ = writeln!(out, "  space for {more} additional leaf vdevs");
        }
    }
    out + "\n"
}
