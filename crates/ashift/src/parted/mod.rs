//! `parted`: partition tables, as GNU parted does it.

mod commands;
mod editor;
mod file_systems;
mod flags;
mod help;
mod label;
mod listing;
mod partition;
mod prompt;
mod session;
mod words;

use gpart::parted::Format;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::gpart::device;

const HELP: &str = include_str!("help.txt");
const VERSION: &str = concat!("parted (ashift ", env!("CARGO_PKG_VERSION"), ")");

/// How new partitions are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Align {
    None,
    Minimal,
    #[default]
    Optimal,
}

/// The options before the device.
#[derive(Default)]
struct Options {
    format: Format,
    is_script: bool,
    fixes: bool,
    align: Align,
    has_consent: bool,
}

pub(crate) const PARTED: Command<Entry> = Command::words(
    "parted",
    "partition tables, as GNU parted does it",
    HELP,
    run,
)
.tool()
.leads_with("");

fn run(args: &[String]) -> Outcome {
    let mut args = args.to_vec();
    let has_consent = device::take_consent(&mut args);
    let Some((mut options, rest)) = read_options(args)? else {
        println!("{VERSION}");
        return Ok(());
    };
    options.has_consent = has_consent;
    let mut words = rest.into_iter();
    let Some(device) = words.next() else {
        return fail("Error: No device found");
    };
    let words: Vec<String> = words.collect();
    commands::run(&crate::world::entered(), &device, &words, &options)
}

/// The failure with a text that is complete.
fn fail<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fail::Exits(1, text.into()))
}

/// The options, and the other words; `None` if the version is asked for.
fn read_options(args: Vec<String>) -> Outcome<Option<(Options, Vec<String>)>> {
    let mut options = Options::default();
    let mut rest = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        // options end at the device: what follows belongs to commands (-1s)
        if arg == "--" {
            rest.extend(args);
            break;
        }
        let (short, long) = match (arg.strip_prefix("--"), arg.strip_prefix('-')) {
            (Some(long), _) => (String::new(), long.to_owned()),
            (None, Some(short)) if !short.is_empty() => (short.to_owned(), String::new()),
            _ => {
                rest.push(arg);
                continue;
            }
        };
        if is_location(&arg) {
            rest.push(arg);
            continue;
        }
        let mut letters = short.chars();
        loop {
            let letter = match (long.as_str(), letters.next()) {
                ("help", _) => 'h',
                ("version", _) => 'v',
                ("machine", _) => 'm',
                ("json", _) => 'j',
                ("script", _) => 's',
                ("fix", _) => 'f',
                (long, _) if long == "align" || long.starts_with("align=") => 'a',
                ("", Some(letter)) => letter,
                ("", None) => break,
                _ => '?',
            };
            match letter {
                'h' => return Err(Fail::Help),
                'v' => return Ok(None),
                'm' => options.format = Format::Machine,
                'j' => options.format = Format::Json,
                's' => options.is_script = true,
                'f' => options.fixes = true,
                'a' => {
                    let attached = match long.split_once('=') {
                        Some((_, value)) => value.to_owned(),
                        None => letters.by_ref().collect(),
                    };
                    let value = if attached.is_empty() {
                        args.next().unwrap_or_default()
                    } else {
                        attached
                    };
                    options.align = match value.as_str() {
                        "none" => Align::None,
                        "min" | "minimal" => Align::Minimal,
                        "opt" | "optimal" => Align::Optimal,
                        "cyl" | "cylinder" => {
                            return fail("parted: alignment to cylinders is not kept up here");
                        }
                        _ => return unknown(&format!("parted: invalid alignment: {value}")),
                    };
                }
                _ if long.is_empty() => {
                    return unknown(&format!("parted: invalid option -- '{letter}'"));
                }
                _ => return unknown(&format!("parted: unrecognized option '{arg}'")),
            }
            if !long.is_empty() {
                break;
            }
        }
    }
    Ok(Some((options, rest)))
}

fn unknown<T>(complaint: &str) -> Outcome<T> {
    fail(format!(
        "{complaint}\nUsage: parted [-hmjsfv] [-a<align>] [DEVICE [COMMAND [PARAMETERS]]...]"
    ))
}

/// `-1s`, `-5%`: not an option.
fn is_location(arg: &str) -> bool {
    let rest = arg.strip_prefix('-').unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_locations_are_no_options() {
        assert!(is_location("-1s"));
        assert!(is_location("-.5%"));
        assert!(!is_location("-s"));
        assert!(!is_location("-"));
    }
}
