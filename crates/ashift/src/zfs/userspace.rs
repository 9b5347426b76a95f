//! `zfs userspace`, `groupspace` and `projectspace`: what owners use, and may use.
//!
//! Source: OpenZFS cmd/zfs/zfs_main.c (`zfs_do_userspace`, `us_compare`),
//! lib/libzfs/libzfs_dataset.c (`zfs_userspace`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admin::getopt::{Flag, Parsed};
use admin::number::NumberStyle;
use admin::prop::{TableKind, Types, is_user_property};
use base::{Error, ErrorKind, ObjectId};
use dmu::Objset;
use phys::ObjsetType;
use phys::owner::{Counted, OwnerCount, OwnerKind};
use service::Session;

use super::fail::{Fail, Outcome, words};
use super::target::{Target, open_any};
use crate::{keys, owner};

/// Exit code where OpenZFS returns -1.
const FAILED: u8 = 255;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjUsed,
    ObjQuota,
}

impl Field {
    const ALL: [(Field, &'static str, &'static str); 6] = [
        (Field::Type, "type", "TYPE"),
        (Field::Name, "name", "NAME"),
        (Field::Used, "used", "USED"),
        (Field::Quota, "quota", "QUOTA"),
        (Field::ObjUsed, "objused", "OBJUSED"),
        (Field::ObjQuota, "objquota", "OBJQUOTA"),
    ];

    fn header(self) -> &'static str {
        let found = Field::ALL.iter().find(|(field, ..)| *field == self);
        found.map_or("", |(_, _, header)| header)
    }
}

/// Columns of `-o`.
fn fields(text: &str) -> Outcome<Vec<Field>> {
    let field = |word: &str| {
        let found = Field::ALL.iter().find(|(_, name, _)| *name == word);
        let wrong = || Fail::Exits(FAILED, format!("invalid type '{word}' for -o option"));
        found.map(|(field, ..)| *field).ok_or_else(wrong)
    };
    text.split(',').map(field).collect()
}

/// Kinds of owners of `-t`. Owners of SMB have none here, as in OpenZFS without illumos.
fn kinds(text: &str) -> Outcome<Vec<OwnerKind>> {
    let mut kinds = Vec::new();
    for word in text.split(',') {
        match word {
            "posixuser" => kinds.push(OwnerKind::User),
            "posixgroup" => kinds.push(OwnerKind::Group),
            "all" => kinds.extend([OwnerKind::User, OwnerKind::Group]),
            "smbuser" | "smbgroup" => {}
            _ => {
                let text = format!("invalid type '{word}' for -t option");
                return Err(Fail::Exits(FAILED, text));
            }
        }
    }
    Ok(kinds)
}

/// The kinds whose owners are collected for `-t`: those of SMB are counted with the others.
fn collected(text: &str) -> Vec<OwnerKind> {
    let has = |words: &[&str]| text.split(',').any(|word| words.contains(&word));
    let user = has(&["posixuser", "smbuser", "all"]).then_some(OwnerKind::User);
    let group = has(&["posixgroup", "smbgroup", "all"]).then_some(OwnerKind::Group);
    user.into_iter().chain(group).collect()
}

/// What there is of one owner.
struct Row {
    kind: OwnerKind,
    id: u64,
    name: Option<String>,
    bytes: Option<(u64, u64)>,
    objects: Option<(u64, u64)>,
}

impl Row {
    fn cell(&self, field: Field, style: NumberStyle) -> String {
        let limit = |limit: u64, text: fn(NumberStyle, u64) -> String| match limit {
            0 if style == NumberStyle::Nice => "none".to_owned(),
            limit => text(style, limit),
        };
        let cell = match field {
            Field::Type => match self.kind {
                OwnerKind::User => Some("POSIX User".to_owned()),
                OwnerKind::Group => Some("POSIX Group".to_owned()),
                OwnerKind::Project => Some("Project".to_owned()),
            },
            Field::Name => Some(self.name.clone().unwrap_or_else(|| self.id.to_string())),
            Field::Used => self.bytes.map(|(used, _)| style.bytes(used)),
            Field::Quota => self.bytes.map(|(_, most)| limit(most, NumberStyle::bytes)),
            Field::ObjUsed => self.objects.map(|(used, _)| style.number(used)),
            Field::ObjQuota => self
                .objects
                .map(|(_, most)| limit(most, NumberStyle::number)),
        };
        cell.unwrap_or_else(|| "-".to_owned())
    }

    /// Groups, users, projects.
    fn rank(&self) -> u8 {
        match self.kind {
            OwnerKind::Group => 0,
            OwnerKind::User => 1,
            OwnerKind::Project => 2,
        }
    }

    /// Those with names first.
    fn name_rank(&self) -> (u64, &str) {
        match &self.name {
            Some(name) => (0, name),
            None => (self.id, ""),
        }
    }

    fn compare(&self, other: &Row, by: &str) -> Ordering {
        let bytes = |row: &Row| row.bytes.unwrap_or_default();
        match by {
            "type" => self.rank().cmp(&other.rank()),
            "name" => self.name_rank().cmp(&other.name_rank()),
            "used" => bytes(self).0.cmp(&bytes(other).0),
            "quota" => bytes(self).1.cmp(&bytes(other).1),
            // Any other property may be named, and changes nothing.
            _ => Ordering::Equal,
        }
    }
}

/// What `-s` and `-S` sort by, and whether backwards.
fn sort_keys(parsed: &Parsed) -> Outcome<Vec<(&'static str, bool)>> {
    let mut keys = Vec::new();
    for (flag, value) in &parsed.options {
        let is_reverse = match flag {
            Flag::Short('s') => false,
            Flag::Short('S') => true,
            _ => continue,
        };
        let name = value.as_deref().unwrap_or_default();
        match TableKind::Dataset.lookup(name) {
            Some(desc) => keys.push((desc.name, is_reverse)),
            None if is_user_property(name) => {}
            None => return Err(Fail::usage(format!("invalid field '{name}'"))),
        }
    }
    keys.extend([("type", false), ("name", false)]);
    Ok(keys)
}

/// `zfs userspace`.
pub(super) fn userspace(session: &Session, parsed: &Parsed) -> Outcome {
    show(session, parsed, OwnerKind::User)
}

/// `zfs groupspace`.
pub(super) fn groupspace(session: &Session, parsed: &Parsed) -> Outcome {
    show(session, parsed, OwnerKind::Group)
}

/// `zfs projectspace`.
pub(super) fn projectspace(session: &Session, parsed: &Parsed) -> Outcome {
    show(session, parsed, OwnerKind::Project)
}

fn show(session: &Session, parsed: &Parsed, kind: OwnerKind) -> Outcome {
    let is_project = kind == OwnerKind::Project;
    if let Some(letter) = ['n', 't', 'i'].into_iter().find(|l| parsed.has(*l))
        && is_project
    {
        return Err(Fail::usage(format!("invalid option '{letter}'")));
    }
    let sort = sort_keys(parsed)?;
    let name = match &parsed.operands[..] {
        [] if parsed.options.is_empty() => return Err(Fail::usage("")),
        [] => return Err(Fail::usage("missing dataset name")),
        [name] => name,
        _ => return Err(Fail::usage("too many arguments")),
    };
    let columns = parsed
        .value('o')
        .unwrap_or("type,name,used,quota,objused,objquota");
    let columns = fields(columns)?;
    let shown = match parsed.value('t') {
        Some(text) => kinds(text)?,
        None => vec![kind],
    };
    let kinds = parsed.value('t').map_or_else(|| vec![kind], collected);
    let target = open_any(session, name, Types::FILESYSTEM.or(Types::SNAPSHOT))?;
    let mut rows = rows(&target, &kinds, parsed.has('n') || is_project)?;
    rows.sort_by(|a, b| {
        let ordered = sort.iter().map(|(by, is_reverse)| {
            let order = a.compare(b, by);
            if *is_reverse { order.reverse() } else { order }
        });
        ordered.fold(Ordering::Equal, Ordering::then)
    });
    print!("{}", table(&rows, &columns, &shown, parsed));
    Ok(())
}

/// What each owner of these kinds uses and may use.
fn rows(target: &Target, kinds: &[OwnerKind], is_numeric: bool) -> Outcome<Vec<Row>> {
    let name = &target.name;
    let what = format!("cannot get used/quota for {name}");
    let failed = |error: &Error| {
        let why = match error.kind() {
            ErrorKind::NoKey => "permission denied".to_owned(),
            ErrorKind::Unsupported => "unsupported version or feature".to_owned(),
            _ => words(error),
        };
        Fail::Exits(FAILED, format!("{what}: {why}"))
    };
    let is_unlocked = target.pool.is_unlocked(name).map_err(|e| failed(&e))?;
    if !is_unlocked && !target.pool.is_kept() {
        keys::unlock(&target.pool, name)?;
    }
    let dataset = target.dataset().expect("a bookmark is not opened");
    let objset = dataset.objset().map_err(|e| failed(&e))?;
    if objset.type_() != ObjsetType::Zfs {
        let text = "operation is only applicable to filesystems and their snapshots";
        return Err(Fail::failed(text));
    }
    let mut rows = Vec::new();
    for kind in kinds {
        let mut found = owners(&objset, *kind).map_err(|e| failed(&e))?;
        if let Some(row) = found.iter().find(|row| row.id > u64::from(u32::MAX)) {
            let (word, id) = (kind.word(), row.id);
            let text = format!("{what}: {word} {id:x} has a security identifier (SID)");
            return Err(Fail::Exits(FAILED, text));
        }
        if !is_numeric {
            let ids: BTreeSet<u64> = found.iter().map(|row| row.id).collect();
            let mut names = match kind {
                OwnerKind::User => owner::names_of_users(&ids),
                OwnerKind::Group => owner::names_of_groups(&ids),
                OwnerKind::Project => BTreeMap::new(),
            };
            found
                .iter_mut()
                .for_each(|row| row.name = names.remove(&row.id));
        }
        rows.extend(found);
    }
    Ok(rows)
}

/// All owners of one kind who have something or a limit.
fn owners(objset: &Arc<Objset>, kind: OwnerKind) -> base::Result<Vec<Row>> {
    let limits = |counted| zpl::owner_limits(objset, OwnerCount::new(kind, counted));
    let Some(bytes) = limits(Counted::Bytes)? else {
        return match kind {
            // Left out, as in OpenZFS.
            OwnerKind::Project => Ok(Vec::new()),
            _ => Err(Error::new(ErrorKind::Unsupported, "space is not counted")),
        };
    };
    let objects = limits(Counted::Objects)?;
    let used = zpl::space_by_owner(objset, ObjectId(kind.used_object()))?;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    let new = |id| Row {
        kind,
        id,
        name: None,
        bytes: None,
        objects: None,
    };
    for used in used {
        let row = rows.entry(used.id).or_insert_with(|| new(used.id));
        row.bytes = Some((used.bytes, 0));
        row.objects = objects.as_ref().map(|_| (used.objects, 0));
    }
    for (id, limit) in bytes {
        let row = rows.entry(id).or_insert_with(|| new(id));
        row.bytes.get_or_insert_default().1 = limit;
    }
    for (id, limit) in objects.unwrap_or_default() {
        let row = rows.entry(id).or_insert_with(|| new(id));
        row.objects.get_or_insert_default().1 = limit;
    }
    Ok(rows.into_values().collect())
}

/// The rows of kinds that are `shown`, in columns that are as wide as all of them need. Nothing without rows.
#[doc(alias = "print_us")]
fn table(rows: &[Row], columns: &[Field], shown: &[OwnerKind], parsed: &Parsed) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let style = match parsed.has('p') {
        true => NumberStyle::Exact,
        false => NumberStyle::Nice,
    };
    let is_scripted = parsed.has('H');
    let width = |field: Field| {
        let cells = rows.iter().map(|row| row.cell(field, style).len());
        cells.max().unwrap_or(0).max(field.header().len())
    };
    let widths: Vec<usize> = columns.iter().map(|field| width(*field)).collect();
    let line = |cell: &dyn Fn(Field) -> String| {
        let cells = columns.iter().zip(&widths).map(|(field, width)| {
            let text = cell(*field);
            match field {
                _ if is_scripted => text,
                Field::Type | Field::Name => format!("{text:<width$}"),
                _ => format!("{text:>width$}"),
            }
        });
        let cells: Vec<String> = cells.collect();
        cells.join(if is_scripted { "\t" } else { "  " }) + "\n"
    };
    let header = (!is_scripted).then(|| line(&|field| field.header().to_owned()));
    let shown = rows.iter().filter(|row| shown.contains(&row.kind));
    let lines = shown.map(|row| line(&|field| row.cell(field, style)));
    header.into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: OwnerKind, id: u64, name: Option<&str>, quota: u64) -> Row {
        Row {
            kind,
            id,
            name: name.map(str::to_owned),
            bytes: Some((512, quota)),
            objects: None,
        }
    }

    #[test]
    fn names_come_before_numbers() {
        let named = row(OwnerKind::User, 70_000, Some("zoe"), 0);
        let number = row(OwnerKind::User, 1, None, 0);
        assert_eq!(named.compare(&number, "name"), Ordering::Less);
        assert_eq!(named.compare(&number, "mountpoint"), Ordering::Equal);
    }

    #[test]
    fn a_table_is_as_wide_as_what_is_left_out() {
        let rows = [
            row(OwnerKind::Group, 0, Some("wheel"), 0),
            row(OwnerKind::User, 5, None, 8 << 20),
        ];
        let parsed = Parsed {
            options: Vec::new(),
            operands: Vec::new(),
        };
        let columns = fields("type,name,quota,objquota").unwrap();
        let text = table(&rows, &columns, &[OwnerKind::User], &parsed);
        assert_eq!(
            text,
            "TYPE         NAME   QUOTA  OBJQUOTA\nPOSIX User   5         8M         -\n"
        );
        assert!(fields("type,nope").is_err());
    }
}
