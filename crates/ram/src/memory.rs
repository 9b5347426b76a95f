//! RAM disks.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use base::Result;
use geom::{Command, Provider, Shape, check_range, write_each};
use rt::RwLock;

use crate::sparse::SparseBytes;

/// A RAM disk. Unwritten ranges read as zeros and take no memory.
pub struct Memory {
    name: String,
    mediasize: u64,
    sectorsize: u32,
    stripesize: u32,
    bytes: RwLock<SparseBytes>,
}

impl Memory {
    /// A RAM disk with sectors of 512 bytes.
    #[must_use]
    pub fn new(name: impl Into<String>, mediasize: u64) -> Self {
        Self::with_sectors(name, mediasize, 512, 512)
    }

    /// A RAM disk that claims this logical and this physical sector size.
    #[must_use]
    pub fn with_sectors(
        name: impl Into<String>,
        mediasize: u64,
        sectorsize: u32,
        stripesize: u32,
    ) -> Self {
        assert!(
            sectorsize.is_power_of_two(),
            "a sector of {sectorsize} bytes"
        );
        assert!(
            stripesize.is_power_of_two(),
            "a physical sector of {stripesize} bytes"
        );
        assert!(
            stripesize >= sectorsize,
            "a physical sector below the logical one"
        );
        Self::with_bytes(
            name.into(),
            mediasize,
            (sectorsize, stripesize),
            SparseBytes::default(),
        )
    }

    fn with_bytes(
        name: String,
        mediasize: u64,
        (sectorsize, stripesize): (u32, u32),
        bytes: SparseBytes,
    ) -> Self {
        Memory {
            name,
            mediasize,
            sectorsize,
            stripesize,
            bytes: RwLock::new(bytes),
        }
    }

    /// Another RAM disk with the same bytes.
    #[must_use]
    pub fn snapshot(&self) -> Memory {
        self.grown_to(self.mediasize)
    }

    /// A larger RAM disk that begins with the same bytes.
    #[must_use]
    pub fn grown_to(&self, mediasize: u64) -> Memory {
        assert!(mediasize >= self.mediasize, "disks do not shrink");
        Self::with_bytes(
            self.name.clone(),
            mediasize,
            (self.sectorsize, self.stripesize),
            self.bytes.read().clone(),
        )
    }

    /// Writes the bytes into a (sparse) file of the host.
    ///
    /// # Errors
    /// What the host says.
    pub fn save(&self, path: &Path) -> Result<()> {
        let save = || -> io::Result<()> {
            let mut file = std::fs::File::create(path)?;
            file.set_len(self.mediasize)?;
            for (offset, bytes) in self.bytes.read().written() {
                let len = usize::try_from(self.mediasize - offset).unwrap_or(usize::MAX);
                file.seek(SeekFrom::Start(offset))?;
                file.write_all(&bytes[..len.min(bytes.len())])?;
            }
            Ok(())
        };
        Ok(save()?)
    }
}

impl Provider for Memory {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        Shape {
            stripesize: self.stripesize,
            keeps_unflushed: true,
            can_delete: true,
            ..Shape::new(self.mediasize, self.sectorsize)
        }
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        check_range(self, offset, command.cmd().1)?;
        match command {
            Command::Read(buf) => self.bytes.read().read(offset, buf),
            Command::Write(pieces) => {
                let mut bytes = self.bytes.write();
                return write_each(offset, pieces, |at, piece| {
                    bytes.write(at, piece);
                    Ok(())
                });
            }
            Command::Flush => {}
            Command::Delete { len } => self.bytes.write().erase(offset, len),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Buf, ErrorKind};
    use geom::{Bio, BioOp};
    use std::sync::mpsc;

    #[test]
    fn refuses_what_is_off_its_sectors() {
        let disk = Memory::with_sectors("md0", 1 << 20, 4096, 4096);
        for (offset, len) in [
            (512, 4096),
            (0, 512),
            (1 << 20, 4096),
            (u64::MAX - 4095, 8192),
        ] {
            let error = disk.read(offset, &mut vec![0; len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        disk.write(4096, &[7; 8192]).unwrap();
        let mut back = [0; 4096];
        disk.read(8192, &mut back).unwrap();
        assert_eq!(back, [7; 4096]);
    }

    #[test]
    fn queued_commands_reach_the_blocking_side() {
        let disk = Memory::new("md0", 1 << 20);
        let (sender, receiver) = mpsc::channel();
        let submit = |op, offset| {
            let sender = sender.clone();
            let done = Box::new(move |result| sender.send(result).unwrap());
            disk.submit(Bio { op, offset, done });
            receiver.recv().unwrap()
        };
        submit(BioOp::Write(Buf::copy_of(&[3; 1024])), 512).unwrap();
        submit(BioOp::Flush, 0).unwrap();
        submit(BioOp::Delete { len: 512 }, 512).unwrap();
        let bytes = submit(BioOp::Read { len: 1024 }, 512).unwrap().into_read();
        assert_eq!((bytes[0], bytes[512]), (0, 3));
    }

    #[test]
    fn saves_a_file_of_its_size() {
        let disk = Memory::new("md0", 100_352);
        disk.write(99_840, &[9; 512]).unwrap();
        let path = std::env::temp_dir().join(format!("ashift-mem-{}", std::process::id()));
        disk.save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes.len(), 100_352);
        assert_eq!((bytes[99_839], bytes[99_840]), (0, 9));
    }
}
