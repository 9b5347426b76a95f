//! Devices that no partition table says where they are, for the commands that look for what is left of a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::Guid;
use geom::Provider;
use geom::part::Part;
use vdev::stray::{Stray, find_strays};

use crate::progress::progress;

/// A device and the disk that it is on.
type OnDisk = (Arc<dyn Provider>, Stray);

/// Reads whole disks for the labels of devices that are not among these providers, and says on stderr where they are.
pub(crate) fn find(program: &str, providers: &[Arc<dyn Provider>]) -> Vec<Arc<dyn Provider>> {
    let names: Vec<&str> = providers.iter().map(|provider| provider.name()).collect();
    let is_whole = |disk: &&Arc<dyn Provider>| {
        let name = disk.name();
        !names.iter().any(|other| is_partition_of(name, other))
    };
    let disks: Vec<_> = providers.iter().filter(is_whole).cloned().collect();
    let bar = progress(Some(disks.iter().map(|disk| disk.mediasize()).sum()), true);
    bar.set_message("looking for labels");
    let found = rt::parallel_map(disks, |disk| {
        let mut before = 0;
        let strays = find_strays(&*disk, &mut |bytes| {
            bar.inc(bytes - before);
            before = bytes;
        });
        (disk, strays)
    });
    bar.finish_and_clear();
    let known = providers.iter().filter_map(|p| vdev::label::guid(&**p));
    let known: BTreeSet<Guid> = known.collect();
    let places = found.into_iter().flat_map(|(disk, strays)| {
        let place = move |stray| (Arc::clone(&disk), stray);
        strays.into_iter().map(place)
    });
    let places = best(places.filter(|(_, stray)| !known.contains(&stray.guid)));
    places
        .into_iter()
        .filter_map(|place| part(program, place))
        .collect()
}

/// One place for each device: where most labels are, or the newest.
fn best(places: impl Iterator<Item = OnDisk>) -> Vec<OnDisk> {
    let mut best: BTreeMap<Guid, OnDisk> = BTreeMap::new();
    let rank = |stray: &Stray| (stray.labels, stray.txg);
    for place in places {
        let guid = place.1.guid;
        if best
            .get(&guid)
            .is_none_or(|other| rank(&other.1) < rank(&place.1))
        {
            best.insert(guid, place);
        }
    }
    best.into_values().collect()
}

fn part(program: &str, (disk, stray): OnDisk) -> Option<Arc<dyn Provider>> {
    let sector = u64::from(disk.sectorsize());
    let len = base::align_down(stray.len, sector);
    let (first, sectors) = (stray.start / sector, len / sector);
    let of = match &*stray.pool {
        "" => "a spare or cache device".to_owned(),
        pool => format!("a device of pool '{pool}'"),
    };
    let end = match stray.has_end {
        true => format!("{sectors} sectors long"),
        false => "its end is not known".to_owned(),
    };
    eprintln!(
        "ashift {program}: {}: {of} begins at sector {first}, {end}",
        disk.name()
    );
    let name = format!("{}@{first}", disk.name());
    // One that does not begin at a sector of this disk cannot have been written through it.
    Part::new(name, disk, stray.start, len)
        .ok()
        .map(|part| Arc::new(part) as _)
}

/// Whether this is the name of a partition of a disk with that other name: `sda1` and `sda`, `ada0p2` and `ada0`,
/// `nvme0n1p1` and `nvme0n1`, `wwn-0x5-part1` and `wwn-0x5`.
fn is_partition_of(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk).filter(|rest| !rest.is_empty()) else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let after = |prefix: &str| rest.strip_prefix(prefix).is_some_and(is_number);
    let ends_with_digit = disk.ends_with(|last: char| last.is_ascii_digit());
    is_number(rest) && !ends_with_digit || ["p", "s", "-part"].iter().any(|prefix| after(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_from_other_disks() {
        for (name, disk, is_part) in [
            ("/dev/sda1", "/dev/sda", true),
            ("/dev/sda", "/dev/sda", false),
            ("/dev/sdaa", "/dev/sda", false),
            ("/dev/dm-10", "/dev/dm-1", false),
            ("/dev/nvme0n1p1", "/dev/nvme0n1", true),
            ("ada0p2", "ada0", true),
            ("ada0s1", "ada0", true),
            ("ada0.nop", "ada0", false),
            ("ada10", "ada1", false),
            ("/dev/disk/by-id/ata-x-part3", "/dev/disk/by-id/ata-x", true),
        ] {
            assert_eq!(is_partition_of(name, disk), is_part, "{name} {disk}");
        }
    }
}
