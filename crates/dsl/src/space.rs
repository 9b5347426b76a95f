//! Space used by each directory, and space left.
//!
//! # What it is
//! Every block that is born or dies changes the account of its directory and of all its ancestors,
//! split by kind ([`Used`]). A reservation is charged to the parent in advance, so changes of usage
//! within a reservation do not reach the parent.
//!
//! # Source
//! OpenZFS module/zfs/dsl_dir.c (`dsl_dir_diduse_space`, `dsl_dir_space_available`,
//! `dsl_dir_tempreserve_impl`), module/zfs/dsl_pool.c (`dsl_pool_adjustedsize`),
//! module/zfs/spa_misc.c (`spa_get_slop_space`) @be7657e3

use std::sync::Arc;

use base::{Error, ErrorKind, Result, Txg};
use dmu::Tx;

use crate::dataset::DslDataset;
use crate::dir::{DirState, DslDir, Used};
use crate::fields::DirFields;
use crate::pool::DslPool;
use crate::size::Space;

/// `spa_slop_shift`: the pool keeps 1/32 of its space for itself, ...
const SLOP_SHIFT: u32 = 5;
/// `spa_min_slop`: ... at least this much, if that is not more than half of the pool, ...
const SLOP_MIN_BYTES: u64 = 128 << 20;
/// `spa_max_slop`: ... and at most this much.
const SLOP_MAX_BYTES: u64 = 128 << 30;
/// Used bytes plus in-flight estimates may exceed a quota by this fraction (1/32), as long as the
/// used bytes do not reach it.
const QUOTA_SLACK_SHIFT: u32 = 5;

/// How many times a transaction waits for a txg to sync, hoping for space.
const SPACE_ATTEMPTS: u32 = 4;

/// Whether a transaction may proceed.
enum Room {
    Enough,
    /// Ask again when the open txg is synced.
    Later,
}

/// `zfs_space_check_t`: how much of the pool's slop space an operation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zfs_space_check_t")]
pub enum SpaceCheck {
    /// None of it: writes, new datasets.
    Normal,
    /// Half of it: operations that mostly free space, or should fail only if they must.
    Reserved,
    /// Three quarters of it: setting a quota, destroying.
    ExtraReserved,
    /// All of it.
    None,
}

/// `spa_get_slop_space`: bytes that a pool of `space` bytes keeps for itself, beside `embedded_log` bytes that it has
/// set aside for log blocks: these count as half of it, at most.
#[must_use]
#[doc(alias = "spa_get_slop_space")]
pub fn slop_space(space: u64, embedded_log: u64) -> u64 {
    let slop = (space >> SLOP_SHIFT).min(SLOP_MAX_BYTES);
    let slop = slop - embedded_log.min(slop >> 1);
    slop.max((space >> 1).min(SLOP_MIN_BYTES))
}

/// Accounts. In syncing context.
impl DslPool {
    /// Charges `change` to a directory as `kind`, and to those above it.
    #[doc(alias = "dsl_dir_diduse_space")]
    pub(crate) fn diduse_space(&self, dd: &Arc<DslDir>, kind: Used, change: Space) {
        let charged = {
            let mut state = dd.state();
            let charged = state.parent_delta(state.fields.used_bytes, change.used);
            state.fields.add(change);
            state.fields.add_kind(kind, change.used);
            charged
        };
        self.dirty_dir(dd);
        if let Some(parent) = dd.parent() {
            let up = Space {
                used: charged,
                ..change
            };
            self.diduse_transfer(&parent, up, change.used, Used::ChildRsrv, Used::Child);
        }
    }

    /// Charges `change` to a directory: `tonew` bytes as `new`; the part of them that `change.used`
    /// does not cover was charged as `old` before, and moves.
    #[doc(alias = "dsl_dir_diduse_transfer_space")]
    pub(crate) fn diduse_transfer(
        &self,
        dd: &Arc<DslDir>,
        change: Space,
        tonew: i64,
        old: Used,
        new: Used,
    ) {
        let mut at = Some((dd.clone(), change, tonew, old, new));
        while let Some((dd, change, tonew, old, new)) = at {
            let charged = {
                let mut state = dd.state();
                let charged = state.parent_delta(state.fields.used_bytes, change.used);
                state.fields.add(change);
                state.fields.add_kind(old, change.used.wrapping_sub(tonew));
                state.fields.add_kind(new, tonew);
                charged
            };
            self.dirty_dir(&dd);
            let up = Space {
                used: charged,
                ..change
            };
            at = dd
                .parent()
                .map(|dd| (dd, up, change.used, Used::ChildRsrv, Used::Child));
        }
    }

    /// Moves `bytes` of a directory's account from one kind to another.
    #[doc(alias = "dsl_dir_transfer_space")]
    pub(crate) fn transfer_space(&self, dd: &Arc<DslDir>, bytes: i64, from: Used, to: Used) {
        if bytes == 0 {
            return;
        }
        {
            let mut state = dd.state();
            state.fields.add_kind(from, bytes.wrapping_neg());
            state.fields.add_kind(to, bytes);
        }
        self.dirty_dir(dd);
    }
}

/// Available space.
impl DslPool {
    /// `dsl_pool_adjustedsize`: the bytes that all datasets together may use.
    #[must_use]
    #[doc(alias = "dsl_pool_adjustedsize")]
    pub(crate) fn adjusted_size(&self, check: SpaceCheck) -> u64 {
        let env = self.mos().env();
        let dspace = env.dspace();
        let slop = slop_space(dspace, env.embedded_log());
        let kept = match check {
            SpaceCheck::Normal => slop,
            SpaceCheck::Reserved => slop >> 1,
            SpaceCheck::ExtraReserved => slop >> 2,
            SpaceCheck::None => 0,
        };
        dspace.saturating_sub(env.held_back()).saturating_sub(kept)
    }

    /// [`adjusted_size`](DslPool::adjusted_size) less what cannot be allocated yet.
    #[doc(alias = "dsl_pool_unreserved_space")]
    pub(crate) fn unreserved_space(&self, check: SpaceCheck) -> u64 {
        self.adjusted_size(check)
            .saturating_sub(self.mos().env().deferred())
    }

    /// Whether a log block of so many bytes may be where data goes. Log blocks and unsynced changes share what is not
    /// in use, and half of the slop stays for what a sync writes beside data: a txg that finds no space would suspend
    /// the pool.
    pub(crate) fn has_log_room(&self, bytes: u64) -> bool {
        let root = self.root_dir();
        let state = root.state();
        let taken = state.fields.used_bytes.saturating_add(state.in_flight());
        drop(state);
        taken.saturating_add(bytes) <= self.unreserved_space(SpaceCheck::Reserved)
    }

    /// Whether all that even destroys may use is in use.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let used = self.root_dir().fields().used_bytes;
        self.unreserved_space(SpaceCheck::ExtraReserved) <= used
    }

    /// Bytes that a directory could still use if the given ancestor first got the given bytes back.
    /// `on_disk_only` ignores what transactions in flight may add.
    #[must_use]
    #[doc(alias = "dsl_dir_space_available")]
    pub(crate) fn space_available(
        &self,
        dd: &Arc<DslDir>,
        ancestor: Option<(&Arc<DslDir>, u64)>,
        on_disk_only: bool,
    ) -> u64 {
        let mut lineage: Vec<Arc<DslDir>> = dd.lineage().collect();
        lineage.reverse();
        let mut parent_space: Option<u64> = None;
        for dd in lineage {
            let state = dd.state();
            let mut used = state.fields.used_bytes;
            if !on_disk_only {
                used = used.saturating_add(state.in_flight());
            }
            let mut quota = Some(state.fields.quota).filter(|quota| *quota != 0);
            if state.parent.is_none() {
                let size = self.adjusted_size(SpaceCheck::Normal);
                quota = Some(quota.map_or(size, |quota| quota.min(size)));
            }
            let mut space = parent_space;
            if let Some(space) = &mut space {
                *space = space.saturating_add(state.fields.reserved.saturating_sub(used));
            }
            if let Some((_, back)) = ancestor.filter(|(ancestor, _)| Arc::ptr_eq(ancestor, &dd)) {
                used = used.saturating_sub(back);
                space = space.map(|space| space.saturating_add(back));
            }
            parent_space = Some(match quota {
                None => space.expect("the root has a quota: the pool"),
                Some(quota) => space.unwrap_or(u64::MAX).min(quota.saturating_sub(used)),
            });
        }
        parent_space.expect("a directory has a lineage")
    }

    /// Asks whether a transaction may add `bytes` to a head; `frees` if it frees more than it adds,
    /// which is allowed over quota and in an almost full pool. Waits for the open txg to sync when
    /// only in-flight writes stand in the way: the caller must not hold a transaction.
    ///
    /// # Errors
    /// `Quota` or `NoSpace`; `Suspended`.
    #[doc(alias = "dsl_dir_tempreserve_space")]
    pub fn check_space(&self, ds: &Arc<DslDataset>, bytes: u64, frees: bool) -> Result<()> {
        for _ in 0..SPACE_ATTEMPTS {
            match self.try_space(ds, bytes, frees) {
                Ok(Room::Enough) => return Ok(()),
                Err(error) => {
                    self.groups().check_running()?;
                    return Err(error);
                }
                Ok(Room::Later) => {
                    self.groups().sync_all()?;
                }
            }
        }
        Err(Error::new(
            ErrorKind::NoSpace,
            format!("pool {} is all but full", self.name()),
        ))
    }

    /// Sets `bytes` aside for a transaction of `txg`, which is held, unless a limit is in the way: then
    /// [`check_space`](DslPool::check_space) tells what it is, or waits for it to go away. Threads that ask at the
    /// same moment exceed a limit by at most what they ask for.
    pub fn reserve_space(&self, ds: &Arc<DslDataset>, txg: Txg, bytes: u64) -> bool {
        let has_room = matches!(self.try_space(ds, bytes, false), Ok(Room::Enough));
        if has_room {
            self.will_use_space(ds, txg, bytes);
        }
        has_room
    }

    /// Checks once, without waiting.
    #[doc(alias = "dsl_dir_tempreserve_impl")]
    fn try_space(&self, ds: &Arc<DslDataset>, bytes: u64, frees: bool) -> Result<Room> {
        let mut asked = bytes;
        let mut first = Some(ds.limits());
        let mut next = Some(ds.dir()).filter(|_| bytes > 0);
        while let Some(dd) = next {
            let state = dd.state();
            let in_flight = state.in_flight();
            let mut used = state.fields.used_bytes;
            let mut prepaid = 0;
            let is_first = first.is_some();
            if let Some(head) = first.take() {
                let unused = head.reserved.saturating_sub(head.unique);
                used = used.saturating_sub(unused);
                prepaid = unused.saturating_sub(in_flight).min(asked);
                if !frees && head.quota != 0 && head.referenced + in_flight >= head.quota {
                    if in_flight > 0 || head.referenced < head.quota {
                        return Ok(Room::Later);
                    }
                    return Err(over_quota(&dd, "refquota", head.quota));
                }
            }
            let (quota, kind) = self.limit_of(&state, is_first, frees);
            let slack = if quota == u64::MAX {
                0
            } else {
                quota >> QUOTA_SLACK_SHIFT
            };
            if used >= quota {
                drop(state);
                return match kind {
                    ErrorKind::Quota => Err(over_quota(&dd, "quota", quota)),
                    _ if used - quota < self.mos().env().deferred() => Ok(Room::Later),
                    _ => Err(Error::new(kind, format!("pool {} is full", self.name()))),
                };
            }
            if used.saturating_add(in_flight) >= quota.saturating_add(slack) {
                return Ok(Room::Later);
            }
            let after = (asked - prepaid).cast_signed();
            let charged = state.parent_delta(used + in_flight, after);
            next = state.parent.clone().filter(|_| charged > 0);
            asked = u64::try_from(charged).unwrap_or(0);
        }
        Ok(Room::Enough)
    }

    /// The bytes that a directory may use, and the error kind when they are exceeded.
    fn limit_of(&self, state: &DirState, is_first: bool, frees: bool) -> (u64, ErrorKind) {
        let mut quota = u64::MAX;
        if !frees && state.fields.quota != 0 && (is_first || state.fields.head_dataset_obj != 0) {
            quota = state.fields.quota;
        }
        if state.parent.is_none() {
            let check = if frees {
                SpaceCheck::Reserved
            } else {
                SpaceCheck::Normal
            };
            let size = self.unreserved_space(check);
            if size < quota {
                return (size, ErrorKind::NoSpace);
            }
        }
        (quota, ErrorKind::Quota)
    }

    /// Records that transactions of `txg` may add `bytes` to a head; dropped when that txg is
    /// synced.
    #[doc(alias = "dsl_dir_willuse_space")]
    fn will_use_space(&self, ds: &Arc<DslDataset>, txg: Txg, bytes: u64) {
        let mut bytes = bytes.cast_signed();
        let mut next = Some(ds.dir());
        while let Some(dd) = next.filter(|_| bytes > 0) {
            let mut state = dd.state();
            let is_noted = state.in_flight.contains_key(&txg);
            *state.in_flight.entry(txg).or_default() += bytes.cast_unsigned();
            let used = state.in_flight() + state.fields.used_bytes;
            bytes = state.parent_delta(used, bytes);
            next = state.parent.clone();
            drop(state);
            if !is_noted {
                self.note_in_flight(&dd, txg);
            }
        }
    }
}

fn over_quota(dd: &Arc<DslDir>, which: &str, quota: u64) -> Error {
    Error::new(
        ErrorKind::Quota,
        format!(
            "directory {}: {which} of {quota} bytes reached",
            dd.object()
        ),
    )
}

/// Quotas and reservations of directories. In syncing context.
impl DslPool {
    /// Checks a new quota.
    ///
    /// # Errors
    /// `NoSpace` when more is already used or reserved.
    #[doc(alias = "dsl_dir_set_quota_check")]
    pub(crate) fn quota_check(&self, dd: &Arc<DslDir>, quota: u64) -> Result<()> {
        let state = dd.state();
        let least = state
            .fields
            .reserved
            .max(state.fields.used_bytes + state.in_flight());
        if quota != 0 && quota < least {
            let text = format!("quota of {quota} bytes, but {least} are used or reserved");
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(())
    }

    /// Checks a new reservation.
    ///
    /// # Errors
    /// `NoSpace` when there is not that much left.
    #[doc(alias = "dsl_dir_set_reservation_check")]
    pub(crate) fn reservation_check(&self, dd: &Arc<DslDir>, reserved: u64) -> Result<()> {
        let DirFields {
            used_bytes,
            reserved: before,
            quota,
            ..
        } = dd.fields();
        let available = match dd.parent() {
            Some(parent) => self.space_available(&parent, None, false),
            None => self
                .adjusted_size(SpaceCheck::Normal)
                .saturating_sub(used_bytes),
        };
        let more = used_bytes
            .max(reserved)
            .saturating_sub(used_bytes.max(before));
        if more > available || (more > 0 && quota > 0 && reserved > quota) {
            let text = format!("reservation of {reserved} bytes, but {available} are left");
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(())
    }

    /// Sets a reservation and charges the parent for it.
    #[doc(alias = "dsl_dir_set_reservation_sync_impl")]
    pub(crate) fn set_reservation(&self, dd: &Arc<DslDir>, reserved: u64, _tx: &Tx) {
        let change = {
            let mut state = dd.state();
            let used = state.fields.used_bytes;
            let before = used.max(state.fields.reserved).cast_signed();
            state.fields.reserved = reserved;
            used.max(reserved).cast_signed() - before
        };
        self.dirty_dir(dd);
        if let Some(parent) = dd.parent() {
            let change = Space {
                used: change,
                ..Space::ZERO
            };
            self.diduse_space(&parent, Used::ChildRsrv, change);
        }
    }

    /// Whether `space` bytes could move from below `source` to below `target`.
    ///
    /// # Errors
    /// `NoSpace`, also when a quota is in the way.
    #[doc(alias = "dsl_dir_transfer_possible")]
    pub(crate) fn transfer_possible(
        &self,
        source: &Arc<DslDir>,
        target: &Arc<DslDir>,
        space: u64,
    ) -> Result<()> {
        let ancestor = common_ancestor(source, target);
        let mut delta = 0i64.saturating_sub_unsigned(space);
        for dd in source
            .lineage()
            .take_while(|dd| !Arc::ptr_eq(dd, &ancestor))
        {
            let state = dd.state();
            delta = state.parent_delta(state.fields.used_bytes, delta);
        }
        let back = delta.min(0).unsigned_abs();
        if self.space_available(target, Some((&ancestor, back)), false) < space {
            let text = format!("{} has no room for {space} bytes", target.name());
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(())
    }
}

/// The closest common ancestor, which may be one of the two; at worst the root.
#[doc(alias = "closest_common_ancestor")]
pub(crate) fn common_ancestor(one: &Arc<DslDir>, other: &Arc<DslDir>) -> Arc<DslDir> {
    let others: Vec<Arc<DslDir>> = other.lineage().collect();
    one.lineage()
        .find(|dd| others.iter().any(|other| Arc::ptr_eq(dd, other)))
        .expect("all directories are below the root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slop_is_a_32nd_within_bounds() {
        assert_eq!(slop_space(64 << 20, 0), 32 << 20);
        assert_eq!(slop_space(1 << 30, 0), 128 << 20);
        assert_eq!(slop_space(64 << 30, 0), 2 << 30);
        assert_eq!(slop_space(64 << 40, 0), 128 << 30);
        assert_eq!(slop_space(64 << 30, 1 << 29), 3 << 29);
        assert_eq!(slop_space(64 << 30, 2 << 30), 1 << 30);
    }
}
