//! Detects the file system of a partition.

use std::sync::Arc;

use geom::Provider;
use gpart::Partition;
use gpart::parted::FileSystems;

/// Detects ZFS pools, by the magic of the first uberblock of the first label.
pub(super) struct Probe(pub(super) Arc<dyn Provider>);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl FileSystems for Probe {
    fn name(&self, one: &Partition) -> &'static str {
        const UBERBLOCKS: u64 = 128 << 10;
        const MAGIC: u64 = 0x00ba_b10c;
        let sector = u64::from(self.0.sectorsize());
        let at = one.start_sector.checked_mul(sector);
        let at = at.and_then(|at| at.checked_add(UBERBLOCKS));
        let mut bytes = vec![0; self.0.sectorsize() as usize];
        let is_inside = one.sectors.saturating_mul(sector) > UBERBLOCKS;
        let Some(at) = at.filter(|_| is_inside) else {
            return "";
        };
        if self.0.read(at, &mut bytes).is_err() {
            return "";
        }
        let word = bytes.first_chunk().map(|word| u64::from_ne_bytes(*word));
        if word.is_some_and(|w| w == MAGIC || w.swap_bytes() == MAGIC) {
            "zfs"
        } else {
            ""
        }
    }
}
