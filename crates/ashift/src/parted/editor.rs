//! Reads lines: with editing, completion and history on the terminal of this process.
//!
//! # Why not simpler
//! A command that another process runs for a client (a machine that is up) has the client's terminal, which the line
//! editor cannot use: there the terminal itself edits the line. What is piped in is repeated on stdout, as GNU parted
//! does it.

use std::io::Read;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Helper};

use super::words::choices_for;
use crate::caller::{Stream, caller};

/// A line longer than this is cut, in bytes: far more than any command takes.
const LINE_BYTES: u64 = 64 << 10;

/// What came of reading.
pub(super) enum Line {
    Read(String),
    /// The end of the input, or Ctrl-C.
    Ended,
}

/// Where lines come from.
pub(super) struct Editor(Option<rustyline::Editor<Choices, MemHistory>>);

impl Editor {
    pub(super) fn new() -> Editor {
        let caller = caller();
        let is_own = caller.as_client().is_none() && caller.is_terminal(Stream::Out);
        if !is_own || !caller.reads_terminal() {
            return Editor(None);
        }
        let config = Config::builder().auto_add_history(true).build();
        let history = MemHistory::with_config(&config);
        let made = rustyline::Editor::with_history(config, history);
        Editor(made.ok())
    }

    /// Reads a line. `choices`: the words that Tab completes.
    pub(super) fn read(&mut self, prompt: &str, choices: &[&str]) -> Line {
        let Some(editor) = &mut self.0 else {
            return read_plain(prompt);
        };
        caller().flush(Stream::Out);
        let choices = choices.iter().map(|choice| (*choice).to_owned()).collect();
        editor.set_helper(Some(Choices(choices)));
        match rt::outside(|| editor.readline(prompt)) {
            Ok(line) => Line::Read(line),
            Err(_) => Line::Ended,
        }
    }
}

fn read_plain(prompt: &str) -> Line {
    let caller = caller();
    print!("{prompt}");
    caller.flush(Stream::Out);
    let is_terminal = caller.reads_terminal();
    if let Ok(file) = caller.input_file()
        && is_terminal
    {
        crate::caller::wait_for(&file);
    }
    let mut bytes = Vec::new();
    let read = {
        let mut input = caller.input();
        let mut limited = Read::take(&mut **input, LINE_BYTES);
        std::io::BufRead::read_until(&mut limited, b'\n', &mut bytes)
    };
    if !matches!(read, Ok(1..)) {
        return Line::Ended;
    }
    let line = String::from_utf8_lossy(&bytes);
    let line = line.strip_suffix('\n').unwrap_or(&line);
    if !is_terminal {
        println!("{line}");
    }
    Line::Read(line.to_owned())
}

/// The words that are possible at a prompt.
struct Choices(Vec<String>);

impl Completer for Choices {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or(line);
        let start = typed.rfind(' ').map_or(0, |blank| blank + 1);
        Ok((start, choices_for(&self.0, &typed[start..])))
    }
}

impl Hinter for Choices {
    type Hint = String;
}
impl Highlighter for Choices {}
impl Validator for Choices {}
impl Helper for Choices {}
