//! What users type: patterns, `-`, names of owners, symbolic modes; and the messages they get.

use std::os::unix::fs::{FileExt, MetadataExt};

use base::BlkId;
use phys::label::LABEL_START_SIZE;
use zpl::mount::mount;

use super::{Bench, shell};

#[test]
fn stdin_and_stdout_are_a_dash() {
    let bench = Bench::new();
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    let output = bench.run_with(&["cp", "-", "tank:/file"], &bytes);
    assert!(output.status.success(), "{output:?}");
    assert!(bench.run(&["cp", "tank:/file", "-"]).stdout == bytes);
    // Shorter than the previous contents; holes read as zeros.
    bench.run_with(&["cp", "-", "tank:/file"], b"short");
    bench.ok(&["truncate", "-s", "8", "tank:/file"]);
    assert_eq!(bench.ok(&["cp", "tank:/file", "-"]), "short\0\0\0");
    let output = bench.run_with(&["cp", "-", "tank:/"], b"");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Is a directory"));
    bench.ok(&["cp", "tank:/file", "/dev/null"]);
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn what_is_there_stays_with_n() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("out")).unwrap();
    std::fs::write(bench.path("out/a"), "mine").unwrap();
    for name in ["a", "b"] {
        bench.run_with(&["cp", "-", &format!("tank:/{name}")], b"theirs");
    }
    bench.ok(&["cp", "-rn", "tank:/", &bench.path("out")]);
    assert_eq!(shell("cat out/a out/b", bench.folder.path()), "minetheirs");
}

#[test]
fn a_file_is_not_copied_onto_itself_nor_a_directory_into_itself() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("a/b")).unwrap();
    std::fs::write(bench.path("f"), "bytes").unwrap();
    std::fs::hard_link(bench.path("f"), bench.path("g")).unwrap();
    let (_, err) = bench.fails(&["cp", &bench.path("f"), &bench.path("g")]);
    assert!(err.contains("same file"), "{err}");
    assert_eq!(std::fs::read_to_string(bench.path("f")).unwrap(), "bytes");
    let (_, err) = bench.fails(&["cp", "-r", &bench.path("a"), &bench.path("a/b")]);
    assert!(err.contains("into itself"), "{err}");
    bench.ok(&["mkdir", "-p", "tank:/a/b"]);
    let (_, err) = bench.fails(&["cp", "-r", "tank:/a", "tank:/a/b"]);
    assert!(err.contains("into itself"), "{err}");
}

#[test]
fn owners_have_names_and_modes_have_letters() {
    let bench = Bench::new();
    bench.ok(&["mkdir", "-p", "tank:/d/e"]);
    bench.ok(&["touch", "tank:/d/f"]);
    let facts = |path: &str| -> (String, u64, u64) {
        let text = bench.ok(&["stat", "-j", path]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let number = |name: &str| value[0][name].as_u64().unwrap();
        let mode = value[0]["mode"].as_str().unwrap().to_owned();
        (mode, number("uid"), number("gid"))
    };
    bench.ok(&["chown", "12:34", "tank:/d/f"]);
    bench.ok(&["chown", "root", "tank:/d/f"]);
    bench.ok(&["chmod", "600", "tank:/d/f"]);
    bench.ok(&["chmod", "u+x,go=r", "tank:/d/f"]);
    assert_eq!(facts("tank:/d/f"), ("0744".into(), 0, 34));
    bench.ok(&["chmod", "-x", "tank:/d/f"]);
    bench.ok(&["chmod", "-R", "a=rX", "tank:/d"]);
    assert_eq!(facts("tank:/d/f").0, "0444");
    assert_eq!(facts("tank:/d/e").0, "0555");
    bench.ok(&["chown", "-R", "5:root", "tank:/d"]);
    assert_eq!(facts("tank:/d/e"), ("0555".into(), 5, 0));
    let (_, err) = bench.fails(&["chown", "no such user", "tank:/d"]);
    assert!(err.contains("invalid user: 'no such user'"), "{err}");
    let (_, err) = bench.fails(&["chmod", "u+q", "tank:/d"]);
    assert!(err.contains("invalid mode: 'u+q'"), "{err}");
}

#[test]
fn patterns_are_looked_up_in_the_pool() {
    let bench = Bench::new();
    for dir in ["1", "2"] {
        bench.ok(&["mkdir", &format!("tank:/{dir}")]);
        for name in ["a.txt", "b.txt", ".hidden.txt", "c.rs"] {
            bench.run_with(
                &["cp", "-", &format!("tank:/{dir}/{name}")],
                name.as_bytes(),
            );
        }
    }
    assert_eq!(bench.ok(&["ls", "tank:/*/*.txt"]).lines().count(), 4);
    assert_eq!(bench.ok(&["cat", "tank:/1/?.txt"]), "a.txtb.txt");
    std::fs::create_dir(bench.path("out")).unwrap();
    bench.ok(&["cp", "tank:/[12]/*.rs", "tank:/1/a*", &bench.path("out")]);
    assert_eq!(shell("ls out", bench.folder.path()), "a.txt\nc.rs\n");
    let (_, err) = bench.fails(&["ls", "tank:/1/*.none"]);
    assert_eq!(
        err,
        "ashift ls: tank:/1/*.none: No such file or directory\n"
    );
    // A name that exists as typed takes precedence; a backslash escapes.
    bench.run_with(&["cp", "-", "tank:/1/*.txt"], b"star");
    assert_eq!(bench.ok(&["cat", "tank:/1/*.txt"]), "star");
    assert_eq!(bench.ok(&["cat", "tank:/1/\\*.t?t"]), "star");
    bench.ok(&["rm", "tank:/2/*.txt"]);
    assert_eq!(bench.ok(&["ls", "-A", "tank:/2"]), ".hidden.txt\nc.rs\n");
}

#[test]
fn paths_below_mountpoints_lead_into_pools() {
    let bench = Bench::new();
    bench.ok(&[
        "zfs",
        "create",
        "-o",
        "mountpoint=/not-on/this-host",
        "tank/d",
    ]);
    bench.run_with(&["cp", "-", "tank/d:/f"], b"found");
    assert_eq!(bench.ok(&["cat", "/not-on/this-host/f"]), "found");
    bench.ok(&["cp", "/not-on/this-host/f", "/not-on/this-host/g"]);
    assert_eq!(bench.ok(&["cat", "tank/d:/g"]), "found");
    // What exists on the host takes precedence.
    let folder = bench.folder.path().display().to_string();
    bench.ok(&["zfs", "set", &format!("mountpoint={folder}"), "tank/d"]);
    let (_, err) = bench.fails(&["ls", &folder]);
    assert!(err.contains("use the host's own tools"), "{err}");
    let (_, err) = bench.fails(&["ls", "/nowhere/at all"]);
    assert!(err.contains("not a path in a pool"), "{err}");
}

#[test]
fn listings_can_be_pasted_back() {
    let bench = Bench::new();
    bench.ok(&["mkdir", "-p", "tank:/a/b"]);
    bench.ok(&["ln", "-s", "a", "tank:/link"]);
    assert_eq!(
        bench.ok(&["ls", "-R", "tank:/"]),
        "tank:/:\na\nlink\n\ntank:/a:\nb\n\ntank:/a/b:\n"
    );
    assert_eq!(
        bench.ok(&["find", "tank:"]),
        "tank:/\ntank:/a\ntank:/a/b\ntank:/link\n"
    );
    assert!(bench.ok(&["ls", "-l", "tank:/link"]).contains("-> a"));
    assert_eq!(bench.ok(&["ls", "tank:/link"]), "b\n");
    assert!(bench.ok(&["stat", "tank:/link"]).contains("symbolic link"));
    for command in ["ls", "find", "du", "cp"] {
        assert!(
            bench.ok(&[command, "-h"]).starts_with("usage: "),
            "{command}"
        );
    }
    std::fs::write(bench.path("a.img"), "").unwrap();
    let image = bench.path("a.img");
    let (_, err) = bench.fails(&["ls", &format!("{image}:/")]);
    let hint = format!("import the pool on it first: ashift zpool import -d {image}\n");
    assert!(err.ends_with(&hint), "{err}");
}

#[test]
fn du_knows_what_files_would_take() {
    let bench = Bench::new();
    bench.ok(&["mkdir", "-p", "tank:/a/b"]);
    bench.ok(&["truncate", "-s", "1M", "tank:/a/b/sparse"]);
    assert_eq!(
        bench.ok(&["du", "--apparent-size", "--max-depth=1", "tank:/"]),
        "1024\ttank:/a\n1024\ttank:/\n"
    );
    assert_eq!(
        bench.ok(&["du", "--apparent-size", "-d", "0", "tank:/"]),
        "1024\ttank:/\n"
    );
    let used = bench.ok(&["du", "-s", "tank:/"]);
    assert!(
        used.ends_with("\ttank:/\n") && !used.starts_with("1024"),
        "{used}"
    );
}

/// The third block of a file is overwritten.
#[test]
fn errors_of_reading_say_where_in_the_file() {
    const BLOCK: usize = 128 << 10;
    let bench = Bench::new();
    let bytes: Vec<u8> = (0..5 * BLOCK / 4)
        .flat_map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    bench.run_with(&["cp", "-", "tank:/file"], &bytes);
    bench.run_with(&["cp", "-", "tank:/good"], b"good");
    let place = bench.with_spa(|spa| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        let dnode = fs.objset().hold(fs.resolve("file").unwrap()).unwrap();
        dnode.block_pointer(0, BlkId(2)).unwrap().dva[0].offset()
    });
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.path("disk.img"))
        .unwrap();
    image
        .write_all_at(&[0x55; 4096], place + LABEL_START_SIZE)
        .unwrap();
    let words = "read error at offset 262144: Input/output error";
    let output = bench.run(&["cat", "tank:/file", "tank:/good"]);
    assert!(output.stdout == [&bytes[..2 * BLOCK], b"good"].concat());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(err, format!("ashift cat: tank:/file: {words}\n"));
    let (_, err) = bench.fails(&["cat", "-v", "tank:/file"]);
    assert!(err.contains(words) && err.contains("dva <0:"), "{err}");
    let out = bench.path("out");
    let (_, err) = bench.fails(&["cp", "-r", "tank:/", &out]);
    assert_eq!(
        err,
        format!(
            "ashift cp: tank:/file: {words}\n\
             ashift cp: {out}/file: incomplete, 262144 of 655360 bytes\n"
        )
    );
    let partial = std::fs::metadata(bench.path("out/file")).unwrap();
    assert_eq!(partial.size(), 262_144);
    assert_eq!(std::fs::read(bench.path("out/good")).unwrap(), b"good");
    let (out, err) = bench.fails(&["sha256sum", "-r", "tank:/"]);
    assert!(
        out.ends_with("tank:/good\n") && err.contains(words),
        "{out}{err}"
    );
    let (_, err) = bench.fails(&["cp", "tank:/file", "-"]);
    assert!(
        err.contains("stdout: incomplete, 262144 of 655360 bytes"),
        "{err}"
    );
}
