//! Replays a space map whose entries are the input into a metaslab of the shape that its first
//! bytes pick.
#![no_main]

use base::{Error, MetaslabId, ObjectId, Result, Txg, VdevId};
use libfuzzer_sys::fuzz_target;
use metaslab::{SpaceMapExtent, SpaceMapObject, SpaceMapStore, load_free};
use phys::SpaceMapPhys;

/// One space map that can only be read.
struct Bytes<'a>(&'a [u8]);

impl SpaceMapStore for Bytes<'_> {
    fn create(&self, _: Txg, _: VdevId, _: MetaslabId) -> Result<SpaceMapObject> {
        Err(Error::invalid("read-only"))
    }
    fn open(&self, _: ObjectId) -> Result<(SpaceMapObject, SpaceMapPhys)> {
        Err(Error::invalid("read-only"))
    }
    fn read(&self, _: ObjectId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let from = self.0.get(offset as usize..).unwrap_or_default();
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        buf[len..].fill(0);
        Ok(())
    }
    fn write(&self, _: Txg, _: ObjectId, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::invalid("read-only"))
    }
    fn set_phys(&self, _: Txg, _: ObjectId, _: &SpaceMapPhys) -> Result<()> {
        Err(Error::invalid("read-only"))
    }
    fn truncate(&self, _: Txg, _: VdevId, _: MetaslabId, _: ObjectId) -> Result<SpaceMapObject> {
        Err(Error::invalid("read-only"))
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[shift, units, tail], entries)) = input.split_first_chunk() else {
        return;
    };
    let shift = 9 + u32::from(shift % 8);
    let size = (u64::from(units) + 1) << (shift + 4);
    let extent = SpaceMapExtent {
        start: size * 3,
        size,
        shift,
    };
    let object = SpaceMapObject {
        object: ObjectId(7),
        block_bytes: 4096,
        has_histogram: false,
    };
    let length = (entries.len() + usize::from(tail % 9)) as u64;
    if let Ok(free) = load_free(&Bytes(entries), &object, length, &extent) {
        assert!(
            free.space() <= size,
            "{} of {size} bytes are free",
            free.space()
        );
    }
});
