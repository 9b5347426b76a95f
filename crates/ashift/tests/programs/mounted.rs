//! A pool of two mirrored images whose data set is mounted, and programs that are run there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::Bench;

/// How long a holder may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pool, and what is mounted of it.
pub(crate) struct Mounted {
    pub(crate) bench: Bench,
    place: tempfile::TempDir,
    holder: Option<Child>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.kill();
        // What a killed holder leaves is still mounted.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.path())
            .stderr(Stdio::null())
            .status();
    }
}

/// A mounted data set; `None`, said loudly, where something is missing for that.
pub(crate) fn mounted(tools: &[&str]) -> Option<Mounted> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIPPED: mounting needs root and /dev/fuse: load the fuse module, or let the container have it"
        );
        return None;
    }
    if !tools.iter().all(|tool| oracle::have_tool(tool)) {
        return None;
    }
    let bench = Bench::new(&[]);
    for image in ["a", "b"] {
        bench.image(image, 4 << 10);
    }
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("m");
    std::fs::create_dir(&at).unwrap();
    bench.ok("zpool create -O mountpoint=none -O xattr=sa -O acltype=posix tank mirror {a} {b}");
    let mut mounted = Mounted {
        bench,
        place,
        holder: None,
    };
    mounted.mount();
    Some(mounted)
}

/// Whether what takes minutes is to be run.
pub(crate) fn runs_all() -> bool {
    std::env::var("PROGRAMS").is_ok_and(|value| value == "all")
}

impl Mounted {
    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.place.path().join("m")
    }

    /// Starts a holder, and mounts the data set.
    pub(crate) fn mount(&mut self) {
        let holder = self.bench.command("serve").stderr(Stdio::piped()).spawn();
        self.holder = Some(holder.unwrap());
        let socket = self.bench.state().join("holder.sock");
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed() < PATIENCE, "the holder does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.bench.ok("zpool list");
        // What a killed holder leaves is still mounted.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.path())
            .stderr(Stdio::null())
            .status();
        self.bench.ok(&format!(
            "mount --background -o allow_other tank {}",
            self.path().display()
        ));
    }

    /// Ends the holder as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            let _ = holder.kill();
            holder.wait().unwrap();
        }
    }

    /// Unmounts, closes the pool, and has the real zdb verify it.
    pub(crate) fn end(mut self) {
        self.bench.ok(&format!("unmount {}", self.path().display()));
        self.bench.ok("serve --stop");
        let mut holder = self.holder.take().expect("it is mounted");
        assert!(holder.wait().unwrap().success());
        self.bench.ok("zpool export tank");
        self.bench.assert_clean("tank");
    }

    /// Runs a script where the data set is mounted; what it prints.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> String {
        sh(&self.path(), script)
    }
}

/// Runs a script in a folder; what it prints.
#[track_caller]
pub(crate) fn sh(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}{err}");
    out
}
