//! One way to make the pool, and the commands that try it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::layout::Layout;
use super::request::Request;

/// A value for everything that a plan chooses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Combination {
    /// How the drives are put together.
    pub layout: Layout,
    /// log2 of the smallest allocation, in bytes.
    pub ashift: u32,
    /// As `zfs set` takes it.
    pub recordsize: String,
    /// As `zfs set` takes it.
    pub compression: String,
    /// `special_small_blocks`; `None`: without the special drives.
    pub special: Option<String>,
}

/// What may differ between two combinations, by the name of the option.
pub(super) const DIMENSIONS: [&str; 5] = [
    "layout",
    "ashift",
    "recordsize",
    "compression",
    "special_small_blocks",
];

impl Combination {
    /// The value of one of the [`DIMENSIONS`].
    pub(super) fn value(&self, dimension: &str) -> String {
        match dimension {
            "layout" => self.layout.to_string(),
            "ashift" => self.ashift.to_string(),
            "recordsize" => self.recordsize.clone(),
            "compression" => self.compression.clone(),
            _ => self.special.clone().unwrap_or_else(|| "none".to_owned()),
        }
    }

    /// The only dimension in which another combination differs; `None` if it is not one.
    pub(super) fn only_difference(&self, other: &Combination) -> Option<&'static str> {
        let differs = |name: &&str| self.value(name) != other.value(name);
        let mut different = DIMENSIONS.into_iter().filter(differs);
        let first = different.next()?;
        different.next().is_none().then_some(first)
    }

    /// `zpool create` for drives of these names, as one types it.
    pub(super) fn create(&self, request: &Request, names: &Names) -> Vec<String> {
        let mut words = vec!["zpool".to_owned(), "create".to_owned()];
        // `zpool create` wants each vdev to survive as much as the others, and does not compare with a dRAID.
        let redundancy = self.layout.redundancy(request.drives.len());
        let is_alike =
            request.special.len() == redundancy + 1 && !matches!(self.layout, Layout::Draid(_));
        if self.special.is_some() && !is_alike {
            words.push("-f".to_owned());
        }
        let mut option = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        option("-o", format!("ashift={}", self.ashift));
        option("-O", format!("recordsize={}", self.recordsize));
        option("-O", format!("compression={}", self.compression));
        option("-O", "atime=off".to_owned());
        if let Some(small) = &self.special {
            option("-O", format!("special_small_blocks={small}"));
        }
        words.push("tank".to_owned());
        words.extend(self.layout.words(&names.drives));
        if self.special.is_some() {
            words.push("special".to_owned());
            if request.special.len() > 1 {
                words.push("mirror".to_owned());
            }
            words.extend_from_slice(&names.special);
        }
        words
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Combination {
            layout,
            ashift,
            recordsize,
            compression,
            special,
        } = self;
        write!(f, "{layout} ashift={ashift} {recordsize} {compression}")?;
        match special {
            Some(small) => write!(f, " special={small}"),
            None => Ok(()),
        }
    }
}

/// What drives are called.
pub(super) struct Names {
    pub(super) drives: Vec<String>,
    pub(super) special: Vec<String>,
}

impl Names {
    /// As in the machine that tries a combination.
    pub(super) fn of_machine(request: &Request) -> Names {
        let named = |name: &str, count: usize| (0..count).map(|at| format!("{name}{at}")).collect();
        Names {
            drives: named("ada", request.drives.len()),
            special: named("nvd", request.special.len()),
        }
    }

    /// For the user to replace by their own.
    pub(super) fn to_replace(request: &Request) -> Names {
        let named =
            |name: &str, count: usize| (1..=count).map(|at| format!("{name}{at}")).collect();
        Names {
            drives: named("DISK", request.drives.len()),
            special: named("SSD", request.special.len()),
        }
    }
}
