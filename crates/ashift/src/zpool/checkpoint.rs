//! `zpool checkpoint`: takes the checkpoint of a pool, or discards it.
//!
//! # What it is
//! What only the checkpoint refers to is freed while the pool is open: unless it stays open, `-d` does it to its end,
//! with and without `-w`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_checkpoint`), lib/libzfs/libzfs_pool.c (`zpool_checkpoint`,
//! `zpool_discard_checkpoint`).

use admin::getopt::Parsed;
use service::{Access, Activity, Session};

use super::{Fail, Outcome, change_error};

/// `zpool checkpoint`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let discards = args.has('d');
    if args.has('w') && !discards {
        let text = "--wait only valid when --discard also specified";
        return Err(Fail::Usage(text.into()));
    }
    let name = match &args.operands[..] {
        [] => return Err(Fail::Usage("missing pool argument".into())),
        [name] => name,
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    if name.contains('/') {
        return Err(no_dataset(name));
    }
    let what = if discards {
        format!("cannot discard checkpoint in '{name}'")
    } else {
        format!("cannot checkpoint '{name}'")
    };
    let pool = session.open(name, Access::Write);
    let pool = pool.map_err(|error| change_error(name, &what, &error))?;
    let done = if discards {
        pool.discard_checkpoint()
    } else {
        pool.take_checkpoint()
    };
    done.map_err(|error| Fail::Failed(format!("{what}: {error}")))?;
    session.log(&pool)?;
    if discards && (args.has('w') || !pool.is_kept()) {
        pool.wait_for(&[Activity::Discard], None)?;
    }
    pool.sync()?;
    pool.close()?;
    Ok(())
}

/// What is said to a user who means a dataset.
fn no_dataset(name: &str) -> Fail {
    Fail::Failed(format!(
        "cannot open '{name}': invalid character '/' in pool name\n'zpool checkpoint' doesn't work on datasets. To \
         save the state of a dataset from a specific point in time please use 'zfs snapshot'"
    ))
}
