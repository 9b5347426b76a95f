//! Room on disks, before work that would fail without it in a thousand ways.

use std::path::Path;

/// Bytes that a build of everything takes, with its fuzz targets: 7.2 GB were measured.
const BUILD_BYTES: u64 = 8_000_000_000;
/// Bytes of what helps cargo to build again: 5 GB were measured.
const INCREMENTAL_BYTES: u64 = 6_000_000_000;
/// Bytes that the tests take for a while, most of them images of disks: 2 GB were seen.
const IMAGES_BYTES: u64 = 4_000_000_000;

/// Says what is missing for a test run: the build goes below `target`, images into the folder for temporary files.
///
/// # Errors
/// When there is too little room, with how much there is and what to do.
pub(crate) fn check(target: &Path) -> Result<(), String> {
    let is_incremental = std::env::var_os("CARGO_INCREMENTAL").is_none_or(|value| value != "0");
    let build = match (target.join("debug").exists(), is_incremental) {
        (true, _) => 0,
        (false, true) => BUILD_BYTES + INCREMENTAL_BYTES,
        (false, false) => BUILD_BYTES,
    };
    let above = target.ancestors().find(|folder| folder.exists());
    let above = above.unwrap_or(Path::new("/"));
    let temporary = std::env::temp_dir();
    let images = match is_one_file_system(above, &temporary) {
        true => IMAGES_BYTES,
        false => 0,
    };
    lacks(above, free(above)?, build + images)?;
    lacks(&temporary, free(&temporary)?, IMAGES_BYTES)
}

fn lacks(folder: &Path, free: u64, needed: u64) -> Result<(), String> {
    if free >= needed {
        return Ok(());
    }
    let gb = |bytes: u64| bytes / 1_000_000_000;
    Err(format!(
        "{}: the tests need {} GB of free space here, and there are {} GB: make room, or name another folder \
         in CARGO_TARGET_DIR and TMPDIR",
        folder.display(),
        gb(needed),
        gb(free)
    ))
}

/// Bytes that anyone may still write.
fn free(folder: &Path) -> Result<u64, String> {
    let stat = rustix::fs::statvfs(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn is_one_file_system(a: &Path, b: &Path) -> bool {
    let device = |folder: &Path| rustix::fs::stat(folder).map(|stat| stat.st_dev).ok();
    device(a) == device(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_told_in_gigabytes() {
        let folder = Path::new("/some");
        assert_eq!(lacks(folder, 5_000_000_000, 5_000_000_000), Ok(()));
        let told = lacks(folder, 3_900_000_000, 14_000_000_000).unwrap_err();
        assert!(
            told.contains("need 14 GB") && told.contains("are 3 GB"),
            "{told}"
        );
        assert!(free(&std::env::temp_dir()).unwrap() > 0);
    }
}
