//! `ashift cp --reflink`.

use torture::Dice;

use super::Bench;

const LARGE_BYTES: usize = 1 << 20;

#[test]
fn copies_share_blocks_where_they_can() {
    let bench = Bench::new();
    let large = Dice::new(7).bytes(LARGE_BYTES);
    std::fs::write(bench.path("large"), &large).unwrap();
    std::fs::write(bench.path("small"), b"small").unwrap();
    bench.ok(&["zfs", "set", "compression=off", "tank"]);
    bench.ok(&["zfs", "create", "tank/other"]);
    bench.ok(&["cp", &bench.path("large"), &bench.path("small"), "tank:/"]);
    bench.ok(&[
        "cp",
        "--reflink=always",
        "tank:/large",
        "tank:/small",
        "tank/other:/",
    ]);
    let cloned = |property: &str| bench.ok(&["zpool", "get", "-Hpo", "value", property, "tank"]);
    let used: usize = cloned("bcloneused").trim().parse().unwrap();
    assert!((LARGE_BYTES..LARGE_BYTES * 2).contains(&used), "{used}");
    assert_eq!(cloned("bclonesaved").trim(), used.to_string());
    let sums = |pool: &str| {
        bench.ok(&[
            "sha256sum",
            &format!("{pool}:/large"),
            &format!("{pool}:/small"),
        ])
    };
    let names = |text: &str| text.replace("tank/other:", "tank:");
    assert_eq!(sums("tank"), names(&sums("tank/other")));

    // From the host there is nothing to share.
    let said = bench.run(&[
        "cp",
        "--reflink=always",
        &bench.path("large"),
        "tank:/again",
    ]);
    assert!(!said.status.success());
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(text.contains("the source is not in a pool"), "{text}");
    bench.ok(&["cp", "--reflink", &bench.path("large"), "tank:/again"]);
    bench.ok(&["cp", "--reflink", "tank:/large", "/dev/null"]);
    let said = bench.run(&["cp", "--reflink=often", "tank:/large", "tank:/x"]);
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(
        text.contains("'often' is not when to share blocks"),
        "{text}"
    );

    // A file that goes takes its references along.
    bench.ok(&["rm", "tank:/large", "tank:/small", "tank:/again"]);
    assert_eq!(cloned("bcloneused").trim(), "0");
    bench.ok(&["cp", "tank/other:/large", &bench.path("back")]);
    assert!(std::fs::read(bench.path("back")).unwrap() == large);
}
