//! `zpool split`: one device of each mirror becomes a pool of its own.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_split`, `print_vdev_tree`), cmd/zpool/zpool_vdev.c (`split_mirror_vdev`),
//! lib/libzfs/libzfs_pool.c (`zpool_vdev_split`).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use admin::getopt::Parsed;
use admin::name::check_pool_name;
use admin::pool::{NameStyle, VdevKind, VdevStatus};
use admin::prop::{PoolContext, TableKind, parse_pool_assignment, split_assignment};
use base::{Error, ErrorKind, Guid};
use service::{Access, Facts, PoolChange, Session, Split};
use zio::AllocClass;

use super::devices::Device;
use super::list::styles;
use super::props::pool_change;
use super::{Fail, Outcome, change_error};
use crate::keys;
use crate::mounting::{self, How};

/// The classes with their headings, in the order in which they are shown.
const CLASSES: [(AllocClass, &str); 2] = [
    (AllocClass::Dedup, "dedup"),
    (AllocClass::Special, "special"),
];

/// `zpool split`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let is_imported = args.has('R');
    let assignments: Vec<_> = args
        .values('o')
        .map(|text| (text, split_assignment(text)))
        .collect();
    // Of several mount options the last ones count.
    let mount_options = assignments
        .iter()
        .rfind(|(_, assignment)| assignment.is_none());
    if !is_imported && mount_options.is_some() {
        let text = "setting mntopts is only valid when importing the pool";
        return Err(Fail::Usage(text.into()));
    }
    if !is_imported && args.has('l') {
        let text = "loading keys is only valid when importing the pool";
        return Err(Fail::Usage(text.into()));
    }
    let mut how = How::default();
    if let Some((text, _)) = mount_options {
        how.take(text);
    }
    let (name, new, words) = match args.operands.as_slice() {
        [] => return Err(Fail::Usage("Missing pool name".into())),
        [_] => return Err(Fail::Usage("Missing new pool name".into())),
        [name, new, words @ ..] => (name, new, words),
    };
    let what = format!("Unable to split {name}");
    let access = if args.has('n') {
        Access::Read
    } else {
        Access::Write
    };
    let pool = session
        .open(name, access)
        .map_err(|error| change_error(name, &what, &error))?;
    let devices: Result<Vec<Device>, String> =
        words.iter().map(|word| Device::find(word)).collect();
    let devices = devices
        .map_err(|text| format!("{text}\nUnable to build a pool from the specified devices"))?;
    let failed = |text: &str| Fail::Failed(format!("{what}: {text}"));
    check_pool_name(new, true).map_err(|e| failed(&e.to_string()))?;
    let assignments = assignments
        .into_iter()
        .filter_map(|(_, assignment)| assignment);
    let (changes, mut facts) = read_properties(assignments, &what)?;
    facts.altroot = args.value('R').map(str::to_owned).or(facts.altroot);
    if let Some(root) = facts.altroot.as_ref().filter(|root| !root.starts_with('/')) {
        return Err(failed(&format!("bad alternate root '{root}'")));
    }
    let (given, altroot) = (facts.cachefile.as_deref(), facts.altroot.as_deref());
    facts.cachefile = Facts::cachefile_of(given, altroot);
    let vdevs = pool.vdevs();
    let chosen = choose(&vdevs, &devices).map_err(|text| failed(&text))?;
    if args.has('n') {
        let (_, style, _) = styles(args);
        print!("{}", layout(new, &chosen, style));
        pool.close()?;
        return Ok(());
    }
    let split = Split {
        name: new,
        devices: chosen.iter().map(|(_, device)| Guid(device.guid)).collect(),
        changes,
        import: is_imported.then_some(facts),
    };
    session
        .split(&pool, &split)
        .map_err(|error| failed(&error_text(&error)))?;
    let has_keys = !args.has('l') || keys::load_all(session, new)?;
    if is_imported && session.pools().can_mount() {
        let open = session.open_as_imported(new)?;
        if !mounting::mount_pool(&open, &how)? {
            eprintln!(
                "Split was successful, but some datasets could not be mounted\nTry doing 'zpool import' with a \
                 different altroot"
            );
        }
    }
    Fail::exit(u8::from(!has_keys))
}

/// What is set in the new pool, and what is to be remembered of it.
fn read_properties<'a>(
    assignments: impl Iterator<Item = (&'a str, &'a str)>,
    what: &str,
) -> Result<(Vec<PoolChange>, Facts), Fail> {
    let (mut changes, mut facts) = (Vec::new(), Facts::default());
    for (name, value) in assignments {
        let tables = [TableKind::Pool, TableKind::Vdev];
        let is_known = tables.iter().any(|table| table.lookup(name).is_some());
        if !is_known && !name.starts_with("feature@") {
            let text = format!("property '{name}' is not a valid pool or vdev property");
            return Err(Fail::Usage(text));
        }
        let context = PoolContext {
            is_new: false,
            is_import: true,
        };
        let (name, value) =
            parse_pool_assignment(name, value, &context).map_err(|e| format!("{what}: {e}"))?;
        match (name.as_str(), value) {
            ("readonly", value) if value.as_number() == Some(1) => {
                let text = "property readonly can only be set at import time";
                return Err(Fail::Failed(format!("{what}: {text}")));
            }
            ("readonly", _) => {}
            ("altroot", value) => facts.altroot = value.as_text().map(str::to_owned),
            (_, value) => match pool_change((name, value), what)? {
                PoolChange::Cachefile(path) => facts.cachefile = Some(path),
                change => changes.push(change),
            },
        }
    }
    Ok((changes, facts))
}

/// The device of each mirror that is split off, with the class of the mirror: one of those that were named, or the
/// last.
fn choose<'v>(
    vdevs: &'v VdevStatus,
    named: &[Device],
) -> Result<Vec<(AllocClass, &'v VdevStatus)>, String> {
    let mut left: BTreeSet<String> = named.iter().map(Device::name).collect();
    let mut chosen = Vec::new();
    for top in &vdevs.children {
        if top.class == AllocClass::Log || matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) {
            continue;
        }
        let [.., last] = top.children.as_slice() else {
            return Err("Source pool must be composed only of mirrors\n".into());
        };
        if top.kind != VdevKind::Mirror {
            return Err("Source pool must be composed only of mirrors\n".into());
        }
        let is_named =
            |side: &&VdevStatus| side.path.as_ref().is_some_and(|path| left.contains(path));
        let side = top.children.iter().find(is_named).unwrap_or(last);
        if let Some(path) = &side.path {
            left.remove(path);
        }
        chosen.push((top.class, side));
    }
    if left.is_empty() && named.len() <= chosen.len() {
        return Ok(chosen);
    }
    Err("Device list must include at most one disk from each mirror".into())
}

#[doc(alias = "print_vdev_tree")]
fn layout(pool: &str, chosen: &[(AllocClass, &VdevStatus)], style: NameStyle) -> String {
    let mut text = format!("would create '{pool}' with the following layout:\n\n");
    let mut group = |class: AllocClass, heading: &str, style: NameStyle| {
        let of_class = chosen.iter().filter(|(have, _)| *have == class);
        let names: Vec<String> = of_class.map(|(_, device)| device.name(style)).collect();
        if !names.is_empty() {
            let _ = writeln!(text, "\t{heading}");
        }
        for name in names {
            let _ = writeln!(text, "\t  {name}");
        }
    };
    group(AllocClass::Normal, pool, style);
    let plain = super::list::name_style();
    CLASSES
        .into_iter()
        .for_each(|(class, heading)| group(class, heading, plain));
    text
}

fn error_text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Exists => error.context().to_owned(),
        ErrorKind::Busy if error.context().starts_with("device removal") => {
            error.context().to_owned()
        }
        ErrorKind::Busy => "pool is busy".to_owned(),
        ErrorKind::InvalidInput => {
            format!(
                "invalid argument for this pool operation\n{}",
                error.context()
            )
        }
        _ => error.to_string(),
    }
}
