//! All tests in their order.

use std::fmt;
use std::sync::Arc;

use base::Error;

use crate::directory::Many;
use crate::files::Files;
use crate::options::Options;
use crate::random::Random;
use crate::results::{Results, Test};
use crate::stream::Stream;

/// Why the tests ended early.
#[derive(Debug)]
pub enum Stop {
    /// Something failed; the text is for the user.
    Failed(String),
    /// The user asked for it.
    Interrupted,
}

impl Stop {
    /// The failure of doing this.
    pub(crate) fn of(what: impl fmt::Display) -> impl FnOnce(Error) -> Stop {
        move |error| Stop::Failed(format!("{what}: {error}"))
    }
}

/// What the caller of the tests wants to know and to decide.
pub trait Observer {
    /// Says how far the tests are, in words of the original; the line ends where the text does.
    fn say(&mut self, text: &str);

    /// Waits until this test may begin.
    ///
    /// # Errors
    /// If it may not.
    fn wait_for_turn(&mut self, test: Test) -> Result<(), Stop>;

    /// Whether the tests are to end; their files are removed.
    fn is_interrupted(&mut self) -> bool;
}

/// The tests on some files.
pub struct Bench {
    files: Arc<dyn Files>,
    options: Options,
    random: Random,
    /// The name of the file, and of the directory.
    name: String,
}

impl Bench {
    /// `number` tells the files of this run from those of others.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, options: Options, random: Random, number: u32) -> Bench {
        let name = format!("./Bonnie.{number}");
        Bench {
            files,
            options,
            random,
            name,
        }
    }

    /// Runs all tests once, from the first random number on.
    ///
    /// # Errors
    /// When a call fails or the user interrupts it. The files are removed in any case.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Results, Stop> {
        self.random.reset();
        let mut results = Results::default();
        if self.options.file_mib > 0 {
            let random = &mut self.random;
            let mut stream = Stream::new(&self.files, &self.options, &self.name);
            stream.run(random, observer, &mut results)?;
        }
        if self.options.thousands > 0 {
            let random = &mut self.random;
            let mut many = Many::new(&*self.files, &self.options, &self.name);
            many.run(random, observer, &mut results)?;
        }
        Ok(results)
    }
}
