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
            let mut at = 0;
            // A damaged table may be nearly all hole, and end far away.
            while let Some(offset) = dnode.next_data(at)? {
                dnode.visit(offset, READ_BYTES, &mut |_| {})?;
                at = offset + READ_BYTES;
            }
        }
        Ok(())
    }
}
