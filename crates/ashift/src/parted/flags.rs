//! `set`, `toggle`, `disk_set`, `disk_toggle`: flags of partitions and of the disk.

use gpart::Scheme;
use gpart::parted::{FLAGS, PMBR_BOOT, flags_for, is_pmbr_boot};

use super::fail;
use super::prompt::Question;
use super::session::Session;
use crate::failure::{Fail, Outcome};

/// Whether a command asks for the new state, or inverts the present one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Asked,
    Inverted,
}

impl Session<'_> {
    pub(super) fn set(&mut self, how: State) -> Outcome {
        let one = self.partition()?;
        let choices = flags_for(&one);
        let question = Question::new("Flag to Invert?").among(&choices);
        let word = self.prompt.word(question);
        let Some(flag) = FLAGS.iter().find(|known| word.as_deref() == Some(**known)) else {
            return self.prompt.unanswered(question.text);
        };
        let mut marks = self.marks(&one);
        let to = self.state(how, marks.has(&one, flag))?;
        let mut table = self.table()?.clone();
        marks.set(&mut table, one.index, flag, to)?;
        self.commit(table)?;
        self.remember(one.index, marks);
        Ok(())
    }

    pub(super) fn disk_set(&mut self, how: State) -> Outcome {
        let table = self.table()?;
        if table.scheme() == Scheme::Mbr {
            return fail("Error: the flag cylinder_alignment is not kept up here");
        }
        let mut table = table.clone();
        let question = Question::new("Flag to Invert?").among(&[PMBR_BOOT]);
        if self.prompt.word(question).is_none() {
            return self.prompt.unanswered(question.text);
        }
        let to = self.state(how, is_pmbr_boot(&table))?;
        table.set("active", None, to)?;
        self.commit(table)
    }

    /// The state that a flag gets.
    fn state(&mut self, how: State, is_set: bool) -> Outcome<bool> {
        if how == State::Inverted {
            return Ok(!is_set);
        }
        let default = if is_set { "off" } else { "on" };
        let question = Question::new("New state?")
            .or(default)
            .among(&["on", "off"]);
        match self.prompt.word(question) {
            Some(word) => Ok(word == "on"),
            None => Err(Fail::Said(1)),
        }
    }
}
