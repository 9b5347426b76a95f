//! Debian's `zdb`, or a newer one, on a folder of image files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The output of one run of `zdb`.
#[derive(Debug)]
pub struct Zdb {
    /// Whether it exited with 0.
    pub succeeded: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error: progress and complaints.
    pub stderr: String,
}

/// The variable that names a `zdb` of OpenZFS 2.4, which knows features that Debian's does not.
const NEWER: &str = "ZDB_2_4";

/// Whether there is a `zdb` of OpenZFS 2.4: it is asked instead of Debian's, and storms make pools of 2.4.
#[must_use]
pub fn have_zdb_2_4() -> bool {
    std::env::var_os(NEWER).is_some()
}

fn find() -> Option<PathBuf> {
    if let Some(newer) = std::env::var_os(NEWER) {
        return Some(newer.into());
    }
    ["/usr/sbin/zdb", "/sbin/zdb"]
        .iter()
        .map(PathBuf::from)
        .find(|p| p.exists())
}

/// Whether the real `zdb` is installed; if not, reports what to install.
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
    /// When `zdb` is missing: check [`have_zdb`] first.
    pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Zdb {
        let zdb = find().expect("have_zdb() was asked");
        let output = Command::new(zdb).args(args).output().expect("zdb starts");
        Zdb {
            succeeded: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// `zdb -e -p DIR -bcc POOL`: verifies every block's checksum, and the sum of blocks against the space
    /// maps.
    pub fn verify(dir: &Path, pool: &str) -> Zdb {
        Zdb::run(&[
            "-e".as_ref(),
            "-p".as_ref(),
            dir.as_os_str(),
            "-bcc".as_ref(),
            pool.as_ref(),
        ])
    }

    /// Whether [`Zdb::verify`] found nothing wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.succeeded && self.stdout.contains("No leaks")
    }

    /// Asserts [`Zdb::is_clean`], printing what `zdb` said if it is not.
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
