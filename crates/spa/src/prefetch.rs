//! `zpool prefetch`: the tables of shared blocks are read into the cache before they are needed.
//!
//! # Source
//! OpenZFS `module/zfs/ddt.c` (`ddt_prefetch_all`), `module/zfs/brt.c` (`brt_prefetch_all`).

use base::Result;

use crate::spa::Spa;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// The tables of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "zpool_prefetch_type_t")]
pub enum SharedTables {
    /// Of deduplicated blocks.
    Dedup,
    /// Of cloned blocks.
    Cloned,
}

impl Spa {
    /// Reads all tables of a kind.
    ///
    /// # Errors
    /// Errors of reading them.
    pub fn prefetch(&self, tables: SharedTables) -> Result<()> {
        let mos = self.parts().mos();
        for object in self.inner.core.sharing().zaps(tables) {
            let dnode = mos.hold(object)?;
            let len = (dnode.maxblkid().0 + 1) * dnode.blksz();
            for offset in (0..len).step_by(READ_BYTES as usize) {
                dnode.visit(offset, READ_BYTES.min(len - offset), &mut |_| {})?;
            }
        }
        Ok(())
    }
}
