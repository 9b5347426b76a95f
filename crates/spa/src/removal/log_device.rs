//! Removing a log device.
//!
//! # What it is
//! What is in intent logs is also in the next txg: so the logs are dropped, and nothing is left on the device. Its
//! number becomes a hole.
//!
//! # Source
//! OpenZFS `module/zfs/vdev_removal.c` (`spa_vdev_remove_log`).

use base::{Error, ErrorKind, ObjectId, Result, VdevId};
use dmu::Tx;

use crate::spa::{Inner, Spa};

impl Spa {
    pub(super) fn remove_log(&self, id: VdevId) -> Result<()> {
        self.inner.space.set_allocatable(id, false)?;
        let removed = self.drain_log(id).and_then(|()| {
            self.change_tree(|_| Ok(()), move |inner, tx| inner.drop_log_device(id, tx))
        });
        if removed.is_err() {
            self.inner.space.set_allocatable(id, true)?;
        }
        removed
    }

    fn drain_log(&self, id: VdevId) -> Result<()> {
        self.settle()?;
        self.dsl().drop_logs()?;
        self.settle()?;
        let left = self.inner.space.vdev_stats(id)?.alloc;
        if left == 0 {
            return Ok(());
        }
        let text = format!("{left} bytes of the log device are still in use");
        Err(Error::new(ErrorKind::Busy, text))
    }
}

impl Inner {
    fn drop_log_device(&self, id: VdevId, tx: &Tx) -> Result<()> {
        let top = self.tree.top(id).expect("it was found");
        self.give_space_back(id, &top, tx)?;
        self.let_devices_go(&top, tx)?;
        let zap = top.config().top_zap;
        if zap != 0 {
            self.destroy_vdev_zap(ObjectId(zap), tx)?;
        }
        let path = top.config().path.clone();
        let path = path.as_deref().unwrap_or("-");
        let text = format!("{} vdev (log) {path}", self.state.lock().name);
        self.forget_rebuild(id, tx)?;
        self.tree.remove_top(id);
        self.space.remove_vdev(id);
        self.core.notify("vdev_remove_dev", Some(&top));
        self.core.log_internal("vdev remove", &text, tx);
        self.tree_changed();
        Ok(())
    }
}
