//! `zfs bookmark`.
//!
//! Source: OpenZFS cmd/zfs/zfs_main.c (`zfs_do_bookmark`, `zfs_bookmark_perror`).

use admin::getopt::Parsed;
use admin::name::{dataset_of, pool_of};
use admin::prop::Types;
use base::{Error, ErrorKind};

use super::fail::{Fail, Outcome, words};
use super::session::Session;
use super::target::{exists, open};

/// `zfs bookmark SNAPSHOT BOOKMARK`; either may be short, the other is a full name.
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
    if source.contains('#') {
        return Err(Fail::failed(format!(
            "cannot create bookmark '{mark}': copies of bookmarks are not supported yet"
        )));
    }
    let snapshot = open(session, &source, Types::SNAPSHOT)?;
    let mut wanted = vec![(mark.clone(), source.clone())];
    if parsed.has('r') {
        let (snap, mark) = (after(&source, '@'), after(&mark, '#'));
        let head = open(
            session,
            dataset_of(&source),
            Types::FILESYSTEM.or(Types::VOLUME),
        )?;
        let failed = |e: Error| Fail::of(format!("cannot iterate '{}'", head.name), &e);
        wanted.clear();
        for head in head.with_descendants().map_err(failed)? {
            let snapshot = format!("{}@{snap}", head.name);
            if exists(&head.pool, &snapshot).map_err(failed)? {
                wanted.push((format!("{}#{mark}", head.name), snapshot));
            }
        }
    }
    for (mark, source) in &wanted {
        if pool_of(mark) != pool_of(source) {
            return Err(refused(mark, "bookmark is in a different pool"));
        }
        let made = snapshot.dsl().create_bookmark(mark, source);
        made.map_err(|e| refused(mark, &why(&e)))?;
        session.note_change(pool_of(mark));
    }
    Ok(())
}

fn after(name: &str, mark: char) -> &str {
    name.split_once(mark).map_or("", |(_, rest)| rest)
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
