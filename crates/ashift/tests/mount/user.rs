//! A user without root's rights, who mounts by `fusermount3`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::bench::Bench;
use crate::tree::{can_mount, is_mounted, wait_until};

/// `nobody` and `nogroup`.
const USER: u32 = 65534;

/// Whether a user of this host could mount.
fn can_users_mount() -> bool {
    let helper = oracle::have_tool("fusermount3");
    let device = fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o006 == 0o006);
    if !helper || !device {
        eprintln!("SKIPPED: users mount by fusermount3 (Debian: package fuse3), and /dev/fuse");
    }
    can_mount() && helper && device
}

/// A host on which a user has files, and the program where they may run it.
struct Host(Bench);

impl Host {
    fn new() -> Host {
        let bench = Bench::new(&["a"]);
        let program = bench.path("ashift");
        // By a program of its own: what this one has open for writing, children of other tests would inherit, and
        // nothing that is open for writing can be run.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_ashift")).arg(&program);
        assert!(copy.status().unwrap().success());
        fs::create_dir(bench.path("mnt")).unwrap();
        for path in [
            bench.folder(),
            bench.state(),
            &bench.path("a"),
            &bench.path("mnt"),
        ] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        for path in [bench.folder(), bench.state()] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        Host(bench)
    }

    /// A program, run by the user.
    fn by_user(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(self.0.filled(words).split(' '))
            .env("ASHIFT_STATE", self.0.state())
            .current_dir(self.0.folder())
            .stdin(Stdio::null())
            .uid(USER)
            .gid(USER);
        command
    }

    fn run(&self, words: &str) -> (i32, String, String) {
        self.0
            .finish(&mut self.by_user(&self.0.path("ashift"), words))
    }

    #[track_caller]
    fn ok(&self, words: &str) {
        let (code, out, err) = self.run(words);
        assert_eq!(code, 0, "{words}\n{out}{err}");
    }

    fn shell(&self, script: &str) -> (i32, String) {
        let mut command = self.by_user(Path::new("/bin/sh"), "-ec");
        let (code, out, err) = self.0.finish(command.arg(script));
        (code, out + &err)
    }
}

impl Drop for Host {
    /// A test has failed: nothing stays mounted.
    fn drop(&mut self) {
        let directory = self.0.path("mnt");
        if is_mounted(&directory) {
            let _ = rustix::mount::unmount(&directory, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

#[test]
fn a_user_mounts_uses_and_unmounts_a_data_set() {
    if !can_users_mount() {
        return;
    }
    let host = Host::new();
    let directory = host.0.path("mnt");
    host.ok("zpool create -O mountpoint=none tank {a}");
    // What a user makes belongs to them; the pool's own file system belongs to root.
    host.ok("zfs create tank/x");
    host.ok("mount --background tank/x {dir}/mnt");
    assert!(is_mounted(&directory));
    let list = fs::read_to_string("/proc/self/mounts").unwrap();
    let shown = format!(" {} fuse.ashift rw,nosuid,nodev", directory.display());
    assert!(list.contains(&shown), "{list}");
    let script = "cd mnt; echo content > a; mkdir d; mv a d/b; ln d/b c; ln -s c s; chmod 600 c; cat s; stat -c %u c";
    assert_eq!(host.shell(script), (0, "content\n65534\n".to_owned()));
    // Others, even root, are kept out by the kernel.
    let error = fs::read_dir(&directory).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let mut using = host.by_user(Path::new("/bin/sh"), "-c");
    let using = using.arg("exec < mnt/c; echo; exec sleep 1000");
    let mut using = using.stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read(&mut using.stdout.take().unwrap(), &mut [0]).unwrap();
    let (code, _, said) = host.run("unmount {dir}/mnt");
    assert!(code == 1 && said.contains("in use"), "{said}");
    using.kill().unwrap();
    using.wait().unwrap();
    // The kernel tells only a moment later that a file was closed.
    wait_until("it can be unmounted", || {
        host.run("unmount {dir}/mnt").0 == 0
    });
    assert!(!is_mounted(&directory));
    // By force, though a program uses it: where the kernel shows its connections, that ends at once.
    host.ok("mount --background tank/x {dir}/mnt");
    let mut using = host.by_user(Path::new("/bin/sh"), "-c");
    let using = using.arg("exec < mnt/c; echo; exec sleep 1000");
    let mut using = using.stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read(&mut using.stdout.take().unwrap(), &mut [0]).unwrap();
    let connections = fs::read_dir("/sys/fs/fuse/connections");
    let are_shown = connections.is_ok_and(|mut all| all.next().is_some());
    host.ok("unmount -f {dir}/mnt");
    assert!(!is_mounted(&directory));
    let is_closed = || host.run("zpool export tank").0 == 0;
    if are_shown {
        wait_until("the pool is closed", is_closed);
    }
    using.kill().unwrap();
    using.wait().unwrap();
    if !are_shown {
        wait_until("the pool is closed", is_closed);
    }
    host.0.assert_clean("tank");
}

#[test]
fn options_of_a_user_are_those_that_users_may_have() {
    if !can_users_mount() {
        return;
    }
    let host = Host::new();
    host.ok("zpool create -O mountpoint=none tank {a}");
    host.ok("zfs create tank/x");
    host.ok("mount --background -o ro,noexec,noatime tank/x {dir}/mnt");
    let list = fs::read_to_string("/proc/self/mounts").unwrap();
    let directory = host.0.path("mnt");
    let shown = format!(
        " {} fuse.ashift ro,nosuid,nodev,noexec,noatime",
        directory.display()
    );
    assert!(list.contains(&shown), "{list}");
    let (code, said) = host.shell("touch mnt/a");
    assert!(code != 0 && said.contains("Read-only"), "{said}");
    host.ok("unmount {dir}/mnt");
    let others = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !others.lines().any(|line| line.trim() == "user_allow_other") {
        let (code, _, said) = host.run("mount --background -o allow_other tank/x {dir}/mnt");
        assert!(code == 1 && said.contains("user_allow_other"), "{said}");
    }
    // A directory that is not theirs.
    let (code, _, said) = host.run("mount --background tank/x /etc");
    assert!(code == 1 && !said.is_empty(), "{said}");
}
