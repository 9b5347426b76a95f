//! `ashift links`.

use std::process::Command;

use crate::{Said, path};

fn ashift(args: &[&str]) -> Said {
    Command::new(env!("CARGO_BIN_EXE_ashift"))
        .args(args)
        .output()
        .unwrap()
        .into()
}

#[test]
fn links_are_the_program_under_other_names() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("not/there/yet");
    for _ in 0..2 {
        let said = ashift(&["links", path(&bin)]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (0, ""),
            "making them again is no error"
        );
    }
    let said: Said = Command::new(bin.join("zfs"))
        .arg("help")
        .output()
        .unwrap()
        .into();
    assert!(
        said.out.starts_with("usage: zfs command args"),
        "{}",
        said.out
    );
}

#[test]
fn links_leave_alone_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("zfs"), "mine").unwrap();
    let said = ashift(&["links", path(folder.path())]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(std::fs::read(folder.path().join("zfs")).unwrap(), b"mine");
    let file = folder.path().join("zfs/bin");
    let said = ashift(&["links", path(&file)]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains(path(&file)), "{}", said.err);
    assert_eq!(ashift(&["links"]).code, 2);
}
