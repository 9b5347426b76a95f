//! Volumes that are rescued: each becomes an image file.
//!
//! # Invariants
//! An image is as long as the volume; what nothing was written to, or what cannot be read, is a hole in it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, Result};
use dmu::{Dnode, Objset};
use phys::znode::{ZVOL_OBJ, ZVOL_ZAP_OBJ};
use rustix::fs::OFlags;

use super::Run;
use super::host_tree::HostFile;
use super::salvage::{self, Left, Salvage};
use super::tree::Content;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The contents of a volume.
struct Volume {
    data: Arc<Dnode>,
    size: u64,
}

impl Volume {
    fn open(objset: &Arc<Objset>) -> Result<Volume> {
        let size = zap::lookup_u64(objset, ObjectId(ZVOL_ZAP_OBJ), "size")?;
        let size = size.ok_or_else(|| Error::corrupt("the volume has no size"))?;
        let data = objset.hold(ObjectId(ZVOL_OBJ))?;
        Ok(Volume { data, size })
    }
}

fn read_only() -> Error {
    Error::new(ErrorKind::ReadOnly, "a volume that is rescued is read")
}

impl Content for Volume {
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.data.read(offset, out)?;
        Ok(out.len())
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<()> {
        Err(read_only())
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let start = self.data.next_data(offset)?;
        let Some(start) = start.filter(|start| *start < end) else {
            return Ok(None);
        };
        Ok(Some((start, self.data.next_hole(start)?.min(end))))
    }

    fn set_size(&mut self, _: u64) -> Result<()> {
        Err(read_only())
    }
}

/// Copies a volume to an image file, unless an earlier run has.
///
/// # Errors
/// Those of writing.
pub(super) fn save(
    objset: &Arc<Objset>,
    image: &Path,
    name: &str,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<Left> {
    match Volume::open(objset) {
        Ok(volume) => save_data((volume.data, volume.size), image, name, salvage, run),
        Err(error) => Ok(Left::Gone(error.to_string())),
    }
}

/// Copies so many bytes of an object to a file.
///
/// # Errors
/// Those of writing.
pub(super) fn save_data(
    (data, size): (Arc<Dnode>, u64),
    image: &Path,
    name: &str,
    salvage: &mut Salvage,
    run: &mut Run,
) -> Result<Left> {
    let mut volume = Volume { data, size };
    let shown = || image.display().to_string();
    let folder = image.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder.map_err(Error::from).within(shown)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    let no_link = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = no_link.open(image).map_err(Error::from).within(shown)?;
    let mut file = HostFile(file);
    run.show_progress(true);
    let (shape, bar) = ((volume.size, volume.data.blksz()), &run.bar);
    let mut piece = vec![0; PIECE_BYTES];
    let done = |bytes| bar.inc(bytes);
    let lost = salvage::contents((&mut volume, &mut file), shape, &mut piece, done);
    salvage.lost = lost.within(|| name.to_owned())?;
    Ok(salvage.left(volume.size))
}
