//! The pool directory: MOS object 1, a ZAP through which everything in a pool is found.
//!
//! Source: OpenZFS `include/sys/dmu.h` (`DMU_POOL_*`).

use std::sync::Arc;

use base::{Error, ObjectId, Result};
use dmu::{Objset, Tx};
use phys::ObjectType;

/// `DMU_POOL_DIRECTORY_OBJECT`
pub const OBJECT: ObjectId = ObjectId(1);

/// The object that the directory names.
///
/// # Errors
/// `NotFound` when there is no such entry.
pub fn get(mos: &Arc<Objset>, name: &str) -> Result<ObjectId> {
    find(mos, name)?.ok_or_else(|| Error::not_found(format!("the pool directory has no '{name}'")))
}

/// The object that the directory names, if it does.
///
/// # Errors
/// What reading the MOS gives.
pub fn find(mos: &Arc<Objset>, name: &str) -> Result<Option<ObjectId>> {
    Ok(zap::lookup_u64(mos, OBJECT, name)?.map(ObjectId))
}

/// Enters a number.
///
/// # Errors
/// What writing the MOS gives.
pub fn set(mos: &Arc<Objset>, name: &str, value: u64, tx: &Tx) -> Result<()> {
    zap::update(mos, tx, OBJECT, name, &[value])
}

/// Makes a ZAP and enters it.
///
/// # Errors
/// What writing the MOS gives.
#[doc(alias = "zap_create_link")]
pub fn create_link(mos: &Arc<Objset>, type_: ObjectType, name: &str, tx: &Tx) -> Result<ObjectId> {
    zap::create_link(mos, tx, type_, OBJECT, name)
}
