//! Images made by OpenZFS; `tests/golden/README.md` says how.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use geom::Provider;
use ram::Memory;

/// Bytes that are checked for zeros, and written, at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The image of this name on a disk in memory.
///
/// # Panics
/// When there is no such image.
#[must_use]
pub fn golden(name: &str) -> Arc<dyn Provider> {
    let bytes = bytes(name);
    let disk = Memory::new(format!("/{name}"), bytes.len() as u64);
    fill(&disk, &bytes);
    Arc::new(disk)
}

/// The disks of a pool of several, whose images follow each other.
///
/// # Panics
/// When there is no such image.
#[must_use]
pub fn disks(name: &str, count: usize) -> Vec<Arc<dyn Provider>> {
    let bytes = bytes(name);
    let image = |(n, image): (usize, &[u8])| {
        let disk = Memory::new(format!("/{name}-{n}"), image.len() as u64);
        fill(&disk, image);
        Arc::new(disk) as Arc<dyn Provider>
    };
    let images = bytes.chunks(bytes.len() / count);
    images.enumerate().map(image).collect()
}

/// The bytes of the image of this name.
///
/// # Panics
/// When there is no such image.
#[must_use]
pub fn bytes(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}.img.gz", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut bytes = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes);
    unpacked.unwrap_or_else(|e| panic!("{path}: {e}"));
    bytes
}

/// Writes those chunks of an image that are not all zeros to an empty disk.
///
/// # Panics
/// When a write fails.
pub fn fill(disk: &dyn Provider, bytes: &[u8]) {
    for (offset, chunk) in (0..).step_by(CHUNK_BYTES).zip(bytes.chunks(CHUNK_BYTES)) {
        if chunk.iter().any(|byte| *byte != 0) {
            disk.write(offset, chunk)
                .unwrap_or_else(|e| panic!("{}: {e}", disk.name()));
        }
    }
}

/// The only disk of a pool, whose image is in a file.
///
/// # Panics
/// When it does not open.
#[must_use]
pub fn file(path: &Path) -> Vec<Arc<dyn Provider>> {
    let disk = geom::disk::open(path, geom::disk::OpenMode::ReadWrite);
    vec![disk.unwrap_or_else(|e| panic!("{}: {e}", path.display()))]
}

/// What is left of devices without each set of at most `most` of them, and which are lost.
pub fn without_any(
    devices: &[Arc<dyn Provider>],
    most: u32,
) -> impl Iterator<Item = (Vec<Arc<dyn Provider>>, Vec<usize>)> {
    let count = devices.len();
    let sets = (0u32..1 << count).filter(move |bits| bits.count_ones() <= most);
    sets.map(move |bits| {
        let (lost, left): (Vec<usize>, Vec<usize>) = (0..count).partition(|n| bits >> n & 1 == 1);
        let left = left.into_iter().map(|n| devices[n].clone());
        (left.collect(), lost)
    })
}
