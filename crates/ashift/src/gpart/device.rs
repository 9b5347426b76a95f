//! Block devices of this host: nothing is written to one without explicit consent.

use base::{Error, Result};
use machine::{Hold, Holder, World};

/// The option that gives the consent.
pub(crate) const CONSENT: &str = "--yes-write-to-device";

/// Removes the consent from the arguments; returns whether it was there.
pub(crate) fn take_consent(args: &mut Vec<String>) -> bool {
    let before = args.len();
    args.retain(|arg| arg != CONSENT);
    args.len() < before
}

/// Refuses to write to a block device without the consent.
pub(crate) fn check_consent(world: &World, name: &str, is_given: bool) -> Result<()> {
    if is_given || world.block_device_below(name).is_none() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name} is a block device of this host: say {CONSENT} to write to it"
    )))
}

/// Holds a provider for raw writes: it must not be in use, and a block device of this host needs the
/// consent.
pub(crate) fn hold(world: &World, name: &str, is_given: bool) -> Result<Hold> {
    check_consent(world, name, is_given)?;
    world.hold(name, &Holder::Program)
}
