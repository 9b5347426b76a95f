//! The command line of `tar`.

use admin::getopt::{Flag, OPERAND, Parsed};

use super::names::Excluded;
use crate::failure::{Fail, Outcome};

/// Letters of options that have only a long name.
const EXCLUDE: char = '\u{2}';
const STRIP: char = '\u{3}';
const FORMAT: char = '\u{4}';
const XATTRS_INCLUDE: char = '\u{5}';

pub(super) const SHORT: &str = "-cxtf:C:vpzkhST:X:mOo\u{2}:\u{3}:\u{4}:\u{5}:";
pub(super) const LONG: &[(&str, Flag)] = &[
    ("create", Flag::Short('c')),
    ("extract", Flag::Short('x')),
    ("get", Flag::Short('x')),
    ("list", Flag::Short('t')),
    ("file", Flag::Short('f')),
    ("directory", Flag::Short('C')),
    ("verbose", Flag::Short('v')),
    ("preserve-permissions", Flag::Short('p')),
    ("same-permissions", Flag::Short('p')),
    ("gzip", Flag::Short('z')),
    ("gunzip", Flag::Short('z')),
    ("keep-old-files", Flag::Short('k')),
    ("dereference", Flag::Short('h')),
    ("sparse", Flag::Short('S')),
    ("files-from", Flag::Short('T')),
    ("exclude-from", Flag::Short('X')),
    ("touch", Flag::Short('m')),
    ("to-stdout", Flag::Short('O')),
    ("no-same-owner", Flag::Short('o')),
    ("exclude", Flag::Short(EXCLUDE)),
    ("strip-components", Flag::Short(STRIP)),
    ("format", Flag::Short(FORMAT)),
    ("xattrs-include", Flag::Short(XATTRS_INCLUDE)),
    ("same-owner", Flag::Long("same-owner")),
    ("no-same-permissions", Flag::Long("no-same-permissions")),
    ("numeric-owner", Flag::Long("numeric-owner")),
    ("xattrs", Flag::Long("xattrs")),
    ("acls", Flag::Long("acls")),
    ("no-recursion", Flag::Long("no-recursion")),
    ("wildcards", Flag::Long("wildcards")),
    ("null", Flag::Long("null")),
];

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Create,
    Extract,
    List,
}

/// What operands mean, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// From here on names are in this directory.
    Enter(String),
    Name(String),
}

/// How to do it.
pub(super) struct Options {
    pub(super) task: Task,
    /// The archive; `-` is stdin or stdout.
    pub(super) archive: String,
    pub(super) steps: Vec<Step>,
    pub(super) excluded: Excluded,
    /// How often `-v` was given.
    pub(super) verbose: usize,
    pub(super) gzip: bool,
    pub(super) keep_old: bool,
    pub(super) follow: bool,
    pub(super) sparse: bool,
    pub(super) touch: bool,
    pub(super) to_stdout: bool,
    pub(super) numeric: bool,
    pub(super) strip: usize,
    pub(super) acls: bool,
    /// Which extended attributes: patterns; `None` for none at all.
    pub(super) xattrs: Option<Vec<String>>,
    /// Whether files are to have the owners that the archive says; `None` for what is usual.
    pub(super) owners: Option<bool>,
    /// Whether permissions are to be what the archive says; `None` for what is usual.
    pub(super) modes: Option<bool>,
    pub(super) recursive: bool,
    pub(super) wildcards: bool,
}

/// Turns a first word without a dash into options: `xfC A DIR` is `-x -f A -C DIR`.
pub(super) fn old_style(args: &[String]) -> Vec<String> {
    let Some((first, rest)) = args.split_first() else {
        return Vec::new();
    };
    if first.starts_with('-') || first.is_empty() {
        return args.to_vec();
    }
    let mut rest = rest.iter();
    let mut words = Vec::new();
    for letter in first.chars() {
        words.push(format!("-{letter}"));
        let at = SHORT.find(letter);
        let takes_argument = at.is_some_and(|at| SHORT[at + letter.len_utf8()..].starts_with(':'));
        if takes_argument {
            words.extend(rest.next().cloned());
        }
    }
    words.extend(rest.cloned());
    words
}

impl Options {
    pub(super) fn of(parsed: &Parsed) -> Outcome<Options> {
        let tasks = [('c', Task::Create), ('x', Task::Extract), ('t', Task::List)];
        let mut tasks = tasks.iter().filter(|(letter, _)| parsed.has(*letter));
        let (Some((_, task)), None) = (tasks.next(), tasks.next()) else {
            return Err(Fail::Usage("one of -c, -x and -t is needed".to_owned()));
        };
        check_format(parsed)?;
        let strip = parsed.value(STRIP).unwrap_or("0");
        let strip = strip.parse().map_err(|_| {
            Fail::Usage(format!("'{strip}' is not a number of components to strip"))
        })?;
        let mut patterns: Vec<String> = parsed.values(EXCLUDE).map(str::to_owned).collect();
        for file in parsed.values('X') {
            patterns.extend(lines(file, '\n')?);
        }
        let named: Vec<_> = parsed.values(XATTRS_INCLUDE).map(str::to_owned).collect();
        let usual = match task {
            Task::Create => "*",
            Task::Extract | Task::List => "user.*",
        };
        let xattrs = match (named.is_empty(), parsed.has_long("xattrs")) {
            (false, _) => Some(named),
            (true, true) => Some(vec![usual.to_owned()]),
            (true, false) => None,
        };
        Ok(Options {
            task: *task,
            archive: parsed.value('f').unwrap_or("-").to_owned(),
            steps: steps(parsed)?,
            excluded: Excluded::new(patterns),
            verbose: parsed
                .options
                .iter()
                .filter(|(flag, _)| *flag == Flag::Short('v'))
                .count(),
            gzip: parsed.has('z'),
            keep_old: parsed.has('k'),
            follow: parsed.has('h'),
            sparse: parsed.has('S'),
            touch: parsed.has('m'),
            to_stdout: parsed.has('O'),
            numeric: parsed.has_long("numeric-owner"),
            strip,
            acls: parsed.has_long("acls"),
            xattrs,
            owners: choice(parsed.has_long("same-owner"), parsed.has('o')),
            modes: choice(parsed.has('p'), parsed.has_long("no-same-permissions")),
            recursive: !parsed.has_long("no-recursion"),
            wildcards: parsed.has_long("wildcards"),
        })
    }
}

fn choice(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

/// Archives are POSIX's.
fn check_format(parsed: &Parsed) -> Outcome {
    match parsed.value(FORMAT) {
        None | Some("posix" | "pax") => Ok(()),
        Some(other) => {
            let text = format!("archives are made in the format posix, not '{other}'");
            Err(Fail::Usage(text))
        }
    }
}

/// `-C`, operands, and what is in the files of `-T`, in their order.
fn steps(parsed: &Parsed) -> Outcome<Vec<Step>> {
    let end = match parsed.has_long("null") {
        true => '\0',
        false => '\n',
    };
    let mut steps = Vec::new();
    for (flag, value) in &parsed.options {
        let Some(value) = value else { continue };
        match flag {
            Flag::Short('C') => steps.push(Step::Enter(value.clone())),
            Flag::Short(OPERAND) => steps.push(Step::Name(value.clone())),
            Flag::Short('T') => steps.extend(lines(value, end)?.into_iter().map(Step::Name)),
            _ => {}
        }
    }
    Ok(steps)
}

/// The lines of a file of this host, or of stdin.
fn lines(file: &str, end: char) -> Outcome<Vec<String>> {
    let bytes = match file {
        "-" => crate::caller::caller().read_all(),
        file => std::fs::read(file),
    };
    let wrong = |text: String| Fail::Exits(2, format!("{file}: {text}"));
    let bytes = bytes.map_err(|e| wrong(super::super::words(&e.into(), false)))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8".to_owned()))?;
    let lines = text.split(end).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::getopt::OptSpec;

    const SPEC: OptSpec = OptSpec {
        short: SHORT,
        long: LONG,
    };

    fn options(line: &str) -> Outcome<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let parsed = admin::getopt::parse(&SPEC, &old_style(&words));
        Options::of(&parsed.map_err(|e| Fail::Usage(e.to_string()))?)
    }

    #[test]
    fn the_first_word_needs_no_dash() {
        let name = |text: &str| Step::Name(text.to_owned());
        let enter = |text: &str| Step::Enter(text.to_owned());
        let old = options("cvfC a.tar dir one -C two three").unwrap();
        assert_eq!(
            (old.task, &old.archive[..], old.verbose),
            (Task::Create, "a.tar", 1)
        );
        let steps = [enter("dir"), name("one"), enter("two"), name("three")];
        assert_eq!(old.steps, steps);
        let new = options("-xpf a.tar --strip-components=2").unwrap();
        assert_eq!(
            (new.task, new.strip, new.modes),
            (Task::Extract, 2, Some(true))
        );
        assert_eq!(options("tvv").unwrap().verbose, 2);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (line, said) in [
            ("rf a.tar x", "invalid option 'r'"),
            ("f a.tar", "one of -c, -x and -t is needed"),
            ("-cx", "one of -c, -x and -t is needed"),
            (
                "-c --format=gnu x",
                "archives are made in the format posix, not 'gnu'",
            ),
            ("-c -P x", "invalid option 'P'"),
            (
                "-x --strip-components=x",
                "'x' is not a number of components to strip",
            ),
        ] {
            match options(line) {
                Err(Fail::Usage(text)) => assert_eq!(text, said, "{line}"),
                Err(other) => panic!("{line}: {other:?}"),
                Ok(_) => panic!("{line}: is taken"),
            }
        }
    }
}
