//! Block devices of this host: nothing is written to one without a spelled-out consent.

use base::{Error, Result};
use machine::{Hold, Holder, World};

/// The option that gives it.
pub(crate) const CONSENT: &str = "--yes-write-to-device";

/// Takes the consent out of the arguments; whether it was there.
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

/// Holds what is to be written to raw: what nobody else uses and, if it is a block device of this host, only with
/// the consent.
pub(crate) fn hold(world: &World, name: &str, is_given: bool) -> Result<Hold> {
    check_consent(world, name, is_given)?;
    world.hold(name, &Holder::Program)
}
