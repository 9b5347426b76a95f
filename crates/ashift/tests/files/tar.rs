//! `ashift tar`: what it makes is read by GNU tar, what GNU tar makes is extracted here, and trees go there and back.

use std::process::Output;

use super::{Bench, LIST, MAKE, shell};

/// What the tree of the other tests has not: names that do not fit into a header, odd ones, attributes.
const MAKE_MORE: &str = r#"
long=$(printf 'd%.0s' $(seq 90)); mkdir -p "$long/$long"; echo 1 >"$long/$long/file"
echo 2 >"$long/$(printf 'n%.0s' $(seq 200))"; ln -s "$long/$long/$long/nowhere" "$long/to"
ln "$long/$long/file" "$long/$(printf 'h%.0s' $(seq 180))"
printf 3 >"$(printf 'a\nb\\c\td')"; printf 4 >"$(printf 'n\303\244n\377')"
echo 5 >old; touch -d '1960-01-02 03:04:05.678' old; echo 6 >far; touch -d '2400-01-01 00:00:00.5' far
truncate -s 100M hole; truncate -s 5M ends; printf x | dd of=ends bs=1 seek=1000000 conv=notrunc status=none
chown 4000000000:3000000000 far 2>/dev/null || true
setfattr -n user.plain -v value old; setfattr -n user.lines -v 0x0a00620a0a far
setfattr -n 'user.a=b%c' -v '' old
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, stdout and stderr.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, err)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A tree with every kind of entry on the host.
fn make(bench: &Bench) {
    let script = format!(
        "{MAKE}\ntruncate -s 20M dir/sparse\n{MAKE_MORE}\ntouch -d '2011-11-11 11:11:11.111111111' ."
    );
    shell(&script, bench.folder.path());
}

/// What is compared of a tree: also extended attributes.
fn facts(bench: &Bench, dir: &str) -> String {
    let script =
        format!("{LIST}; stat -c '%a %u %g %.9Y' .; getfattr -h -d -m user -e hex -R . | sort");
    let facts = shell(&script, &bench.folder.path().join(dir));
    // Access is not archived.
    facts.replace("./", "")
}

#[test]
fn gnu_tar_reads_what_is_made_here() {
    if !is_root() {
        return oracle::skip("extracting owners and devices takes root");
    }
    let bench = Bench::new();
    let host = bench.folder.path();
    make(&bench);
    bench.ok(&["cp", "-a", &bench.path("tree"), "tank:/"]);
    let expected = facts(&bench, "tree");
    for (name, words) in [
        ("host.tar", vec!["--xattrs", "-C", &bench.path(""), "tree"]),
        ("pool.tar", vec!["--xattrs", "-S", "-C", "tank:/", "tree"]),
    ] {
        let archive = bench.path(name);
        let made = [&["tar", "-cf", &archive], &words[..]].concat();
        let made = bench.run(&made);
        assert_eq!(
            said(&made),
            (Some(0), String::new(), String::new()),
            "{name}"
        );
        shell(&format!("mkdir x && tar --xattrs -xpf {name} -C x"), host);
        assert_eq!(facts(&bench, "x/tree"), expected, "{name}");
        let full = format!("tar --full-time -tvf {name} >/dev/null; tar -tvf {name}");
        let listed = bench.run(&["tar", "-tvf", &archive]);
        assert_eq!(
            said(&listed),
            (Some(0), shell(&full, host), String::new()),
            "{name}"
        );
        let names = bench.ok(&["tar", "tf", &archive]);
        assert_eq!(names, shell(&format!("tar -tf {name}"), host), "{name}");
        shell("rm -r x", host);
    }
    // The order is that of the directories.
    let order = shell("tar -cf - --format=posix tree | tar -tf -", host);
    assert_eq!(bench.ok(&["tar", "-tf", &bench.path("host.tar")]), order);
    let sectors = shell("stat -c %b pool.tar", host).trim().parse::<u64>();
    assert!(sectors.unwrap() < 20_000, "holes were archived");
}

#[test]
fn archives_of_gnu_tar_are_extracted_here() {
    if !is_root() {
        return oracle::skip("extracting owners and devices takes root");
    }
    let bench = Bench::new();
    let host = bench.folder.path();
    make(&bench);

    for (n, words) in [
        "--format=v7",
        "--format=ustar",
        "--format=gnu",
        "--format=oldgnu -S",
        "--format=gnu -S -z",
        "--format=posix --xattrs",
        "--format=posix --sparse-version=0.0 -S",
        "--format=posix --sparse-version=0.1 -S",
        "--format=posix --sparse-version=1.0 -S --xattrs",
        "--format=posix --pax-option=globexthdr.name=g,comment=c",
    ]
    .into_iter()
    .enumerate()
    {
        // What a format cannot keep is left out, with exit code 2.
        let script = format!(
            "tar {words} -cf {n}.tar tree 2>/dev/null || test $? = 2
             mkdir gnu{n} here{n} && tar --xattrs -xpf {n}.tar -C gnu{n}"
        );
        shell(&script, host);
        let (archive, here) = (
            bench.path(&format!("{n}.tar")),
            bench.path(&format!("here{n}")),
        );
        let from = ["tar", "--xattrs", "-xf", &archive, "-C"];
        let done = bench.run(&[&from[..], &[&here]].concat());
        assert_eq!(
            said(&done),
            (Some(0), String::new(), String::new()),
            "{words}"
        );
        let expected = facts(&bench, &format!("gnu{n}/tree"));
        assert_eq!(facts(&bench, &format!("here{n}/tree")), expected, "{words}");
        let listed = bench.ok(&["tar", "-tvf", &archive]);
        assert_eq!(listed, shell(&format!("tar -tvf {n}.tar"), host), "{words}");
        let pool = format!("tank/{n}");
        bench.ok(&["zfs", "create", &pool]);
        bench.ok(&[&from[..], &[&format!("{pool}:/")]].concat());
        let back = bench.path(&format!("back{n}"));
        bench.ok(&["cp", "-a", &format!("{pool}:/tree"), &back]);
        assert_eq!(facts(&bench, &format!("back{n}")), expected, "{words}");
        if words.contains("-S") {
            let used = shell(&format!("stat -c %b here{n}/tree/hole"), host);
            assert!(used.trim().parse::<u64>().unwrap() < 64, "{words}: {used}");
        }
        bench.ok(&["zfs", "destroy", &pool]);
        shell(&format!("rm -r gnu{n} here{n} back{n} {n}.tar"), host);
    }
}

#[test]
fn archives_in_pools_go_there_and_back() {
    let bench = Bench::new();
    make(&bench);
    bench.ok(&["cp", "-a", &bench.path("tree"), "tank:/"]);
    bench.ok(&["mkdir", "tank:/a", "tank:/b"]);
    let words = [
        "tar",
        "--xattrs",
        "-czSf",
        "tank:/a.tgz",
        "-C",
        "tank:/",
        "tree",
    ];
    bench.ok(&words);
    let magic = bench.run(&["cat", "tank:/a.tgz"]).stdout;
    assert_eq!(magic[..2], [0x1f, 0x8b]);
    bench.ok(&["tar", "--xattrs", "-xf", "tank:/a.tgz", "-C", "tank:/a"]);
    // Through a pipe, with the words in the old style.
    let stream = bench.run(&["tar", "cfC", "-", "tank:/a", "tree", "--xattrs", "-S"]);
    assert!(stream.status.success(), "{}", text(&stream.stderr));
    let taken = bench.run_with(&["tar", "xC", "tank:/b", "--xattrs"], &stream.stdout);
    assert_eq!(said(&taken), (Some(0), String::new(), String::new()));
    bench.ok(&["cp", "-a", "tank:/b/tree", &bench.path("back")]);
    assert_eq!(facts(&bench, "back"), facts(&bench, "tree"));
    bench.ok(&["zdb", "-bcc", "tank"]);
}

#[test]
fn acls_are_those_of_gnu_tar() {
    let bench = Bench::new();
    let host = bench.folder.path();
    let set = "mkdir -p acls/dir && cd acls && touch file && setfacl -m u:1234:rwx,g:77:r--,m::rwx file &&
        setfacl -m u:9:-wx dir && setfacl -d -m u:5:r-x,m::rx dir";
    let made = std::process::Command::new("sh")
        .args(["-c", set])
        .current_dir(host)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return oracle::skip("setfacl (package acl), or ACLs in the temporary folder, are missing");
    }
    bench.ok(&["zfs", "create", "-o", "acltype=posix", "tank/acl"]);
    shell("tar --acls -cf gnu.tar acls", host);
    bench.ok(&[
        "tar",
        "--acls",
        "-xf",
        &bench.path("gnu.tar"),
        "-C",
        "tank/acl:/",
    ]);
    let here = bench.path("here.tar");
    bench.ok(&["tar", "--acls", "-cf", &here, "-C", "tank/acl:/", "acls"]);
    shell("mkdir x && tar --acls -xpf here.tar -C x", host);
    let list = "getfacl -R -n .";
    let there = shell(list, &host.join("acls"));
    assert!(there.contains("default:user:5:r-x"), "{there}");
    assert_eq!(shell(list, &host.join("x/acls")), there);
}

#[test]
fn names_are_chosen_left_out_and_shortened() {
    let bench = Bench::new();
    let host = bench.folder.path();
    shell(
        "mkdir -p a/b c; echo 1 >a/1.o; echo 2 >a/2.c; echo 3 >a/b/3.c; echo 4 >c/4.c",
        host,
    );
    shell("printf 'a/2.c\\nc\\n' >list; printf '*.o\\n' >not", host);
    let at = bench.path("");
    let archive = bench.path("x.tar");
    let names = |words: &[&str]| {
        bench.ok(&[&["tar", "-cf", &archive, "-C", &at], words].concat());
        let mut names: Vec<String> = bench
            .ok(&["tar", "-tf", &archive])
            .lines()
            .map(str::to_owned)
            .collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names(&["--exclude=*.o", "a"]), "a/ a/2.c a/b/ a/b/3.c");
    assert_eq!(
        names(&["--exclude", "b", "-X", &bench.path("not"), "a"]),
        "a/ a/2.c"
    );
    assert_eq!(names(&["-T", &bench.path("list")]), "a/2.c c/ c/4.c");
    assert_eq!(names(&["--no-recursion", "a", "-C", "a", "b"]), "a/ b/");
    assert_eq!(
        names(&["a", "-C", "c", "."]),
        "./ ./4.c a/ a/1.o a/2.c a/b/ a/b/3.c"
    );
    bench.ok(&["cp", "-a", &bench.path("a"), &bench.path("c"), "tank:/"]);
    assert_eq!(names(&["-C", "tank:/a", "*.?"]), "1.o 2.c");
    assert_eq!(names(&["--no-recursion", "tank:/a/b"]), "a/b/");

    shell("tar -cf x.tar a c", host);
    shell("mkdir out one two", host);
    let x = |words: &[&str]| said(&bench.run(&[&["tar", "-xf", &archive], words].concat()));
    let out = bench.path("out");
    let done = x(&["-v", "-C", &out, "--strip-components=1", "a/b", "c/4.c"]);
    assert_eq!(
        done,
        (Some(0), "a/b/\na/b/3.c\nc/4.c\n".to_owned(), String::new())
    );
    assert_eq!(
        shell("find out -type f | sort", host),
        "out/4.c\nout/b/3.c\n"
    );
    let done = x(&[
        "-C",
        &bench.path("one"),
        "c",
        "-C",
        &bench.path("two"),
        "--wildcards",
        "*.o",
    ]);
    assert_eq!(done.0, Some(0), "{}", done.2);
    assert_eq!(
        shell("find one two -type f", host),
        "one/c/4.c\ntwo/a/1.o\n"
    );
    assert_eq!(
        x(&["-O", "a/2.c"]),
        (Some(0), "2\n".to_owned(), String::new())
    );
    let (code, _, err) = x(&["-C", &out, "c/4.c", "none"]);
    assert_eq!(
        (code, &err[..]),
        (Some(2), "ashift tar: none: Not found in archive\n")
    );
    // -k keeps what is there, and says so.
    shell("echo mine >out/c/4.c", host);
    let (code, _, err) = x(&["-k", "-C", &out]);
    assert_eq!(
        (code, &err[..]),
        (Some(2), "ashift tar: c/4.c: File exists\n")
    );
    assert_eq!(shell("cat out/c/4.c out/a/1.o", host), "mine\n1\n");
}

#[test]
fn the_archive_is_not_in_itself_and_owners_can_be_left() {
    let bench = Bench::new();
    shell(
        "mkdir d; echo 1 >d/f; touch -d 2001-01-01 d/f; chmod 4777 d/f",
        bench.folder.path(),
    );
    let archive = bench.path("d/a.tar");
    let made = bench.run(&["tar", "-cf", &archive, "-C", &bench.path(""), "d"]);
    let (code, _, err) = said(&made);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        err.ends_with("d/a.tar: file is the archive; not dumped\n"),
        "{err}"
    );
    bench.ok(&["cp", &archive, "tank:/a.tar"]);
    bench.ok(&["mkdir", "tank:/out"]);
    let words = ["tar", "-xmf", "tank:/a.tar", "-C", "tank:/out"];
    bench.ok(&[&words[..], &["--no-same-permissions", "--no-same-owner"]].concat());
    let stat = bench.ok(&["stat", "-j", "tank:/out/d/f"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert!(
        ["0755", "0775"].contains(&stat[0]["mode"].as_str().unwrap()),
        "{stat}"
    );
    assert!(
        !stat[0]["mtime"].as_str().unwrap().starts_with("978"),
        "{stat}"
    );
    for (words, complaint) in [
        (
            &["tar", "-cf", &archive][..],
            "Cowardly refusing to create an empty archive",
        ),
        (&["tar", "-rf", &archive, "x"], "invalid option 'r'"),
        (
            &["tar", "-c", "--format=gnu", "x"],
            "in the format posix, not 'gnu'",
        ),
        (
            &["tar", "-xf", "tank:/none"],
            "tank:/none: No such file or directory",
        ),
    ] {
        let (code, _, err) = said(&bench.run(words));
        assert_eq!(code, Some(2), "{words:?}");
        assert!(err.contains(complaint), "{words:?}: {err}");
    }
    shell(
        "xz -k d/a.tar 2>/dev/null || printf '\\3757zXZ\\0' >d/a.tar.xz",
        bench.folder.path(),
    );
    let (code, _, err) = said(&bench.run(&["tar", "-tf", &bench.path("d/a.tar.xz")]));
    assert_eq!(code, Some(2));
    assert!(
        err.contains("is compressed with xz, which is not read here"),
        "{err}"
    );
}
