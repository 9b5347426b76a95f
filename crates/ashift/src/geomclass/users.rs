//! The users of a provider: layers on it, and imported pools.
//!
//! # Why not simpler
//! The world could list all providers and what they are on. But that looks for partition tables on all of
//! them, and a nop counts its requests: looking at it must not change it.

use base::Result;
use machine::{Holder, Layer, World};

/// Whether a provider is `name`, or is on it through layers and partitions. Labels belong to drives
/// directly.
fn stands_on(world: &World, provider: &str, name: &str) -> bool {
    let mut at = world.canonical(provider);
    loop {
        if at == name {
            return true;
        }
        at = match (world.layer(&at), partition_of(&at)) {
            (Some(layer), _) => layer.on,
            (None, Some(disk)) => disk.to_owned(),
            (None, None) => return false,
        };
    }
}

/// The provider whose partition has that name.
fn partition_of(name: &str) -> Option<&str> {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let disk = disk.strip_suffix(['p', 's']).filter(|_| disk != name);
    disk.filter(|disk| !disk.is_empty())
}

/// Layers on a provider, on its partitions or on each other; the topmost first.
pub(crate) fn layers_above(world: &World, name: &str) -> Vec<Layer> {
    let layers = world.layers().into_iter().rev();
    layers
        .filter(|layer| stands_on(world, &layer.on, name))
        .collect()
}

/// A user of a provider that keeps it from being removed: a layer or an imported pool.
pub(crate) fn user_of(world: &World, name: &str) -> Result<Option<String>> {
    if let Some(layer) = layers_above(world, name).pop() {
        return Ok(Some(layer.name));
    }
    Ok(world.holders(name)?.first().map(Holder::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_known_by_their_names() {
        assert_eq!(partition_of("ada0p1"), Some("ada0"));
        assert_eq!(partition_of("ada0.nops12"), Some("ada0.nop"));
        assert_eq!(partition_of("ada0"), None);
        assert_eq!(partition_of("gpt/top"), None);
        assert_eq!(partition_of("p1"), None);
    }
}
