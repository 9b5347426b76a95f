//! Comparing two trees byte for byte.

use base::Result;
use indicatif::ProgressBar;
use zpl::FileType;

use super::tree::{Handle, Tree};

/// Bytes that are compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Paths that differ or exist on one side only.
    pub(crate) differences: Vec<String>,
}

/// Compares everything below two directories: names, types, owners, modes, times, bytes.
pub(crate) fn compare(
    a: (&dyn Tree, &Handle),
    b: (&dyn Tree, &Handle),
    path: &str,
    bar: &ProgressBar,
    found: &mut Compared,
) -> Result<()> {
    let (x, y) = (a.0.enter(a.1)?, b.0.enter(b.1)?);
    let (a, b) = ((a.0, &x), (b.0, &y));
    let (left, right) = (a.0.list(a.1), b.0.list(b.1));
    left.outcome?;
    right.outcome?;
    let (mut left, mut right) = (left.names, right.names);
    for name in left.iter().filter(|name| !right.contains(name)) {
        found
            .differences
            .push(format!("{path}/{}", String::from_utf8_lossy(name)));
    }
    for name in right.iter().filter(|name| !left.contains(name)) {
        found
            .differences
            .push(format!("{path}/{}", String::from_utf8_lossy(name)));
    }
    left.retain(|name| right.contains(name));
    right.clear();
    for name in left {
        let shown = format!("{path}/{}", String::from_utf8_lossy(&name));
        let (x, y) = (a.0.child(a.1, &name)?, b.0.child(b.1, &name)?);
        let (meta, other) = (a.0.meta(&x)?, b.0.meta(&y)?);
        found.files += 1;
        let is_same = meta.file_type == other.file_type
            && meta.mode == other.mode
            && (meta.uid, meta.gid) == (other.uid, other.gid)
            && meta.mtime == other.mtime;
        let is_same = is_same
            && match meta.file_type {
                FileType::Directory => {
                    compare((a.0, &x), (b.0, &y), &shown, bar, found)?;
                    true
                }
                FileType::Regular => {
                    found.bytes += meta.size;
                    meta.size == other.size && same_bytes((a.0, &x), (b.0, &y), meta.size, bar)?
                }
                FileType::Symlink => a.0.readlink(&x)? == b.0.readlink(&y)?,
                _ => meta.rdev == other.rdev,
            };
        if !is_same {
            found.differences.push(shown);
        }
    }
    Ok(())
}

fn same_bytes(
    a: (&dyn Tree, &Handle),
    b: (&dyn Tree, &Handle),
    size: u64,
    bar: &ProgressBar,
) -> Result<bool> {
    let (mut from, mut to) = (a.0.open(a.1, false)?, b.0.open(b.1, false)?);
    let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    let mut at = 0;
    while at < size {
        let [left, right] = &mut pieces;
        let read = from.read_at(at, left)?;
        if read == 0 || to.read_at(at, right)? != read || left[..read] != right[..read] {
            return Ok(false);
        }
        at += read as u64;
        bar.inc(read as u64);
    }
    Ok(true)
}
