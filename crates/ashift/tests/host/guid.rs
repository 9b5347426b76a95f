//! `zpool reguid`, `reopen` and `upgrade`.

use crate::bench::Bench;

fn guid(bench: &Bench) -> String {
    let guid = bench.ok("zpool get -Hpo value guid tank");
    guid.trim().to_owned()
}

#[test]
fn a_pool_gets_another_guid() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create tank mirror {a} {b} log {c}");
    bench.ok("zfs create tank/fs");
    let first = guid(&bench);
    assert_eq!(bench.ok("zpool reguid tank"), "");
    assert!(![first.as_str(), "0"].contains(&guid(&bench).as_str()));
    bench.ok("zpool reguid -g 4711 tank");
    assert_eq!(guid(&bench), "4711");
    let history = bench.ok("zpool history -i tank");
    assert!(history.contains("guid change") && history.contains(" new=4711"));
    bench.assert_clean("tank");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} 4711");
    bench.ok("zfs list tank/fs");
    let refused = |arguments: &str, text: &str| {
        bench.fails(
            &format!("zpool reguid {arguments} tank"),
            255,
            &format!("cannot reguid 'tank': {text}"),
        );
    };
    refused("-g 0", "invalid argument for this pool operation");
    refused("-g 4711", "pool already exists");
    let (code, _, err) = bench.run("zpool reguid -g x1 tank");
    assert!(
        code == 2 && err.starts_with("invalid GUID: x1\nusage:\n"),
        "{err}"
    );
    bench.ok("zpool offline tank {b}");
    let (code, _, err) = bench.run("zpool reguid tank");
    let text = "cannot reguid 'tank': one or more devices is currently unavailable\n";
    assert_eq!((code, err.as_str()), (255, text));
    bench.ok("zpool online tank {b}");
    bench.ok("zpool reopen tank");
    bench.ok("zpool reguid tank");
}

/// What is left of a power cut between the last write to the pool and the cachefile.
#[test]
fn a_pool_is_found_that_has_another_guid_than_the_cachefile_says() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    let cachefile = bench.state().join("zpool.cache");
    let before = std::fs::read(&cachefile).unwrap();
    bench.ok("zpool reguid -g 4711 tank");
    let after = std::fs::read(&cachefile).unwrap();
    assert!(before != after);
    std::fs::write(&cachefile, &before).unwrap();
    assert_eq!(guid(&bench), "4711");
    bench.ok("zfs create tank/fs");
    assert!(std::fs::read(&cachefile).unwrap() != before);
    bench.ok("zpool export tank");
    // A copy at other places is another pool, which nobody has imported.
    bench.ok("zpool import -d {dir} tank");
    let imported = std::fs::read(&cachefile).unwrap();
    bench.ok("zpool reguid -g 4712 tank");
    bench.ok("zpool export tank");
    for name in ["a", "b"] {
        std::fs::rename(bench.path(name), bench.path(&format!("{name}-copy"))).unwrap();
    }
    std::fs::write(&cachefile, imported).unwrap();
    let (code, _, err) = bench.run("zfs list tank");
    assert!(
        code == 1 && err.contains("none of its devices is there"),
        "{err}"
    );
}

#[test]
fn features_that_a_pool_lacks_are_enabled() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -d -o feature@lz4_compress=enabled tank {a}");
    let head = "This system supports ZFS pool feature flags.\n\n";
    let listed = bench.ok("zpool upgrade");
    assert!(listed.starts_with(head), "{listed}");
    assert!(
        listed.contains("\nPOOL  FEATURE\n---------------\ntank\n      async_destroy\n"),
        "{listed}"
    );
    assert!(!listed.contains(" lz4_compress\n"), "{listed}");
    let upgraded = bench.ok("zpool upgrade tank");
    let start = format!("{head}Enabled the following features on 'tank':\n  async_destroy\n");
    assert!(
        upgraded.starts_with(&start) && upgraded.ends_with("\n\n"),
        "{upgraded}"
    );
    bench.assert_clean("tank");
    assert_eq!(
        bench.ok("zpool upgrade"),
        format!(
            "{head}All pools are formatted using feature flags.\n\nEvery feature flags pool has all \
             supported and requested features enabled.\n"
        )
    );
    bench.ok("zpool create -o compatibility=openzfs-2.1-linux old {b}");
    let listed = bench.ok("zpool upgrade");
    assert!(
        listed.contains("\nold\n") && listed.contains("      head_errlog\n"),
        "{listed}"
    );
    assert_eq!(
        bench.ok("zpool upgrade old"),
        format!("{head}Pool 'old' already has all supported and requested features enabled.\n")
    );
    assert_eq!(
        bench.ok("zpool upgrade -V 28 tank"),
        format!("{head}Pool 'tank' is already formatted using more current version '5000'.\n\n")
    );
    let (code, _, err) = bench.run("zpool upgrade -V 29 tank");
    assert!(
        code == 2 && err.starts_with("invalid version '29'\nusage:"),
        "{err}"
    );
}
