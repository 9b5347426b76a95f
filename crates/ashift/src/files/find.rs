//! `ashift find`.

use std::cmp::Ordering;
use std::process::ExitCode;

use base::{Error, Result};
use serde_json::Value;
use service::Access;
use zpl::Attr;

use super::glob::matches;
use super::show::{letter, line, put, put_json, to_json, top};
use super::walk::{Visit, Visitor, walk};
use super::{Paths, Run};

const TEXT: &str = "\
usage: ashift find POOL/DATASET[@SNAPSHOT]:/path… [TEST…]

  -name PATTERN   -type f|d|l|p|s|b|c   -size [+-]N[K|M|G]   -maxdepth N   -print0   -j
";

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
    fn enter(&mut self, visit: &Visit<'_>, _run: &mut Run) -> Result<bool> {
        let Visit { path, attr, .. } = visit;
        if self.tests.accept(path, attr) {
            match (self.tests.json, self.tests.zero) {
                (true, _) => self.all.push(to_json(path, attr, None)),
                (_, true) => put(&[path.as_bytes(), b"\0"].concat()),
                _ => line(path),
            }
        }
        Ok(self.tests.max_depth.is_none_or(|max| visit.depth < max))
    }
}

/// Runs `ashift find`.
pub(crate) fn find(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{TEXT}");
        return ExitCode::SUCCESS;
    }
    let (names, tests) = match Tests::parse(args) {
        Ok((names, tests)) if !names.is_empty() => (names, tests),
        Ok(_) => {
            eprint!("ashift find: missing operand\n{TEXT}");
            return ExitCode::from(2);
        }
        Err(e) => {
            eprint!("ashift find: {e}\n{TEXT}");
            return ExitCode::from(2);
        }
    };
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
