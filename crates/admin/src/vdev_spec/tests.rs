//! Specifications and error messages, compared with those of the real tools.

use super::*;
use crate::getopt::{OptSpec, parse};
use crate::golden::cases;
use crate::name::check_pool_name;

const ZPOOL_CREATE: &str = include_str!("../../tests/golden/zpool-create.txt");
const CREATE: OptSpec = OptSpec {
    short: ":fndR:m:o:O:t:",
    long: &[],
};

/// Errors in the words, rather than about the devices.
const OURS: [&str; 3] = [
    "invalid vdev specification",
    "invalid number of dRAID",
    "invalid dRAID",
];

fn disks(_: &str) -> LeafFacts {
    LeafFacts {
        is_file: false,
        size: None,
    }
}

#[test]
fn zpool_create_reads_devices_as_openzfs_does() {
    let mut checked = 0;
    for case in cases(ZPOOL_CREATE) {
        let args = case.args();
        let Ok(parsed) = parse(&CREATE, &args[1..]) else {
            continue;
        };
        let is_ours = OURS.iter().any(|words| case.stderr.starts_with(words));
        let foreign = !is_ours && !case.stderr.is_empty() || case.stderr.contains("part of");
        if foreign
            || parsed.operands.len() < 2
            || case.command.contains("/tmp/")
            || case.command.contains("ta nk")
        {
            continue;
        }
        let (pool, words) = parsed.operands.split_first().unwrap();
        let outcome = parse_vdev_spec(words).and_then(|spec| {
            if !parsed.has('f') {
                let lines =
                    check_replication(&spec, None, &disks).and_then(|()| check_has_normal(&spec));
                lines.map_err(|lines| override_message(&lines, false).trim_end().to_owned())?;
            }
            Ok(spec)
        });
        match outcome {
            Ok(spec) if parsed.has('n') => {
                let got = layout(pool, &spec, &str::to_owned);
                assert_eq!(got, case.stdout, "{}", case.command);
            }
            Ok(_) => assert_eq!(case.stderr, "", "{}", case.command),
            Err(got) => assert_eq!(got + "\n", case.stderr, "{}", case.command),
        }
        checked += 1;
    }
    assert!(checked > 50, "only {checked} cases");
}

#[test]
fn pool_names_are_refused_as_openzfs_does() {
    let mut checked = 0;
    for case in cases(ZPOOL_CREATE) {
        let args: Vec<&str> = case.args();
        let [_, name, "vda1"] = args[..] else {
            continue;
        };
        if name.starts_with('-') || name.is_empty() || !name.is_ascii() {
            continue;
        }
        let got = check_pool_name(name, true).err().map(|e| e.to_string());
        let first = case.stderr.lines().next().unwrap_or("");
        let want = first.strip_prefix(&format!("cannot create '{name}': "));
        if let (Some(got), Some(want)) = (&got, want) {
            assert_eq!(got, want, "{}", case.command);
            checked += 1;
        } else {
            assert_eq!(got, None, "{}: {first}", case.command);
        }
    }
    assert!(checked >= 10, "only {checked} cases");
}

#[test]
fn vdevs_that_do_not_match_the_pool() {
    let spec = parse_vdev_spec(&["vdj1"]).unwrap();
    let pool = Replication {
        type_name: "mirror",
        children: 2,
        parity: 0,
    };
    let wrong = check_replication(&spec, Some(pool), &disks).unwrap_err();
    let text = "mismatched replication level: pool uses mirror and new vdev is disk";
    assert_eq!(wrong, [text]);
}

#[test]
fn files_and_disks_do_not_mix() {
    let spec = parse_vdev_spec(&["mirror", "/f", "d"]).unwrap();
    let facts = |name: &str| LeafFacts {
        is_file: name == "/f",
        size: Some(1 << 30),
    };
    let wrong = check_replication(&spec, None, &facts).unwrap_err();
    let text = "mismatched replication level: mirror contains both files and devices";
    assert_eq!(wrong, [text]);
    let sizes = |name: &str| LeafFacts {
        is_file: false,
        size: Some(if name == "d" { 1 << 30 } else { 2 << 30 }),
    };
    let wrong = check_replication(&spec, None, &sizes).unwrap_err();
    assert_eq!(wrong, ["mirror contains devices of different sizes"]);
}
