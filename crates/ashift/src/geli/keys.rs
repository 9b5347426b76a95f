//! `setkey`, `delkey`, `kill`.

use ::geli::{Flags, MasterKey, Metadata, SetKey, last_sector, trash};
use base::{Error, Result};
use geom::Provider;
use geom::disk::OpenMode;
use machine::{Layer, LayerKind};

use super::attach::{calibrated, iterations};
use super::secret::{Which, components};
use super::{find_attached, open, slot};
use crate::geomclass::{Call, layers_above};

/// The provider that holds the key: `name` may also be that of the attached provider.
fn below(call: &Call<'_>, name: &str) -> String {
    find_attached(call, name).map_or_else(|| name.to_owned(), |(layer, _)| layer.on)
}

pub(super) fn setkey(call: &mut Call<'_>) -> Result<()> {
    let [name] = call.args()?;
    let on = below(call, name);
    let provider = open(call, &on, OpenMode::ReadWrite)?;
    let mut metadata = Metadata::read(&*provider)?;
    let opened = opened_key(call, name, &metadata)?;
    let new = components(call, Which::New)?;
    let what = SetKey {
        slot: slot(call)?,
        iterations: iterations(call)?,
    };
    if new.passphrase.is_some() && metadata.iterations == -1 && what.iterations.is_none() {
        metadata.iterations = calibrated(call);
    }
    let slot = ::geli::set_key(&mut metadata, (&opened.0, opened.1), &new, what)?;
    metadata.write(&*provider)?;
    if call.options.has('v') {
        println!("Key {slot} changed on {name}.");
    }
    println!(
        "Note, that the master key encrypted with old keys and/or passphrase may still exists in \
         a metadata backup file."
    );
    Ok(())
}

/// The master key and its slot: those in use if the provider is attached, otherwise unlocked.
fn opened_key(call: &Call<'_>, name: &str, metadata: &Metadata) -> Result<(MasterKey, u8)> {
    if let Some((_, attached)) = find_attached(call, name) {
        if attached.flags.contains(Flags::RO) {
            return Err(Error::invalid("Cannot change keys for read-only provider."));
        }
        let slot = attached.nkey.unwrap_or(0);
        return Ok((attached.mkey, slot));
    }
    if metadata.keys == 0 {
        return Err(Error::invalid(format!("No valid keys on {name}.")));
    }
    if metadata.iterations == -1 && !call.options.has('p') {
        return Err(Error::invalid("Missing -p flag."));
    }
    let present = components(call, Which::Present)?;
    let opened = ::geli::unlock_named(metadata, &present, None, name)?;
    if call.options.has('v') {
        println!("Decrypted Master Key {}.", opened.1);
    }
    Ok(opened)
}

pub(super) fn delkey(call: &mut Call<'_>) -> Result<()> {
    let [name] = call.args()?;
    let attached = find_attached(call, name).map(|(_, attached)| attached);
    if let Some(attached) = &attached
        && attached.flags.contains(Flags::RO)
    {
        return Err(Error::invalid("Cannot delete keys for read-only provider."));
    }
    let on = below(call, name);
    let provider = open(call, &on, OpenMode::ReadWrite)?;
    let mut metadata = Metadata::read(&*provider)?;
    let slot = match (call.options.has('a'), slot(call)?) {
        (true, _) => None,
        (false, Some(slot)) => Some(slot),
        (false, None) => {
            let used = attached.and_then(|attached| attached.nkey);
            Some(used.ok_or_else(|| Error::invalid("Key number has to be specified."))?)
        }
    };
    ::geli::destroy_keys(&*provider, &mut metadata, slot, call.options.has('f'))
}

pub(super) fn kill(call: &mut Call<'_>) -> Result<()> {
    let is_all = call.options.has('a');
    if !is_all {
        call.providers("Too few arguments.")?;
    }
    let mut names = call.options.args.clone();
    if is_all {
        let layers = call.world.layers();
        let is_eli = |layer: &Layer| matches!(layer.kind, LayerKind::Eli(_));
        names.extend(layers.into_iter().filter(is_eli).map(|layer| layer.on));
    }
    for name in names {
        kill_one(call, &name)?;
    }
    Ok(())
}

fn kill_one(call: &Call<'_>, name: &str) -> Result<()> {
    let found = find_attached(call, name);
    if let Some((layer, attached)) = &found {
        for above in layers_above(call.world, &layer.name) {
            call.world.remove_layer(&above.name)?;
        }
        call.world.remove_layer(&layer.name)?;
        if attached.flags.contains(Flags::RO) || attached.is_onetime() {
            return Ok(());
        }
    }
    let on = found.map_or_else(|| name.to_owned(), |(layer, _)| layer.on);
    let provider = open(call, &on, OpenMode::ReadWrite)?;
    let at: u64 = last_sector(&*provider)?;
    let provider: &dyn Provider = &*provider;
    trash(provider, at)
}
