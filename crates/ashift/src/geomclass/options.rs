//! Options in the style of getopt(3): letters may be combined, values may be separate.

use std::collections::{BTreeMap, BTreeSet};

use base::{Error, Result};

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flag,
    /// A number, perhaps with a unit.
    Number,
    Text,
}

/// An option: its letter, and a word for those that geom(8) does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt {
    letter: char,
    word: Option<&'static str>,
    kind: Kind,
}

/// An option without a value.
pub(crate) const fn flag(letter: char) -> Opt {
    Opt {
        letter,
        word: None,
        kind: Kind::Flag,
    }
}

/// An option with a number.
pub(crate) const fn number(letter: char) -> Opt {
    Opt {
        letter,
        word: None,
        kind: Kind::Number,
    }
}

/// An option with any text.
pub(crate) const fn text(letter: char) -> Opt {
    Opt {
        letter,
        word: None,
        kind: Kind::Text,
    }
}

impl Opt {
    /// The same option with a long name: `--transient`.
    pub(crate) const fn named(self, word: &'static str) -> Opt {
        Opt {
            word: Some(word),
            ..self
        }
    }
}

/// Options and arguments of a command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    flags: BTreeSet<char>,
    numbers: BTreeMap<char, i64>,
    texts: BTreeMap<char, Vec<String>>,
    pub args: Vec<String>,
}

impl Options {
    pub(crate) fn parse(args: &[String], known: &[Opt]) -> Result<Options> {
        let mut options = Options::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--" {
                options.args.extend(rest.cloned());
                break;
            }
            if let Some(word) = arg.strip_prefix("--") {
                let option = known.iter().find(|o| o.word == Some(word));
                let option =
                    option.ok_or_else(|| Error::invalid(format!("unknown option -- {word}")))?;
                options.flags.insert(option.letter);
                continue;
            }
            let letters = match arg.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => letters,
                _ => {
                    options.args.push(arg.clone());
                    continue;
                }
            };
            options.take_letters(letters, known, &mut rest)?;
        }
        Ok(options)
    }

    fn take_letters<'a>(
        &mut self,
        letters: &str,
        known: &[Opt],
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        for (at, letter) in letters.char_indices() {
            let option = known.iter().find(|o| o.letter == letter);
            let option =
                option.ok_or_else(|| Error::invalid(format!("illegal option -- {letter}")))?;
            if option.kind == Kind::Flag {
                self.flags.insert(letter);
                continue;
            }
            let joined = &letters[at + letter.len_utf8()..];
            let value = match joined {
                "" => rest.next().cloned(),
                joined => Some(joined.to_owned()),
            };
            let value = value.ok_or_else(|| {
                Error::invalid(format!("option requires an argument -- {letter}"))
            })?;
            if option.kind == Kind::Number {
                let number = parse_number(&value).ok_or_else(|| {
                    Error::invalid(format!("Invalid value for '{letter}' argument"))
                })?;
                self.numbers.insert(letter, number);
            } else {
                self.texts.entry(letter).or_default().push(value);
            }
            return Ok(());
        }
        Ok(())
    }

    pub(crate) fn has(&self, letter: char) -> bool {
        self.flags.contains(&letter)
    }

    pub(crate) fn number(&self, letter: char) -> Option<i64> {
        self.numbers.get(&letter).copied()
    }

    /// The last value of an option.
    pub(crate) fn text(&self, letter: char) -> Option<&str> {
        self.all(letter).last().map(String::as_str)
    }

    /// All values of an option that may be given several times.
    pub(crate) fn all(&self, letter: char) -> &[String] {
        self.texts.get(&letter).map_or(&[], Vec::as_slice)
    }

    /// Refuses two options that contradict each other; returns which one is given.
    pub(crate) fn either(&self, yes: char, no: char) -> Result<Option<bool>> {
        match (self.has(yes), self.has(no)) {
            (true, true) => Err(Error::invalid(format!(
                "Options -{yes} and -{no} are mutually exclusive."
            ))),
            (true, false) => Ok(Some(true)),
            (false, true) => Ok(Some(false)),
            (false, false) => Ok(None),
        }
    }
}

/// A decimal or hexadecimal number; k, m, g, t, p, e multiply by powers of 1024.
#[doc(alias = "expand_number")]
fn parse_number(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    if let Some(hex) = digits.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok()?.checked_mul(sign);
    }
    let number = digits.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match digits[number.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        "p" | "pb" => 50,
        "e" | "eb" => 60,
        _ => return None,
    };
    if number.starts_with('+') {
        return None;
    }
    let number: i64 = number.parse().ok()?;
    number.checked_mul(sign)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Opt] = &[
        flag('f'),
        flag('v'),
        number('S'),
        text('k'),
        flag('T').named("transient"),
    ];

    fn parse(line: &str) -> Result<Options> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args, KNOWN)
    }

    #[test]
    fn letters_stand_together_or_apart() {
        let options = parse("-fvS4k ada0 -k a -kb --transient -- -x").unwrap();
        assert!(options.has('f') && options.has('v') && options.has('T'));
        assert_eq!(options.number('S'), Some(4096));
        assert_eq!(options.all('k'), ["a", "b"]);
        assert_eq!(options.text('k'), Some("b"));
        assert_eq!(options.args, ["ada0", "-x"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, error) in [
            ("-x", "illegal option -- x"),
            ("--long", "unknown option -- long"),
            ("-S", "option requires an argument -- S"),
            ("-S 4x", "Invalid value for 'S' argument"),
            ("-S +4", "Invalid value for 'S' argument"),
            ("-S 9e9", "Invalid value for 'S' argument"),
            ("-S 99999999e", "Invalid value for 'S' argument"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), error, "{line}");
        }
        assert_eq!(parse("-S-1").unwrap().number('S'), Some(-1));
        assert_eq!(parse("-S 0x10").unwrap().number('S'), Some(16));
    }
}
