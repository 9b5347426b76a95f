//! The pool directory: MOS object 1, a ZAP through which everything in a pool is found.
//!
//! Source: OpenZFS `include/sys/dmu.h` (`DMU_POOL_*`).

use std::sync::Arc;

use crate::Zap;
use base::{Error, ObjectId, Result};
use dmu::{Objset, Tx};
use phys::ObjectType;
use phys::pool_names::POOL_DIRECTORY_OBJECT;

/// `DMU_POOL_DIRECTORY_OBJECT`
pub const OBJECT: ObjectId = ObjectId(POOL_DIRECTORY_OBJECT);

/// The object that the directory has under `name`.
///
/// # Errors
/// `NotFound` when there is no such entry.
pub fn get(mos: &Objset, name: &str) -> Result<ObjectId> {
    find(mos, name)?.ok_or_else(|| Error::not_found(format!("the pool directory has no '{name}'")))
}

/// The object that the directory has under `name`; `None` if there is no such entry.
///
/// # Errors
/// Any error of reading the MOS.
pub fn find(mos: &Objset, name: &str) -> Result<Option<ObjectId>> {
    Ok(Zap::open(mos, OBJECT)?.lookup_u64(name)?.map(ObjectId))
}

/// Sets the number under `name`.
///
/// # Errors
/// Any error of writing the MOS.
pub fn set(mos: &Arc<Objset>, name: &str, value: u64, tx: &Tx) -> Result<()> {
    crate::update(mos, tx, OBJECT, name, &[value])
}

/// Adds an object.
///
/// # Errors
/// `Exists`; any error of writing the MOS.
pub fn add(mos: &Arc<Objset>, name: &str, object: ObjectId, tx: &Tx) -> Result<()> {
    crate::add_u64(mos, tx, OBJECT, name, object.0)
}

/// Removes an entry.
///
/// # Errors
/// `NotFound`; any error of writing the MOS.
pub fn remove(mos: &Arc<Objset>, name: &str, tx: &Tx) -> Result<()> {
    crate::remove(mos, tx, OBJECT, name)
}

/// Makes a ZAP and enters it.
///
/// # Errors
/// Any error of writing the MOS.
#[doc(alias = "zap_create_link")]
pub fn create_link(mos: &Arc<Objset>, type_: ObjectType, name: &str, tx: &Tx) -> Result<ObjectId> {
    crate::create_link(mos, tx, type_, OBJECT, name)
}
