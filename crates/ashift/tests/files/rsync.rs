//! `ashift rsync` beside rsync: what it makes, what it says, and that a second run has nothing to do.

use std::path::Path;
use std::process::Command;

use oracle::{Zdb, have_zdb};

use crate::{Bench, LIST, MAKE, shell};

/// Attributes and names that only options keep.
const MORE: &str = r#"
cd tree; rm dir/sparse; truncate -s 20M dir/sparse
printf x | dd of=dir/sparse bs=1 seek=15000000 conv=notrunc status=none
mkdir -p b/c a.d; echo 1 >b/x; echo 2 >b/c/y; echo 3 >a.d/z; echo 4 >b.txt
setfattr -n user.note -v kept b/x; setfattr -n user.dir -v kept b
ln b/x b/c/x; ln b.txt a.d/b; touch -d '2015-05-05 05:05:05.5' b b/c a.d b/x b/c/y b.txt a.d/z
"#;

/// What changes: contents, times, modes, owners, attributes, types, links; what is new and what is gone.
const CHANGE: &str = r#"
cd tree; echo longer >dir/file; chmod 600 b/x; touch -d '2020-02-02' b/c/y; rm -r empty; echo new >b/new
rm link; ln -s elsewhere link; rm a.d/z; mkdir a.d/z; echo in >a.d/z/in; setfattr -n user.note -v other b/x
mkdir -p new/deep; echo 5 >new/deep/file; rm b.txt
if [ "$(id -u)" = 0 ]; then chown 7:8 b/c/y; fi
"#;

/// Names of files that have several.
const LINKED: [&str; 6] = ["b.txt", "a.d/b", "b/x", "b/c/x", "dir/file", "dir/sub/hard"];

fn have_rsync() -> bool {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let are_there = is_there("rsync") && is_there("setfattr");
    if !are_there {
        oracle::skip("rsync and setfattr (packages rsync, attr) are missing");
    }
    are_there
}

/// The lines about files, but those about nothing but the time of what is not a file: rsync 3.5 leaves that of
/// directories as it is where it has made a further name in them last, and does not set that of devices and links at
/// once.
fn lines(said: &str) -> Vec<String> {
    let is_about_a_file = |line: &&str| {
        let is_frame = ["sending ", "sent ", "total size ", "skipping ", "created "];
        let is_time = ["d", "D", "L", "S"].map(|kind| format!(".{kind}..t...... "));
        let is_left_out = is_frame.iter().any(|lead| line.starts_with(lead))
            || is_time.iter().any(|lead| line.starts_with(lead));
        !line.is_empty() && !is_left_out
    };
    said.lines()
        .filter(is_about_a_file)
        .map(str::to_owned)
        .collect()
}

fn listed(folder: &Path) -> String {
    let attributes = "getfattr -R -d -h . | grep . || true";
    shell(LIST, folder) + &shell(attributes, folder)
}

/// The same without the times of what is not a file.
fn timed_files(folder: &Path) -> String {
    let is_timed = |line: &str| {
        let kind = line.split(' ').nth(1);
        kind == Some("f")
    };
    let without = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match (
            is_timed(line),
            words.get(6).is_some_and(|word| word.contains('.')),
        ) {
            (false, true) => [&words[..6], &words[7..]].concat().join(" "),
            _ => line.to_owned(),
        }
    };
    listed(folder)
        .lines()
        .map(without)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Both of them take the same steps to a folder of their own.
#[test]
fn it_does_and_says_what_rsync_does() {
    if !have_rsync() {
        return;
    }
    let bench = Bench::new();
    let host = bench.folder.path();
    shell(MAKE, host);
    shell(MORE, host);
    let both = |options: &str, from: &str, to: &str| {
        let theirs = shell(&format!("rsync {options} {from} theirs/{to}"), host);
        let mut words = vec!["rsync"];
        words.extend(options.split(' '));
        let (from, to) = (bench.path(from), bench.path(&format!("ours/{to}")));
        words.extend([from.as_str(), to.as_str()]);
        let ours = bench.ok(&words);
        let step = format!("{options} {from} {to}");
        let (mut ours, mut theirs) = (lines(&ours), lines(&theirs));
        if options.contains('H') {
            // Which name of a file comes first depends on how far rsync has looked ahead, and when it tells of what it
            // deletes on its processes.
            for lines in [&mut ours, &mut theirs] {
                lines.retain(|line| !LINKED.iter().any(|name| line.contains(name)));
                lines.sort();
            }
        }
        assert_eq!(ours, theirs, "{step}");
        let [ours, theirs] = ["ours", "theirs"].map(|folder| timed_files(&host.join(folder)));
        assert_eq!(ours, theirs, "{step}");
    };
    shell("mkdir ours theirs", host);
    both("-aHXin", "tree/", "to");
    both("-aHXi", "tree/", "to");
    assert_eq!(listed(&host.join("ours/to")), listed(&host.join("tree")));
    both("-aHXi", "tree/", "to");
    shell(CHANGE, host);
    both("-aHXin --delete", "tree/", "to");
    both("-aHXi --delete", "tree/", "to");
    both("-aHXi --delete", "tree/", "to");
    both("-av", "tree", "whole");
    both("-av", "tree", "whole");
    both("-aXi --inplace", "tree/", "in");
    shell(
        "echo changed >>tree/dir/file; echo x >ours/in/dir/file; echo x >theirs/in/dir/file",
        host,
    );
    shell(
        "touch -d '2031-01-01' ours/in/dir/file theirs/in/dir/file",
        host,
    );
    both("-aui", "tree/", "in");
    both("-aXi --inplace", "tree/", "in");
    both("-rlti", "tree/dir/", "plain");
    both("-ti", "tree/dir/file", "one");
    shell("ls theirs ours >/dev/null; test -f ours/one", host);
}

/// Into a pool and out of it again; rsync itself then finds no difference.
#[test]
fn what_goes_into_a_pool_and_back_is_the_same_to_rsync() {
    if !have_rsync() {
        return;
    }
    let bench = Bench::new();
    let host = bench.folder.path();
    shell(MAKE, host);
    shell(MORE, host);
    let (tree, back) = (bench.path("tree/"), bench.path("back"));
    let into = ["rsync", "-aHAXi", "--delete", tree.as_str(), "tank:/tree"];
    assert!(bench.ok(&into).lines().count() > 15);
    assert_eq!(bench.ok(&into), "", "there is nothing more to do");
    shell(CHANGE, host);
    bench.ok(&into);
    assert_eq!(bench.ok(&into), "");
    bench.ok(&["rsync", "-aHAX", "tank:/tree/", &back]);
    let check = "rsync -aHAXSin --delete --checksum tree/ back";
    assert_eq!(shell(check, host), "", "rsync finds nothing to do");
    assert_eq!(listed(&host.join("tree")), listed(&host.join("back")));
    let left = bench.ok(&["find", "tank:/"]);
    assert!(
        !left.contains("/."),
        "no name from before a renaming is left: {left}"
    );
    bench.ok(&["zfs", "snapshot", "tank@s"]);
    bench.ok(&["rsync", "-aHX", "--delete", "tank@s:/tree/b/", "tank:/tree"]);
    assert_eq!(
        bench.ok(&["ls", "tank:/tree"]),
        bench.ok(&["ls", "tank@s:/tree/b"])
    );
    bench.ok(&["zpool", "export", "tank"]);
    if have_zdb() {
        Zdb::verify(host, "tank").assert_clean();
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let bench = Bench::new();
    let host = bench.folder.path();
    shell("mkdir -p a/b; echo 1 >a/f; echo 2 >g", host);
    let path = |name: &str| bench.path(name);
    let code = |words: &[&str]| {
        let output = bench.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    };
    let (status, said) = code(&["rsync", "-a", &path("a"), &path("g"), &path("a/f")]);
    assert_eq!(status, 3, "{said}");
    assert!(said.contains("must be a directory"), "{said}");
    // The second source would remove what the first one has brought.
    let (status, said) = code(&["rsync", "-a", "--delete", &path("a/"), &path("g"), "tank:/"]);
    assert_eq!(status, 3, "{said}");
    assert!(said.contains("one source"), "{said}");
    let (status, said) = code(&["rsync", "-a", &path("none"), "tank:/"]);
    assert_eq!(status, 23, "{said}");
    assert!(said.contains("none: No such file or directory"), "{said}");
    assert_eq!(code(&["rsync", "--compress", "a", "tank:/"]).0, 1);
    assert_eq!(code(&["rsync", "-l", "--delete", "a", "tank:/"]).0, 1);
    // A directory that is not empty is where a file belongs: the rest is transferred.
    bench.ok(&["mkdir", "-p", "tank:/t/f/full"]);
    let (status, said) = code(&["rsync", "-a", &path("a/"), "tank:/t"]);
    assert_eq!(status, 23, "{said}");
    assert_eq!(bench.ok(&["ls", "tank:/t"]), "b\nf\n");
    let skipped = bench.ok(&["rsync", &path("a"), "tank:/u"]);
    assert_eq!(skipped, "skipping directory a\n");
    // Into itself.
    let (status, _) = code(&["rsync", "-a", &path("a"), &path("a/b")]);
    assert_eq!(status, 23);
}
