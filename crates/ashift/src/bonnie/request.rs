//! The words of `bonnie++`.

use std::collections::VecDeque;

use bonnie::semaphores::RUNS_MAX;
use bonnie::{Era, Options};

use super::user::Named;
use crate::failure::{Fail, Outcome};

/// What was asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) folder: String,
    pub(super) options: Options,
    pub(super) machine: String,
    pub(super) runs: Runs,
    pub(super) seed: Seed,
    pub(super) user: Option<Named>,
    pub(super) era: Era,
    pub(super) is_quiet: bool,
    pub(super) turns: Turns,
    /// What to do with the semaphores, instead of a run.
    pub(super) semaphores: Option<Served>,
}

/// What a run waits for before each test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turns {
    /// Nothing.
    Free,
    /// A line on stdin.
    Asked,
    /// The other runs.
    Semaphores,
}

/// The semaphores that `-p` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// They are made, for so many runs.
    Runs(u16),
    /// They are removed.
    Nobody,
}

/// How often it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Once, with tables.
    Tables,
    /// So many times, with a line for each.
    Lines(u32),
}

impl Runs {
    pub(super) fn count(self) -> u32 {
        match self {
            Runs::Tables => 1,
            Runs::Lines(runs) => runs,
        }
    }
}

/// Where the random numbers come from.
#[derive(Clone, Debug)]
pub(super) enum Seed {
    Clock,
    Number(u32),
    File(String),
}

/// An option's letter and its value; the value of a long one is its name.
enum Given {
    Letter(char, Option<String>),
    Era(String),
}

fn usage(text: impl Into<String>) -> Fail {
    Fail::Usage(text.into())
}

/// The options in the order given.
fn given(args: &[String]) -> Outcome<Vec<Given>> {
    let mut words: VecDeque<&str> = args.iter().map(String::as_str).collect();
    let mut all = Vec::new();
    while let Some(word) = words.pop_front() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            match (name, value.or_else(|| words.pop_front())) {
                ("era", Some(era)) => all.push(Given::Era(era.to_owned())),
                ("era", None) => return Err(usage("missing argument for '--era'")),
                _ => return Err(usage(format!("invalid option '{word}'"))),
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else {
            return Err(usage(format!("unexpected operand '{word}'")));
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            let attached = || Some(letters.as_str().to_owned()).filter(|rest| !rest.is_empty());
            let value = match letter {
                'b' | 'q' | 'D' => None,
                // Its value, if any, is in the same word.
                'f' => attached(),
                'c' | 'd' | 'g' | 'l' | 'm' | 'n' | 'p' | 'r' | 's' | 'u' | 'x' | 'y' | 'z'
                | 'Z' => {
                    let value = attached().or_else(|| words.pop_front().map(str::to_owned));
                    let missing = || usage(format!("missing argument for '{letter}' option"));
                    Some(value.ok_or_else(missing)?)
                }
                _ => return Err(usage(format!("invalid option '{letter}'"))),
            };
            if value.is_some() {
                letters = "".chars();
            }
            all.push(Given::Letter(letter, value));
        }
    }
    Ok(all)
}

pub(super) fn number(letter: char, text: &str) -> Outcome<u32> {
    let number = text.parse();
    number.map_err(|_| usage(format!("-{letter}: '{text}' is not a number")))
}

fn served(text: &str) -> Outcome<Served> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(Served::Nobody),
        Ok(runs @ 1..) if runs <= RUNS_MAX.into() => Ok(Served::Runs(runs as u16)),
        _ => {
            let text = format!("-p: '{text}' is not a number of runs (1 to {RUNS_MAX}), nor -1");
            Err(usage(text))
        }
    }
}

fn turns(text: &str) -> Outcome<Turns> {
    match text.chars().next().map(|first| first.to_ascii_lowercase()) {
        Some('s') => Ok(Turns::Semaphores),
        Some('p') => Ok(Turns::Asked),
        _ => Err(usage(format!("-y: '{text}' is neither s nor p"))),
    }
}

pub(super) fn era(text: &str) -> Outcome<Era> {
    match text {
        "1.96" => Ok(Era::V1_96),
        "2.00" => Ok(Era::V2_00),
        _ => Err(usage(format!("no era '{text}': 1.96 or 2.00"))),
    }
}

impl Request {
    pub(super) fn parse(args: &[String]) -> Outcome<Request> {
        let mut request = Request {
            folder: ".".to_owned(),
            options: Options::default(),
            machine: String::new(),
            runs: Runs::Tables,
            seed: Seed::Clock,
            user: None,
            era: Era::default(),
            is_quiet: false,
            turns: Turns::Free,
            semaphores: None,
        };
        request.options.memory_mib = memory_mib();
        let mut has_size = false;
        for given in given(args)? {
            match given {
                Given::Era(text) => request.era = era(&text)?,
                Given::Letter(letter, value) => {
                    has_size |= letter == 's';
                    request.set(letter, &value.unwrap_or_default())?;
                }
            }
        }
        if request.semaphores.is_some() && request.turns != Turns::Free {
            return Err(usage(
                "-p makes what runs with -y s wait for: give one of them",
            ));
        }
        if !has_size {
            request.options.fit_memory();
        }
        if request.machine.is_empty() {
            request.machine = host_name();
        }
        let checked = request.options.check();
        checked.map_err(|error| usage(error.context()))?;
        Ok(request)
    }

    fn set(&mut self, letter: char, value: &str) -> Outcome {
        let options = &mut self.options;
        let wrong = |error: base::Error| usage(format!("-{letter}: {}", error.context()));
        match letter {
            'b' => options.syncs = true,
            'q' => self.is_quiet = true,
            'D' => options.is_direct = true,
            'f' if value.is_empty() => options.byte_mib = 0,
            'f' => options.byte_mib = number(letter, value)?,
            'c' => options.concurrency = number(letter, value)?,
            'd' => value.clone_into(&mut self.folder),
            'm' => value.clone_into(&mut self.machine),
            'n' => options.set_files(value).map_err(wrong)?,
            's' => options.set_file(value).map_err(wrong)?,
            'r' => options.memory_mib = number(letter, value)?,
            'x' => self.runs = Runs::Lines(number(letter, value)?),
            'z' => self.seed = Seed::Number(number(letter, value)?),
            'Z' => self.seed = Seed::File(value.to_owned()),
            'u' | 'g' => self.user.get_or_insert_default().add(letter, value)?,
            'p' => self.semaphores = Some(served(value)?),
            'y' => self.turns = turns(value)?,
            _ => return Err(usage(format!("invalid option '{letter}'"))),
        }
        Ok(())
    }
}

/// The memory of this host or machine, in MiB; 0 if a machine does not say.
fn memory_mib() -> u32 {
    if let Some(running) = crate::world::entered().running() {
        let bytes = running.memory().map_or(0, |memory| memory.bytes);
        return u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    }
    let info = rustix::system::sysinfo();
    let bytes = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    u32::try_from(bytes >> 20).unwrap_or(u32::MAX)
}

fn host_name() -> String {
    match crate::world::entered().running() {
        Some(running) => running.hostname(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    }
}
