//! `ashift bench cp`: a tree of small files into a pool, beside `cp -a` into a kernel's file system.
//!
//! # What it is
//! Both sides copy the same tree into something fresh: ours into a new pool on an image file, the other one
//! into a new file system on a loop device over an image file in the same folder. Each time is what a user
//! waits for until the copy is on stable storage: `ashift cp -a`, which syncs and closes the pool, and
//! `cp -a` with `sync -f` after it. Creating and mounting do not count. Needs root, for the loop device. Before
//! the first turn and between turns the host writes back its dirty data, so that no turn pays for another.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use base::Result;
use serde_json::json;

use super::host_fs::{KINDS, Mounted, folder, image, settle, silent};
use super::tree::{SIZE_MAX, make_tree};
use super::turns::{median, own_program};
use super::{Words, usage_error};
use crate::failure::Outcome;

/// The ratio to reach: not slower than the other side.
const GOAL: f64 = 1.0;
/// Bytes of an image beyond what the tree needs.
const ROOM_BYTES: u64 = 2 << 30;

/// `ashift bench cp`
pub(super) fn run(words: &mut Words) -> Outcome {
    let files = words.take_number("files", 50_000)?;
    let runs = words.take_number("runs", 5)?;
    let dir = words.take("dir");
    let kind = words.take("fs").unwrap_or_else(|| "btrfs".into());
    words.check_all_taken()?;
    if !words.operands.is_empty() || !KINDS.contains(&&*kind) {
        return Err(usage_error());
    }
    let folder = folder(dir)?;
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

impl Bench {
    fn source(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// A new, empty image.
    fn image(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        image(&path, self.image_bytes)?;
        Ok(path)
    }

    /// Seconds of `cp -a` and `sync -f`.
    fn theirs(&self) -> Result<f64> {
        let image = self.image("theirs.img")?;
        let place = self.folder.join("mnt");
        let mounted = Mounted::new(&self.kind, &image, &place)?;
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
