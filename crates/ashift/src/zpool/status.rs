//! `zpool status`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_status`), lib/libzfs/libzfs_status.c.

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::number::NumberStyle;
use admin::pool::{
    PoolStatus, StatusRequest, VdevAux, VdevState, diagnose, healthy_line, status as print_status,
    status_json,
};
use base::{Error, ErrorKind, Guid, Txg};
use geom::Namespace;
use geom::disk::OpenMode;
use nvpair::NvList;
use service::{Access, Session};
use vdev::{Vdev, VdevTree};
use zio::AllocClass;

use super::gather::{status_of, vdev_status};
use super::list::{pool_names, repeat, repeated_code, split_repeat, styles};
use super::{Fail, Outcome, check_json_options, open_error, refuse_options, refuse_power, zone};
use crate::machine::current;

/// `zpool status`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    refuse_options(args, "status", "cD")?;
    refuse_power(args, "status")?;
    let (given, interval) = split_repeat(&args.operands)?;
    check_json_options(args)?;
    repeat(args, interval.as_ref(), |is_first| {
        if !is_first {
            println!();
        }
        print_once(session, args, &given)
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
        is_flat: args.has_long("json-flat-vdevs"),
        ..StatusRequest::new(rt::wall_clock().secs, zone())
    }
}

fn print_once(session: &Session, args: &Parsed, given: &[String]) -> Outcome {
    let mut pools = Vec::new();
    let mut code = repeated_code(given);
    for name in pool_names(session, given)? {
        match gather(session, &name) {
            Ok(status) => pools.push(status),
            Err(_) if given.is_empty() && !session.pools().is_imported(&name)? => {} // exported meanwhile
            Err(Fail::Failed(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    let request = request(args);
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

fn gather(session: &Session, name: &str) -> Result<PoolStatus, Fail> {
    match session.open(name, Access::Read) {
        Ok(pool) => Ok(status_of(&pool)?),
        Err(error) => match unavailable(session, name, &error)? {
            Some(status) => Ok(status),
            None => Err(open_error(name, &error)),
        },
    }
}

/// The status of a pool that is imported but cannot be opened: the config in the cachefile, with each
/// device as it is found now. `None` for a pool that is not imported, or that is in use.
pub(super) fn unavailable(
    session: &Session,
    name: &str,
    error: &Error,
) -> Result<Option<PoolStatus>, Fail> {
    let config = session
        .pools()
        .cachefile()
        .find(name)?
        .filter(|_| error.kind() != ErrorKind::Busy);
    let Some(config) = config else {
        return Ok(None);
    };
    let tree = found_devices(&config)?;
    let mut root = vdev_status(&tree.root(), 0, AllocClass::Normal);
    let is_unsupported = error.kind() == ErrorKind::Unsupported;
    if is_unsupported {
        (root.state, root.aux) = (VdevState::CantOpen, VdevAux::UnsupFeat);
    } else if tree.state().0.is_usable() {
        // Enough devices are present; their contents cannot be used.
        (root.state, root.aux) = (VdevState::CantOpen, VdevAux::CorruptData);
    }
    Ok(Some(PoolStatus {
        name: name.to_owned(),
        guid: config.get_u64("pool_guid").unwrap_or(0),
        txg: config.get_u64("txg").unwrap_or(0),
        version: config.get_u64("version").unwrap_or(0),
        root,
        is_foreign: error.kind() == ErrorKind::Permission,
        unsupported_features: is_unsupported
            .then(|| error.to_string())
            .into_iter()
            .collect(),
        ..PoolStatus::default()
    }))
}

/// The vdevs of a config with all devices that can be opened and have the right label.
fn found_devices(config: &NvList) -> base::Result<Arc<VdevTree>> {
    let world = current()?;
    let tree = VdevTree::read_only(Vdev::from_config(config.expect_list("vdev_tree")?)?);
    tree.open_devices(&|device| {
        let path = device.config().path.clone()?;
        Namespace::open(&*world, &path, OpenMode::ReadOnly).ok()
    });
    let guid = Guid(config.expect_u64("pool_guid")?);
    tree.validate_devices(guid, Txg(u64::MAX));
    Ok(tree)
}
