//! What goes on in an open pool in the background, and waiting for it.
//!
//! # Source
//! OpenZFS include/sys/fs/zfs.h (`zpool_wait_activity_t`), module/zfs/spa.c (`spa_wait`),
//! cmd/zpool/zpool_main.c (`print_wait_status_row`).

use base::Result;
use scan::Kind;
use spa::{RebuildState, SweepKind};
use vdev::VdevKind;

use crate::open::OpenPool;
use crate::properties::freeing;
use crate::sweeping::sums;

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zpool_wait_activity_t")]
pub enum Activity {
    /// A checkpoint is discarded.
    Discard,
    /// What destroyed datasets occupied is freed.
    Free,
    /// Free space is overwritten.
    Initialize,
    /// A device is replaced, or a hot spare takes over.
    Replace,
    /// A vdev is removed.
    Remove,
    /// Devices get what they missed.
    Resilver,
    /// All is read.
    Scrub,
    /// Free space is unmapped.
    Trim,
    /// A RAID-Z gets one more device.
    RaidzExpand,
}

impl Activity {
    /// All of them, in OpenZFS's order.
    pub const ALL: [Activity; 9] = [
        Activity::Discard,
        Activity::Free,
        Activity::Initialize,
        Activity::Replace,
        Activity::Remove,
        Activity::Resilver,
        Activity::Scrub,
        Activity::Trim,
        Activity::RaidzExpand,
    ];

    /// As `zpool wait -t` names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Activity::Discard => "discard",
            Activity::Free => "free",
            Activity::Initialize => "initialize",
            Activity::Replace => "replace",
            Activity::Remove => "remove",
            Activity::Resilver => "resilver",
            Activity::Scrub => "scrub",
            Activity::Trim => "trim",
            Activity::RaidzExpand => "raidz_expand",
        }
    }
}

impl OpenPool {
    /// Bytes that an activity is still to handle; 0 if it does not go on.
    ///
    /// # Errors
    /// Errors of reading the pool.
    pub fn bytes_left(&self, activity: Activity) -> Result<u64> {
        Ok(match activity {
            Activity::Free => freeing(self)?,
            Activity::Scrub => self.scan_left(Kind::Scrub),
            Activity::Resilver => self.resilver_left(),
            Activity::Replace if self.is_replacing() => self.resilver_left(),
            Activity::Remove if self.is_removing() => self.removal().map_or(0, |progress| {
                let phys = progress.phys;
                phys.to_copy.get().saturating_sub(phys.copied.get())
            }),
            Activity::Initialize => self.sweep_left(SweepKind::Initialize),
            Activity::Trim => self.sweep_left(SweepKind::Trim),
            Activity::Discard if self.is_discarding() => {
                self.checkpoint()?.map_or(0, |checkpoint| checkpoint.bytes)
            }
            Activity::Replace | Activity::Remove | Activity::Discard => 0,
            Activity::RaidzExpand => match self.expansion()? {
                Some(progress) if progress.is_going_on => {
                    let done = progress.copied_bytes;
                    progress.total_bytes.saturating_sub(done)
                }
                _ => 0,
            },
        })
    }

    /// Waits until none of these goes on; in a pool that is only read nothing does. `see` is called now and then;
    /// without it the observer is shown how far it is.
    ///
    /// # Errors
    /// `Suspended`.
    #[doc(alias = "spa_wait")]
    pub fn wait_for(
        &self,
        activities: &[Activity],
        mut see: Option<&mut dyn FnMut()>,
    ) -> Result<()> {
        loop {
            let mut has_waited = false;
            for activity in activities {
                let show = self.pools().observer().progress();
                has_waited |= self.wait_for_one(*activity, &mut |done, all| match &mut see {
                    Some(see) => see(),
                    None => show(done, all),
                })?;
            }
            if !has_waited {
                return Ok(());
            }
        }
    }

    /// Whether there was anything to wait for.
    fn wait_for_one(&self, activity: Activity, see: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        let kind = match activity {
            Activity::Scrub => Kind::Scrub,
            Activity::Resilver => Kind::Resilver,
            Activity::Replace if self.is_replacing() => Kind::Resilver,
            Activity::Free if !self.is_readonly() => {
                self.finish_destroys()?;
                // What is left cannot be freed.
                return Ok(false);
            }
            Activity::Discard if !self.is_readonly() && self.is_discarding() => {
                let all = self.checkpoint()?.map_or(0, |checkpoint| checkpoint.bytes);
                self.finish_discard(&mut |left| see(all.saturating_sub(left), all))?;
                return Ok(true);
            }
            Activity::Remove if !self.is_readonly() && self.is_removing() => {
                self.wait_removal(&mut |phys| {
                    see(phys.copied.get(), phys.to_copy.get());
                    true
                })?;
                return Ok(true);
            }
            Activity::Initialize | Activity::Trim => {
                let kind = match activity {
                    Activity::Initialize => SweepKind::Initialize,
                    _ => SweepKind::Trim,
                };
                if !self.is_sweeping(kind, None) {
                    return Ok(false);
                }
                self.wait_sweep(kind, None, &mut || {
                    let (done, total) = sums(self, kind);
                    see(done, total);
                    true
                })?;
                return Ok(true);
            }
            Activity::RaidzExpand if !self.is_readonly() && self.is_expanding() => {
                self.wait_expansion(&mut |done, all| {
                    see(done, all);
                    true
                })?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        if kind == Kind::Resilver && self.is_rebuilding() && !self.is_readonly() {
            self.wait_rebuild(&mut |done, all| {
                see(done, all);
                true
            })?;
            return Ok(true);
        }
        if self.scan_running() != Some(kind) || self.is_scan_paused() {
            return Ok(false);
        }
        self.wait_scan(&mut |scan| {
            see(scan.examined.get(), scan.to_examine.get());
            true
        })?;
        Ok(true)
    }

    fn sweep_left(&self, kind: SweepKind) -> u64 {
        let (done, total) = sums(self, kind);
        total - done
    }

    fn is_expanding(&self) -> bool {
        self.parts().tree().expanding().is_some()
    }

    /// Whether there is a vdev with a replacement or a spare in use: whether a resilver is for that, is not known.
    #[doc(alias = "vdev_any_spare_replacing")]
    fn is_replacing(&self) -> bool {
        let mut is_any = false;
        self.parts().tree().root().visit(&mut |vdev| {
            let kind = vdev.kind();
            is_any |= matches!(kind, VdevKind::Replacing | VdevKind::Spare)
                || matches!(kind, VdevKind::DraidSpare(_));
        });
        is_any
    }

    #[doc(alias = "vdev_activity_top_remaining")]
    fn resilver_left(&self) -> u64 {
        let rebuilds = self.rebuilds();
        let active = rebuilds
            .iter()
            .filter(|each| each.state == RebuildState::Active);
        let left = active.map(|each| {
            let done = each.phys.bytes_rebuilt.get();
            each.phys.bytes_est.get().saturating_sub(done)
        });
        left.fold(self.scan_left(Kind::Resilver), u64::saturating_add)
    }

    fn scan_left(&self, kind: Kind) -> u64 {
        if self.scan_running() != Some(kind) || self.is_scan_paused() {
            return 0;
        }
        let phys = self.scan();
        phys.map_or(0, |phys| {
            phys.to_examine.get().saturating_sub(phys.examined.get())
        })
    }
}
