//! One step: what is done, to what, and the seed for everything else.
//!
//! # What it is
//! Each module of steps lists its kinds; [`super::act`] lists the modules. A kind says how often it is drawn, how much
//! of it, and does it: to the pool, and to the model.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::act;
use super::bench::Bench;
use crate::Dice;

/// The most operations of a step on files.
const OPERATIONS_MAX: u64 = 40;

/// A kind of step.
pub(super) struct Kind {
    /// Its word in a script.
    word: &'static str,
    /// How often [`super::plan`] draws it, in proportion to the others.
    weight: u64,
    /// How much of it is done.
    amount: fn(&mut Dice) -> u64,
    /// Does it, to the pool and to the model; returns whether it had an effect. Panics when it fails in a way that it
    /// may not.
    act: fn(&mut Bench, &Step) -> bool,
}

impl Kind {
    /// A kind whose amount are some operations, if it has any.
    pub(super) const fn new(
        word: &'static str,
        weight: u64,
        act: fn(&mut Bench, &Step) -> bool,
    ) -> Kind {
        Kind {
            word,
            weight,
            amount: |dice| 1 + dice.below(OPERATIONS_MAX),
            act,
        }
    }

    /// The same with other amounts.
    pub(super) const fn with_amount(self, amount: fn(&mut Dice) -> u64) -> Kind {
        Kind { amount, ..self }
    }
}

/// What a step does: one of the kinds that are listed.
#[derive(Clone, Copy)]
pub struct Act(&'static Kind);

impl Act {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Act> {
        act::KINDS.iter().copied().flatten().map(Act)
    }

    /// The act that a random number selects, with the frequency of its weight.
    pub(super) fn drawn(mut number: u64) -> Act {
        number %= Act::all().map(|act| act.0.weight).sum::<u64>();
        for act in Act::all() {
            if number < act.0.weight {
                return act;
            }
            number -= act.0.weight;
        }
        unreachable!("{number} is below the sum of the weights")
    }

    /// How much of it is done.
    pub(super) fn amount(self, dice: &mut Dice) -> u64 {
        (self.0.amount)(dice)
    }

    /// Does it; returns whether it had an effect.
    pub(super) fn act(self, bench: &mut Bench, step: &Step) -> bool {
        (self.0.act)(bench, step)
    }

    /// Its word in a script.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.0.word
    }
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl PartialEq for Act {
    fn eq(&self, other: &Act) -> bool {
        self.word() == other.word()
    }
}

impl Eq for Act {}

impl PartialOrd for Act {
    fn partial_cmp(&self, other: &Act) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Act {
    fn cmp(&self, other: &Act) -> Ordering {
        self.word().cmp(other.word())
    }
}

/// One step of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub act: Act,
    /// To which pool, modulo their number.
    pub pool: u64,
    /// To which file system or device, modulo their number.
    pub pick: u64,
    /// How much of it: operations, milliseconds, days.
    pub amount: u64,
    /// Seed of all further choices.
    pub seed: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step {
            act,
            pool,
            pick,
            amount,
            seed,
        } = self;
        let word = act.word();
        write!(
            f,
            "{word} pool={pool} pick={pick} amount={amount} seed={seed}"
        )
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Step, String> {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        let act = Act::all().find(|act| act.word() == word);
        let act = act.ok_or_else(|| format!("there is no step '{word}'"))?;
        let [pool, pick, amount, seed] = numbers(words, ["pool", "pick", "amount", "seed"])?;
        Ok(Step {
            act,
            pool,
            pick,
            amount,
            seed,
        })
    }
}

/// The numbers of `name=number` words; 0 for those that are missing.
pub(super) fn numbers<'a, const N: usize>(
    words: impl Iterator<Item = &'a str>,
    names: [&str; N],
) -> Result<[u64; N], String> {
    let mut found = [0; N];
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let at = names.iter().position(|n| *n == name);
        let at = at.ok_or_else(|| format!("'{word}' is not one of {names:?}"))?;
        let number = value.parse();
        found[at] = number.map_err(|_| format!("'{word}' has no number"))?;
    }
    Ok(found)
}
