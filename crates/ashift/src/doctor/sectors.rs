//! A disk as it would be with sectors of another size: to find a partition table that was made where it showed those.

use base::{Error, ErrorKind, Result};
use geom::{Command, Provider, Shape};
use gpart::{Scheme, Table};

/// Sectors that disks and USB bridges show.
const SIZES: [u32; 2] = [512, 4096];

/// Only for reading.
struct AsSectors<'a> {
    below: &'a dyn Provider,
    sectorsize: u32,
}

impl Provider for AsSectors<'_> {
    fn name(&self) -> &str {
        self.below.name()
    }

    fn shape(&self) -> Shape {
        let mediasize = self.below.mediasize();
        let whole = mediasize - mediasize % u64::from(self.sectorsize);
        Shape::new(whole, self.sectorsize)
    }

    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let Command::Read(buf) = command else {
            let text = format!("{}: read only", self.name());
            return Err(Error::new(ErrorKind::ReadOnly, text));
        };
        let sector = u64::from(self.below.sectorsize());
        let from = offset - offset % sector;
        let end = offset + buf.len() as u64;
        let mut whole =
            vec![0; usize::try_from(end.next_multiple_of(sector) - from).expect("a table")];
        self.below.read(from, &mut whole)?;
        let skip = usize::try_from(offset - from).expect("less than a sector");
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }
}

/// A GPT that counts in sectors of another size.
pub(super) fn table_of_other_sectors(disk: &dyn Provider) -> Option<Table> {
    let others = SIZES.into_iter().filter(|size| *size != disk.sectorsize());
    let mut tables = others.filter_map(|sectorsize| {
        let below = disk;
        Table::read(&AsSectors { below, sectorsize }).ok().flatten()
    });
    tables.find(|table| table.scheme() == Scheme::Gpt)
}
