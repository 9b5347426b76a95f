//! `fsx` on a mount, where it is installed.

use std::fs;
use std::process::Command;

use crate::tree::{Tree, program};

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
