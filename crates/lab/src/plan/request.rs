//! What is asked.

use std::path::PathBuf;

use base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::combination::Combination;
use super::layout::Layout;

/// A drive to plan with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedDrive {
    /// Its profile, and how it is connected, as `machine create` takes them, without its size.
    pub profile: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What its cache keeps of what was read, in bytes.
    pub read_cache_bytes: u64,
}

/// What is to be planned. Two runs with equal requests try the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The folder whose files the pool will hold.
    pub data: PathBuf,
    /// The drives; each layout uses all of them.
    pub drives: Vec<PlannedDrive>,
    /// Those of a special vdev: each combination is tried without it, and with it as a mirror of all of them.
    pub special: Vec<PlannedDrive>,
    /// Layouts to try.
    pub layouts: Vec<Layout>,
    /// Values of `ashift` to try.
    pub ashifts: Vec<u32>,
    /// Values of `recordsize` to try.
    pub recordsizes: Vec<String>,
    /// Values of `compression` to try.
    pub compressions: Vec<String>,
    /// Values of `special_small_blocks` to try.
    pub small: Vec<String>,
    /// How many bytes of the data to try with, about; `None`: all.
    pub sample_bytes: Option<u64>,
    /// The host profile whose processor time is charged.
    pub host: String,
    /// The memory of the machine, if caches are to be as large as it allows.
    pub memory: Option<String>,
    /// Seeds all randomness.
    pub seed: u64,
}

impl Request {
    /// Refuses what cannot be tried.
    ///
    /// # Errors
    /// `InvalidInput`, with what to write instead.
    pub fn check(&self) -> Result<()> {
        if self.drives.is_empty() {
            return Err(Error::invalid(
                "no drives: give their profiles with --drives PROFILE,…",
            ));
        }
        let drives = self.drives.len();
        if let Some(layout) = self.layouts.iter().find(|layout| !layout.fits(drives)) {
            let usual: Vec<String> = Layout::usual(drives)
                .iter()
                .map(Layout::to_string)
                .collect();
            let text = format!(
                "{layout} is not possible with {drives} drive{}; try {}",
                if drives == 1 { "" } else { "s" },
                usual.join(", ")
            );
            return Err(Error::invalid(text));
        }
        let counts = [
            self.layouts.len(),
            self.ashifts.len(),
            self.recordsizes.len(),
            self.compressions.len(),
        ];
        if counts.contains(&0) {
            return Err(Error::invalid("nothing to try: a list of values is empty"));
        }
        Ok(())
    }

    /// Everything to try, in an order that does not depend on the computer.
    #[must_use]
    pub fn combinations(&self) -> Vec<Combination> {
        let mut specials = vec![None];
        if !self.special.is_empty() {
            specials.extend(self.small.iter().cloned().map(Some));
        }
        let mut all = Vec::new();
        for layout in &self.layouts {
            for ashift in &self.ashifts {
                for recordsize in &self.recordsizes {
                    for compression in &self.compressions {
                        all.extend(specials.iter().map(|special| Combination {
                            layout: *layout,
                            ashift: *ashift,
                            recordsize: recordsize.clone(),
                            compression: compression.clone(),
                            special: special.clone(),
                        }));
                    }
                }
            }
        }
        all
    }
}

/// A part of the combinations, for several computers: every `of`th, from the `at`th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 1 on.
    pub at: usize,
    /// How many there are.
    pub of: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { at: 1, of: 1 };

    /// Reads `2/5`.
    ///
    /// # Errors
    /// `InvalidInput` for anything else, and for a part that there is not.
    pub fn parse(text: &str) -> Result<Shard> {
        let parts = text.split_once('/').and_then(|(at, of)| {
            let shard = Shard {
                at: at.parse().ok()?,
                of: of.parse().ok()?,
            };
            (1..=shard.of).contains(&shard.at).then_some(shard)
        });
        parts.ok_or_else(|| {
            Error::invalid(format!(
                "'{text}' is not a part such as 2/5, from 1/5 to 5/5"
            ))
        })
    }

    /// Whether the combination at this place, from 0 on, is one of this part's.
    #[must_use]
    pub fn has(self, place: usize) -> bool {
        place % self.of == self.at - 1
    }
}
