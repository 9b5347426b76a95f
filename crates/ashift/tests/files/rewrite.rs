//! `ashift rewrite`.

use torture::Dice;

use super::Bench;

const BYTES: usize = 1 << 20;

#[test]
fn files_are_written_as_the_properties_say_now() {
    let bench = Bench::new();
    let mut dice = Dice::new(7);
    let noise = (0..BYTES).map(|_| dice.below(256) as u8).collect();
    let large = [vec![7; BYTES], noise].concat();
    std::fs::write(bench.path("large"), &large).unwrap();
    bench.ok(&["zfs", "set", "compression=off", "tank"]);
    bench.ok(&["mkdir", "tank:/d", "tank:/d/e"]);
    let places = ["tank:/d/large", "tank:/d/e/again", "tank:/alone"];
    for place in places {
        bench.ok(&["cp", &bench.path("large"), place]);
    }
    let used = || {
        bench.ok(&[
            "zfs",
            "get",
            "-Hpo",
            "value",
            "logicalreferenced,referenced",
            "tank",
        ])
    };
    let referenced = || -> u64 { used().lines().last().unwrap().parse().unwrap() };
    let before = referenced();
    bench.ok(&["zfs", "set", "compression=zstd", "tank"]);

    // A directory is left alone without -r.
    assert_eq!(bench.ok(&["rewrite", "-v", "tank:/d"]), "");
    assert_eq!(referenced(), before);
    let said = bench.ok(&["rewrite", "-rv", "tank:/d"]);
    assert_eq!(said, "tank:/d/e/again\ntank:/d/large\n");
    let smaller = referenced();
    assert!(
        smaller <= before - 2 * BYTES as u64,
        "{before}, then {smaller}"
    );
    // The half that does not compress.
    let half = BYTES.to_string();
    bench.ok(&["zfs", "rewrite", "-o", &half, "tank:/alone"]);
    assert!(referenced() > smaller - BYTES as u64 / 2);
    bench.ok(&["zfs", "rewrite", "-l", &half, "tank:/alone"]);
    assert!(referenced() < smaller - BYTES as u64 / 2);
    for place in places {
        bench.ok(&["cp", place, &bench.path("back")]);
        assert!(
            std::fs::read(bench.path("back")).unwrap() == large,
            "{place}"
        );
    }

    let (_, said) = bench.fails(&["rewrite", "-P", "tank:/alone"]);
    assert!(said.contains("physical_rewrite"), "{said}");
    let (_, said) = bench.fails(&["rewrite", "tank:/nothing"]);
    assert!(said.contains("No such file"), "{said}");
    let state = || {
        bench.ok(&[
            "zpool",
            "get",
            "-Ho",
            "value",
            "feature@physical_rewrite",
            "tank",
        ])
    };
    bench.ok(&["zpool", "set", "feature@physical_rewrite=enabled", "tank"]);
    assert_eq!(state(), "enabled\n");
    bench.ok(&["zfs", "snapshot", "tank@before"]);
    bench.ok(&["zfs", "rewrite", "-P", "tank:/alone"]);
    assert_eq!(state(), "active\n");
    let said = bench.ok(&["zdb", "-d", "tank"]);
    let verified = "Verified physical_rewrite feature refcount of 1 is correct";
    assert!(said.contains(verified), "{said}");
    bench.ok(&["zfs", "destroy", "tank@before"]);
}
