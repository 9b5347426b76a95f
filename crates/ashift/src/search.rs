//! Where pools are looked for.
//!
//! # Source
//! OpenZFS lib/libzutil/zutil_import.c.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use geom::disk::OpenMode;
use geom::{Namespace, Provider};
use machine::World;

use crate::failure::Fail;

/// The devices at these places, or all, without any.
///
/// # Errors
/// What the host says of a place that is there.
pub(crate) fn devices(world: &World, places: &[&str]) -> Result<Vec<Arc<dyn Provider>>, Fail> {
    if world.is_machine() {
        return in_machine(world, places);
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut layers: Vec<String> = Vec::new();
    for place in places {
        let path = std::path::absolute(place).unwrap_or_else(|_| PathBuf::from(place));
        let failed = |e: std::io::Error| format!("cannot resolve path '{place}': {}", plain(&e));
        let metadata = match std::fs::metadata(&path) {
            Err(_) if world.open(place, OpenMode::Inspect).is_ok() => {
                layers.push(world.canonical(place));
                continue;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if !metadata.is_dir() {
            paths.push(path);
            continue;
        }
        let entries = std::fs::read_dir(&path).map_err(failed)?;
        paths.extend(entries.flatten().map(|entry| entry.path()));
        let here = |name: &String| Path::new(name).parent() == Some(&*path);
        layers.extend(world.layers().into_iter().map(|l| l.name).filter(here));
    }
    if places.is_empty() {
        paths = block_devices();
    }
    paths.sort();
    paths.dedup();
    let is_candidate = |path: &&PathBuf| {
        std::fs::metadata(path).is_ok_and(|m| {
            let is_block = std::os::unix::fs::FileTypeExt::is_block_device(&m.file_type());
            is_block || m.is_file() && m.len() >= phys::label::SPA_MINDEVSIZE
        })
    };
    let names = paths.iter().filter(is_candidate);
    let names: Vec<String> = names.map(|path| path.display().to_string()).collect();
    // The partitions of a disk have names of their own on the host, those of an image have not.
    let is_image = |name: &&String| Path::new(name).is_file();
    let images = names.iter().filter(is_image);
    let inside: Vec<String> = images.flat_map(|name| world.partitions(name)).collect();
    let names = names.into_iter().chain(inside).chain(layers);
    let open_one = |name: String| Namespace::open(world, &name, OpenMode::Inspect).ok();
    Ok(names.filter_map(open_one).collect())
}

/// The providers of a machine; a place is one, or a folder below its `/dev`.
fn in_machine(world: &World, places: &[&str]) -> Result<Vec<Arc<dyn Provider>>, Fail> {
    let mut names = world.names()?;
    if !places.is_empty() {
        let is_below = |name: &str, place: &str| {
            let folder = place.trim_end_matches('/');
            let is_in = name
                .strip_prefix(folder)
                .is_some_and(|r| r.starts_with('/'));
            is_in || world.canonical(name) == world.canonical(place)
        };
        names.retain(|name| places.iter().any(|place| is_below(name, place)));
    }
    let open_one = |name: &String| Namespace::open(world, name, OpenMode::Inspect).ok();
    Ok(names.iter().filter_map(open_one).collect())
}

/// An error of the host without its number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or("").to_owned()
}

fn block_devices() -> Vec<PathBuf> {
    let Ok(text) = std::fs::read_to_string("/proc/partitions") else {
        return Vec::new();
    };
    let names = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split_whitespace().nth(3));
    names.map(|name| Path::new("/dev").join(name)).collect()
}
