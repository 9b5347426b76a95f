//! `drives`: the profiles of emulated drives: what such drives report, what they are, and how well
//! published measurements are reproduced.

use std::path::Path;
use std::sync::Arc;

use admin::getopt::{OptSpec, Parsed};
use base::{Context, Error, Result};
use drive::IdentifyData;
use drive::profile::{Profile, SourceKind, bridges, profiles};
use drive::timing::{Experiment, Reproduced};
use serde_json::{Map, Value, json};

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

pub(crate) const DRIVES: Command<Entry> = Command::words(
    "drives",
    "drive models: what they say, what they are",
    "\
usage: drives [-j]
       drives [-jn] profile ...
       drives -b [-j]

Without a name: the profiles that a machine's drives can have. With names, or files that describe
drives in the same way: what such a drive says about itself and what hosts make of it, what it
really is and where each figure comes from, and how well it reproduces what others measured on such
drives. The measurements are run now, in simulated time; that takes some seconds.

  -b  the USB bridges that a SATA drive can be behind (bus=usb:NAME of a machine's drive)
  -n  do not run the measurements
  -j  print JSON
",
    run,
)
.apart()
.leads_with("drives: ");

fn run(args: &[String]) -> Outcome {
    let spec = OptSpec {
        short: "bhjn",
        long: &[],
    };
    let wrong = |error| Fail::Exits(2, format!("{error} ('drives -h' says how it is used)"));
    let parsed = admin::getopt::parse(&spec, args).map_err(wrong)?;
    if parsed.has('h') {
        return Err(Fail::Help);
    }
    if parsed.has('b') {
        if !parsed.operands.is_empty() {
            return Err(Fail::Exits(2, "-b takes no profile".to_owned()));
        }
        list_bridges(parsed.has('j'));
        return Ok(());
    }
    if parsed.operands.is_empty() {
        list(parsed.has('j'));
        return Ok(());
    }
    Ok(show_all(&parsed)?)
}

fn list_bridges(is_json: bool) {
    if is_json {
        let entries: Vec<Value> = bridges()
            .iter()
            .map(|usb| {
                json!({
                    "name": usb.name,
                    "title": usb.title,
                    "model": usb.bridge.model,
                    "hidden_sectors": usb.bridge.hidden_sectors,
                    "queue_depth": usb.bridge.queue_depth,
                    "sector_bytes": usb.bridge.sector_bytes,
                    "hides_identify": usb.bridge.hides_identify,
                    "command_overhead_us": usb.interface.command_overhead_us,
                    "rate_mb_s": usb.interface.rate_mb_s,
                    "sources": usb.source,
                })
            })
            .collect();
        println!("{:#}", json!({ "bridges": entries }));
        return;
    }
    println!("{:<12}{:>8}  WHAT IT IS", "BUS", "MB/S");
    for usb in bridges() {
        let bus = format!("usb:{}", usb.name);
        println!("{bus:<12}{:>8.0}  {}", usb.interface.rate_mb_s, usb.title);
    }
}

fn list(is_json: bool) {
    if is_json {
        let entries: Vec<Value> = profiles().iter().map(|p| summary_json(p)).collect();
        println!("{:#}", json!({ "profiles": entries }));
        return;
    }
    println!(
        "{:<19}{:>8} {:>6}  {:<9} {:<9} WHAT IT IS",
        "NAME", "SIZE", "RPM", "SAYS", "IS"
    );
    for profile in profiles() {
        println!(
            "{:<19}{:>8} {:>6}  {:<9} {:<9} {}",
            profile.name,
            decimal(bytes_of(profile)),
            rpm(profile),
            says(profile),
            truth(profile),
            profile.title
        );
    }
}

fn bytes_of(profile: &Profile) -> u64 {
    profile.host_bytes()
}

/// Decimal units, as manufacturers use them: `2.0T` is 2 × 10¹² bytes.
fn decimal(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e13 => format!("{:.0}T", b / 1e12),
        b if b >= 1e12 => format!("{:.1}T", b / 1e12),
        b => format!("{:.0}G", b / 1e9),
    }
}

fn rpm(profile: &Profile) -> String {
    let disk = profile.disk.as_ref();
    disk.map_or_else(|| "flash".to_owned(), |disk| format!("{:.0}", disk.rpm))
}

fn says(profile: &Profile) -> String {
    let says = &profile.identify;
    format!(
        "{}/{}",
        says.logical_sector_bytes, says.physical_sector_bytes
    )
}

fn truth(profile: &Profile) -> String {
    let shift = match profile.medium.lba_shift {
        0 => String::new(),
        shift => format!("+{shift}"),
    };
    let logical = profile.identify.logical_sector_bytes;
    format!("{logical}/{}{shift}", profile.medium.physical_sector_bytes)
}

fn summary_json(profile: &Profile) -> Value {
    json!({
        "name": profile.name,
        "title": profile.title,
        "size_bytes": bytes_of(profile),
        "rpm": profile.disk.as_ref().map(|disk| disk.rpm),
        "logical_sector_bytes": profile.identify.logical_sector_bytes,
        "says_physical_sector_bytes": profile.identify.physical_sector_bytes,
        "physical_sector_bytes": profile.medium.physical_sector_bytes,
        "lba_shift": profile.medium.lba_shift,
    })
}

/// A built-in profile, or one in a file.
fn find(name: &str) -> Result<Arc<Profile>> {
    let path = Path::new(name);
    if name.contains('/') || name.ends_with(".toml") {
        let text = std::fs::read_to_string(path)
            .map_err(Error::from)
            .within(|| name)?;
        return Profile::parse(name, &text).map(Arc::new);
    }
    Profile::find(name)
}

fn show_all(parsed: &Parsed) -> Result<()> {
    let found: Vec<_> = parsed
        .operands
        .iter()
        .map(|name| find(name))
        .collect::<Result<_>>()?;
    let mut entries = Vec::new();
    for (nth, profile) in found.iter().enumerate() {
        let data = IdentifyData::of(profile, None, 1)?;
        if parsed.has('j') {
            let measured = if parsed.has('n') {
                None
            } else {
                Some(reproduce(profile))
            };
            entries.push(as_json(profile, &data, measured.as_deref()));
            continue;
        }
        if nth > 0 {
            println!();
        }
        println!("{}: {}", profile.name, profile.title);
        show_says(profile, &data);
        show_is(profile);
        if !parsed.has('n') {
            show_published(profile);
        }
    }
    if parsed.has('j') {
        println!("{:#}", json!({ "profiles": entries }));
    }
    Ok(())
}

fn show_says(profile: &Profile, data: &IdentifyData) {
    let says = &profile.identify;
    println!("\nWhat it says about itself");
    println!(
        "  {:<34}{}",
        "model, firmware",
        format_args!("{} {}", says.model, says.firmware)
    );
    println!(
        "  {:<34}{} of {} bytes",
        "sectors",
        data.sectors(),
        data.logical_sector_bytes()
    );
    for (word, what) in [
        (106, "sector sizes"),
        (117, "logical sector"),
        (209, "alignment"),
        (217, "rotation rate"),
    ] {
        println!(
            "  {:<34}{:#06x}",
            format!("word {word}, {what}"),
            data.word(word)
        );
    }
    println!(
        "  {:<34}sector size           logical {}, physical {}, offset {}",
        "FreeBSD's camcontrol identify",
        data.logical_sector_bytes(),
        data.physical_sector_bytes(),
        data.alignment_offset_bytes()
    );
    for (what, has_quirks) in [
        ("FreeBSD's GEOM", true),
        ("  without its list of liars", false),
    ] {
        let (size, offset) = data.stripe(has_quirks);
        println!("  {what:<34}stripesize {size}, stripeoffset {offset}");
    }
    let linux = data.linux_topology();
    println!(
        "  {:<34}logical {}, physical {}, minimum_io {}, optimal_io {}, alignment {}",
        "Linux's sysfs",
        linux.logical_block_size,
        linux.physical_block_size,
        linux.minimum_io_size,
        linux.optimal_io_size,
        linux.alignment_offset
    );
    let freebsd = geom::topology::freebsd_quirk_4k(&says.model).map_or_else(
        || "not in it".to_owned(),
        |pattern| format!("4096, as \"{pattern}\""),
    );
    println!("  {:<34}{freebsd}", "FreeBSD's list ADA_Q_4K");
    let openzfs = geom::topology::openzfs_sector_size("ATA", &says.model)
        .map_or_else(|| "not in it".to_owned(), |size| size.to_string());
    println!("  {:<34}{openzfs}", "OpenZFS's vdev_disk_database");
    if let Some(bridge) = &profile.bridge {
        println!(
            "  {:<34}{}: hides {} sectors, passes on {} command at a time",
            "seen through a USB bridge", bridge.model, bridge.hidden_sectors, bridge.queue_depth
        );
    }
}

/// Key, value and source of each figure.
fn figures(profile: &Profile) -> Vec<(String, String, String)> {
    let Ok(Value::Object(tables)) = serde_json::to_value(profile) else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for name in ["medium", "interface", "disk", "flash", "cache"] {
        let Some(Value::Object(table)) = tables.get(name) else {
            continue;
        };
        for (key, value) in table {
            let key = format!("{name}.{key}");
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let source = source_of(profile, &key);
            rows.push((key, value, source));
        }
    }
    rows
}

/// The source of a figure: that of its key, or else that of its table.
fn source_of(profile: &Profile, key: &str) -> String {
    let table = key.split('.').next().unwrap_or_default();
    let of = |name: &str| profile.source.iter().find(|source| source.of == name);
    of(key)
        .or_else(|| of(table))
        .map_or_else(String::new, |source| {
            format!("{}: {}", kind(source.kind), source.note)
        })
}

fn kind(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Published => "published",
        SourceKind::Derived => "derived",
        SourceKind::Fitted => "fitted",
        SourceKind::Assumed => "assumed",
    }
}

fn show_is(profile: &Profile) {
    println!("\nWhat it is");
    for (key, value, source) in figures(profile) {
        // Whole numbers are shown without the ".0".
        let value = value.strip_suffix(".0").unwrap_or(&value);
        println!("  {key:<34}{value:<11}{source}");
    }
}

/// Repeats published measurements of such drives, several in parallel.
fn reproduce(profile: &Arc<Profile>) -> Vec<Reproduced> {
    let runs = profile.published.iter().filter_map(|published| {
        let experiment: Experiment = published.experiment.parse().ok()?;
        Some((published.clone(), experiment))
    });
    rt::parallel_map(runs.collect(), |(published, experiment)| Reproduced {
        published,
        value: experiment.run(profile, 1),
    })
}

fn show_published(profile: &Arc<Profile>) {
    if profile.published.is_empty() {
        println!("\nNobody published measurements that are known here.");
        return;
    }
    println!("\nWhat others measured, and what comes out here");
    let results = reproduce(profile);
    println!(
        "  {:<38}{:>11}{:>12} {:<5}{:>7}  BY",
        "EXPERIMENT", "PUBLISHED", "HERE", "UNIT", "OFF"
    );
    for result in &results {
        let published = &result.published;
        let error = result.error_percent();
        let mark = if error.abs() <= published.within_percent {
            ' '
        } else {
            '!'
        };
        println!(
            "  {:<38}{:>11}{:>12} {:<5}{error:>+6.1}%{mark} {}",
            published.experiment,
            figure(published.value),
            figure(result.value),
            published.unit,
            published.by
        );
    }
    let squares: f64 = results.iter().map(|r| r.error_percent().powi(2)).sum();
    let rms = (squares / results.len().max(1) as f64).sqrt();
    println!("  root mean square {rms:.1} %; '!' marks what is off by more than it should be");
}

/// A value with about four significant digits.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn as_json(profile: &Profile, data: &IdentifyData, measured: Option<&[Reproduced]>) -> Value {
    let stripe = |has_quirks| {
        let (size, offset) = data.stripe(has_quirks);
        json!({ "stripesize": size, "stripeoffset": offset })
    };
    let linux = data.linux_topology();
    let figures: Map<String, Value> = figures(profile)
        .into_iter()
        .map(|(key, value, source)| {
            let value = value
                .parse::<f64>()
                .map_or(json!(value), |number| json!(number));
            (key, json!({ "value": value, "source": source }))
        })
        .collect();
    let measured = measured.map(|results| {
        let one = |r: &Reproduced| {
            json!({
                "experiment": r.published.experiment, "unit": r.published.unit,
                "published": r.published.value, "here": r.value,
                "error_percent": r.error_percent(), "within_percent": r.published.within_percent,
                "by": r.published.by,
            })
        };
        results.iter().map(one).collect::<Vec<_>>()
    });
    json!({
        "profile": summary_json(profile),
        "says": {
            "model": profile.identify.model,
            "firmware": profile.identify.firmware,
            "sectors": data.sectors(),
            "words": { "106": data.word(106), "117": data.word(117), "118": data.word(118),
                       "209": data.word(209), "217": data.word(217) },
            "geom": stripe(true),
            "geom_without_quirks": stripe(false),
            "linux": {
                "logical_block_size": linux.logical_block_size,
                "physical_block_size": linux.physical_block_size,
                "minimum_io_size": linux.minimum_io_size,
                "optimal_io_size": linux.optimal_io_size,
                "alignment_offset": linux.alignment_offset,
            },
            "freebsd_quirk_4k": geom::topology::freebsd_quirk_4k(&profile.identify.model),
            "openzfs_sector_size":
                geom::topology::openzfs_sector_size("ATA", &profile.identify.model),
        },
        "is": figures,
        "published": measured,
    })
}
