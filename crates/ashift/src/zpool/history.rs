//! `zpool history`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`print_history_records`), module/zfs/spa_history.c (the names in
//! records).

use std::fmt::Write as _;

use admin::getopt::Parsed;
use admin::number::history_time;
use nvpair::NvList;
use service::{Access, Session};
use spa::history::key;

use super::list::{pool_names, repeated_code};
use super::{Fail, Outcome, open_error, zone};

/// `zpool history`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let mut code = repeated_code(&args.operands);
    for name in pool_names(session, &args.operands)? {
        let pool = match session.open(&name, Access::Read) {
            Ok(pool) => pool,
            Err(error) => {
                if let Fail::Failed(text) = open_error(&name, &error) {
                    eprintln!("{text}");
                }
                code = 1;
                continue;
            }
        };
        println!("History for '{name}':");
        pool.for_each_record(&mut |record| {
            if let Some(line) = line(&record.0, args.has('i'), args.has('l')) {
                println!("{line}");
            }
            Ok(())
        })?;
        println!();
    }
    Fail::exit(code)
}

/// The line for a record; `None` if it is not to be shown.
fn line(record: &NvList, internal: bool, long: bool) -> Option<String> {
    let time = record.get_u64(key::TIME).unwrap_or(0);
    let mut out = history_time(time, zone());
    if let Some(command) = record.get_str(key::COMMAND) {
        let _ = write!(out, " {command}");
    } else if !internal {
        return None;
    } else if let Some(name) = record.get_str(key::INTERNAL_NAME) {
        let txg = record.get_u64(key::TXG).unwrap_or(0);
        let _ = write!(out, " [txg:{txg}] {name}");
        if let Some(dataset) = record.get_str(key::DATASET) {
            let _ = write!(
                out,
                " {dataset} ({})",
                record.get_u64(key::DATASET_ID).unwrap_or(0)
            );
        }
        let text = record.get_str(key::INTERNAL_TEXT).unwrap_or_default();
        let _ = write!(out, " {text}");
    } else if let Some(name) = record.get_str(key::IOCTL) {
        let _ = write!(out, " ioctl {name}");
    } else {
        let _ = write!(out, " unrecognized record");
    }
    if long {
        out.push_str(&who(record));
    }
    Some(out)
}

fn who(record: &NvList) -> String {
    let mut parts = Vec::new();
    if let Some(uid) = record.get_u64(key::WHO) {
        let name = if uid == 0 {
            " (root)".to_owned()
        } else {
            String::new()
        };
        parts.push(format!("user {uid}{name}"));
    }
    if let Some(host) = record.get_str(key::HOST) {
        let zone = record.get_str(key::ZONE);
        let zone = zone.map_or_else(String::new, |zone| format!(":{zone}"));
        parts.push(format!("on {host}{zone}"));
    }
    if parts.is_empty() {
        String::new()
    } else {
        format!(" [{}]", parts.join(" "))
    }
}
