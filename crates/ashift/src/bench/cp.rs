//! `ashift bench cp`: a tree of small files into a pool, beside `cp -a` into a kernel's file system.
//!
//! # What it is
//! Both sides copy the same tree into something fresh: ours into a new pool on an image file, the other one
//! into a new file system on a loop device over an image file in the same folder. Each time is what a user
//! waits for until the copy is on stable storage: `ashift cp -a`, which syncs and closes the pool, and
//! `cp -a` with `sync -f` after it. Creating and mounting do not count. Needs root, for the loop device. Before
//! the first turn and between turns the host writes back its dirty data, so that no turn pays for another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::{Context, Error, ErrorKind, Result};
use serde_json::json;

use super::turns::{median, own_program};
use super::{Words, usage_error};
use crate::failure::Outcome;

/// The ratio to reach: not slower than the other side.
const GOAL: f64 = 1.0;
const FILES_PER_DIRECTORY: u64 = 100;
/// Largest file, in bytes. Sizes are pseudo-random; about 60 % are smaller than a quarter of it.
const SIZE_MAX: u64 = 16 << 10;
/// Bytes of an image beyond what the tree needs.
const ROOM_BYTES: u64 = 2 << 30;

/// `ashift bench cp`
pub(super) fn run(words: &mut Words) -> Outcome {
    let files = words.take_number("files", 50_000)?;
    let runs = words.take_number("runs", 5)?;
    let dir = words.take("dir");
    let kind = words.take("fs").unwrap_or_else(|| "btrfs".into());
    words.check_all_taken()?;
    if !words.operands.is_empty() || !["btrfs", "ext4", "xfs"].contains(&&*kind) {
        return Err(usage_error());
    }
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::Builder::new()
        .prefix("ashift-bench-")
        .tempdir_in(&dir)
        .map_err(Error::from)
        .within(|| dir.display().to_string())?;
    let bench = Bench {
        own: own_program()?,
        folder: folder.path().to_owned(),
        kind,
        image_bytes: files * 2 * SIZE_MAX + ROOM_BYTES,
    };
    let bytes = make_tree(&bench.source(), files)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        theirs.push(bench.theirs()?);
        ours.push(bench.ours()?);
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    let ratio = theirs / ours;
    let kind = &bench.kind;
    if words.is_json {
        let value = json!({
            "ours_seconds": ours, "theirs_seconds": theirs, "theirs": kind, "ratio": ratio,
            "goal": GOAL, "files": files, "bytes": bytes, "runs": runs,
        });
        println!("{value}");
    } else {
        println!(
            "seconds, medians      ours {kind:>9}    {kind}/ours (goal)    {files} files, {bytes} bytes"
        );
        println!("cp -a            {ours:>9.2} {theirs:>9.2} {ratio:>9.2} ({GOAL})");
    }
    Ok(())
}

struct Bench {
    own: PathBuf,
    folder: PathBuf,
    /// The type of the other side's file system.
    kind: String,
    image_bytes: u64,
}

/// A mounted file system; unmounted on drop.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

impl Bench {
    fn source(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// A new, empty image.
    fn image(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if path.exists() {
            fs::remove_file(&path)?;
        }
        fs::File::create(&path)?.set_len(self.image_bytes)?;
        Ok(path)
    }

    /// Seconds of `cp -a` and `sync -f`.
    fn theirs(&self) -> Result<f64> {
        let image = self.image("theirs.img")?;
        let place = self.folder.join("mnt");
        fs::create_dir_all(&place)?;
        let force = if self.kind == "ext4" { "-F" } else { "-f" };
        let mkfs = format!("mkfs.{}", self.kind);
        silent(Command::new(mkfs).args(["-q", force]).arg(&image))?;
        silent(
            Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &place]),
        )?;
        let mounted = Mounted(&place);
        settle();
        let start = rt::now_ns();
        silent(
            Command::new("cp")
                .arg("-a")
                .args([&self.source(), &place.join("tree")]),
        )?;
        silent(Command::new("sync").arg("-f").arg(&place))?;
        let took = rt::now_ns() - start;
        drop(mounted);
        fs::remove_file(&image)?;
        Ok(took as f64 / 1e9)
    }

    /// Seconds of `ashift cp -a`.
    fn ours(&self) -> Result<f64> {
        let image = self.image("ours.img")?;
        let state = self.folder.join("state");
        let own = || {
            let mut own = Command::new(&self.own);
            own.env("ASHIFT_STATE", &state);
            own
        };
        let create = ["zpool", "create", "-O", "mountpoint=none", "bench"];
        silent(own().args(create).arg(&image))?;
        settle();
        let start = rt::now_ns();
        silent(
            own()
                .args(["cp", "-a"])
                .arg(self.source())
                .arg("bench:/tree"),
        )?;
        let took = rt::now_ns() - start;
        silent(own().args(["zpool", "destroy", "-f", "bench"]))?;
        fs::remove_file(&image)?;
        Ok(took as f64 / 1e9)
    }
}

/// Makes the host write back its dirty data.
fn settle() {
    rustix::fs::sync();
}

fn silent(command: &mut Command) -> Result<()> {
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

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ self.0 >> 33;
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 16
    }
}

/// Makes `files` text files, a hundred to a directory; returns their total bytes.
fn make_tree(root: &Path, files: u64) -> Result<u64> {
    const WORDS: [&str; 16] = [
        "pool",
        "vdev",
        "block",
        "let",
        "mut",
        "txg",
        "sync",
        "fn",
        "match",
        "return",
        "uberblock",
        "spa",
        "(",
        ")",
        "{\n",
        "}\n",
    ];
    let mut numbers = Numbers(1);
    let mut total = 0;
    let mut text = String::new();
    let mut folder = root.to_owned();
    for file in 0..files {
        if file % FILES_PER_DIRECTORY == 0 {
            let n = file / FILES_PER_DIRECTORY;
            folder = root.join(format!("group{:03}/dir{:03}", n / 25, n % 25));
            fs::create_dir_all(&folder)?;
        }
        // The product of two numbers: small files are frequent.
        let (a, b) = (numbers.next() % 1024, numbers.next() % 1024);
        let size = ((a * b * SIZE_MAX) >> 20) as usize;
        text.clear();
        while text.len() < size {
            let n = numbers.next();
            text.push_str(WORDS[(n % 16) as usize]);
            text.push_str(&format!(" {:x} ", n >> 36));
        }
        fs::write(
            folder.join(format!("file{file:06}.txt")),
            &text.as_bytes()[..size],
        )?;
        total += size as u64;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_the_same_every_time() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let bytes = make_tree(&a, 250).unwrap();
        assert_eq!(make_tree(&b, 250).unwrap(), bytes);
        assert!(bytes > 250 * SIZE_MAX / 8 && bytes < 250 * SIZE_MAX);
        let file = "group000/dir002/file000249.txt";
        assert_eq!(
            fs::read(a.join(file)).unwrap(),
            fs::read(b.join(file)).unwrap()
        );
        let dirs = fs::read_dir(a.join("group000")).unwrap();
        assert_eq!(dirs.count(), 3);
    }
}
