//! `ashift du`.

use std::collections::BTreeSet;

use admin::getopt::{Flag, Parsed};
use admin::number::nice_bytes;
use base::{ObjectId, ObjsetId, Result};
use serde_json::{Value, json};
use service::Access;

use super::show::{put_json, top};
use super::walk::{Visit, Visitor, walk};
use super::{Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

struct Du {
    max_depth: usize,
    shows_files: bool,
    is_apparent: bool,
    is_for_people: bool,
    /// What `-j` prints at the end.
    json: Option<Vec<Value>>,
    objset: ObjsetId,
    /// Files with several names seen so far, to count them once.
    seen: BTreeSet<(ObjsetId, ObjectId)>,
    /// The sums of the directories that the walk is in.
    sums: Vec<u64>,
}

pub(crate) const DU: Command<Entry> = Command::parsed(
    "du",
    "space that files take",
    "\
usage: ashift du [-ahjs] [-d N] [--apparent-size] POOL/DATASET[@SNAPSHOT]:/path…

Space on disk, in KiB.   -s  only the sum   -a  files, too   -d N, --max-depth=N  at most N levels
                         -h  for people     -j  JSON, in bytes
  --apparent-size        sizes of files instead: what they take without compression and holes
",
    ("ahjsd:", 1),
    du,
)
.long(&[("apparent-size", Flag::Long("apparent-size"))])
.prepared(short_depth);

fn du(parsed: &Parsed) -> Outcome {
    let max_depth = match (parsed.has('s'), parsed.value('d').map(str::parse)) {
        (true, _) => 0,
        (false, None) => usize::MAX,
        (false, Some(Ok(depth))) => depth,
        (false, Some(Err(_))) => {
            return Err(Fail::Usage("the depth is not a number".to_owned()));
        }
    };
    let paths = Paths::new(Access::Read);
    let mut run = Run::new("du");
    let mut du = Du {
        max_depth,
        shows_files: parsed.has('a'),
        is_apparent: parsed.has_long("apparent-size"),
        is_for_people: parsed.has('h'),
        json: parsed.has('j').then(Vec::new),
        objset: ObjsetId(0),
        seen: BTreeSet::new(),
        sums: Vec::new(),
    };
    for operand in paths.expand(&parsed.operands) {
        let found = paths.find_file(&operand, false);
        if let Some((mount, id)) = run.note(&operand, found) {
            du.objset = mount.objset().id();
            run.show_progress(false);
            walk(&mount, id, top(&operand), &mut run, &mut du);
        }
    }
    if let Some(all) = &du.json {
        put_json(all);
    }
    run.end(paths)
}

/// `--max-depth=N` as `-dN`.
fn short_depth(args: &[String]) -> Vec<String> {
    let short = |arg: &String| match arg.strip_prefix("--max-depth") {
        Some("") => "-d".to_owned(),
        Some(rest) => rest
            .strip_prefix('=')
            .map_or_else(|| arg.clone(), |depth| format!("-d{depth}")),
        None => arg.clone(),
    };
    args.iter().map(short).collect()
}

impl Du {
    fn size(&self, visit: &Visit<'_>) -> u64 {
        match (self.is_apparent, visit.attr.is_directory()) {
            (false, _) => visit.attr.used_bytes,
            // The size of a directory is its number of entries, not bytes.
            (true, true) => 0,
            (true, false) => visit.attr.size,
        }
    }

    fn show(&mut self, run: &mut Run, path: &str, bytes: u64) {
        match &mut self.json {
            Some(all) if self.is_apparent => all.push(json!({"name": path, "size": bytes})),
            Some(all) => all.push(json!({"name": path, "used": bytes})),
            None if self.is_for_people => run.line(&format!("{}\t{path}", nice_bytes(bytes))),
            None => run.line(&format!("{}\t{path}", bytes.div_ceil(1024))),
        }
    }

    fn add(&mut self, bytes: u64) {
        if let Some(sum) = self.sums.last_mut() {
            *sum = sum.saturating_add(bytes);
        }
    }
}

impl Visitor for Du {
    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool> {
        run.bar.inc(1);
        let attr = visit.attr;
        let bytes = self.size(visit);
        if attr.is_directory() {
            self.sums.push(bytes);
            return Ok(true);
        }
        if attr.links > 1 && !self.seen.insert((self.objset, attr.id)) {
            return Ok(false);
        }
        self.add(bytes);
        if visit.depth == 0 || (self.shows_files && visit.depth <= self.max_depth) {
            self.show(run, visit.path, bytes);
        }
        Ok(false)
    }

    fn leave(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<()> {
        let bytes = self.sums.pop().unwrap_or(0);
        self.add(bytes);
        if visit.depth <= self.max_depth {
            self.show(run, visit.path, bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_depth_is_a_short_one() {
        let check = |given: &[&str], expected: &[&str]| {
            let given: Vec<String> = given.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(short_depth(&given), expected);
        };
        check(&["--max-depth=2", "x"], &["-d2", "x"]);
        check(&["--max-depth", "2", "x"], &["-d", "2", "x"]);
        check(&["--max-depths"], &["--max-depths"]);
    }
}
