//! The diagnosis of a pool, and the advice for it.

use super::{PoolStatus, ScanFunction, ScanState, VdevAux, VdevKind, VdevState, VdevStatus};

/// `zpool_status_t`: the most severe condition of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No problem.
    Ok,
    /// A device is being resilvered.
    Resilvering,
    /// A sequential resilver has ended, and no scrub since.
    RebuildScrub,
    /// A device needs a resilver, which is deferred.
    AwaitingResilver,
    /// It was last used by another host.
    HostidMismatch,
    /// Its version is too new.
    VersionNewer,
    /// It has features that this program cannot read.
    UnsupFeatRead,
    /// It has features that this program cannot write.
    UnsupFeatWrite,
    /// Devices are missing from the configuration.
    BadGuidSum,
    /// It is suspended.
    Suspended,
    /// A log cannot be read.
    BadLog,
    /// Faulted devices, without enough redundancy.
    FaultedDevNr,
    /// Missing devices, without enough redundancy.
    MissingDevNr,
    /// Devices without a valid label, without enough redundancy.
    CorruptLabelNr,
    /// Its metadata is damaged.
    CorruptPool,
    /// Data is permanently damaged.
    CorruptData,
    /// Faulted devices, with enough redundancy.
    FaultedDevR,
    /// Missing devices, with enough redundancy.
    MissingDevR,
    /// Devices without a valid label, with enough redundancy.
    CorruptLabelR,
    /// Errors that were repaired.
    FailingDev,
    /// Devices taken offline.
    OfflineDev,
    /// Devices that were physically removed.
    RemovedDev,
    /// Devices with sectors larger than the vdev's ashift.
    NonNativeAshift,
    /// A version from before features.
    VersionOlder,
    /// Supported features that are not enabled.
    FeatDisabled,
}

impl Reason {
    /// Whether `zpool status -x` has nothing to say about it.
    #[must_use]
    pub fn is_healthy(self) -> bool {
        matches!(
            self,
            Reason::Ok | Reason::VersionOlder | Reason::FeatDisabled
        )
    }

    /// The id of the article about it, if there is one: `ZFS-8000-…`.
    #[must_use]
    pub(crate) fn message_id(self) -> Option<&'static str> {
        Some(match self {
            Reason::MissingDevR => "ZFS-8000-2Q",
            Reason::MissingDevNr => "ZFS-8000-3C",
            Reason::CorruptLabelR => "ZFS-8000-4J",
            Reason::CorruptLabelNr => "ZFS-8000-5E",
            Reason::BadGuidSum => "ZFS-8000-6X",
            Reason::CorruptPool => "ZFS-8000-72",
            Reason::CorruptData => "ZFS-8000-8A",
            Reason::FailingDev => "ZFS-8000-9P",
            Reason::VersionNewer => "ZFS-8000-A5",
            Reason::HostidMismatch => "ZFS-8000-EY",
            Reason::Suspended => "ZFS-8000-HC",
            Reason::BadLog => "ZFS-8000-K4",
            _ => return None,
        })
    }

    /// The `status` and `action` texts for an imported pool. Lines after the first begin with a tab;
    /// both end with a line feed.
    #[expect(
        clippy::too_many_lines,
        reason = "a table: the text of each state of a pool"
    )]
    pub(super) fn advice(self, pool: &PoolStatus) -> Option<(String, String)> {
        let features = || {
            let lines = pool
                .unsupported_features
                .iter()
                .map(|f| format!("\t  {f}\n"));
            lines.collect::<String>()
        };
        let (status, action) = match self {
            Reason::Ok => return None,
            Reason::Resilvering => (
                "A device is being resilvered. The pool stays usable meanwhile, with\n\
                 \tless redundancy than it will have.",
                "Wait until the resilver is done.",
            ),
            Reason::RebuildScrub => (
                "Devices were resilvered sequentially: no checksum was verified, and the pool\n\
                 \twas not scrubbed since.",
                "Verify all data with 'zpool scrub'.",
            ),
            Reason::AwaitingResilver => (
                "Devices lack data that was written while they were away. The pool works\n\
                 \ton, with less redundancy.",
                "The next command that changes the pool brings them up to date;\n\
                 \t'zpool scrub' does so now.",
            ),
            Reason::HostidMismatch => (
                "The pool was last used on another system and not exported there.",
                "Export it there, and import it here.",
            ),
            Reason::VersionNewer => (
                "The version of the pool is newer than any that this program knows.",
                "Use the pool on a system with newer software.",
            ),
            Reason::UnsupFeatRead => {
                let status = "The pool needs features that this program does not have:\n";
                let action = "Use the pool on a system that has them.\n";
                return Some((status.to_owned() + &features(), action.to_owned()));
            }
            Reason::UnsupFeatWrite => {
                let status = "The pool can only be read here, since it has features that this\n\
                              \tprogram cannot keep up:\n";
                let action = "Import it with '-o readonly=on', or use a system that has them.\n";
                return Some((status.to_owned() + &features(), action.to_owned()));
            }
            Reason::BadGuidSum => (
                "Devices that belong to the pool are missing.",
                "Attach the missing devices and import the pool again.",
            ),
            Reason::Suspended => (
                "Writes failed on all copies. The pool is suspended.",
                "See to it that the devices are connected, then run 'zpool clear'.",
            ),
            Reason::BadLog => (
                "A record of the intent log cannot be read.",
                "Bring the log device back with 'zpool online', or give up the last\n\
                 \tsynchronous writes with 'zpool clear'.",
            ),
            Reason::FaultedDevNr => (
                "Devices are faulted after persistent errors, and what they hold has no\n\
                 \tother copy.",
                "Restore the pool from a backup. 'zpool clear' marks the devices as\n\
                 \tgood again, which may let some data be saved.",
            ),
            Reason::MissingDevNr => (
                "Devices cannot be opened, and what they hold has no other copy.",
                "Attach the devices and run 'zpool online'.",
            ),
            Reason::CorruptLabelNr => (
                "Devices have no valid label, and what they hold has no other copy.",
                "Restore the pool from a backup.",
            ),
            Reason::CorruptPool => (
                "The metadata of the pool is damaged; it cannot be opened.",
                "Look at an earlier state with 'zpool import -o readonly=on -T TXG', or\n\
                 \trestore the pool from a backup.",
            ),
            Reason::CorruptData => (
                "Data is damaged that has no good copy left. Applications may notice.",
                "Restore the files concerned, or the whole pool, from a backup.",
            ),
            Reason::FaultedDevR => (
                "Devices are faulted after persistent errors. The pool works on without\n\
                 \tthem, with less redundancy.",
                "Mark the devices as good with 'zpool clear', or replace them with\n\
                 \t'zpool replace'.",
            ),
            Reason::MissingDevR => (
                "Devices cannot be opened. The pool works on without them, with less\n\
                 \tredundancy.",
                "Attach the devices and run 'zpool online'.",
            ),
            Reason::CorruptLabelR => (
                "Devices have no valid label. The pool works on without them, with less\n\
                 \tredundancy.",
                "Replace the devices on an OpenZFS system ('zpool replace' is not there\n\
                 \tyet), or copy the data to a new pool.",
            ),
            Reason::FailingDev => (
                "Devices gave wrong or no data, which other copies made up for.\n\
                 \tApplications are not affected.",
                "Find out whether the devices are at fault; reset the counters with\n\
                 \t'zpool clear'.",
            ),
            Reason::OfflineDev => (
                "Devices were taken offline. The pool works on without them, with less\n\
                 \tredundancy.",
                "Run 'zpool online'.",
            ),
            Reason::RemovedDev => (
                "Devices were taken out. The pool works on without them, with less\n\
                 \tredundancy.",
                "Put them back and run 'zpool online'.",
            ),
            Reason::NonNativeAshift => (
                "Vdevs have an ashift below the sector size of their devices. Every small\n\
                 \twrite makes such a device read and write a whole sector.",
                "Replace the devices with ones that have smaller sectors, or move the\n\
                 \tdata to a pool with a fitting ashift.",
            ),
            Reason::VersionOlder => (
                "The pool has a version from before feature flags. It can be read, but\n\
                 \tnot written.",
                "Upgrade it with 'zpool upgrade'. Afterwards systems without feature flags\n\
                 \tcannot open it any more.",
            ),
            Reason::FeatDisabled => (
                "Features that this program has are not enabled on the pool.",
                "Enable them with 'zpool set feature@NAME=enabled', if no system without\n\
                 \tthem has to read the pool any more.",
            ),
        };
        Some((format!("{status}\n"), format!("{action}\n")))
    }
}

/// Whether a leaf (or cache device) at or below `vdev` has a problem; leaves of a replacing vdev
/// do not count if `ignores_replacing`.
#[doc(alias = "find_vdev_problem")]
fn any_leaf(
    vdev: &VdevStatus,
    ignores_replacing: bool,
    is_problem: &dyn Fn(&VdevStatus) -> bool,
) -> bool {
    if ignores_replacing && vdev.kind == VdevKind::Replacing {
        return false;
    }
    if vdev.is_leaf() {
        return !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect) && is_problem(vdev);
    }
    vdev.children
        .iter()
        .any(|child| any_leaf(child, ignores_replacing, is_problem))
}

/// The most severe condition of a pool. `is_import`: it is only a candidate for import.
#[must_use]
#[doc(alias = "zpool_get_status")]
pub fn diagnose(pool: &PoolStatus, is_import: bool) -> Reason {
    let scan = pool.scan.filter(|scan| scan.state == ScanState::Scanning);
    if scan.is_some_and(|scan| scan.function == ScanFunction::Resilver) {
        return Reason::Resilvering;
    }
    if let Some(reason) = of_rebuilds(pool) {
        return reason;
    }
    if pool.is_foreign {
        return Reason::HostidMismatch;
    }
    if let Some(reason) = cannot_open(pool) {
        return reason;
    }
    if !is_import && pool.error_count.is_some_and(|count| count > 0) {
        return Reason::CorruptData;
    }
    let is_stale = |vdev: &VdevStatus| vdev.is_resilver_deferred;
    device_problem(pool, is_import).unwrap_or({
        if !is_import && has_problem(pool, false, &is_stale) {
            Reason::AwaitingResilver
        } else if pool.version < 5000 {
            Reason::VersionOlder
        } else if pool.has_disabled_features {
            Reason::FeatDisabled
        } else {
            Reason::Ok
        }
    })
}

/// What sequential resilvers are a reason for. While a scrub goes on there is nothing to be said of one that has ended.
fn of_rebuilds(pool: &PoolStatus) -> Option<Reason> {
    let in_state = |state| pool.rebuilds.iter().filter(move |each| each.state == state);
    if in_state(ScanState::Scanning).next().is_some() {
        return Some(Reason::Resilvering);
    }
    let ended = in_state(ScanState::Finished)
        .map(|each| each.end_secs)
        .max();
    let ended = ended.filter(|ended| *ended > 0)?;
    let is_older = match &pool.scan {
        Some(scan) => {
            scan.state == ScanState::Finished
                && scan.function == ScanFunction::Scrub
                && ended > scan.end_secs
        }
        None => true,
    };
    is_older.then_some(Reason::RebuildScrub)
}

fn has_problem(pool: &PoolStatus, ignores: bool, is_problem: &dyn Fn(&VdevStatus) -> bool) -> bool {
    let all = std::iter::once(&pool.root).chain(&pool.cache);
    all.into_iter()
        .any(|vdev| any_leaf(vdev, ignores, is_problem))
}

fn cannot_open(pool: &PoolStatus) -> Option<Reason> {
    let is_unopened = pool.root.state == VdevState::CantOpen;
    let aux = if is_unopened {
        pool.root.aux
    } else {
        VdevAux::None
    };
    match aux {
        VdevAux::VersionNewer => return Some(Reason::VersionNewer),
        VdevAux::UnsupFeat if pool.is_readable => return Some(Reason::UnsupFeatWrite),
        VdevAux::UnsupFeat => return Some(Reason::UnsupFeatRead),
        VdevAux::BadGuidSum => return Some(Reason::BadGuidSum),
        _ => {}
    }
    if pool.is_suspended {
        return Some(Reason::Suspended);
    }
    if aux == VdevAux::BadLog {
        return Some(Reason::BadLog);
    }
    if !is_unopened {
        return None;
    }
    let has = |is_problem: &dyn Fn(&VdevStatus) -> bool| has_problem(pool, true, is_problem);
    if has(&is_faulted) {
        Some(Reason::FaultedDevNr)
    } else if has(&is_missing) {
        Some(Reason::MissingDevNr)
    } else if has(&is_broken) {
        Some(Reason::CorruptLabelNr)
    } else {
        (aux == VdevAux::CorruptData).then_some(Reason::CorruptPool)
    }
}

fn device_problem(pool: &PoolStatus, is_import: bool) -> Option<Reason> {
    let has_errors = |vdev: &VdevStatus| {
        let errors = vdev.read_errors + vdev.write_errors + vdev.checksum_errors;
        vdev.state == VdevState::Degraded || errors > 0
    };
    let in_state = |state| move |vdev: &VdevStatus| vdev.state == state;
    let is_coarse = |vdev: &VdevStatus| vdev.configured_ashift < vdev.physical_ashift;
    let has = |is_problem: &dyn Fn(&VdevStatus) -> bool| has_problem(pool, true, is_problem);
    if has(&is_faulted) {
        Some(Reason::FaultedDevR)
    } else if has(&is_missing) {
        Some(Reason::MissingDevR)
    } else if has(&is_broken) {
        Some(Reason::CorruptLabelR)
    } else if !is_import && has(&has_errors) {
        Some(Reason::FailingDev)
    } else if has(&in_state(VdevState::Offline)) {
        Some(Reason::OfflineDev)
    } else if has(&in_state(VdevState::Removed)) {
        Some(Reason::RemovedDev)
    } else if !is_import && has_problem(pool, false, &is_coarse) {
        Some(Reason::NonNativeAshift)
    } else {
        None
    }
}

fn is_faulted(vdev: &VdevStatus) -> bool {
    vdev.state == VdevState::Faulted
}

fn is_missing(vdev: &VdevStatus) -> bool {
    vdev.state == VdevState::CantOpen && vdev.aux == VdevAux::OpenFailed
}

fn is_broken(vdev: &VdevStatus) -> bool {
    vdev.state == VdevState::CantOpen
}
