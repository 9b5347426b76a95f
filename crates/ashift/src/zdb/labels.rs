//! `zdb -l`: the four labels of a device; equal ones are shown once.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_label`, `dump_config_from_label`).

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use base::Result;
use geom::disk::OpenMode;
use nvpair::NvList;
use phys::label::{ASHIFT_MIN, LABEL_SIZE, LABELS, MMP_BLOCKS_PER_LABEL, uberblock_count};
use serde_json::{Value, json};
use vdev::label::{Label, Labels, RingSlot};

use super::request::Request;
use super::targets::words;
use super::text::{self, Printer};
use super::{FAILED, label_stats};
use crate::world::current;

const RULE: &str = "------------------------------------";

/// Exit status for a device without any configuration.
const NO_CONFIG: u8 = 2;

/// `zdb -l DEVICE`.
#[doc(alias = "dump_label")]
pub(super) fn run(request: &Request, out: &mut Printer, typed: &str) -> Result<u8> {
    let world = current()?;
    let path = device_path(typed);
    let opened = world
        .open(typed, OpenMode::Inspect)
        .or_else(|_| world.open(&path, OpenMode::Inspect));
    let provider = match opened {
        Ok(provider) => provider,
        Err(error) => {
            if typed.starts_with('/') {
                writeln!(out, "cannot open '{typed}': {}", words(&error))?;
            } else {
                writeln!(
                    out,
                    "failed to find device {typed}, try specifying absolute path instead"
                )?;
            }
            return Ok(FAILED);
        }
    };
    let Ok(labels) = Labels::read(&*provider) else {
        // Too small for a device, though perhaps not for labels.
        let verb = if provider.mediasize() >= LABEL_SIZE * LABELS as u64 {
            "unpack"
        } else {
            "read"
        };
        for index in (0..LABELS).filter(|_| !request.has('q')) {
            writeln!(out, "failed to {verb} label {index}")?;
        }
        return Ok(NO_CONFIG);
    };
    if request.has('j') {
        writeln!(out, "{}", json_of(&path, &labels, request))?;
    } else {
        write_labels(out, &labels, request)?;
    }
    let is_readable = |label: &Label| label.config.is_ok();
    Ok(match labels.readable().filter(|l| is_readable(l)).count() {
        0 => NO_CONFIG,
        LABELS => 0,
        _ => FAILED,
    })
}

fn device_path(typed: &str) -> String {
    if typed.contains('/') || Path::new(typed).exists() {
        typed.to_owned()
    } else {
        format!("/dev/{typed}")
    }
}

/// Numbers of the labels for which `same` holds.
#[doc(alias = "print_label_numbers")]
fn label_numbers(labels: &Labels, same: impl Fn(&Label) -> bool) -> String {
    let mut out = String::new();
    for label in labels.readable().filter(|label| same(label)) {
        let _ = write!(out, "{} ", label.index);
    }
    out
}

fn write_labels(out: &mut Printer, labels: &Labels, request: &Request) -> Result<()> {
    let (level, is_quiet) = (request.level('l'), request.has('q'));
    for (index, label) in labels.0.iter().enumerate() {
        if label.is_err() && !is_quiet {
            writeln!(out, "failed to read label {index}")?;
        }
    }
    for label in labels.readable() {
        let mut heading = Heading::of(label, is_quiet);
        match &label.config {
            _ if is_quiet => {}
            Err(_) => writeln!(out, "failed to unpack label {}", label.index)?,
            Ok(config) => {
                let same = |l: &Label| l.config.as_ref().ok() == Some(config);
                let first = labels.readable().find(|l| same(l)).map(|l| l.index);
                if level >= 3 || first == Some(label.index) {
                    heading.write(out)?;
                    write!(out, "{}", config.dump(4))?;
                    writeln!(out, "    labels = {}", label_numbers(labels, same))?;
                    if level >= 2 {
                        write!(out, "{}", label_stats::text(config, level))?;
                    }
                }
            }
        }
        if request.level('u') > 0 {
            write_ring(out, labels, label, request.level('u'), &mut heading)?;
        }
    }
    Ok(())
}

/// The lines above the contents of a label, written once.
struct Heading {
    text: Option<String>,
}

impl Heading {
    #[doc(alias = "print_label_header")]
    fn of(label: &Label, is_quiet: bool) -> Heading {
        let bad = if label.checksum.is_ok() {
            ""
        } else {
            "(Bad label cksum)"
        };
        let text = format!("{RULE}\nLABEL {} {bad}\n{RULE}\n", label.index);
        Heading {
            text: Some(text).filter(|_| !is_quiet),
        }
    }

    fn write(&mut self, out: &mut Printer) -> Result<()> {
        if let Some(text) = self.text.take() {
            write!(out, "{text}")?;
        }
        Ok(())
    }
}

/// log2 of the sector size of a label's vdev, which determines the spacing of uberblocks.
fn ashift_of(label: &Label) -> Option<u32> {
    let tree = label.config.as_ref().ok()?.get_list("vdev_tree")?;
    u32::try_from(tree.get_u64("ashift")?).ok()
}

/// The uberblocks of a label, without those that an earlier label has, unless all are requested.
#[doc(alias = "dump_label_uberblocks")]
fn write_ring(
    out: &mut Printer,
    labels: &Labels,
    label: &Label,
    level: usize,
    heading: &mut Heading,
) -> Result<()> {
    let ashift = labels.readable().find_map(ashift_of).unwrap_or(ASHIFT_MIN);
    let same = |slot: &RingSlot, l: &Label| l.ring.iter().any(|o| o.uberblock == slot.uberblock);
    for number in 0..uberblock_count(ashift) {
        let Some(slot) = label.ring.iter().find(|slot| slot.slot == number) else {
            if level >= 2 {
                heading.write(out)?;
                writeln!(out, "    Uberblock[{number}] invalid")?;
            }
            continue;
        };
        let first = labels.readable().find(|l| same(slot, l)).map(|l| l.index);
        if level < 3 && first != Some(label.index) {
            continue;
        }
        let ub = &slot.uberblock;
        let is_mmp = ub.mmp_seq().is_some() || ub.mmp_delay.get() != 0;
        let mmp_slots = uberblock_count(ashift) - MMP_BLOCKS_PER_LABEL;
        if level < 4 && is_mmp && ub.mmp_delay.get() != 0 && number >= mmp_slots {
            continue;
        }
        heading.write(out)?;
        let text = text::uberblock(ub, level);
        write!(out, "    Uberblock[{number}]\n{text}")?;
        let numbers = label_numbers(labels, |l| same(slot, l));
        writeln!(out, "        labels = {numbers}")?;
    }
    Ok(())
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
