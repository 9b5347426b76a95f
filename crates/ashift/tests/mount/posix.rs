//! `pjdfstest` on a mount, beside `ext4` on a loop device: what passes there passes here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tree::{Tree, program};

/// How often `mount` is tried, each time after a fiftieth of a second.
const REMOUNTS_MAX: u32 = 20;

/// Cases that ask something else of `ext4` than of a data set.
const NOT_ASKED: [&str; 1] = [
    // `ext4` has a limit of links that can be reached; FUSE knows of none.
    "link::link_count_max",
];

/// `ext4` in an image, mounted by the kernel.
struct Ext4 {
    directory: PathBuf,
}

impl Ext4 {
    fn new(folder: &Path) -> Ext4 {
        let (image, directory) = (folder.join("ext4.img"), folder.join("ext4"));
        let file = fs::File::create(&image).unwrap();
        file.set_len(256 << 20).unwrap();
        fs::create_dir(&directory).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&directory));
        Ext4 { directory }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.directory));
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// What became of each case, by its name: `ok`, `FAILED` or `skipped`.
///
/// Cases on a read-only file system remount it by `mount`, which is `folder`'s: for `fuse.ashift` Debian's asks a
/// program `ashift` to do that, unless `-i` says that the kernel is to.
fn outcomes(
    program: &Path,
    config: &Path,
    folder: &Path,
    directory: &Path,
) -> (BTreeMap<String, String>, String) {
    // Other users are to reach it.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(config).arg("-p").arg(directory);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let cases = said.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, outcome) = (words.next()?, words.next()?);
        name.contains("::")
            .then(|| (name.to_owned(), outcome.to_owned()))
    });
    (cases.collect(), said)
}

#[test]
fn pjdfstest_passes_what_passes_on_ext4() {
    let Some(program) = program("pjdfstest") else {
        return;
    };
    if !oracle::have_tool("mkfs.ext4") {
        return;
    }
    let tree = Tree::new("");
    let folder = tree.bench.folder();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = folder.join("pjdfstest.toml");
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutimensat = {{}}\nutime_now = {{}}\n\
         stat_st_birthtime = {{}}\nsecondary_fs = {:?}\n[settings]\nnaptime = 0.01\nallow_remount = true\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n",
        other.path()
    );
    fs::write(&config, text).unwrap();
    let mount = oracle::find_tool("mount").expect("every Linux has it");
    // What was removed keeps the file system busy until its last RELEASE or RELEASEDIR is answered, for which no
    // program waits: until then it cannot be mounted anew as read-only. By io_uring on busy processors that takes up to
    // 12 ms, in one of six cases.
    let script = format!(
        "#!/bin/sh\nn=0\nuntil {} -i \"$@\"; do\n n=$((n + 1)); [ $n -lt {REMOUNTS_MAX} ] || exit 32\n \
         sleep 0.02\ndone\n",
        mount.display()
    );
    fs::write(folder.join("mount"), script).unwrap();
    fs::set_permissions(folder.join("mount"), fs::Permissions::from_mode(0o755)).unwrap();
    let (theirs, _) = {
        let ext4 = Ext4::new(folder);
        outcomes(&program, &config, folder, &ext4.directory)
    };
    let (ours, said) = outcomes(&program, &config, folder, &tree.directory);
    let passed = |cases: &BTreeMap<String, String>| cases.values().filter(|v| *v == "ok").count();
    eprintln!("{} pass here, {} on ext4", passed(&ours), passed(&theirs));
    assert!(passed(&theirs) > 300, "ext4 passes most");
    // Some fail on both: their own open files keep the file system from being remounted.
    for (name, outcome) in &theirs {
        let here = ours.get(name).map_or("missing", String::as_str);
        let is_asked = !NOT_ASKED.contains(&name.as_str());
        assert!(
            here == "ok" || outcome != "ok" || !is_asked,
            "{name}: {here}\n{said}"
        );
        let fails_alone = here == "FAILED" && outcome != "FAILED";
        assert!(!fails_alone, "{name}\n{said}");
    }
    tree.end().assert_clean("tank");
}
