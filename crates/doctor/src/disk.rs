//! A disk: what its sectors are, and what is on it.

use geom::topology::Topology;
use gpart::Table;

use crate::table::{examine_table, of_other_sectors};
use crate::{Finding, Severity};

/// What is known of a disk, an image of one, or a layer on one.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What commands call it.
    pub name: String,
    /// What the host says of it.
    pub topology: Topology,
    /// It is an image file: nothing is known of the sectors that it will be copied to.
    pub is_image: bool,
    /// The partition table.
    pub partitions: Partitions,
}

/// A partition table, as far as there is one.
#[derive(Clone, Debug)]
pub enum Partitions {
    /// There is none.
    None,
    /// It was read.
    Table(Box<Table>),
    /// Both copies of a GPT are bad; why.
    Lost(String),
    /// There is a GPT that counts in sectors of another size than the disk's.
    OtherSectors(Box<Table>),
}

/// The unit that a disk can write without reading first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sector {
    /// Its size.
    pub bytes: u32,
    /// How that is known.
    pub known: Known,
}

/// How the sector of a disk is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The disk says so.
    Reported,
    /// A list of disks that say less than is true.
    Listed(&'static str),
}

impl Sector {
    /// `4096 bytes`, and who says so.
    pub(crate) fn text(self) -> String {
        match self.known {
            Known::Reported => format!("{} bytes", self.bytes),
            Known::Listed(list) => format!("{} bytes (by the list of {list})", self.bytes),
        }
    }
}

impl Disk {
    /// Its sectors: by a list, if it is known to lie, otherwise as it says. `None` for an image.
    #[must_use]
    pub fn sector(&self) -> Option<Sector> {
        let lie = self.topology.known_lie().or_else(|| self.lie_of_profile());
        match lie {
            Some((bytes, list)) => Some(Sector {
                bytes,
                known: Known::Listed(list),
            }),
            None if self.is_image => None,
            None => Some(Sector {
                bytes: (self.topology.physical_block_size).max(self.topology.logical_block_size),
                known: Known::Reported,
            }),
        }
    }

    /// What the profiles of emulated drives say of this model, if all of them say that it lies.
    fn lie_of_profile(&self) -> Option<(u32, &'static str)> {
        let model = self.topology.model.as_deref()?;
        let of_model = |p: &&std::sync::Arc<drive::Profile>| p.identify.model == model;
        let mut known = drive::profiles().iter().filter(of_model);
        let truth = known
            .clone()
            .map(|p| p.medium.physical_sector_bytes)
            .max()?;
        let lies = |p: &std::sync::Arc<drive::Profile>| {
            p.medium.physical_sector_bytes > p.identify.physical_sector_bytes
        };
        let is_larger = truth > self.topology.physical_block_size;
        (is_larger && known.all(lies)).then_some((truth, "drive profiles"))
    }

    /// `ada0 (WDC WD30EZRX)`
    fn title(&self) -> String {
        match &self.topology.model {
            Some(model) => format!("{} ({model})", self.name),
            None => self.name.clone(),
        }
    }
}

/// What is wrong with a disk and its partition table.
#[must_use]
pub fn examine_disk(disk: &Disk) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(sector) = disk.sector()
        && let Known::Listed(list) = sector.known
    {
        let says = disk.topology.physical_block_size;
        let (title, bytes, shift) = (disk.title(), sector.bytes, sector.bytes.ilog2());
        let what = format!(
            "says that its sectors have {says} bytes; by the list of {list} they have {bytes}"
        );
        let cost = "what believes it places partitions and pools so that each write is read, changed and written again";
        found.push(
            Finding::new((Severity::Note, "lying-disk"), title, what, cost)
                .mend(format!("zpool create -o ashift={shift} …"))
                .mend(format!("gpart add -a {bytes} … {}", disk.name)),
        );
    }
    if disk.topology.alignment_offset < 0 {
        let what = "Linux says that what it is made of cannot be aligned (alignment_offset -1)";
        let cost = "some writes are read, changed and written again, wherever a partition begins";
        found.push(
            Finding::new(
                (Severity::Warning, "misaligned-layer"),
                disk.title(),
                what,
                cost,
            )
            .mend(
                "# make the layer (LVM, md, a partition) again, beginning on a multiple of 1 MiB",
            ),
        );
    }
    match &disk.partitions {
        Partitions::None => {}
        Partitions::Table(table) => found.extend(examine_table(disk, table)),
        Partitions::OtherSectors(table) => found.push(of_other_sectors(disk, table)),
        Partitions::Lost(why) => found.push(
            Finding::new(
                (Severity::Critical, "gpt-lost"),
                &disk.name,
                format!("neither copy of its GPT is good: {why}"),
                "its partitions are not there, and what is in them cannot be reached",
            )
            .mend(format!(
                "ashift zpool import -d {}   # pools need no table if they are on the whole disk",
                disk.name
            ))
            .mend(format!(
                "gpart restore {} < BACKUP   # if there is a `gpart backup` of it",
                disk.name
            )),
        ),
    }
    found
}
