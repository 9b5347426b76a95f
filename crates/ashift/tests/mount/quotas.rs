//! Limits of users, groups and projects on mounts of a process that holds the pool.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

use crate::held::Held;
use crate::tree::{Tree, can_mount};

/// `nobody` and `nogroup`.
const USER: u32 = 65534;

#[track_caller]
fn assert_over(error: &Error) {
    assert_eq!(error.raw_os_error(), Some(Errno::DQUOT.raw_os_error()));
}

/// Runs a script as a user without root's rights.
fn by_user(folder: &Path, script: &str) -> (bool, String) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).current_dir(folder);
    command.env("LC_ALL", "C").uid(USER).gid(USER);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn a_user_is_refused_what_goes_beyond_a_limit() {
    if !can_mount() {
        return;
    }
    let held = Held::mounted_by_properties();
    let folder = held.path("a");
    // Those of the test's folder let nobody else in.
    for path in [held.bench.folder(), &folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    held.bench.ok("zfs set userquota@nobody=1M tank/a");
    held.bench.ok("zfs set userobjquota@65534=3 tank/a");
    let (is_done, said) = by_user(&folder, "echo 1 >a && mkdir d && ln -s a l");
    assert!(is_done, "{said}");
    held.bench.ok("zpool sync tank");
    for script in ["echo 1 >n", "mkdir n", "ln -s a n", "mkfifo n"] {
        let (is_done, said) = by_user(&folder, script);
        assert!(
            !is_done && said.contains("quota exceeded"),
            "{script}: {said}"
        );
    }
    let (is_done, said) = by_user(&folder, "echo 2 >>a; ln a hard; mv hard harder; rm l");
    assert!(is_done, "{said}");
    held.bench.ok("zfs set userobjquota@nobody=none tank/a");
    let fill = "dd if=/dev/zero of=a bs=1M count=2 conv=fsync";
    assert!(by_user(&folder, fill).0);
    held.bench.ok("zpool sync tank");
    // Not echo, whose words the shell chooses.
    let (is_done, said) = by_user(&folder, "echo 3 | tee -a a");
    assert!(!is_done && said.contains("quota exceeded"), "{said}");
    // Root's own files are not limited; what is the user's is, also when root writes it.
    fs::write(folder.join("root's"), "text").unwrap();
    let mut file = OpenOptions::new().append(true).open(folder.join("a"));
    assert_over(&file.as_mut().unwrap().write_all(b"x").unwrap_err());
    assert_over(&chown(folder.join("root's"), Some(USER), None).unwrap_err());
    // A larger limit is there at once, in the mount that is there.
    held.bench.ok("zfs set userquota@nobody=1G tank/a");
    let (is_done, said) = by_user(&folder, "echo 3 >>a");
    assert!(is_done, "{said}");
    chown(folder.join("root's"), Some(USER), None).unwrap();
    assert!(
        held.bench
            .ok("zfs userspace -H -o name,quota tank/a")
            .contains("nobody\t1G\n")
    );
}

#[test]
fn projects_are_limited_and_their_directories_as_large_as_that() {
    let can = can_mount() && oracle::have_tool("chattr");
    if !can {
        return;
    }
    let held = Held::mounted_by_properties();
    let directory = held.path("a/p");
    fs::create_dir(&directory).unwrap();
    let status = Command::new("chattr")
        .args(["+P", "-p", "42"])
        .arg(&directory)
        .status();
    assert!(status.unwrap().success());
    held.bench.ok("zfs set projectquota@42=1M tank/a");
    let file = directory.join("file");
    fs::write(&file, vec![7; 600 << 10]).unwrap();
    held.bench.ok("zpool sync tank");
    let size = rustix::fs::statvfs(&directory).unwrap();
    assert_eq!(size.f_blocks * size.f_frsize, 1 << 20);
    let free = size.f_bavail * size.f_frsize;
    assert!((300 << 10..424 << 10).contains(&free), "{free}");
    let all = rustix::fs::statvfs(held.path("a").as_path()).unwrap();
    assert!(all.f_blocks * all.f_frsize > 100 << 20);
    let mut file = OpenOptions::new().append(true).open(&file).unwrap();
    file.write_all(&vec![7; 600 << 10]).unwrap();
    held.bench.ok("zpool sync tank");
    assert_over(&file.write_all(b"x").unwrap_err());
    assert_over(&File::create(directory.join("b")).unwrap_err());
    // A file from elsewhere may not get the project.
    let other = held.path("a/other");
    fs::write(&other, "text").unwrap();
    let outcome = Command::new("chattr")
        .args(["-p", "42"])
        .arg(&other)
        .output();
    assert!(!outcome.unwrap().status.success());
    held.bench.ok("zfs set projectquota@42=none tank/a");
    file.write_all(b"x").unwrap();
}

/// `zfs project` asks the kernel where a data set is mounted elsewhere than its properties say.
#[test]
fn projects_are_set_and_listed_through_the_kernel() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    let directory = tree.path("d");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a"), "text").unwrap();
    let run = |words: &str| {
        let line = format!("zfs project {words} {}", directory.display());
        tree.bench.ok(&line)
    };
    assert_eq!(run("-p 9 -s -r"), "");
    fs::write(directory.join("b"), "text").unwrap();
    let mut listed: Vec<String> = run("-r").lines().map(str::to_owned).collect();
    listed.sort();
    let at = directory.display();
    let expected = ["", "/a", "/b"].map(|name| format!("    9 P {at}{name}"));
    assert_eq!(listed, expected);
    assert_eq!(run("-C -k"), "");
    assert_eq!(
        run("-c"),
        format!("{at} - project inherit flag is not set\n")
    );
    tree.end().assert_clean("tank");
}
