//! Files that are made for an experiment.

use std::fs;
use std::path::Path;

use base::{Context, Error, Result};

use crate::experiment::Files;

/// Makes them below a folder: the same bytes for the same seed. The kinds are mixed, as they would be on a disk.
///
/// # Errors
/// `InvalidInput` if `one_in` is not a number; whatever the file system says.
pub(crate) fn make(folder: &Path, files: &Files, one_in: &str, seed: u64) -> Result<()> {
    let one_in: usize = one_in.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
        Error::invalid(format!("files: one in '{one_in}': not a number from 1 on"))
    })?;
    let mut random = Random(seed);
    let mut sizes = Vec::new();
    for kind in &files.kinds {
        let [least, largest] = kind.bytes;
        let span = largest.saturating_sub(least) + 1;
        let count = (kind.count / one_in).max(1);
        sizes.extend((0..count).map(|_| (random.next(), least + random.next() % span)));
    }
    sizes.sort_unstable();
    let mut bytes = Vec::new();
    for (at, (_, size)) in sizes.into_iter().enumerate() {
        let below = folder.join(format!("{:04}", at / files.per_folder.max(1)));
        let path = below.join(format!("image-{at:06}.jpg"));
        bytes.clear();
        while (bytes.len() as u64) < size {
            bytes.extend_from_slice(&random.next().to_le_bytes());
        }
        bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        let written = fs::create_dir_all(&below).and_then(|()| fs::write(&path, &bytes));
        written
            .map_err(Error::from)
            .within(|| path.display().to_string())?;
    }
    Ok(())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}
