//! Reading and writing labels, which are at both ends of every device.
//!
//! # What it is
//! Four copies of the device's config, each with a ring of uberblocks; the layout is in [`phys::label`].
//! Each copy is read on its own: [`Labels`] keeps what was found and what was wrong, for `zdb -l` and
//! for import alike.
//!
//! # Invariants
//! 1. A label's nvlist and each uberblock carry a checksum that includes their offset on the device: a
//!    copy at another offset is not valid.
//! 2. A valid uberblock in slot `n` says nothing about its neighbours: each slot stands on its own.
//!
//! # Crash argument
//! See [`crate::VdevTree::sync_labels`].
//!
//! # Source
//! OpenZFS `module/zfs/vdev_label.c`, `cmd/zdb/zdb.c` (`dump_label`),
//! `lib/libzfs/libzfs_import.c` (`zpool_clear_label`).

use std::collections::BTreeSet;

use base::{BlockBuf, Error, ErrorKind, Guid, Result, Txg};
use checksum::embedded;
use geom::Provider;
use nvpair::NvList;
use phys::label::{
    BOOT_ENV_OFFSET, LABEL_SIZE, LABEL_START_SIZE, LABELS, MMP_BLOCKS_PER_LABEL, NVLIST_MAX,
    NVLIST_OFFSET, NVLIST_SIZE, PAD_SIZE, UBERBLOCK_RING_OFFSET, UBERBLOCK_RING_SIZE, label_offset,
    uberblock_count, uberblock_offset, uberblock_shift, uberblock_size,
};
use phys::uberblock::{MAX_UBERBLOCK_SHIFT, UBERBLOCK_SHIFT, UberblockPhys};
use phys::{ChecksumType, Phys};
use zio::Priority;

use crate::{Leaf, PoolState};

/// `sizeof (l2arc_dev_hdr_phys_t)`: the header of a cache device, right behind the boot area.
const L2ARC_HEADER_BYTES: usize = 512 << 3;

/// A valid uberblock and where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSlot {
    /// The slot's number in the ring.
    pub slot: u64,
    /// The uberblock.
    pub uberblock: UberblockPhys,
}

/// One label, as far as it could be read.
#[derive(Debug)]
pub struct Label {
    /// 0 to 3.
    pub index: usize,
    /// Where it begins on the device.
    pub offset: u64,
    /// The config, whether or not its checksum is right.
    pub config: Result<NvList>,
    /// Whether the checksum of the config is right.
    pub checksum: Result<()>,
    /// The valid uberblocks, by slot.
    pub ring: Vec<RingSlot>,
}

impl Label {
    /// The config if it is to be trusted.
    #[must_use]
    pub fn valid_config(&self) -> Option<&NvList> {
        self.config.as_ref().ok().filter(|_| self.checksum.is_ok())
    }
}

/// The labels of one device; an error for each that could not even be read.
#[derive(Debug)]
pub struct Labels(pub Vec<Result<Label>>);

impl Labels {
    /// Reads all labels of a device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the device is too small to have labels. Everything else is
    /// in the labels.
    pub fn read(provider: &dyn Provider) -> Result<Labels> {
        let size = provider.mediasize();
        if label_offset(size, 0).is_none() {
            let context = format!("{}: {size} bytes have no room for labels", provider.name());
            return Err(Error::invalid(context));
        }
        let blocks: Vec<_> = (0..LABELS)
            .map(|index| read_block(provider, index))
            .collect();
        // A label whose config is lost still has its ring: the others say how large its slots are.
        let mut ashift = None;
        let mut labels: Vec<_> = blocks
            .into_iter()
            .map(|block| {
                block.map(|(block, mut label)| {
                    parse_config(&block, &mut label);
                    ashift = ashift.or_else(|| ashift_of(label.valid_config()?));
                    (block, label)
                })
            })
            .collect();
        for (block, label) in labels.iter_mut().flatten() {
            let own = label.valid_config().and_then(ashift_of);
            parse_ring(block, label, own.or(ashift));
        }
        Ok(Labels(
            labels
                .into_iter()
                .map(|label| label.map(|(_, label)| label))
                .collect(),
        ))
    }

    /// The labels that could be read.
    pub fn readable(&self) -> impl Iterator<Item = &Label> {
        self.0.iter().filter_map(|label| label.as_ref().ok())
    }

    /// The guids of the pool that the device belongs to: two if the power failed while the pool got another
    /// one.
    pub(crate) fn pools(&self) -> BTreeSet<Guid> {
        let configs = self.of_first_owner().filter_map(Label::valid_config);
        let guids = configs.filter_map(|config| config.get_u64("pool_guid"));
        guids.map(Guid).collect()
    }

    /// No longer trusts the configs of this pool; their uberblocks stay.
    pub(crate) fn forget_pool(&mut self, pool: Guid) {
        for label in self.0.iter_mut().flatten() {
            let owner = label
                .valid_config()
                .and_then(|config| config.get_u64("pool_guid"));
            if owner == Some(pool.0) {
                label.config = Err(Error::corrupt(
                    "a label of a split that was not the end of it",
                ));
            }
        }
    }

    /// The labels of the same pool as the first valid one, or of the same device of a pool that got another
    /// guid, and those that are damaged. Where a device has grown, there may be labels of another pool at its
    /// new end.
    #[doc(alias = "zpool_read_label")]
    fn of_first_owner(&self) -> impl Iterator<Item = &Label> {
        let owner = |config: &NvList| (config.get_u64("pool_guid"), config.get_u64("guid"));
        let is_same = |a: (Option<u64>, Option<u64>), b: (Option<u64>, Option<u64>)| {
            a.1 == b.1 || a.0.is_some() && a.0 == b.0
        };
        let first = self.readable().find_map(Label::valid_config);
        let first = first.map(owner);
        self.readable().filter(move |label| {
            let own = label.valid_config().map(owner);
            own.zip(first)
                .is_none_or(|(own, first)| is_same(own, first))
        })
    }

    /// The valid config with the highest txg, at most `max_txg`. Configs without a txg (spares and
    /// caches), or with 0 (not in a pool yet), count as soon as they are met.
    #[must_use]
    #[doc(alias = "vdev_label_read_config")]
    pub fn best_config(&self, max_txg: Txg) -> Option<&NvList> {
        let mut best: Option<(&NvList, u64)> = None;
        for config in self.of_first_owner().filter_map(Label::valid_config) {
            match config.get_u64("txg").unwrap_or(0) {
                0 if best.is_none() => return Some(config),
                txg if txg <= max_txg.0 && best.is_none_or(|(_, have)| txg > have) => {
                    best = Some((config, txg));
                }
                _ => {}
            }
        }
        best.map(|(config, _)| config)
    }

    /// The best uberblock up to `max_txg`: highest txg, then time, then multihost sequence.
    #[must_use]
    #[doc(alias = "vdev_uberblock_load")]
    pub fn best_uberblock(&self, max_txg: Txg) -> Option<UberblockPhys> {
        self.uberblocks()
            .filter(|ub| ub.txg() <= max_txg)
            .max_by_key(UberblockPhys::rank)
    }

    /// The valid uberblocks.
    pub fn uberblocks(&self) -> impl Iterator<Item = UberblockPhys> {
        let labels = self.of_first_owner();
        labels
            .flat_map(|label| &label.ring)
            .map(|slot| slot.uberblock)
    }

    /// Whether labels 0 and 1 are of this device, and labels 2 and 3, where they belong on a device of this
    /// size, are not: it has grown.
    #[must_use]
    pub(crate) fn lacks_end(&self, guid: Guid) -> bool {
        let is_own = |label: &Label| {
            let config = label.valid_config();
            config.and_then(|config| config.get_u64("guid")) == Some(guid.0)
        };
        let own: Vec<usize> = self
            .readable()
            .filter(|label| is_own(label))
            .map(|label| label.index)
            .collect();
        own == [0, 1] && self.readable().count() == LABELS
    }

    /// How many labels have the same device guid as this config.
    #[must_use]
    pub fn agreeing(&self, config: &NvList) -> usize {
        let guid = config.get_u64("guid");
        let valid = self.readable().filter_map(Label::valid_config);
        valid.filter(|other| other.get_u64("guid") == guid).count()
    }
}

/// What a device belongs to, according to its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// What the labels say of the pool.
    pub state: PoolState,
    /// The pool's name; empty for spares and caches.
    pub pool: String,
    /// The pool's guid; 0 for spares and caches.
    pub pool_guid: Guid,
    /// The device's guid.
    pub guid: Guid,
    /// Whether it is a hot spare in use by that pool.
    pub is_spare: bool,
}

/// The guid of a device, according to its labels.
#[must_use]
pub fn guid(provider: &dyn Provider) -> Option<Guid> {
    let labels = Labels::read(provider).ok()?;
    let config = labels.best_config(Txg(u64::MAX))?;
    config.get_u64("guid").map(Guid)
}

/// What a device belongs to, if anything: a device of an active pool should not be overwritten. One
/// whose labels cannot be read belongs to nothing: for example a new encrypted provider, whose sectors
/// do not authenticate before they are written.
#[must_use]
#[doc(alias = "vdev_inuse")]
pub fn owner(provider: &dyn Provider) -> Option<Owner> {
    let labels = Labels::read(provider).ok()?;
    let config = labels.best_config(Txg(u64::MAX))?;
    let state = config.get_u64("state").and_then(PoolState::from_raw);
    let (state, guid) = state.zip(config.get_u64("guid"))?;
    let is_aux = matches!(state, PoolState::Spare | PoolState::L2Cache);
    if !is_aux && config.get_u64("txg").unwrap_or(0) == 0 {
        return None;
    }
    Some(Owner {
        state,
        pool: config.get_str("name").unwrap_or_default().to_owned(),
        pool_guid: Guid(config.get_u64("pool_guid").unwrap_or(0)),
        guid: Guid(guid),
        is_spare: config.get_u64("is_spare").unwrap_or(0) != 0,
    })
}

fn read_block(provider: &dyn Provider, index: usize) -> Result<(BlockBuf, Label)> {
    let offset = label_offset(provider.mediasize(), index).expect("checked by the caller");
    let mut block = BlockBuf::scratch(LABEL_SIZE as usize);
    provider.read(offset, &mut block)?;
    let label = Label {
        index,
        offset,
        config: Err(Error::corrupt("not looked at yet")),
        checksum: Ok(()),
        ring: Vec::new(),
    };
    Ok((block, label))
}

fn parse_config(block: &[u8], label: &mut Label) {
    let start = NVLIST_OFFSET as usize;
    let part = &block[start..start + NVLIST_SIZE as usize];
    label.config = nvpair::decode(&part[..NVLIST_MAX as usize]);
    label.checksum = verify_at(label.offset + NVLIST_OFFSET, part);
}

fn verify_at(offset: u64, bytes: &[u8]) -> Result<()> {
    embedded::verify(
        ChecksumType::Label,
        &embedded::label_verifier(offset),
        bytes,
    )
}

fn seal_at(offset: u64, bytes: &mut [u8]) {
    embedded::set(
        ChecksumType::Label,
        &embedded::label_verifier(offset),
        bytes,
    );
}

fn ashift_of(config: &NvList) -> Option<u32> {
    let ashift = config.get_list("vdev_tree")?.get_u64("ashift")?;
    u32::try_from(ashift)
        .ok()
        .filter(|ashift| *ashift < u64::BITS)
}

/// Finds the valid uberblocks of a ring; without an ashift, slots of every size are tried.
fn parse_ring(block: &[u8], label: &mut Label, ashift: Option<u32>) {
    let shifts = match ashift {
        Some(ashift) => uberblock_shift(ashift)..=uberblock_shift(ashift),
        None => UBERBLOCK_SHIFT..=MAX_UBERBLOCK_SHIFT,
    };
    for ashift in shifts {
        for slot in 0..uberblock_count(ashift) {
            let at = uberblock_offset(ashift, slot);
            let bytes = &block[at as usize..(at + uberblock_size(ashift)) as usize];
            let Ok(uberblock) = UberblockPhys::parse(bytes) else {
                continue;
            };
            if verify_at(label.offset + at, bytes).is_ok() {
                label.ring.push(RingSlot { slot, uberblock });
            }
        }
        if !label.ring.is_empty() {
            return;
        }
    }
}

/// Makes a device forget which pool it belonged to: configs and uberblocks become zeros in all
/// labels that hold a config. The first 16 KiB of each label stay as they are.
///
/// # Errors
/// [`ErrorKind::NotFound`] if no label holds a config; otherwise the errors of writing.
#[doc(alias = "zpool_clear_label")]
pub fn clear(provider: &dyn Provider) -> Result<()> {
    let labels = Labels::read(provider)?;
    let (mut cleared, mut is_cache) = (0, false);
    let zeros = BlockBuf::zeroed((LABEL_SIZE - 2 * PAD_SIZE) as usize);
    for label in labels.readable() {
        let Ok(config) = &label.config else { continue };
        let state = config.get_u64("state").and_then(PoolState::from_raw);
        let Some(state) = state.filter(|_| config.get_u64("guid").unwrap_or(0) != 0) else {
            continue;
        };
        is_cache |= state == PoolState::L2Cache;
        provider.write(label.offset + 2 * PAD_SIZE, &zeros)?;
        cleared += 1;
    }
    if cleared == 0 {
        return Err(Error::not_found(format!(
            "{}: no label to clear",
            provider.name()
        )));
    }
    if is_cache {
        provider.write(LABEL_START_SIZE, &zeros[..L2ARC_HEADER_BYTES])?;
    }
    provider.flush()
}

/// The nvlist part of a label, without its checksum, which depends on the offset.
pub(crate) fn pack_config(config: &NvList) -> Result<BlockBuf> {
    let bytes = nvpair::encode_xdr(config);
    if bytes.len() as u64 > NVLIST_MAX {
        let context = format!("a label of {} bytes, {NVLIST_MAX} fit", bytes.len());
        return Err(Error::new(ErrorKind::NameTooLong, context));
    }
    let mut block = BlockBuf::zeroed(NVLIST_SIZE as usize);
    block[..bytes.len()].copy_from_slice(&bytes);
    Ok(block)
}

/// Writes a packed config into one label of a leaf.
pub(crate) fn write_config(leaf: &Leaf, index: usize, packed: &mut BlockBuf) -> Result<()> {
    let offset = place(leaf, index)? + NVLIST_OFFSET;
    seal_at(offset, packed);
    leaf.write(Priority::SyncWrite, offset, &[packed])
}

/// Writes an uberblock into its slot in one label of a leaf. With multihost, the last slot is
/// reserved. `is_update`: into the slot before, beside the one of the same txg that it is newer than.
pub(crate) fn write_uberblock(
    leaf: &Leaf,
    index: usize,
    ashift: u32,
    uberblock: &UberblockPhys,
    (is_update, multihost): (bool, bool),
) -> Result<()> {
    let slots = uberblock_count(ashift) - if multihost { MMP_BLOCKS_PER_LABEL } else { 0 };
    let slot = uberblock.txg().0.saturating_sub(is_update.into()) % slots;
    write_slot(leaf, index, ashift, slot, uberblock)
}

fn write_slot(
    leaf: &Leaf,
    index: usize,
    ashift: u32,
    slot: u64,
    uberblock: &UberblockPhys,
) -> Result<()> {
    let offset = place(leaf, index)? + uberblock_offset(ashift, slot);
    let mut block = BlockBuf::zeroed(uberblock_size(ashift) as usize);
    uberblock.write(&mut block);
    seal_at(offset, &mut block);
    leaf.write(Priority::SyncWrite, offset, &[&block])
}

/// Writes an uberblock into the slot of one label that is reserved for the heartbeat.
#[doc(alias = "mmp_write_uberblock")]
pub(crate) fn write_heartbeat(
    leaf: &Leaf,
    index: usize,
    ashift: u32,
    uberblock: &UberblockPhys,
) -> Result<()> {
    write_slot(leaf, index, ashift, uberblock_count(ashift) - 1, uberblock)
}

/// Writes labels 2 and 3 of a device whose end is not where it was when `labels` were written: with the
/// uberblocks of label 0 or 1, but without a config until the next config sync.
#[doc(alias = "vdev_copy_uberblocks")]
pub(crate) fn renew_end(leaf: &Leaf, labels: &Labels, ashift: u32) -> Result<()> {
    let ring = labels.readable().find(|label| !label.ring.is_empty());
    let slots = ring.into_iter().flat_map(|label| &label.ring);
    // A ring without a config may have been read with slots of another size.
    let slots = slots.filter(|slot| slot.slot < uberblock_count(ashift));
    for index in LABELS / 2..LABELS {
        write_blank(leaf, index)?;
        for slot in slots.clone() {
            // The same slot: with multihost, the number of slots that txgs share is smaller.
            write_slot(leaf, index, ashift, slot.slot, &slot.uberblock)?;
        }
    }
    leaf.flush()
}

/// Empties one label of a leaf: no config, no uberblock, an empty boot environment.
pub(crate) fn write_blank(leaf: &Leaf, index: usize) -> Result<()> {
    write_whole(leaf, index, &BlockBuf::zeroed(NVLIST_SIZE as usize))
}

/// Writes one label of a leaf that belongs to no one pool: a packed config, no uberblock, an empty boot
/// environment.
pub(crate) fn write_aux(leaf: &Leaf, index: usize, packed: &mut BlockBuf) -> Result<()> {
    seal_at(place(leaf, index)? + NVLIST_OFFSET, packed);
    write_whole(leaf, index, packed)
}

fn write_whole(leaf: &Leaf, index: usize, config: &[u8]) -> Result<()> {
    let label = place(leaf, index)?;
    let mut boot_env = BlockBuf::zeroed(PAD_SIZE as usize);
    seal_at(label + BOOT_ENV_OFFSET, &mut boot_env);
    let ring = BlockBuf::zeroed(UBERBLOCK_RING_SIZE as usize);
    const _: () = assert!(NVLIST_OFFSET + NVLIST_SIZE == UBERBLOCK_RING_OFFSET);
    leaf.write(
        Priority::SyncWrite,
        label + BOOT_ENV_OFFSET,
        &[&boot_env, config, &ring],
    )
}

fn place(leaf: &Leaf, index: usize) -> Result<u64> {
    label_offset(leaf.psize(), index).ok_or_else(|| Error::new(ErrorKind::Io, "device is closed"))
}
