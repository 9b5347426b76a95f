//! What the layers above keep with a dnode: parsed forms of its content, locks.
//!
//! # Why not simpler
//! A table by object number in each layer above would have to be told when an object goes; here the
//! value goes with the dnode.
//!
//! # Source
//! OpenZFS module/zfs/dbuf.c (`dmu_buf_set_user`) @be7657e3.

use std::any::Any;
use std::sync::Arc;

use rt::Mutex;

use crate::Dnode;

/// At most one value of each type.
#[derive(Default)]
pub(crate) struct Users(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Users {
    fn get<T: Any + Send + Sync>(&self, new: impl FnOnce() -> T) -> Arc<T> {
        let mut users = self.0.lock();
        if let Some(user) = users.iter().find(|user| user.is::<T>()) {
            let user = Arc::clone(user).downcast();
            return user.unwrap_or_else(|_| unreachable!("its type was just asked for"));
        }
        let user = Arc::new(new());
        users.push(Arc::clone(&user) as Arc<dyn Any + Send + Sync>);
        user
    }
}

impl Dnode {
    /// The value of type `T` that goes with this dnode, made by `new` if there is none yet. It
    /// lasts at least as long as the dnode is held, and must not hold the dnode itself.
    #[doc(alias = "dmu_buf_set_user")]
    pub fn user<T: Any + Send + Sync>(&self, new: impl FnOnce() -> T) -> Arc<T> {
        self.users.get(new)
    }
}
