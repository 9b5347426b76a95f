//! Requests in flight: many at a time, large ones, interrupted ones, and an end while there are some.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{OFlags, XattrFlags};
use torture::Dice;

use crate::tree::{Tree, can_mount, is_mounted};

/// More than any queue of the kernel has threads here.
const MANY: usize = 80;

#[test]
fn many_requests_at_a_time_are_all_answered() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    std::thread::scope(|scope| {
        for number in 0..MANY {
            let path = tree.path(&format!("f{number}"));
            scope.spawn(move || {
                let mut file = File::create(path).unwrap();
                for step in 0..5u8 {
                    file.write_all(&[step; 5000]).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    let bench = tree.kill();
    let tree = Tree::over(bench);
    for number in 0..MANY {
        let content = fs::read(tree.path(&format!("f{number}"))).unwrap();
        let expected: Vec<u8> = (0..25000).map(|at| (at / 5000) as u8).collect();
        assert_eq!(content, expected, "f{number}");
    }
    tree.end().assert_clean("tank");
}

#[test]
fn large_requests_arrive_whole() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    let mut dice = Dice::new(torture::seed(3));
    let bytes: Vec<u8> = (0..9 << 20).map(|_| dice.below(256) as u8).collect();
    fs::write(tree.path("f"), &bytes).unwrap();
    let direct = |path: &str| {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true);
        let options = options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        options.open(tree.path(path)).unwrap()
    };
    // What the page cache does not cut into pieces is as large as the kernel lets it be.
    direct("g").write_all_at(&bytes, 0).unwrap();
    let value = &bytes[..60_000];
    rustix::fs::setxattr(tree.path("f"), "user.large", value, XattrFlags::empty()).unwrap();
    for number in 0..3000 {
        let name = format!("{number:0>200}");
        File::create(tree.path(&name)).unwrap();
    }
    let tree = Tree::over(tree.end());
    let direct = |path: &str| {
        let mut options = OpenOptions::new();
        let options = options.read(true);
        let options = options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        options.open(tree.path(path)).unwrap()
    };
    for path in ["f", "g"] {
        let mut read = Vec::new();
        direct(path).read_to_end(&mut read).unwrap();
        assert!(read == bytes, "{path} by direct reads");
        assert!(fs::read(tree.path(path)).unwrap() == bytes, "{path}");
    }
    let mut read = vec![0; 70_000];
    let len = rustix::fs::getxattr(tree.path("f"), "user.large", &mut read[..]).unwrap();
    assert!(read[..len] == *value);
    assert_eq!(fs::read_dir(&tree.directory).unwrap().count(), 3002);
    tree.end().assert_clean("tank");
}

#[test]
fn programs_that_are_interrupted_leave_the_mount_as_good_as_it_was() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    let mut dice = Dice::new(torture::seed(5));
    for round in 0..24u64 {
        let mut programs: Vec<_> = (0..3)
            .map(|number| {
                let mut dd = Command::new("dd");
                // Together less than the pool takes, however late they are interrupted.
                let words = ["if=/dev/zero", "bs=256k", "count=40", "oflag=sync"];
                let out = tree.path(&format!("o{number}"));
                dd.args(words).arg(format!("of={}", out.display()));
                dd.stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        std::thread::sleep(Duration::from_millis(1 + dice.below(30)));
        for program in &mut programs {
            let pid = rustix::process::Pid::from_child(program);
            let signal = match dice.once_in(2) {
                true => rustix::process::Signal::INT,
                false => rustix::process::Signal::KILL,
            };
            rustix::process::kill_process(pid, signal).unwrap();
            program.wait().unwrap();
        }
        let path = tree.path("counted");
        fs::write(&path, round.to_le_bytes()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), round.to_le_bytes());
    }
    for number in 0..3 {
        let content = fs::read(tree.path(&format!("o{number}"))).unwrap_or_default();
        assert!(content.iter().all(|byte| *byte == 0));
    }
    tree.end().assert_clean("tank");
}

#[test]
fn a_forced_end_while_programs_work_gives_them_errors() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    fs::write(tree.path("synced"), "is there").unwrap();
    File::open(tree.path("synced")).unwrap().sync_all().unwrap();
    let is_over = AtomicBool::new(false);
    let bench = std::thread::scope(|scope| {
        for number in 0..12 {
            let (path, is_over) = (tree.path(&format!("w{number}")), &is_over);
            scope.spawn(move || {
                let Ok(file) = File::create(&path) else {
                    return;
                };
                while !is_over.load(Ordering::Relaxed) {
                    let done = file
                        .write_all_at(&[7; 100_000], 0)
                        .and_then(|()| file.sync_data())
                        .and_then(|()| fs::metadata(&path).map(drop));
                    if done.is_err() {
                        return;
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        let directory = tree.directory.clone();
        let bench = tree.end_by_force();
        assert!(!is_mounted(&directory));
        is_over.store(true, Ordering::Relaxed);
        bench
    });
    let tree = Tree::over(bench);
    assert_eq!(fs::read_to_string(tree.path("synced")).unwrap(), "is there");
    tree.end().assert_clean("tank");
}
