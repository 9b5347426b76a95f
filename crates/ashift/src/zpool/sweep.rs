//! `zpool initialize` and `zpool trim`: overwriting and deleting the free space of devices.
//!
//! # What it is
//! Both change what the pool says of its devices; the engine does the rest whenever the pool is open for writing. With
//! `-w` this command is what has it open.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_initialize`, `zpool_do_trim`), lib/libzfs/libzfs_pool.c
//! (`zpool_initialize_impl`, `zpool_trim`, `check_trim_errs`).

use admin::getopt::{Flag, Parsed};
use admin::number::parse_number;
use admin::pool::{VdevKind, VdevStatus};
use base::{ErrorKind, Guid};
use service::{Access, OpenPool, Session};
use spa::{SweepAction, SweepKind, SweepRefusal, TrimOptions};

use super::device_state::{CACHED, RESERVED, find_device, find_group, is_cache, is_free_spare};
use super::{Fail, Outcome, change_error};
use crate::failure;

/// What libzfs returns for any error of these commands.
const FAILED: u8 = 255;

/// `zpool initialize`.
pub(super) fn initialize(session: &Session, args: &Parsed) -> Outcome {
    let actions = [
        ('c', SweepAction::Cancel),
        ('s', SweepAction::Suspend),
        ('u', SweepAction::Forget),
    ];
    let given = one_action(args, &actions)?;
    let Some((name, words)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing pool name argument".into()));
    };
    if args.has('w') && given.is_some() {
        return Err(Fail::Usage("-w cannot be used with -c, -sor -u".into()));
    }
    let action = given.unwrap_or(SweepAction::Start(TrimOptions::default()));
    run(session, args, SweepKind::Initialize, action, (name, words))
}

/// `zpool trim`.
pub(super) fn trim(session: &Session, args: &Parsed) -> Outcome {
    let actions = [('c', SweepAction::Cancel), ('s', SweepAction::Suspend)];
    let mut options = TrimOptions {
        rate: 0,
        secure: args.has('d'),
    };
    let given = one_action(args, &actions)?;
    // Only those that come after it: with the others nothing is refused but what no device can do.
    let late = letters(args).skip_while(|letter| !"cs".contains(*letter));
    if let Some(letter) = late.into_iter().find(|letter| "dr".contains(*letter)) {
        let text = format!("-{letter} cannot be combined with the -c or -s options");
        return Err(Fail::Usage(text));
    }
    if let Some(rate) = args.values('r').last() {
        let invalid = |error| Fail::Usage(format!("invalid value for rate: {error}"));
        options.rate = parse_number(rate).map_err(invalid)?;
    }
    let Some((name, words)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing pool name argument".into()));
    };
    if args.has('w') && given.is_some() {
        let text = "-w cannot be used with -c or -s";
        return Err(Fail::Usage(text.into()));
    }
    let start = SweepAction::Start(options);
    let action = given.filter(|_| !options.secure).unwrap_or(start);
    run(session, args, SweepKind::Trim, action, (name, words))
}

/// The only one of these options that is given.
fn one_action(args: &Parsed, actions: &[(char, SweepAction)]) -> Result<Option<SweepAction>, Fail> {
    let given = letters(args).filter_map(|letter| actions.iter().find(|(each, _)| *each == letter));
    let mut first: Option<&(char, SweepAction)> = None;
    for each in given {
        if first.is_some_and(|first| first.0 != each.0) {
            let text = format!("-{} cannot be combined with other options", each.0);
            return Err(Fail::Usage(text));
        }
        first = Some(each);
    }
    Ok(first.map(|(_, action)| *action))
}

/// The options, in the order given.
fn letters(args: &Parsed) -> impl Iterator<Item = char> {
    args.options.iter().filter_map(|(flag, _)| match flag {
        Flag::Short(letter) => Some(*letter),
        _ => None,
    })
}

fn run(
    session: &Session,
    args: &Parsed,
    kind: SweepKind,
    action: SweepAction,
    (name, words): (&String, &[String]),
) -> Outcome {
    let what = match kind {
        SweepKind::Initialize => "cannot initialize",
        SweepKind::Trim => "cannot trim",
    };
    let pool = session.open(name, Access::Write);
    let pool = match pool {
        Ok(pool) => pool,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("{}", failure::opening(name, &error));
            return Fail::exit(FAILED);
        }
        Err(error) => return Err(change_error(name, what, &error)),
    };
    let devices = match words {
        [] => leaves(&pool.vdevs()),
        words => named(&pool, words, what)?,
    };
    let guids: Vec<Guid> = devices.iter().map(|(guid, _)| *guid).collect();
    let refused = pool.sweep(kind, &guids, action)?;
    let has_failed = report(&devices, &refused, (kind, action), words.is_empty(), what);
    if args.has('w') && !has_failed {
        pool.wait_for_sweep(kind, Some(&guids))?;
    }
    session.finish_change(&pool, refused.len() < guids.len())?;
    Fail::exit(if has_failed { FAILED } else { 0 })
}

/// All devices of the pool, with their paths.
#[doc(alias = "zpool_collect_leaves")]
fn leaves(vdev: &VdevStatus) -> Vec<(Guid, String)> {
    if vdev.is_leaf() && vdev.kind != VdevKind::Root {
        let is_one = !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect);
        let name = vdev.path.clone().unwrap_or_default();
        return match is_one {
            true => vec![(Guid(vdev.guid), name)],
            false => Vec::new(),
        };
    }
    vdev.children.iter().flat_map(leaves).collect()
}

/// The devices that the user means; if one is not there, nothing is done.
#[doc(alias = "zpool_translate_vdev_guids")]
fn named(pool: &OpenPool, words: &[String], what: &str) -> Result<Vec<(Guid, String)>, Fail> {
    let vdevs = pool.vdevs();
    let mut found = Vec::new();
    let mut has_failed = false;
    for word in words {
        let device = find_device(&vdevs, word).or_else(|| find_group(&vdevs, word));
        if let Some(device) = device {
            found.push((Guid(device.guid), word.clone()));
            continue;
        }
        let why = match () {
            () if is_free_spare(pool, &vdevs, word) => RESERVED,
            () if is_cache(pool, word) => CACHED,
            () => "no such device in pool",
        };
        eprintln!("{what} '{word}': {why}");
        has_failed = true;
    }
    if has_failed {
        pool.close()?;
        Fail::exit(FAILED)?;
    }
    Ok(found)
}

/// Says for which devices it was refused; returns whether the command failed. A device that has no deletes is passed
/// over if the whole pool is trimmed and others have them.
#[doc(alias = "check_trim_errs")]
fn report(
    devices: &[(Guid, String)],
    refused: &[(Guid, SweepRefusal)],
    (kind, action): (SweepKind, SweepAction),
    is_whole: bool,
    what: &str,
) -> bool {
    let is_secure = matches!(action, SweepAction::Start(options) if options.secure);
    let passes_over =
        |refusal: SweepRefusal| refusal == SweepRefusal::Unsupported && is_whole && !is_secure;
    let (silent, loud): (Vec<_>, Vec<_>) = refused
        .iter()
        .partition(|(_, refusal)| passes_over(*refusal));
    for (guid, refusal) in &loud {
        let found = devices.iter().find(|(device, _)| device == guid);
        let name = found.map_or("", |(_, name)| name);
        eprintln!("{what} '{name}': {}", reason(*refusal, kind));
    }
    let is_none_left = !devices.is_empty() && silent.len() == devices.len();
    if is_none_left {
        eprintln!("{what}: no devices in pool support trim operations");
    }
    !loud.is_empty() || is_none_left
}

#[doc(alias = "xlate_init_err")]
#[doc(alias = "xlate_trim_err")]
fn reason(refusal: SweepRefusal, kind: SweepKind) -> &'static str {
    match (refusal, kind) {
        (SweepRefusal::NoDevice, _) => "no such device in pool",
        (SweepRefusal::BadDevice, _) => "invalid device",
        (SweepRefusal::Busy, SweepKind::Initialize) => "currently initializing",
        (SweepRefusal::Busy, SweepKind::Trim) => "currently trimming",
        (SweepRefusal::NotActive, SweepKind::Initialize) => "there is no active initialization",
        (SweepRefusal::NotActive, SweepKind::Trim) => "there is no active trim",
        (SweepRefusal::Unsupported, _) => "trim operations are not supported by this device",
    }
}
