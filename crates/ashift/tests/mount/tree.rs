//! A data set that is mounted for a test.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::bench::Bench;

/// Set where the tests run once more, through io_uring.
pub(crate) const IS_AGAIN: &str = "ASHIFT_TEST_RINGS";

/// Whether other tests run beside one.
static BESIDE: RwLock<()> = RwLock::new(());

thread_local! {
    /// The turn of the test that this thread runs.
    static TURN: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Waits until no other test runs, and keeps them waiting.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    TURN.take();
    BESIDE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this host lets the tests mount; otherwise a test says so and ends.
pub(crate) fn can_mount() -> bool {
    TURN.take();
    let turn = BESIDE.read().unwrap_or_else(PoisonError::into_inner);
    TURN.set(Some(turn));
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("SKIPPED: mounting needs /dev/fuse and root");
    }
    can
}

/// A program that tests file systems, if it can be used here.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    (oracle::have_tool(name) && can_mount()).then(|| oracle::find_tool(name).expect("it is there"))
}

/// Whether a directory is mounted, by the kernel's list.
pub(crate) fn is_mounted(directory: &Path) -> bool {
    let list = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let shown = directory.display().to_string();
    list.lines()
        .any(|line| line.split(' ').nth(1) == Some(&shown))
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(60), "waited for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the kernel says that the process which served a mount is gone. Nothing is answered in any case.
pub(crate) fn wait_until_gone(directory: &Path) {
    wait_until("the kernel knows", || {
        // It may remember attributes, but not this.
        let error = rustix::fs::statfs(directory).unwrap_err();
        error == rustix::io::Errno::NOTCONN
    });
}

/// The pool `tank` with the data set `tank/x`, which a process has mounted.
pub(crate) struct Tree {
    pub(crate) bench: Bench,
    pub(crate) directory: PathBuf,
    pub(crate) server: Child,
}

impl Tree {
    /// `create`: options of the data set.
    pub(crate) fn new(create: &str) -> Tree {
        let bench = Bench::new(&["a"]);
        bench.ok("zpool create -O compression=off tank {a}");
        bench.ok(format!("zfs create {create} tank/x")
            .replace("  ", " ")
            .as_str());
        Tree::over(bench)
    }

    pub(crate) fn over(bench: Bench) -> Tree {
        let directory = bench.folder().join("mnt").canonicalize();
        let directory = directory.unwrap_or_else(|_| {
            std::fs::create_dir(bench.folder().join("mnt")).unwrap();
            bench.folder().join("mnt").canonicalize().unwrap()
        });
        let server = start(&bench, "tank/x", &directory);
        Tree {
            bench,
            directory,
            server,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether the process that serves the mount waits for rings of io_uring.
    pub(crate) fn has_rings(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.server.id())).unwrap();
        let names = threads.map(|thread| {
            let name = thread.unwrap().path().join("comm");
            std::fs::read_to_string(name).unwrap_or_default()
        });
        names.into_iter().any(|name| name.trim() == "fuse ring")
    }

    /// Unmounts, and waits until the pool is closed.
    pub(crate) fn end(self) -> Bench {
        self.end_by("unmount")
    }

    /// Unmounts while it is in use, and waits until the pool is closed.
    pub(crate) fn end_by_force(self) -> Bench {
        self.end_by("unmount -f")
    }

    fn end_by(mut self, command: &str) -> Bench {
        self.bench
            .ok(&format!("{command} {}", self.directory.display()));
        assert!(self.server.wait().unwrap().success());
        let empty = Bench::new(&[]);
        let bench = std::mem::replace(&mut self.bench, empty);
        std::mem::forget(self);
        bench
    }

    /// Kills the process that serves the mount.
    pub(crate) fn kill(mut self) -> Bench {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        wait_until_gone(&self.directory);
        self.bench
            .ok(&format!("unmount {}", self.directory.display()));
        let empty = Bench::new(&[]);
        let bench = std::mem::replace(&mut self.bench, empty);
        std::mem::forget(self);
        bench
    }
}

impl Drop for Tree {
    /// A test has failed: nothing stays mounted.
    fn drop(&mut self) {
        let _ = self
            .bench
            .run(&format!("unmount -f {}", self.directory.display()));
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts a process that serves a mount, and waits until it does.
pub(crate) fn start(bench: &Bench, dataset: &str, directory: &Path) -> Child {
    let directory = directory.display();
    let words = format!("mount -o allow_other,suid,dev {dataset} {directory}");
    let mut server = bench.command(&words).stderr(Stdio::null()).spawn().unwrap();
    let directory = PathBuf::from(directory.to_string());
    wait_until("it is mounted", || {
        assert_eq!(server.try_wait().unwrap(), None, "it ended");
        is_mounted(&directory)
    });
    server
}
