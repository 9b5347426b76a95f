//! Bookmarks: the point in time of a snapshot, without its data.
//!
//! # What it is
//! A bookmark records a snapshot's guid and txg, so that an incremental send can start there after
//! the snapshot is gone. Bookmarks that also record how much was freed since (feature
//! `bookmark_written`) would need an update for every freed block; a pool with such bookmarks is
//! not written to.
//!
//! # On disk
//! The dataset's ZAP has `com.delphix:bookmarks` -> a ZAP of `zfs_bookmark_phys_t` by name.
//!
//! # Source
//! OpenZFS module/zfs/dsl_bookmark.c @be7657e3

use std::sync::Arc;

use base::{Error, ErrorKind, Guid, ObjectId, Result, Txg};
use dmu::Tx;
use phys::ObjectType;
use phys::pool_names::DS_FIELD_BOOKMARK_NAMES;

use crate::dataset::DslDataset;
use crate::names::NAME_BYTES_MAX;
use crate::pool::DslPool;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;
use phys::feature;

/// Index of zbm_flags among the words of a bookmark.
const FLAGS_WORD: usize = 4;
/// Index of zbm_redaction_obj among the words of a bookmark.
const REDACTION_WORD: usize = 3;
/// `ZBM_FLAG_HAS_FBN`: the bookmark records how much was freed since.
const HAS_FBN: u64 = 1 << 0;

/// A bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DslBookmark {
    /// The last component of its name.
    pub name: String,
    /// zbm_guid: of the snapshot.
    pub guid: Guid,
    /// zbm_creation_txg: of the snapshot.
    pub createtxg: Txg,
    /// zbm_creation_time: of the snapshot, seconds since 1970.
    pub creation: u64,
    words: Vec<u64>,
}

impl DslBookmark {
    /// zbm_redaction_obj: the object with the redaction list; 0 if there is none.
    #[must_use]
    pub fn redaction_object(&self) -> u64 {
        self.words.get(REDACTION_WORD).copied().unwrap_or(0)
    }

    /// What the snapshot referenced: allocated, compressed and uncompressed bytes. `None` for a
    /// bookmark created without `bookmark_written`.
    #[must_use]
    pub fn referenced_bytes(&self) -> Option<[u64; 3]> {
        let has_sizes = self
            .words
            .get(FLAGS_WORD)
            .is_some_and(|flags| flags & HAS_FBN != 0);
        let sizes = self.words.get(FLAGS_WORD + 1..)?.first_chunk();
        sizes.filter(|_| has_sizes).copied()
    }
}

impl DslPool {
    fn bookmarks_zap(&self, head: &DslDataset) -> Result<Option<ObjectId>> {
        if !self.mos().is_zapified(head.object())? {
            return Ok(None);
        }
        Ok(self
            .mos()
            .zap_get(head.object(), DS_FIELD_BOOKMARK_NAMES)?
            .map(ObjectId))
    }

    fn load_bookmarks(&self, head: &DslDataset) -> Result<Vec<DslBookmark>> {
        let Some(zap) = self.bookmarks_zap(head)? else {
            return Ok(Vec::new());
        };
        let mut bookmarks = Vec::new();
        for (name, words) in self.mos().zap_word_entries(zap)? {
            let [guid, createtxg, creation] = *words.first_chunk().ok_or_else(|| {
                Error::corrupt(format!("bookmark {name} has {} words", words.len()))
            })?;
            let (guid, createtxg) = (Guid(guid), Txg(createtxg));
            bookmarks.push(DslBookmark {
                name,
                guid,
                createtxg,
                creation,
                words,
            });
        }
        bookmarks.sort_by(|a, b| (a.createtxg, &a.name).cmp(&(b.createtxg, &b.name)));
        Ok(bookmarks)
    }

    /// The bookmarks of a head, oldest first.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn bookmarks(&self, head: &DslDataset) -> Result<Vec<DslBookmark>> {
        let _config = self.config().read();
        self.load_bookmarks(head)
    }

    /// Creates the bookmark `pool/a#name` of the snapshot `pool/a@snap`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `InvalidInput`, `NameTooLong`; `Unsupported` without the feature.
    #[doc(alias = "dsl_bookmark_create")]
    pub fn create_bookmark(&self, bookmark: &str, snapshot: &str) -> Result<()> {
        let (head_name, name) = split_bookmark(bookmark)?;
        let names = (
            head_name.to_string(),
            name.to_string(),
            snapshot.to_string(),
        );
        let (head_name, name, snapshot) = names.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            if !pool.mos().env().feature_is_enabled(feature::BOOKMARKS) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the pool has no bookmarks",
                ));
            }
            let head = pool.find_dataset(&head_name)?;
            crate::create::expect_head(&head, &head_name)?;
            pool.refuse_encrypted(&head.dir(), "bookmarking it")?;
            let snap = pool.find_dataset(&snapshot)?;
            if !snap.is_snapshot() || !pool.is_before(&head, &snap)? {
                let text = format!("{snapshot} is not an earlier snapshot of {head_name}");
                return Err(Error::invalid(text));
            }
            if pool
                .load_bookmarks(&head)?
                .iter()
                .any(|found| found.name == name)
            {
                let text = format!("{head_name}#{name} exists");
                return Err(Error::new(ErrorKind::Exists, text));
            }
            Ok(Verdict::Go)
        };
        let (head_name, name, snapshot) = names;
        self.sync_task(1, SpaceCheck::Normal, check, move |pool, tx| {
            let head = pool.find_dataset(&head_name)?;
            let snap = pool.find_dataset(&snapshot)?.fields();
            let words = [snap.guid, snap.creation_txg, snap.creation_time];
            pool.add_bookmark(&head, &name, &words, tx)?;
            pool.log(
                &head,
                "bookmark",
                &format!("name={name} creation_txg={}", words[1]),
                tx,
            )
        })
    }

    #[doc(alias = "dsl_bookmark_node_add")]
    fn add_bookmark(&self, head: &DslDataset, name: &str, words: &[u64], tx: &Tx) -> Result<()> {
        let zap = match self.bookmarks_zap(head)? {
            Some(zap) => zap,
            None => {
                let zap = self
                    .mos()
                    .zap_create_names(ObjectType::N_ZAP_METADATA, tx)?;
                self.mos().env().feature_incr(feature::BOOKMARKS, tx)?;
                self.mos().zapify(head.object(), tx)?;
                self.mos()
                    .zap_add(head.object(), DS_FIELD_BOOKMARK_NAMES, zap.0, tx)?;
                zap
            }
        };
        if words.len() > 3 {
            self.mos().env().feature_incr(feature::BOOKMARK_V2, tx)?;
        }
        self.mos().zap_set_words(zap, name, words, tx)
    }

    /// Destroys `pool/a#name`.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a redaction bookmark.
    #[doc(alias = "dsl_bookmark_destroy")]
    pub fn destroy_bookmark(&self, bookmark: &str) -> Result<()> {
        let (head_name, name) = split_bookmark(bookmark)?;
        let names = (head_name.to_string(), name.to_string());
        let (head_name, name) = names.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            let head = pool.find_dataset(&head_name)?;
            let found = pool
                .load_bookmarks(&head)?
                .into_iter()
                .find(|found| found.name == name);
            let missing = || Error::not_found(format!("there is no {head_name}#{name}"));
            check_simple(&found.ok_or_else(missing)?)?;
            Ok(Verdict::Go)
        };
        let (head_name, name) = names;
        self.sync_task(0, SpaceCheck::ExtraReserved, check, move |pool, tx| {
            let head = pool.find_dataset(&head_name)?;
            pool.remove_bookmark(&head, &name, tx)?;
            pool.log(&head, "remove bookmark", &format!("name={name}"), tx)
        })
    }

    fn remove_bookmark(&self, head: &DslDataset, name: &str, tx: &Tx) -> Result<()> {
        let missing = || Error::not_found(format!("no bookmark {name}"));
        let zap = self.bookmarks_zap(head)?.ok_or_else(missing)?;
        if self
            .mos()
            .zap_get_words(zap, name)?
            .is_some_and(|words| words.len() > 3)
        {
            self.mos().env().feature_decr(feature::BOOKMARK_V2, tx)?;
        }
        self.mos().zap_remove(zap, name, tx)?;
        if self.mos().zap_count(zap)? == 0 {
            self.mos().zap_destroy(zap, tx)?;
            self.mos()
                .zap_remove(head.object(), DS_FIELD_BOOKMARK_NAMES, tx)?;
            self.mos().env().feature_decr(feature::BOOKMARKS, tx)?;
        }
        Ok(())
    }

    /// Destroys all bookmarks of a head that is being destroyed.
    pub(crate) fn destroy_bookmarks(&self, head: &DslDataset, tx: &Tx) -> Result<()> {
        for bookmark in self.load_bookmarks(head)? {
            check_simple(&bookmark)?;
            self.remove_bookmark(head, &bookmark.name, tx)?;
        }
        Ok(())
    }

    /// Whether a bookmark still needs the deadlist key of a snapshot that is being destroyed.
    ///
    /// # Errors
    /// `Unsupported` for bookmarks that record freed space, which would have to be maintained.
    #[doc(alias = "dsl_bookmark_ds_destroyed")]
    pub(crate) fn bookmarks_keep_key(&self, snap: &Arc<DslDataset>, _tx: &Tx) -> Result<bool> {
        if let Some(head) = self.head_of(&snap.dir())? {
            self.load_bookmarks(&head)?
                .iter()
                .try_for_each(check_simple)?;
        }
        Ok(false)
    }

    /// Moves the bookmarks up to the branch point from the origin's head to a promoted clone.
    pub(crate) fn move_bookmarks(
        &self,
        from: &DslDataset,
        to: &DslDataset,
        last_txg: Txg,
        tx: &Tx,
    ) -> Result<()> {
        for bookmark in self.load_bookmarks(from)? {
            if bookmark.createtxg <= last_txg {
                self.remove_bookmark(from, &bookmark.name, tx)?;
                self.add_bookmark(to, &bookmark.name, &bookmark.words, tx)?;
            }
        }
        Ok(())
    }

    /// Checks that a promotion can move the bookmarks.
    pub(crate) fn check_bookmarks_move(
        &self,
        from: &DslDataset,
        to: &DslDataset,
        last_txg: Txg,
    ) -> Result<()> {
        let there = self.load_bookmarks(to)?;
        for bookmark in self.load_bookmarks(from)? {
            check_simple(&bookmark)?;
            let taken = there.iter().any(|found| found.name == bookmark.name);
            if bookmark.createtxg <= last_txg && taken {
                let text = format!("both have bookmarks named {}", bookmark.name);
                return Err(Error::new(ErrorKind::Exists, text));
            }
        }
        Ok(())
    }

    #[doc(alias = "dsl_bookmark_latest_txg")]
    pub(crate) fn latest_bookmark_txg(&self, head: &DslDataset) -> Result<u64> {
        let bookmarks = self.load_bookmarks(head)?;
        Ok(bookmarks
            .iter()
            .map(|bookmark| bookmark.createtxg.0)
            .max()
            .unwrap_or(0))
    }
}

/// Rejects bookmarks that would need updates after their creation, and redaction bookmarks.
fn check_simple(bookmark: &DslBookmark) -> Result<()> {
    let word = |at: usize| bookmark.words.get(at).copied().unwrap_or(0);
    if word(FLAGS_WORD) & HAS_FBN != 0 || word(REDACTION_WORD) != 0 {
        let text = format!(
            "bookmark {} counts freed space, or has redactions",
            bookmark.name
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}

fn split_bookmark(name: &str) -> Result<(&str, &str)> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::NameTooLong,
            format!("{name} is too long"),
        ));
    }
    let parts = name
        .split_once('#')
        .filter(|(_, last)| !last.is_empty() && !last.contains('/'));
    parts.ok_or_else(|| Error::invalid(format!("{name:?} is not a bookmark's name")))
}
