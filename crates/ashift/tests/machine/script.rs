//! Scripts of commands, in machines and on this host.

use std::fs;
use std::process::{Command, Stdio};

use super::up::clock_ns;
use super::{Bench, text};

/// Runs a script in the machine of a bench; returns its exit code, stdout and stderr.
pub(super) fn sh(bench: &Bench, script: &str) -> (Option<i32>, String, String) {
    fs::write(bench.path("script"), script).unwrap();
    let output = bench.run("sh script one two");
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn the_same_script_gives_the_same_bytes_and_times() {
    let run = || {
        let bench = Bench::new(2);
        fs::write(bench.path("data"), vec![5; 3_000_000]).unwrap();
        let (code, out, said) = sh(
            &bench,
            "zpool create -O compression=off tank mirror gpt/d0 gpt/d1\n\
             dd if=/dev/zero of=/tank/a bs=64k count=64 status=none & cp data /tank/b &\n\
             cp data /tank/c &\n\
             wait $!; echo \"copied $?\"\n\
             zpool scrub tank; machine status\n\
             zpool wait -t scrub tank & sleep 5\n\
             wait; zpool status tank > status 2>&1\n\
             machine status; ls /tank\n",
        );
        assert_eq!((code, said.as_str()), (Some(0), ""), "{out}");
        let status = fs::read_to_string(bench.path("status")).unwrap();
        assert!(status.contains("scrub repaired 0B"), "{status}");
        let image = |name: &str| fs::read(bench.path("m/drives").join(name)).unwrap();
        let files = ["ada0.img", "ada1.img", "ada0.img.packed", "ada1.img.packed"];
        let images = files.map(image);
        (out, status, clock_ns(&bench), images)
    };
    let (first, second) = (run(), run());
    assert!(
        first.0.starts_with("copied 0\ndown, clock at "),
        "{}",
        first.0
    );
    assert!(first.0.ends_with("\na\nb\nc\n"), "{}", first.0);
    assert_eq!(
        (&first.0, &first.1, first.2),
        (&second.0, &second.1, second.2)
    );
    assert!(first.3 == second.3, "the drives differ");
}

/// What is written in each second of a copy is shown in that second, and nothing after it.
#[test]
fn iostat_beside_a_copy_shows_what_is_written() {
    let bench = Bench::new(1);
    let (code, out, said) = sh(
        &bench,
        "zpool create -O compression=off tank gpt/d0\n\
         dd if=/dev/zero of=/tank/a bs=1M count=30 status=none &\n\
         zpool iostat -Hpy tank 1 3; wait\n\
         zpool sync tank; sleep 10; zpool iostat -Hpy tank 1 1\n",
    );
    assert_eq!((code, said.as_str()), (Some(0), ""), "{out}");
    let lines = out.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let written: Vec<u64> = lines.map(|words| words[6].parse().unwrap()).collect();
    let [first, .., quiet] = written[..] else {
        panic!("{out}");
    };
    assert_eq!((written.len(), quiet), (4, 0), "{out}");
    assert!(first > 25_000_000, "a drive writes faster than that: {out}");
}

#[test]
fn a_script_is_read_as_sh_reads_it() {
    let bench = Bench::new(1);
    let (code, out, said) = sh(
        &bench,
        "# words\n\
         A='x  y' B=z\n\
         echo \"$A\" $A ${B}1 \\$B '$B' $1-$# ~/x\n\
         false || echo \"failed $?\"\n\
         true && ! false && echo both\n\
         if zpool list nothing 2> said; then echo no; elif [ $? -eq 1 ]; then echo one; fi\n\
         for each in 1 2 '3 4'; do echo \"<$each>\" >> lines; done\n\
         { echo out; echo err >&2; } > all 2>&1\n\
         ( B=inner; exit 3 ); echo $? $B\n\
         sh - <<END\n\
         echo inner\n\
         END\n\
         frobnicate; echo $?\n\
         false & wait $!; echo $?; wait $!; echo $?\n\
         N=; while [ \"$N\" != xxx ]; do N=x$N; done; echo $N\n\
         ASHIFT_WAIT=x zpool list; echo $?\n\
         set -e; false; echo never\n",
    );
    let home = std::env::var("HOME").unwrap_or_else(|_| "~".to_owned());
    let expected = format!(
        "x  y x y z1 $B $B one-2 {home}/x\nfailed 1\nboth\none\n3 z\ninner\n127\n1\n127\nxxx\n2\n"
    );
    assert_eq!(out, expected, "{said}");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("script: line 13: frobnicate: not found\n"),
        "{said}"
    );
    assert_eq!(
        fs::read_to_string(bench.path("lines")).unwrap(),
        "<1>\n<2>\n<3 4>\n"
    );
    assert_eq!(fs::read_to_string(bench.path("all")).unwrap(), "out\nerr\n");
    assert!(
        fs::read_to_string(bench.path("said"))
            .unwrap()
            .contains("no such pool")
    );
    // What cannot be run is said before anything is.
    let (code, out, said) = sh(&bench, "echo begun\nzpool list | cat\n");
    let refusal = "ashift sh: script: line 2: a pipe cannot be used here\n";
    assert_eq!((code, out.as_str(), said.as_str()), (Some(2), "", refusal));
    // One script, and what it began, on this host.
    let disk = fs::File::create(bench.path("disk")).unwrap();
    disk.set_len(100 << 20).unwrap();
    let mut host = Command::new(env!("CARGO_BIN_EXE_ashift"));
    host.args(["sh", "-"]).current_dir(bench.0.path());
    host.env("ASHIFT_STATE", bench.path("state"))
        .env_remove("ASHIFT_MACHINE");
    fs::write(
        bench.path("host"),
        "zpool create tank disk && zfs create tank/x & wait $!\n\
         zfs list -H -o name > names & zpool list -H -o name; wait; zpool export tank\n",
    )
    .unwrap();
    host.stdin(Stdio::from(fs::File::open(bench.path("host")).unwrap()));
    let output = host.output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "tank\n".to_owned())
    );
    assert_eq!(
        fs::read_to_string(bench.path("names")).unwrap(),
        "tank\ntank/x\n"
    );
}
