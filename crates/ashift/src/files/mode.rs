//! Permissions as chmod(1) takes them: octal, or symbolic (`u+x`, `go-w,a=rX`).
//!
//! # Source
//! POSIX, chmod, "Extended description".

use std::str::FromStr;

use base::{Error, Result};

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Octal(u32),
    /// The comma-separated parts, one clause for each operator, from left to right.
    Symbolic(Vec<Clause>),
}

/// One operator with the classes before it and the permissions after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clause {
    /// The classes of users changed, as bits of [`USER`], [`GROUP`], [`OTHER`]; 0: all, but not the bits
    /// set in the umask.
    who: u32,
    operator: char,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Permissions {
        /// The bits of `rwx`, as for others.
        bits: u32,
        /// `X`: x for directories and for files that have an x already
        search: bool,
        /// `s`
        set_id: bool,
        /// `t`
        sticky: bool,
    },
    /// The current permissions of user, group or others.
    CopyOf(u32),
}

const USER: u32 = 0o4700;
const GROUP: u32 = 0o2070;
const OTHER: u32 = 0o1007;
const ALL: u32 = 0o7777;

/// The file mode creation mask of this process.
pub(super) fn umask() -> u32 {
    // It can only be read by setting it; no other thread creates files meanwhile.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mode> {
        let wrong = || Error::invalid(format!("invalid mode: '{text}'"));
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8).ok();
            return mode
                .filter(|mode| *mode <= ALL)
                .map(Mode::Octal)
                .ok_or_else(wrong);
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            read_part(part, &mut clauses).ok_or_else(wrong)?;
        }
        Ok(Mode::Symbolic(clauses))
    }
}

/// Reads one comma-separated part: `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`.
fn read_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let at = part.find(['+', '-', '='])?;
    let (whom, mut rest) = part.split_at(at);
    let mut who = 0;
    for letter in whom.chars() {
        who |= class(letter).or((letter == 'a').then_some(ALL))?;
    }
    while let Some(operator) = rest.chars().next() {
        rest = &rest[1..];
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let what = read_what(&rest[..end])?;
        rest = &rest[end..];
        clauses.push(Clause {
            who,
            operator,
            what,
        });
    }
    Some(())
}

fn class(letter: char) -> Option<u32> {
    match letter {
        'u' => Some(USER),
        'g' => Some(GROUP),
        'o' => Some(OTHER),
        _ => None,
    }
}

fn read_what(text: &str) -> Option<What> {
    let mut letters = text.chars();
    if let (Some(class), None) = (letters.next().and_then(class), letters.next()) {
        return Some(What::CopyOf(class));
    }
    let (mut bits, mut search, mut set_id, mut sticky) = (0, false, false, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 4,
            'w' => bits |= 2,
            'x' => bits |= 1,
            'X' => search = true,
            's' => set_id = true,
            't' => sticky = true,
            _ => return None,
        }
    }
    Some(What::Permissions {
        bits,
        search,
        set_id,
        sticky,
    })
}

impl Mode {
    /// The new permissions of a file that has `mode`.
    pub(super) fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        match self {
            Mode::Octal(mode) => *mode,
            Mode::Symbolic(clauses) => {
                let apply = |mode, clause: &Clause| clause.apply(mode, is_directory, umask());
                clauses.iter().fold(mode, apply)
            }
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        let (who, allowed) = match self.who {
            0 => (ALL, ALL & !umask),
            who => (who, who),
        };
        let wanted = match self.what {
            What::CopyOf(class) => {
                let three = match class {
                    USER => mode >> 6,
                    GROUP => mode >> 3,
                    _ => mode,
                };
                (three & 7) * 0o111
            }
            What::Permissions {
                bits,
                search,
                set_id,
                sticky,
            } => {
                let may_search = search && (is_directory || mode & 0o111 != 0);
                let special = (u32::from(set_id) * 0o6000) | (u32::from(sticky) * 0o1000);
                ((bits | u32::from(may_search)) * 0o111) | special
            }
        };
        // The sticky bit belongs to no class: `t` works with `a`, `o` and without a class.
        let wanted = wanted & allowed;
        match self.operator {
            '+' => mode | wanted,
            '-' => mode & !wanted,
            // A directory keeps set-ID bits that are not mentioned, as in GNU chmod.
            _ => {
                let kept = if is_directory { 0o6000 } else { 0 };
                mode & !(who & !kept) | wanted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as chmod(1) of coreutils 9 does it, with umask 022.
    #[test]
    fn modes_are_those_of_chmod() {
        let apply = |text: &str, mode: u32, is_directory: bool| match text.parse::<Mode>() {
            Ok(Mode::Octal(mode)) => Some(mode),
            Ok(Mode::Symbolic(clauses)) => Some(
                clauses
                    .iter()
                    .fold(mode, |mode, clause| clause.apply(mode, is_directory, 0o022)),
            ),
            Err(_) => None,
        };
        for (text, before, expected) in [
            ("755", 0, Some(0o755)),
            ("4755", 0, Some(0o4755)),
            ("u+x", 0o644, Some(0o744)),
            ("+x", 0o644, Some(0o755)),
            ("+w", 0o444, Some(0o644)),
            ("go-w,a=rX", 0o666, Some(0o444)),
            ("a=rX", 0o744, Some(0o555)),
            ("g=u", 0o740, Some(0o770)),
            ("o=g-w", 0o760, Some(0o764)),
            ("u=rw,go=", 0o777, Some(0o600)),
            ("u+s,g+s", 0o755, Some(0o6755)),
            ("o+t", 0o755, Some(0o1755)),
            ("+t", 0o755, Some(0o1755)),
            ("=", 0o777, Some(0)),
            ("-rwx", 0o777, Some(0o022)),
            ("u+r-w", 0o200, Some(0o400)),
            ("8", 0, None),
            ("77777", 0, None),
            ("u", 0, None),
            ("u+q", 0, None),
            ("", 0, None),
            ("u+x,", 0, None),
            ("z+x", 0, None),
        ] {
            assert_eq!(apply(text, before, false), expected, "{text}");
        }
        assert_eq!(apply("a=rX", 0o644, true), Some(0o555));
        assert_eq!(apply("u=rwx", 0o4755, true), Some(0o4755));
    }
}
