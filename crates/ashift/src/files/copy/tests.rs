//! Files that change while they are copied.

use super::*;

/// A file in memory; before `shrinks_at` is read, it is cut off there.
struct Bytes {
    bytes: Vec<u8>,
    shrinks_at: Option<usize>,
}

impl Content for Bytes {
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if let Some(at) = self.shrinks_at
            && offset as usize + out.len() > at
        {
            self.bytes.truncate(at);
        }
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.bytes.resize(offset as usize, 0);
        self.bytes.extend_from_slice(data);
        Ok(())
    }
    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let end = end.min(self.bytes.len() as u64);
        let is_data = |at: &u64| self.bytes[*at as usize] != 0;
        let start = (offset..end).find(is_data);
        Ok(start.map(|start| (start, end)))
    }
    fn set_size(&mut self, size: u64) -> Result<()> {
        self.bytes.resize(size as usize, 0);
        Ok(())
    }
}

fn copied(bytes: Vec<u8>, shrinks_at: Option<usize>) -> (Vec<u8>, Option<u64>) {
    let meta = Meta {
        file_type: FileType::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: bytes.len() as u64,
        rdev: 0,
        links: 1,
        identity: (0, 0),
        used_bytes: 0,
        blksz: 10,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        crtime: None,
    };
    let mut from = Bytes { bytes, shrinks_at };
    let mut to = Bytes {
        bytes: Vec::new(),
        shrinks_at: None,
    };
    let outcome = content((&mut from, &mut to), &meta, &mut [0; 10], |_| ());
    let failed_at = outcome.err().map(|error| match error {
        Incomplete::Read(error, _) => error.offset,
        Incomplete::Write(error) => panic!("{error}"),
    });
    (to.bytes, failed_at)
}

#[test]
fn a_file_that_shrinks_while_it_is_copied_is_incomplete() {
    assert_eq!(copied(vec![7; 35], None), (vec![7; 35], None));
    assert_eq!(copied(vec![7; 35], Some(20)), (vec![7; 20], Some(20)));
    assert_eq!(copied(vec![7; 35], Some(23)), (vec![7; 23], Some(23)));
}

#[test]
fn a_hole_at_the_end_is_copied_unless_it_is_gone() {
    assert_eq!(copied(vec![0; 30], None), (vec![0; 30], None));
    let (left, failed_at) = copied(vec![0; 30], Some(20));
    assert_eq!((left.len(), failed_at), (0, Some(0)));
}
