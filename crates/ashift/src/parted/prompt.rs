//! The dialogue: words of a command line, questions for those that are missing, and messages.
//!
//! # What it is
//! A command takes its words one by one from [`Prompt`]. Where one is missing it is asked for, unless `-s` forbids it;
//! a word that is none of those possible is refused, and asked for again. A message with several answers is a question
//! if there is a terminal to ask.
//!
//! # Source
//! GNU parted 3.5, by running it on a terminal and on a pipe, and its `parted/ui.c` for what is asked when.

use std::collections::VecDeque;

use super::editor::{Editor, Line};
use super::fail;
use super::words::{choose, fold, split_line, split_words};
use crate::caller::{Stream, caller};
use crate::failure::{Fail, Outcome};

/// Columns of a terminal, whatever it says: messages are folded there.
pub(super) const COLUMNS: usize = 80;
/// A question lists its possible answers if they are fewer.
const LISTED: usize = 8;

/// A word that a command needs.
#[derive(Clone, Copy, Default)]
pub(super) struct Question<'a> {
    pub(super) text: &'a str,
    pub(super) default: Option<&'a str>,
    /// The possible answers; empty: any word.
    pub(super) choices: &'a [&'a str],
    /// Whether the whole line is one word.
    pub(super) takes_line: bool,
}

impl<'a> Question<'a> {
    pub(super) fn new(text: &'a str) -> Question<'a> {
        Question {
            text,
            ..Question::default()
        }
    }

    pub(super) fn or(self, default: &'a str) -> Question<'a> {
        let default = Some(default);
        Question { default, ..self }
    }

    pub(super) fn among(self, choices: &'a [&'a str]) -> Question<'a> {
        Question { choices, ..self }
    }

    /// `New state?  [on]/off? `
    fn prompt(&self) -> String {
        let gap = if self.text.is_empty() { "" } else { "  " };
        let (text, default) = (self.text, self.default);
        if !self.choices.is_empty() && self.choices.len() < LISTED {
            let mark = |choice: &&str| match default {
                Some(default) if default.eq_ignore_ascii_case(choice) => format!("[{default}]"),
                _ => (*choice).to_owned(),
            };
            let choices: Vec<String> = self.choices.iter().map(mark).collect();
            return format!("{text}{gap}{}? ", choices.join("/"));
        }
        match default {
            Some(default) => format!("{text}{gap}[{default}]? "),
            None if text.is_empty() => String::new(),
            None => format!("{text} "),
        }
    }
}

/// The words that are there, and where more come from.
pub(super) struct Prompt {
    is_script: bool,
    words: VecDeque<String>,
    /// Whether the last word that was looked for was there, but was refused.
    is_refused: bool,
    editor: Editor,
}

impl Prompt {
    pub(super) fn new(is_script: bool) -> Prompt {
        Prompt {
            is_script,
            words: VecDeque::new(),
            is_refused: false,
            editor: Editor::new(),
        }
    }

    /// Adds the words of an argument.
    pub(super) fn push(&mut self, text: &str) {
        self.words.extend(split_words(text));
    }

    /// The next word, if there is one already.
    pub(super) fn next(&mut self) -> Option<String> {
        self.words.pop_front()
    }

    pub(super) fn peek(&self) -> Option<&str> {
        self.words.front().map(String::as_str)
    }

    /// Forgets the words that are left.
    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    /// Reads a line of commands; false at the end of the input.
    pub(super) fn read_commands(&mut self, names: &[&str]) -> bool {
        self.fill(&Question::new("(parted)").among(names))
    }

    /// The next word, or the answer to the question; `None` if there is no answer.
    pub(super) fn word(&mut self, question: Question<'_>) -> Option<String> {
        let only = match question.choices {
            [only] => Some(*only),
            _ => None,
        };
        let question = Question {
            default: question.default.or(only),
            ..question
        };
        self.is_refused = false;
        loop {
            if let Some(word) = self.words.pop_front() {
                if question.choices.is_empty() {
                    return Some(word);
                }
                if let Some(choice) = choose(question.choices, &word) {
                    return Some(choice.to_owned());
                }
                caller().flush(Stream::Out);
                eprintln!("parted: invalid token: {word}");
                self.words.clear();
                if self.is_script {
                    self.is_refused = true;
                    return None;
                }
            }
            if !self.fill(&question) || self.words.is_empty() {
                return None;
            }
        }
    }

    /// The failure of a command that did not get a word: where nobody is asked, it is said.
    pub(super) fn unanswered<T>(&self, question: &str) -> Outcome<T> {
        if self.is_script && !self.is_refused {
            return fail(format!(
                "Error: no answer to '{question}': with -s a command needs all of its words (parted -h)"
            ));
        }
        Err(Fail::Said(1))
    }

    /// Gets words; false at the end of the input.
    fn fill(&mut self, question: &Question<'_>) -> bool {
        while self.words.is_empty() {
            let line = if self.is_script {
                Some(String::new())
            } else {
                self.wipe_line();
                match self.editor.read(&question.prompt(), question.choices) {
                    Line::Read(line) => Some(line),
                    Line::Ended => None,
                }
            };
            let Some(line) = line else { return false };
            match question.default {
                Some(default) if line.is_empty() => self.words.push_back(default.to_owned()),
                None if line.is_empty() && self.is_script => return true,
                _ if question.takes_line => self.words.push_back(split_line(&line)),
                _ => self.words.extend(split_words(&line)),
            }
            if question.default.is_some() {
                return true;
            }
        }
        true
    }

    /// Says something that has one of several answers; `None` if there is nobody to give one.
    pub(super) fn throw(&mut self, text: &str, answers: &[&'static str]) -> Option<&'static str> {
        self.say(text);
        if let [only] = answers {
            return Some(only);
        }
        if self.is_script || !caller().reads_terminal() {
            return None;
        }
        self.words.clear();
        let answer = self.word(Question::new("").among(answers))?;
        answers.iter().find(|one| **one == answer).copied()
    }

    /// Goes on only if the answer is yes.
    pub(super) fn confirm(&mut self, text: &str) -> Outcome {
        match self.throw(text, &["Yes", "No"]) {
            Some("Yes") => Ok(()),
            _ => Err(Fail::Said(1)),
        }
    }

    /// Prints a message on stderr.
    pub(super) fn say(&self, text: &str) {
        let text = text.strip_suffix('\n').unwrap_or(text);
        if self.is_script {
            eprintln!("{text}");
            return;
        }
        self.wipe_line();
        eprintln!("{}", fold(text, COLUMNS, 0, 0));
    }

    /// Reports a failure; those of the engine are errors.
    pub(super) fn report(&self, fail: Fail) -> Fail {
        let (code, text) = match fail {
            Fail::Failed(text) => (1, format!("Error: {text}")),
            Fail::Exits(code, text) => (code, text),
            fail => return fail,
        };
        self.say(&text);
        Fail::Said(code)
    }

    /// What parted overwrites a progress line with, whether or not there was one.
    fn wipe_line(&self) {
        if !self.is_script {
            print!("\r{:74}\r", "");
        }
    }
}
