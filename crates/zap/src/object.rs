//! The operations of a [`Zap`] on an object given by number, for callers that need it only once.

use std::sync::Arc;

use base::{ObjectId, Result};
use dmu::{Objset, Tx};

use crate::cursor::Cursor;
use crate::handle::Zap;
use crate::key::Key;
use crate::value::Integer;

/// [`Zap::lookup`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn lookup<'k, T: Integer>(
    objset: &Arc<Objset>,
    id: ObjectId,
    key: impl Into<Key<'k>>,
) -> Result<Option<Vec<T>>> {
    Zap::open(objset, id)?.lookup(key)
}

/// [`Zap::lookup_u64`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn lookup_u64<'k>(
    objset: &Arc<Objset>,
    id: ObjectId,
    key: impl Into<Key<'k>>,
) -> Result<Option<u64>> {
    Zap::open(objset, id)?.lookup_u64(key)
}

/// [`Zap::lookup_str`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn lookup_str<'k>(
    objset: &Arc<Objset>,
    id: ObjectId,
    key: impl Into<Key<'k>>,
) -> Result<Option<String>> {
    Zap::open(objset, id)?.lookup_str(key)
}

/// [`Zap::contains`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn contains<'k>(objset: &Arc<Objset>, id: ObjectId, key: impl Into<Key<'k>>) -> Result<bool> {
    Zap::open(objset, id)?.contains(key)
}

/// [`Zap::add`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn add<'k, T: Integer>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
    value: &[T],
) -> Result<()> {
    Zap::open(objset, id)?.add(tx, key, value)
}

/// [`Zap::add_u64`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn add_u64<'k>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
    value: u64,
) -> Result<()> {
    Zap::open(objset, id)?.add_u64(tx, key, value)
}

/// [`Zap::update`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn update<'k, T: Integer>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
    value: &[T],
) -> Result<()> {
    Zap::open(objset, id)?.update(tx, key, value)
}

/// [`Zap::update_u64`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn update_u64<'k>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
    value: u64,
) -> Result<()> {
    Zap::open(objset, id)?.update_u64(tx, key, value)
}

/// [`Zap::update_str`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn update_str<'k>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
    text: &str,
) -> Result<()> {
    Zap::open(objset, id)?.update_str(tx, key, text)
}

/// [`Zap::remove`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn remove<'k>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
) -> Result<()> {
    Zap::open(objset, id)?.remove(tx, key)
}

/// [`Zap::remove_if_present`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn remove_if_present<'k>(
    objset: &Arc<Objset>,
    tx: &Tx,
    id: ObjectId,
    key: impl Into<Key<'k>>,
) -> Result<bool> {
    Zap::open(objset, id)?.remove_if_present(tx, key)
}

/// [`Zap::count`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn count(objset: &Arc<Objset>, id: ObjectId) -> Result<u64> {
    Zap::open(objset, id)?.count()
}

/// [`Zap::iter`] of object `id`.
///
/// # Errors
/// As there, and as [`Zap::open`].
pub fn iter(objset: &Arc<Objset>, id: ObjectId) -> Result<Cursor> {
    Ok(Zap::open(objset, id)?.iter())
}
