//! `zfs project`: the projects of files, and whether what is made in a directory gets that of the directory.
//!
//! # What it is
//! Files are named by a path in a pool, by one below where a data set would be mounted, or by one of this host: on a
//! mount, or on any other file system that has projects.
//!
//! # Source
//! OpenZFS cmd/zfs/zfs_main.c (`zfs_do_project`), cmd/zfs/zfs_project.c.

use std::collections::VecDeque;

use admin::getopt::{Flag, Parsed};
use base::{Error, ErrorKind};
use service::Access;

use self::places::{Found, Kind, Places};
use super::fail::{Fail, Outcome};

mod places;

/// Exit code where OpenZFS returns -1.
const FAILED: u8 = 255;
/// Above the last project.
const PROJECTS_END: u64 = u32::MAX as u64;

/// What is done to each file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    List,
    Check { by_line: bool },
    Clear { keeps_project: bool },
    Set { inherits: bool },
}

/// Which files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// What is named.
    Named,
    /// Also what is in a directory, where nothing is changed.
    Usual,
    /// All below a directory.
    Below,
}

struct Request {
    work: Work,
    extent: Extent,
    /// `None`: that of the file that is named.
    project: Option<u32>,
}

fn number(text: &str) -> Outcome<u32> {
    let digits = text.trim_start();
    let number = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    match number {
        Ok(number) if number < PROJECTS_END => Ok(number as u32),
        Ok(_) => Err(Fail::usage("invalid project ID")),
        Err(_) => {
            let text = format!("project ID must be less than {PROJECTS_END}");
            Err(Fail::usage(text))
        }
    }
}

impl Request {
    fn of(parsed: &Parsed) -> Outcome<Request> {
        let kinds = ['C', 'c', 's']
            .into_iter()
            .filter(|letter| parsed.has(*letter));
        if kinds.count() > 1 {
            return Err(Fail::usage("cannot specify '-C' '-c' '-s' together"));
        }
        let project = parsed.value('p').map(number).transpose()?;
        let work = match () {
            () if parsed.has('C') => Work::Clear {
                keeps_project: parsed.has('k'),
            },
            () if parsed.has('c') => Work::Check {
                by_line: !parsed.has('0'),
            },
            () if parsed.has('s') || project.is_some() => Work::Set {
                inherits: parsed.has('s'),
            },
            () => Work::List,
        };
        let clears = matches!(work, Work::Clear { .. });
        let checks = matches!(work, Work::Check { .. });
        let sets = matches!(work, Work::Set { .. });
        let wrong = [
            (
                parsed.has('d') && clears,
                "'-d' is useless together with '-C'",
            ),
            (
                parsed.has('d') && sets,
                "'-d' is useless for set project ID and/or inherit flag",
            ),
            (
                parsed.has('k') && !clears,
                "'-k' is only valid together with '-C'",
            ),
            (
                parsed.has('0') && !checks,
                "'-0' is only valid together with '-c'",
            ),
            (
                project.is_some() && clears,
                "'-p' is useless together with '-C'",
            ),
        ];
        if let Some((_, text)) = wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(Fail::usage(*text));
        }
        if parsed.options.is_empty() && parsed.operands.is_empty() {
            return Err(Fail::usage(""));
        }
        if parsed.operands.is_empty() {
            return Err(Fail::usage("missing file or directory target(s)"));
        }
        // The later of both counts.
        let given = parsed.options.iter().rev().map(|(flag, _)| *flag);
        let extent = given.filter_map(|flag| match flag {
            Flag::Short('d') => Some(Extent::Named),
            Flag::Short('r') => Some(Extent::Below),
            _ => None,
        });
        let extent = extent.take(1).last().unwrap_or(Extent::Usual);
        Ok(Request {
            work,
            extent,
            project,
        })
    }

    /// Does it to a file that is named, and to what is below it as far as asked.
    fn handle(&self, places: &Places, name: &str) -> Outcome {
        let top = places
            .find(name)
            .map_err(|error| failed("stat", name, &error))?;
        if top.kind == Kind::Other {
            let text = "only support project quota on regular file or directory";
            return Err(Fail::Exits(FAILED, text.to_owned()));
        }
        let is_directory = top.kind == Kind::Directory;
        for (extent, letter) in [(Extent::Named, 'd'), (Extent::Below, 'r')] {
            if !is_directory && self.extent == extent {
                let text = format!("'-{letter}' option on non-dir target {name}");
                return Err(Fail::Exits(FAILED, text));
            }
        }
        let project = self.project.unwrap_or(top.project);
        self.one(places, name, project, &top)?;
        let looks = matches!(self.work, Work::List | Work::Check { .. });
        if !is_directory || self.extent == Extent::Named || (self.extent == Extent::Usual && !looks)
        {
            return Ok(());
        }
        let mut rest = VecDeque::from([name.to_owned()]);
        while let Some(directory) = rest.pop_front() {
            crate::caller::check();
            let entries = match places.entries(&directory) {
                // It was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound && directory != name => continue,
                entries => entries.map_err(|error| failed("opendir", &directory, &error))?,
            };
            for (entry, is_directory) in entries {
                let path = format!("{directory}/{entry}");
                match places.find(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    found => {
                        let found = found.map_err(|error| failed("open", &path, &error))?;
                        self.one(places, &path, project, &found)?;
                    }
                }
                if is_directory && self.extent == Extent::Below {
                    rest.push_back(path);
                }
            }
        }
        Ok(())
    }

    fn one(&self, places: &Places, path: &str, project: u32, found: &Found) -> Outcome {
        let (wanted, inherits) = match self.work {
            Work::List => {
                let flag = if found.inherits { 'P' } else { '-' };
                println!("{:5} {flag} {path}", found.project);
                return Ok(());
            }
            Work::Check { by_line } => {
                check(path, project, found, by_line);
                return Ok(());
            }
            Work::Clear {
                keeps_project: true,
            } => (found.project, false),
            Work::Clear {
                keeps_project: false,
            } => (0, false),
            Work::Set { inherits } => (project, inherits || found.inherits),
        };
        if (wanted, inherits) == (found.project, found.inherits) {
            return Ok(());
        }
        let set = places.set(path, wanted, inherits);
        set.map_err(|error| failed("set xattr for", path, &error))
    }
}

/// Says what a file has not.
fn check(path: &str, project: u32, found: &Found, by_line: bool) {
    if !by_line {
        if found.project != project || !found.inherits {
            print!("{path}\0");
        }
        return;
    }
    if found.project != project {
        println!(
            "{path} - project ID is not set properly ({}/{project})",
            found.project
        );
    }
    if !found.inherits {
        println!("{path} - project inherit flag is not set");
    }
}

fn failed(what: &str, path: &str, error: &Error) -> Fail {
    let words = crate::files::words(error, false);
    Fail::Exits(FAILED, format!("failed to {what} {path}: {words}"))
}

pub(super) fn project(parsed: &Parsed) -> Outcome {
    let request = Request::of(parsed)?;
    let looks = matches!(request.work, Work::List | Work::Check { .. });
    let places = Places::new(if looks { Access::Read } else { Access::Write });
    let mut outcome = Ok(());
    for name in &parsed.operands {
        let handled = request.handle(&places, name).map_err(|fail| fail.say(""));
        outcome = outcome.and(handled);
    }
    places.close()?;
    outcome
}
