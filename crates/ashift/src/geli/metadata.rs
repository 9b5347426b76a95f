//! `configure`, `backup`, `restore`, `resize`, `version`, `clear`, `dump`.

use std::fs;
use std::path::Path;

use ::geli::{AuthAlgorithm, Cipher, Flags, METADATA_BYTES, Metadata, VERSION_MAX};
use base::{Context, Error, ErrorKind, Result};
use geom::disk::OpenMode;
use machine::{Layer, LayerKind};
use serde_json::{Value, json};

use super::attach::write_backup;
use super::{find_attached, for_each, open};
use crate::geomclass::Call;

/// The options of `configure`: set, clear, the flag, its name, and whether the flag is inverted.
const SWITCHES: [(char, char, Flags, &str, bool); 5] = [
    ('b', 'B', Flags::BOOT, "BOOT", false),
    ('g', 'G', Flags::GELIBOOT, "GELIBOOT", false),
    ('d', 'D', Flags::GELIDISPLAYPASS, "GELIDISPLAYPASS", false),
    ('t', 'T', Flags::NODELETE, "TRIM disable", true),
    ('r', 'R', Flags::AUTORESIZE, "AUTORESIZE", false),
];

pub(super) fn configure(call: &mut Call<'_>) -> Result<()> {
    let call = &*call;
    let mut changes = Vec::new();
    for (set, clear, flag, name, is_negated) in SWITCHES {
        if let Some(choice) = call.options.either(set, clear)? {
            changes.push((flag, choice != is_negated, name));
        }
    }
    if changes.is_empty() {
        call.providers("Too few arguments.")?;
        return Err(Error::invalid("No option given."));
    }
    let change = |flags: Flags| {
        let with =
            |flags: Flags, (flag, is_set, _): &(Flags, bool, &str)| flags.with(*flag, *is_set);
        changes.iter().fold(flags, with)
    };
    for_each(call, "Not fully done.", |name| {
        let mut on = name.to_owned();
        if let Some((layer, mut attached)) = find_attached(call, name) {
            if attached.flags.contains(Flags::RO) {
                return Err(Error::new(
                    ErrorKind::ReadOnly,
                    format!("Cannot change configuration of read-only provider {name}."),
                ));
            }
            attached.flags = change(attached.flags);
            on.clone_from(&layer.on);
            let is_onetime = attached.is_onetime();
            let kind = LayerKind::Eli(attached);
            call.world.update_layer(Layer { kind, ..layer })?;
            if is_onetime {
                return Ok(());
            }
        }
        let provider = open(call, &on, OpenMode::ReadWrite)?;
        let mut metadata = Metadata::read(&*provider)?;
        if call.options.has('v') {
            for (flag, is_set, word) in &changes {
                match (is_set, metadata.flags.contains(*flag)) {
                    (true, true) => println!("{word} flag already configured for {name}."),
                    (false, false) => println!("{word} flag not configured for {name}."),
                    _ => {}
                }
            }
        }
        let flags = change(metadata.flags);
        if flags == metadata.flags {
            return Ok(());
        }
        metadata.flags = flags;
        metadata.write(&*provider)
    })
}

pub(super) fn backup(call: &mut Call<'_>) -> Result<()> {
    let [name, file] = call.args()?;
    write_backup(call, name, Path::new(file))
}

pub(super) fn restore(call: &mut Call<'_>) -> Result<()> {
    let [file, name] = call.args()?;
    let bytes = fs::read(file)
        .map_err(Error::from)
        .within(|| format!("Cannot open {file}"))?;
    let mut metadata = Metadata::decode_named(&bytes, file)?;
    let provider = open(call, name, OpenMode::ReadWrite)?;
    if metadata.provsize != provider.mediasize() {
        if !call.options.has('f') {
            return Err(Error::invalid("Provider size mismatch: wrong backup file?"));
        }
        metadata.provsize = provider.mediasize();
    }
    metadata.write(&*provider)
}

pub(super) fn resize(call: &mut Call<'_>) -> Result<()> {
    let [name] = call.args()?;
    let old = call.options.number('s');
    let old = old.ok_or_else(|| Error::invalid("Option 's' not specified."))?;
    let out_of_range = |_| Error::invalid("Invalid oldsize: Out of range.");
    let old = u64::try_from(old).map_err(out_of_range)?;
    if let Some((layer, _)) = find_attached(call, name) {
        let text = format!(
            "Cannot open {name}: {} is attached; detach it first.",
            layer.name
        );
        return Err(Error::new(ErrorKind::Busy, text));
    }
    let provider = open(call, name, OpenMode::ReadWrite)?;
    ::geli::resize(&*provider, old)
}

pub(super) fn version(call: &mut Call<'_>) -> Result<()> {
    if call.options.args.is_empty() {
        println!("kernel: {VERSION_MAX}\nuserland: {VERSION_MAX}");
        return Ok(());
    }
    for_each(call, "Not fully done.", |name| {
        let provider = open(call, name, OpenMode::Inspect)?;
        let metadata = Metadata::read(&*provider)?;
        println!("{name}: {}", metadata.version);
        Ok(())
    })
}

pub(super) fn clear(call: &mut Call<'_>) -> Result<()> {
    let call = &*call;
    for_each(call, "Not fully done.", |name| {
        if let Some((layer, _)) = find_attached(call, name) {
            let text = format!(
                "Cannot clear metadata on {name}: {} is attached; detach it first.",
                layer.name
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let provider = open(call, name, OpenMode::ReadWrite)?;
        ::geli::clear(&*provider).within(|| format!("Cannot clear metadata on {name}"))?;
        if call.options.has('v') {
            println!("Metadata cleared on {name}.");
        }
        Ok(())
    })
}

/// Shows the metadata of providers, or of backup files.
pub(super) fn dump(call: &mut Call<'_>) -> Result<()> {
    let call = &*call;
    let mut shown = Vec::new();
    let result = for_each(call, "Not fully done.", |name| {
        let metadata = read_anywhere(call, name)?;
        if call.options.has('j') {
            shown.push(as_json(name, &metadata));
        } else {
            println!("Metadata on {name}:\n{}", metadata.dump());
        }
        Ok(())
    });
    if call.options.has('j') {
        println!("{:#}", json!(shown));
    }
    result
}

/// The metadata of a provider, or of a backup file, which begins with it.
fn read_anywhere(call: &Call<'_>, name: &str) -> Result<Metadata> {
    let from_provider =
        open(call, name, OpenMode::Inspect).and_then(|provider| Metadata::read(&*provider));
    match from_provider {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
            let bytes = fs::read(name).unwrap_or_default();
            let head = &bytes[..bytes.len().min(METADATA_BYTES)];
            match Metadata::decode_named(head, name) {
                Err(other) if other.kind() == ErrorKind::NotFound => Err(error),
                other => other,
            }
        }
        other => other,
    }
}

fn as_json(name: &str, metadata: &Metadata) -> Value {
    let cipher = Cipher::from_number(metadata.ealgo).map(|c| c.to_string());
    let auth = AuthAlgorithm::from_number(metadata.aalgo).map(|a| a.to_string());
    json!({
        "name": name,
        "version": metadata.version,
        "flags": metadata.flags.0,
        "ealgo": cipher.unwrap_or_else(|_| metadata.ealgo.to_string()),
        "keylen": metadata.keylen,
        "aalgo": metadata
            .flags
            .contains(Flags::AUTH)
            .then(|| auth.unwrap_or_else(|_| metadata.aalgo.to_string())),
        "provsize": metadata.provsize,
        "sectorsize": metadata.sectorsize,
        "keys": metadata.keys,
        "iterations": metadata.iterations,
    })
}
