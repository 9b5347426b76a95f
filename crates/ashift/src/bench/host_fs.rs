//! File systems of the host's kernel on image files, and commands whose output only matters if they fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::{Context, Error, ErrorKind, Result};
use tempfile::TempDir;

/// Those that the other side may be.
pub(super) const KINDS: [&str; 3] = ["btrfs", "ext4", "xfs"];

/// A mounted file system; unmounted on drop.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// What is mounted at `place`.
    pub(super) fn at(place: &Path) -> Mounted {
        Mounted(place.to_owned())
    }

    /// A new file system on an image.
    pub(super) fn new(kind: &str, image: &Path, place: &Path) -> Result<Mounted> {
        let force = if kind == "ext4" { "-F" } else { "-f" };
        let mkfs = format!("mkfs.{kind}");
        silent(Command::new(mkfs).args(["-q", force]).arg(image))?;
        Mounted::again(image, place)
    }

    /// The file system that is on an image.
    pub(super) fn again(image: &Path, place: &Path) -> Result<Mounted> {
        fs::create_dir_all(place)?;
        silent(
            Command::new("mount")
                .args(["-o", "loop"])
                .args([image, place]),
        )?;
        Ok(Mounted::at(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// A folder for images in `dir`, or in the host's temporary folder; removed on drop.
pub(super) fn folder(dir: Option<String>) -> Result<TempDir> {
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::Builder::new()
        .prefix("ashift-bench-")
        .tempdir_in(&dir)
        .map_err(Error::from)
        .within(|| dir.display().to_string())
}

/// A new, empty image.
pub(super) fn image(path: &Path, bytes: u64) -> Result<()> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    fs::File::create(path)?.set_len(bytes)?;
    Ok(())
}

/// Makes the host write back its dirty data.
pub(super) fn settle() {
    rustix::fs::sync();
}

/// Runs a command.
///
/// # Errors
/// What it printed on stderr, unless it ended well.
pub(super) fn silent(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(Error::from)
        .within(|| name.clone())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(
        ErrorKind::Io,
        format!("{name} ended with {}: {}", output.status, text.trim()),
    ))
}
