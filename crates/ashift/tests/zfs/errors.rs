//! Invalid input, and the messages of the real tools.

use crate::{Place, golden};

const ERRORS: &str = include_str!("../../../admin/tests/golden/zfs-errors.txt");
const SET: &str = include_str!("../../../admin/tests/golden/zfs-set.txt");

/// The datasets that the real tools had, as far as they are supported here.
fn place() -> Place {
    let place = Place::with_pool("-O mountpoint=/mnt/tank -O compression=lz4 -O atime=off");
    place.zfs("set com.example:note=there tank");
    place.zfs("create -o quota=100M -o recordsize=1M -o com.example:note=hello tank/home");
    place.zfs("create tank/home/user");
    place.zfs("create -o mountpoint=legacy -o quota=15M -o refreservation=5M tank/leg");
    place.zfs("snapshot -r tank@one");
    place
        .write("tank/home", "file", &vec![0x5a; 20 << 20])
        .unwrap();
    place.write("tank/home", "other", &noise(5 << 20)).unwrap();
    place.zfs("snapshot tank/home@two");
    place.zfs("clone tank/home@one tank/clone");
    place
}

pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// The text before the usage, which differs.
fn complaint(text: &str) -> &str {
    text.split("usage:").next().unwrap()
}

#[test]
fn what_is_wrong_is_said_as_openzfs_says_it() {
    let place = place();
    // Volumes and mounts do not exist here; and arguments have no blanks.
    let elsewhere = [
        "-V", "volsize", "/vol", " mount", "unmount", "holds", "a b c",
    ];
    let mut checked = 0;
    for (command, real) in golden(ERRORS) {
        let mounts = real.err.contains("mount");
        if mounts || elsewhere.iter().any(|words| command.contains(words)) {
            continue;
        }
        let changes = [
            "rename tank/home tank/home",
            "inherit com",
            " hold keep",
            " release keep",
        ];
        if real.code == 0 && !command.contains("-n") && !changes.iter().any(|c| command.contains(c))
        {
            continue;
        }
        // Without the bookmark and the volume that were in the way when it was recorded.
        let wanted = real.err.replace("tank/home#mark\n", "");
        if wanted.contains("tank/v1") || command.contains("tank/v1") {
            continue;
        }
        let said = place.run(&command);
        if said.err.ends_with(": not supported yet\n") {
            assert_eq!(said.code, 1, "{command}");
            continue;
        }
        assert_eq!(complaint(&said.err), complaint(&wanted), "{command}");
        assert_eq!(
            (said.code, said.out.as_str()),
            (real.code, real.out.as_str()),
            "{command}"
        );
        checked += 1;
    }
    assert!(checked > 50, "only {checked} cases");
    place.verify();
}

#[test]
fn what_is_set_is_checked_as_openzfs_checks_it() {
    let place = place();
    // Volumes; a special device; owners, whose names the guest did not know; options for a server that is not here.
    let elsewhere = [
        "tank/vol",
        "userquota",
        "userused",
        "groupquota",
        "special_small_blocks",
        "sharenfs",
    ];
    let mut checked = 0;
    for (command, real) in golden(SET) {
        if elsewhere.iter().any(|words| command.contains(words)) {
            continue;
        }
        let said = place.run(&command);
        if said.err.contains("not kept up by this program") {
            assert_eq!(said.code, 255, "{command}");
            continue;
        }
        assert_eq!(
            (said.err.as_str(), said.code),
            (real.err.as_str(), real.code),
            "{command}"
        );
        checked += 1;
    }
    assert!(checked > 80, "only {checked} cases");
    place.verify();
}

#[test]
fn names_have_255_bytes_at_most() {
    let place = Place::with_pool("");
    let long = format!("tank/{}", "x".repeat(251));
    place.refused(
        &format!("create {long}"),
        &format!("cannot create '{long}': name is too long"),
    );
    let fits = &long[..255];
    place.zfs(&format!("create {fits}"));
    let snap = format!("{fits}@s");
    place.refused(
        &format!("snapshot {snap}"),
        &format!("cannot create snapshot '{snap}': name is too long"),
    );
    place.zfs("create tank/a");
    place.zfs(&format!("create tank/a/{}", "y".repeat(200)));
    let said = place.run(&format!("zfs rename tank/a tank/{}", "z".repeat(100)));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("too long"), "{}", said.err);
    place.verify();
}

#[test]
fn what_is_not_there_says_so() {
    let place = Place::with_pool("");
    place.refused(
        "create -V 1M tank/v",
        "cannot create 'tank/v': volumes are not supported yet",
    );
    place.refused(
        "create -V 1Q tank/v",
        "bad volume size '1Q': invalid numeric suffix 'Q'",
    );
    for command in ["send", "receive", "unshare", "diff", "share", "allow"] {
        place.refused(command, &format!("zfs {command}: not supported yet"));
    }
    let create = "create -o normalization=formD -o utf8only=off tank/a";
    let words = "'utf8only' must be set 'on' if normalization chosen";
    place.refused(create, &format!("cannot create 'tank/a': {words}"));
    let words = "cannot create 'tank/a': Keyformat required for new encryption root.";
    place.refused("create -o encryption=on tank/a", words);
    assert_eq!(place.names(), "tank");
    assert!(place.zfs("version").starts_with("ashift-"));
}

#[test]
fn usage_is_asked_for_or_given() {
    let place = Place {
        folder: tempfile::tempdir().unwrap(),
    };
    for (args, code) in [
        ("zfs", 2),
        ("zfs bogus", 2),
        ("zfs create", 2),
        ("zfs list -Z", 2),
        ("zfs create -h", 2),
    ] {
        let said = place.run(args);
        assert_eq!(said.code, code, "{args}");
        assert!(said.err.contains("usage:"), "{args}: {}", said.err);
    }
    let said = place.run("zfs create --help");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.contains("create [-Pnpuv]"), "{}", said.out);
    for command in ["list", "get", "rename", "send"] {
        assert!(
            place
                .zfs(&format!("help {command}"))
                .contains(&format!("\t{command} "))
        );
    }
    let said = place.run("zfs list");
    assert_eq!(
        (said.code, said.err.as_str()),
        (0, "no datasets available\n")
    );
}
