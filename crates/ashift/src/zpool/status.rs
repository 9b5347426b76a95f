//! `zpool status`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_status`), lib/libzfs/libzfs_status.c.

use admin::getopt::Parsed;
use admin::number::NumberStyle;
use admin::pool::{
    PoolStatus, StatusRequest, diagnose, healthy_line, status as print_status, status_json,
};
use service::Session;

use super::list::{gather, repeat, repeated_code, split_repeat, styles};
use super::{Outcome, check_json_options, refuse_power, script, zone};

/// `zpool status`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let scripts = script::wanted(args)?;
    refuse_power(args, "status")?;
    let (given, interval) = split_repeat(&args.operands)?;
    check_json_options(args)?;
    repeat(args, interval.as_ref(), |is_first| {
        if !is_first {
            println!();
        }
        print_once(session, args, &given, scripts)
    })
}

fn request(args: &Parsed) -> StatusRequest {
    let (_, names, _) = styles(args);
    let numbers = if args.has('p') {
        NumberStyle::Exact
    } else {
        NumberStyle::Nice
    };
    StatusRequest {
        names,
        numbers,
        is_verbose: args.has('v'),
        only_unhealthy: args.has('e'),
        has_slow: args.has('s'),
        has_direct: args.has('d'),
        has_trim: args.has('t'),
        has_initialize: args.has('i'),
        has_dedup: args.has('D'),
        is_flat: args.has_long("json-flat-vdevs"),
        ..StatusRequest::new(rt::wall_clock().secs, zone())
    }
}

fn print_once(
    session: &Session,
    args: &Parsed,
    given: &[String],
    scripts: Option<&str>,
) -> Outcome<u8> {
    let (mut pools, has_failed) = gather(session, given, Session::status)?;
    let code = repeated_code(given) | u8::from(has_failed);
    let mut request = request(args);
    request.scripts = scripts.map(|scripts| script::run(scripts, pools.iter(), &[], request.names));
    let is_left_out = |pool: &PoolStatus| args.has('x') && diagnose(pool, false).is_healthy();
    if args.has('j') && pools.is_empty() && !given.is_empty() {
        return Ok(code);
    }
    if args.has('j') {
        let (_, _, json) = styles(args);
        pools.retain(|pool| !is_left_out(pool));
        print!("{}", status_json(&pools, &request, json));
        return Ok(code);
    }
    let mut is_first = true;
    for pool in &pools {
        if is_left_out(pool) {
            if !given.is_empty() {
                print!("{}", healthy_line(&pool.name));
                is_first = false;
            }
            continue;
        }
        if !std::mem::take(&mut is_first) {
            println!();
        }
        print!("{}", print_status(pool, &request));
    }
    let has_nothing_to_say = given.is_empty() && is_first && code == 0;
    if has_nothing_to_say && pools.is_empty() {
        eprintln!("no pools available");
    } else if has_nothing_to_say {
        println!("all pools are healthy");
    }
    Ok(code)
}
