//! Pools that take long to make.

use std::collections::BTreeMap;

use admin::pool::{NameStyle, PoolStatus, VdevKind, VdevStatus};
use zio::AllocClass;

use crate::{Files, Finding, Pool, Severity, examine_pool};

fn device(id: u64) -> VdevStatus {
    VdevStatus {
        guid: id + 1,
        path: Some(format!("d{id}")),
        configured_ashift: 12,
        physical_bytes: 1 << 40,
        ..VdevStatus::default()
    }
}

fn mirror(class: AllocClass, used_percent: u64, fragmentation: u64) -> VdevStatus {
    VdevStatus {
        kind: VdevKind::Mirror,
        class,
        configured_ashift: 12,
        space_bytes: 1 << 40,
        alloc_bytes: (1 << 40) / 100 * used_percent + 100,
        fragmentation: Some(fragmentation),
        children: vec![device(1), device(2)],
        ..VdevStatus::default()
    }
}

fn pool(tops: Vec<VdevStatus>, features: &[&str]) -> Pool {
    let root = VdevStatus {
        kind: VdevKind::Root,
        children: tops,
        ..VdevStatus::default()
    };
    Pool {
        status: PoolStatus {
            name: "tank".to_owned(),
            root,
            ..PoolStatus::default()
        },
        unavailable: None,
        active_features: features.iter().map(|guid| (*guid).to_owned()).collect(),
        devices: BTreeMap::new(),
        style: NameStyle::default(),
        found_in: None,
    }
}

fn names(found: &[Finding]) -> Vec<(&'static str, Severity)> {
    found.iter().map(|one| (one.id, one.severity)).collect()
}

#[test]
fn space_is_judged_by_its_class() {
    let of = |used, fragmentation| {
        let pool = pool(vec![mirror(AllocClass::Normal, used, fragmentation)], &[]);
        names(&examine_pool(&pool))
    };
    assert_eq!(of(79, 59), []);
    assert_eq!(of(80, 0), [("pool-full", Severity::Note)]);
    assert_eq!(of(90, 0), [("pool-full", Severity::Warning)]);
    assert_eq!(of(10, 60), [("fragmented", Severity::Warning)]);
    let special = |used| {
        let tops = vec![
            mirror(AllocClass::Normal, 10, 0),
            mirror(AllocClass::Special, used, 0),
        ];
        names(&examine_pool(&pool(tops, &[])))
    };
    assert_eq!(special(74), []);
    assert_eq!(special(75), [("special-full", Severity::Warning)]);
}

#[test]
fn features_are_judged_by_the_releases_that_know_them() {
    let of = |features: &[&str]| {
        let pool = pool(vec![mirror(AllocClass::Normal, 1, 0)], features);
        names(&examine_pool(&pool))
    };
    assert_eq!(
        of(&["org.illumos:lz4_compress", "com.delphix:head_errlog"]),
        []
    );
    let longname = [("new-feature", Severity::Note)];
    assert_eq!(of(&["org.zfsonlinux:longname"]), longname);
    let rewrite = [("new-feature", Severity::Warning)];
    assert_eq!(of(&["com.truenas:physical_rewrite"]), rewrite);
    let domains = [("unreleased-feature", Severity::Critical)];
    assert_eq!(of(&["com.seagate:draid_failure_domains"]), domains);
    let unknown = [("unknown-feature", Severity::Critical)];
    assert_eq!(of(&["com.example:mine"]), unknown);
}

#[test]
fn errors_and_damage_are_told_with_what_survives() {
    let mut one = pool(vec![mirror(AllocClass::Normal, 1, 0)], &[]);
    one.status.root.children[0].children[0].checksum_errors = 3;
    one.status.error_count = Some(2);
    let expect = [
        ("device-errors", Severity::Warning),
        ("damaged-data", Severity::Critical),
    ];
    assert_eq!(names(&examine_pool(&one)), expect);
}

#[test]
fn tails_are_what_last_records_have_beyond_files() {
    let mut files = Files::default();
    files.add(10_000, 10_240, 131_072);
    assert_eq!((files.tail_bytes, files.large_count), (0, 0));
    files.add(131_073, 131_072, 131_072);
    assert_eq!((files.tail_bytes, files.older_bytes), (131_071, 0));
    files.add(1 << 20, 131_072, 1 << 20);
    assert_eq!((files.tail_bytes, files.older_bytes), (131_071, 1 << 20));
}
