//! `zpool list`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_list`).

use admin::getopt::Parsed;
use admin::listing::{GetRequest, Item, JsonStyle, Style, default_columns, list as print_list};
use admin::number::{NumberStyle, date_time};
use admin::pool::{NameStyle, PoolStatus, list_verbose, pools_json};
use admin::prop::{PropName, TableKind, parse_list};
use phys::feature::FEATURES;
use service::Session;

use super::{Fail, Outcome, zone};
use crate::failure;

/// The interval and count of repeated output.
pub(super) struct Repeat {
    pub(super) secs: f64,
    pub(super) count: Option<u64>,
}

/// Splits pools from `interval [count]` at the end.
pub(super) fn split_repeat(operands: &[String]) -> Result<(Vec<String>, Option<Repeat>), Fail> {
    let mut pools = operands.to_vec();
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let number = |word: Option<&String>| word.filter(|w| w.chars().all(is_digit))?.parse().ok();
    let Some(last): Option<f64> = number(pools.last()) else {
        return Ok((pools, None));
    };
    if last <= 0.0 {
        return Err(Fail::Usage("interval cannot be zero".into()));
    }
    pools.pop();
    let mut repeat = Repeat {
        secs: last,
        count: None,
    };
    if let Some(interval) = number(pools.last()) {
        pools.pop();
        repeat = Repeat {
            secs: interval,
            count: Some(last as u64),
        };
    }
    if repeat.secs <= 0.0 {
        return Err(Fail::Usage("interval cannot be zero".into()));
    }
    // A count below 1 is none.
    repeat.count = repeat.count.filter(|count| *count > 0);
    Ok((pools, Some(repeat)))
}

/// Prints once or repeatedly; `print` is told whether it is the first time.
pub(super) fn repeat(
    args: &Parsed,
    repeat: Option<&Repeat>,
    mut print: impl FnMut(bool) -> Outcome<u8>,
) -> Outcome {
    let stamp = stamp(args)?;
    let mut rounds = 0;
    loop {
        if let Some(is_date) = stamp {
            println!("{}", time_stamp(is_date));
        }
        let code = print(rounds == 0)?;
        rounds += 1;
        let Some(repeat) = repeat else {
            return Fail::exit(code);
        };
        if repeat.count.is_some_and(|count| rounds >= count) {
            return Fail::exit(code);
        }
        crate::caller::sleep_ns((repeat.secs * 1e9) as u64);
    }
}

/// `-T`: whether the time stamp is a date; `None` if none is wanted.
pub(super) fn stamp(args: &Parsed) -> Result<Option<bool>, Fail> {
    match args.value('T') {
        None => Ok(None),
        Some("u") => Ok(Some(false)),
        Some("d") => Ok(Some(true)),
        Some(_) => Err(Fail::Usage(String::new())),
    }
}

/// The time, as a date or in seconds.
pub(super) fn time_stamp(is_date: bool) -> String {
    let now = rt::wall_clock().secs;
    if !is_date {
        return now.to_string();
    }
    let text = date_time(now, zone());
    let (start, year) = text.split_at(text.len() - 4);
    format!("{start}UTC {year}")
}

/// The names of the pools to show: those given, each once, or all.
pub(super) fn pool_names(session: &Session, given: &[String]) -> base::Result<Vec<String>> {
    if given.is_empty() {
        return session.pools().names();
    }
    let mut names: Vec<String> = Vec::new();
    for name in given {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// What `read` returns of the pools given, or of all; and whether any of them failed, which is reported.
pub(super) fn gather<T>(
    session: &Session,
    given: &[String],
    read: impl Fn(&Session, &str) -> service::Outcome<T>,
) -> Result<(Vec<T>, bool), Fail> {
    let (mut found, mut has_failed) = (Vec::new(), false);
    for name in pool_names(session, given)? {
        match read(session, &name) {
            Ok(pool) => found.push(pool),
            Err(_) if given.is_empty() && !session.pools().is_imported(&name)? => {} // exported meanwhile
            Err(failure) => {
                eprintln!("{}", failure::text(&failure));
                has_failed = true;
            }
        }
    }
    Ok((found, has_failed))
}

/// The exit code for pools given more than once: each is shown once, and that is an error.
pub(super) fn repeated_code(given: &[String]) -> u8 {
    let mut seen = std::collections::BTreeSet::new();
    u8::from(!given.iter().all(|name| seen.insert(name)))
}

/// The style of vdev names: in a machine as on FreeBSD.
pub(crate) fn name_style() -> NameStyle {
    NameStyle {
        is_below_dev: crate::world::is_machine(),
        ..NameStyle::default()
    }
}

/// The styles of numbers, names and JSON.
pub(super) fn styles(args: &Parsed) -> (Style, NameStyle, JsonStyle) {
    let numbers = if args.has('p') {
        NumberStyle::Exact
    } else {
        NumberStyle::Nice
    };
    let style = Style {
        is_scripted: args.has('H'),
        numbers,
        zone: zone(),
        ..Style::new(TableKind::Pool)
    };
    let names = NameStyle {
        is_guid: args.has('g'),
        is_full_path: args.has('P') || args.has('L'),
        ..name_style()
    };
    let json = JsonStyle {
        has_numbers: args.has_long("json-int"),
        has_guid_keys: args.has_long("json-pool-key-guid"),
    };
    (style, names, json)
}

/// `zpool list`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let columns = match args.value('o') {
        None => default_columns(TableKind::Pool),
        Some(text) => parse_list(TableKind::Pool, text)
            .map_err(Fail::Usage)?
            .unwrap_or_else(all_columns),
    };
    let (given, interval) = split_repeat(&args.operands)?;
    repeat(args, interval.as_ref(), |is_first| {
        print_once(session, args, &given, &columns, is_first)
    })
}

fn all_columns() -> Vec<PropName> {
    let table = admin::prop::all_properties(TableKind::Pool);
    let name = std::iter::once(PropName::Native("name"));
    let features = FEATURES.iter().filter(|feature| feature.is_in_2_3());
    name.chain(table.iter().map(|d| PropName::Native(d.name)))
        .chain(features.map(|f| PropName::Other(format!("feature@{}", f.name))))
        .collect()
}

fn print_once(
    session: &Session,
    args: &Parsed,
    given: &[String],
    columns: &[PropName],
    is_first: bool,
) -> Outcome<u8> {
    let (style, names, json) = styles(args);
    let (pools, has_failed) = gather(session, given, Session::listed)?;
    let refs: Vec<(Item, &PoolStatus)> = pools.iter().map(|(i, s)| (i.clone(), s)).collect();
    let text = if pools.is_empty() && !given.is_empty() {
        return Ok(1);
    } else if pools.is_empty() {
        if !has_failed && !args.has('H') && !args.has('j') {
            println!("no pools available");
        }
        return Ok(u8::from(has_failed));
    } else if args.has('j') {
        let request = GetRequest::new(Some(columns.to_vec()));
        let vdevs = args.has('v').then_some(names);
        pools_json("zpool list", &style, json, &request, &refs, vdevs)
    } else if args.has('v') {
        list_verbose(&style, columns, &refs, names)
    } else {
        let items: Vec<Item> = pools.iter().map(|(item, _)| item.clone()).collect();
        let text = print_list(&style, columns, &items);
        // The header is printed only once, but that of `-v` each time.
        let rest = text
            .split_once('\n')
            .filter(|_| !is_first && !args.has('H'));
        rest.map_or(text.clone(), |(_, rest)| rest.to_owned())
    };
    print!("{text}");
    // As in OpenZFS, a missing pool is not an error if another one that was named exists.
    Ok(u8::from(has_failed && given.is_empty()))
}
