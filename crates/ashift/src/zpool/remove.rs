//! `zpool remove`: taking hot spares and cache devices out of a pool.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_remove`), lib/libzfs/libzfs_pool.c (`zpool_vdev_remove`).

use admin::getopt::Parsed;
use base::{ErrorKind, Guid};
use service::{Access, OpenPool, Session};

use super::device_state::{find_device, find_group};
use super::{Fail, Outcome, change_error, refuse_options};

/// `zpool remove`. Goes on with the next device when one cannot be removed.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    refuse_options(args, "remove", "npsw")?;
    let Some((name, words)) = args.operands.split_first() else {
        return Err(Fail::Usage("missing pool name argument".into()));
    };
    if words.is_empty() {
        return Err(Fail::Usage("missing device".into()));
    }
    let what = format!("cannot remove {}", words[0]);
    let pool = session.open(name, Access::Write);
    let pool = pool.map_err(|error| change_error(name, &what, &error))?;
    let mut code = 0;
    for word in words {
        if let Err(why) = remove(&pool, word) {
            eprintln!("cannot remove {word}: {why}");
            code = 1;
        }
    }
    session.finish_change(&pool, code == 0)?;
    Fail::exit(code)
}

fn remove(pool: &OpenPool, word: &str) -> Result<(), String> {
    let spares = pool.spare_devices();
    let spare = spares.iter().find_map(|spare| find_device(spare, word));
    let caches = pool.cache_devices();
    if let Some(cache) = caches.iter().find_map(|cache| find_device(cache, word)) {
        let removed = pool.remove_cache(Guid(cache.guid));
        return removed.map_err(|error| error.to_string());
    }
    let Some(spare) = spare else {
        let vdevs = pool.vdevs();
        let is_there = find_device(&vdevs, word).or_else(|| find_group(&vdevs, word));
        return Err(match is_there {
            Some(_) => "removing top-level vdevs is not supported yet".to_owned(),
            None => "no such device in pool".to_owned(),
        });
    };
    pool.remove_spare(Guid(spare.guid))
        .map_err(|error| match error.kind() {
            ErrorKind::Busy => "Pool busy; removal may already be in progress".to_owned(),
            _ => error.to_string(),
        })
}
