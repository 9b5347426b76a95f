//! `zfs hold`, `zfs release`, `zfs holds`.

use admin::getopt::Parsed;
use admin::number::creation_time;
use admin::prop::Types;
use base::{Error, ErrorKind};
use service::Session;

use super::fail::{Fail, Outcome, for_each, words};
use super::target::{Target, exists, find, open};

/// `MAXNAMELEN`: tags have fewer bytes than this.
const TAG_LEN_LIMIT: usize = 256;

/// Splits a snapshot's name; anything else is not one.
fn split(name: &str) -> Outcome<(&str, &str)> {
    name.split_once('@')
        .ok_or_else(|| Fail::failed(format!("'{name}' is not a snapshot")))
}

/// The head of a snapshot's name; with `recursive`, also those below it.
fn heads(session: &Session, head: &str, recursive: bool) -> Outcome<Vec<Target>> {
    let target = open(session, head, Types::FILESYSTEM.or(Types::VOLUME))?;
    if !recursive {
        return Ok(vec![target]);
    }
    let failed = |e: Error| Fail::of(format!("cannot open '{head}'"), &e);
    target.with_descendants().map_err(failed)
}

fn tag_and_names(parsed: &Parsed) -> Outcome<(&str, &[String])> {
    match &parsed.operands[..] {
        [] | [_] => Err(Fail::usage("")),
        [tag, names @ ..] => Ok((tag, names)),
    }
}

/// `zfs hold`; its `-t` has no effect in OpenZFS either.
pub(super) fn hold(session: &Session, parsed: &Parsed) -> Outcome {
    let (tag, names) = tag_and_names(parsed)?;
    if tag.starts_with('.') {
        return Err(Fail::usage("tag may not start with '.'"));
    }
    for_each(names, |name| {
        let (head, snap) = split(name)?;
        let heads = heads(session, head, parsed.has('r'))?;
        hold_one(&heads, snap, tag).map_err(|(what, why)| Fail::failed(format!("{what}: {why}")))
    })
}

/// Holds the snapshots `snap` of `heads`, all or none; returns an error in two parts.
#[doc(alias = "zfs_hold")]
fn hold_one(heads: &[Target], snap: &str, tag: &str) -> Result<(), (String, String)> {
    let what = format!("cannot hold snapshot '{}@{snap}'", heads[0].name);
    let failed = |e: &Error| (what.clone(), words(e));
    let mut found = Vec::new();
    for head in heads {
        let full = format!("{}@{snap}", head.name);
        if exists(&head.pool, &full).map_err(|e| failed(&e))? {
            found.push(full);
        }
    }
    if found.is_empty() {
        return Err((what, "dataset does not exist".to_owned()));
    }
    if tag.is_empty() {
        let why = "operation not applicable to datasets of this type";
        return Err(("cannot hold".to_owned(), why.to_owned()));
    }
    if tag.len() >= TAG_LEN_LIMIT {
        return Err((what, "tag too long".to_owned()));
    }
    let names: Vec<&str> = found.iter().map(String::as_str).collect();
    let held = heads[0]
        .pool
        .change_datasets(|datasets| datasets.hold(&names, tag));
    held.map_err(|e| match e.kind() {
        ErrorKind::Exists => (
            what.clone(),
            "tag already exists on this dataset".to_owned(),
        ),
        ErrorKind::ReadOnly => ("cannot hold".to_owned(), words(&e)),
        _ => failed(&e),
    })
}

/// `zfs release`.
pub(super) fn release(session: &Session, parsed: &Parsed) -> Outcome {
    let (tag, names) = tag_and_names(parsed)?;
    for_each(names, |name| {
        let (head, snap) = split(name)?;
        let heads = heads(session, head, parsed.has('r'))?;
        let why = release_one(&heads, snap, tag);
        why.map_err(|why| {
            Fail::failed(format!("cannot release hold from snapshot '{name}': {why}"))
        })
    })
}

/// Releases the hold on those of the snapshots `snap` of `heads` that have it; at least one must. Otherwise
/// the error is that of the last one.
#[doc(alias = "zfs_release")]
fn release_one(heads: &[Target], snap: &str, tag: &str) -> Result<(), String> {
    let mut found = Vec::new();
    let mut why = "";
    for head in heads {
        let full = format!("{}@{snap}", head.name);
        if !exists(&head.pool, &full).map_err(|e| words(&e))? {
            why = "dataset does not exist";
            continue;
        }
        let snapshot = find(&head.pool, &full).map_err(|e| words(&e))?;
        let ds = snapshot.dataset().expect("a snapshot is a dataset");
        let holds = snapshot.datasets().holds(ds).map_err(|e| words(&e))?;
        if holds.iter().any(|(held, _)| held == tag) {
            found.push(full);
        } else {
            why = "no such tag on this dataset";
        }
    }
    if found.is_empty() {
        return Err(why.to_owned());
    }
    let names: Vec<&str> = found.iter().map(String::as_str).collect();
    let pool = &heads[0].pool;
    let released = pool.change_datasets(|datasets| datasets.release(&names, tag));
    released.map_err(|e| words(&e))
}

/// The snapshots that `name` means for `zfs holds`.
fn held(session: &Session, name: &str, recursive: bool) -> Outcome<Vec<Target>> {
    let (head, snap) = split(name)?;
    if !recursive {
        return Ok(vec![open(session, name, Types::SNAPSHOT)?]);
    }
    let failed = |e: Error| Fail::of(format!("cannot open '{name}'"), &e);
    let mut found = Vec::new();
    for head in heads(session, head, true)? {
        let full = format!("{}@{snap}", head.name);
        if exists(&head.pool, &full).map_err(failed)? {
            found.push(find(&head.pool, &full).map_err(failed)?);
        }
    }
    Ok(found)
}

/// `zfs holds`.
pub(super) fn holds(session: &Session, parsed: &Parsed) -> Outcome {
    if parsed.operands.is_empty() {
        return Err(Fail::usage(""));
    }
    let mut rows: Vec<(String, String, u64)> = Vec::new();
    let mut is_empty = true;
    let outcome = for_each(&parsed.operands, |name| {
        for snapshot in held(session, name, parsed.has('r'))? {
            is_empty = false;
            let Some(ds) = snapshot.dataset() else {
                continue;
            };
            let holds = snapshot.datasets().holds(ds);
            let mut holds = holds.map_err(|e| Fail::of(format!("cannot read '{name}'"), &e))?;
            holds.sort();
            rows.extend(
                holds
                    .into_iter()
                    .map(|(tag, at)| (snapshot.name.clone(), tag, at)),
            );
        }
        Ok(())
    });
    print_holds(&rows, parsed.has('H'), parsed.has('p'));
    if is_empty {
        eprintln!("no datasets available");
    }
    outcome
}

fn print_holds(rows: &[(String, String, u64)], scripted: bool, exact: bool) {
    let widest = |least: &str, of: &dyn Fn(&(String, String, u64)) -> usize| {
        rows.iter().map(of).chain([least.len()]).max().unwrap_or(0)
    };
    let (names, tags) = (
        widest("NAME", &|row| row.0.len()),
        widest("TAG", &|row| row.1.len()),
    );
    if !scripted {
        println!("{:<names$}  {:<tags$}  TIMESTAMP", "NAME", "TAG");
    }
    for (name, tag, at) in rows {
        let time = if exact {
            at.to_string()
        } else {
            hold_time(*at)
        };
        if scripted {
            println!("{name}\t{tag}\t{time}");
        } else {
            println!("{name:<names$}  {tag:<tags$}  {time}");
        }
    }
}

/// Formatted like `creation`, but with two digits for the hour.
fn hold_time(at: u64) -> String {
    let mut text = creation_time(at, crate::zone::local());
    if text.as_bytes().get(11) == Some(&b' ') {
        text.replace_range(11..12, "0");
    }
    text
}
