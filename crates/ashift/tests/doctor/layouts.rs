//! Layouts of pools.

use crate::bench::Bench;
use crate::expect;

/// Images of 64 MiB.
fn images() -> Bench {
    let bench = Bench::new(&[]);
    for name in ["a", "b", "c", "d", "e"] {
        bench.image(name, 64);
    }
    bench.image("f", 64);
    bench
}

/// Makes a pool, looks at it, and destroys it.
#[track_caller]
fn look(bench: &Bench, create: &str, findings: &[&str]) {
    bench.ok(&format!("zpool create -f tank {create}"));
    expect(bench, "tank", findings);
    bench.ok("zpool destroy tank");
}

#[test]
fn pools_that_are_well_made_have_no_findings() {
    let bench = images();
    for layout in [
        "{a}",
        "mirror {a} {b}",
        "raidz {a} {b} {c}",
        "draid {a} {b} {c} {d}",
    ] {
        look(&bench, layout, &[]);
    }
    look(&bench, "mirror {a} {b} log mirror {c} {d} spare {e}", &[]);
    look(&bench, "mirror {a} {b} special mirror {c} {d}", &[]);
}

#[test]
fn what_a_layout_does_not_survive_is_said() {
    let bench = images();
    let f = bench.path("f").display().to_string();
    look(&bench, "{a} {b}", &["note no-redundancy tank"]);
    look(
        &bench,
        "mirror {a} {b} special {c}",
        &["critical special-single tank: c"],
    );
    look(
        &bench,
        &format!("raidz2 {{a}} {{b}} {{c}} {{d}} special mirror {{e}} {f}"),
        &[
            "note special-stays tank: mirror-1",
            "warning special-weaker tank: mirror-1",
        ],
    );
    look(
        &bench,
        "raidz {a} {b} {c} special mirror {d} {e}",
        &["note special-stays tank: mirror-1"],
    );
    look(
        &bench,
        "mirror {a} {b} log {c}",
        &["note single-log tank: c"],
    );
    look(
        &bench,
        "mirror {a} {b} {c} mirror {d} {e}",
        &["warning mixed-redundancy tank: mirror-1"],
    );
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool add -f tank {c}");
    expect(&bench, "tank", &["critical single-device tank: c"]);
    bench.ok("zpool destroy tank");
    bench.image("shorter", 70);
    for name in ["a", "b"] {
        bench.image(name, 96);
    }
    look(
        &bench,
        "mirror {a} {b} spare {shorter}",
        &["warning small-spare tank: shorter"],
    );
}

#[test]
fn devices_that_are_gone_or_err_are_named() {
    let bench = images();
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool offline tank {a}");
    expect(&bench, "tank", &["critical one-sided-mirror tank: a"]);
    bench.ok("zpool destroy tank");
    bench.ok("zpool create -f tank raidz2 {a} {b} {c} {d}");
    bench.ok("zpool offline tank {d}");
    expect(&bench, "tank", &["warning missing-device tank: d"]);
    bench.ok("zpool export tank");
    for name in ["a", "b", "c"] {
        std::fs::remove_file(bench.path(name)).unwrap();
    }
    expect(&bench, "{dir}", &["critical pool-unavailable tank"]);
}

#[test]
fn sectors_and_features_of_pools_are_judged() {
    let bench = images();
    bench.ok("zpool create -o ashift=9 tank {a}");
    bench.ok("zpool add --allow-ashift-mismatch -o ashift=12 tank {b}");
    expect(
        &bench,
        "tank",
        &["note no-redundancy tank", "warning mixed-ashift tank: b"],
    );
    bench.ok("zpool destroy tank");
    bench.ok("zpool create -f tank raidz {a} {b} {c}");
    bench.ok("zpool attach -w tank raidz1-0 {d}");
    expect(&bench, "tank", &["note new-feature tank"]);
}

#[test]
fn a_look_changes_nothing_and_needs_no_import() {
    let bench = images();
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool export tank");
    let read = || ["a", "b"].map(|name| std::fs::read(bench.path(name)).unwrap());
    let before = read();
    expect(&bench, "{dir}", &[]);
    expect(&bench, "{a}", &[]);
    let (_, out, _) = bench.run("doctor {dir}");
    assert_eq!(out, "2 disks, 1 pool: nothing is wrong\n");
    assert!(read() == before, "the images are as they were");
}

#[test]
fn names_that_lead_nowhere_are_errors() {
    let bench = images();
    bench.fails(
        "doctor nosuch",
        1,
        "ashift doctor: nosuch: no such pool, device or folder",
    );
    bench.fails("doctor -n many", 2, HELP.trim_end());
    let (code, out, _) = bench.run("doctor -h");
    assert_eq!(code, 0);
    // Each finding that a test here expects is in the list of names.
    let list = out.split("for scripts:").nth(1).unwrap();
    for id in [
        "small-ashift",
        "one-sided-mirror",
        "gpt-backup-displaced",
        "same-disk",
    ] {
        assert!(list.contains(id), "{id}");
    }
}

const HELP: &str = concat!(
    "ashift doctor: -n needs a number of files\n",
    include_str!("../../src/doctor/help.txt")
);
