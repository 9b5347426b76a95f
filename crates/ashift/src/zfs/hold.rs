//! `zfs hold`, `zfs release`, `zfs holds`.

use admin::getopt::Parsed;
use admin::name::pool_of;
use admin::number::creation_time;
use admin::prop::Types;
use base::{Error, ErrorKind};

use super::fail::{Fail, Outcome, for_each, words};
use super::session::Session;
use super::target::{Target, exists, find, open};

/// The snapshots that `name` means: with `recursive`, those of that name further down as well.
fn snapshots(session: &Session, name: &str, recursive: bool) -> Outcome<Vec<Target>> {
    let Some((head, snap)) = name.split_once('@') else {
        return Err(Fail::failed(format!("'{name}' is not a snapshot")));
    };
    let head = open(session, head, Types::FILESYSTEM.or(Types::VOLUME))?;
    let failed = |e: Error| Fail::of(format!("cannot open '{name}'"), &e);
    if !recursive {
        return Ok(vec![find(&head.pool, name).map_err(failed)?]);
    }
    let mut found = Vec::new();
    for head in head.with_descendants().map_err(failed)? {
        let full = format!("{}@{snap}", head.name);
        if exists(&head.pool, &full).map_err(failed)? {
            found.push(find(&head.pool, &full).map_err(failed)?);
        }
    }
    if found.is_empty() {
        return Err(Fail::failed(format!(
            "cannot open '{name}': dataset does not exist"
        )));
    }
    Ok(found)
}

fn tag_and_names(parsed: &Parsed) -> Outcome<(&str, &[String])> {
    match &parsed.operands[..] {
        [] | [_] => Err(Fail::usage("")),
        [tag, ..] if tag.starts_with('.') => {
            Err(Fail::usage(format!("tag may not start with '.': {tag}")))
        }
        [tag, names @ ..] => Ok((tag, names)),
    }
}

/// Runs `act` for the snapshots of each name, all of a name together.
fn change(
    session: &Session,
    parsed: &Parsed,
    what: &str,
    act: impl Fn(&Target, &[&str], &str) -> base::Result<()>,
    wrong_tag: (ErrorKind, &str),
) -> Outcome {
    let (tag, names) = tag_and_names(parsed)?;
    for_each(names, |name| {
        let snapshots = snapshots(session, name, parsed.has('r'))?;
        let names: Vec<&str> = snapshots.iter().map(|snap| snap.name.as_str()).collect();
        act(&snapshots[0], &names, tag).map_err(|e| {
            let why = if e.kind() == wrong_tag.0 {
                wrong_tag.1.to_owned()
            } else {
                words(&e)
            };
            Fail::failed(format!("{what} '{name}': {why}"))
        })?;
        session.note_change(pool_of(name));
        Ok(())
    })
}

/// `zfs hold`.
pub(super) fn hold(session: &Session, parsed: &Parsed) -> Outcome {
    if parsed.has('t') {
        return Err(Fail::failed(
            "zfs hold -t: temporary holds are not supported",
        ));
    }
    change(
        session,
        parsed,
        "cannot hold snapshot",
        |first, names, tag| first.dsl().hold(names, tag),
        (ErrorKind::Exists, "tag already exists on this dataset"),
    )
}

/// `zfs release`.
pub(super) fn release(session: &Session, parsed: &Parsed) -> Outcome {
    change(
        session,
        parsed,
        "cannot release hold from snapshot",
        |first, names, tag| first.dsl().release(names, tag),
        (ErrorKind::NotFound, "no such tag on this dataset"),
    )
}

/// `zfs holds`.
pub(super) fn holds(session: &Session, parsed: &Parsed) -> Outcome {
    if parsed.operands.is_empty() {
        return Err(Fail::usage(""));
    }
    let mut rows: Vec<(String, String, u64)> = Vec::new();
    let outcome = for_each(&parsed.operands, |name| {
        for snapshot in snapshots(session, name, parsed.has('r'))? {
            let Some(ds) = snapshot.dataset() else {
                continue;
            };
            let holds = snapshot.dsl().holds(ds);
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

/// As `creation` is shown, but with two digits for the hour.
fn hold_time(at: u64) -> String {
    let mut text = creation_time(at, crate::zone::local());
    if text.as_bytes().get(11) == Some(&b' ') {
        text.replace_range(11..12, "0");
    }
    text
}
