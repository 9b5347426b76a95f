//! Changes beside the mount, snapshots, and the end of the process that serves it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::mount::UnmountFlags;
use torture::Dice;

use crate::bench::Bench;
use crate::tree::{Tree, can_mount, is_mounted, wait_until};

/// A process that holds the pools, and where it has mounted; killed when it is dropped, and nothing stays mounted.
struct Holder(Child, PathBuf);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        if is_mounted(&self.1) {
            let _ = rustix::mount::unmount(&self.1, UnmountFlags::DETACH);
        }
    }
}

#[test]
fn what_commands_change_is_seen_through_the_mount_and_the_other_way_round() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zfs create tank/x");
    let server = bench.command("serve").stderr(Stdio::null()).spawn();
    let directory = bench.path("mnt");
    let _holder = Holder(server.unwrap(), directory.clone());
    let socket = bench.state().join("holder.sock");
    wait_until("the holder listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    fs::create_dir(&directory).unwrap();
    bench.ok(&format!(
        "mount --background tank/x {}",
        directory.display()
    ));
    // Who works on the pool keeps it from being exported.
    let (code, _, error) = bench.run("zpool export tank");
    assert!(code == 1 && error.contains("pool is busy"), "{error}");
    let mut dice = Dice::new(torture::seed(1));
    let names = ["p", "q", "r"];
    let mut model: [Option<String>; 3] = Default::default();
    let source = bench.path("source");
    for step in 0..12 {
        let at = dice.below(3) as usize;
        let (host, pool) = (directory.join(names[at]), format!("tank/x:/{}", names[at]));
        let text = format!("step {step}");
        let removes = model[at].is_some() && dice.once_in(3);
        match (dice.once_in(2), removes) {
            (true, true) => fs::remove_file(&host).unwrap(),
            (true, false) => fs::write(&host, &text).unwrap(),
            (false, true) => drop(bench.ok(&format!("rm {pool}"))),
            (false, false) => {
                fs::write(&source, &text).unwrap();
                bench.ok(&format!("cp {} {pool}", source.display()));
            }
        }
        model[at] = Some(text).filter(|_| !removes);
        for (name, expected) in names.iter().zip(&model) {
            let seen = fs::read_to_string(directory.join(name)).ok();
            assert_eq!(&seen, expected, "{name} through the mount, step {step}");
        }
        let (code, out, _) = bench.run(&format!("cat {pool}"));
        let seen = Some(out).filter(|_| code == 0);
        assert_eq!(seen, model[at], "{pool} by a command, step {step}");
    }
    bench.ok(&format!("unmount {}", directory.display()));
    assert!(!is_mounted(&directory));
}

#[test]
fn snapshots_are_below_zfs() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    fs::write(tree.path("f"), "old").unwrap();
    let bench = tree.end();
    bench.ok("zfs snapshot tank/x@one");
    let tree = Tree::over(bench);
    fs::write(tree.path("f"), "new").unwrap();
    let names = fs::read_dir(tree.path(".zfs/snapshot")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"]);
    let old = tree.path(".zfs/snapshot/one/f");
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    let error = fs::write(&old, "").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(fs::metadata(tree.path(".zfs/snapshot/two")).is_err());
    assert_eq!(fs::read_dir(&tree.directory).unwrap().count(), 1);
    tree.end();
}

#[test]
fn what_was_synced_is_there_after_a_kill() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    fs::create_dir(tree.path("d")).unwrap();
    for number in 0..20 {
        let mut file = File::create(tree.path(&format!("d/{number}"))).unwrap();
        file.write_all(format!("content {number}").as_bytes())
            .unwrap();
        file.sync_all().unwrap();
    }
    let tree = Tree::over(tree.kill());
    for number in 0..20 {
        let content = fs::read_to_string(tree.path(&format!("d/{number}"))).unwrap();
        assert_eq!(content, format!("content {number}"));
    }
    tree.end().assert_clean("tank");
}
