//! `fsx` on a mount, where it is installed.

use std::fs;
use std::process::Command;

use crate::tree::{Tree, program};

/// What one run of it does: it never unmaps what it has mapped to read from, and a process may have 65,530 mappings.
const RUN: u64 = 20_000;

/// How far a run came that ended with a posix_fallocate of no bytes, which POSIX has every file system refuse.
fn asked_for_nothing(said: &str) -> Option<u64> {
    let last = said.lines().rfind(|line| line.contains("[ERROR fsx]"))?;
    let is_it = last.contains("POSIX_FALLOCATE") && last.ends_with("(    0x0 bytes)");
    let number = last.split_whitespace().nth(2)?.parse().ok()?;
    is_it.then_some(number)
}

/// `FSX_OPS` operations, in runs with a seed each.
#[test]
fn fsx_finds_nothing() {
    let Some(program) = program("fsx") else {
        return;
    };
    let operations = std::env::var("FSX_OPS").map_or(1000, |text| text.parse().unwrap());
    let tree = Tree::new("");
    let config = tree.bench.path("fsx.toml");
    let text = "flen = 262144\n[weights]\nclose_open = 1\nread = 10\nwrite = 10\nmapread = 10\n\
                mapwrite = 10\ntruncate = 10\nfsync = 1\nfdatasync = 1\ninvalidate = 1\npunch_hole = 5\n\
                sendfile = 1\nposix_fallocate = 1\ncopy_file_range = 5\n";
    fs::write(&config, text).unwrap();
    let (mut seed, mut left) = (7, operations);
    while left > 0 {
        let count = RUN.min(left);
        let mut command = Command::new(&program);
        command.arg("-f").arg(&config);
        command.args(["-S", &format!("{seed}"), "-N", &format!("{count}")]);
        command.arg("-P").arg(tree.bench.folder());
        command.arg(tree.path("f"));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        let status = output.status;
        let done = if status.success() {
            Some(count)
        } else {
            asked_for_nothing(&said)
        };
        left -= done.unwrap_or_else(|| panic!("-S {seed}: {status}\n{said}"));
        seed += 1;
    }
    tree.end().assert_clean("tank");
}
