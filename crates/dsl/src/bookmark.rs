//! Bookmarks: the point in time of a snapshot, without its data.
//!
//! # What it is
//! A bookmark records a snapshot's guid and txg, so that an incremental send can start there after
//! the snapshot is gone. With feature `bookmark_written` it also records what the snapshot referenced and how much
//! of that was freed since, which [`bookmark_written`](crate::bookmark_written) keeps up. A redaction bookmark names
//! an object with the blocks that a redacted stream lacks.
//!
//! # On disk
//! The dataset's ZAP has `com.delphix:bookmarks` -> a ZAP of `zfs_bookmark_phys_t` by name. Records are cut after
//! their third word when the others are 0.
//!
//! # Source
//! OpenZFS module/zfs/dsl_bookmark.c @be7657e3

use std::sync::Arc;

use base::{
    Buf, Error, ErrorKind, Guid, ObjectId, Result, SPA_MINBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE, Txg,
};
use dmu::Tx;
use phys::dnode::slots_to_bonuslen;
use phys::dsl::DS_FLAG_CI_DATASET;
use phys::dsl::ZBM_FLAG_HAS_FBN;
use phys::pool_names::DS_FIELD_BOOKMARK_NAMES;
use phys::{DslBookmarkPhys, ObjectType, Phys};
use zerocopy::IntoBytes;

use crate::dataset::DslDataset;
use crate::names::NAME_BYTES_MAX;
use crate::pool::DslPool;
use crate::size::Space;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;
use phys::feature;

/// Bytes of a redaction list that fit in a bonus; longer ones are in a spill block, with feature
/// `redaction_list_spill`.
const LIST_IN_BONUS_BYTES: usize = slots_to_bonuslen(1);
/// A bonus of as many bytes leaves two block pointers to a dnode, above its spill pointer.
const BONUS_BESIDE_SPILL_BYTES: usize = 72;
/// Words of a redaction list before its snapshots: the last object and block (of a complete list: the largest numbers),
/// how many entries, how many snapshots.
const LIST_HEAD_WORDS: usize = 4;
/// Words of a bookmark without feature `bookmark_v2` (`BOOKMARK_PHYS_SIZE_V1`).
const WORDS_V1: usize = 3;
/// Words of a bookmark (`BOOKMARK_PHYS_SIZE_V2`).
const WORDS_MAX: usize = DslBookmarkPhys::SIZE / size_of::<u64>();

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
    pub(crate) phys: DslBookmarkPhys,
}

impl DslBookmark {
    fn from_phys(name: String, phys: DslBookmarkPhys) -> DslBookmark {
        DslBookmark {
            name,
            guid: Guid(phys.guid.get()),
            createtxg: Txg(phys.creation_txg.get()),
            creation: phys.creation_time.get(),
            phys,
        }
    }

    fn from_words(name: String, words: &[u64]) -> Result<DslBookmark> {
        if !(WORDS_V1..=WORDS_MAX).contains(&words.len()) {
            let text = format!("bookmark {name} has {} words", words.len());
            return Err(Error::corrupt(text));
        }
        let mut bytes = [0; DslBookmarkPhys::SIZE];
        for (at, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        Ok(DslBookmark::from_phys(name, DslBookmarkPhys::read(&bytes)?))
    }

    /// Its words as they are stored: as few as hold what is not 0.
    fn words(&self) -> Vec<u64> {
        let phys = &self.phys;
        let is_long = phys.ivset_guid.get() != 0
            || self.counts_freed()
            || self.redaction_object() != ObjectId(0);
        let count = if is_long { WORDS_MAX } else { WORDS_V1 };
        let words = phys.as_bytes().chunks_exact(size_of::<u64>()).take(count);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        words.collect()
    }

    /// zbm_redaction_obj: the object with the redaction list; 0 if there is none.
    #[must_use]
    pub fn redaction_object(&self) -> ObjectId {
        ObjectId(self.phys.redaction_obj.get())
    }

    /// zbm_ivset_guid: of an encrypted snapshot; 0 if it has none.
    #[must_use]
    pub fn ivset_guid(&self) -> u64 {
        self.phys.ivset_guid.get()
    }

    /// Whether it records sizes, and how much was freed since.
    pub(crate) fn counts_freed(&self) -> bool {
        self.phys.flags.get() & ZBM_FLAG_HAS_FBN != 0
    }

    /// What the snapshot referenced. `None` for a bookmark created without `bookmark_written`.
    #[must_use]
    pub fn referenced(&self) -> Option<Space> {
        let phys = &self.phys;
        let space = Space::stored(
            phys.referenced_bytes_refd.get(),
            phys.compressed_bytes_refd.get(),
            phys.uncompressed_bytes_refd.get(),
        );
        self.counts_freed().then_some(space)
    }
}

/// Whether the list of so many snapshots is in a spill block.
fn spills(snapshots: usize) -> bool {
    size_of::<u64>() * (LIST_HEAD_WORDS + snapshots) > LIST_IN_BONUS_BYTES
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

    /// The bookmarks of a head, oldest first.
    pub(crate) fn load_bookmarks(&self, head: &DslDataset) -> Result<Vec<DslBookmark>> {
        let Some(zap) = self.bookmarks_zap(head)? else {
            return Ok(Vec::new());
        };
        let entries = self.mos().zap_word_entries(zap)?.into_iter();
        let bookmarks = entries.map(|(name, words)| DslBookmark::from_words(name, &words));
        let mut bookmarks: Vec<_> = bookmarks.collect::<Result<_>>()?;
        bookmarks.sort_by(|a, b| (a.createtxg, &a.name).cmp(&(b.createtxg, &b.name)));
        Ok(bookmarks)
    }

    pub(crate) fn find_bookmark(&self, full: &str) -> Result<(Arc<DslDataset>, DslBookmark)> {
        let (head_name, name) = split_bookmark(full)?;
        let head = self.find_dataset(head_name)?;
        crate::create::expect_head(&head, head_name)?;
        let found = self.load_bookmarks(&head)?;
        let ignores_case = head.fields().has_flag(DS_FLAG_CI_DATASET);
        let is_it = |own: &str| match ignores_case {
            true => zap::are_alike(
                own.as_bytes(),
                name.as_bytes(),
                zap::Flags::TOUPPER,
                zap::Case::Ignored,
            ),
            false => own == name,
        };
        let found = found.into_iter().find(|found| is_it(&found.name));
        let missing = || Error::not_found(format!("there is no {full}"));
        Ok((head, found.ok_or_else(missing)?))
    }

    /// The bookmarks of a head, oldest first.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub fn bookmarks(&self, head: &DslDataset) -> Result<Vec<DslBookmark>> {
        let _config = self.config().read();
        self.load_bookmarks(head)
    }

    /// Creates the bookmark `pool/a#name` of the snapshot `pool/a@snap`, or a copy of the bookmark `pool/a#other`.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `InvalidInput`, `NameTooLong`; `Unsupported` without the feature.
    #[doc(alias = "dsl_bookmark_create")]
    pub fn create_bookmark(&self, bookmark: &str, source: &str) -> Result<()> {
        split_bookmark(bookmark)?;
        let names = (bookmark.to_string(), source.to_string());
        let (bookmark, source) = names.clone();
        let check = move |pool: &DslPool, _: &Tx| {
            pool.check_bookmark_source(&bookmark, &source)?;
            match pool.find_bookmark(&bookmark) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Verdict::Go),
                Err(error) => Err(error),
                Ok(_) => Err(Error::new(ErrorKind::Exists, format!("{bookmark} exists"))),
            }
        };
        let (bookmark, source) = names;
        self.sync_task(1, SpaceCheck::Normal, check, move |pool, tx| {
            let (head_name, name) = split_bookmark(&bookmark)?;
            let head = pool.find_dataset(head_name)?;
            if source.contains('#') {
                pool.copy_bookmark(&head, name, &source, tx)
            } else {
                pool.bookmark_snapshot(&head, name, &pool.find_dataset(&source)?, tx)
            }
        })
    }

    /// What is bookmarked must be an earlier point in the line of the head.
    fn check_bookmark_source(&self, bookmark: &str, source: &str) -> Result<()> {
        if !self.mos().env().feature_is_enabled(feature::BOOKMARKS) {
            let text = "the pool has no bookmarks";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let (head_name, _) = split_bookmark(bookmark)?;
        let head = self.find_dataset(head_name)?;
        crate::create::expect_head(&head, head_name)?;
        let is_before = if source.contains('#') {
            let (other, found) = self.find_bookmark(source)?;
            self.is_before(&head, &other, found.createtxg)?
        } else {
            let snap = self.find_dataset(source)?;
            self.check_redacted(&snap)?;
            snap.is_snapshot() && self.is_before(&head, &snap, snap.creation_txg())?
        };
        if !is_before {
            let text = format!("{source} is not an earlier snapshot of {head_name}");
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// The snapshots that a redacted one was redacted by must fit into a list.
    fn check_redacted(&self, snap: &DslDataset) -> Result<()> {
        let env = self.mos().env();
        let state = snap.state();
        let Some(by) = state.features.get(feature::REDACTED_DATASETS) else {
            return Ok(());
        };
        let needed = if spills(by.len()) {
            feature::REDACTION_LIST_SPILL
        } else {
            feature::REDACTION_BOOKMARKS
        };
        if !env.feature_is_enabled(needed) {
            let count = by.len();
            let text = format!("the snapshot was redacted by {count} snapshots");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(())
    }

    #[doc(alias = "dsl_bookmark_create_sync_impl_snap")]
    fn bookmark_snapshot(
        &self,
        head: &Arc<DslDataset>,
        name: &str,
        snap: &Arc<DslDataset>,
        tx: &Tx,
    ) -> Result<()> {
        let fields = snap.fields();
        let mut phys = DslBookmarkPhys::default();
        phys.guid.set(fields.guid);
        phys.creation_txg.set(fields.creation_txg);
        phys.creation_time.set(fields.creation_time);
        if self.mos().env().feature_is_enabled(feature::BOOKMARK_V2) {
            phys.ivset_guid.set(self.ivset_guid(snap)?.unwrap_or(0));
            let redacted = snap
                .state()
                .features
                .get(feature::REDACTED_DATASETS)
                .cloned();
            if let Some(snapshots) = redacted {
                phys.redaction_obj
                    .set(self.new_redaction_list(&snapshots, tx)?.0);
            }
        }
        self.start_counting(snap, &mut phys)?;
        let bookmark = DslBookmark::from_phys(name.to_owned(), phys);
        self.count_bookmark(&bookmark, tx)?;
        self.add_bookmark(head, &bookmark, tx)?;
        let message = format!(
            "name={name} creation_txg={} target_snap={} redact_obj={}",
            bookmark.createtxg,
            snap.object(),
            bookmark.redaction_object()
        );
        self.log(head, "bookmark", &message, tx)
    }

    /// A copy is an ordinary bookmark, whatever it is a copy of.
    #[doc(alias = "dsl_bookmark_create_sync_impl_book")]
    fn copy_bookmark(
        &self,
        head: &Arc<DslDataset>,
        name: &str,
        source: &str,
        tx: &Tx,
    ) -> Result<()> {
        let (other, mut bookmark) = self.find_bookmark(source)?;
        name.clone_into(&mut bookmark.name);
        bookmark.phys.redaction_obj.set(0);
        self.count_bookmark(&bookmark, tx)?;
        self.add_bookmark(head, &bookmark, tx)?;
        let message = format!(
            "name={name} creation_txg={} source_guid={}",
            bookmark.createtxg, bookmark.guid.0
        );
        self.log(&other, "bookmark", &message, tx)
    }

    #[doc(alias = "dsl_bookmark_node_add")]
    fn add_bookmark(&self, head: &DslDataset, bookmark: &DslBookmark, tx: &Tx) -> Result<()> {
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
        let words = bookmark.words();
        if words.len() > WORDS_V1 {
            self.mos().env().feature_incr(feature::BOOKMARK_V2, tx)?;
        }
        self.mos().zap_set_words(zap, &bookmark.name, &words, tx)
    }

    /// Stores what changed in a bookmark that counts freed bytes.
    pub(crate) fn update_bookmark(
        &self,
        head: &DslDataset,
        bookmark: &DslBookmark,
        tx: &Tx,
    ) -> Result<()> {
        let missing = || Error::corrupt(format!("bookmark {} is in no list", bookmark.name));
        let zap = self.bookmarks_zap(head)?.ok_or_else(missing)?;
        let words = bookmark.words();
        self.mos().zap_set_words(zap, &bookmark.name, &words, tx)
    }

    /// Features of a bookmark that exists from now on, beside that of its length.
    fn count_bookmark(&self, bookmark: &DslBookmark, tx: &Tx) -> Result<()> {
        if bookmark.counts_freed() {
            let env = self.mos().env();
            env.feature_incr(feature::BOOKMARK_WRITTEN, tx)?;
        }
        Ok(())
    }

    /// Destroys `pool/a#name`.
    ///
    /// # Errors
    /// `NotFound`.
    #[doc(alias = "dsl_bookmark_destroy")]
    pub fn destroy_bookmark(&self, bookmark: &str) -> Result<()> {
        split_bookmark(bookmark)?;
        let (checked, bookmark) = (bookmark.to_string(), bookmark.to_string());
        let check = move |pool: &DslPool, _: &Tx| {
            pool.find_bookmark(&checked)?;
            Ok(Verdict::Go)
        };
        self.sync_task(0, SpaceCheck::ExtraReserved, check, move |pool, tx| {
            let (head, found) = pool.find_bookmark(&bookmark)?;
            pool.take_bookmark(&head, &found, tx)?;
            pool.release_bookmark(&found, tx)?;
            pool.remove_bookmark_key(&head, &found, tx)?;
            let message = format!("name={}", found.name);
            pool.log(&head, "remove bookmark", &message, tx)
        })
    }

    /// Takes a bookmark out of a head's list, and nothing else.
    fn take_bookmark(&self, head: &DslDataset, bookmark: &DslBookmark, tx: &Tx) -> Result<()> {
        let name = &bookmark.name;
        let missing = || Error::not_found(format!("no bookmark {name}"));
        let zap = self.bookmarks_zap(head)?.ok_or_else(missing)?;
        let words = self.mos().zap_get_words(zap, name)?;
        if words.is_some_and(|words| words.len() > WORDS_V1) {
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

    /// Frees what belongs to a bookmark that is gone.
    fn release_bookmark(&self, bookmark: &DslBookmark, tx: &Tx) -> Result<()> {
        let env = self.mos().env();
        if bookmark.counts_freed() {
            env.feature_decr(feature::BOOKMARK_WRITTEN, tx)?;
        }
        let list = bookmark.redaction_object();
        if list == ObjectId(0) {
            return Ok(());
        }
        if self.mos().hold(list)?.has_spill() {
            env.feature_decr(feature::REDACTION_LIST_SPILL, tx)?;
        }
        self.mos().free_object(list, tx)?;
        env.feature_decr(feature::REDACTION_BOOKMARKS, tx)
    }

    /// The list of a bookmark of a redacted snapshot: the snapshots that it was redacted by, and no blocks.
    fn new_redaction_list(&self, snapshots: &[u64], tx: &Tx) -> Result<ObjectId> {
        let mut words = vec![u64::MAX, u64::MAX, 0, snapshots.len() as u64];
        words.extend(snapshots);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (mos, env) = (self.mos(), self.mos().env());
        let type_ = ObjectType::N_UINT64_METADATA;
        let new = |bonus_len| mos.alloc(type_, SPA_OLD_MAXBLOCKSIZE, type_, bonus_len, tx);
        env.feature_incr(feature::REDACTION_BOOKMARKS, tx)?;
        if !spills(snapshots.len()) {
            let list = new(bytes.len())?;
            mos.hold(list)?.set_bonus(tx, &bytes)?;
            return Ok(list);
        }
        env.feature_incr(feature::REDACTION_LIST_SPILL, tx)?;
        let list = new(BONUS_BESIDE_SPILL_BYTES)?;
        let dnode = mos.hold(list)?;
        dnode.set_bonus(tx, &[])?;
        bytes.resize(bytes.len().next_multiple_of(SPA_MINBLOCKSIZE as usize), 0);
        dnode.set_spill(tx, Buf::copy_of(&bytes))?;
        Ok(list)
    }

    /// Destroys all bookmarks of a head that is being destroyed. Its deadlist, and the keys that they kept there,
    /// are gone.
    pub(crate) fn destroy_bookmarks(&self, head: &DslDataset, tx: &Tx) -> Result<()> {
        for bookmark in self.load_bookmarks(head)? {
            self.take_bookmark(head, &bookmark, tx)?;
            self.release_bookmark(&bookmark, tx)?;
        }
        Ok(())
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
                self.take_bookmark(from, &bookmark, tx)?;
                self.add_bookmark(to, &bookmark, tx)?;
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
