//! `ashift zdb` compared with the real zdb on the same pools.

mod bench;

use bench::Bench;
use oracle::{Zdb, have_zdb};

fn real(bench: &Bench, args: &[&str]) -> String {
    let mut all = vec!["-e", "-p", bench.folder().to_str().unwrap()];
    all.extend_from_slice(args);
    Zdb::run(&all).stdout
}

/// A pool with datasets and snapshots, exported.
fn pool() -> Bench {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zfs create tank/home");
    bench.ok("zfs snapshot tank/home@one");
    bench.ok("zfs set compression=gzip tank/home");
    bench.ok("mkdir tank/home:/dir");
    bench.ok("zpool export tank");
    bench
}

/// The lines of objects: columns and bonus.
fn object_lines(text: &str) -> Vec<&str> {
    let is_object = |line: &&str| {
        let word = line.split_whitespace().next().unwrap_or("");
        line.starts_with("    ") && word.parse::<i64>().is_ok()
    };
    text.lines()
        .filter(|l| is_object(l) || l.starts_with("Dataset"))
        .collect()
}

#[test]
fn labels_read_like_the_real_ones() {
    if !have_zdb() {
        return;
    }
    let bench = pool();
    for option in ["-l", "-ll", "-lu"] {
        let device = bench.path("a").display().to_string();
        let theirs = Zdb::run(&[option, &device]).stdout;
        assert_eq!(bench.ok(&format!("zdb {option} {{a}}")), theirs, "{option}");
    }
}

#[test]
fn objects_read_like_the_real_ones() {
    if !have_zdb() {
        return;
    }
    let bench = pool();
    for option in ["-d", "-dd", "-ddd", "-dddd", "-ddddd"] {
        let theirs = real(&bench, &[option, "tank"]);
        let ours = bench.ok(&format!("zdb -e -p {{dir}} {option} tank"));
        assert_eq!(object_lines(&ours), object_lines(&theirs), "{option}");
    }
    let theirs = real(&bench, &["-ddddd", "tank/home", "1"]);
    let ours = bench.ok("zdb -e -p {dir} -ddddd tank/home 1");
    assert_eq!(ours.trim_end(), theirs.trim_end());
    let theirs = real(&bench, &["-ddddd", "tank/home"]);
    let ours = bench.ok("zdb -e -p {dir} -ddddd tank/home");
    let blocks = |text: &str| {
        let lines = text
            .lines()
            .filter(|l| l.contains(" L0 ") && !l.contains("rootbp"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(blocks(&ours), blocks(&theirs));
}

#[test]
fn uberblock_config_and_block_counts_read_like_the_real_ones() {
    if !have_zdb() {
        return;
    }
    let bench = pool();
    for option in ["-u", "-C"] {
        let theirs = real(&bench, &[option, "tank"]);
        assert_eq!(
            bench.ok(&format!("zdb -e -p {{dir}} {option} tank")),
            theirs,
            "{option}"
        );
    }
    let has = |l: &&str| !l.contains("Embedded log class");
    let theirs = real(&bench, &["-bb", "tank"]);
    let ours = bench.ok("zdb -e -p {dir} -bb tank");
    let theirs: Vec<&str> = theirs.lines().filter(has).collect();
    let ours: Vec<&str> = ours.lines().filter(has).collect();
    assert_eq!(ours, theirs);
    let theirs = real(&bench, &["-m", "tank"]);
    let ours = bench.ok("zdb -e -p {dir} -m tank");
    let rows = |text: &str| {
        let lines = text
            .lines()
            .filter(|l| l.contains("metaslab ") || l.contains("smp_"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rows(&ours), rows(&theirs));
    assert!(bench.ok("zdb -e -p {dir} -bcc tank").contains("No leaks"));
}

/// What `zpool`, `zfs` and `zdb` say of a pool with deduplicated files.
#[test]
fn dedup_tables_read_like_those_of_the_real_one() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    bench.ok("zfs create -o recordsize=4k -o compression=off -o dedup=on tank/one");
    bench.ok("zfs create -o copies=2 -o compression=off -o dedup=skein,verify tank/two");
    bench.ok("zfs set dedup=sha256,verify tank/one");
    assert_eq!(
        bench.ok("zfs get -Ho value dedup tank/one").trim(),
        "sha256,verify"
    );
    bench.fails(
        "zfs set dedup=edonr tank/one",
        255,
        "cannot set property for 'tank/one': 'dedup' must be one of 'on | off | verify | \
         sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]'",
    );
    let text: Vec<u8> = (0..64u32 << 10).flat_map(u32::to_le_bytes).collect();
    std::fs::write(bench.path("file"), &text).unwrap();
    for to in ["one:/a", "one:/b", "one:/c", "two:/a", "two:/b"] {
        bench.ok(&format!("cp {{dir}}/file tank/{to}"));
    }
    bench.ok("zfs snapshot tank/one@s");
    bench.ok("rm tank/one:/b");
    std::fs::write(bench.path("other"), text[..8192].repeat(3)).unwrap();
    bench.ok("cp {dir}/other tank/one:/d");
    let ratio = bench.ok("zpool list -Ho dedupratio tank");
    // 64 records of 4 KiB three times, two of them three times more; 256 KiB in two copies, twice.
    assert_eq!((3 * 256 + 6 * 4 + 2 * 512) * 100 / (256 + 512), 236);
    assert_eq!(ratio.trim(), "2.36x");
    let size = bench.ok("zpool get -Hpo value dedup_table_size tank");
    assert!(size.trim().parse::<u64>().unwrap() > 0, "{size}");
    bench.ok("zpool export tank");
    if !have_zdb() {
        return;
    }
    for option in ["-D", "-DD", "-DDD", "-DDDP", "-DDDD", "-DDDDD"] {
        let theirs = real(&bench, &[option, "tank"]);
        assert!(theirs.contains("DDT-log-skein-0: flags=0x00"), "{theirs}");
        assert_eq!(
            bench.ok(&format!("zdb -e -p {{dir}} {option} tank")),
            theirs
        );
    }
    assert!(bench.ok("zdb -e -p {dir} -bcc tank").contains("No leaks"));
}

#[test]
fn damage_is_found() {
    let bench = pool();
    bench.scribble("a", (4 << 20)..(240 << 20));
    let (code, out, _) = bench.run("zdb -e -p {dir} -bcc tank");
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("bad copies"), "{out}");
}

/// Files with some identical contents, in whole or in part.
#[test]
fn simulated_deduplication_reads_like_the_real_one() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=lz4 tank mirror {a} {b}");
    bench.ok("zfs create -o recordsize=4k -o checksum=sha256 tank/small");
    bench.ok("zfs create -o copies=2 tank/twice");
    let block = |n: u8| vec![[n, n.wrapping_mul(7), 3, n ^ 0x55]; 16 << 10].concat();
    let texts = [
        [block(1), block(2), block(3)].concat(),
        [block(1), block(2), block(4)].concat(),
        block(1).repeat(5),
    ];
    for (i, text) in texts.iter().enumerate() {
        std::fs::write(bench.path(&format!("file{i}")), text).unwrap();
        for to in ["tank", "tank/small", "tank/twice"] {
            bench.ok(&format!("cp {{dir}}/file{i} {to}:/"));
        }
    }
    bench.ok("zfs snapshot tank/small@one");
    bench.ok("rm tank/small:/file1");
    bench.ok("cp {dir}/file0 tank/small:/again");
    bench.ok("zpool export tank");
    let json = bench.ok("zdb -e -p {dir} -Sj tank");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let total = &json["total"];
    let blocks = |what: &str| total[what]["blocks"].as_u64().unwrap();
    assert!(blocks("allocated") < blocks("referenced"), "{json}");
    assert!(json["dedup"].as_f64().unwrap() > 1.0, "{json}");
    if !have_zdb() {
        return;
    }
    let theirs = real(&bench, &["-S", "tank"]);
    assert!(theirs.contains("Simulated DDT histogram"), "{theirs}");
    assert_eq!(bench.ok("zdb -e -p {dir} -S tank"), theirs);
    let exact = total["referenced"]["lsize"].to_string();
    assert!(bench.ok("zdb -e -p {dir} -SP tank").contains(&exact));
}

#[test]
fn raw_blocks_paths_and_json() {
    let bench = pool();
    let dump = bench.ok("zdb -e -p {dir} -R tank 0:0:200");
    assert!(dump.contains("0 1 2 3 4 5 6 7"), "{dump}");
    let object = bench.ok("zdb -e -p {dir} -O tank/home dir");
    assert!(object.contains("ZFS directory"), "{object}");
    let commands = [
        "-lj {a}",
        "-e -p {dir} -Cj tank",
        "-e -p {dir} -uj tank",
        "-e -p {dir} -bj tank",
        "-e -p {dir} -mj tank",
    ];
    for command in commands {
        let text = bench.ok(&format!("zdb {command}"));
        let _: serde_json::Value = serde_json::from_str(&text).unwrap();
    }
    for line in bench.ok("zdb -e -p {dir} -ddj tank").lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
}

#[test]
fn bad_input_is_refused() {
    let bench = Bench::new(&["a"]);
    assert_eq!(bench.run("zdb -l {a}").0, 2);
    assert_eq!(bench.run("zdb -e -p {dir} -d tank").0, 1);
    assert_eq!(bench.run("zdb tank").0, 1);
    assert_eq!(bench.run("zdb -Q").0, 1);
    bench.fails("zdb -B tank", 1, "zdb: -B is not supported yet");
    bench.ok("zpool create tank {a}");
    for place in ["0:1:200", "0:0:0", "9:0:200", "x", "0:ffffffffffff00:200"] {
        let (code, out, _) = bench.run(&format!("zdb -R tank {place}"));
        let is_refused = out.contains("nvalid") || out.contains("failed, error");
        assert!(code == 0 && is_refused, "{place}: {code} {out}");
    }
    assert_eq!(bench.run("zdb -d tank/nosuch").0, 1);
    assert_eq!(bench.run("zdb -dddd tank/ 999999").0, 1);
}

/// What a newcomer types first.
#[test]
fn bare_zdb_prints_the_cached_configurations() {
    let bench = Bench::new(&["a"]);
    let (code, out, err) = bench.run("zdb");
    assert_eq!((code, &*err), (1, ""), "{out}");
    assert!(out.starts_with("cannot open '"), "{out}");
    assert!(
        out.ends_with("zpool.cache': No such file or directory\n"),
        "{out}"
    );
    bench.ok("zpool create tank {a}");
    let out = bench.ok("zdb");
    assert!(
        out.starts_with("tank:\n    version: 5000\n    name: 'tank'\n"),
        "{out}"
    );
    assert_eq!(bench.ok("zdb -C"), out);
}
