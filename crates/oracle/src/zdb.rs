//! Debian's `zdb` on a folder of image files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What one run of `zdb` said.
#[derive(Debug)]
pub struct Zdb {
    /// Whether it exited with 0.
    pub succeeded: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error: progress and complaints.
    pub stderr: String,
}

fn find() -> Option<PathBuf> {
    ["/usr/sbin/zdb", "/sbin/zdb"]
        .iter()
        .map(PathBuf::from)
        .find(|p| p.exists())
}

/// Whether the real `zdb` is here; says loudly what to do when it is not.
#[must_use]
pub fn have_zdb() -> bool {
    if find().is_none() {
        crate::skip("Debian's zdb (zfsutils-linux of bookworm-backports) is missing");
        return false;
    }
    true
}

impl Zdb {
    /// Runs `zdb ARGS…`.
    ///
    /// # Panics
    /// Where `zdb` is missing: ask [`have_zdb`] first.
    pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Zdb {
        let zdb = find().expect("have_zdb() was asked");
        let output = Command::new(zdb).args(args).output().expect("zdb starts");
        Zdb {
            succeeded: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// `zdb -e -p DIR -bcc POOL`: every block's checksum, and block sum against space maps.
    pub fn verify(dir: &Path, pool: &str) -> Zdb {
        Zdb::run(&[
            "-e".as_ref(),
            "-p".as_ref(),
            dir.as_os_str(),
            "-bcc".as_ref(),
            pool.as_ref(),
        ])
    }

    /// Whether a [`Zdb::verify`] found nothing wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.succeeded && self.stdout.contains("No leaks")
    }

    /// Asserts [`Zdb::is_clean`] with all that `zdb` said.
    ///
    /// # Panics
    /// When the pool is not clean.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(
            self.is_clean(),
            "zdb complains:\n{}\n{}",
            self.stdout,
            self.stderr
        );
    }
}
