//! `zpool status`.

use std::fmt::Write as _;

use super::{
    Activity, ActivityState, AllocClass, CLASSES, CheckpointStatus, ErrorScrubStatus, ExpandStatus,
    NameStyle, PoolStatus, RebuildStatus, RemovalStatus, ScanFunction, ScanState, ScanStatus,
    ScriptOutput, VdevAux, VdevKind, VdevState, VdevStatus, diagnose, heading,
};
use crate::number::{NumberStyle, Zone, date_time, duration, nice_bytes, nice_number};

/// Scans below this rate, in bytes per second, show no estimated time to go.
const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// The options of `zpool status`.
#[derive(Clone, Debug)]
pub struct StatusRequest {
    /// How vdev names are shown.
    pub names: NameStyle,
    /// `-p`: exact numbers of errors.
    pub numbers: NumberStyle,
    /// `-v`: list damaged files.
    pub is_verbose: bool,
    /// `-e`: only unhealthy vdevs.
    pub only_unhealthy: bool,
    /// `-s`: slow I/Os.
    pub has_slow: bool,
    /// `-d`: errors of direct I/O.
    pub has_direct: bool,
    /// `-t`: progress of trims.
    pub has_trim: bool,
    /// `-i`: progress of initializations.
    pub has_initialize: bool,
    /// `-D`: dedup tables.
    pub has_dedup: bool,
    /// `-c`: what scripts said of the devices.
    pub scripts: Option<ScriptOutput>,
    /// `--json-flat-vdevs`: every vdev in one list.
    pub is_flat: bool,
    /// The current time, in seconds since 1970.
    pub now_secs: u64,
    /// The time zone.
    pub zone: Zone,
}

impl StatusRequest {
    /// The request without any option, at that time.
    #[must_use]
    pub fn new(now_secs: u64, zone: Zone) -> Self {
        StatusRequest {
            names: NameStyle::default(),
            numbers: NumberStyle::Nice,
            is_verbose: false,
            only_unhealthy: false,
            has_slow: false,
            has_direct: false,
            has_trim: false,
            has_initialize: false,
            has_dedup: false,
            scripts: None,
            is_flat: false,
            now_secs,
            zone,
        }
    }
}

/// The output of `zpool status -x POOL` for a healthy pool; without a pool it is `all pools are
/// healthy`, if they are.
#[must_use]
pub fn healthy_line(pool: &str) -> String {
    format!("pool '{pool}' is healthy\n")
}

/// The paragraph of one pool; a front end separates them by an empty line.
#[must_use]
#[doc(alias = "status_callback")]
pub fn status(pool: &PoolStatus, request: &StatusRequest) -> String {
    let mut out = format!("  pool: {}\n state: {}\n", pool.name, pool.state_name());
    let reason = diagnose(pool, false);
    if let Some((status, action)) = reason.advice(pool) {
        let _ = write!(out, "status: {status}action: {action}");
    }
    if let Some(id) = reason.message_id() {
        let _ = writeln!(
            out,
            "   see: https://openzfs.github.io/openzfs-docs/msg/{id}"
        );
    }
    push_scans(&mut out, pool, request);
    if let Some(removal) = &pool.removal {
        push_removal(&mut out, pool, removal, request);
    }
    if let Some(expand) = &pool.expand {
        push_expand(&mut out, pool, expand, request);
    }
    if let Some(checkpoint) = &pool.checkpoint {
        push_checkpoint(&mut out, checkpoint, request);
    }
    push_config(&mut out, pool, request);
    match pool.error_count {
        None => {}
        Some(0) => out += "\nerrors: No known data errors\n",
        Some(count) if !request.is_verbose => {
            let _ = writeln!(out, "\nerrors: {count} data errors, use '-v' for a list");
        }
        Some(_) => {
            out += "\nerrors: Permanent errors have been detected in the following files:\n\n";
            for error in &pool.errors {
                let _ = writeln!(out, "        {error}");
            }
        }
    }
    if let Some(dedup) = pool.dedup.as_ref().filter(|_| request.has_dedup) {
        out += &crate::dedup::status(dedup, request.numbers == NumberStyle::Exact);
    }
    out
}

/// A scrub or an error scrub is always shown, whichever began last; of resilvers the one that goes on, or else the last
/// one.
#[doc(alias = "print_scan_status")]
fn push_scans(out: &mut String, pool: &PoolStatus, request: &StatusRequest) {
    let is_resilver = |scan: &&ScanStatus| scan.function == ScanFunction::Resilver;
    let resilver = pool.scan.as_ref().filter(is_resilver);
    let scrub = pool.scan.as_ref().filter(|scan| !is_resilver(scan));
    let scan_secs = pool.scan.as_ref().map_or(0, |scan| scan.start_secs);
    let is_last = |scrub: &&ErrorScrubStatus| scrub.start_secs >= scan_secs;
    match (scrub, pool.error_scrub.as_ref().filter(is_last)) {
        (_, Some(scrub)) => push_error_scrub(out, scrub, request),
        (Some(scrub), None) => push_scan(out, scrub, request),
        (None, None) => {}
    }
    let is_going_on = |state| state == ScanState::Scanning;
    let is_rebuilding = pool.rebuilds.iter().any(|each| is_going_on(each.state));
    let ends = pool.rebuilds.iter().map(|each| each.end_secs);
    let rebuilt_secs = ends.max().filter(|_| !is_rebuilding).unwrap_or(0);
    match resilver {
        Some(scan) if is_going_on(scan.state) => push_scan(out, scan, request),
        Some(scan) if !is_rebuilding && scan.end_secs > rebuilt_secs => {
            push_scan(out, scan, request);
        }
        _ if is_rebuilding || rebuilt_secs > 0 => {
            let rebuilds = pool.rebuilds.iter();
            rebuilds.for_each(|each| push_rebuild(out, pool, each, request));
        }
        _ => {}
    }
    if let Some(scan) = &pool.scan {
        push_scan_warning(out, scan, pool.checkpoint.as_ref());
    }
}

#[doc(alias = "print_rebuild_status_impl")]
fn push_rebuild(
    out: &mut String,
    pool: &PoolStatus,
    rebuild: &RebuildStatus,
    request: &StatusRequest,
) {
    let vdev = pool.root.children.iter().find(|top| top.id == rebuild.vdev);
    let name = vdev.map_or_else(String::new, |top| top.name(NameStyle::default()));
    let when = |secs| date_time(secs, request.zone);
    let rebuilt = nice_bytes(rebuild.rebuilt_bytes);
    let _ = match rebuild.state {
        ScanState::Finished => writeln!(
            out,
            "  scan: resilvered ({name}) {rebuilt} in {} with {} errors on {}",
            duration(rebuild.took_ms / 1000),
            rebuild.errors,
            when(rebuild.end_secs)
        ),
        ScanState::Canceled => writeln!(
            out,
            "  scan: resilver ({name}) canceled on {}",
            when(rebuild.end_secs)
        ),
        ScanState::Scanning => writeln!(
            out,
            "  scan: resilver ({name}) in progress since {}",
            when(rebuild.start_secs)
        ),
    };
    if rebuild.state != ScanState::Scanning {
        return;
    }
    let rate = |bytes: u64| bytes / (rebuild.pass_ms + 1) * 1000;
    let at_rate = |bytes: u64| match rate(bytes) {
        0 => String::new(),
        rate => format!(" at {}/s", nice_bytes(rate)),
    };
    let percent =
        rebuild.scanned_bytes as f64 * 100.0 / rebuild.total_bytes.saturating_add(1) as f64;
    let to_issue = rebuild
        .total_bytes
        .saturating_sub(rebuild.pass_skipped_bytes);
    let _ = write!(
        out,
        "\t{} / {} scanned{}, {} / {} issued{}\n\t{rebuilt} resilvered, {:.2}% done",
        nice_bytes(rebuild.scanned_bytes),
        nice_bytes(rebuild.total_bytes),
        at_rate(rebuild.pass_scanned_bytes),
        nice_bytes(rebuild.issued_bytes),
        nice_bytes(to_issue),
        at_rate(rebuild.pass_issued_bytes),
        percent.min(100.0)
    );
    let scan_rate = rate(rebuild.pass_scanned_bytes);
    let left = rebuild.total_bytes.checked_sub(rebuild.scanned_bytes);
    match left.filter(|_| scan_rate >= ESTIMATE_RATE_MIN) {
        Some(left) => {
            let _ = writeln!(out, ", {} to go", duration(left / scan_rate));
        }
        None => out.push_str(", no estimated completion time\n"),
    }
}

#[doc(alias = "print_scan_scrub_resilver_status")]
fn push_scan(out: &mut String, scan: &ScanStatus, request: &StatusRequest) {
    let when = |secs| date_time(secs, request.zone);
    let processed = nice_bytes(scan.processed_bytes);
    out.push_str("  scan: ");
    let _ = match (scan.state, scan.function) {
        (ScanState::Finished, function) => {
            let done = match function {
                ScanFunction::Scrub => format!("scrub repaired {processed}"),
                ScanFunction::Resilver => format!("resilvered {processed}"),
            };
            let took = duration(scan.end_secs.saturating_sub(scan.start_secs));
            let (errors, end) = (scan.errors, when(scan.end_secs));
            writeln!(out, "{done} in {took} with {errors} errors on {end}")
        }
        (ScanState::Canceled, ScanFunction::Scrub) => {
            writeln!(out, "scrub canceled on {}", when(scan.end_secs))
        }
        (ScanState::Canceled, ScanFunction::Resilver) => {
            writeln!(out, "resilver canceled on {}", when(scan.end_secs))
        }
        (ScanState::Scanning, ScanFunction::Resilver) => {
            writeln!(out, "resilver in progress since {}", when(scan.start_secs))
        }
        (ScanState::Scanning, ScanFunction::Scrub) => match scan.paused_secs {
            None => writeln!(out, "scrub in progress since {}", when(scan.start_secs)),
            Some(paused) => writeln!(
                out,
                "scrub paused since {}\n\tscrub started on {}",
                when(paused),
                when(scan.start_secs)
            ),
        },
    };
    if scan.state == ScanState::Scanning {
        push_scan_progress(out, scan, request.now_secs);
    }
}

#[doc(alias = "print_err_scrub_status")]
fn push_error_scrub(out: &mut String, scrub: &ErrorScrubStatus, request: &StatusRequest) {
    let when = |secs| date_time(secs, request.zone);
    let examined = scrub.examined;
    out.push_str(" scrub: ");
    let _ = match (scrub.state, scrub.paused_secs) {
        (ScanState::Finished, _) => {
            let took = scrub.end_secs.saturating_sub(scrub.start_secs);
            let (minutes, secs) = (took / 60, took % 60);
            let (hours, minutes) = (minutes / 60, minutes % 60);
            writeln!(
                out,
                "scrubbed {examined} error blocks in {} days {:02}:{minutes:02}:{secs:02} on {}",
                hours / 24,
                hours % 24,
                when(scrub.end_secs)
            )
        }
        (ScanState::Canceled, _) => {
            writeln!(out, "error scrub canceled on {}", when(scrub.end_secs))
        }
        (ScanState::Scanning, None) => {
            let start = when(scrub.start_secs);
            writeln!(out, "error scrub in progress since {start}")
        }
        (ScanState::Scanning, Some(paused)) => writeln!(
            out,
            "error scrub paused since {}\n\terror scrub started on {}",
            when(paused),
            when(scrub.start_secs)
        ),
    };
    if scrub.state == ScanState::Scanning {
        let all = scrub.left.saturating_add(examined).max(1);
        let percent = 100.0 * examined as f64 / all as f64;
        let _ = writeln!(
            out,
            "\t{percent:.2}% done, issued I/O for {examined} error blocks"
        );
    }
}

/// What only a checkpoint refers to is not scanned.
#[doc(alias = "print_checkpoint_scan_warning")]
fn push_scan_warning(out: &mut String, scan: &ScanStatus, checkpoint: Option<&CheckpointStatus>) {
    let Some(checkpoint) = checkpoint.filter(|checkpoint| !checkpoint.is_discarding) else {
        return;
    };
    let is_going_on = scan.state == ScanState::Scanning;
    if is_going_on || scan.end_secs >= checkpoint.start_secs {
        let verb = if is_going_on { "skipping" } else { "skipped" };
        let _ = writeln!(
            out,
            "    scan warning: {verb} blocks that are only referenced by the checkpoint."
        );
    }
}

fn push_scan_progress(out: &mut String, scan: &ScanStatus, now_secs: u64) {
    let total_issued = scan.total_bytes.saturating_sub(scan.skipped_bytes);
    let elapsed = now_secs
        .saturating_sub(scan.pass_start_secs + scan.pass_paused_secs)
        .max(1);
    let is_paused = scan.paused_secs.is_some();
    let at_rate = |bytes: u64| match bytes / elapsed {
        rate if rate > 0 && !is_paused => format!(" at {}/s", nice_bytes(rate)),
        _ => String::new(),
    };
    let percent = 100.0 * scan.issued_bytes as f64 / total_issued.max(1) as f64;
    let what = match scan.function {
        ScanFunction::Scrub => "repaired",
        ScanFunction::Resilver => "resilvered",
    };
    let _ = writeln!(
        out,
        "\t{} / {} scanned{}, {} / {} issued{}",
        nice_bytes(scan.examined_bytes),
        nice_bytes(scan.total_bytes),
        at_rate(scan.pass_examined_bytes),
        nice_bytes(scan.issued_bytes),
        nice_bytes(total_issued),
        at_rate(scan.pass_issued_bytes),
    );
    let _ = write!(
        out,
        "\t{} {what}, {percent:.2}% done",
        nice_bytes(scan.processed_bytes)
    );
    if is_paused {
        out.push('\n');
        return;
    }
    let rate = scan.pass_issued_bytes / elapsed;
    let has_begun = match scan.function {
        ScanFunction::Scrub => scan.issued_bytes > 0,
        ScanFunction::Resilver => scan.processed_bytes > 0,
    };
    let left = total_issued.checked_sub(scan.issued_bytes);
    match left.filter(|_| has_begun && rate >= ESTIMATE_RATE_MIN) {
        Some(left) => {
            let _ = writeln!(out, ", {} to go", duration(left / rate));
        }
        None => out.push_str(", no estimated completion time\n"),
    }
}

#[doc(alias = "print_removal_status")]
fn push_removal(
    out: &mut String,
    pool: &PoolStatus,
    removal: &RemovalStatus,
    request: &StatusRequest,
) {
    let when = |secs| date_time(secs, request.zone);
    let vdev = pool.root.children.iter().find(|top| top.id == removal.vdev);
    let name = vdev.map_or_else(String::new, |top| top.name(request.names));
    out.push_str("remove: ");
    let _ = match removal.state {
        ScanState::Finished => {
            let minutes = removal.end_secs.saturating_sub(removal.start_secs) / 60;
            writeln!(
                out,
                "Removal of vdev {} copied {} in {}h{}m, completed on {}",
                removal.vdev,
                nice_number(removal.copied_bytes),
                minutes / 60,
                minutes % 60,
                when(removal.end_secs)
            )
        }
        ScanState::Canceled => {
            writeln!(
                out,
                "Removal of {name} canceled on {}",
                when(removal.end_secs)
            )
        }
        ScanState::Scanning => {
            let _ = writeln!(
                out,
                "Evacuation of {name} in progress since {}",
                when(removal.start_secs)
            );
            push_removal_progress(out, removal, request.now_secs)
        }
    };
    if removal.mapping_bytes > 0 {
        let memory = nice_number(removal.mapping_bytes);
        let _ = writeln!(out, "\t{memory} memory used for removed device mappings");
    }
}

fn push_removal_progress(
    out: &mut String,
    removal: &RemovalStatus,
    now_secs: u64,
) -> std::fmt::Result {
    let copied = removal.copied_bytes.max(1);
    let elapsed = now_secs.saturating_sub(removal.start_secs).max(1);
    let rate = (copied / elapsed).max(1);
    let minutes = removal.total_bytes.saturating_sub(copied) / rate / 60;
    write!(
        out,
        "\t{} copied out of {} at {}/s, {:.2}% done",
        nice_number(copied),
        nice_number(removal.total_bytes),
        nice_number(rate),
        100.0 * copied as f64 / removal.total_bytes.max(1) as f64
    )?;
    if minutes / 60 < 30 * 24 {
        writeln!(out, ", {}h{}m to go", minutes / 60, minutes % 60)
    } else {
        writeln!(out, ", (copy is slow, no estimated time)")
    }
}

#[doc(alias = "print_raidz_expand_status")]
fn push_expand(
    out: &mut String,
    pool: &PoolStatus,
    expand: &ExpandStatus,
    request: &StatusRequest,
) {
    let vdev = pool.root.children.iter().find(|top| top.id == expand.vdev);
    let names = NameStyle {
        has_id: false,
        ..request.names
    };
    let name = vdev.map_or_else(String::new, |top| top.name(names));
    let copied = nice_number(expand.copied_bytes);
    if expand.state == ScanState::Finished {
        let _ = writeln!(
            out,
            "expand: expanded {name}-{} copied {copied} in {}, on {}",
            expand.vdev,
            duration(expand.end_secs.saturating_sub(expand.start_secs)),
            date_time(expand.end_secs, request.zone)
        );
        return;
    }
    let bytes = expand.copied_bytes.max(1);
    let elapsed = request.now_secs.saturating_sub(expand.start_secs).max(1);
    let rate = (bytes / elapsed).max(1);
    let left_secs = expand.total_bytes.saturating_sub(bytes) / rate;
    let _ = write!(
        out,
        "expand: expansion of {name}-{} in progress since {}\n\t{} / {} copied at {}/s, {:.2}% done",
        expand.vdev,
        date_time(expand.start_secs, request.zone),
        nice_number(bytes),
        nice_number(expand.total_bytes),
        nice_number(rate),
        100.0 * bytes as f64 / expand.total_bytes.max(1) as f64
    );
    let _ = if expand.waits_for_resilver {
        writeln!(out, ", paused for resilver or clear")
    } else if left_secs < 30 * 24 * 3600 {
        writeln!(out, ", {} to go", duration(left_secs))
    } else {
        writeln!(out, ", (copy is slow, no estimated time)")
    };
}

fn push_checkpoint(out: &mut String, checkpoint: &CheckpointStatus, request: &StatusRequest) {
    let bytes = nice_number(checkpoint.bytes);
    let _ = if checkpoint.is_discarding {
        writeln!(out, "checkpoint: discarding, {bytes} remaining.")
    } else {
        let start = date_time(checkpoint.start_secs, request.zone);
        writeln!(out, "checkpoint: created {start}, consumes {bytes}")
    };
}

/// The layout of the table of vdevs.
struct Table<'a> {
    request: &'a StatusRequest,
    pool: &'a PoolStatus,
    name_width: usize,
}

fn push_config(out: &mut String, pool: &PoolStatus, request: &StatusRequest) {
    let name_width = pool.name_width(request.names).max(10);
    let table = Table {
        request,
        pool,
        name_width,
    };
    let _ = write!(
        out,
        "config:\n\n\t{:<name_width$}  {:<8} {:>5} {:>5} {:>5}",
        "NAME", "STATE", "READ", "WRITE", "CKSUM"
    );
    for (is_shown, header) in [(request.has_slow, "SLOW"), (request.has_direct, "DIO")] {
        if is_shown {
            let _ = write!(out, " {header:>5}");
        }
    }
    out.push_str(
        &request
            .scripts
            .as_ref()
            .map_or_else(String::new, ScriptOutput::titles),
    );
    out.push('\n');
    table.push_line(out, &pool.root, &pool.name, 0, false);
    for top in pool.tops(AllocClass::Normal) {
        table.push_vdev(out, top, 2, false);
    }
    for class in CLASSES {
        let mut tops = pool
            .tops(class)
            .filter(|top| top.kind != VdevKind::Indirect)
            .peekable();
        if tops.peek().is_some() {
            let _ = writeln!(out, "\t{}\t", heading(class));
        }
        tops.for_each(|top| table.push_vdev(out, top, 2, false));
    }
    for (heading, vdevs, is_spare) in [
        ("cache", &pool.cache, false),
        ("spares", &pool.spares, true),
    ] {
        if !vdevs.is_empty() {
            let _ = writeln!(out, "\t{heading}");
        }
        vdevs
            .iter()
            .for_each(|vdev| table.push_vdev(out, vdev, 2, is_spare));
    }
}

impl Table<'_> {
    #[doc(alias = "print_status_config")]
    fn push_vdev(&self, out: &mut String, vdev: &VdevStatus, depth: usize, is_spare: bool) {
        let is_hidden = vdev.kind == VdevKind::Indirect
            || self.request.only_unhealthy && !vdev.is_unhealthy(self.request.has_slow);
        if is_hidden {
            return;
        }
        self.push_line(out, vdev, &vdev.name(self.request.names), depth, is_spare);
        for child in &vdev.children {
            self.push_vdev(out, child, depth + 2, is_spare);
        }
    }

    fn push_line(
        &self,
        out: &mut String,
        vdev: &VdevStatus,
        name: &str,
        depth: usize,
        is_spare: bool,
    ) {
        let state = if is_spare {
            vdev.spare_state_name()
        } else {
            vdev.state_name()
        };
        let width = self.name_width.saturating_sub(depth);
        let _ = write!(out, "\t{:depth$}{name:<width$}  {state:<8}", "");
        if !is_spare {
            self.push_errors(out, vdev);
        }
        self.push_remarks(out, vdev, is_spare);
        out.push('\n');
    }

    fn push_errors(&self, out: &mut String, vdev: &VdevStatus) {
        let count = |number| self.request.numbers.number(number);
        for errors in [vdev.read_errors, vdev.write_errors, vdev.checksum_errors] {
            let _ = write!(out, " {:>5}", count(errors));
        }
        if self.request.has_slow {
            let is_leaf = vdev.is_leaf() && vdev.kind != VdevKind::Root;
            let slow = if is_leaf {
                count(vdev.slow_ios)
            } else {
                "-".to_owned()
            };
            let _ = write!(out, " {slow:>5}");
        }
        if self.request.has_direct {
            let _ = write!(out, " {:>5}", count(vdev.direct_errors));
        }
    }

    fn push_remarks(&self, out: &mut String, vdev: &VdevStatus, is_spare: bool) {
        let is_coarse = vdev.configured_ashift < vdev.physical_ashift;
        if vdev.is_not_present {
            let _ = write!(out, "  was {}", vdev.path.as_deref().unwrap_or(""));
        } else if let Some(pool) = &vdev.used_by {
            let _ = write!(out, "  in use by pool '{pool}'");
        } else if vdev.aux != VdevAux::None {
            let _ = write!(out, "  {}", vdev.aux_text());
        } else if vdev.is_leaf() && !is_spare && is_coarse {
            let (have, native) = (1u64 << vdev.configured_ashift, 1u64 << vdev.physical_ashift);
            let _ = write!(out, "  block size: {have}B configured, {native}B native");
        }
        if vdev.is_removing {
            out.push_str("  (removing)");
        } else if vdev.is_noalloc {
            out.push_str("  (non-allocating)");
        }
        self.push_scan(out, vdev);
        if let Some(scripts) = &self.request.scripts {
            *out += &scripts.row(&self.pool.name, vdev);
        }
        if vdev.is_leaf() && vdev.kind != VdevKind::Root {
            self.push_activities(out, vdev);
        }
    }

    /// What a running scan does to a device.
    fn push_scan(&self, out: &mut String, vdev: &VdevStatus) {
        if !vdev.is_leaf() {
            return;
        }
        let scan = self
            .pool
            .scan
            .filter(|scan| scan.state == ScanState::Scanning);
        match scan.filter(|_| vdev.scanned_bytes > 0) {
            _ if vdev.state != VdevState::Healthy => {}
            Some(scan) if scan.function == ScanFunction::Resilver => {
                out.push_str("  (resilvering)");
            }
            Some(_) => out.push_str("  (repairing)"),
            None if vdev.rebuilt_bytes > 0 => out.push_str("  (resilvering)"),
            None if vdev.is_resilver_deferred => out.push_str("  (awaiting resilver)"),
            None => {}
        }
    }

    fn push_activities(&self, out: &mut String, vdev: &VdevStatus) {
        let is_shown = |done: &Activity| !vdev.is_removing && done.state != ActivityState::Canceled;
        let initialize = match (&vdev.initialize, self.request.has_initialize) {
            (Some(done), true) if is_shown(done) => self.progress(done, "initialized"),
            (_, true) => "  (uninitialized)".to_owned(),
            (Some(done), false) if done.state == ActivityState::Active => {
                "  (initializing)".to_owned()
            }
            _ => String::new(),
        };
        let trim = match (&vdev.trim, self.request.has_trim) {
            (Some(done), true) if is_shown(done) => self.progress(done, "trimmed"),
            (_, true) if vdev.is_trim_unsupported => "  (trim unsupported)".to_owned(),
            (_, true) => "  (untrimmed)".to_owned(),
            (Some(done), false) if done.state == ActivityState::Active => "  (trimming)".to_owned(),
            _ => String::new(),
        };
        *out += &initialize;
        *out += &trim;
    }

    fn progress(&self, activity: &Activity, what: &str) -> String {
        let since = date_time(activity.since_secs, self.request.zone);
        let (percent, words) = match activity.state {
            ActivityState::Complete => (100, "completed at"),
            ActivityState::Active | ActivityState::Canceled => (percent_of(activity), "started at"),
            ActivityState::Suspended => (percent_of(activity), "suspended, started at"),
        };
        format!("  ({percent}% {what}, {words} {since})")
    }
}

fn percent_of(activity: &Activity) -> u64 {
    activity.done_bytes.saturating_mul(100) / activity.estimate_bytes.saturating_add(1)
}
