//! Parses options as getopt(3) and getopt_long(3) do.
//!
//! # What it is
//! Options may be combined (`-Hp`), with their argument attached (`-oname`) or separate
//! (`-o name`), anywhere among the operands; `--` ends them. Long options may be abbreviated to any
//! unambiguous prefix. An error leads to a usage text on stderr and exit status 2.

use std::fmt;

/// The options of a command.
#[derive(Clone, Copy, Debug)]
pub struct OptSpec {
    /// In the form of getopt(3): letters, each followed by a colon if it takes an argument. After a dash as the
    /// first, operands are options [`OPERAND`], too: in their order among the others.
    pub short: &'static str,
    /// Long options and the flags they are reported as. One that is reported as a letter takes an
    /// argument if the letter does: `--name=value` or `--name value`.
    pub long: &'static [(&'static str, Flag)],
}

impl OptSpec {
    /// The message for wrong options: getopt(3) distinguishes a missing argument only if the letters
    /// begin with a colon.
    #[must_use]
    pub fn complaint(&self, error: &OptError) -> String {
        match error {
            OptError::MissingArgument(letter) if !self.short.starts_with(':') => {
                OptError::Invalid(*letter).to_string()
            }
            _ => error.to_string(),
        }
    }
}

/// The letter of an operand in its order among the options.
pub const OPERAND: char = '\u{1}';

/// What an option is reported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `-x`
    Short(char),
    /// `--name`
    Long(&'static str),
    /// `--name` or `--name=value`
    Optional(&'static str),
}

/// What is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptError {
    /// A letter that the command does not have
    Invalid(char),
    /// A long option that it does not have
    InvalidLong(String),
    /// An option without its argument
    MissingArgument(char),
}

impl fmt::Display for OptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptError::Invalid(c) => write!(f, "invalid option '{c}'"),
            OptError::InvalidLong(name) => write!(f, "invalid option '--{name}'"),
            OptError::MissingArgument(c) => write!(f, "missing argument for '{c}' option"),
        }
    }
}

impl std::error::Error for OptError {}

/// The parsed arguments of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Options in the order given, with their arguments.
    pub options: Vec<(Flag, Option<String>)>,
    /// Everything else.
    pub operands: Vec<String>,
}

impl Parsed {
    /// Whether `-letter` was given.
    #[must_use]
    pub fn has(&self, letter: char) -> bool {
        self.options
            .iter()
            .any(|(flag, _)| *flag == Flag::Short(letter))
    }

    /// Whether `--name` was given.
    #[must_use]
    pub fn has_long(&self, name: &str) -> bool {
        let is_it = |flag: &Flag| matches!(flag, Flag::Long(n) if *n == name);
        self.options.iter().any(|(flag, _)| is_it(flag))
    }

    /// Whether `--name` was given, and the last time with which argument, if any.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<Option<&str>> {
        let is_it = |flag: &Flag| matches!(flag, Flag::Optional(n) if *n == name);
        let last = self.options.iter().rfind(|(flag, _)| is_it(flag));
        last.map(|(_, value)| value.as_deref())
    }

    /// The argument of the last `-letter`.
    #[must_use]
    pub fn value(&self, letter: char) -> Option<&str> {
        self.values(letter).last()
    }

    /// The arguments of all `-letter`, in order.
    pub fn values(&self, letter: char) -> impl Iterator<Item = &str> {
        let wanted = move |(flag, _): &&(Flag, Option<String>)| *flag == Flag::Short(letter);
        self.options
            .iter()
            .filter(wanted)
            .filter_map(|(_, value)| value.as_deref())
    }
}

/// Parses the arguments that follow a command's name.
///
/// # Errors
/// The first error.
pub fn parse<S: AsRef<str>>(spec: &OptSpec, args: &[S]) -> Result<Parsed, OptError> {
    let mut parsed = Parsed::default();
    let mut args = args.iter().map(AsRef::as_ref);
    let in_order = spec.short.starts_with('-');
    let operand = |parsed: &mut Parsed, arg: &str| {
        parsed.operands.push(arg.to_owned());
        if in_order {
            let operand = (Flag::Short(OPERAND), Some(arg.to_owned()));
            parsed.options.push(operand);
        }
    };
    while let Some(arg) = args.next() {
        match arg.strip_prefix('-') {
            None | Some("") => operand(&mut parsed, arg),
            Some("-") => args.by_ref().for_each(|arg| operand(&mut parsed, arg)),
            Some(rest) => match rest.strip_prefix('-') {
                Some(word) => parsed.options.push(long_option(spec, word, &mut args)?),
                None => short_options(spec, rest, &mut args, &mut parsed)?,
            },
        }
    }
    Ok(parsed)
}

fn short_options<'a>(
    spec: &OptSpec,
    cluster: &str,
    args: &mut impl Iterator<Item = &'a str>,
    parsed: &mut Parsed,
) -> Result<(), OptError> {
    let mut rest = cluster.chars();
    while let Some(letter) = rest.next() {
        if !takes_argument(spec, letter).ok_or(OptError::Invalid(letter))? {
            parsed.options.push((Flag::Short(letter), None));
            continue;
        }
        let value = match rest.as_str() {
            "" => args.next().ok_or(OptError::MissingArgument(letter))?,
            attached => attached,
        };
        parsed
            .options
            .push((Flag::Short(letter), Some(value.to_owned())));
        return Ok(());
    }
    Ok(())
}

/// Whether the option `-letter` takes an argument; `None` if there is no such option.
fn takes_argument(spec: &OptSpec, letter: char) -> Option<bool> {
    let at = spec.short.find(letter);
    let at = at.filter(|_| !matches!(letter, ':' | '-'))?;
    Some(spec.short[at + letter.len_utf8()..].starts_with(':'))
}

/// The option `--word`, with its argument if it takes one.
fn long_option<'a>(
    spec: &OptSpec,
    word: &'a str,
    args: &mut impl Iterator<Item = &'a str>,
) -> Result<(Flag, Option<String>), OptError> {
    let (name, attached) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let flag = long_flag(spec, name)?;
    match flag {
        Flag::Short(letter) if takes_argument(spec, letter) == Some(true) => {
            let value = attached.or_else(|| args.next());
            let value = value.ok_or(OptError::MissingArgument(letter))?;
            Ok((flag, Some(value.to_owned())))
        }
        Flag::Optional(_) => Ok((flag, attached.map(str::to_owned))),
        _ if attached.is_some() => Err(OptError::InvalidLong(word.to_owned())),
        _ => Ok((flag, None)),
    }
}

fn long_flag(spec: &OptSpec, name: &str) -> Result<Flag, OptError> {
    // For a command without long options this is a cluster of letters that begins with a dash.
    if spec.long.is_empty() {
        return Err(OptError::Invalid('-'));
    }
    let unknown = || OptError::InvalidLong(name.to_owned());
    if let Some((_, flag)) = spec.long.iter().find(|(long, _)| *long == name) {
        return Ok(*flag);
    }
    let mut fitting = spec.long.iter().filter(|(long, _)| long.starts_with(name));
    match (fitting.next(), fitting.next()) {
        (Some((_, flag)), None) => Ok(*flag),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: OptSpec = OptSpec {
        short: "gjHLo:pPT:v",
        long: &[
            ("json", Flag::Short('j')),
            ("json-int", Flag::Long("json-int")),
            ("json-pool-key-guid", Flag::Long("json-pool-key-guid")),
        ],
    };

    fn list(args: &[&str]) -> Result<Parsed, OptError> {
        parse(&LIST, args)
    }

    #[test]
    fn options_may_stand_anywhere_and_together() {
        let parsed = list(&["tank", "-Honame,size", "-p", "5", "-o", "all"]).unwrap();
        assert!(parsed.has('H') && parsed.has('p') && !parsed.has('v'));
        assert_eq!(parsed.values('o').collect::<Vec<_>>(), ["name,size", "all"]);
        assert_eq!(parsed.value('o'), Some("all"));
        assert_eq!(parsed.operands, ["tank", "5"]);
    }

    #[test]
    fn two_dashes_end_options() {
        let parsed = list(&["-v", "--", "-H", "-"]).unwrap();
        assert_eq!(parsed.operands, ["-H", "-"]);
        assert!(!parsed.has('H'));
    }

    #[test]
    fn operands_may_keep_their_order_among_options() {
        let spec = OptSpec {
            short: "-C:v",
            long: &[],
        };
        let parsed = parse(&spec, &["a", "-vC", "d", "b", "--", "-v"]).unwrap();
        let operand = |text: &str| (Flag::Short(OPERAND), Some(text.to_owned()));
        let dir = (Flag::Short('C'), Some("d".to_owned()));
        let verbose = (Flag::Short('v'), None);
        let expected = [operand("a"), verbose, dir, operand("b"), operand("-v")];
        assert_eq!(parsed.options, expected);
        assert_eq!(parsed.operands, ["a", "b", "-v"]);
        assert_eq!(parse(&spec, &["-v-"]).unwrap_err(), OptError::Invalid('-'));
    }

    #[test]
    fn long_options_by_prefix() {
        assert!(list(&["--json"]).unwrap().has('j'));
        assert!(list(&["--json-i"]).unwrap().has_long("json-int"));
        let ambiguous = list(&["--json-"]).unwrap_err();
        assert_eq!(ambiguous.to_string(), "invalid option '--json-'");
    }

    #[test]
    fn long_options_of_letters_with_arguments_take_them() {
        let spec = OptSpec {
            short: "jp:",
            long: &[("json", Flag::Short('j')), ("path", Flag::Short('p'))],
        };
        let parsed = parse(&spec, &["--path=/a=b", "--pa", "/c", "--json"]).unwrap();
        assert_eq!(parsed.values('p').collect::<Vec<_>>(), ["/a=b", "/c"]);
        assert!(parsed.has('j'));
        assert_eq!(
            parse(&spec, &["--path"]).unwrap_err(),
            OptError::MissingArgument('p')
        );
        let error = parse(&spec, &["--json=1"]).unwrap_err();
        assert_eq!(error, OptError::InvalidLong("json=1".to_owned()));
    }

    #[test]
    fn an_argument_may_be_optional() {
        let spec = OptSpec {
            short: "j",
            long: &[("when", Flag::Optional("when"))],
        };
        let when = |args: &[&str]| {
            let parsed = parse(&spec, args).unwrap();
            parsed
                .optional("when")
                .map(|value| value.map(str::to_owned))
        };
        assert_eq!(when(&["x"]), None);
        assert_eq!(when(&["--when", "x"]), Some(None));
        assert_eq!(when(&["--when", "--wh=now"]), Some(Some("now".into())));
    }

    #[test]
    fn complaints_are_those_of_openzfs() {
        assert_eq!(list(&["-Z"]).unwrap_err().to_string(), "invalid option 'Z'");
        assert_eq!(list(&["-:"]).unwrap_err().to_string(), "invalid option ':'");
        let missing = list(&["-Ho"]).unwrap_err();
        assert_eq!(missing.to_string(), "missing argument for 'o' option");
        let no_long = OptSpec {
            short: "f",
            long: &[],
        };
        let error = parse(&no_long, &["--bogus"]).unwrap_err();
        assert_eq!(error.to_string(), "invalid option '-'");
    }
}
