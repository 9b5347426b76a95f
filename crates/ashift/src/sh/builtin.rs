//! What a script does itself.

use std::fs;
use std::ops::ControlFlow::{self, Break, Continue};

use super::shell::{Shell, Streams, print};

/// Exit code for words that cannot be understood.
const MISUSED: u8 = 2;
/// Exit code of a wait for a job that there is not.
const NO_JOB: u8 = 127;

/// An exit code, with which the script goes on or ends.
type Ran = ControlFlow<u8, u8>;

/// Does it.
type Builtin = fn(&mut Shell, &[String], &Streams) -> Ran;

const BUILTINS: [(&str, Builtin); 11] = [
    (":", |_, _, _| Continue(0)),
    ("true", |_, _, _| Continue(0)),
    ("false", |_, _, _| Continue(1)),
    ("echo", echo),
    ("exit", exit),
    ("wait", wait),
    ("set", set),
    ("export", export),
    ("unset", unset),
    ("test", test),
    ("[", test_in_brackets),
];

pub(super) fn find(name: &str) -> Option<Builtin> {
    let found = BUILTINS.iter().find(|(known, _)| *known == name);
    found.map(|(_, builtin)| *builtin)
}

fn misused(shell: &Shell, streams: &Streams, what: &str) -> Ran {
    shell.complain(streams, what);
    Continue(MISUSED)
}

fn echo(_: &mut Shell, words: &[String], streams: &Streams) -> Ran {
    let (words, end) = match words.split_first() {
        Some((first, rest)) if first == "-n" => (rest, ""),
        _ => (words, "\n"),
    };
    let is_said = print(&streams[1], &format!("{}{end}", words.join(" ")));
    Continue((!is_said).into())
}

fn exit(shell: &mut Shell, words: &[String], streams: &Streams) -> Ran {
    match words {
        [] => Break(shell.status),
        [code] if code.parse::<u8>().is_ok() => Break(code.parse().unwrap_or_default()),
        _ => {
            shell.complain(streams, "exit: a number from 0 to 255 is needed");
            Break(MISUSED)
        }
    }
}

fn wait(shell: &mut Shell, words: &[String], streams: &Streams) -> Ran {
    if words.is_empty() {
        shell.jobs.wait_for_all();
        return Continue(0);
    }
    let mut status = 0;
    for word in words {
        let Ok(number) = word.parse() else {
            return misused(shell, streams, &format!("wait: '{word}' is not a job"));
        };
        status = shell.jobs.wait_for(number).unwrap_or(NO_JOB);
    }
    Continue(status)
}

fn set(shell: &mut Shell, words: &[String], streams: &Streams) -> Ran {
    for word in words {
        match word.as_str() {
            "-e" => shell.ends_at_failure = true,
            "+e" => shell.ends_at_failure = false,
            _ => return misused(shell, streams, &format!("set: '{word}' is not known here")),
        }
    }
    Continue(0)
}

fn export(shell: &mut Shell, words: &[String], _: &Streams) -> Ran {
    for word in words {
        match word.split_once('=') {
            Some((name, value)) => shell.export(name, Some(value.into())),
            None => shell.export(word, None),
        }
    }
    Continue(0)
}

fn unset(shell: &mut Shell, words: &[String], _: &Streams) -> Ran {
    words.iter().for_each(|name| shell.unset(name));
    Continue(0)
}

fn test_in_brackets(shell: &mut Shell, words: &[String], streams: &Streams) -> Ran {
    match words.split_last() {
        Some((last, words)) if last == "]" => test(shell, words, streams),
        _ => misused(shell, streams, "[: missing ']'"),
    }
}

fn test(shell: &mut Shell, words: &[String], streams: &Streams) -> Ran {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match holds(&words) {
        Some(holds) => Continue((!holds).into()),
        None => misused(
            shell,
            streams,
            &format!("test: '{}' is not known here", words.join(" ")),
        ),
    }
}

fn holds(words: &[&str]) -> Option<bool> {
    let number = |text: &str| text.parse::<i64>().ok();
    Some(match *words {
        [] => false,
        [word] => !word.is_empty(),
        ["!", ref rest @ ..] => !holds(rest)?,
        ["-n", word] => !word.is_empty(),
        ["-z", word] => word.is_empty(),
        ["-e", path] => fs::metadata(path).is_ok(),
        ["-f", path] => fs::metadata(path).is_ok_and(|found| found.is_file()),
        ["-d", path] => fs::metadata(path).is_ok_and(|found| found.is_dir()),
        ["-s", path] => fs::metadata(path).is_ok_and(|found| found.len() > 0),
        [one, "=", other] => one == other,
        [one, "!=", other] => one != other,
        [one, "-eq", other] => number(one)? == number(other)?,
        [one, "-ne", other] => number(one)? != number(other)?,
        [one, "-lt", other] => number(one)? < number(other)?,
        [one, "-le", other] => number(one)? <= number(other)?,
        [one, "-gt", other] => number(one)? > number(other)?,
        [one, "-ge", other] => number(one)? >= number(other)?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn tests_are_those_of_test() {
        let cases = [
            ("", Some(false)),
            ("x", Some(true)),
            ("! x", Some(false)),
            ("-n x", Some(true)),
            ("-d /", Some(true)),
            ("-f /", Some(false)),
            ("a = a", Some(true)),
            ("a != a", Some(false)),
            ("2 -lt 10", Some(true)),
            ("2 -ge 10", Some(false)),
            ("x -eq 1", None),
            ("a -o b", None),
        ];
        for (words, expected) in cases {
            let words: Vec<&str> = words.split_whitespace().collect();
            assert_eq!(holds(&words), expected, "{words:?}");
        }
    }
}
