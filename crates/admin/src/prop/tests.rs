//! The tables against what the real tools say.

use super::*;
use crate::golden::{case, cases};
use crate::number::{NumberStyle, Zone};

const ZFS_SET: &str = include_str!("../../tests/golden/zfs-set.txt");
const ZPOOL_SET: &str = include_str!("../../tests/golden/zpool-set.txt");
const ZFS_GET: &str = include_str!("../../tests/golden/zfs-get.txt");
const ZFS_LIST: &str = include_str!("../../tests/golden/zfs-list.txt");
const ZPOOL_GET: &str = include_str!("../../tests/golden/zpool-get.txt");
const ZPOOL_LIST: &str = include_str!("../../tests/golden/zpool-list.txt");
const ZFS_USAGE: &str = include_str!("../../tests/golden/zfs-usage.txt");
const ZPOOL_USAGE: &str = include_str!("../../tests/golden/zpool-usage.txt");

/// Errors that can only be found by looking at the pool.
const ELSEWHERE: [&str; 6] = [
    "dataset does not exist",
    "invalid user/group name",
    "size is less than current used or reserved space",
    "size is greater than available space",
    "specified multiple times",
    "invalid options",
];
/// What OpenZFS 2.3 says of sizes of `special_small_blocks` that 2.4 takes, and this program.
const TAKEN_BY_2_4: &str = "must be zero or a power of 2 from 512B to 16M";

#[test]
fn zfs_set_takes_and_refuses_what_openzfs_does() {
    let mut checked = 0;
    for case in cases(ZFS_SET) {
        let args = case.args();
        let (dataset, assignments) = args[1..].split_last().unwrap();
        if ELSEWHERE.iter().any(|words| case.stderr.contains(words)) {
            continue;
        }
        let types = match *dataset {
            name if name.contains('@') => Types::SNAPSHOT,
            "tank/vol" => Types::VOLUME,
            _ => Types::FILESYSTEM,
        };
        let context = DatasetContext {
            volblocksize: 16 << 10,
            ..DatasetContext::existing(types)
        };
        let parse = |text: &&str| {
            let (name, value) = split_assignment(text).unwrap();
            match owner_property(name).filter(|_| types != Types::SNAPSHOT) {
                Some(property) => {
                    // The host that this was recorded on knew no names.
                    let id = Some(property.owner).filter(|owner| !owner.is_empty());
                    let id = id.map_or(Some(0), |owner| owner.parse().ok());
                    parse_owner_limit(name, id, value).map(drop)
                }
                None => parse_dataset_assignment(name, value, &context).map(drop),
            }
        };
        let error = assignments.iter().map(parse).find_map(Result::err);
        let got = error.map(|e| format!("cannot set property for '{dataset}': {e}\n"));
        let ours = got
            .as_deref()
            .is_some_and(|e| e.contains("not kept up by this program"));
        if !ours {
            let expected = match case.stderr.contains(TAKEN_BY_2_4) {
                true => "",
                false => case.stderr.as_str(),
            };
            assert_eq!(got.unwrap_or_default(), expected, "{}", case.command);
            checked += 1;
        }
    }
    assert!(checked > 80, "only {checked} cases");
}

#[test]
fn zpool_set_takes_and_refuses_what_openzfs_does() {
    for case in cases(ZPOOL_SET) {
        let elsewhere = [
            "no such pool or dataset",
            "invalid argument",
            "missing value",
            "unsupported by kernel",
        ];
        if elsewhere.iter().any(|words| case.stderr.contains(words)) {
            continue;
        }
        let assignment = case.command.strip_prefix("zpool set ").unwrap();
        let (assignment, _) = assignment.rsplit_once(' ').unwrap();
        let (name, value) = split_assignment(assignment).unwrap();
        let error = parse_pool_assignment(name, value, &PoolContext::default()).err();
        let got = error.map(|e| format!("cannot set property for 'tank': {e}\n"));
        if !got
            .as_deref()
            .is_some_and(|e| e.contains("not kept up by this program"))
        {
            assert_eq!(got.unwrap_or_default(), case.stderr, "{}", case.command);
        }
    }
}

#[test]
fn what_is_not_done_is_refused() {
    let set = |name, value| {
        let context = DatasetContext::creating(Types::FILESYSTEM);
        parse_dataset_assignment(name, value, &context).map_err(|e| e.to_string())
    };
    let refused = set("encryption", "on").unwrap_err();
    assert_eq!(
        refused,
        "'encryption=on' is not kept up by this program yet, only 'off'"
    );
    assert!(set("zoned", "on").unwrap_err().contains("only 'off'"));
    let kept = |name: &str, number| Ok((name.to_owned(), PropValue::Number(number)));
    assert_eq!(set("dedup", "off"), kept("dedup", 2));
    assert_eq!(set("dedup", "edonr,verify"), kept("dedup", 13 | 1 << 8));
    assert_eq!(
        set("filesystem_limit", "none"),
        kept("filesystem_limit", u64::MAX)
    );
    assert_eq!(set("filesystem_limit", "7"), kept("filesystem_limit", 7));
    assert_eq!(set("compress", "zstd-7"), kept("compression", 16 | 7 << 7));
    assert_eq!(set("recsize", "1M"), kept("recordsize", 1 << 20));
}

/// The names in a listing's PROPERTY column.
fn listed(text: &str, command: &str) -> Vec<String> {
    let lines = case(text, command).stdout;
    let names = lines
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().nth(1).unwrap().to_owned());
    names.filter(|name| !name.contains([':', '@'])).collect()
}

#[test]
fn get_all_shows_properties_in_openzfs_order() {
    let ours = |kind: TableKind, types: Types| -> Vec<String> {
        let all = all_properties(kind).into_iter();
        all.filter(|d| kind != TableKind::Dataset || d.types.meets(types))
            .map(|d| d.name.to_owned())
            .collect()
    };
    let check = |text, command, kind, types, absent: &[&str]| {
        let mut want = ours(kind, types);
        want.retain(|name| !absent.contains(&name.as_str()));
        assert_eq!(listed(text, command), want, "{command}");
    };
    // Properties that a dataset does not have are not shown.
    let absent = [
        "origin",
        "clones",
        "receive_resume_token",
        "encryptionroot",
        "keystatus",
    ];
    let absent = [
        &absent[..],
        &["redact_snaps", "snapshots_changed", "volsize"],
    ]
    .concat();
    let with_changes: Vec<&str> = absent
        .iter()
        .copied()
        .filter(|n| *n != "snapshots_changed")
        .collect();
    let fs = Types::FILESYSTEM;
    check(
        ZFS_GET,
        "zfs get all tank",
        TableKind::Dataset,
        fs,
        &with_changes,
    );
    check(
        ZFS_GET,
        "zfs get all tank/home@two",
        TableKind::Dataset,
        Types::SNAPSHOT,
        &absent,
    );
    check(
        ZFS_GET,
        "zfs get all tank/home#mark",
        TableKind::Dataset,
        Types::BOOKMARK,
        &["compressratio", "redact_snaps"],
    );
    check(
        ZPOOL_GET,
        "zpool get -p all tank",
        TableKind::Pool,
        Types::NONE,
        &[],
    );
    check(
        ZPOOL_GET,
        "zpool get all tank vda1",
        TableKind::Vdev,
        Types::NONE,
        &["raidz_expanding"],
    );
}

#[test]
fn columns_have_openzfs_headers_in_order() {
    let headers = |kind: TableKind| -> String {
        let all = all_properties(kind);
        let all: Vec<&str> = all.iter().map(|desc| desc.column).collect();
        all.join(" ")
    };
    let real = |text, command| -> String {
        let header = case(text, command)
            .stdout
            .lines()
            .next()
            .unwrap()
            .to_owned();
        let words = header.split_whitespace().skip(1);
        words
            .filter(|w| !w.contains(['@', ':']))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        real(ZFS_LIST, "zfs list -o all tank/home"),
        headers(TableKind::Dataset)
    );
    assert_eq!(
        real(ZPOOL_LIST, "zpool list -o all"),
        headers(TableKind::Pool)
    );
}

#[test]
fn help_lists_what_openzfs_lists() {
    let table = |text: &str| -> String {
        let from = text.find("\n\tPROPERTY").unwrap();
        let lines = text[from + 1..].lines();
        let rows = lines.take_while(|l| l.is_empty() || l.starts_with('\t'));
        rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    };
    let zfs = case(ZFS_USAGE, "zfs get").stderr.replace("\n2>\n", "\n\n");
    // `special_small_blocks`, from OpenZFS 2.4 on.
    let zfs = zfs.replace("zero or 512 to 1M, power of 2", "0 to 16M");
    assert_eq!(table(&help(TableKind::Dataset)), table(&zfs));
    let zpool = case(ZPOOL_USAGE, "zpool get").stderr;
    assert_eq!(table(&help(TableKind::Pool)), table(&zpool));
}

#[test]
fn values_print_as_openzfs_prints_them() {
    let dataset = |name: &str, number, style| {
        let desc = TableKind::Dataset.lookup(name).unwrap();
        format_dataset_value(desc, &PropValue::Number(number), style, Zone::UTC)
    };
    let nice = |name, number| dataset(name, number, NumberStyle::Nice);
    assert_eq!(nice("quota", 0), "none");
    assert_eq!(dataset("quota", 0, NumberStyle::Exact), "0");
    assert_eq!(nice("written", 0), "0");
    assert_eq!(nice("usedbysnapshots", 0), "0B");
    assert_eq!(nice("refratio", 123), "1.23x");
    assert_eq!(
        nice("snapshots_changed", 1_795_248_339),
        "Sat Nov 21  8:05:39 2026"
    );
    assert_eq!(nice("creation", 1_795_248_339), "Sat Nov 21  8:05 2026");
    assert_eq!(nice("snapshot_count", u64::MAX), "none");
    assert_eq!(nice("compression", 10), "gzip");
    assert_eq!(nice("mounted", 1), "yes");
    assert_eq!(nice("guid", u64::MAX), u64::MAX.to_string());
    let pool = |name: &str, number| {
        let desc = TableKind::Pool.lookup(name).unwrap();
        format_pool_value(desc, &PropValue::Number(number), NumberStyle::Nice)
    };
    assert_eq!(pool("version", 5000), "-");
    assert_eq!(pool("frag", 7), "7%");
    assert_eq!(pool("checkpoint", 0), "-");
    assert_eq!(pool("dedup", 100), "1.00x");
    assert_eq!(pool("ddtquota", u64::MAX), "auto");
}

#[test]
fn tables_are_consistent() {
    for table in [DATASET, POOL, VDEV] {
        for (at, desc) in table.iter().enumerate() {
            assert!(
                std::ptr::eq(lookup(table, desc.name).unwrap(), desc),
                "{}",
                desc.name
            );
            assert!(table[at + 1..].iter().all(|d| d.name != desc.name));
            if let (Kind::Index(default, words), true) = (desc.kind, desc.name != "version") {
                assert!(words.iter().any(|w| w.1 == default), "{}", desc.name);
            }
            if let Honoured::Only(words) = desc.honoured {
                assert!(!words.is_empty());
                let known =
                    |w: &&str| !matches!(desc.kind, Kind::Index(..)) || desc.number(w).is_some();
                assert!(words.iter().all(known), "{}", desc.name);
            }
        }
    }
}

#[test]
fn lists_of_properties() {
    let list = |text| parse_list(TableKind::Dataset, text);
    let names = |text| -> Vec<String> {
        let list = list(text).unwrap().unwrap();
        list.iter().map(|n| n.as_str().to_owned()).collect()
    };
    assert_eq!(
        names("name,avail,a:b,userused@me"),
        ["name", "available", "a:b", "userused@me"]
    );
    assert_eq!(names("space").len(), 7);
    assert_eq!(list("all"), Ok(None));
    assert_eq!(
        list("bogus").unwrap_err(),
        "bad property list: invalid property 'bogus'"
    );
    assert_eq!(
        list("").unwrap_err(),
        "bad property list: no properties specified"
    );
}
