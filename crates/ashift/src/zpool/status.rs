//! `zpool status`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_status`), lib/libzfs/libzfs_status.c.

use admin::getopt::Parsed;
use admin::number::NumberStyle;
use admin::pool::{
    PoolStatus, StatusRequest, VdevAux, VdevKind, VdevState, VdevStatus, diagnose, healthy_line,
    status as print_status, status_json,
};
use base::{Error, ErrorKind};
use nvpair::NvList;

use super::gather::status_of;
use super::list::{pool_names, repeat, split_repeat, styles};
use super::{Failure, Outcome, open_error, refuse_options, zone};
use crate::host::{Access, Host};

/// `zpool status`.
pub(super) fn run(args: &Parsed) -> Outcome {
    refuse_options(args, "status", "cD")?;
    let (given, interval) = split_repeat(&args.operands)?;
    repeat(args, interval.as_ref(), || print_once(args, &given))
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
        ..StatusRequest::new(rt::wall_clock().secs, zone())
    }
}

fn print_once(args: &Parsed, given: &[String]) -> Outcome {
    let host = Host::here();
    let mut pools = Vec::new();
    let mut code = 0;
    for name in pool_names(&host, given)? {
        match gather(&host, &name) {
            Ok(status) => pools.push(status),
            Err(_) if given.is_empty() && host.cache().find(&name)?.is_none() => {} // exported meanwhile
            Err(Failure::Text(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    let count = pools.len();
    let only_sick = args.has('x');
    if only_sick {
        let lone = (given.len() == 1 && count == 1).then(|| pools[0].name.clone());
        pools.retain(|pool| !diagnose(pool, false).is_healthy());
        if let Some(name) = lone.filter(|_| pools.is_empty() && !args.has('j')) {
            print!("{}", healthy_line(&name));
            return Ok(code);
        }
    }
    let request = request(args);
    if args.has('j') {
        let (_, _, json) = styles(args);
        print!("{}", status_json(&pools, &request, json));
        return Ok(code);
    }
    for (i, pool) in pools.iter().enumerate() {
        if i > 0 {
            println!();
        }
        print!("{}", print_status(pool, &request));
    }
    if pools.is_empty() && given.is_empty() && code == 0 {
        let text = if count > 0 {
            "all pools are healthy"
        } else {
            "no pools available"
        };
        println!("{text}");
    }
    Ok(code)
}

fn gather(host: &Host, name: &str) -> Result<PoolStatus, Failure> {
    match host.open(name, Access::Read) {
        Ok(pool) => Ok(status_of(host, &pool)?),
        Err(error) => match unavailable(host, name, &error)? {
            Some(status) => Ok(status),
            None => Err(open_error(name, &error)),
        },
    }
}

/// The state of a pool that is imported but cannot be opened: what the cachefile says, with all
/// devices that are not there. None for a pool that is not imported, or that is in use.
pub(super) fn unavailable(
    host: &Host,
    name: &str,
    error: &Error,
) -> Result<Option<PoolStatus>, Failure> {
    let config = host
        .cache()
        .find(name)?
        .filter(|_| error.kind() != ErrorKind::Busy);
    let Some(config) = config else {
        return Ok(None);
    };
    let aux = match error.kind() {
        ErrorKind::NotFound | ErrorKind::Io => VdevAux::NoReplicas,
        ErrorKind::Unsupported => VdevAux::UnsupFeat,
        _ => VdevAux::CorruptData,
    };
    let mut root = config
        .get_list("vdev_tree")
        .map_or_else(VdevStatus::default, |tree| missing_vdev(tree, aux));
    root.state = VdevState::CantOpen;
    root.aux = aux;
    let is_unsupported = error.kind() == ErrorKind::Unsupported;
    Ok(Some(PoolStatus {
        name: name.to_owned(),
        guid: config.get_u64("pool_guid").unwrap_or(0),
        txg: config.get_u64("txg").unwrap_or(0),
        version: config.get_u64("version").unwrap_or(0),
        root,
        unsupported_features: is_unsupported
            .then(|| error.to_string())
            .into_iter()
            .collect(),
        ..PoolStatus::default()
    }))
}

fn missing_vdev(tree: &NvList, aux: VdevAux) -> VdevStatus {
    let path = tree.get_str("path").map(str::to_owned);
    let is_there = path
        .as_deref()
        .is_some_and(|path| crate::zpool::devices::Device::find(path).is_ok());
    let children = tree.get_lists("children").unwrap_or_default();
    let children: Vec<_> = children
        .iter()
        .map(|child| missing_vdev(child, aux))
        .collect();
    let kind = match tree.get_str("type").unwrap_or("") {
        "root" => VdevKind::Root,
        "mirror" => VdevKind::Mirror,
        "disk" => VdevKind::Disk { is_whole: false },
        "raidz" => VdevKind::Raidz {
            parity: tree.get_u64("nparity").unwrap_or(1),
        },
        "hole" => VdevKind::Hole,
        "indirect" => VdevKind::Indirect,
        "missing" => VdevKind::Missing,
        _ => VdevKind::File,
    };
    let (state, own) = match (&path, is_there) {
        (Some(_), true) if aux != VdevAux::NoReplicas => (VdevState::Healthy, VdevAux::None),
        (Some(_), true) => (VdevState::CantOpen, VdevAux::BadLabel),
        (Some(_), false) => (VdevState::CantOpen, VdevAux::OpenFailed),
        (None, _) if children.iter().any(|c| c.state == VdevState::CantOpen) => {
            (VdevState::CantOpen, VdevAux::NoReplicas)
        }
        (None, _) => (VdevState::Healthy, VdevAux::None),
    };
    VdevStatus {
        kind,
        id: tree.get_u64("id").unwrap_or(0),
        guid: tree.get_u64("guid").unwrap_or(0),
        path,
        state,
        aux: own,
        children,
        ..VdevStatus::default()
    }
}
