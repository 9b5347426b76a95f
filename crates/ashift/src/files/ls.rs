//! `ashift ls`.

use std::collections::BTreeSet;

use admin::getopt::Parsed;
use admin::number::{Zone, nice_bytes};
use base::{ObjectId, Result};
use serde_json::Value;
use service::Access;
use zpl::mount::Mount;
use zpl::{Attr, FIRST_ENTRY, FileType};

use super::show::{date, join, permissions, put_json, to_json, top};
use super::walk::{read_directory, second_name};
use super::{Paths, Run};
use crate::command::{Command, Entry};
use crate::failure::Outcome;

struct Ls<'a> {
    parsed: &'a Parsed,
    run: Run,
    zone: Zone,
    json: Vec<Value>,
}

pub(crate) const LS: Command<Entry> = Command::parsed(
    "ls",
    "list files in a data set",
    "\
usage: ashift ls [-1aAdhijlnR] POOL/DATASET[@SNAPSHOT]:/path…

  -l  long: permissions, links, owner, group, size, time
  -n  as -l (owners are numbers anyway)
  -a  names that begin with a dot, and . and ..;  -A without . and ..
  -d  directories themselves, not what is in them
  -i  object numbers          -h  sizes for people
  -R  everything below        -j  JSON
",
    ("1aAdhijlnR", 1),
    ls,
);

fn ls(parsed: &Parsed) -> Outcome {
    let paths = Paths::new(Access::Read);
    let mut ls = Ls {
        parsed,
        run: Run::new("ls"),
        zone: crate::zone::local(),
        json: Vec::new(),
    };
    let operands = paths.expand(&parsed.operands);
    let many = operands.len() > 1 || parsed.has('R');
    for operand in &operands {
        let outcome = ls.operand(&paths, operand, many);
        ls.run.note(operand, outcome);
    }
    if parsed.has('j') {
        put_json(&ls.json);
    }
    ls.run.end(paths)
}

impl Ls<'_> {
    fn operand(&mut self, paths: &Paths, operand: &str, many: bool) -> Result<()> {
        // As in POSIX, a link given as an operand is shown as a link with -l and -d, otherwise followed.
        let shows_links = ['l', 'n', 'd'].into_iter().any(|o| self.parsed.has(o));
        let (mount, id) = paths.find_file(operand, !shows_links)?;
        let attr = mount.getattr(id)?;
        if !attr.is_directory() || self.parsed.has('d') {
            return self.entry(&mount, operand, &attr, 0);
        }
        self.tree(&mount, id, top(operand), many);
        Ok(())
    }

    /// A directory and, with -R, all directories below it.
    fn tree(&mut self, fs: &Mount, id: ObjectId, shown: String, many: bool) {
        let mut entered = BTreeSet::new();
        let mut waiting = vec![(shown, id)];
        let mut is_first = true;
        while let Some((shown, id)) = waiting.pop() {
            if !entered.insert(id) {
                self.run.complain(&shown, &second_name(id));
                continue;
            }
            if many && !self.parsed.has('j') {
                if !is_first {
                    self.run.line("");
                }
                self.run.line(&format!("{shown}:"));
            }
            is_first = false;
            let outcome = self.directory(fs, id, &shown);
            let below = self.run.note(&shown, outcome).unwrap_or_default();
            if self.parsed.has('R') {
                waiting.extend(below.into_iter().rev());
            }
        }
    }

    /// Shows what is in a directory; returns the directories in it.
    fn directory(
        &mut self,
        fs: &Mount,
        id: ObjectId,
        shown: &str,
    ) -> Result<Vec<(String, ObjectId)>> {
        let json = self.parsed.has('j');
        let mut entries = Vec::new();
        if self.parsed.has('a') {
            entries.push((b".".to_vec(), id));
            entries.push((b"..".to_vec(), fs.getattr(id)?.parent));
        }
        let (found, outcome) = read_directory(fs, id, FIRST_ENTRY, usize::MAX);
        self.run.note(shown, outcome);
        let shows_hidden = self.parsed.has('a') || self.parsed.has('A');
        let is_shown = |name: &[u8]| shows_hidden || !name.starts_with(b".");
        let found = found.into_iter().filter(|entry| is_shown(&entry.name));
        entries.extend(found.map(|entry| (entry.name, entry.id)));
        entries.sort();
        let digits = |(_, id): &(Vec<u8>, ObjectId)| id.0.to_string().len();
        let width = entries.iter().map(digits).max().unwrap_or(0);
        let mut below = Vec::new();
        for (name, id) in entries {
            let path = join(shown, &name);
            let Some(attr) = self.run.note(&path, fs.getattr(id)) else {
                continue;
            };
            let label = String::from_utf8_lossy(&name);
            let label: &str = if json { &path } else { &label };
            let outcome = self.entry(fs, label, &attr, width);
            self.run.note(&path, outcome);
            if attr.is_directory() && name != b"." && name != b".." {
                below.push((path, id));
            }
        }
        Ok(below)
    }

    fn entry(&mut self, fs: &Mount, name: &str, attr: &Attr, width: usize) -> Result<()> {
        let is_link = attr.file_type() == Some(FileType::Symlink);
        let target = is_link.then(|| fs.readlink(attr.id)).transpose()?;
        let target = target.map(|t| String::from_utf8_lossy(&t).into_owned());
        if self.parsed.has('j') {
            self.json.push(to_json(name, attr, target.as_deref()));
            return Ok(());
        }
        let mut text = String::new();
        if self.parsed.has('i') {
            text.push_str(&format!("{:>width$} ", attr.id.0));
        }
        let is_long = self.parsed.has('l') || self.parsed.has('n');
        if is_long {
            text.push_str(&self.long(attr));
        }
        text.push_str(name);
        if let Some(target) = target.filter(|_| is_long) {
            text.push_str(&format!(" -> {target}"));
        }
        self.run.line(&text);
        Ok(())
    }

    fn long(&self, attr: &Attr) -> String {
        let size = match attr.file_type() {
            Some(FileType::BlockDevice | FileType::CharDevice) => {
                let (major, minor) = zpl::device_major_minor(attr.rdev);
                format!("{major}, {minor}")
            }
            _ if self.parsed.has('h') => nice_bytes(attr.size),
            _ => attr.size.to_string(),
        };
        format!(
            "{} {:>3} {:>5} {:>5} {:>10} {} ",
            permissions(attr),
            attr.links,
            attr.uid,
            attr.gid,
            size,
            date(attr.mtime, self.zone, false)
        )
    }
}
