//! `zfs upgrade`: file systems of old versions, and bringing them up to the current one.
//!
//! Source: OpenZFS cmd/zfs/zfs_main.c (`zfs_do_upgrade`).

use std::cmp::Ordering;

use admin::getopt::Parsed;
use admin::prop::Types;
use phys::znode::ZPL_VERSION;
use service::{Access, Session};

use super::fail::{Fail, Outcome};
use super::target::{Selection, Target};

const VERSIONS: &str = "The following filesystem versions are supported:\n\n\
     VER  DESCRIPTION\n\
     ---  --------------------------------------------------------\n \
     1   Initial ZFS filesystem version\n \
     2   Enhanced directory entries\n \
     3   Case insensitive and filesystem user identifier (FUID)\n \
     4   userquota, groupquota properties\n \
     5   System attributes\n\n\
     For more information on a particular version, including supported releases,\n\
     see the ZFS Administration Guide.\n\n";

/// `zfs upgrade`.
pub(super) fn upgrade(session: &Session, parsed: &Parsed) -> Outcome {
    let version = parsed.value('V').map(parse_version).transpose()?;
    let names = &parsed.operands;
    let (all, recurses, shows) = (parsed.has('a'), parsed.has('r'), parsed.has('v'));
    let acts = all || !names.is_empty();
    let is_narrowed = recurses || version.is_some();
    if (!acts && is_narrowed) || (acts && shows) || (all && !names.is_empty()) {
        return Err(Fail::usage(""));
    }
    if shows {
        print!("{VERSIONS}");
        return Ok(());
    }
    if acts {
        return upgrade_all(session, names, recurses, version.unwrap_or(ZPL_VERSION));
    }
    // Pools that are only read are listed, too.
    let reading = session.pools().session(Access::Read, "");
    let outcome = list_old(&reading);
    let closed = reading.close();
    outcome.and(closed.map_err(Fail::from))
}

fn parse_version(text: &str) -> Outcome<u64> {
    let version = match text {
        "current" => Some(ZPL_VERSION),
        text => text.parse().ok(),
    };
    version
        .filter(|version| (1..=ZPL_VERSION).contains(version))
        .ok_or_else(|| Fail::usage(format!("invalid version {text}")))
}

fn selection(recurses: bool) -> Selection {
    Selection {
        types: Types::FILESYSTEM,
        snapshots_as_pool_says: false,
        recurses,
        depth: None,
    }
}

/// The version of a file system; of one that cannot be read now, the current one.
fn version_of(target: &Target) -> u64 {
    let objset = target.dataset().and_then(|ds| ds.objset().ok());
    let version = objset.and_then(|objset| zpl::version_of(&objset).ok());
    version.unwrap_or(ZPL_VERSION)
}

fn list_old(session: &Session) -> Outcome {
    print!("This system is currently running ZFS filesystem version {ZPL_VERSION}.\n\n");
    let (targets, outcome) = selection(true).gather(session, &[]);
    let mut is_first = true;
    for target in &targets {
        let version = version_of(target);
        if version >= ZPL_VERSION {
            continue;
        }
        if std::mem::take(&mut is_first) {
            print!(
                "The following filesystems are out of date, and can be upgraded.  After being\n\
                 upgraded, these filesystems (and any 'zfs send' streams generated from\n\
                 subsequent snapshots) will no longer be accessible by older software versions.\n\n\n\
                 VER  FILESYSTEM\n---  ------------\n"
            );
        }
        println!("{version:2}   {}", target.name);
    }
    if is_first {
        println!("All filesystems are formatted with the current version.");
    }
    outcome
}

fn upgrade_all(session: &Session, names: &[String], recurses: bool, version: u64) -> Outcome {
    let (targets, mut outcome) = selection(recurses).gather(session, names);
    let (mut upgraded, mut same) = (0, 0);
    for target in &targets {
        let current = version_of(target);
        match current.cmp(&version) {
            Ordering::Less => match upgrade_one(target, version) {
                Ok(()) => upgraded += 1,
                Err(fail) => outcome = Err(fail.say("")),
            },
            Ordering::Equal => same += 1,
            Ordering::Greater => {
                let name = &target.name;
                println!("{name}: can not be downgraded; it is already at version {current}");
                outcome = Fail::exit(1);
            }
        }
    }
    println!("{upgraded} filesystems upgraded");
    if same > 0 {
        println!("{same} filesystems already at this version");
    }
    outcome
}

fn upgrade_one(target: &Target, version: u64) -> Outcome {
    let what = format!("cannot upgrade '{}'", target.name);
    if version < ZPL_VERSION {
        let text = format!("{what}: only version {ZPL_VERSION} is written here, not {version}");
        return Err(Fail::failed(text));
    }
    let done = target
        .pool
        .change_datasets(|datasets| datasets.upgrade(&target.name));
    done.map_err(|e| Fail::of(&what, &e))
}
