//! `zpool import` without a pool: the list of importable pools.

use std::fmt::Write as _;

use super::{
    AllocClass, CLASSES, NameStyle, PoolStatus, Reason, VdevAux, VdevKind, VdevState, VdevStatus,
    diagnose, heading,
};

/// A pool that was found on devices.
#[derive(Clone, Debug)]
pub struct ImportCandidate<'a> {
    /// Its state from the labels and the devices that were found.
    pub status: &'a PoolStatus,
    /// Its comment.
    pub comment: Option<&'a str>,
    /// It was destroyed.
    pub is_destroyed: bool,
    /// It was exported.
    pub is_exported: bool,
}

/// The paragraph of one pool; a front end separates them by an empty line.
#[must_use]
#[doc(alias = "show_import")]
pub fn import_listing(candidate: &ImportCandidate<'_>, names: NameStyle) -> String {
    let pool = candidate.status;
    let indent = if candidate.comment.is_some() { " " } else { "" };
    let mut out = String::new();
    let _ = writeln!(out, "{indent}  pool: {}", pool.name);
    let _ = writeln!(out, "{indent}    id: {}", pool.guid);
    let destroyed = if candidate.is_destroyed {
        " (DESTROYED)"
    } else {
        ""
    };
    let _ = writeln!(out, "{indent} state: {}{destroyed}", pool.root.state_name());
    let reason = diagnose(pool, true);
    let lines = |text: &str| text.trim_end().replace('\n', &format!("\n\t{indent}"));
    if let Some(status) = what_is_wrong(reason, pool) {
        let _ = writeln!(out, "{indent}status: {}", lines(&status));
    }
    let action = what_to_do(reason, pool);
    let _ = writeln!(out, "{indent}action: {}", lines(action));
    if let Some(comment) = candidate.comment {
        let _ = writeln!(out, "comment: {comment}");
    }
    if let Some(text) = force_hint(candidate) {
        let _ = writeln!(out, "\t{indent}{}", lines(text));
    }
    if let Some(id) = reason.message_id() {
        let _ = writeln!(
            out,
            "{indent}   see: https://openzfs.github.io/openzfs-docs/msg/{id}"
        );
    }
    let _ = writeln!(out, "{indent}config:\n");
    push_config(&mut out, pool, names);
    out
}

/// The hint at `-f` for a pool that looks damaged: it may be destroyed, or active elsewhere.
fn force_hint(candidate: &ImportCandidate<'_>) -> Option<&'static str> {
    let root = &candidate.status.root;
    let is_unopened = matches!(root.state, VdevState::Closed | VdevState::CantOpen);
    if !is_unopened || root.aux != VdevAux::CorruptData {
        return None;
    }
    if candidate.is_destroyed {
        return Some("The pool was destroyed, but can be imported using the '-Df' flags.");
    }
    let text =
        "The pool may be active on another system, but can be imported using\nthe '-f' flag.";
    (!candidate.is_exported).then_some(text)
}

fn what_is_wrong(reason: Reason, pool: &PoolStatus) -> Option<String> {
    let text = match reason {
        Reason::Ok | Reason::RebuildScrub | Reason::AwaitingResilver => return None,
        Reason::MissingDevR | Reason::MissingDevNr | Reason::BadGuidSum => {
            "One or more devices are missing from the system."
        }
        Reason::CorruptLabelR | Reason::CorruptLabelNr => {
            "One or more devices contains corrupted data."
        }
        Reason::CorruptData => "The pool data is corrupted.",
        Reason::OfflineDev => "One or more devices are offlined.",
        Reason::FaultedDevR | Reason::FaultedDevNr => "One or more devices are faulted.",
        Reason::CorruptPool => "The pool metadata is corrupted.",
        Reason::VersionOlder => "The pool is formatted using a legacy on-disk version.",
        Reason::VersionNewer => "The pool is formatted using an incompatible version.",
        Reason::FeatDisabled => {
            "Some supported features are not enabled on the pool.\n\
             (Note that they may be intentionally disabled if the\n\
             'compatibility' property is set.)"
        }
        Reason::HostidMismatch => "The pool was last accessed by another system.",
        Reason::BadLog => "An intent log record cannot be read.",
        Reason::Resilvering => "One or more devices were being resilvered.",
        Reason::NonNativeAshift => {
            "One or more devices are configured to use a non-native block size.\n\
             Expect reduced performance."
        }
        Reason::UnsupFeatRead => {
            return Some(with_features(
                "The pool uses the following feature(s) not supported on this system:",
                pool,
            ));
        }
        Reason::UnsupFeatWrite => {
            return Some(with_features(
                "The pool can only be accessed in read-only mode on this system. It\n\
                 cannot be accessed in read-write mode because it uses the following\n\
                 feature(s) not supported on this system:",
                pool,
            ));
        }
        // These do not occur before a pool is imported.
        Reason::Suspended | Reason::FailingDev | Reason::RemovedDev => return None,
    };
    Some(text.to_owned())
}

fn with_features(text: &str, pool: &PoolStatus) -> String {
    let lines = std::iter::once(text.to_owned());
    let all: Vec<String> = lines
        .chain(pool.unsupported_features.iter().cloned())
        .collect();
    all.join("\n")
}

fn what_to_do(reason: Reason, pool: &PoolStatus) -> &'static str {
    match (pool.root.state, reason) {
        (VdevState::Healthy, Reason::VersionOlder | Reason::FeatDisabled) => {
            "The pool can be imported using its name or numeric identifier, though\n\
             some features will not be available without an explicit 'zpool upgrade'."
        }
        (VdevState::Healthy, Reason::HostidMismatch) => {
            "The pool can be imported using its name or numeric identifier and\n\
             the '-f' flag."
        }
        (VdevState::Healthy, _) => "The pool can be imported using its name or numeric identifier.",
        (VdevState::Degraded, _) => {
            "The pool can be imported despite missing or damaged devices.  The\n\
             fault tolerance of the pool may be compromised if imported."
        }
        (_, Reason::VersionNewer) => {
            "The pool cannot be imported.  Access the pool on a system running newer\n\
             software, or recreate the pool from backup."
        }
        (_, Reason::UnsupFeatRead) => {
            "The pool cannot be imported. Access the pool on a system that supports\n\
             the required feature(s), or recreate the pool from backup."
        }
        (_, Reason::UnsupFeatWrite) => {
            "The pool cannot be imported in read-write mode. Import the pool with\n\
             '-o readonly=on', access the pool on a system that supports the\n\
             required feature(s), or recreate the pool from backup."
        }
        (_, Reason::MissingDevR | Reason::MissingDevNr | Reason::BadGuidSum) => {
            "The pool cannot be imported. Attach the missing\n\
             devices and try again."
        }
        _ => "The pool cannot be imported due to damaged devices or data.",
    }
}

fn push_config(out: &mut String, pool: &PoolStatus, names: NameStyle) {
    let width = pool.name_width(names).max(10);
    push_line(out, &pool.root, &pool.name, 0, width);
    for top in pool.tops(AllocClass::Normal) {
        push_vdev(out, top, 2, width, names);
    }
    for (heading, vdevs) in [("cache", &pool.cache), ("spares", &pool.spares)] {
        if !vdevs.is_empty() {
            let _ = writeln!(out, "\t{heading}");
        }
        for vdev in vdevs {
            let _ = writeln!(out, "\t  {}", vdev.name(names));
        }
    }
    for class in CLASSES {
        let mut tops = pool
            .tops(class)
            .filter(|t| t.kind != VdevKind::Indirect)
            .peekable();
        if tops.peek().is_some() {
            let _ = writeln!(out, "\t{}\t", heading(class));
        }
        tops.for_each(|top| push_vdev(out, top, 2, width, names));
    }
}

#[doc(alias = "print_import_config")]
fn push_vdev(out: &mut String, vdev: &VdevStatus, depth: usize, width: usize, names: NameStyle) {
    if matches!(vdev.kind, VdevKind::Missing | VdevKind::Hole) {
        return;
    }
    push_line(out, vdev, &vdev.name(names), depth, width);
    for child in &vdev.children {
        push_vdev(out, child, depth + 2, width, names);
    }
}

fn push_line(out: &mut String, vdev: &VdevStatus, name: &str, depth: usize, width: usize) {
    let width = width.saturating_sub(depth);
    let _ = write!(out, "\t{:depth$}{name:<width$}  {}", "", vdev.state_name());
    if vdev.aux != VdevAux::None {
        let _ = write!(out, "  {}", vdev.aux_text());
    }
    out.push('\n');
}
