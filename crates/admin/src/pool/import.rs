//! `zpool import` without a pool: what could be imported.

use std::fmt::Write as _;

use super::{
    NameStyle, PoolStatus, Reason, STATUS_CLASSES, VdevAux, VdevClass, VdevKind, VdevStatus,
    diagnose,
};

/// A pool that was found on devices.
#[derive(Clone, Debug)]
pub struct ImportCandidate<'a> {
    /// What its labels say, and which of its devices are there.
    pub status: &'a PoolStatus,
    /// Its comment.
    pub comment: Option<&'a str>,
    /// It was destroyed.
    pub is_destroyed: bool,
}

/// The paragraph of one pool; a front end puts an empty line between two.
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
    let lines = |text: String| text.trim_end().replace('\n', &format!("\n\t{indent}"));
    if let Some(status) = what_is_wrong(reason, pool) {
        let _ = writeln!(out, "{indent}status: {}", lines(status));
    }
    let action = what_to_do(reason, pool, candidate.is_destroyed);
    let _ = writeln!(out, "{indent}action: {}", lines(action));
    if let Some(comment) = candidate.comment {
        let _ = writeln!(out, "comment: {comment}");
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

fn what_is_wrong(reason: Reason, pool: &PoolStatus) -> Option<String> {
    let text = match reason {
        Reason::Ok => return None,
        Reason::MissingDevR | Reason::MissingDevNr | Reason::BadGuidSum => {
            "Devices of the pool are missing."
        }
        Reason::CorruptLabelR | Reason::CorruptLabelNr => {
            "Devices of the pool have no valid label."
        }
        Reason::OfflineDev => "Devices of the pool are offline.",
        Reason::FaultedDevR | Reason::FaultedDevNr => "Devices of the pool are faulted.",
        Reason::CorruptPool => "The metadata of the pool is damaged.",
        Reason::VersionOlder => "The pool has a version from before feature flags.",
        Reason::VersionNewer => "The version of the pool is too new.",
        Reason::FeatDisabled => "Features are not enabled that this program has.",
        Reason::HostidMismatch => "The pool was last used on another system.",
        Reason::BadLog => "A record of the intent log cannot be read.",
        Reason::Resilvering => "Devices were being resilvered.",
        Reason::UnsupFeatRead | Reason::UnsupFeatWrite => {
            let mut text = "The pool has features that this program does not:\n".to_owned();
            text += &pool.unsupported_features.join("\n");
            return Some(text);
        }
        _ => "The pool needs attention.",
    };
    Some(text.to_owned())
}

fn what_to_do(reason: Reason, pool: &PoolStatus, is_destroyed: bool) -> String {
    use super::VdevState::{CantOpen, Degraded};
    let text = match (pool.root.state, reason) {
        (CantOpen, Reason::UnsupFeatWrite) => {
            "The pool can be imported read-only, with '-o readonly=on'."
        }
        (CantOpen, Reason::HostidMismatch) => {
            "The pool can be imported with '-f', if it is not in use there any more."
        }
        (CantOpen, Reason::CorruptPool) => {
            "The pool cannot be imported as it is; '-F' goes back to an earlier state."
        }
        (CantOpen, Reason::MissingDevR | Reason::MissingDevNr | Reason::BadGuidSum) => {
            "The pool cannot be imported before the missing devices are back."
        }
        (CantOpen, _) => "The pool cannot be imported.",
        (Degraded, _) => {
            "The pool can be imported, although devices are missing or damaged: it has\n\
             less redundancy than it should have."
        }
        (_, Reason::HostidMismatch) => {
            "The pool can be imported by its name or id, and with '-f', if it is not in\n\
             use there any more."
        }
        _ if is_destroyed => "The pool can be imported by its name or id, with '-D'.",
        _ => "The pool can be imported by its name or id.",
    };
    text.to_owned()
}

fn push_config(out: &mut String, pool: &PoolStatus, names: NameStyle) {
    let width = pool.name_width(names).max(10);
    push_line(out, &pool.root, &pool.name, 0, width);
    for top in pool.tops(VdevClass::Normal) {
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
    for class in STATUS_CLASSES {
        let mut tops = pool
            .tops(class)
            .filter(|t| t.kind != VdevKind::Indirect)
            .peekable();
        if tops.peek().is_some() {
            let _ = writeln!(out, "\t{}\t", class.heading());
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
