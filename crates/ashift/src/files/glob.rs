//! Shell patterns: `*`, `?`, `[a-z]`, in names and in whole paths.
//!
//! # What it is
//! The shell cannot look into a pool, so patterns in pool paths arrive here as typed. As in the shell, a
//! pattern that matches nothing stands for itself, names that begin with a dot must be matched explicitly,
//! and a backslash escapes a character. A file whose name is exactly what was typed takes precedence.
//!
//! # Source
//! POSIX, Shell Command Language, 2.13 Pattern Matching Notation.

use zpl::mount::Mount;

/// Whether a path has a character that is special in a pattern.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '[', '\\'])
}

/// Whether a name matches a pattern. At most |pattern| * |name| steps.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut rest, mut at) = (pattern, name);
    // Where to resume if what follows the last star does not match here.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', behind @ ..] = rest {
            star = Some((behind, at));
            rest = behind;
            continue;
        }
        if rest.is_empty() && at.is_empty() {
            return true;
        }
        if let Some((behind, tail)) = one(rest, at) {
            (rest, at) = (behind, tail);
            continue;
        }
        match star {
            Some((behind, [_, later @ ..])) => {
                star = Some((behind, later));
                (rest, at) = (behind, later);
            }
            _ => return false,
        }
    }
}

/// Matches one byte of a name; returns the rest of the pattern and of the name.
fn one<'a>(pattern: &'a [u8], name: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (byte, tail) = name.split_first()?;
    match pattern {
        [b'?', rest @ ..] => Some((rest, tail)),
        [b'[', rest @ ..] => match set(rest, *byte) {
            Some((true, behind)) => Some((behind, tail)),
            Some((false, _)) => None,
            // Without a closing bracket it is an ordinary character.
            None => (*byte == b'[').then_some((rest, tail)),
        },
        [b'\\', sign, rest @ ..] => (sign == byte).then_some((rest, tail)),
        [sign, rest @ ..] => (sign == byte).then_some((rest, tail)),
        [] => None,
    }
}

/// Whether a byte is in the set that begins after `[`, and what follows the set.
fn set(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, members) = match pattern {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    // A bracket in first place is a member.
    let end = members.iter().skip(1).position(|b| *b == b']')? + 1;
    let (mut rest, behind) = (&members[..end], &members[end + 1..]);
    let mut found = false;
    while let Some((first, tail)) = rest.split_first() {
        rest = match tail {
            [b'-', last, tail @ ..] => {
                found |= (*first..=*last).contains(&byte);
                tail
            }
            _ => {
                found |= *first == byte;
                tail
            }
        };
    }
    Some((found != negated, behind))
}

/// The paths in a dataset that match a pattern, sorted; none if the name exists as typed, or nothing
/// matches.
pub(super) fn expand(fs: &Mount, path: &str) -> Vec<String> {
    if !is_pattern(path) || fs.resolve_link(path).is_ok() {
        return Vec::new();
    }
    let mut found = vec![String::new()];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let next = found.iter().flat_map(|dir| matching(fs, dir, part));
        found = next.collect();
    }
    found.sort();
    found
}

/// The paths of the matching names in a directory; none if it is not a directory or cannot be read.
fn matching(fs: &Mount, dir: &str, part: &str) -> Vec<String> {
    let path = |name: &str| match dir {
        "" => name.to_owned(),
        _ => format!("{dir}/{name}"),
    };
    if !is_pattern(part) {
        let path = path(part);
        let is_there = fs.resolve_link(&path).is_ok();
        return is_there.then_some(path).into_iter().collect();
    }
    let Ok(id) = fs.resolve(dir) else {
        return Vec::new();
    };
    let entries = super::walk::read_directory(fs, id, zpl::FIRST_ENTRY, usize::MAX).0;
    let found = entries.iter().filter_map(|entry| {
        let is_hidden = entry.name.starts_with(b".") && !part.starts_with('.');
        let is_match = !is_hidden && matches(part.as_bytes(), &entry.name);
        // A path is UTF-8 here; other names can be reached only through their directory.
        std::str::from_utf8(&entry.name).ok().filter(|_| is_match)
    });
    found.map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expect) in [
            ("*.rs", "lib.rs", true),
            ("*.rs", "lib.c", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            ("[a-]", "-", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXbYY", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\?", "a?", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expect,
                "{pattern} {name}"
            );
        }
        // Patterns may come from scripts, so the search must not be exponential.
        assert!(!matches(
            "*a".repeat(100).as_bytes(),
            "a".repeat(99).as_bytes()
        ));
        assert!(matches(
            "*a".repeat(100).as_bytes(),
            "a".repeat(100).as_bytes()
        ));
    }
}
