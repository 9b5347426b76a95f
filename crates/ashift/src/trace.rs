//! Writes what a command did to the drives of its machine to the file that the user named.

use std::path::Path;
use std::sync::Arc;

use base::{Context, Error, Result};
use drive::Emulated;
use drive::profile::{Profile, SourceKind};
use drive::timing::CommandKind;
use geom::Provider;
use lab::{DriveTrace, Seen, TraceEntry};
use machine::World;

/// The environment variable that names the file.
pub(crate) const VARIABLE: &str = "ASHIFT_TRACE";

/// Runs something in a machine; if `$ASHIFT_TRACE` names a file, the commands the drives got meanwhile are
/// written to it as JSON.
///
/// # Errors
/// When that file cannot be written.
pub(crate) fn traced<T>(world: &World, run: impl FnOnce() -> T) -> Result<T> {
    let Some(path) = crate::caller::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(run());
    };
    let start_ns = rt::now_ns();
    let drives = world.drives();
    let processor_ns = rt::cpu_ns();
    let mut before = Vec::new();
    for drive in &drives {
        drive.trace(true);
        before.push(drive.statistics().busy_ns);
    }
    let value = run();
    let seen = Seen {
        start_ns,
        end_ns: rt::now_ns(),
        processor_ns: rt::cpu_ns() - processor_ns,
        cores: rt::cores(),
        drives: drives
            .iter()
            .zip(before)
            .map(|(drive, busy_ns)| trace_of(drive, busy_ns))
            .collect(),
    };
    let bytes = serde_json::to_vec(&seen).map_err(|e| Error::invalid(e.to_string()))?;
    let path = Path::new(&path);
    std::fs::write(path, bytes)
        .map_err(Error::from)
        .within(|| path.display().to_string())?;
    Ok(value)
}

/// What a drive did since its mechanics had been busy for `busy_ns`.
fn trace_of(drive: &Arc<Emulated>, busy_ns: u64) -> DriveTrace {
    let sector_bytes = drive.sectorsize();
    let profile = drive.profile();
    let mut trace = DriveTrace {
        drive: drive.name().to_owned(),
        profile: profile.name.clone(),
        sector_bytes,
        physical_bytes: profile.medium.physical_sector_bytes,
        sectors: drive.mediasize() / u64::from(sector_bytes),
        busy_ns: match profile.disk {
            Some(_) => drive.statistics().busy_ns.saturating_sub(busy_ns),
            None => 0,
        },
        assumed: assumed(profile),
        ..DriveTrace::default()
    };
    let shift_bytes = profile.medium.lba_shift * u64::from(sector_bytes);
    for entry in drive.take_trace() {
        let is_write = match entry.kind {
            CommandKind::Read => false,
            CommandKind::Write => true,
            CommandKind::Flush | CommandKind::Trim => continue,
        };
        let on_medium = entry.lba * u64::from(sector_bytes) + shift_bytes;
        let note = TraceEntry {
            at_ns: entry.at_ns,
            lba: entry.lba,
            sectors: entry.sectors,
            is_write,
            is_partial: entry.partial > 0,
        };
        trace.note(note, on_medium.trailing_zeros().min(12));
    }
    trace
}

/// Which figures of a profile no source states.
fn assumed(profile: &Profile) -> Vec<[String; 2]> {
    let mut assumed = Vec::new();
    for source in &profile.source {
        let note = match source.kind {
            SourceKind::Assumed => source.note.clone(),
            SourceKind::Fitted => format!("fitted: {}", source.note),
            SourceKind::Published | SourceKind::Derived => continue,
        };
        assumed.push([source.of.clone(), note]);
    }
    assumed
}
