//! What the layers above keep with a dnode: parsed forms of its content, locks.
//!
//! # Why not simpler
//! A table by object number in each layer above would have to be told when an object goes; here the
//! value goes with the dnode.
//!
//! # Source
//! OpenZFS module/zfs/dbuf.c (`dmu_buf_set_user`) @be7657e3.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use rt::Mutex;

use crate::Dnode;

type User = Arc<dyn Any + Send + Sync>;

/// At most one value of each type.
#[derive(Default)]
pub(crate) struct Users {
    /// The first one, mostly the only one; to find it takes no lock.
    first: OnceLock<User>,
    others: Mutex<Vec<User>>,
}

impl Users {
    fn find<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        match self.first.get() {
            None => None,
            Some(first) if first.is::<T>() => as_type(first),
            Some(_) => self.others.lock().iter().find_map(as_type),
        }
    }

    fn find_or_make<T: Any + Send + Sync>(&self, new: impl FnOnce() -> T) -> Arc<T> {
        if let Some(user) = self.find() {
            return user;
        }
        let mut others = self.others.lock();
        let mut all = self.first.get().into_iter().chain(&*others);
        if let Some(user) = all.find_map(as_type) {
            return user;
        }
        let user = Arc::new(new());
        if let Err(other) = self.first.set(Arc::clone(&user) as User) {
            others.push(other);
        }
        user
    }
}

fn as_type<T: Any + Send + Sync>(user: &User) -> Option<Arc<T>> {
    let is_one = user.is::<T>();
    is_one.then(|| {
        let user = Arc::clone(user).downcast();
        user.unwrap_or_else(|_| unreachable!("its type was just asked for"))
    })
}

impl Dnode {
    /// The value of type `T` that goes with this dnode, made by `new` if there is none yet. It
    /// lasts at least as long as the dnode is held, and must not hold the dnode itself.
    #[doc(alias = "dmu_buf_set_user")]
    pub fn user<T: Any + Send + Sync>(&self, new: impl FnOnce() -> T) -> Arc<T> {
        self.users.find_or_make(new)
    }

    /// The value of type `T` that goes with this dnode, if one was made.
    #[must_use]
    pub fn user_if_made<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.users.find()
    }
}
