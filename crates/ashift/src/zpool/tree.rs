//! `zpool attach`, `detach`, `replace`, `add`: changing the vdevs of a pool.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_attach_or_replace`, `zpool_do_detach`, `zpool_do_add`),
//! cmd/zpool/zpool_vdev.c (`make_root_vdev`), lib/libzfs/libzfs_pool.c (`zpool_vdev_attach`,
//! `zpool_vdev_detach`, `zpool_add`).

use admin::getopt::Parsed;
use admin::number::parse_number;
use admin::pool::{VdevKind, VdevStatus};
use admin::prop::split_assignment;
use admin::vdev_spec::{
    VdevSpec, check_replication, layout_added, override_message, parse_vdev_spec,
    replication_of_pool,
};
use base::{Error, ErrorKind, Guid};
use phys::PropValue;
use phys::feature::DEVICE_REBUILD;
use phys::label::{ASHIFT_MAX, ASHIFT_MIN};
use service::{Access, Activity, OpenPool, PoolDevice, Session};
use spa::{FeatureState, Resilver};
use vdev::{Attach, TopSpec};
use zio::AllocClass;

use super::create::{check_twice, leaf_facts, objections, pool_device, resolve, shown_name};
use super::device_state::{CACHED, RESERVED, find_device, find_group, is_cache, is_free_spare};
use super::devices::{Device, Purpose, TYPE, is_distributed_spare, objection, tells_disks};
use super::list::styles;
use super::{Fail, Outcome, change_error};

/// Exit code of commands that return libzfs's -1.
const FAILED: u8 = 255;

/// `zpool attach`.
pub(super) fn attach(session: &Session, args: &Parsed) -> Outcome {
    let (name, words) = operands(args)?;
    let (old, new) = match words {
        [_] => return Err(Fail::Usage("missing <new_device> specification".into())),
        [old, new] => (old, new),
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    attach_or_replace(session, args, (name, old, new), Attach::Side)
}

/// `zpool replace`. Without a new device, it is at the path of the old one.
pub(super) fn replace(session: &Session, args: &Parsed) -> Outcome {
    let (name, words) = operands(args)?;
    let (old, new) = match words {
        [old] => (old, old),
        [old, new] => (old, new),
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    attach_or_replace(session, args, (name, old, new), Attach::Replacement)
}

fn operands(args: &Parsed) -> Result<(&String, &[String]), Fail> {
    match args.operands.split_first() {
        None => Err(Fail::Usage("missing pool name argument".into())),
        Some((_, [])) => Err(Fail::Usage("missing <device> specification".into())),
        Some(both) => Ok(both),
    }
}

fn attach_or_replace(
    session: &Session,
    args: &Parsed,
    (name, old, new): (&String, &String, &String),
    attach: Attach,
) -> Outcome {
    let what = match attach {
        Attach::Side => format!("cannot attach {new} to {old}"),
        Attach::Replacement | Attach::Spare => format!("cannot replace {old} with {new}"),
    };
    let (given, is_told_disk) = (given_ashift(args)?, tells_disks(args)?);
    let resilver = match args.has('s') {
        true => Resilver::Sequential,
        false => Resilver::Healing,
    };
    let pool = open(session, name, &what)?;
    if is_distributed_spare(new) && attach == Attach::Replacement {
        use_distributed(&pool, old, new, resilver).map_err(|why| refused(&what, &why))?;
        if args.has('w') {
            wait_for_resilver(&pool)?;
        }
        session.finish_change(&pool, true)?;
        return Ok(());
    }
    let ashift = given.unwrap_or_else(|| ashift_of(&pool));
    let device = Device::find(new)?.told_disk(is_told_disk);
    let purpose = match attach {
        Attach::Replacement => Purpose::Replacement(name),
        Attach::Side | Attach::Spare => Purpose::Vdev,
    };
    let wrong = objection(session, &device, purpose)?;
    let wrong = wrong.filter(|o| !o.can_force || !args.has('f'));
    let wrong: Vec<String> = wrong.map(|o| o.text).into_iter().collect();
    check_free(&wrong, args.has('f'))?;
    let raidz = find_raidz(&pool.vdevs(), old).filter(|_| attach == Attach::Side);
    if let Some(raidz) = raidz {
        widen(&pool, raidz, (new, &pool_device(&device)?), ashift)
            .map_err(|why| refused(&what, &why))?;
        if args.has('w') {
            pool.wait_for(&[Activity::RaidzExpand], None)?;
        }
        session.finish_change(&pool, true)?;
        return Ok(());
    }
    let beside = target(&pool, old, &device, attach).map_err(|why| refused(&what, &why))?;
    let device = pool_device(&device)?;
    let attached = pool.attach(beside, &device, (attach, resilver), ashift);
    attached.map_err(|error| {
        let is_unsupported = error.kind() == ErrorKind::Unsupported;
        let text = match attach {
            Attach::Replacement if is_unsupported && is_log(&pool, beside) => {
                "cannot replace a log with a spare".to_owned()
            }
            _ if is_unsupported => unsupported_text(&pool, attach, resilver).to_owned(),
            _ => attach_text(&error, attach, new),
        };
        refused(&what, &text)
    })?;
    if args.has('w') {
        wait_for_resilver(&pool)?;
    }
    session.finish_change(&pool, true)?;
    Ok(())
}

/// Waits for the resilver, and not for the scrub after a sequential one.
fn wait_for_resilver(pool: &OpenPool) -> Outcome {
    if pool.is_rebuilding() {
        pool.wait_for(&[Activity::Resilver], None)?;
    } else {
        pool.wait_for_scan()?;
    }
    Ok(())
}

/// Why a device cannot be attached there.
fn unsupported_text(pool: &OpenPool, attach: Attach, resilver: Resilver) -> &'static str {
    let is_sequential = resilver == Resilver::Sequential;
    match attach {
        Attach::Side if is_sequential && pool.feature(DEVICE_REBUILD) == FeatureState::Disabled => {
            "device_rebuild feature must be enabled in order to use sequential reconstruction"
        }
        Attach::Replacement | Attach::Spare if is_sequential => {
            "only mirror and dRAID vdevs support sequential reconstruction"
        }
        _ => wrong_target(attach),
    }
}

/// The RAID-Z of this name.
fn find_raidz(vdevs: &VdevStatus, word: &str) -> Option<Guid> {
    let group = find_group(vdevs, word)?;
    let is_raidz = matches!(group.kind, VdevKind::Raidz { .. });
    is_raidz.then_some(Guid(group.guid))
}

/// Begins to expand a RAID-Z.
fn widen(
    pool: &OpenPool,
    raidz: Guid,
    (new, device): (&str, &PoolDevice),
    ashift: u32,
) -> Result<(), String> {
    let widened = pool.widen(raidz, device, ashift);
    widened.map_err(|error| match error.kind() {
        ErrorKind::Exists | ErrorKind::Permission => error.context().to_owned(),
        ErrorKind::Unsupported => {
            "raidz_expansion feature must be enabled in order to attach a device to raidz"
                .to_owned()
        }
        ErrorKind::Busy if error.context().starts_with("raidz") => error.context().to_owned(),
        _ => attach_text(&error, Attach::Side, new),
    })
}

/// Has a distributed spare take over for a device.
fn use_distributed(
    pool: &OpenPool,
    old: &str,
    new: &str,
    resilver: Resilver,
) -> Result<(), String> {
    let vdevs = pool.vdevs();
    let Some(beside) = find_device(&vdevs, old) else {
        return Err("no such device in pool".to_owned());
    };
    let spare = pool.distributed_spare(new);
    let spare = spare.ok_or_else(|| "no such device in pool".to_owned())?;
    let attached = pool.attach_distributed_with(Guid(beside.guid), spare, resilver);
    attached.map_err(|error| match error.kind() {
        ErrorKind::Unsupported if resilver == Resilver::Sequential => {
            unsupported_text(pool, Attach::Spare, resilver).to_owned()
        }
        ErrorKind::Unsupported => {
            "dRAID spares can only replace child devices in their parent's dRAID vdev".to_owned()
        }
        _ => attach_text(&error, Attach::Spare, new),
    })
}

/// Whether a device is a spare that has taken over for another one, and not yet for good.
fn is_stand_in(vdev: &VdevStatus, device: u64) -> bool {
    let is_it = |child: &VdevStatus| child.guid == device;
    vdev.kind == VdevKind::Spare && vdev.children.iter().any(is_it)
        || vdev.children.iter().any(|child| is_stand_in(child, device))
}

fn is_log(pool: &OpenPool, device: Guid) -> bool {
    let is_it = |vdev: &VdevStatus| vdev.guid == device.0;
    let vdevs = pool.vdevs();
    vdevs
        .find(&is_it)
        .is_some_and(|vdev| vdev.class == AllocClass::Log)
}

/// The device that another one is to be attached beside.
fn target(pool: &OpenPool, word: &str, new: &Device, attach: Attach) -> Result<Guid, String> {
    let vdevs = pool.vdevs();
    if let Some(device) = find_device(&vdevs, word) {
        let is_replaced_spare =
            device.is_spare && attach == Attach::Replacement && is_stand_in(&vdevs, device.guid);
        if is_replaced_spare && !is_free_spare(pool, &vdevs, &new.name()) {
            return Err("can only be replaced by another hot spare".to_owned());
        }
        return Ok(Guid(device.guid));
    }
    if is_free_spare(pool, &vdevs, word) {
        return Err(RESERVED.to_owned());
    }
    if is_cache(pool, word) {
        return Err(CACHED.to_owned());
    }
    Err(match find_group(&vdevs, word) {
        None => "no such device in pool".to_owned(),
        Some(_) => wrong_target(attach).to_owned(),
    })
}

fn wrong_target(attach: Attach) -> &'static str {
    match attach {
        Attach::Side => "can only attach to mirrors and top-level disks",
        Attach::Replacement | Attach::Spare => {
            "already in replacing/spare config; wait for completion or use 'zpool detach'"
        }
    }
}

fn attach_text(error: &Error, attach: Attach, new: &str) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such device in pool".to_owned(),
        ErrorKind::Unsupported => wrong_target(attach).to_owned(),
        ErrorKind::TooBig => "device is too small".to_owned(),
        ErrorKind::Busy => format!("{new} is busy"),
        ErrorKind::Exists => error.context().to_owned(),
        ErrorKind::InvalidInput => {
            "The new device cannot have a higher alignment requirement than \
                                    the top-level vdev."
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// `zpool detach`.
pub(super) fn detach(session: &Session, args: &Parsed) -> Outcome {
    let (name, words) = operands(args)?;
    let what = format!("cannot detach {}", words[0]);
    let pool = open(session, name, &what)?;
    let vdevs = pool.vdevs();
    let only = "only applicable to mirror and replacing vdevs";
    let Some(device) = find_device(&vdevs, &words[0]) else {
        if is_free_spare(&pool, &vdevs, &words[0]) {
            return Err(refused(&what, RESERVED));
        }
        if is_cache(&pool, &words[0]) {
            return Err(refused(&what, CACHED));
        }
        let is_group = find_group(&vdevs, &words[0]).is_some();
        let why = if is_group {
            only
        } else {
            "no such device in pool"
        };
        return Err(refused(&what, why));
    };
    let detached = pool.detach(Guid(device.guid));
    detached.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => refused(&what, only),
        ErrorKind::Busy => refused(&what, "no valid replicas"),
        _ => refused(&what, &error.to_string()),
    })?;
    session.finish_change(&pool, true)?;
    Ok(())
}

/// `zpool add`. With `-n`, everything is checked, and the outcome is shown.
pub(super) fn add(session: &Session, args: &Parsed) -> Outcome {
    let (given, is_told_disk) = (given_ashift(args)?, tells_disks(args)?);
    let Some((name, words)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing pool name argument".into()));
    };
    if words.is_empty() {
        return Err(Fail::Usage("missing vdev specification".into()));
    }
    let allowed = Allowed::of(args)?;
    let what = format!("cannot add to '{name}'");
    let pool = open(session, name, &what)?;
    let ashift = given.unwrap_or_else(|| ashift_of(&pool));
    let spec = parse_vdev_spec(words)?;
    let (tops, aux) = resolve(&spec, is_told_disk)?;
    let wrong = objections(session, (&tops, &aux), allowed.in_use)?;
    check_free(&wrong, allowed.in_use)?;
    if !allowed.other_replication && !tops.is_empty() {
        check_level(&pool.vdevs(), &spec)?;
    }
    if args.has('n') {
        let (_, style, _) = styles(args);
        print!(
            "{}",
            layout_added(name, &pool.vdevs(), &spec, style, &shown_name)
        );
        pool.close()?;
        return Ok(());
    }
    check_twice(&what, (&tops, &aux))?;
    let tops: Result<Vec<TopSpec<PoolDevice>>, Fail> =
        tops.iter().map(|top| top.try_map(pool_device)).collect();
    let aux = aux.try_map(pool_device)?;
    let added = pool.add(&tops?, &aux, ashift, allowed.other_ashift);
    added.map_err(|error| Fail::Failed(format!("{what}: {}", add_text(&error))))?;
    session.finish_change(&pool, true)?;
    Ok(())
}

/// What `-f` and the options for each of its effects allow.
struct Allowed {
    in_use: bool,
    other_replication: bool,
    other_ashift: bool,
}

impl Allowed {
    fn of(args: &Parsed) -> Result<Allowed, Fail> {
        let is_forced = args.has('f');
        let [in_use, other_replication, other_ashift] =
            ["in-use", "replication-mismatch", "ashift-mismatch"]
                .map(|what| args.has_long(&format!("allow-{what}")));
        if is_forced && (in_use || other_replication || other_ashift) {
            return Err(Fail::Usage(
                "'-f' option is not allowed with '--allow-replication-mismatch', \
                 '--allow-ashift-mismatch', or '--allow-in-use'"
                    .into(),
            ));
        }
        Ok(Allowed {
            in_use: is_forced || in_use,
            other_replication: is_forced || other_replication,
            other_ashift: is_forced || other_ashift,
        })
    }
}

fn add_text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::TooBig => "device is less than the minimum size (64M)".to_owned(),
        ErrorKind::Busy => "one or more vdevs refer to the same device".to_owned(),
        ErrorKind::Exists => {
            "adding devices with different physical sector sizes is not allowed".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Checks that the new vdevs are as redundant as those of the pool.
fn check_level(pool: &VdevStatus, spec: &VdevSpec) -> Result<(), Fail> {
    let facts = |leaf: &str| leaf_facts(leaf);
    // A pool that is not equally redundant itself takes anything.
    let Some(level) = replication_of_pool(pool, &facts) else {
        return Ok(());
    };
    let checked = check_replication(spec, Some(level), &facts);
    checked.map_err(|wrong| Fail::Failed(override_message(&wrong, false)))
}

/// Fails if there are reasons not to use the devices.
fn check_free(wrong: &[String], is_forced: bool) -> Result<(), Fail> {
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Fail::Failed(override_message(wrong, is_forced)))
}

/// `-o ashift=N`, the only property of OpenZFS's that new devices take.
fn given_ashift(args: &Parsed) -> Result<Option<u32>, Fail> {
    let mut given = None;
    for assignment in args.values('o') {
        let Some((name, value)) = split_assignment(assignment) else {
            return Err(Fail::Usage("missing '=' for -o option".into()));
        };
        if name == TYPE {
            continue;
        }
        if name != "ashift" {
            return Err(Fail::Usage(String::new()));
        }
        if given.is_some() {
            let text = "property 'ashift' specified multiple times";
            return Err(Fail::Usage(text.into()));
        }
        let ashift = parse_number(value).map_err(|_| "ashift must be a number.".to_owned())?;
        let range = u64::from(ASHIFT_MIN)..=ASHIFT_MAX.into();
        if ashift != 0 && !range.contains(&ashift) {
            return Err(Fail::Failed(format!(
                "invalid 'ashift={ashift}' property: only values between {ASHIFT_MIN} and \
                 {ASHIFT_MAX} are allowed."
            )));
        }
        given = u32::try_from(ashift).ok();
    }
    Ok(given)
}

/// The property `ashift` of the pool; 0 if it was not set.
fn ashift_of(pool: &OpenPool) -> u32 {
    match pool.props().get("ashift") {
        Some(PropValue::Number(ashift)) => u32::try_from(*ashift).unwrap_or(0),
        _ => 0,
    }
}

fn open(session: &Session, name: &str, what: &str) -> Result<OpenPool, Fail> {
    let pool = session.open(name, Access::Write);
    pool.map_err(|error| change_error(name, what, &error))
}

fn refused(what: &str, why: &str) -> Fail {
    Fail::Exits(FAILED, format!("{what}: {why}"))
}
