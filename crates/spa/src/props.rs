//! The pool's own properties: numbers and strings in a ZAP, which is created when the first one is
//! set.
//!
//! # On disk
//! `pool_props` of the pool directory: name -> u64, or a string. Some live elsewhere: `comment` and
//! `compatibility` in the config, features in their ZAPs.
//!
//! # Source
//! OpenZFS `module/zfs/spa.c` (`spa_sync_props`).

use phys::PropValue;
use phys::pool_names;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ObjectId, Result};
use dmu::{Objset, Tx};
use phys::ObjectType;
use rt::Mutex;

use zap::directory;

/// The properties of an open pool.
pub(crate) struct PoolProps {
    mos: Arc<Objset>,
    state: Mutex<PropState>,
}

#[derive(Default)]
struct PropState {
    object: Option<ObjectId>,
    values: BTreeMap<String, PropValue>,
}

impl PoolProps {
    /// Reads the properties that are set.
    ///
    /// # Errors
    /// Any error from reading the MOS.
    pub(crate) fn open(mos: &Arc<Objset>) -> Result<PoolProps> {
        let mut state = PropState {
            object: directory::find(mos, pool_names::PROPS)?,
            ..PropState::default()
        };
        if let Some(object) = state.object {
            for entry in zap::iter(mos, object)? {
                let name = entry?.name_str().into_owned();
                let value = match zap::lookup_u64(mos, object, &*name) {
                    Ok(Some(number)) => PropValue::Number(number),
                    _ => PropValue::Text(zap::lookup_str(mos, object, &*name)?.unwrap_or_default()),
                };
                state.values.insert(name, value);
            }
        }
        Ok(PoolProps {
            mos: mos.clone(),
            state: Mutex::new(state),
        })
    }

    /// The properties of a new pool: none is set, and there is no ZAP yet.
    #[must_use]
    pub(crate) fn none(mos: &Arc<Objset>) -> PoolProps {
        PoolProps {
            mos: mos.clone(),
            state: Mutex::default(),
        }
    }

    /// The value that was set; `None` means the default.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<PropValue> {
        self.state.lock().values.get(name).cloned()
    }

    /// All properties that are set.
    #[must_use]
    pub(crate) fn all(&self) -> BTreeMap<String, PropValue> {
        self.state.lock().values.clone()
    }

    /// Sets a property. In syncing context.
    ///
    /// # Errors
    /// Any error from writing the MOS.
    pub(crate) fn set(&self, name: &str, value: PropValue, tx: &Tx) -> Result<()> {
        let object = self.state.lock().object;
        let object = match object {
            Some(object) => object,
            None => {
                directory::create_link(&self.mos, ObjectType::POOL_PROPS, pool_names::PROPS, tx)?
            }
        };
        match &value {
            PropValue::Number(n) => zap::update(&self.mos, tx, object, name, &[*n])?,
            PropValue::Text(text) => zap::update_str(&self.mos, tx, object, name, text)?,
        }
        let mut state = self.state.lock();
        state.object = Some(object);
        state.values.insert(name.to_owned(), value);
        Ok(())
    }
}
