//! `zpool scrub`, and bringing devices up to date that were away.
//!
//! # What it is
//! There is no daemon that could scrub in the background: the command reads every copy of every block,
//! repairs what can be repaired, and ends when it is done. What it found is kept in the pool (as the
//! kernel keeps it) and, device by device, below the state folder until `zpool clear` or export.
//!
//! # Source
//! OpenZFS module/zfs/dsl_scan.c, cmd/zpool/zpool_main.c (`zpool_do_scrub`).

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::number::{duration, nice_bytes};
use base::{Context, Guid, VdevId};
use check::{Finding, Report};
use phys::ScanPhys;
use spa::Spa;
use zio::AllocClass;

use super::errors::{keep_scrubbed, kept_errors};
use super::list::{pool_names, repeated_code};
use super::{Failure, Outcome, command_line, open_error, refuse_options};
use crate::host::{Access, Host, OpenPool};
use crate::progress::progress;

/// `POOL_SCAN_SCRUB`, `POOL_SCAN_RESILVER`; `DSS_FINISHED`
const SCRUB: u64 = 1;
const RESILVER: u64 = 2;
const FINISHED: u64 = 2;

/// `zpool scrub`.
pub(super) fn run(args: &Parsed) -> Outcome {
    refuse_options(args, "scrub", "spC")?;
    if args.operands.is_empty() {
        return Err(Failure::Usage("missing pool name argument".into()));
    }
    if args.has('e') && args.has('t') {
        return Err(Failure::Usage(
            "invalid option combination: -e and -t are mutually exclusive".into(),
        ));
    }
    let host = Host::here();
    let mut code = repeated_code(&args.operands);
    for name in &pool_names(&host, &args.operands)? {
        let outcome = if args.has('e') {
            scrub_errors(&host, name)
        } else {
            scrub(&host, name, args.has('t'))
        };
        match outcome {
            Ok(found) => code |= found,
            Err(Failure::Text(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(code)
}

/// `zpool scrub`; a thorough one (`-t`) decompresses each block as well.
fn scrub(host: &Host, name: &str, is_thorough: bool) -> Outcome {
    let pool = open_to_scrub(host, name)?;
    let options = check::Options {
        decompress: is_thorough,
        ..check::Options::default()
    };
    let (report, scan) = scan(&pool, SCRUB, options)?;
    keep_errors(host, &pool, &report)?;
    tell(&report, || {
        let secs = scan.end_time.get() - scan.start_time.get();
        format!(
            "scrub repaired {} in {} with {} errors",
            nice_bytes(scan.processed.get()),
            duration(secs),
            scan.errors.get()
        )
    });
    close_scrubbed(&pool, &report)
}

fn open_to_scrub(host: &Host, name: &str) -> Result<OpenPool, Failure> {
    let pool = host
        .open(name, Access::Write)
        .map_err(|e| open_error(name, &e))?;
    pool.check_writable()
        .map_err(|_| format!("cannot scrub {name}: pool is read-only"))?;
    Ok(pool)
}

/// Says what a scrub came to, and each thing that it found; nothing into a pipe or file when all is
/// well, as OpenZFS's command says nothing.
fn tell(report: &Report, outcome: impl FnOnce() -> String) {
    if !report.findings.is_empty() || std::io::stdout().is_terminal() {
        println!("{}", outcome());
    }
    for finding in &report.findings {
        println!("  {finding}");
    }
}

fn close_scrubbed(pool: &OpenPool, report: &Report) -> Outcome {
    pool.log_command(&command_line())?;
    pool.sync()?;
    pool.close()?;
    Ok(u8::from(!report.is_clean()))
}

/// `zpool scrub -e`: only what is known to be damaged is read again.
fn scrub_errors(host: &Host, name: &str) -> Outcome {
    let pool = open_to_scrub(host, name)?;
    let kept = kept_errors(host, pool.guid());
    let objects = kept.objects();
    if objects.is_empty() {
        return Ok(0);
    }
    let (count, healed) = (objects.len(), healed_bytes(&pool));
    let options = check::Options {
        only: Some(Arc::new(objects)),
        leaks: false,
        ..check::Options::default()
    };
    let report = verify(&pool, options).within(|| name.to_owned())?;
    keep_errors(host, &pool, &report)?;
    tell(&report, || {
        format!(
            "scrubbed {count} damaged {}, repaired {}, with {} errors",
            if count == 1 { "object" } else { "objects" },
            nice_bytes(healed_bytes(&pool).saturating_sub(healed)),
            report.findings.iter().filter(|f| is_loss(f)).count()
        )
    });
    close_scrubbed(&pool, &report)
}

/// Whether a device of the pool lacks something that another one has.
pub(crate) fn needs_resilver(spa: &Spa) -> bool {
    spa.tree()
        .devices()
        .iter()
        .any(|d| d.leaf().is_usable() && d.leaf().has_dtl())
}

/// Reads everything and writes what devices lack that were away.
pub(crate) fn catch_up(spa: &Spa) -> base::Result<()> {
    scan(spa, RESILVER, check::Options::default()).map(|_| ())
}

/// The top-level vdevs as the checker wants them.
pub(crate) fn tops(spa: &Spa) -> Vec<check::TopVdev> {
    let tops = spa.tree().tops();
    let tops = tops.iter().enumerate().map(|(i, top)| {
        let config = top.config();
        check::TopVdev {
            id: VdevId(i as u64),
            ashift: config.ashift,
            ms_shift: config.ms_shift,
            ms_count: top.metaslab_count(),
            class: AllocClass::Normal,
            metaslab_array: base::ObjectId(config.ms_array),
            top_zap: (config.top_zap != 0).then_some(base::ObjectId(config.top_zap)),
            is_concrete: top.kind().is_concrete(),
        }
    });
    tops.collect()
}

/// Verifies every copy of every block of an open pool, and repairs if it may be written to.
pub(crate) fn verify(spa: &Spa, options: check::Options) -> base::Result<Report> {
    let pool = check::Pool::new(spa.pipeline().clone(), &spa.uberblock(), tops(spa));
    let bar = progress(None, true);
    let shown = bar.clone();
    let options = check::Options {
        progress: Some(Arc::new(move |p: &check::Progress| {
            shown.set_length(p.allocated_bytes);
            shown.set_position(p.verified_bytes);
        })),
        ..options
    };
    let report = check::verify(&pool, &options);
    bar.finish_and_clear();
    report
}

fn scan(spa: &Spa, function: u64, options: check::Options) -> base::Result<(Report, ScanPhys)> {
    spa.sync()?;
    let stale: BTreeSet<Guid> = stale_devices(spa);
    let txg = spa.uberblock().txg();
    let start = rt::wall_clock().secs;
    let healed = healed_bytes(spa);
    let report = verify(spa, options).within(|| spa.name())?;
    let errors = report.findings.iter().filter(|f| is_loss(f)).count() as u64;
    let mut scan = ScanPhys::default();
    scan.func.set(function);
    scan.state.set(FINISHED);
    scan.max_txg.set(txg.0);
    scan.cur_max_txg.set(txg.0);
    scan.start_time.set(start);
    scan.end_time.set(rt::wall_clock().secs);
    let bytes = report.progress.verified_bytes;
    scan.to_examine.set(report.allocated_bytes().max(bytes));
    scan.examined.set(bytes);
    scan.processed.set(healed_bytes(spa).saturating_sub(healed));
    scan.errors.set(errors);
    // What could not be repaired is still missing somewhere.
    let complete: Vec<Guid> = if errors == 0 && !has_unrepaired(&report) {
        stale.into_iter().collect()
    } else {
        Vec::new()
    };
    spa.record_scan(scan, &complete, txg)?;
    Ok((report, scan))
}

fn stale_devices(spa: &Spa) -> BTreeSet<Guid> {
    let devices = spa.tree().devices();
    let stale = devices
        .iter()
        .filter(|d| d.leaf().is_usable() && d.leaf().has_dtl());
    stale.map(|d| d.guid()).collect()
}

fn healed_bytes(spa: &Spa) -> u64 {
    spa.tree().root().total_stats().self_healed_bytes
}

fn is_loss(finding: &Finding) -> bool {
    matches!(
        finding,
        Finding::Unreadable { .. } | Finding::BadPointer { .. }
    )
}

fn has_unrepaired(report: &Report) -> bool {
    let is_unrepaired = |f: &Finding| match f {
        Finding::DamagedCopies { bad, repaired, .. } => repaired < bad,
        _ => false,
    };
    report.findings.iter().any(is_unrepaired)
}

/// Keeps what a scrub has found.
fn keep_errors(host: &Host, pool: &Spa, report: &Report) -> base::Result<()> {
    let damaged = report.findings.iter().filter(|f| is_loss(f));
    let damaged = damaged.filter_map(Finding::bookmark).collect();
    keep_scrubbed(host, pool, damaged)
}
