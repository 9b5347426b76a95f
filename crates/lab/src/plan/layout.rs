//! How drives are put together.

use std::fmt;

use base::{Error, Result};
use serde::{Deserialize, Serialize};

/// An arrangement of all drives of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Layout {
    /// Each drive is a top-level vdev of its own.
    Stripe,
    /// All drives hold the same.
    Mirror,
    /// A stripe of mirrors of two.
    Mirrors,
    /// One RAID-Z with this many drives' worth of parity.
    RaidZ(u8),
    /// One dRAID with this many columns of parity, without a distributed spare.
    Draid(u8),
}

/// The largest parity of a RAID-Z or dRAID.
const PARITY_MAX: u8 = 3;

impl Layout {
    /// Reads `stripe`, `mirror`, `mirrors`, `raidz1` to `raidz3`, `draid1` to `draid3`.
    ///
    /// # Errors
    /// `InvalidInput`, with the names that exist.
    pub fn parse(text: &str) -> Result<Layout> {
        let parity = |text: &str| match text {
            "" => Some(1),
            text => text.parse().ok().filter(|n| (1..=PARITY_MAX).contains(n)),
        };
        let found = match text {
            "stripe" => Some(Layout::Stripe),
            "mirror" => Some(Layout::Mirror),
            "mirrors" => Some(Layout::Mirrors),
            _ => match (text.strip_prefix("raidz"), text.strip_prefix("draid")) {
                (Some(rest), _) => parity(rest).map(Layout::RaidZ),
                (_, Some(rest)) => parity(rest).map(Layout::Draid),
                _ => None,
            },
        };
        found.ok_or_else(|| {
            let text = format!(
                "no layout '{text}'; there are stripe, mirror, mirrors (of two), raidz1, raidz2, raidz3, \
                 draid1, draid2, draid3"
            );
            Error::invalid(text)
        })
    }

    /// Those that make sense with so many drives, from no redundancy to the most.
    #[must_use]
    pub fn usual(drives: usize) -> Vec<Layout> {
        let all = [
            Layout::Stripe,
            Layout::Mirrors,
            Layout::Mirror,
            Layout::RaidZ(1),
            Layout::RaidZ(2),
            Layout::RaidZ(3),
        ];
        let usual = |layout: &Layout| match layout {
            Layout::Mirrors => drives > 2 && layout.fits(drives),
            Layout::Mirror => drives == 2 || drives == 3,
            // At least as many hold data, and a mirror is better than a RAID-Z of two.
            Layout::RaidZ(parity) => drives > 2 && drives >= usize::from(*parity) * 2,
            _ => true,
        };
        all.into_iter().filter(usual).collect()
    }

    /// Whether so many drives can be put together in this way.
    #[must_use]
    pub fn fits(self, drives: usize) -> bool {
        match self {
            Layout::Stripe => drives > 0,
            Layout::Mirror => drives > 1,
            Layout::Mirrors => drives > 0 && drives.is_multiple_of(2),
            Layout::RaidZ(parity) | Layout::Draid(parity) => drives > usize::from(parity),
        }
    }

    /// How many drives may be lost, whichever they are.
    #[must_use]
    pub fn redundancy(self, drives: usize) -> usize {
        match self {
            Layout::Stripe => 0,
            Layout::Mirror => drives - 1,
            Layout::Mirrors => 1,
            Layout::RaidZ(parity) | Layout::Draid(parity) => parity.into(),
        }
    }

    /// How many drives hold each byte that a top-level vdev counts as allocated. A RAID-Z counts its parity itself.
    pub(super) fn copies(self, drives: usize) -> u64 {
        match self {
            Layout::Mirror => drives as u64,
            Layout::Mirrors => 2,
            Layout::Stripe | Layout::RaidZ(_) | Layout::Draid(_) => 1,
        }
    }

    /// The words of `zpool create` for drives of these names.
    pub(super) fn words(self, names: &[String]) -> Vec<String> {
        let mut words = Vec::new();
        match self {
            Layout::Stripe => words.extend_from_slice(names),
            Layout::Mirrors => {
                for pair in names.chunks(2) {
                    words.push("mirror".to_owned());
                    words.extend_from_slice(pair);
                }
            }
            Layout::Mirror | Layout::RaidZ(_) | Layout::Draid(_) => {
                words.push(self.to_string());
                words.extend_from_slice(names);
            }
        }
        words
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Stripe => f.write_str("stripe"),
            Layout::Mirror => f.write_str("mirror"),
            Layout::Mirrors => f.write_str("mirrors"),
            Layout::RaidZ(parity) => write!(f, "raidz{parity}"),
            Layout::Draid(parity) => write!(f, "draid{parity}"),
        }
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> String {
        layout.to_string()
    }
}

impl TryFrom<String> for Layout {
    type Error = Error;

    fn try_from(text: String) -> Result<Layout> {
        Layout::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(drives: usize) -> String {
        let names: Vec<String> = Layout::usual(drives)
            .iter()
            .map(Layout::to_string)
            .collect();
        names.join(" ")
    }

    #[test]
    fn each_number_of_drives_has_its_layouts() {
        assert_eq!(usual(1), "stripe");
        assert_eq!(usual(2), "stripe mirror");
        assert_eq!(usual(3), "stripe mirror raidz1");
        assert_eq!(usual(4), "stripe mirrors raidz1 raidz2");
        assert_eq!(usual(5), "stripe raidz1 raidz2");
        assert_eq!(usual(6), "stripe mirrors raidz1 raidz2 raidz3");
        assert_eq!(usual(8), "stripe mirrors raidz1 raidz2 raidz3");
        for drives in 1..=12 {
            assert!(
                Layout::usual(drives)
                    .iter()
                    .all(|layout| layout.fits(drives))
            );
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for layout in Layout::usual(8)
            .into_iter()
            .chain([Layout::Mirror, Layout::Draid(2)])
        {
            assert_eq!(Layout::parse(&layout.to_string()).unwrap(), layout);
        }
        for wrong in ["raidz4", "draid0", "raidz0", "tape"] {
            assert!(Layout::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mirrors_of_two_are_striped() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let words = Layout::Mirrors.words(&names);
        assert_eq!(words, ["mirror", "a", "b", "mirror", "c", "d"]);
    }
}
