//! File systems that ignore case or normalise names.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc::ArcSettings;
use base::ErrorKind;
use proptest::prelude::*;
use ram::RamStore;

use super::{Pool, check_tree, create, props};
use crate::{Filesystem, NameRules, NoLog, RenameKind, SetXattr, Settings};

const FORM_D: u64 = 0x10;

fn pool(names: NameRules) -> Arc<Pool> {
    let store = Arc::new(arc::Cache::new(
        Arc::new(RamStore::new()),
        ArcSettings::default(),
    ));
    Pool::with_names(store, props(), Settings::default(), Arc::new(NoLog), names)
}

fn rules(casesensitivity: u64, normalization: u64) -> NameRules {
    NameRules {
        utf8only: false,
        casesensitivity,
        normalization,
    }
}

fn names(fs: &Filesystem) -> Vec<String> {
    let entries = fs.list(fs.root()).unwrap();
    let mut names: Vec<_> = entries
        .iter()
        .map(|e| String::from_utf8_lossy(&e.name).into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn case_is_ignored_and_kept() {
    let pool = pool(rules(1, 0));
    let mut fs = pool.mount();
    let root = fs.root();
    let file = fs
        .create_file(root, "Größe.TXT".as_bytes(), &create(0o644))
        .unwrap()
        .id;
    assert_eq!(fs.lookup(root, "gRÖßE.txt".as_bytes()).unwrap().id, file);
    let again = fs.create_file(root, "GRÖßE.TXT".as_bytes(), &create(0o644));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Exists);
    let linked = fs.link(file, root, "größe.txt".as_bytes());
    assert_eq!(linked.unwrap_err().kind(), ErrorKind::Exists);
    fs = pool.remount(fs);
    assert_eq!(names(&fs), ["Größe.TXT"]);
    // Its own name in other case is another name.
    let rename =
        |from: &str, to: &str, kind| fs.rename(root, from.as_bytes(), root, to.as_bytes(), kind);
    rename("größe.txt", "GRÖßE.txt", RenameKind::NoReplace).unwrap();
    assert_eq!(names(&fs), ["GRÖßE.txt"]);
    fs.mkdir(root, b"Dir", &create(0o755)).unwrap();
    rename("dir", "DIR", RenameKind::Replace).unwrap();
    let other = fs.create_file(root, b"other", &create(0o644)).unwrap().id;
    rename("OTHER", "GRÖßE.TXT", RenameKind::Replace).unwrap();
    assert_eq!(names(&fs), ["DIR", "GRÖßE.TXT"]);
    assert_eq!(fs.lookup(root, "größe.txt".as_bytes()).unwrap().id, other);
    fs.unlink(root, "größe.txt".as_bytes()).unwrap();
    fs.rmdir(root, b"dIR").unwrap();
    assert_eq!(names(&fs), [""; 0]);
    assert_eq!(check_tree(&fs), 1);
}

#[test]
fn mixed_keeps_case_for_programs_of_posix() {
    let pool = pool(rules(2, 0));
    let fs = pool.mount();
    let root = fs.root();
    for name in ["a", "A", "b"] {
        fs.create_file(root, name.as_bytes(), &create(0o644))
            .unwrap();
    }
    assert_eq!(
        fs.lookup(root, b"B").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    fs.unlink(root, b"A").unwrap();
    assert_eq!(names(&fs), ["a", "b"]);
}

#[test]
fn names_are_normalised() {
    let pool = pool(rules(0, FORM_D));
    let fs = pool.mount();
    let root = fs.root();
    let file = fs
        .create_file(root, "\u{e9}t\u{e9}".as_bytes(), &create(0o644))
        .unwrap()
        .id;
    assert_eq!(
        fs.lookup(root, "e\u{301}te\u{301}".as_bytes()).unwrap().id,
        file
    );
    assert_eq!(
        fs.lookup(root, "\u{c9}T\u{c9}".as_bytes())
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
    // The name that it was given stays: another spelling is the same one.
    fs.rename(
        root,
        "\u{e9}t\u{e9}".as_bytes(),
        root,
        "e\u{301}t\u{e9}".as_bytes(),
        RenameKind::Replace,
    )
    .unwrap();
    assert_eq!(names(&fs), ["\u{e9}t\u{e9}"]);
    let no_utf8 = fs.create_file(root, b"\xff", &create(0o644));
    assert_eq!(no_utf8.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn extended_attributes_in_directories_ignore_case_too() {
    let pool = pool(rules(1, 0));
    let mut fs = pool.mount();
    let file = fs.create_file(fs.root(), b"f", &create(0o644)).unwrap().id;
    let value = vec![7; 40_000];
    fs.setxattr(file, b"user.Large", &value, SetXattr::Set)
        .unwrap();
    fs = pool.remount(fs);
    assert_eq!(fs.getxattr(file, b"user.LARGE").unwrap(), Some(value));
    fs.removexattr(file, b"user.large").unwrap();
    assert!(fs.listxattr(file).unwrap().is_empty());
}

#[test]
fn rules_that_openzfs_does_not_have_are_refused() {
    for rules in [rules(3, 0), rules(0, 0x40), rules(0, 4)] {
        assert_eq!(
            crate::names::Names::of(&rules).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Unlink(usize),
    Rename(usize, usize),
    Remount,
}

const SPELLINGS: [&str; 12] = [
    "a",
    "A",
    "\u{e9}",
    "e\u{301}",
    "\u{c9}",
    "E\u{301}",
    "long name of a file that does not fit into a micro zap entry",
    "Long Name of a File that does not fit into a micro zap entry",
    "\u{3c9}",
    "\u{3a9}",
    "\u{212b}",
    "a\u{30a}",
];

fn step() -> impl Strategy<Value = Step> {
    let name = 0..SPELLINGS.len();
    prop_oneof![
        4 => name.clone().prop_map(Step::Create),
        2 => name.clone().prop_map(Step::Unlink),
        3 => (name.clone(), name).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => Just(Step::Remount),
    ]
}

/// Spellings that are one name: their first letters, after folding as the rules say.
fn key(name: &str, rules: NameRules) -> String {
    let mut key = name.to_owned();
    if rules.casesensitivity == 1 {
        key = key.to_uppercase();
    }
    if rules.normalization != 0 {
        for (composed, parts) in [
            ("\u{e9}", "e\u{301}"),
            ("\u{c9}", "E\u{301}"),
            ("\u{212b}", "A\u{30a}"),
        ] {
            key = key.replace(composed, parts);
        }
    }
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn prop_a_directory_is_a_map_of_folded_names(
        case in 0u64..3, form in prop::sample::select(vec![0, FORM_D]), steps in prop::collection::vec(step(), 1..60),
    ) {
        let rules = rules(case, form);
        let pool = pool(rules);
        let mut fs = pool.mount();
        let root = fs.root();
        let mut model: BTreeMap<String, &str> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Create(n) => {
                    let name = SPELLINGS[n];
                    let made = fs.create_file(root, name.as_bytes(), &create(0o644));
                    prop_assert_eq!(made.is_ok(), !model.contains_key(&key(name, rules)), "{:?}", name);
                    model.entry(key(name, rules)).or_insert(name);
                }
                Step::Unlink(n) => {
                    let removed = fs.unlink(root, SPELLINGS[n].as_bytes());
                    prop_assert_eq!(removed.is_ok(), model.remove(&key(SPELLINGS[n], rules)).is_some());
                }
                Step::Rename(from, to) => {
                    let (from, to) = (SPELLINGS[from], SPELLINGS[to]);
                    let renamed = fs.rename(root, from.as_bytes(), root, to.as_bytes(), RenameKind::Replace);
                    let is_there = model.contains_key(&key(from, rules));
                    prop_assert_eq!(renamed.is_ok(), is_there);
                    if !is_there {
                        continue;
                    }
                    let old = model[&key(from, rules)];
                    let exact = NameRules { casesensitivity: 0, ..rules };
                    let is_same = key(from, rules) == key(to, rules);
                    if !is_same || key(old, exact) != key(to, exact) {
                        model.remove(&key(from, rules));
                        model.insert(key(to, rules), to);
                    }
                }
                Step::Remount => fs = pool.remount(fs),
            }
            let mut expected: Vec<&str> = model.values().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(names(&fs), expected);
        }
        check_tree(&fs);
    }
}
