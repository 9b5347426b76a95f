//! `ashift zpool` on image files: every command, invalid input, and the real zdb's verdict afterwards.

mod bench;

use bench::Bench;

const LABEL_BYTES: u64 = 256 << 10;

#[test]
fn pools_live_and_die() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -o comment=hello -O atime=off -m /tank tank mirror {a} {b}");
    bench.assert_clean("tank");
    assert_eq!(
        bench.ok("zpool list -Ho name,size,health"),
        "tank\t240M\tONLINE\n"
    );
    let status = bench.ok("zpool status tank");
    assert!(status.contains("  mirror-0 "), "{status}");
    assert!(
        status.ends_with("errors: No known data errors\n"),
        "{status}"
    );
    assert_eq!(bench.ok("zpool status -x"), "all pools are healthy\n");
    bench.ok("zpool set failmode=continue tank");
    bench.ok("zpool set comment=there tank");
    let got = bench.ok("zpool get -Ho value,source comment,failmode,feature@lz4_compress tank");
    assert_eq!(got, "there\tlocal\ncontinue\tlocal\nactive\tlocal\n");
    let history = bench.ok("zpool history tank");
    assert!(
        history.contains(" zpool create -o comment=hello"),
        "{history}"
    );
    assert!(
        history.contains(" zpool set comment=there tank\n"),
        "{history}"
    );
    bench.ok("zpool export tank");
    assert_eq!(bench.ok("zpool list"), "no pools available\n");
    bench.assert_clean("tank");
    let found = bench.ok("zpool import -d {dir}");
    assert!(
        found.contains("   pool: tank\n") && found.contains("comment: there\n"),
        "{found}"
    );
    bench.ok("zpool import -d {dir} tank dozer");
    assert_eq!(bench.ok("zpool list -Ho name"), "dozer\n");
    bench.ok("zpool sync");
    bench.assert_clean("dozer");
    bench.ok("zpool destroy dozer");
    let found = bench.ok("zpool import -D -d {dir}");
    assert!(found.contains("ONLINE (DESTROYED)"), "{found}");
    bench.ok("zpool import -D -d {dir} dozer");
    bench.assert_clean("dozer");
}

#[test]
fn scrub_repairs_a_side_of_a_mirror() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.scribble("b", (4 << 20)..(200 << 20));
    let said = bench.ok("zpool scrub -w tank");
    assert!(said.starts_with("scrub repaired "), "{said}");
    assert!(!said.contains("repaired 0B"), "{said}");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("scan: scrub repaired"), "{status}");
    assert!(
        !status
            .lines()
            .any(|l| l.contains("/b ") && l.ends_with(" 0")),
        "{status}"
    );
    bench.ok("zpool clear tank");
    assert_eq!(bench.ok("zpool status -x"), "all pools are healthy\n");
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("scan: scrub repaired 0B"), "{status}");
    bench.assert_clean("tank");
}

#[test]
fn scrub_reports_what_is_lost() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.scribble("a", (4 << 20)..(5 << 20));
    let (code, out, err) = bench.run("zpool scrub tank");
    assert!(code == 1 || out.contains("repaired"), "{code} {out} {err}");
}

/// `-e` reads only what an earlier scrub could not read.
#[test]
fn scrub_of_errors_looks_at_what_is_known_to_be_damaged() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=off tank {a}");
    assert_eq!(bench.ok("zpool scrub -e tank"), "");
    for (name, byte) in [("good", 0x11u8), ("bad", 0x77)] {
        std::fs::write(bench.path(name), vec![byte; 4 << 20]).unwrap();
        bench.ok(&format!("cp {{dir}}/{name} tank:/{name}"));
    }
    let image = std::fs::read(bench.path("a")).unwrap();
    let at = image.windows(64).position(|w| w == [0x77; 64]).unwrap();
    bench.set_aside("a");
    bench.scribble_with("a", at as u64, &[0xa5; 4096]);
    let (code, out, _) = bench.run("zpool scrub tank");
    assert_eq!(code, 1, "{out}");
    let (code, out, _) = bench.run("zpool scrub -e tank");
    assert_eq!(code, 1, "{out}");
    assert!(
        out.starts_with("scrubbed 1 damaged object, repaired 0B, with 1 errors\n"),
        "{out}"
    );
    assert!(
        bench
            .ok("zpool status -v tank")
            .contains("errors: Permanent errors")
    );
    // The damage is undone; only that block is read, and is found good again.
    bench.scribble_with("a", at as u64, &[0x77; 4096]);
    assert_eq!(bench.ok("zpool scrub -e tank"), "");
    let status = bench.ok("zpool status -v tank");
    assert!(status.contains("errors: No known data errors"), "{status}");
}

/// A pool that was not exported belongs to the host that had it.
#[test]
fn a_pool_of_another_host_needs_force() {
    let bench = Bench::new(&["a"]);
    let other = Bench::beside(&bench);
    bench.set_hostid(0x1111);
    other.set_hostid(0x2222);
    bench.ok("zpool create tank {a}");
    let list = other.ok("zpool import -d {dir}");
    assert!(list.contains("last accessed by another system"), "{list}");
    let (code, out, err) = other.run("zpool import -d {dir} tank");
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(
        err.starts_with(
            "cannot import 'tank': pool was previously in use from another system.\nLast accessed by "
        ),
        "{err}"
    );
    assert!(err.contains("(hostid=1111)"), "{err}");
    assert!(err.contains("use 'zpool import -f'"), "{err}");
    assert_eq!(other.run("zpool list tank").0, 1);
    other.ok("zpool import -f -d {dir} tank");
    other.ok("zpool list tank");
    // Now the pool belongs to the other host; the first one, whose cachefile still has it, reports that.
    let (code, _, err) = bench.run("zfs create tank/lost");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("another system"), "{err}");
    bench.ok("zpool export -f tank"); // forgets it
    assert_eq!(bench.ok("zpool list -H"), "");
    other.ok("zfs create tank/ours");
    other.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    bench.ok("zfs list tank/ours");
}

#[test]
fn devices_go_offline_and_come_back() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool offline tank {a}");
    let status = bench.ok("zpool status tank");
    assert!(
        status.contains("state: DEGRADED") && status.contains("OFFLINE"),
        "{status}"
    );
    bench.fails(
        "zpool offline tank {b}",
        1,
        "cannot offline {b}: no valid replicas",
    );
    bench.ok("zpool set comment=x tank");
    bench.ok("zpool online tank {a}");
    let status = bench.ok("zpool status tank");
    assert!(
        status.contains("state: ONLINE") && status.contains("resilvered"),
        "{status}"
    );
    bench.fails(
        "zpool online tank nosuch",
        1,
        "couldn't find device \"nosuch\" in pool \"tank\"",
    );
    bench.assert_clean("tank");
}

#[test]
fn a_side_that_was_away_is_brought_up_to_date() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool export tank");
    let away = bench.path("away");
    std::fs::create_dir(&away).unwrap();
    std::fs::rename(bench.path("b"), away.join("b")).unwrap();
    let found = bench.ok("zpool import -d {dir}");
    assert!(found.contains("state: DEGRADED"), "{found}");
    bench.ok("zpool import -d {dir} tank");
    bench.ok("zpool set comment=alone tank");
    bench.ok("zpool export tank");
    std::fs::rename(away.join("b"), bench.path("b")).unwrap();
    bench.ok("zpool import -d {dir} tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("state: ONLINE"), "{status}");
    bench.ok("zpool export tank");
    std::fs::remove_file(bench.path("a")).unwrap();
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(bench.ok("zpool get -Ho value comment tank"), "alone\n");
    bench.assert_clean("tank");
}

#[test]
fn a_side_of_another_pool_is_not_taken() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool export tank");
    bench.ok("zpool create other {c}");
    bench.ok("zpool export other");
    std::fs::rename(bench.path("c"), bench.path("b")).unwrap();
    bench.ok("zpool import -d {dir} tank");
    let status = bench.ok("zpool status tank");
    assert!(status.contains("state: DEGRADED"), "{status}");
    bench.assert_clean("tank");
}

#[test]
fn any_label_that_is_whole_is_enough() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zpool export tank");
    bench.set_aside("a");
    for torn in 0u32..16 {
        bench.restore("a");
        for index in (0..4).filter(|i| torn & 1 << i != 0) {
            let start = bench.label_offset("a", index) + (16 << 10);
            bench.scribble("a", start..start + (40 << 10));
        }
        if torn == 15 {
            bench.fails(
                "zpool import -d {dir} tank",
                1,
                "cannot import 'tank': no such pool available",
            );
            let (code, out, _) = bench.run("zdb -l {a}");
            assert_eq!(code, 2);
            assert!(
                out.contains("failed to unpack label 3") || out.contains("Bad label cksum"),
                "{out}"
            );
            continue;
        }
        bench.ok("zpool import -d {dir} tank");
        if [1, 6, 14].contains(&torn) {
            bench.assert_clean("tank");
        }
        bench.ok("zpool export tank");
    }
}

#[test]
fn a_torn_newest_uberblock_costs_one_txg() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create -o ashift=12 tank {a}");
    bench.ok("zpool set comment=one tank");
    bench.ok("zpool export tank");
    let newest = bench.ok("zdb -e -p {dir} -uj tank");
    let newest: serde_json::Value = serde_json::from_str(&newest).unwrap();
    let slot = newest["txg"].as_u64().unwrap() % 32;
    for index in 0..4 {
        let start = bench.label_offset("a", index) + (LABEL_BYTES / 2) + slot * 4096;
        bench.scribble("a", start..start + 4096);
    }
    bench.ok("zpool import -f -d {dir} tank");
    assert_eq!(bench.ok("zpool get -Ho value comment tank"), "one\n");
    bench.assert_clean("tank");
}

#[test]
fn devices_in_use_are_refused() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank {a}");
    let heading = "invalid vdev specification\nuse '-f' to override the following errors:\n";
    let text = format!("{heading}{{a}} is part of active pool 'tank'");
    bench.fails("zpool create more {a}", 1, &text);
    let text = text.replace(
        "use '-f' to override the following errors:",
        "the following errors must be manually repaired:",
    );
    bench.fails("zpool create -f more {a}", 1, &text);
    bench.ok("zpool export tank");
    let text = format!("{heading}{{a}} is part of exported pool 'tank'");
    bench.fails("zpool create more {a}", 1, &text);
    bench.ok("zpool create -f more {a}");
    bench.fails(
        "zpool create more {b}",
        1,
        "cannot create 'more': pool already exists",
    );
    bench.scribble_with("b", 0x438, &[0x53, 0xef]);
    let text = format!("{heading}{{b}} contains a filesystem of type 'ext4'");
    bench.fails("zpool create third {b}", 1, &text);
    bench.fails(
        "zpool labelclear {a}",
        1,
        "{a} is a member (ACTIVE) of pool \"more\"",
    );
    bench.ok("zpool destroy more");
    bench.ok("zpool labelclear {a}");
    bench.fails("zpool labelclear {a}", 255, "failed to clear label for {a}");
}

#[test]
fn usage_and_names() {
    let bench = Bench::new(&["a", "b"]);
    let (code, _, err) = bench.run("zpool create tank");
    assert_eq!(code, 2);
    assert!(
        err.starts_with("missing vdev specification\nusage:\n\tcreate "),
        "{err}"
    );
    assert_eq!(bench.run("zpool create -Z tank {a}").0, 2);
    assert_eq!(bench.run("zpool nosuch").0, 2);
    assert_eq!(bench.run("zpool create -h").0, 2);
    assert_eq!(bench.run("zpool create --help").0, 0);
    let (code, _, err) = bench.run("zpool prefetch -t zap tank");
    assert!(
        code == 2 && err.starts_with("unsupported prefetch type\nusage:\n\tprefetch "),
        "{err}"
    );
    let reserved = "cannot create 'mirror': name is reserved\npool name may have been omitted";
    bench.fails("zpool create mirror {a}", 1, reserved);
    let long = "x".repeat(256);
    let text = format!("cannot create '{long}': name is too long\npool name may have been omitted");
    bench.fails(&format!("zpool create {long} {{a}}"), 1, &text);
    let text = "cannot create 'tank': operation not supported on this type of pool";
    bench.fails("zpool create -d tank draid {a} {b}", 1, text);
    let (code, _, err) = bench.run("zpool create -o ashift=5 tank {a}");
    assert!(
        code == 1 && err.contains("only values between 9 and 16 are allowed"),
        "{err}"
    );
    bench.fails("zpool destroy tank", 1, "cannot open 'tank': no such pool");
    bench.fails("zpool export tank", 1, "cannot open 'tank': no such pool");
    bench.fails(
        "zpool import -d {dir} tank",
        1,
        "cannot import 'tank': no such pool available",
    );
    bench.fails(
        "zpool get all tank",
        1,
        "Cannot get properties of tank: no such pool available.",
    );
    let layout = bench.ok("zpool create -n tank mirror {a} {b}");
    assert!(
        layout
            .starts_with("would create 'tank' with the following layout:\n\n\ttank\n\t  mirror\n")
    );
}

#[test]
fn feature_sets() {
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create -d one {a}");
    assert_eq!(
        bench.ok("zpool get -Ho value feature@blake3 one"),
        "disabled\n"
    );
    bench.ok("zpool set feature@blake3=enabled one");
    assert_eq!(
        bench.ok("zpool get -Ho value feature@blake3 one"),
        "enabled\n"
    );
    bench.assert_clean("one");
    bench.ok("zpool create -o compatibility=openzfs-2.1-linux two {b}");
    assert_eq!(
        bench.ok("zpool get -Ho value feature@blake3 two"),
        "disabled\n"
    );
    bench.assert_clean("two");
    let (code, _, err) = bench.run("zpool set feature@blake3=enabled two");
    assert!(code == 1 && err.contains("compatibility"), "{err}");
    bench.ok("zpool create -o feature@zstd_compress=disabled three {c}");
    assert_eq!(
        bench.ok("zpool get -Ho value feature@zstd_compress three"),
        "disabled\n"
    );
    let (code, _, err) = bench.run("zpool set feature@multi_vdev_crash_dump=enabled three");
    assert!(code == 1 && err.contains("not supported yet"), "{err}");
}

/// What OpenZFS 2.4 has added is enabled only by name.
#[test]
fn features_of_2_4_are_enabled_by_name() {
    const NEW: [&str; 3] = [
        "block_cloning_endian",
        "dynamic_gang_header",
        "physical_rewrite",
    ];
    let bench = Bench::new(&["a", "b", "c"]);
    let state = |pool: &str, name: &str| {
        let text = bench.ok(&format!("zpool get -Ho value feature@{name} {pool}"));
        text.trim().to_owned()
    };
    bench.ok("zpool create one {a}");
    bench.ok("zpool upgrade one");
    for name in NEW {
        assert_eq!(state("one", name), "-");
        bench.ok(&format!("zpool set feature@{name}=enabled one"));
        assert_eq!(state("one", name), "enabled");
    }
    bench.ok("zpool create -o compatibility=openzfs-2.4-linux two {b}");
    bench.ok("zpool create -o feature@physical_rewrite=enabled three {c}");
    assert!(NEW.iter().all(|name| state("two", name) == "enabled"));
    assert_eq!(NEW.map(|name| state("three", name)), ["-", "-", "enabled"]);
}

#[test]
fn creation_import_and_set_store_the_same_properties() {
    let bench = Bench::new(&["a"]);
    let compatibility = || bench.ok("zpool get -Ho value,source compatibility tank");
    bench.ok("zpool create -o compatibility=off -o feature@zstd_compress=disabled tank {a}");
    assert_eq!(compatibility(), "off\tlocal\n");
    bench.ok("zpool set compatibility=openzfs-2.1-linux tank");
    assert_eq!(compatibility(), "openzfs-2.1-linux\tlocal\n");
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} -o compatibility=off -o feature@zstd_compress=enabled tank");
    assert_eq!(compatibility(), "off\tlocal\n");
    let feature = bench.ok("zpool get -Ho value feature@zstd_compress tank");
    assert_eq!(feature, "enabled\n");
    bench.ok("zpool export tank");
    let (code, _, err) = bench.run("zpool import -d {dir} -o compatibility=nope tank");
    assert!(code == 1 && err.contains("could not read/parse"), "{err}");
    bench.ok("zpool import -d {dir} tank");
    bench.assert_clean("tank");
}

#[test]
fn a_pool_that_was_imported_read_only_stays_so() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zpool export tank");
    bench.ok("zpool import -o readonly=on -d {dir} tank");
    assert_eq!(bench.ok("zpool get -Ho value readonly tank"), "on\n");
    bench.fails(
        "zpool set comment=x tank",
        1,
        "cannot set property for 'tank': pool is read-only",
    );
    bench.ok("zpool export tank");
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(bench.ok("zpool get -Ho value readonly tank"), "off\n");
    bench.fails(
        "zpool import -d {dir} tank",
        1,
        "cannot import 'tank': a pool with that name already exists\nuse the form 'zpool import \
         <pool | id> <newpool>' to give it a new name",
    );
}

#[test]
fn the_second_writer_waits_outside() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    let file = std::fs::File::open(bench.path("a")).unwrap();
    file.lock().unwrap();
    let (code, _, err) = bench.run("zpool set comment=x tank");
    assert_eq!(code, 1);
    assert!(err.contains("in use"), "{err}");
    drop(file);
    bench.ok("zpool set comment=x tank");
}

/// Detaches on drop.
struct Loop(String);

impl Loop {
    /// The image as a block device with this sector size; `None` if not permitted.
    fn attach(image: &std::path::Path, sector: &str) -> Option<Loop> {
        let output = std::process::Command::new("losetup")
            .args(["-b", sector, "-f", "--show"])
            .arg(image)
            .output();
        let output = output.ok().filter(|output| output.status.success());
        let Some(output) = output else {
            eprintln!("SKIPPED: losetup gives no loop device here (it needs root)");
            return None;
        };
        Some(Loop(
            String::from_utf8(output.stdout).unwrap().trim().into(),
        ))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup")
            .args(["-d", &self.0])
            .status();
    }
}

/// The sectors of a block device determine ashift.
#[test]
fn block_devices_hold_pools() {
    for (sector, ashift) in [("512", 9), ("4096", 12)] {
        let bench = Bench::new(&["a"]);
        let Some(device) = Loop::attach(&bench.path("a"), sector) else {
            return;
        };
        bench.ok(&format!("zpool create tank {}", device.0));
        let config = bench.ok("zdb -C tank");
        assert!(config.contains(&format!("ashift: {ashift}\n")), "{config}");
        let name = device.0.trim_start_matches("/dev/");
        assert!(bench.ok("zpool status tank").contains(name));
        bench.ok("zfs create tank/fs");
        bench.ok(&format!("cp {{dir}}/a tank/fs:/{sector}"));
        bench.ok("zpool export tank");
        bench.ok(&format!("zpool import -d {} tank", device.0));
        assert_eq!(bench.ok("zpool scrub tank"), "");
        bench.ok("zpool export tank");
        drop(device);
        bench.assert_clean("tank");
    }
}

/// What `zpool import` shows for pools that are intact, degraded, incomplete, destroyed.
#[test]
fn import_lists_the_states_of_pools() {
    let bench = Bench::new(&["a", "b", "c"]);
    let aside = |name: &str| bench.path("aside").join(name);
    std::fs::create_dir(bench.path("aside")).unwrap();
    let away = |name: &str| std::fs::rename(bench.path(name), aside(name)).unwrap();
    let back = |name: &str| std::fs::rename(aside(name), bench.path(name)).unwrap();
    assert_eq!(
        bench.run("zpool import -d {dir}"),
        (0, String::new(), "no pools available to import\n".into())
    );
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zpool export tank");
    let list = bench.ok("zpool import -d {dir}");
    assert!(list.contains("\n state: ONLINE\n"), "{list}");
    assert!(!list.contains("status:"), "{list}");
    away("b");
    let list = bench.ok("zpool import -d {dir}");
    assert!(list.contains("\n state: DEGRADED\n"), "{list}");
    assert!(list.contains("UNAVAIL  cannot open"), "{list}");
    back("b");
    bench.ok("zpool import -d {dir} tank");
    bench.ok("zpool destroy tank");
    assert_eq!(bench.ok("zpool import -d {dir}"), "");
    let list = bench.ok("zpool import -D -d {dir}");
    assert!(list.contains("\n state: ONLINE (DESTROYED)\n"), "{list}");
    bench.ok("zpool import -D -d {dir} tank");
    bench.ok("zpool destroy tank");

    bench.ok("zpool create -f wide {b} {c}");
    bench.ok("zpool export wide");
    away("c");
    let list = bench.ok("zpool import -d {dir}");
    assert!(list.contains("\n state: UNAVAIL\n"), "{list}");
    assert!(list.contains("UNAVAIL  insufficient replicas"), "{list}");
    let (code, _, err) = bench.run("zpool import -d {dir} wide");
    assert_eq!(code, 1);
    assert!(err.starts_with("cannot import 'wide': "), "{err}");
    back("c");
    bench.ok("zpool import -d {dir} wide");
}

#[test]
fn json_is_json() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    for command in [
        "zpool list -j",
        "zpool list -jv",
        "zpool status -j",
        "zpool get -j all tank",
    ] {
        let text = bench.ok(command);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["pools"]["tank"]["state"], "ONLINE", "{command}");
    }
    bench.ok("zpool export tank");
    let value: serde_json::Value =
        serde_json::from_str(&bench.ok("zpool import -j -d {dir}")).unwrap();
    assert_eq!(value["pools"].as_object().unwrap().len(), 1);
}

#[test]
fn labels_of_a_device_in_use_stay() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    let text = "{a} is a member (ACTIVE) of pool \"tank\"";
    bench.fails("zpool labelclear {a}", 1, text);
    bench.fails("zpool labelclear -f {a}", 1, text);
    bench.ok("zpool offline tank {a}");
    bench.fails("zpool labelclear -f {a}", 1, text);
    bench.ok("zpool online tank {a}");
    bench.ok("zpool scrub tank");
}

#[test]
fn options_are_those_of_each_command() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    for command in ["list", "get", "import", "version"] {
        let (code, _, said) = bench.run(&format!("zpool {command} --power"));
        assert_eq!(code, 2, "{command}");
        assert!(said.starts_with("invalid option '--power'"), "{said}");
    }
    for command in [
        "status",
        "online tank {a}",
        "offline tank {a}",
        "clear tank",
    ] {
        let name = command.split(' ').next().unwrap();
        let text = format!("'zpool {name} --power' is not supported yet");
        bench.fails(&format!("zpool {command} --power"), 1, &text);
    }
}
