//! Looking up names that are alike: the same but for case or for how letters with marks are written.
//!
//! # What it is
//! A ZAP with `zap_normflags` hashes names in a normal form (`textprep`), so all names that are alike have one hash,
//! and differ in their collision differentiator. Exact look-ups find one of them; [`Zap::find_alike`] the first.
//!
//! # Source
//! OpenZFS `module/zfs/zap_micro.c` (`zap_lookup_norm`, `zap_match`, `zap_name_init_str`).

use base::Result;

use crate::handle::{Entry, Zap};
use crate::textprep;
use crate::value::{Flags, StoredKey};

/// Whether names that differ in case alone are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// They are, if the ZAP's flags say upper case (`MT_NORMALIZE`).
    Ignored,
    /// They are not (`MT_NORMALIZE | MT_MATCH_CASE`).
    Kept,
}

impl Zap {
    /// The first entry, in the order of the ZAP, whose name is alike by the flags of the ZAP; without such flags the
    /// entry of that very name.
    ///
    /// # Errors
    /// [`Unsupported`](base::ErrorKind::Unsupported) for a name that becomes too long; I/O and corruption.
    #[doc(alias = "zap_lookup_norm")]
    pub fn find_alike(&self, name: &[u8], case: Case) -> Result<Option<Entry>> {
        let stats = self.stats()?;
        let form = compared_form(stats.flags, case);
        let sought = textprep::prepare(name, form);
        let hash = StoredKey::new(&name.into(), stats.salt, stats.flags)?.hash;
        let mut cd = 0;
        while let Some(entry) = self.closest(hash, cd)?
            && entry.hash == hash
        {
            if textprep::prepare(&entry.name, form) == sought {
                return Ok(Some(entry));
            }
            let Some(next) = entry.cd.checked_add(1) else {
                break;
            };
            cd = next;
        }
        Ok(None)
    }
}

/// The form in which names are compared, which may be another than that in which they are hashed.
fn compared_form(flags: Flags, case: Case) -> u64 {
    match case {
        Case::Ignored => flags.normflags(),
        Case::Kept => flags.normflags() & !textprep::TO_UPPER,
    }
}

/// Whether two names are alike in ZAPs with these flags.
#[must_use]
#[doc(alias = "u8_strcmp")]
pub fn are_alike(one: &[u8], other: &[u8], flags: Flags, case: Case) -> bool {
    let form = compared_form(flags, case);
    one == other || form != 0 && textprep::prepare(one, form) == textprep::prepare(other, form)
}
