//! Block devices of this host: nothing is written to one without a spelled-out consent.

use std::os::unix::fs::FileTypeExt;

use machine::World;

/// The option that gives it.
pub(crate) const CONSENT: &str = "--yes-write-to-device";

/// Whether what has that name stands on a block device of this host.
pub(crate) fn is_host_device(world: &World, name: &str) -> bool {
    if world.is_machine() {
        return false;
    }
    let mut name = world.canonical(name);
    // layers stand on layers; a circle of them is refused when it is opened
    for _ in 0..100 {
        match world.layer(&name) {
            Some(layer) => name = world.canonical(&layer.on),
            None => break,
        }
    }
    let mut path = name.as_str();
    loop {
        if let Ok(facts) = std::fs::metadata(path) {
            return facts.file_type().is_block_device();
        }
        // a partition: disk.imgp1, disk.imgs1, disk.img:gpt/label
        let shorter = match path.find(":gpt/") {
            Some(end) => &path[..end],
            None => path
                .trim_end_matches(|c: char| c.is_ascii_digit())
                .trim_end_matches(['p', 's']),
        };
        if shorter.len() == path.len() || shorter.is_empty() {
            return false;
        }
        path = shorter;
    }
}

/// Takes the consent out of the arguments; whether it was there.
pub(crate) fn take_consent(args: &mut Vec<String>) -> bool {
    let before = args.len();
    args.retain(|arg| arg != CONSENT);
    args.len() < before
}

/// Refuses to write to a block device without the consent.
pub(crate) fn check_consent(world: &World, name: &str, is_given: bool) -> Result<(), String> {
    if is_given || !is_host_device(world, name) {
        return Ok(());
    }
    Err(format!(
        "{name} is a block device of this host: say {CONSENT} to write to it"
    ))
}
