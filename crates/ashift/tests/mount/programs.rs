//! Test programs of others on a mount: pjdfstest and fsx, where they are installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::tree::{Tree, can_mount};

/// Such a program, if it can be used here.
fn program(name: &str) -> Option<PathBuf> {
    (oracle::have_tool(name) && can_mount()).then(|| oracle::find_tool(name).expect("it is there"))
}

#[test]
fn pjdfstest_finds_nothing() {
    let Some(program) = program("pjdfstest") else {
        return;
    };
    let tree = Tree::new("");
    let config = tree.bench.path("pjdfstest.toml");
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
                stat_st_birthtime = {}\n[settings]\nnaptime = 0.01\n[dummy_auth]\n\
                entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(&config, text).unwrap();
    // Other users are to reach it.
    fs::set_permissions(tree.bench.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&tree.directory, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&config)
        .arg("-p")
        .arg(&tree.directory);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let summary = said.lines().find(|line| line.starts_with("Summary: "));
    assert!(
        summary.is_some_and(|line| line.contains(" 0 failed")),
        "{said}"
    );
    tree.end().assert_clean("tank");
}

#[test]
fn fsx_finds_nothing() {
    let Some(program) = program("fsx") else {
        return;
    };
    let operations = std::env::var("FSX_OPS").unwrap_or_else(|_| "1000".to_owned());
    let tree = Tree::new("");
    let config = tree.bench.path("fsx.toml");
    let text = "flen = 262144\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\nmapread = 10\n\
                mapwrite = 10\ntruncate = 10\nfsync = 1\nfdatasync = 1\ninvalidate = 1\npunch_hole = 5\n\
                sendfile = 1\nposix_fallocate = 1\ncopy_file_range = 5\n";
    fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command
        .arg("-f")
        .arg(&config)
        .args(["-N", &operations, "-S", "7", "-P"]);
    let output = command
        .arg(tree.bench.folder())
        .arg(tree.path("f"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = (text(&output.stdout), text(&output.stderr));
    let status = output.status;
    assert!(status.success(), "{status}\n{}{}", said.0, said.1);
    tree.end().assert_clean("tank");
}
