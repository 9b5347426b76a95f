//! `zpool upgrade`: which features a pool does not have yet, and enabling them.
//!
//! # What it is
//! Pools with feature flags (version 5000) get the features that they lack. Those of versions 1 to 28 are brought up to
//! version 5000 first; to other versions they are not upgraded.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_upgrade`).

use admin::getopt::Parsed;
use phys::feature::{self, Feature};
use phys::uberblock::SPA_VERSION_FEATURES;
use service::{Access, Compatibility, OpenPool, PoolChange, Session};
use spa::FeatureState;

use super::list::{pool_names, repeated_code};
use super::{Fail, Outcome, change_error, open_error};

/// `SPA_VERSION_BEFORE_FEATURES`
const LAST_LEGACY_VERSION: u64 = 28;

const OLD_VERSIONS: [&str; LAST_LEGACY_VERSION as usize] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

/// `zpool upgrade`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let version = args.value('V').map(parse_version).transpose()?;
    let (all, given) = (args.has('a'), &args.operands);
    let usage = |text: &str| Err(Fail::Usage(text.to_owned()));
    if version.is_some() && !all && given.is_empty() {
        return usage("-V option is incompatible with other arguments");
    }
    if args.has('v') && (all || !given.is_empty()) {
        return usage("-v option is incompatible with other arguments");
    }
    if all && !given.is_empty() {
        return usage("-a option should not be used along with a pool name");
    }
    print!("This system supports ZFS pool feature flags.\n\n");
    let version = version.unwrap_or(SPA_VERSION_FEATURES);
    if args.has('v') {
        show_versions();
        Ok(())
    } else if all {
        upgrade_all(session, version)
    } else if given.is_empty() {
        list_disabled(session)
    } else {
        upgrade_given(session, given, version)
    }
}

fn parse_version(text: &str) -> Result<u64, Fail> {
    let version = text.parse().unwrap_or(0);
    let is_supported =
        (1..=LAST_LEGACY_VERSION).contains(&version) || version == SPA_VERSION_FEATURES;
    if !is_supported {
        return Err(Fail::Usage(format!("invalid version '{text}'")));
    }
    Ok(version)
}

/// The features that can be enabled here.
fn supported() -> impl Iterator<Item = &'static Feature> {
    feature::kept()
}

fn disabled(pool: &OpenPool) -> Vec<&'static Feature> {
    let is_disabled = |f: &&Feature| pool.feature(f.guid) == FeatureState::Disabled;
    supported().filter(is_disabled).collect()
}

fn show_versions() {
    print!("The following features are supported:\n\nFEAT DESCRIPTION\n");
    println!("{}", "-".repeat(61));
    for feature in supported() {
        let note = if feature.readonly_compat {
            " (read-only compatible)"
        } else {
            ""
        };
        println!("{:<37}{note}\n     {}", feature.name, feature.description);
    }
    print!("\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n");
    println!("---  {}", "-".repeat(56));
    for (number, text) in (1..).zip(OLD_VERSIONS) {
        println!(" {number:<2}  {text}");
    }
    print!(
        "\nFor more information on a particular version, including supported releases,\nsee the ZFS \
         Administration Guide.\n\n"
    );
}

fn list_disabled(session: &Session) -> Outcome {
    list_legacy(session)?;
    let mut is_first = true;
    for name in session.pools().names()? {
        let pool = session
            .open(&name, Access::Read)
            .map_err(|e| open_error(&name, &e))?;
        let missing = disabled(&pool);
        if missing.is_empty() || is_legacy(&pool) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            print!(
                "\nSome supported features are not enabled on the following pools. Once a\nfeature is \
                 enabled the pool may become incompatible with software\nthat does not support the \
                 feature. See zpool-features(7) for details.\n\nNote that the pool 'compatibility' \
                 feature can be used to inhibit\nfeature upgrades.\n\nPOOL  FEATURE\n---------------\n"
            );
        }
        println!("{name}");
        for feature in missing {
            println!("      {}", feature.name);
        }
    }
    if is_first {
        println!("Every feature flags pool has all supported and requested features enabled.");
    } else {
        println!();
    }
    Ok(())
}

fn is_legacy(pool: &OpenPool) -> bool {
    pool.version() < SPA_VERSION_FEATURES
}

/// Lists the pools of versions before feature flags.
#[doc(alias = "upgrade_list_older_cb")]
fn list_legacy(session: &Session) -> Outcome {
    let mut is_first = true;
    for name in session.pools().names()? {
        let pool = session
            .open(&name, Access::Read)
            .map_err(|e| open_error(&name, &e))?;
        if !is_legacy(&pool) {
            continue;
        }
        if std::mem::take(&mut is_first) {
            print!(
                "The following pools are formatted with legacy version numbers and can\nbe upgraded to use \
                 feature flags.  After being upgraded, these pools\nwill no longer be accessible by software \
                 that does not support feature\nflags.\n\nNote that setting a pool's 'compatibility' feature \
                 to 'legacy' will\ninhibit upgrades.\n\nVER  POOL\n---  ------------\n"
            );
        }
        println!("{:2}   {name}", pool.version());
    }
    if is_first {
        print!("All pools are formatted using feature flags.\n\n");
    } else {
        println!("\nUse 'zpool upgrade -v' for a list of available legacy versions.");
    }
    Ok(())
}

/// The version of a pool, if it is from before feature flags.
fn legacy_version(session: &Session, name: &str) -> Result<Option<u64>, Fail> {
    let pool = session
        .open(name, Access::Read)
        .map_err(|e| open_error(name, &e))?;
    Ok(is_legacy(&pool).then(|| pool.version()))
}

/// Upgrades a pool of version `from`, if that is older than `version`.
fn upgrade_version(session: &Session, name: &str, from: u64, version: u64) -> Outcome {
    if version < SPA_VERSION_FEATURES {
        return Err(Fail::Failed(format!(
            "cannot upgrade '{name}': only version {SPA_VERSION_FEATURES} is written here, not version {version}"
        )));
    }
    let pool = session.open(name, Access::Read);
    let sets = pool.map_err(|e| open_error(name, &e))?.compatibility();
    if sets.as_deref() == Some("legacy") {
        let text = "Upgrade not performed because 'compatibility' property set to 'legacy'.";
        return Err(Fail::Failed(text.to_owned()));
    }
    let upgraded = session.upgrade_version(name);
    upgraded.map_err(|e| format!("cannot upgrade '{name}': {e}"))?;
    println!("Successfully upgraded '{name}' from version {from} to feature flags.");
    Ok(())
}

fn upgrade_all(session: &Session, version: u64) -> Outcome {
    let mut is_changed = false;
    for name in session.pools().names()? {
        let from = legacy_version(session, &name)?.filter(|from| *from < version);
        if let Some(from) = from {
            upgrade_version(session, &name, from, version)?;
        }
        let has_more = version == SPA_VERSION_FEATURES && enable_all(session, &name)?;
        if from.is_some() || has_more {
            println!();
            is_changed = true;
        }
    }
    if is_changed {
        return Ok(());
    }
    if version == SPA_VERSION_FEATURES {
        print!(
            "All pools are already formatted using feature flags.\n\nEvery feature flags pool already has \
             all supported and requested features enabled.\n"
        );
    } else {
        println!("All pools are already formatted with version {version} or higher.");
    }
    Ok(())
}

fn upgrade_given(session: &Session, given: &[String], version: u64) -> Outcome {
    let mut code = repeated_code(given);
    for name in &pool_names(session, given)? {
        match upgrade_one(session, name, version) {
            Err(Fail::Failed(text)) => {
                eprintln!("{text}");
                code = 1;
            }
            outcome => outcome?,
        }
    }
    Fail::exit(code)
}

fn upgrade_one(session: &Session, name: &str, version: u64) -> Outcome {
    let legacy = legacy_version(session, name)?;
    let current = legacy.unwrap_or(SPA_VERSION_FEATURES);
    if current > version {
        print!("Pool '{name}' is already formatted using more current version '{current}'.\n\n");
        return Ok(());
    }
    if current == version && legacy.is_some() {
        print!("Pool '{name}' is already formatted using version {version}.\n\n");
        return Ok(());
    }
    if let Some(from) = legacy {
        upgrade_version(session, name, from, version)?;
    }
    if enable_all(session, name)? || legacy.is_some() {
        println!();
    } else {
        println!("Pool '{name}' already has all supported and requested features enabled.");
    }
    Ok(())
}

/// Enables every feature that the pool lacks and its `compatibility` allows; returns whether there was one.
#[doc(alias = "upgrade_enable_all")]
fn enable_all(session: &Session, name: &str) -> Result<bool, Fail> {
    let pool = session
        .open_as_imported(name)
        .map_err(|e| open_error(name, &e))?;
    let sets = Compatibility::load(&pool.compatibility().unwrap_or_default());
    let sets = sets.map_err(|e| format!("cannot upgrade '{name}': {e}"))?;
    let wanted: Vec<_> = disabled(&pool)
        .into_iter()
        .filter(|f| sets.allows(f))
        .collect();
    if wanted.is_empty() {
        return Ok(false);
    }
    for (at, feature) in wanted.into_iter().enumerate() {
        let what = format!("cannot set property for '{name}'");
        let change = pool.change_property(&PoolChange::Feature(feature));
        change.map_err(|e| change_error(name, &what, &e))?;
        if at == 0 {
            println!("Enabled the following features on '{name}':");
        }
        println!("  {}", feature.name);
    }
    session.finish_change(&pool, true)?;
    Ok(true)
}
