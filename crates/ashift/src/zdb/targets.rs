//! The targets of a command line: pools, datasets, objects, files by their path.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`main`, `parse_object_range`, `dump_path`, `zdb_copy_object`).

use admin::number::number_prefix;
use std::fs::File;
use std::io::Write;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Objset;
use phys::ObjectType;
use phys::znode::{MASTER_NODE_OBJ, dirent_object, master_node};
use zap::Zap;
use zpl::{Filesystem, OpenOptions};

use super::datasets::Subject;
use super::objects::{Dumper, write_object};
use super::pool::Pool;
use super::request::Request;
use super::text::Printer;
use crate::failure::Outcome;

/// `ENOENT`, as an exit status.
const NOT_FOUND: u8 = 2;
/// `EINVAL`, as an exit status.
const INVALID: u8 = 22;
/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// A pool, a dataset, or a bookmark.
pub(super) struct Target {
    /// As it was typed, without a slash at the end.
    pub(super) text: String,
    /// The pool.
    pub(super) pool: String,
    /// The number after the first slash: a dataset's objset id.
    number: Option<u64>,
    is_pool: bool,
}

impl Target {
    pub(super) fn parse(typed: &str) -> Target {
        let end = typed.find(['/', '@']).unwrap_or(typed.len());
        let text = typed.strip_suffix('/').unwrap_or(typed).to_owned();
        let rest = text.split_once('/').map_or("", |(_, rest)| rest);
        let digits = rest
            .strip_prefix("0x")
            .or_else(|| rest.strip_prefix("0X"))
            .unwrap_or(rest);
        let is_numeric = !rest.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let (number, unread) = number_prefix(rest);
        Target {
            pool: typed[..end].to_owned(),
            number: Some(number).filter(|_| is_numeric && unread != rest),
            is_pool: end == typed.len(),
            text,
        }
    }

    /// Whether it is a dataset, by its name or by its objset number.
    pub(super) fn is_dataset(&self) -> bool {
        // Objset 0 is the pool's own.
        !self.is_pool && self.number != Some(0)
    }

    /// Whether the pool's name is followed by something that is not a number.
    pub(super) fn is_bad_number(&self) -> bool {
        self.text.contains('/') && self.number.is_none()
    }

    /// The bookmark that is named.
    pub(super) fn bookmark(&self) -> Option<&str> {
        let is_bookmark = !self.is_pool && self.text.contains('#');
        is_bookmark.then_some(&*self.text)
    }
}

/// The error text of a C library.
pub(super) fn words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "No such file or directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Handles `-O` and `-r` of a dataset that does not exist.
pub(super) fn is_missing(request: &Request, target: &Target, error: Error) -> Result<u8> {
    if error.kind() != ErrorKind::NotFound {
        return Err(error);
    }
    eprintln!(
        "failed to hold dataset '{}': {}",
        target.text,
        words(&error)
    );
    if request.has('r') {
        return Err(internal_error(NOT_FOUND));
    }
    Ok(NOT_FOUND)
}

/// If the pool is not imported, zdb still looks for the dataset by name, and reports it missing.
pub(super) fn say_missing(request: &Request, target: &Target, error: &Error) {
    let is_named = target.is_dataset() && target.bookmark().is_none();
    if is_named && !request.has('e') && error.kind() == ErrorKind::NotFound {
        eprintln!("failed to hold dataset '{}': {}", target.text, words(error));
    }
}

/// The error of zdb when the path to be copied does not exist.
fn internal_error(status: u8) -> Error {
    let reason = match status {
        NOT_FOUND => "No such file or directory",
        _ => "Invalid argument",
    };
    Error::invalid(format!("internal error: {reason}"))
}

/// Opens the objset of a dataset by its name or its number.
#[doc(alias = "open_objset")]
pub(super) fn open(request: &Request, pool: &Pool, target: &Target) -> Result<Subject> {
    let dsl = pool.parts().dsl();
    let by_name = || dsl.dataset(&target.text);
    let by_number = |number: u64| {
        let found = dsl.dataset_of(ObjectId(number));
        found.inspect_err(|error| {
            eprintln!("failed to hold objset {number}: {}", words(error));
        })
    };
    let found = match target.number {
        Some(number) if request.has('N') => by_number(number),
        Some(number) => by_name().or_else(|_| by_number(number)),
        None => by_name().inspect_err(|error| {
            eprintln!("failed to hold dataset '{}': {}", target.text, words(error));
        }),
    };
    let found = found.and_then(|dataset| {
        let name = dsl.name_of(&dataset)?;
        Subject::of(pool, &name, &dataset)
    });
    found.map_err(|error| {
        let text = format!("can't open '{}': {}", target.text, words(&error));
        Error::new(error.kind(), text)
    })
}

/// A range of objects, both ends included, of some types.
#[doc(alias = "zopt_object_range_t")]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) to: u64,
    types: u64,
}

/// `ZOR_FLAG_*`
const DIRECTORIES: u64 = 1;
const FILES: u64 = 2;
const SPACE_MAPS: u64 = 4;
const ZAPS: u64 = 8;
const SUPPORTED: u64 = DIRECTORIES | FILES | SPACE_MAPS | ZAPS;
const ALL_TYPES: u64 = u64::MAX;

impl Range {
    /// `object`, or `from:to[:flags]`.
    #[doc(alias = "parse_object_range")]
    fn parse(text: &str) -> Result<Range, &'static str> {
        let whole = |word: &str, complaint| match number_prefix(word) {
            (number, "") => Ok(number),
            _ => Err(complaint),
        };
        if !text.contains(':') {
            let object = whole(text, "Invalid characters in object ID")?;
            return Ok(Range {
                from: object,
                to: object,
                types: 0,
            });
        }
        if text.starts_with(':') {
            return Err("Invalid leading colon");
        }
        if text.ends_with(':') {
            return Err("Invalid trailing colon");
        }
        let parts: Vec<&str> = text.split(':').filter(|part| !part.is_empty()).collect();
        let [from, to, rest @ ..] = &parts[..] else {
            return Err("Invalid characters in end object ID");
        };
        let from = whole(from, "Invalid characters in start object ID")?;
        let to = whole(to, "Invalid characters in end object ID")?;
        if from > to {
            return Err("Start object ID may not exceed end object ID");
        }
        let types = match rest {
            [] => ALL_TYPES,
            [flags] => type_flags(flags)?,
            _ => return Err("Invalid colon-delimited field after flags"),
        };
        Ok(Range { from, to, types })
    }

    /// Whether objects of this type were requested.
    #[doc(alias = "match_object_type")]
    pub(super) fn includes(&self, type_: ObjectType) -> bool {
        if self.types == 0 || self.types == ALL_TYPES {
            return true;
        }
        let flag = match type_ {
            ObjectType::DIRECTORY_CONTENTS => DIRECTORIES,
            ObjectType::PLAIN_FILE_CONTENTS => FILES,
            ObjectType::SPACE_MAP => SPACE_MAPS,
            _ if type_.name() == "zap" => ZAPS,
            // All other types, if the request was for everything but some types.
            _ => return self.types | SUPPORTED == ALL_TYPES,
        };
        self.types & flag != 0
    }
}

fn type_flags(text: &str) -> Result<u64, &'static str> {
    let mut types = 0;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_negated = letter == '-';
        let letter = if is_negated {
            letters.next().ok_or("Invalid trailing negation operator")?
        } else {
            letter
        };
        let flag = match letter {
            'A' => ALL_TYPES,
            'd' => DIRECTORIES,
            'f' => FILES,
            'm' => SPACE_MAPS,
            'z' => ZAPS,
            _ => return Err("Invalid flag"),
        };
        types = if is_negated {
            types & !flag
        } else {
            types | flag
        };
    }
    Ok(types)
}

/// The object ranges given, if objects are to be shown.
pub(super) fn ranges(request: &Request, operands: &[String]) -> Result<Vec<Range>> {
    if request.level('d') == 0 && !request.has('N') {
        return Ok(Vec::new());
    }
    let parse = |text: &String| {
        Range::parse(text).map_err(|complaint| {
            Error::invalid(format!("Bad object or range: '{text}': {complaint}\n\n"))
        })
    };
    operands.iter().map(parse).collect()
}

/// Why a path cannot be resolved: the message, and the exit status.
struct LostPath(String, u8);

/// The object at `path`, name by name; links are not followed.
#[doc(alias = "dump_path_impl")]
fn resolve(objset: &Objset, dataset: &str, path: &str) -> Result<ObjectId, LostPath> {
    let lost = |text: String, error: &Error| {
        let status = if error.kind() == ErrorKind::NotFound {
            NOT_FOUND
        } else {
            INVALID
        };
        LostPath(format!("{text}: {}", words(error)), status)
    };
    let master = Zap::open(objset, ObjectId(MASTER_NODE_OBJ));
    let root = master.and_then(|zap| zap.lookup_u64(master_node::ROOT));
    let root = root.and_then(|root| root.ok_or_else(|| Error::not_found("ROOT")));
    let mut at = root.map_err(|error| lost("can't lookup root znode".into(), &error))?;
    let mut so_far = format!("dataset={dataset} path=/");
    let mut rest = path;
    loop {
        let (name, more) = match rest.split_once('/') {
            Some((name, more)) => (name, Some(more)),
            None => (rest, None),
        };
        so_far += name;
        let entry = Zap::open(objset, ObjectId(at)).and_then(|zap| zap.lookup_u64(name));
        let entry = entry.and_then(|found| found.ok_or_else(|| Error::not_found(name)));
        let entry = entry.map_err(|error| lost(format!("failed to lookup {so_far}"), &error))?;
        at = dirent_object(entry);
        let dnode = objset
            .hold(ObjectId(at))
            .map_err(|error| lost(format!("failed to get SA dbuf for obj {at}"), &error))?;
        match (dnode.type_(), more) {
            (ObjectType::DIRECTORY_CONTENTS, Some(more)) if !more.is_empty() => {
                so_far.push('/');
                rest = more;
            }
            (ObjectType::DIRECTORY_CONTENTS | ObjectType::PLAIN_FILE_CONTENTS, _) => {
                return Ok(ObjectId(at));
            }
            (type_, _) => {
                let raw = u8::from(type_);
                let text = format!("object {at} has non-file/directory type {raw}");
                return Err(LostPath(text, INVALID));
            }
        }
    }
}

fn by_name(pool: &Pool, target: &Target) -> Result<Subject> {
    let dataset = pool.parts().dsl().dataset(&target.text)?;
    Subject::of(pool, &target.text, &dataset)
}

/// `zdb -O DATASET PATH`.
#[doc(alias = "dump_path")]
pub(super) fn show_path(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    target: &Target,
    rest: &[String],
) -> Outcome<u8> {
    let [path] = rest else {
        return Err(super::usage_error());
    };
    let subject = match by_name(pool, target) {
        Ok(subject) => subject,
        Err(error) => return Ok(is_missing(request, target, error)?),
    };
    match resolve(&subject.objset, &target.text, path) {
        Ok(object) => {
            let verbosity = request.count('v') + 3;
            let mut dumper = Dumper::new(request, &subject, verbosity);
            write_object(out, &mut dumper, object, None)?;
            Ok(0)
        }
        Err(LostPath(text, status)) => {
            eprintln!("{text}");
            Ok(status)
        }
    }
}

/// `zdb -r DATASET PATH DESTINATION`.
#[doc(alias = "zdb_copy_object")]
pub(super) fn copy_path(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    target: &Target,
    rest: &[String],
) -> Outcome<u8> {
    let [path, destination] = rest else {
        return Err(super::usage_error());
    };
    let subject = match by_name(pool, target) {
        Ok(subject) => subject,
        Err(error) => return Ok(is_missing(request, target, error)?),
    };
    let object = match resolve(&subject.objset, &target.text, path) {
        Ok(object) => object,
        Err(LostPath(text, status)) => {
            eprintln!("{text}");
            return Err(internal_error(status).into());
        }
    };
    let fs = Filesystem::open(subject.objset.clone(), OpenOptions::default())?;
    let size = fs.getattr(object)?.size;
    writeln!(out, "Copying object {object} to file {destination}")?;
    writeln!(out, "Object {object} is {size} bytes")?;
    if size == 0 {
        return Ok(INVALID);
    }
    let within = |error: std::io::Error| Error::from(error).within(destination);
    let mut file = File::create(destination).map_err(within)?;
    let mut offset = 0;
    while offset < size {
        let length = COPY_BYTES.min(size - offset);
        let mut bytes = vec![0; length as usize];
        fs.objset().hold(object)?.read(offset, &mut bytes)?;
        if request.count('v') > 3 {
            writeln!(out, "Read offset={offset} size={length} error=0")?;
        }
        file.write_all(&bytes).map_err(within)?;
        offset += length;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_pools_datasets_or_objsets() {
        assert!(!Target::parse("tank").is_dataset());
        assert!(Target::parse("tank/").is_dataset());
        assert!(Target::parse("tank@s").is_dataset());
        assert!(!Target::parse("tank/0").is_dataset());
        assert_eq!(Target::parse("tank/54").number, Some(54));
        assert_eq!(Target::parse("tank/fade").number, None);
        assert_eq!(Target::parse("tank/a#b").bookmark(), Some("tank/a#b"));
    }

    #[test]
    fn ranges_are_read_as_zdb_does() {
        let file = ObjectType::PLAIN_FILE_CONTENTS;
        let range = |text| Range::parse(text);
        assert!(range("5").is_ok_and(|r| (r.from, r.to) == (5, 5) && r.includes(file)));
        assert!(range("0:-1:f").is_ok_and(|r| r.to == u64::MAX && r.includes(file)));
        assert!(range("0:-1:A-f").is_ok_and(|r| !r.includes(file)));
        assert!(range("0:9:d").is_ok_and(|r| !r.includes(file)));
        let bad = [
            ("x", "Invalid characters in object ID"),
            (":1", "Invalid leading colon"),
            ("1:", "Invalid trailing colon"),
            ("2:1", "Start object ID may not exceed end object ID"),
            ("1:2:q", "Invalid flag"),
            ("1:2:-", "Invalid trailing negation operator"),
        ];
        for (text, complaint) in bad {
            assert_eq!(range(text).err(), Some(complaint), "{text}");
        }
    }
}
