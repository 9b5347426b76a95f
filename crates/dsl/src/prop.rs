//! Properties: where each is set, and which datasets inherit it.
//!
//! # What it is
//! A property of a dataset is a named number or string. It may be set at its directory (*local*),
//! stored there by a receive (*received*), *inherited* from the directories above, or have its
//! *default*. Which names and values are valid is decided by the callers; this module stores and
//! looks them up. A few are also enforced here (quotas), or tell the DMU how to write (`checksum`,
//! `compression`, …).
//!
//! # On disk
//! One ZAP per directory: `name` -> local value; `name$recvd` -> received value; `name$inherit` ->
//! the received value is ignored; `name$iuv` -> a value that old software does not know, in which
//! case `name` has the default. Snapshots may have a ZAP of their own.
//!
//! # Source
//! OpenZFS module/zfs/dsl_prop.c, module/zcommon/zfs_prop.c, module/zfs/dmu_objset.c
//! (`checksum_changed_cb` and its neighbours) @be7657e3

use phys::PropValue;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::{ObjsetProps, Tx};
use phys::ObjectType;

use crate::dataset::DslDataset;
use crate::dir::{DslDir, Used};
use crate::pool::DslPool;
use crate::size::Space;
use crate::space::SpaceCheck;
use crate::synctask::Verdict;

const INHERIT: &str = "$inherit";
const RECVD: &str = "$recvd";
const IUV: &str = "$iuv";
/// `ZPROP_HAS_RECVD`: present once any property was received.
const HAS_RECVD: &str = "$hasrecvd";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropSource {
    /// Set at the dataset itself.
    Local,
    /// Received with it.
    Received,
    /// Set at, or received with, the dataset of this name.
    Inherited(String),
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prop {
    /// The value.
    pub value: PropValue,
    /// Where it comes from.
    pub source: PropSource,
}

/// A change to a property (`zprop_source_t` of a change).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropChange {
    /// Sets the local value.
    Set(PropValue),
    /// Removes the local value and hides a received one, so that the property is inherited.
    Inherit,
    /// Removes the local value, so that a received one takes effect again (`zfs inherit -S`).
    Revert,
    /// Sets the received value.
    Receive(PropValue),
    /// Removes the received value.
    ForgetReceived,
}

/// Settable properties that are never inherited: they describe one dataset only.
const NOT_INHERITABLE: &[&str] = &[
    "canmount",
    "version",
    "quota",
    "reservation",
    "refquota",
    "refreservation",
    "volsize",
    "filesystem_limit",
    "snapshot_limit",
    "keylocation",
    "keyformat",
    "pbkdf2iters",
    "mlslabel",
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
    "volthreading",
    "defaultuserquota",
    "defaultgroupquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultgroupobjquota",
    "defaultprojectobjquota",
];

/// Whether a property set at a directory also applies to those below it.
#[must_use]
#[doc(alias = "zfs_prop_inheritable")]
pub fn is_inheritable(name: &str) -> bool {
    !NOT_INHERITABLE.contains(&name) && !name.starts_with('$')
}

/// Values that older software must not see: (property, value, default).
const IGNORED_BY_OLD: &[(&str, u64, u64)] = &[
    ("redundant_metadata", 2, 0),
    ("redundant_metadata", 3, 0),
    ("snapdir", 2, 0),
];

/// Reading.
impl DslPool {
    /// A property's value and source; `None` when it is not set anywhere and the default applies.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_prop_get_ds")]
    pub fn prop(&self, ds: &Arc<DslDataset>, name: &str) -> Result<Option<Prop>> {
        let _config = self.config().read();
        self.find_prop(ds, name)
    }

    /// All properties in effect for a dataset that are set at it or above it, by name.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_prop_get_all")]
    pub fn props(&self, ds: &Arc<DslDataset>) -> Result<BTreeMap<String, Prop>> {
        let _config = self.config().read();
        let mut found = BTreeMap::new();
        for (zap, source) in self.prop_places(ds)? {
            let inherits = matches!(source, PropSource::Inherited(_));
            for (name, value) in self.mos().zap_values(zap)? {
                let (name, suffix) = match name.split_once('$') {
                    Some((base, suffix)) if !base.is_empty() => (base, suffix),
                    Some(_) => continue,
                    None => (name.as_str(), ""),
                };
                let counts = match suffix {
                    "" => !self.mos().zap_contains(zap, &format!("{name}{IUV}"))?,
                    "iuv" => true,
                    "recvd" => self.received_counts(zap, name)?,
                    _ => false,
                };
                let source = match suffix {
                    "recvd" if !inherits => PropSource::Received,
                    _ => source.clone(),
                };
                if counts && (!inherits || is_inheritable(name)) {
                    found
                        .entry(name.to_string())
                        .or_insert(Prop { value, source });
                }
            }
        }
        Ok(found)
    }

    /// The values received with a dataset, whether they are in effect or not.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    #[doc(alias = "dsl_prop_get_received")]
    pub fn received_props(&self, ds: &Arc<DslDataset>) -> Result<BTreeMap<String, PropValue>> {
        let _config = self.config().read();
        let mut found = BTreeMap::new();
        for (zap, source) in self.prop_places(ds)? {
            if source != PropSource::Local {
                break;
            }
            for (name, value) in self.mos().zap_values(zap)? {
                if let Some(name) = name.strip_suffix(RECVD) {
                    found.insert(name.to_string(), value);
                }
            }
        }
        Ok(found)
    }

    fn received_counts(&self, zap: ObjectId, name: &str) -> Result<bool> {
        let local = self.mos().zap_contains(zap, name)?;
        Ok(!local && !self.mos().zap_contains(zap, &format!("{name}{INHERIT}"))?)
    }

    /// The ZAPs in which a dataset's properties are looked up, in this order.
    fn prop_places(&self, ds: &Arc<DslDataset>) -> Result<Vec<(ObjectId, PropSource)>> {
        let mut places = Vec::new();
        let own = ds.fields().props_obj;
        if own != 0 {
            places.push((ObjectId(own), PropSource::Local));
        }
        for (at, dd) in ds.dir().lineage().enumerate() {
            let source = if at == 0 && !ds.is_snapshot() {
                PropSource::Local
            } else {
                PropSource::Inherited(dd.name())
            };
            places.push((ObjectId(dd.fields().props_zapobj), source));
        }
        Ok(places)
    }

    pub(crate) fn find_prop(&self, ds: &Arc<DslDataset>, name: &str) -> Result<Option<Prop>> {
        for (zap, source) in self.prop_places(ds)? {
            let inherits = matches!(source, PropSource::Inherited(_));
            if inherits && !is_inheritable(name) {
                break;
            }
            for key in [format!("{name}{IUV}"), name.to_string()] {
                if let Some(value) = self.mos().zap_value(zap, &key)? {
                    return Ok(Some(Prop { value, source }));
                }
            }
            if self.mos().zap_contains(zap, &format!("{name}{INHERIT}"))? {
                continue;
            }
            if let Some(value) = self.mos().zap_value(zap, &format!("{name}{RECVD}"))? {
                let source = if inherits {
                    source
                } else {
                    PropSource::Received
                };
                return Ok(Some(Prop { value, source }));
            }
        }
        Ok(None)
    }

    pub(crate) fn number(&self, ds: &Arc<DslDataset>, name: &str, default: u64) -> Result<u64> {
        let found = self.find_prop(ds, name)?;
        Ok(found
            .and_then(|prop| prop.value.as_number())
            .unwrap_or(default))
    }

    /// A number that is not inherited: local, else received, else 0.
    pub(crate) fn own_number(&self, zap: ObjectId, name: &str) -> Result<u64> {
        for key in [name.to_string(), format!("{name}{RECVD}")] {
            if let Some(PropValue::Number(number)) = self.mos().zap_value(zap, &key)? {
                return Ok(number);
            }
        }
        Ok(0)
    }

    /// The properties of a dataset that the DMU needs.
    pub(crate) fn objset_props(&self, ds: &Arc<DslDataset>) -> Result<ObjsetProps> {
        let mut raw = BTreeMap::new();
        for (name, default) in crate::engine::DEFAULTS {
            raw.insert(*name, self.number(ds, name, *default)?);
        }
        let mut props = crate::engine::objset_props(&raw, self.mos().env());
        props.encrypted = ds.dir().key_object().is_some();
        Ok(props)
    }
}

/// Changing.
impl DslPool {
    /// Changes properties of a head or snapshot: all of them or none.
    ///
    /// # Errors
    /// `NotFound`; `NoSpace` for a quota below what is used, or a reservation above what is left;
    /// `TooBig` for a value, `NameTooLong` for a name, that does not fit in a ZAP.
    #[doc(alias = "dsl_props_set")]
    pub fn set_props(&self, name: &str, changes: Vec<(String, PropChange)>) -> Result<()> {
        let blocks = 2 * changes.len() as u64;
        let (checked, name) = (name.to_string(), name.to_string());
        let to_check = changes.clone();
        let check = move |pool: &DslPool, tx: &Tx| {
            let ds = pool.find_dataset(&checked)?;
            for (prop, change) in &to_check {
                pool.check_prop(&ds, prop, change, tx)?;
            }
            Ok(Verdict::Go)
        };
        self.sync_task(blocks, SpaceCheck::ExtraReserved, check, move |pool, tx| {
            let ds = pool.find_dataset(&name)?;
            for (prop, change) in &changes {
                pool.change_prop(&ds, prop, change, tx)?;
            }
            pool.notify_props()
        })
    }

    /// Sets one local property.
    ///
    /// # Errors
    /// As [`set_props`](DslPool::set_props).
    pub fn set_prop(&self, name: &str, prop: &str, value: PropValue) -> Result<()> {
        self.set_props(name, vec![(prop.to_string(), PropChange::Set(value))])
    }

    fn check_prop(
        &self,
        ds: &Arc<DslDataset>,
        name: &str,
        change: &PropChange,
        tx: &Tx,
    ) -> Result<()> {
        if name.len() + INHERIT.len() >= zap::MAX_NAME_BYTES {
            let text = format!("property name of {} bytes", name.len());
            return Err(Error::new(ErrorKind::NameTooLong, text));
        }
        if let PropChange::Set(PropValue::Text(text)) | PropChange::Receive(PropValue::Text(text)) =
            change
            && text.len() >= zap::MAX_VALUE_BYTES
        {
            let text = format!("{name}: value of {} bytes", text.len());
            return Err(Error::new(ErrorKind::TooBig, text));
        }
        if let PropChange::Set(value) = change {
            self.check_limits([(name, value)].into_iter())?;
        }
        let limit = matches!(
            name,
            "quota" | "reservation" | "refquota" | "refreservation"
        );
        if !limit {
            return Ok(());
        }
        crate::create::expect_head(ds, name)?;
        let dir = ds.dir();
        let new = self.predict(&dir, name, change)?;
        match name {
            "quota" => self.quota_check(&dir, new),
            "reservation" if tx.is_syncing() => self.reservation_check(&dir, new),
            "refquota" => self.refquota_check(ds, new),
            "refreservation" if tx.is_syncing() => self.refreservation_check(ds, new),
            _ => Ok(()),
        }
    }

    /// The value a limit will have after a change.
    #[doc(alias = "dsl_prop_predict")]
    fn predict(&self, dir: &Arc<DslDir>, name: &str, change: &PropChange) -> Result<u64> {
        let zap = ObjectId(dir.fields().props_zapobj);
        let stored = |key: String| -> Result<Option<u64>> {
            Ok(self
                .mos()
                .zap_value(zap, &key)?
                .and_then(|value| value.as_number()))
        };
        Ok(match change {
            PropChange::Set(value) => value.as_number().unwrap_or(0),
            PropChange::Inherit => 0,
            PropChange::Revert => stored(format!("{name}{RECVD}"))?.unwrap_or(0),
            PropChange::Receive(value) => {
                stored(name.to_string())?.or(value.as_number()).unwrap_or(0)
            }
            PropChange::ForgetReceived => stored(name.to_string())?.unwrap_or(0),
        })
    }

    #[doc(alias = "dsl_dataset_set_refquota_check")]
    fn refquota_check(&self, ds: &Arc<DslDataset>, quota: u64) -> Result<()> {
        let limits = ds.limits();
        let least = limits.referenced.max(limits.reserved);
        if quota != 0 && quota < least {
            let text = format!("refquota of {quota} bytes, but {least} are in use");
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(())
    }

    #[doc(alias = "dsl_dataset_set_refreservation_check")]
    fn refreservation_check(&self, ds: &Arc<DslDataset>, reserved: u64) -> Result<()> {
        let limits = ds.limits();
        let before = limits.unique.max(limits.reserved);
        let more = limits.unique.max(reserved).saturating_sub(before);
        let available = self.space_available(&ds.dir(), None, true);
        if more > available || (more > 0 && limits.quota > 0 && reserved > limits.quota) {
            let text = format!("refreservation of {reserved} bytes, but {available} are left");
            return Err(Error::new(ErrorKind::NoSpace, text));
        }
        Ok(())
    }

    /// Sets the refreservation and charges the directory for its unused part.
    #[doc(alias = "dsl_dataset_set_refreservation_sync_impl")]
    pub(crate) fn set_refreservation(&self, ds: &Arc<DslDataset>, reserved: u64) {
        let change = {
            let mut state = ds.state();
            let unused = |reserved: u64| reserved.saturating_sub(state.fields.unique_bytes);
            let change = unused(reserved).cast_signed() - unused(state.reserved).cast_signed();
            state.reserved = reserved;
            change
        };
        self.dirty_dataset(ds);
        let change = Space {
            used: change,
            ..Space::ZERO
        };
        self.diduse_space(&ds.dir(), Used::RefRsrv, change);
    }

    /// Sets local properties of a dataset that is being created.
    pub(crate) fn set_props_sync(
        &self,
        ds: &Arc<DslDataset>,
        props: &[(String, PropValue)],
        tx: &Tx,
    ) -> Result<()> {
        for (name, value) in props {
            self.change_prop(ds, name, &PropChange::Set(value.clone()), tx)?;
        }
        Ok(())
    }

    #[doc(alias = "dsl_prop_set_sync_impl")]
    pub(crate) fn change_prop(
        &self,
        ds: &Arc<DslDataset>,
        name: &str,
        change: &PropChange,
        tx: &Tx,
    ) -> Result<()> {
        let Some(zap) = self.props_zap(ds, change, tx)? else {
            return Ok(());
        };
        let mos = self.mos();
        match change {
            PropChange::Set(value) => {
                self.count_for_limit(&ds.dir(), name, value, tx)?;
                mos.zap_take(zap, &format!("{name}{INHERIT}"), tx)?;
                self.store_local(zap, name, value, tx)?;
            }
            PropChange::Inherit | PropChange::Revert => {
                mos.zap_take(zap, name, tx)?;
                mos.zap_take(zap, &format!("{name}{IUV}"), tx)?;
                let hide = *change == PropChange::Inherit && self.has_received(ds)?;
                if hide {
                    mos.zap_set(zap, &format!("{name}{INHERIT}"), 0, tx)?;
                } else {
                    mos.zap_take(zap, &format!("{name}{INHERIT}"), tx)?;
                }
            }
            PropChange::Receive(value) => {
                mos.zap_set_value(zap, &format!("{name}{RECVD}"), value, tx)?;
            }
            PropChange::ForgetReceived => {
                mos.zap_take(zap, &format!("{name}{RECVD}"), tx)?;
            }
        }
        if ds.is_snapshot() && mos.zap_count(zap)? == 0 {
            ds.state().fields.props_obj = 0;
            self.dirty_dataset(ds);
            mos.zap_destroy(zap, tx)?;
        }
        self.enforce(ds, name, tx)?;
        self.log_prop(ds, name, change, tx)
    }

    fn log_prop(
        &self,
        ds: &Arc<DslDataset>,
        name: &str,
        change: &PropChange,
        tx: &Tx,
    ) -> Result<()> {
        let value = match self.find_prop(ds, name)?.map(|prop| prop.value) {
            Some(PropValue::Number(number)) => number.to_string(),
            Some(PropValue::Text(text)) => text,
            None => String::new(),
        };
        let inherits = matches!(change, PropChange::Inherit | PropChange::Revert);
        self.log(
            ds,
            if inherits { "inherit" } else { "set" },
            &format!("{name}={value}"),
            tx,
        )
    }

    fn has_received(&self, ds: &Arc<DslDataset>) -> Result<bool> {
        Ok(self.find_prop(ds, HAS_RECVD)?.is_some())
    }

    /// The ZAP of a dataset's own properties; `None` when a removal finds no such ZAP.
    fn props_zap(
        &self,
        ds: &Arc<DslDataset>,
        change: &PropChange,
        tx: &Tx,
    ) -> Result<Option<ObjectId>> {
        if !ds.is_snapshot() {
            return Ok(Some(ObjectId(ds.dir().fields().props_zapobj)));
        }
        let zap = ds.fields().props_obj;
        if zap != 0 {
            return Ok(Some(ObjectId(zap)));
        }
        if !matches!(change, PropChange::Set(_) | PropChange::Receive(_)) {
            return Ok(None);
        }
        let zap = self.mos().zap_create(ObjectType::DSL_PROPS, tx)?;
        ds.state().fields.props_obj = zap.0;
        self.dirty_dataset(ds);
        Ok(Some(zap))
    }

    #[doc(alias = "dsl_prop_set_iuv")]
    fn store_local(&self, zap: ObjectId, name: &str, value: &PropValue, tx: &Tx) -> Result<()> {
        let iuv = format!("{name}{IUV}");
        let hidden = IGNORED_BY_OLD
            .iter()
            .find(|(prop, new, _)| *prop == name && value.as_number() == Some(*new));
        if let Some((_, _, default)) = hidden {
            self.mos().zap_set_value(zap, &iuv, value, tx)?;
            return self.mos().zap_set(zap, name, *default, tx);
        }
        self.mos().zap_take(zap, &iuv, tx)?;
        self.mos().zap_set_value(zap, name, value, tx)
    }

    /// Applies a changed limit.
    fn enforce(&self, ds: &Arc<DslDataset>, name: &str, tx: &Tx) -> Result<()> {
        if ds.is_snapshot() {
            return Ok(());
        }
        let dir = ds.dir();
        let value = || self.own_number(ObjectId(dir.fields().props_zapobj), name);
        match name {
            "quota" => {
                let quota = value()?;
                dir.state().fields.quota = quota;
                self.dirty_dir(&dir);
            }
            "reservation" => self.set_reservation(&dir, value()?, tx),
            "refquota" => {
                let quota = value()?;
                ds.state().quota = quota;
            }
            "refreservation" => self.set_refreservation(ds, value()?),
            _ => {}
        }
        Ok(())
    }

    /// Notifies the open datasets that properties may have changed.
    #[doc(alias = "dsl_prop_notify_all")]
    pub(crate) fn notify_props(&self) -> Result<()> {
        for ds in self.cached_datasets() {
            if let Some(objset) = ds.open_objset() {
                objset.set_props(self.objset_props(&ds)?);
            }
            if let Some(zil) = ds.open_zil() {
                zil.set_mode(self.sync_mode(&ds)?);
            }
            ds.notify_watchers(&|name, default| self.number(&ds, name, default));
        }
        Ok(())
    }
}
