//! `zdb -h`: the pool's history.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_history`).

use std::io::Write;

use admin::number::history_time;
use base::Result;
use nvpair::{NvList, NvValue};

use super::pool::Pool;
use super::request::Request;
use super::text::Printer;

/// `zfs_history_event_names`: events of pools before version 5000.
const LEGACY_EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// `zdb -h`.
pub(super) fn run(request: &Request, out: &mut Printer, pool: &Pool) -> Result<()> {
    // All of it or nothing.
    if let Err(error) = pool.for_each_record(&mut |_| Ok(())) {
        out.flush()?;
        eprintln!("Unable to read history: {error}");
        return Ok(());
    }
    writeln!(out, "\nHistory:")?;
    pool.for_each_record(&mut |record| {
        let line = line(&record.0);
        match &line {
            Some(text) => write!(out, "{text}")?,
            None if request.level('h') > 1 => writeln!(out, "unrecognized record:")?,
            None => {}
        }
        if request.level('h') > 1 {
            write!(out, "{}", record.0.dump(2))?;
        }
        Ok(())
    })
}

/// A record as text; `None` for one of an unknown kind.
fn line(record: &NvList) -> Option<String> {
    let when = record.get_u64("history time");
    let when = when.map_or_else(String::new, |t| history_time(t, crate::zone::local()));
    let text = |key: &str| record.get_str(key).unwrap_or("");
    let txg = record.get_u64("history txg").unwrap_or(0);
    if let Some(command) = record.get_str("history command") {
        return Some(format!("{when} {command}\n"));
    }
    if let Some(event) = record.get_u64("history internal event") {
        let name = LEGACY_EVENTS.get(usize::try_from(event).ok()?)?;
        let detail = text("history internal str");
        return Some(format!(" {when} [internal {name} txg:{txg}] {detail}\n"));
    }
    if let Some(name) = record.get_str("internal_name") {
        let dataset = record.get_str("dsname").map_or_else(String::new, |name| {
            format!(" {name} ({})", record.get_u64("dsid").unwrap_or(0))
        });
        let detail = text("history internal str");
        return Some(format!("{when} [txg:{txg}] {name}{dataset} {detail}\n"));
    }
    let call = record.get_str("ioctl")?;
    let mut out = format!("{when} ioctl {call}\n");
    for (key, title) in [("in_nvl", "input"), ("out_nvl", "output")] {
        if let Some(list) = record.get_list(key) {
            out += &format!("    {title}:\n{}", list.dump(8));
        }
    }
    if let Some(NvValue::Int64(number)) = record.get("errno") {
        out += &format!("    errno: {number}\n");
    }
    Some(out)
}
