//! `zfs bookmark`.
//!
//! Source: OpenZFS cmd/zfs/zfs_main.c (`zfs_do_bookmark`, `zfs_bookmark_perror`).

use admin::getopt::Parsed;
use admin::name::{NameKind, check_name, dataset_of, pool_of};
use admin::prop::Types;
use base::{Error, ErrorKind};
use service::Session;

use super::fail::{Fail, Outcome, words};
use super::target::open;

/// `zfs bookmark SNAPSHOT|BOOKMARK BOOKMARK`; either may be short, the other is a full name.
pub(super) fn bookmark(session: &Session, parsed: &Parsed) -> Outcome {
    let (source, mark) = match &parsed.operands[..] {
        [] => return Err(Fail::usage("missing source argument")),
        [_] => return Err(Fail::usage("missing bookmark argument")),
        [source, mark, ..] => (source.as_str(), mark.as_str()),
    };
    if !source.contains(['@', '#']) {
        return Err(Fail::usage(format!(
            "invalid source name '{source}': must contain a '@' or '#'"
        )));
    }
    if !mark.contains('#') {
        return Err(Fail::usage(format!(
            "invalid bookmark name '{mark}': must contain a '#'"
        )));
    }
    let (source, mark) = match (source.starts_with(['@', '#']), mark.starts_with('#')) {
        (true, true) => {
            return Err(Fail::usage(
                "either source or bookmark must be specified as full dataset paths",
            ));
        }
        (true, false) => (format!("{}{source}", dataset_of(mark)), mark.to_owned()),
        (false, true) => (source.to_owned(), format!("{}{mark}", dataset_of(source))),
        (false, false) => (source.to_owned(), mark.to_owned()),
    };
    let types = Types::SNAPSHOT.or(Types::BOOKMARK);
    let found = open(session, &source, types).map_err(shows_usage)?;
    if check_name(&mark, NameKind::Any, true).is_err() {
        return Err(refused(&mark, "invalid argument"));
    }
    if pool_of(&mark) != pool_of(&source) {
        return Err(refused(&mark, "bookmark is in a different pool"));
    }
    let pool = &found.pool;
    let made = pool.change_datasets(|datasets| datasets.create_bookmark(&mark, &source));
    made.map_err(|e| refused(&mark, &why(&e)))
}

/// A source that cannot be opened is reported as a usage error.
fn shows_usage(fail: Fail) -> Fail {
    match fail {
        Fail::Failed(text) => Fail::Usage(text),
        other => other,
    }
}

fn refused(mark: &str, why: &str) -> Fail {
    Fail::failed(format!("cannot create bookmark '{mark}': {why}"))
}

#[doc(alias = "zfs_bookmark_perror")]
fn why(error: &Error) -> String {
    match error.kind() {
        ErrorKind::InvalidInput => {
            "source is not an ancestor of the new bookmark's dataset".to_owned()
        }
        ErrorKind::Exists => "bookmark exists".to_owned(),
        ErrorKind::Unsupported => "bookmark feature not enabled".to_owned(),
        _ => words(error),
    }
}
