//! The output of `zpool` about pools: states, errors, columns, exit codes, in the words of OpenZFS 2.3.2.
//! The texts were recorded from its tools on its kernel module.

mod bench;

use bench::Bench;

const BLOCK: usize = 128 << 10;

/// Makes a file of 32 blocks, block `n` filled with the byte `0x40 + n`; returns where block `n` is on image
/// `a`.
fn numbered_file(bench: &Bench) -> impl Fn(u8) -> u64 {
    let mut bytes = vec![0u8; 32 * BLOCK];
    for (n, block) in bytes.chunks_mut(BLOCK).enumerate() {
        block.fill(0x40 + n as u8);
    }
    std::fs::write(bench.path("numbered"), bytes).unwrap();
    bench.ok("cp {dir}/numbered tank:/f");
    let image = std::fs::read(bench.path("a")).unwrap();
    move |n: u8| {
        let at = image
            .chunks(512)
            .position(|sector| sector == [0x40 + n; 512]);
        at.unwrap() as u64 * 512
    }
}

fn line_of<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let line = status
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in:\n{status}"))
        .split_whitespace()
        .collect()
}

#[test]
fn a_scrub_counts_bad_blocks_and_repaired_bytes() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=off tank mirror {a} {b}");
    let place = numbered_file(&bench);
    for n in [5, 6, 20] {
        bench.scribble_with("b", place(n) + 4096, &[0xee; 512]);
    }
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status -p tank");
    assert!(
        status.contains("  scan: scrub repaired 384K in 00:00:0"),
        "{status}"
    );
    assert!(status.contains(" with 0 errors on "), "{status}");
    let path = |name| bench.path(name).display().to_string();
    assert_eq!(line_of(&status, &path("a"))[1..], ["ONLINE", "0", "0", "0"]);
    assert_eq!(
        line_of(&status, &path("b"))[1..5],
        ["ONLINE", "0", "0", "3"]
    );
    assert_eq!(line_of(&status, "mirror-0")[1..], ["ONLINE", "0", "0", "0"]);
    bench.ok("zpool clear tank");
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("scan: scrub repaired 0B in"), "{status}");
    // Bad on both sides: nothing is repaired, and each side gets one error per block.
    for name in ["a", "b"] {
        for n in [5, 6] {
            bench.scribble_with(name, place(n), &[0xee; 512]);
        }
    }
    let (code, _, _) = bench.run("zpool scrub tank");
    assert_eq!(code, 1);
    let status = bench.ok("zpool status -p tank");
    assert!(status.contains("scan: scrub repaired 0B in"), "{status}");
    assert!(status.contains(" with 2 errors on "), "{status}");
    assert_eq!(line_of(&status, &path("a"))[1..], ["ONLINE", "0", "0", "2"]);
    assert_eq!(line_of(&status, &path("b"))[1..], ["ONLINE", "0", "0", "2"]);
}

#[test]
fn metadata_healed_from_another_place_is_counted() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -O compression=off tank {a}");
    let _ = numbered_file(&bench);
    // The first two thirds of a single device: everything there is lost, extra copies are after it.
    let before = bench.ok("zpool get -Hpo value allocated tank");
    assert!(before.trim().parse::<u64>().unwrap() > 4 << 20);
    let image = std::fs::read(bench.path("a")).unwrap();
    let zdb = bench.ok("zdb -dddddd tank 1");
    let Some((_, dva)) = zdb.split_once(" L0 0:") else {
        panic!("{zdb}");
    };
    let offset = u64::from_str_radix(dva.split(':').next().unwrap(), 16).unwrap();
    let at = offset + (4 << 20);
    assert_ne!(image[at as usize..at as usize + 512], [0xee; 512]);
    bench.scribble_with("a", at, &[0xee; 512]);
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("scan: scrub repaired "), "{status}");
    assert!(status.contains(" with 0 errors on "), "{status}");
    let path = bench.path("a").display().to_string();
    assert_ne!(line_of(&status, &path)[4], "0", "{status}");
    bench.assert_clean("tank");
}

#[test]
fn a_healthy_device_beside_a_missing_one_is_online() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank {a} {b}");
    bench.set_aside("b");
    std::fs::rename(bench.path("b"), bench.path("away")).unwrap();
    let status = bench.ok("zpool status tank");
    let path = |name| bench.path(name).display().to_string();
    assert_eq!(line_of(&status, &path("a"))[1..], ["ONLINE", "0", "0", "0"]);
    let missing = "UNAVAIL 0 0 0 cannot open".split(' ').collect::<Vec<_>>();
    assert_eq!(line_of(&status, &path("b"))[1..], missing);
    let pool = "UNAVAIL 0 0 0 insufficient replicas"
        .split(' ')
        .collect::<Vec<_>>();
    assert_eq!(line_of(&status, "tank")[1..], pool);
    // A device with the label of another pool is present, but does not belong to this pool.
    std::fs::copy(bench.path("a"), bench.path("b")).unwrap();
    let status = bench.ok("zpool status tank");
    assert_eq!(line_of(&status, &path("b"))[1], "FAULTED", "{status}");
    assert_eq!(line_of(&status, &path("b"))[5..], ["corrupted", "data"]);
}

#[test]
fn a_stale_half_awaits_its_resilver() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=off tank mirror {a} {b}");
    std::fs::rename(bench.path("b"), bench.path("away")).unwrap();
    let status = bench.ok("zpool status tank");
    let path = bench.path("b").display().to_string();
    assert_eq!(line_of(&status, &path)[5..], ["cannot", "open"], "{status}");
    let _ = numbered_file(&bench);
    std::fs::rename(bench.path("away"), bench.path("b")).unwrap();
    let status = bench.ok("zpool status tank");
    let stale = "ONLINE 0 0 0 (awaiting resilver)"
        .split(' ')
        .collect::<Vec<_>>();
    assert_eq!(line_of(&status, &path)[1..], stale);
    assert!(!bench.ok("zpool status -x").contains("healthy"));
    bench.ok("zpool online tank {b}");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("scan: resilvered 4"), "{status}");
    assert_eq!(line_of(&status, &path)[1..], ["ONLINE", "0", "0", "0"]);
    assert_eq!(bench.ok("zpool status -x"), "all pools are healthy\n");
    bench.assert_clean("tank");
}

/// `-n` refuses what create refuses, with the same message; what it accepts can be created.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table: each command line and what it is refused with"
)]
fn create_n_checks_what_create_checks() {
    let bench = Bench::new(&["a", "b", "c"]);
    std::fs::File::create(bench.path("small"))
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    for (words, text) in [
        (
            "tank draid:2d:3c:1s {a} {b} {c}",
            "requested number of dRAID data disks per group 2 is too high,\nat most 1 disks are available for data",
        ),
        (
            "tank raidz2 {a} {b}",
            "invalid vdev specification: raidz2 requires at least 3 devices",
        ),
        (
            "-d tank {a} special {b}",
            "cannot create 'tank': operation not supported on this type of pool",
        ),
        (
            "-O special_small_blocks=4K tank {a} log {b}",
            "cannot create 'tank': special_small_blocks property requires a special vdev",
        ),
        (
            "tank {a} cache mirror {b} {c}",
            "invalid vdev specification: cache requires at least 1 devices",
        ),
        ("mirror {a}", "cannot create 'mirror': name is reserved"),
        (
            "tank {a} {a}",
            "cannot create 'tank': one or more vdevs refer to the same device, or",
        ),
        (
            "tank {dir}/small",
            "cannot create 'tank': one or more devices is less than the minimum",
        ),
        ("tank {dir}/nope", "cannot resolve path '"),
        (
            "tank mirror {a} {b} {c} mirror",
            "invalid vdev specification: mirror requires at least",
        ),
        (
            "-o ashift=8 tank {a}",
            "invalid 'ashift=8' property: only values between 9 and 16 are",
        ),
        ("-o ashift=abc tank {a}", "ashift must be a number."),
        (
            "-o nope=1 tank {a}",
            "property 'nope' is not a valid pool or vdev property",
        ),
        ("-o ashift tank {a}", "missing '=' for -o option"),
        (
            "-O nope=1 tank {a}",
            "property 'nope' is not a valid filesystem property",
        ),
        (
            "-o altroot=rel tank {a}",
            "invalid alternate root 'rel': must be an absolute path",
        ),
        (
            "-R rel tank {a}",
            "invalid alternate root 'rel': must be an absolute path",
        ),
        (
            "-m rel tank {a}",
            "invalid mountpoint 'rel': must be an absolute path, 'legacy', or",
        ),
        (
            "-o size=1 tank {a}",
            "cannot create 'tank': 'size' is readonly",
        ),
        (
            "-o feature@nope=enabled tank {a}",
            "cannot create 'tank': feature 'nope' unsupported by",
        ),
        (
            "-o comment=a -o comment=b tank {a}",
            "property 'comment' specified multiple times",
        ),
    ] {
        let outcomes = ["zpool create -n", "zpool create"].map(|command| {
            let (code, out, err) = bench.run(&format!("{command} {words}"));
            assert_eq!((code, out.as_str()), (1, ""), "{words}: {err}");
            err
        });
        assert!(outcomes[0].starts_with(text), "{words}: {}", outcomes[0]);
        assert_eq!(outcomes[0], outcomes[1]);
    }
    let layout = bench.ok("zpool create -n tank mirror {a} {b}");
    let path = |name| bench.path(name).display().to_string();
    assert_eq!(
        layout,
        format!(
            "would create 'tank' with the following layout:\n\n\ttank\n\t  mirror\n\t    {}\n\t    {}\n",
            path("a"),
            path("b")
        )
    );
    bench.ok("zpool create tank mirror {a} {b}");
    let (code, _, err) = bench.run("zpool create -n tank {c}");
    assert_eq!(
        (code, err.as_str()),
        (1, "cannot create 'tank': pool already exists\n")
    );
}

/// A pool's features limit what is written to it, including the pool's own objects.
#[test]
fn a_pool_without_features_is_written_without_them() {
    let written = |create: &str| {
        let bench = Bench::new(&["a"]);
        let image = std::fs::File::options().write(true).open(bench.path("a"));
        // Metaslabs in which a run can be longer than a one-word entry can express.
        image.unwrap().set_len(64 << 30).unwrap();
        bench.ok(create);
        std::fs::write(bench.path("long"), vec![1; 64 << 20]).unwrap();
        bench.ok("cp {dir}/long tank:/");
        bench.ok("rm tank:/long");
        // Freed space is available again two txgs later.
        for n in 0..3 {
            bench.ok(&format!("zfs set a:b={n} tank"));
        }
        bench.assert_clean("tank");
        let maps = bench.ok("zdb -mmmmm tank");
        let mos = bench.ok("zdb -dddddd tank 0:-1");
        (maps, mos)
    };
    let plain = "zpool create -o ashift=9 -O compression=off -d tank {a}";
    let (maps, mos) = written(plain);
    let has = |text: &str, word: &str| text.contains(word);
    assert!(has(&maps, "words: 1") && !has(&maps, "words: 2"), "{maps}");
    assert!(has(&mos, "lzjb") && !has(&mos, "lz4"), "{mos}");
    assert!(!has(&mos, "EMBEDDED"), "{mos}");
    let (maps, mos) = written(&plain.replace("-d ", ""));
    assert!(has(&maps, "words: 2"), "{maps}");
    assert!(has(&mos, "lz4") && !has(&mos, "lzjb"), "{mos}");
}

#[test]
fn properties_given_at_creation_are_local() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -o ashift=12 -R /mnt/x tank {a}");
    let got = bench.ok("zpool get -Ho property,value,source ashift,altroot,cachefile tank");
    assert_eq!(
        got,
        "ashift\t12\tlocal\naltroot\t/mnt/x\tlocal\ncachefile\tnone\tlocal\n"
    );
    bench.assert_clean("tank");
}

#[test]
fn list_and_status_take_pools_as_openzfs_does() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zpool create dozer {b}");
    assert_eq!(bench.ok("zpool list -Ho name tank tank"), "tank\n");
    let (code, out, err) = bench.run("zpool list -Ho name nope tank");
    let no_pool = "cannot open 'nope': no such pool\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, "tank\n", no_pool));
    let (code, out, err) = bench.run("zpool list nope");
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", no_pool));
    let twice = bench.ok("zpool list -o name tank 0.01 2");
    assert_eq!(twice, "NAME\ntank\ntank\n");
    let all = bench.ok("zpool list -o all tank");
    let header: Vec<&str> = all.lines().next().unwrap().split_whitespace().collect();
    let features: Vec<&str> = header
        .iter()
        .copied()
        .filter(|c| c.starts_with("FEATURE@"))
        .collect();
    assert_eq!(
        (features[0], features.len()),
        ("FEATURE@ASYNC_DESTROY", 44),
        "{all}"
    );
    assert_eq!(features[43], "FEATURE@LARGE_MICROZAP");
    let got = bench.ok("zpool get -Ho property all tank");
    let names: Vec<&str> = got
        .lines()
        .filter(|name| name.starts_with("feature@"))
        .collect();
    assert_eq!(names.len(), 44);
    assert_eq!(names[7], "feature@extensible_dataset");
    let healthy = bench.ok("zpool status -x tank dozer");
    assert_eq!(healthy, "pool 'tank' is healthy\npool 'dozer' is healthy\n");
    let (code, out, _) = bench.run("zpool status tank tank");
    assert_eq!((code, out.matches("  pool: tank").count()), (1, 1));
    let get = bench.ok("zpool get -o all size tank");
    let header: Vec<&str> = get.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "PROPERTY", "VALUE", "SOURCE"]);
    let (code, out, err) = bench.run("zpool get name tank nope");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.starts_with(
            "Expected a list of vdevs in \"tank\", but got:\n\tnope (unknown)\n\nusage:\n"
        ),
        "{err}"
    );
    assert!(err.ends_with("\nSee zpool-features(7).\n"), "{err}");
    bench.fails(
        "zpool set comment=x nope",
        22,
        "cannot open 'nope': is not a pool",
    );
    bench.fails("zpool scrub nope", 1, "cannot open 'nope': no such pool");
    assert_eq!(bench.ok("zpool scrub -e tank"), "");
    assert_eq!(bench.ok("zpool scrub tank"), "");
    let (code, out, err) = bench.run("zpool list -h");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.starts_with("invalid option 'h'\nusage:\n\tlist "),
        "{err}"
    );
    assert!(bench.ok("zpool help list").starts_with("usage:\n\tlist "));
}

#[test]
fn json_has_vdevs_and_versions() {
    let bench = Bench::new(&["a", "b"]);
    let (code, out, err) = bench.run("zpool status");
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "", "no pools available\n")
    );
    bench.ok("zpool create tank mirror {a} {b}");
    let json =
        |command: &str| -> serde_json::Value { serde_json::from_str(&bench.ok(command)).unwrap() };
    let path = bench.path("a").display().to_string();
    let list = json("zpool list -jv");
    let mirror = &list["pools"]["tank"]["vdevs"]["mirror-0"];
    assert_eq!(mirror["vdev_type"], "mirror", "{list}");
    assert_eq!(
        mirror["vdevs"][&path]["properties"]["size"]["value"],
        "256M"
    );
    assert_eq!(
        mirror["vdevs"][&path]["properties"]["allocated"]["value"],
        "-"
    );
    let flat = json("zpool status -j --json-flat-vdevs");
    let vdevs = &flat["pools"]["tank"]["vdevs"];
    let names: Vec<&String> = vdevs.as_object().unwrap().keys().collect();
    let other = bench.path("b").display().to_string();
    assert_eq!(names, [&path, &other, "mirror-0", "tank"]);
    assert_eq!(vdevs[&path]["parent"], "mirror-0");
    assert_eq!(vdevs["mirror-0"]["parent"], "tank");
    let version = json("zpool version -j");
    assert_eq!(version["output_version"]["command"], "zpool version");
    let (code, out, err) = bench.run("zpool status --json-flat-vdevs");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.starts_with("'--json-flat-vdevs' only works with '-j' option\nusage:\n"),
        "{err}"
    );
}

/// The real zdb can read the history written here: commands and internal events.
#[test]
fn history_is_that_of_openzfs() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -o failmode=continue tank {a}");
    bench.ok("zpool set comment=x tank");
    bench.ok("zpool scrub tank");
    let history = bench.ok("zpool history -i tank");
    let events: Vec<&str> = history
        .lines()
        .filter_map(|line| line.split_once("] "))
        .map(|(_, event)| event)
        .collect();
    assert!(
        events[0].starts_with("create pool version 5000; software version ashift-"),
        "{history}"
    );
    assert!(events.contains(&"set failmode=1"), "{history}");
    assert!(
        events.contains(&"set feature@async_destroy=enabled"),
        "{history}"
    );
    assert!(events.contains(&"scan done errors=0"), "{history}");
    let plain = bench.ok("zpool history -l tank");
    assert!(
        plain
            .lines()
            .nth(1)
            .unwrap()
            .contains(" zpool create -o failmode=continue tank ")
    );
    assert!(plain.contains(" [user "), "{plain}");
    assert!(
        plain.lines().nth(1).unwrap().ends_with(":linux]"),
        "{plain}"
    );
    bench.ok("zpool destroy tank");
    bench.ok("zpool import -D -d {dir} tank");
    let history = bench.ok("zpool history tank");
    assert!(history.contains(" zpool destroy tank\n"), "{history}");
    bench.ok("zpool export tank");
    if !oracle::have_zdb() {
        return;
    }
    let output = std::process::Command::new("/usr/sbin/zdb")
        .args(["-e", "-p"])
        .arg(bench.folder())
        .args(["-h", "tank"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("zpool create -o failmode=continue tank"),
        "{text}"
    );
    assert!(text.contains("zpool set comment=x tank"), "{text}");
}
