//! Data sets that are mounted by the process that holds their pool. What commands say of mounts and do with them is
//! shown beside the real ones (`parity`, list `mounts`); this is about the process.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;
use crate::tree::{can_mount, wait_until, wait_until_gone};

/// A pool whose data sets are mounted below a folder of the test, and its holder. In the end nothing stays mounted.
pub(crate) struct Held {
    pub(crate) bench: Bench,
    holder: Option<Child>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.bench.run("serve --stop");
        if let Some(holder) = &mut self.holder {
            let _ = holder.kill();
            let _ = holder.wait();
        }
        for directory in self.mounted().iter().rev() {
            let _ = rustix::mount::unmount(directory, UnmountFlags::DETACH);
        }
    }
}

impl Held {
    /// The pool `tank` with `tank/a` and `tank/a/b`, and no holder.
    fn new() -> Held {
        let bench = Bench::new(&["a"]);
        bench.ok("zpool create -R {dir}/r -O compression=off tank {a}");
        bench.ok("zfs create tank/a");
        bench.ok("zfs create tank/a/b");
        Held {
            bench,
            holder: None,
        }
    }

    /// The same, held, and everything mounted.
    pub(crate) fn mounted_by_properties() -> Held {
        let mut held = Held::new();
        held.serve();
        held.bench.ok("zfs mount -a");
        held
    }

    /// Starts a holder that can be sent signals.
    fn serve(&mut self) {
        let child = self.bench.command("serve").stderr(Stdio::null()).spawn();
        self.holder = Some(child.unwrap());
        let socket = self.bench.state().join("holder.sock");
        wait_until("the holder listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// Sends the holder a signal, and waits for its end.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        let mut holder = self.holder.take().expect("it was started");
        kill_process(Pid::from_child(&holder), signal).unwrap();
        holder.wait().unwrap().code()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let folder = self.bench.folder().canonicalize().unwrap();
        folder.join("r/tank").join(name)
    }

    /// What is mounted below the folder, by the kernel's list.
    fn mounted(&self) -> Vec<PathBuf> {
        let folder = self.bench.folder().canonicalize().unwrap();
        let list = fs::read_to_string("/proc/self/mounts").unwrap();
        let directories = list.lines().filter_map(|line| line.split(' ').nth(1));
        let directories = directories.map(PathBuf::from);
        directories.filter(|it| it.starts_with(&folder)).collect()
    }

    /// Writes a file, and has it synced.
    fn write(&self, name: &str, text: &str) {
        let mut file = File::create(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

#[test]
fn without_a_holder_nothing_is_mounted_until_zfs_mount_starts_one() {
    if !can_mount() {
        return;
    }
    let held = Held::new();
    held.bench.ok("zfs rename tank/a tank/c");
    held.bench.ok("zfs rename tank/c tank/a");
    assert_eq!(held.bench.ok("zfs mount"), "");
    assert!(!held.bench.path("r").exists());
    held.bench.fails(
        "zfs unmount tank/a",
        1,
        "cannot unmount 'tank/a': not currently mounted",
    );
    // No process is started for what cannot be mounted.
    held.bench.fails(
        "zfs mount nope",
        1,
        "cannot open 'nope': dataset does not exist",
    );
    assert!(!held.bench.state().join("holder.sock").exists());
    held.bench.ok("zfs mount -o noatime tank/a");
    assert_eq!(held.mounted(), [held.path("a")]);
    let atime = held.bench.ok("zfs get -H -o value,source atime tank/a");
    assert_eq!(atime, "off\ttemporary\n");
    held.bench.ok("zfs unmount tank/a");
    assert!(held.mounted().is_empty());
    held.bench.ok("serve --stop");
}

#[test]
fn a_holder_that_ends_unmounts_everything_first() {
    if !can_mount() {
        return;
    }
    let mut held = Held::new();
    held.serve();
    for round in 0..2 {
        held.bench.ok("zfs mount -a");
        let other = held.bench.path("other");
        fs::create_dir_all(&other).unwrap();
        let other = other.display();
        held.bench.ok(&format!("mount --background tank/a {other}"));
        assert_eq!(held.mounted().len(), 4);
        fs::write(held.path("a/b/f"), format!("round {round}")).unwrap();
        if round == 0 {
            assert_eq!(held.end(Signal::TERM), Some(0));
        } else {
            held.bench.ok("serve --stop");
        }
        assert!(held.mounted().is_empty());
        let text = held.bench.ok("cat tank/a/b:/f");
        assert_eq!(text, format!("round {round}"));
        held.serve();
    }
}

#[test]
fn what_programs_use_is_taken_from_them_when_the_holder_ends() {
    if !can_mount() {
        return;
    }
    let held = Held::mounted_by_properties();
    held.write("a/f", "text");
    let open = File::open(held.path("a/f")).unwrap();
    held.bench.fails(
        "zpool export tank",
        1,
        &format!(
            "cannot unmount '{}': pool or dataset is busy",
            held.path("a").display()
        ),
    );
    held.bench.ok("serve --stop");
    assert!(held.mounted().is_empty());
    drop(open);
    assert_eq!(held.bench.ok("cat tank/a:/f"), "text");
}

#[test]
fn what_a_killed_holder_has_left_is_mounted_anew() {
    if !can_mount() {
        return;
    }
    let mut held = Held::mounted_by_properties();
    held.write("a/b/f", "synced");
    held.end(Signal::KILL);
    wait_until_gone(&held.path("a/b"));
    let error = fs::read(held.path("a/b/f")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    // It starts a new one.
    held.bench.ok("zfs mount -a");
    assert_eq!(held.read("a/b/f"), "synced");
    assert_eq!(held.mounted().len(), 3, "{:?}", held.mounted());
    held.bench.ok("zpool export tank");
    assert!(held.mounted().is_empty());
    held.bench.ok("serve --stop");
    held.bench.assert_clean("tank");
}

#[test]
fn a_rollback_goes_below_what_is_mounted() {
    if !can_mount() {
        return;
    }
    let held = Held::mounted_by_properties();
    held.write("a/f", "old");
    held.write("a/b/g", "kept");
    held.bench.ok("zfs unmount tank/a");
    held.bench.ok("zfs mount -o ro tank/a/b");
    held.bench.ok("zfs snapshot tank/a@1");
    held.bench.ok("zfs mount -O -o noexec tank/a");
    held.write("a/f", "new");
    let open = File::open(held.path("a/f")).unwrap();
    let (code, _, error) = held.bench.run("zfs rollback tank/a@1");
    assert_eq!(code, 1);
    assert!(error.contains("pool or dataset is busy"), "{error}");
    assert_eq!(held.read("a/f"), "new");
    drop(open);
    held.bench.ok("zfs rollback tank/a@1");
    assert_eq!(held.read("a/f"), "old");
    let exec = held.bench.ok("zfs get -H -o value,source exec tank/a");
    assert_eq!(exec, "off\ttemporary\n", "it is mounted as it was");
    // What is hidden is not unmounted instead of what hides it.
    let (code, _, error) = held.bench.run("zfs unmount tank/a/b");
    assert_eq!(code, 1);
    assert!(error.contains("unmount failed"), "{error}");
    // What is unmounted from outside is known.
    rustix::mount::unmount(held.path("a"), UnmountFlags::empty()).unwrap();
    assert_eq!(held.bench.ok("zfs get -H -o value mounted tank/a"), "no\n");
    assert_eq!(held.read("a/b/g"), "kept");
    held.bench.ok("zfs unmount tank/a/b");
}

#[test]
fn a_snapshot_that_was_looked_at_can_be_destroyed() {
    if !can_mount() {
        return;
    }
    let held = Held::mounted_by_properties();
    held.write("a/f", "old");
    for name in ["tank/a@1", "tank/a@2", "tank/a@3"] {
        held.bench.ok(&format!("zfs snapshot {name}"));
        let snapshot = name.rsplit('@').next().unwrap();
        assert_eq!(held.read(&format!("a/.zfs/snapshot/{snapshot}/f")), "old");
    }
    held.bench.ok("zfs destroy tank/a@1");
    assert!(fs::read(held.path("a/.zfs/snapshot/1/f")).is_err());
    let open = File::open(held.path("a/.zfs/snapshot/2/f")).unwrap();
    let (code, _, error) = held.bench.run("zfs destroy tank/a@2");
    assert_eq!(
        (code, error.contains("dataset is busy")),
        (1, true),
        "{error}"
    );
    assert_eq!(held.read("a/.zfs/snapshot/2/f"), "old");
    held.write("a/f", "new");
    drop(open);
    // What is newer goes with it.
    held.bench.ok("zfs rollback -r tank/a@2");
    assert_eq!(held.read("a/f"), "old");
    assert_eq!(
        held.bench.ok("zfs list -H -t snapshot -o name"),
        "tank/a@2\n"
    );
}
