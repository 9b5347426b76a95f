//! What POSIX and Linux have for files, through a mount.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags,
};
use rustix::io::Errno;

use crate::tree::{Tree, can_mount};

fn ran(program: &str, words: &[&str], path: &Path) -> bool {
    let status = Command::new(program).args(words).arg(path).output();
    status.unwrap().status.success()
}

#[test]
fn names_links_and_renames() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    let path = |name: &str| tree.path(name);
    fs::write(path("a"), "a").unwrap();
    fs::write(path("b"), "b").unwrap();
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, path(from), CWD, path(to), flags)
    };
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(path("a")).unwrap(), b"b");
    rename("a", "c", RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::metadata(path("a")).unwrap().rdev(), 0);
    fs::hard_link(path("c"), path("d")).unwrap();
    assert_eq!(fs::metadata(path("c")).unwrap().nlink(), 2);
    symlink("nowhere", path("s")).unwrap();
    assert_eq!(fs::read_link(path("s")).unwrap(), Path::new("nowhere"));
    let (long, longer) = ("n".repeat(255), "n".repeat(256));
    fs::write(path(&long), "").unwrap();
    let error = fs::write(path(&longer), "").unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(Errno::NAMETOOLONG.raw_os_error())
    );
    // An open file without a name can be used.
    let open = File::options()
        .read(true)
        .write(true)
        .open(path("d"))
        .unwrap();
    fs::remove_file(path("c")).unwrap();
    fs::remove_file(path("d")).unwrap();
    open.write_all_at(b"nameless", 0).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    drop(open);
    // Directories of many names are listed whole, and can be emptied.
    fs::create_dir(path("many")).unwrap();
    for number in 0..700 {
        File::create(path(&format!("many/{number}"))).unwrap();
    }
    assert_eq!(fs::read_dir(path("many")).unwrap().count(), 700);
    fs::remove_dir_all(path("many")).unwrap();
    let bench = tree.end();
    let names = bench.ok("ls tank/x:/");
    assert_eq!(
        names.split_whitespace().collect::<Vec<_>>(),
        ["a", "b", &long, "s"]
    );
    bench.assert_clean("tank");
}

#[test]
fn a_file_without_a_name_may_get_one_and_is_gone_otherwise() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    let nameless = || {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .custom_flags(flags)
            .open(&tree.directory)
            .unwrap();
        file.write_all(b"content").unwrap();
        file
    };
    let (kept, lost) = (nameless(), nameless());
    assert_eq!(kept.metadata().unwrap().nlink(), 0);
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&kept));
    let named = tree.path("named");
    rustix::fs::linkat(CWD, own, CWD, &named, AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 1);
    drop(lost);
    // What has a name is on disk; nothing was fsync'd.
    drop(kept);
    let bench = tree.kill();
    assert_eq!(bench.ok("cat tank/x:/named"), "content");
    bench.assert_clean("tank");
}

#[test]
fn content_holes_and_copies() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("");
    let path = tree.path("f");
    let options =
        |options: &mut OpenOptions| options.read(true).write(true).create(true).open(&path);
    let file = options(&mut OpenOptions::new()).unwrap();
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    let end = (1 << 20) + 4096;
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok(end));
    assert_eq!(seek(SeekFrom::Data(end)), Err(Errno::NXIO));
    assert!(seek(SeekFrom::Data(0)).unwrap() > 0);
    let allocate = |flags, at, len| rustix::fs::fallocate(&file, flags, at, len);
    allocate(FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), end);
    allocate(FallocateFlags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    allocate(punch, 1 << 20, 2048).unwrap();
    let mut read = [9; 4096];
    file.read_exact_at(&mut read, 1 << 20).unwrap();
    assert_eq!((read[2047], read[2048]), (0, 1));
    let collapsed = allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapsed, Err(Errno::OPNOTSUPP));
    assert_eq!(
        allocate(FallocateFlags::empty(), 0, 1 << 40),
        Err(Errno::NOSPC)
    );
    let copy = File::create(tree.path("copy")).unwrap();
    let (mut from, mut to) = (0, 0);
    while rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 4 << 20)
        .unwrap()
        > 0
    {}
    assert!(fs::read(&path).unwrap() == fs::read(tree.path("copy")).unwrap());
    let mut appending = OpenOptions::new()
        .append(true)
        .create(true)
        .open(tree.path("log"))
        .unwrap();
    appending.write_all(b"12").unwrap();
    appending.write_all_at(b"34", 0).unwrap();
    assert_eq!(fs::read(tree.path("log")).unwrap(), b"1234");
    file.set_len(100).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 100]);
    drop((file, copy, appending));
    tree.end().assert_clean("tank");
}

/// Streams of files come in requests as long as FUSE has, several at a time.
#[test]
fn the_kernel_reads_far_ahead_where_root_mounts() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let tree = Tree::new("");
    let device = fs::metadata(tree.path("")).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    assert_eq!(setting.unwrap().trim(), "4096");
}

#[test]
fn attributes_lists_and_flags() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("-o acltype=posix -o xattr=sa");
    let path = tree.path("f");
    fs::write(&path, "text").unwrap();
    let flags = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
    let stat = rustix::fs::statx(CWD, &path, AtFlags::empty(), flags).unwrap();
    assert!(stat.stx_mask & StatxFlags::BTIME.bits() != 0 && stat.stx_btime.tv_sec > 1_000_000_000);
    let set = |name: &str, flags| rustix::fs::setxattr(&path, name, b"value", flags);
    assert_eq!(set("user.a", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.a", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", XattrFlags::CREATE), Err(Errno::EXIST));
    set("trusted.b", XattrFlags::empty()).unwrap();
    assert_eq!(set("system.b", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
    let mut value = [0; 3];
    let got = rustix::fs::getxattr(&path, "user.a", &mut value[..]);
    assert_eq!(got, Err(Errno::RANGE));
    // A changed file loses setuid when another user than root changes it; a chown takes it away in any case.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    std::os::unix::fs::chown(&path, Some(1), Some(1)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
    // Default lists decide instead of the umask.
    fs::create_dir(tree.path("d")).unwrap();
    assert!(ran(
        "setfacl",
        &["-d", "-m", "u:daemon:rwx"],
        &tree.path("d")
    ));
    fs::write(tree.path("d/f"), "").unwrap();
    let listed = Command::new("getfacl")
        .arg("-cpn")
        .arg(tree.path("d/f"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("user:1:rwx"));
    // Flags are kept to.
    assert!(ran("chattr", &["+i"], &path));
    let denied = |error: std::io::Error| error.raw_os_error() == Some(Errno::PERM.raw_os_error());
    assert!(denied(fs::remove_file(&path).unwrap_err()));
    assert!(denied(
        File::options().append(true).open(&path).unwrap_err()
    ));
    assert!(denied(fs::rename(&path, tree.path("g")).unwrap_err()));
    assert!(denied(fs::hard_link(&path, tree.path("g")).unwrap_err()));
    assert_eq!(set("user.a", XattrFlags::empty()), Err(Errno::PERM));
    assert!(ran("chattr", &["-i", "+a"], &path));
    assert!(denied(File::options().write(true).open(&path).unwrap_err()));
    File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"!")
        .unwrap();
    assert!(denied(fs::remove_file(&path).unwrap_err()));
    assert!(ran("chattr", &["-a"], &path));
    assert_eq!(fs::read(&path).unwrap(), b"text!");
    tree.end().assert_clean("tank");
}

#[test]
fn what_is_full_says_so_and_what_is_open_is_not_unmounted() {
    if !can_mount() {
        return;
    }
    let tree = Tree::new("-o quota=2M");
    let path = tree.path("f");
    let mut file = File::create(&path).unwrap();
    let set =
        |name: &str| rustix::fs::setxattr(&path, name, b"value", rustix::fs::XattrFlags::empty());
    set("user.before").unwrap();
    let full = (0..64).find_map(|_| file.write_all(&[7; 1 << 18]).err());
    assert_eq!(
        full.unwrap().raw_os_error(),
        Some(Errno::DQUOT.raw_os_error())
    );
    rustix::fs::fsync(file.as_fd()).unwrap();
    assert_eq!(set("user.after"), Err(Errno::DQUOT));
    rustix::fs::removexattr(&path, "user.before").unwrap();
    let unmount = format!("unmount {}", tree.directory.display());
    let (code, _, error) = tree.bench.run(&unmount);
    assert_eq!(code, 1);
    assert!(error.contains("busy"), "{error}");
    drop(file);
    tree.end().assert_clean("tank");
}
