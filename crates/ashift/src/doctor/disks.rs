//! Facts of disks and images.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use base::{ErrorKind, Result};
use doctor::{Disk, Partitions};
use geom::disk::OpenMode;
use gpart::Table;
use machine::World;

use super::sectors::table_of_other_sectors;
use crate::identify;

/// The disk, or the image, that a name leads to: of a partition the disk that it is on.
pub(super) fn disk_of(world: &World, name: &str) -> Option<String> {
    let lowest = world.lowest(name)?;
    if world.is_machine() {
        return Some(lowest);
    }
    let path = fs::canonicalize(&lowest).unwrap_or_else(|_| PathBuf::from(&lowest));
    Some(whole_disk(&path).unwrap_or(path).display().to_string())
}

/// The disk of a partition that Linux has made a device of.
fn whole_disk(path: &Path) -> Option<PathBuf> {
    let entry = Path::new("/sys/class/block").join(path.file_name()?);
    let is_device = fs::metadata(path).ok()?.file_type().is_block_device();
    if !is_device || !entry.join("partition").exists() {
        return None;
    }
    let disk = fs::canonicalize(entry).ok()?;
    Some(Path::new("/dev").join(disk.parent()?.file_name()?))
}

/// A disk and what is on it: where labels of pools may be.
pub(super) fn places(world: &World, disk: &str) -> Vec<String> {
    let mut places = vec![disk.to_owned()];
    if world.is_machine() {
        let providers = world.providers().unwrap_or_default().into_iter();
        let names = providers.map(|info| info.name);
        places.extend(
            names.filter(|name| name != disk && world.lowest(name).as_deref() == Some(disk)),
        );
        return places;
    }
    // Partitions of an image are looked at with it.
    let name = Path::new(disk).file_name().unwrap_or_default();
    let entries = fs::read_dir(Path::new("/sys/class/block").join(name));
    let entries = entries.into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    let devices = partitions.map(|entry| Path::new("/dev").join(entry.file_name()));
    places.extend(devices.map(|path| path.display().to_string()));
    places
}

/// Everything that is known of a disk.
pub(super) fn facts(world: &World, name: &str) -> Result<Disk> {
    let topology = identify::topology(world, name)?;
    let is_image = !world.is_machine() && Path::new(name).is_file();
    let provider = world.open(name, OpenMode::Inspect)?;
    let partitions = match Table::read(&*provider) {
        Ok(None) => Partitions::None,
        Ok(Some(table)) => Partitions::Table(Box::new(table)),
        Err(error) if error.kind() == ErrorKind::Corrupt => Partitions::Lost(error.to_string()),
        Err(error) => return Err(error),
    };
    // An image may be of a disk with other sectors, and is right there.
    let is_to_be_found = !is_image && !matches!(partitions, Partitions::Table(_));
    let other = is_to_be_found.then(|| table_of_other_sectors(&*provider));
    let partitions = match other.flatten() {
        Some(other) => Partitions::OtherSectors(Box::new(other)),
        None => partitions,
    };
    Ok(Disk {
        name: name.to_owned(),
        topology,
        is_image,
        partitions,
    })
}

/// All disks: drives of a machine, or disks of this host.
pub(super) fn all(world: &World) -> Result<Vec<String>> {
    let names = identify::disk_names(world)?.into_iter();
    Ok(match world.is_machine() {
        true => names.collect(),
        false => names
            .map(|name| format!("/dev/{name}"))
            .filter(|path| is_medium(path))
            .collect(),
    })
}

/// Whether it is a device with a medium in it.
fn is_medium(path: &str) -> bool {
    geom::topology::Topology::of(Path::new(path)).map_or(true, |topology| topology.mediasize > 0)
}
