//! `ashift find`.

use std::cmp::Ordering;

use base::{Error, Result};
use serde_json::Value;
use service::Access;
use zpl::Attr;

use super::glob::matches;
use super::show::{letter, put_json, to_json, top};
use super::walk::{Visit, Visitor, walk};
use super::{Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

pub(crate) const FIND: Command<Entry> = Command::explained(
    "find",
    "find files in a data set",
    "\
usage: ashift find POOL/DATASET[@SNAPSHOT]:/path… [TEST…]

  -name PATTERN   -type f|d|l|p|s|b|c   -size [+-]N[K|M|G]   -maxdepth N   -print0   -j
",
    find,
);

/// The tests applied to each name.
#[derive(Default)]
struct Tests {
    name: Option<String>,
    type_: Option<char>,
    size: Option<(Ordering, u64)>,
    max_depth: Option<usize>,
    zero: bool,
    json: bool,
}

impl Tests {
    /// Reads `-name`, `-type`, `-size`, `-maxdepth`, `-print0`, `-j` after the paths.
    fn parse(args: &[String]) -> Result<(Vec<String>, Tests)> {
        let mut tests = Tests::default();
        let mut paths = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                let value = args.next().cloned();
                value.ok_or_else(|| Error::invalid(format!("missing argument to '{arg}'")))
            };
            match arg.as_str() {
                "-name" => tests.name = Some(value()?),
                "-type" => tests.type_ = value()?.chars().next(),
                "-maxdepth" => {
                    let depth = value()?
                        .parse()
                        .map_err(|_| Error::invalid("-maxdepth N"))?;
                    tests.max_depth = Some(depth);
                }
                "-size" => tests.size = Some(parse_size(&value()?)?),
                "-print" => {}
                "-print0" => tests.zero = true,
                "-j" => tests.json = true,
                other if other.starts_with('-') => {
                    return Err(Error::invalid(format!("unknown predicate '{other}'")));
                }
                path => paths.push(path.to_owned()),
            }
        }
        Ok((paths, tests))
    }

    fn accept(&self, name: &str, attr: &Attr) -> bool {
        let base = name.rsplit('/').next().unwrap_or(name);
        self.name
            .as_deref()
            .is_none_or(|pattern| matches(pattern.as_bytes(), base.as_bytes()))
            && self.type_.is_none_or(|wanted| letter(attr, 'f') == wanted)
            && self
                .size
                .is_none_or(|(order, bytes)| attr.size.cmp(&bytes) == order)
    }
}

fn parse_size(text: &str) -> Result<(Ordering, u64)> {
    let (order, rest) = match text.as_bytes().first() {
        Some(b'+') => (Ordering::Greater, &text[1..]),
        Some(b'-') => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    };
    Ok((
        order,
        admin::number::parse_number(rest.trim_end_matches('c'))?,
    ))
}

struct Find {
    tests: Tests,
    all: Vec<Value>,
}

impl Visitor for Find {
    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool> {
        let Visit { path, attr, .. } = visit;
        if self.tests.accept(path, attr) {
            match (self.tests.json, self.tests.zero) {
                (true, _) => self.all.push(to_json(path, attr, None)),
                (_, true) => run.lines.put(&[path.as_bytes(), b"\0"]),
                _ => run.line(path),
            }
        }
        Ok(self.tests.max_depth.is_none_or(|max| visit.depth < max))
    }
}

fn find(args: &[String]) -> Outcome {
    let (names, tests) = Tests::parse(args).map_err(|e| Fail::Usage(e.to_string()))?;
    if names.is_empty() {
        return Err(Fail::Usage("missing operand".to_owned()));
    }
    let paths = Paths::new(Access::Read);
    let mut run = Run::new("find");
    let mut find = Find {
        tests,
        all: Vec::new(),
    };
    for path in paths.expand(&names) {
        let found = paths.find_file(&path, false);
        if let Some((mount, id)) = run.note(&path, found) {
            walk(&mount, id, top(&path), &mut run, &mut find);
        }
    }
    if find.tests.json {
        put_json(&find.all);
    }
    run.end(paths)
}
