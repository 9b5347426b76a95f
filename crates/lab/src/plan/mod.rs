//! Plans: which pool is best for a folder of files, found by trying them.
//!
//! # What it is
//! A [`Request`] names drives, and values for everything that is chosen when a pool is made. Each [`Combination`] of
//! them makes a pool on a machine of emulated drives, copies the files in, lists and reads them, scrubs, and replaces
//! a drive ([`Trial`]). What all this takes, and the space, becomes a [`Plan`]: the best of them, and why.
//!
//! Much data is tried with a part of it ([`Survey::sample`]): one in N, on drives of an Nth of their size, and all
//! figures are multiplied. The caches of drives stay as they are, since a scrub and what reads ahead depend on how
//! many places they follow; so a sample is to be many times as large ([`Plan::notes`] says if it is not). What is
//! advised may be tried once more with everything ([`Plan::to_confirm`]).
//!
//! # Invariants
//! 1. The same request, files and version of the program give the same figures, whatever runs beside, in whatever
//!    order. So runs can be interrupted ([`Journal`]), and spread over computers ([`Shard`], [`Results::merge`]).
//! 2. Nothing in the folder of the files is changed.
//!
//! # What is assumed
//! The files come from where they are read in no time, one after another in the order of their names. Every command
//! begins with empty caches and idle drives. A scrub and a replacement have nothing beside them.

mod combination;
mod figures;
mod front;
mod layout;
mod page;
mod pool;
mod request;
mod results;
mod run;
mod sample;
mod scatter;
mod survey;
mod table;

use serde::Serialize;

pub use combination::Combination;
pub use figures::{Figures, Space, Timed, Tried};
pub use front::Advice;
pub use layout::Layout;
pub use page::page;
pub use request::{PlannedDrive, Request, Shard};
pub use results::{Header, Journal, Results};
pub use run::Trial;
pub use sample::Sample;
pub use survey::{Found, Survey};

/// A combination, and how it was tried; `None`: not yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was tried.
    pub combination: Combination,
    /// With which outcome.
    pub tried: Option<Tried>,
    /// And with all files, where a sample was tried and that was asked for.
    pub confirmed: Option<Tried>,
}

/// What is known about a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Program and version.
    pub made_by: String,
    /// What was asked.
    pub request: Request,
    /// What lies in the folder.
    pub found: Found,
    /// What was tried with.
    pub sample: Sample,
    /// All combinations, in the order of [`Request::combinations`].
    pub rows: Vec<Row>,
    /// What to take, by the number of drives that may be lost.
    pub advice: Vec<Advice>,
}

impl Plan {
    /// What results say.
    #[must_use]
    pub fn of(results: Results) -> Plan {
        let Results {
            header,
            tried,
            confirmed,
        } = results;
        let combinations = header.request.combinations().into_iter().enumerate();
        let row = |(place, combination)| Row {
            combination,
            tried: tried.get(&place).copied(),
            confirmed: confirmed.get(&place).copied(),
        };
        let mut plan = Plan {
            rows: combinations.map(row).collect(),
            made_by: header.made_by,
            request: header.request,
            found: header.found,
            sample: header.sample,
            advice: Vec::new(),
        };
        plan.advice = front::advise(&plan);
        plan
    }

    /// How many combinations have not been tried.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.rows.iter().filter(|row| row.tried.is_none()).count()
    }

    /// The combinations that are advised, and have been tried with a sample alone.
    #[must_use]
    pub fn to_confirm(&self) -> Vec<usize> {
        let taken = self.advice.iter().map(|advice| advice.take);
        let is_sampled = |place: &usize| self.rows[*place].confirmed.is_none();
        match self.sample.one_in {
            1 => Vec::new(),
            _ => taken.filter(is_sampled).collect(),
        }
    }

    /// Whether a combination is on the front of its level.
    fn is_on_front(&self, place: usize) -> bool {
        self.advice
            .iter()
            .any(|advice| advice.front.contains(&place))
    }
}
