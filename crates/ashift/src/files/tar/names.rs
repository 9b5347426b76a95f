//! Names of members: made safe, chosen, left out, shown.

use std::collections::BTreeSet;

use super::super::glob::matches;

/// Patterns of names that are left out.
pub(super) struct Excluded(Vec<String>);

impl Excluded {
    pub(super) fn new(patterns: Vec<String>) -> Excluded {
        Excluded(patterns)
    }

    /// Whether a pattern matches a name, or some of its components in a row: `*` matches a slash, too.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        self.0.iter().any(|pattern| {
            let pattern = pattern.trim_end_matches('/').as_bytes();
            let begins = starts(name);
            begins.into_iter().any(|from| leads(pattern, &name[from..]))
        })
    }
}

/// Where the components of a name begin.
fn starts(name: &[u8]) -> Vec<usize> {
    let slashes = (0..name.len()).filter(|at| name[*at] == b'/');
    std::iter::once(0).chain(slashes.map(|at| at + 1)).collect()
}

/// Whether a pattern matches a name or a directory that it is in.
fn leads(pattern: &[u8], name: &[u8]) -> bool {
    let slashes = (0..name.len()).filter(|at| name[*at] == b'/');
    let mut ends = slashes.chain(std::iter::once(name.len()));
    ends.any(|end| matches(pattern, &name[..end]))
}

/// The members that operands ask for.
pub(super) struct Chosen {
    names: Vec<String>,
    wildcards: bool,
    found: BTreeSet<usize>,
}

impl Chosen {
    pub(super) fn new(names: Vec<String>, wildcards: bool) -> Chosen {
        Chosen {
            names,
            wildcards,
            found: BTreeSet::new(),
        }
    }

    /// Whether there is an operand.
    pub(super) fn is_limited(&self) -> bool {
        !self.names.is_empty()
    }

    /// The first operand that asks for a member.
    pub(super) fn asks_for(&mut self, name: &[u8]) -> Option<usize> {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let found = self.names.iter().position(|wanted| {
            let wanted = wanted.trim_end_matches('/').as_bytes();
            let rest = name.strip_prefix(wanted);
            rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
                || self.wildcards && leads(wanted, name)
        })?;
        self.found.insert(found);
        Some(found)
    }

    /// The operands that asked for nothing that was there.
    pub(super) fn missing(&self) -> impl Iterator<Item = &String> {
        let names = self.names.iter().enumerate();
        let missing = names.filter(|(at, _)| !self.found.contains(at));
        missing.map(|(_, name)| name)
    }
}

/// The bytes at the begin of a name that lead elsewhere: slashes, and all up to the last `..`.
pub(super) fn unsafe_prefix(name: &[u8]) -> usize {
    let mut end = 0;
    for from in starts(name) {
        let rest = &name[from..];
        if rest == b".." || rest.starts_with(b"../") {
            end = from + 2;
        }
    }
    let slashes = name[end..].iter().take_while(|byte| **byte == b'/');
    end + slashes.count()
}

/// The prefixes that were removed so far: each is said once.
#[derive(Default)]
pub(super) struct Removed(BTreeSet<(Vec<u8>, &'static str)>);

impl Removed {
    /// A name without what leads elsewhere, and what is to be said of that, if it is new. `what`: what names these are.
    pub(super) fn safe<'n>(
        &mut self,
        name: &'n [u8],
        what: &'static str,
    ) -> (&'n [u8], Option<String>) {
        let (prefix, rest) = name.split_at(unsafe_prefix(name));
        let is_new = !prefix.is_empty() && self.0.insert((prefix.to_vec(), what));
        let said = is_new.then(|| {
            let prefix = String::from_utf8_lossy(prefix);
            format!("Removing leading `{prefix}' from {what}")
        });
        (rest, said)
    }
}

/// The components of a safe name.
pub(super) fn components(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = name.split(|byte| *byte == b'/');
    parts.filter(|part| !matches!(*part, b"" | b"."))
}

/// A name as GNU tar prints it: control characters and backslashes are escaped, and what is not UTF-8.
pub(super) fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '\u{7}' => text.push_str("\\a"),
                '\u{8}' => text.push_str("\\b"),
                '\u{b}' => text.push_str("\\v"),
                '\u{c}' => text.push_str("\\f"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    octal(&mut text, c.encode_utf8(&mut bytes).as_bytes());
                }
                c => text.push(c),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text
}

fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\{byte:03o}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for (name, rest) in [
            ("/etc/passwd", "etc/passwd"),
            ("../../x", "x"),
            ("a/../b", "b"),
            ("a/..", ""),
            ("//a", "a"),
            ("..a/b..", "..a/b.."),
            ("./a", "./a"),
            ("a/../..//b/", "b/"),
        ] {
            let prefix = unsafe_prefix(name.as_bytes());
            assert_eq!(&name[prefix..], rest, "{name}");
        }
        let mut removed = Removed::default();
        let (rest, said) = removed.safe(b"/a", "member names");
        assert_eq!(rest, b"a");
        assert_eq!(said.unwrap(), "Removing leading `/' from member names");
        assert_eq!(removed.safe(b"/b", "member names"), (&b"b"[..], None));
    }

    #[test]
    fn patterns_match_components() {
        let has = |pattern: &str, name: &str| {
            Excluded::new(vec![pattern.to_owned()]).has(name.as_bytes())
        };
        assert!(has("*.o", "src/a.o") && has("src", "src/a.o") && has("b/c", "a/b/c/d"));
        assert!(has("*.git", "a/x.git/config") && has("a/", "a/b"));
        assert!(!has("*.o", "src/a.oo") && !has("rc", "src/a.o") && !has("a/c", "a/b/c"));
    }

    #[test]
    fn operands_choose_members_and_what_is_below() {
        let names = ["a", "b/c/", "*.x"].map(str::to_owned).to_vec();
        let mut chosen = Chosen::new(names.clone(), false);
        assert_eq!(chosen.asks_for(b"a/b"), Some(0));
        assert_eq!(chosen.asks_for(b"b/c/"), Some(1));
        assert_eq!(chosen.asks_for(b"ab"), None);
        assert_eq!(chosen.asks_for(b"1.x"), None);
        assert_eq!(chosen.missing().collect::<Vec<_>>(), ["*.x"]);
        let mut chosen = Chosen::new(names, true);
        assert_eq!(chosen.asks_for(b"d/1.x"), Some(2));
    }

    #[test]
    fn odd_names_are_escaped() {
        let name = b"a\n\\\x01\xff\xc3\xa4";
        assert_eq!(shown(name), "a\\n\\\\\\001\\377\u{e4}");
    }
}
