//! The file system that holds an image is full: a command waits until there is room.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::bench::Bench;

const TMPFS_MIB: usize = 48;

/// A tmpfs, unmounted on drop.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    /// `None` without the permission to mount one.
    fn mount(at: &'a Path) -> Option<Tmpfs<'a>> {
        let size = format!("size={TMPFS_MIB}m");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .output();
        mount
            .is_ok_and(|output| output.status.success())
            .then_some(Tmpfs(at))
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_command_goes_on_when_the_full_host_has_room_again() {
    let bench = Bench::new(&[]);
    let Some(_tmpfs) = Tmpfs::mount(bench.folder()) else {
        eprintln!("SKIPPED: mounting a tmpfs needs root");
        return;
    };
    let image = std::fs::File::create(bench.path("a")).unwrap();
    image.set_len(256 << 20).unwrap();
    bench.ok("zpool create -O compression=off tank {a}");
    let big = bench.state().join("big");
    let content: Vec<u8> = (0..8u32 << 20).map(|n| (n ^ (n >> 9)) as u8).collect();
    std::fs::write(&big, &content).unwrap();
    // The space that is left is not enough.
    std::fs::write(bench.path("filler"), vec![1; (TMPFS_MIB - 6) << 20]).unwrap();
    let mut command = bench.command("cp");
    command.arg(&big).arg("tank:/big").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut line = || said.next().expect("it says something").unwrap();
    let first = line();
    assert!(
        first.starts_with("pool 'tank' is suspended: ") && first.contains("is full"),
        "{first}"
    );
    assert!(line().starts_with("waiting 30 s"));
    std::fs::remove_file(bench.path("filler")).unwrap();
    assert_eq!(line(), "pool 'tank' goes on");
    assert!(child.wait().unwrap().success());
    bench.ok("cp tank:/big {dir}/copy");
    assert!(std::fs::read(bench.path("copy")).unwrap() == content);
    std::fs::remove_file(bench.path("copy")).unwrap();
    bench.ok("zpool scrub tank");
    bench.ok("zpool export tank");
    bench.assert_clean("tank");
}

#[test]
fn a_full_host_ends_a_command_without_patience() {
    let bench = Bench::new(&[]);
    let Some(_tmpfs) = Tmpfs::mount(bench.folder()) else {
        eprintln!("SKIPPED: mounting a tmpfs needs root");
        return;
    };
    let image = std::fs::File::create(bench.path("a")).unwrap();
    image.set_len(256 << 20).unwrap();
    bench.ok("zpool create -O compression=off tank {a}");
    bench.ok("zfs create tank/kept");
    let big = bench.state().join("big");
    std::fs::write(&big, vec![3; TMPFS_MIB << 20]).unwrap();
    let mut command = bench.command("cp");
    command.arg(&big).arg("tank:/big").env("ASHIFT_WAIT", "0");
    let (code, _, said) = bench.finish(&mut command);
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(
        said.contains("pool suspended: ") && said.contains("is full"),
        "{said}"
    );
    // Frees do not shrink an image: the room has to come from elsewhere.
    let remount = format!("remount,size={}m", 4 * TMPFS_MIB);
    let status = Command::new("mount")
        .args(["-o", &remount])
        .arg(bench.folder())
        .status();
    assert!(status.unwrap().success());
    bench.ok("zpool clear tank");
    let list = bench.ok("zfs list -H -o name -r tank");
    assert_eq!(list, "tank\ntank/kept\n");
    bench.ok("zpool export tank");
    bench.assert_clean("tank");
}
