//! Image files in a temporary folder, and the built binary with its own state folder.

#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oracle::{Zdb, have_zdb};

const IMAGE_BYTES: u64 = 256 << 20;
const LABEL_BYTES: u64 = 256 << 10;

/// Images, and the state folder of a host.
pub(crate) struct Bench {
    folder: Arc<tempfile::TempDir>,
    state: tempfile::TempDir,
}

impl Bench {
    /// Images of 256 MiB with these names.
    pub(crate) fn new(images: &[&str]) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        for name in images {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_len(IMAGE_BYTES).unwrap();
        }
        Bench {
            folder: Arc::new(folder),
            state: tempfile::tempdir().unwrap(),
        }
    }

    /// Another host with access to the same images.
    pub(crate) fn beside(other: &Bench) -> Bench {
        Bench {
            folder: other.folder.clone(),
            state: tempfile::tempdir().unwrap(),
        }
    }

    /// Sets the host id.
    pub(crate) fn set_hostid(&self, id: u32) {
        std::fs::write(self.state.path().join("hostid"), id.to_le_bytes()).unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One more image.
    pub(crate) fn image(&self, name: &str, mib: u64) {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(mib << 20).unwrap();
    }

    /// Replaces `{a}` by the path of image `a`, `{dir}` by the folder.
    pub(crate) fn filled(&self, text: &str) -> String {
        let mut out = text.replace("{dir}", &self.folder().display().to_string());
        for name in ["a", "b", "c", "d", "e", "small", "shorter"] {
            out = out.replace(
                &format!("{{{name}}}"),
                &self.path(name).display().to_string(),
            );
        }
        out
    }

    /// The state folder.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// A command that has not been started.
    pub(crate) fn command(&self, command: &str) -> Command {
        let mut ready = Command::new(env!("CARGO_BIN_EXE_ashift"));
        ready
            .args(self.filled(command).split(' '))
            .env("ASHIFT_STATE", self.state.path());
        ready
    }

    /// Runs a command; returns exit code, stdout, stderr.
    pub(crate) fn run(&self, command: &str) -> (i32, String, String) {
        self.finish(&mut self.command(command))
    }

    /// Like `run`, for a prepared command.
    pub(crate) fn finish(&self, command: &mut Command) -> (i32, String, String) {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code().unwrap_or(-1),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    #[track_caller]
    pub(crate) fn ok(&self, command: &str) -> String {
        let (code, out, err) = self.run(command);
        assert_eq!(code, 0, "{command}\n{out}{err}");
        out
    }

    #[track_caller]
    pub(crate) fn fails(&self, command: &str, code: i32, text: &str) {
        let (got, out, err) = self.run(command);
        assert_eq!(
            (got, err.trim_end()),
            (code, self.filled(text).as_str()),
            "{command}\n{out}"
        );
    }

    /// Has the real zdb verify every block.
    #[track_caller]
    pub(crate) fn assert_clean(&self, pool: &str) {
        if have_zdb() {
            Zdb::verify(self.folder(), pool).assert_clean();
        }
    }

    pub(crate) fn label_offset(&self, name: &str, index: u64) -> u64 {
        let size = std::fs::metadata(self.path(name)).unwrap().len();
        if index < 2 {
            index * LABEL_BYTES
        } else {
            size - (4 - index) * LABEL_BYTES
        }
    }

    /// Overwrites a part of an image with a pattern that is never written otherwise.
    pub(crate) fn scribble(&self, name: &str, range: Range<u64>) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        let rubbish = vec![0xa5; (range.end - range.start).min(1 << 20) as usize];
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(rubbish.len() as u64);
            file.write_all_at(&rubbish[..length as usize], at).unwrap();
            at += length;
        }
    }

    pub(crate) fn scribble_with(&self, name: &str, at: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    /// Keeps a copy of an image outside the folder.
    pub(crate) fn set_aside(&self, name: &str) {
        copy(&self.path(name), &self.state.path().join(name));
    }

    /// Restores an image to the copy that was set aside.
    pub(crate) fn restore(&self, name: &str) {
        copy(&self.state.path().join(name), &self.path(name));
    }
}

/// Copies an image with its holes.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("--sparse=always")
        .args([from, to])
        .status()
        .unwrap();
    assert!(status.success());
}
