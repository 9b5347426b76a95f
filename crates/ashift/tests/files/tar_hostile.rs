//! Archives that mean harm, or were harmed: nothing is written outside, and every run ends with a reason.

use tarball::{Kind, Member};
use torture::Dice;

use super::{Bench, shell};

/// Damaged archives that are read; `ROUNDS=` for more.
const ROUNDS: usize = 40;

fn file(name: &str) -> Member {
    let mut member = Member::new(name.as_bytes(), Kind::File);
    (member.mode, member.size, member.map) = (0o644, 5, vec![(0, 5)]);
    member
}

fn link(name: &str, kind: Kind, to: &str) -> Member {
    let mut member = Member::new(name.as_bytes(), kind);
    (member.mode, member.link) = (0o777, to.as_bytes().to_vec());
    member
}

fn directory(name: &str) -> Member {
    let mut member = Member::new(name.as_bytes(), Kind::Directory);
    member.mode = 0o700;
    member
}

/// An archive whose files have `pwned` in them.
fn archive(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        bytes.extend(tarball::lead(member).unwrap());
        if member.size > 0 {
            bytes.extend(b"pwned");
        }
        bytes.resize(bytes.len() + tarball::padding(member), 0);
    }
    bytes.resize(bytes.len() + tarball::end(bytes.len() as u64), 0);
    bytes
}

#[test]
fn members_lead_nowhere_outside() {
    let bench = Bench::new();
    let host = bench.folder.path();
    shell(
        "mkdir -p deep/out outside; echo untouched >victim; echo old >outside/old",
        host,
    );
    let (outside, victim) = (bench.path("outside"), bench.path("victim"));
    let absolute = bench.path("absolute");
    let members = [
        file("../../up"),
        file(&absolute),
        file("a/../../../b"),
        link("dir", Kind::Symlink, &outside),
        file("dir/through"),
        directory("dir"),
        link("name", Kind::Symlink, &victim),
        file("name"),
        link("again", Kind::Symlink, &victim),
        link("hard", Kind::Link, "again"),
        file("hard"),
        link("up", Kind::Symlink, ".."),
        link("stolen", Kind::Link, "up/victim"),
        link("theirs", Kind::Link, "../../victim"),
        link("into", Kind::Symlink, &outside),
        link("old", Kind::Link, "into/old"),
        file("good"),
    ];
    std::fs::write(bench.path("evil.tar"), archive(&members)).unwrap();
    let out = bench.path("deep/out");
    let done = bench.run(&["tar", "-xf", &bench.path("evil.tar"), "-C", &out]);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{err}");
    for said in [
        "Removing leading `../../' from member names",
        "Removing leading `/' from member names",
        "Removing leading `a/../../../' from member names",
        "Removing leading `../../' from hard link targets",
        "dir/through: a file is where the directory belongs",
        "stolen: a file is where the directory belongs",
        "old: a file is where the directory belongs",
        "theirs: No such file or directory",
    ] {
        assert!(err.contains(said), "{said}\n{err}");
    }
    assert_eq!(
        shell("cat victim; ls outside; ls deep", host),
        "untouched\nold\nout\n"
    );
    assert!(!std::fs::exists(&absolute).unwrap());
    let read = |name: &str| std::fs::read_to_string(bench.path(&format!("deep/out/{name}")));
    // A file replaces a link of its name, and is not written to where that leads.
    for name in ["name", "hard", "good", "b"] {
        assert_eq!(read(name).unwrap(), "pwned", "{name}");
    }
    // The same in a pool.
    bench.ok(&["mkdir", "-p", "tank:/deep/out"]);
    let words = [
        "tar",
        "-xf",
        &bench.path("evil.tar"),
        "-C",
        "tank:/deep/out",
    ];
    assert_eq!(bench.run(&words).status.code(), Some(2));
    assert_eq!(bench.ok(&["ls", "tank:/"]), "deep\n");
    assert_eq!(bench.ok(&["ls", "tank:/deep"]), "out\n");
}

#[test]
fn an_archive_that_is_cut_off_is_said_once() {
    let bench = Bench::new();
    shell(
        "mkdir d; echo first >d/1; head -c 100000 /dev/zero >d/2",
        bench.folder.path(),
    );
    shell(
        "tar -cf whole.tar d/1 d/2; head -c 50000 whole.tar >cut.tar",
        bench.folder.path(),
    );
    shell(
        "gzip -c whole.tar | head -c 200 >cut.tgz; head -c 300 whole.tar >none.tar; mkdir out",
        bench.folder.path(),
    );
    for (name, words, said) in [
        ("cut.tar", "-tf", "Unexpected EOF in archive"),
        ("cut.tar", "-xf", "Unexpected EOF in archive"),
        ("cut.tgz", "-xf", "Unexpected EOF in archive"),
        ("none.tar", "-tf", "This does not look like a tar archive"),
    ] {
        let archive = bench.path(name);
        let done = bench.run(&["tar", words, &archive, "-C", &bench.path("out")]);
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{name} {words}: {err}");
        assert_eq!(err, format!("ashift tar: {archive}: {said}\n"), "{words}");
    }
    assert_eq!(shell("cat out/d/1", bench.folder.path()), "first\n");
    // Through a pipe, too.
    let bytes = std::fs::read(bench.path("cut.tar")).unwrap();
    let done = bench.run_with(&["tar", "-t"], &bytes);
    assert_eq!(done.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&done.stderr),
        "ashift tar: -: Unexpected EOF in archive\n"
    );
}

#[test]
fn what_cannot_be_made_is_an_error_of_its_own() {
    let bench = Bench::new();
    let mut large = file("large");
    (large.size, large.map) = (1 << 62, vec![(0, 5)]);
    let members = [
        file(&"n".repeat(256)),
        large,
        Member::new(b"odd", Kind::Other(b'Q')),
        link("nowhere", Kind::Link, "none"),
        file("a"),
        file("a/b"),
        file("good"),
    ];
    std::fs::write(bench.path("odd.tar"), archive(&members)).unwrap();
    let done = bench.run(&["tar", "-xf", &bench.path("odd.tar"), "-C", "tank:/"]);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{err}");
    for said in [
        "nnn: File name too long",
        "odd: Unknown file type 'Q'; skipped",
        "nowhere: No such file or directory",
        "a/b: a file is where the directory belongs",
    ] {
        assert!(err.contains(said), "{said}\n{err}");
    }
    assert_eq!(bench.ok(&["cat", "tank:/good"]), "pwned");
}

#[test]
fn a_full_pool_is_said_and_what_fits_is_there() {
    let bench = Bench::new();
    bench.ok(&[
        "zfs",
        "create",
        "-o",
        "quota=20M",
        "-o",
        "compression=off",
        "tank/small",
    ]);
    let host = bench.folder.path();
    shell(
        "echo 1 >1; head -c 60000000 /dev/urandom >2; tar -cf x.tar 1 2",
        host,
    );
    let done = bench.run(&["tar", "-xf", &bench.path("x.tar"), "-C", "tank/small:/"]);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{err}");
    assert_eq!(err, "ashift tar: 2: Disk quota exceeded\n");
    assert_eq!(bench.ok(&["cat", "tank/small:/1"]), "1\n");
    // An archive that does not fit ends the making of it.
    let done = bench.run(&[
        "tar",
        "-cf",
        "tank/small:/a.tar",
        "-C",
        &bench.path(""),
        "2",
        "1",
    ]);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{err}");
    assert_eq!(err, "ashift tar: tank/small:/a.tar: Disk quota exceeded\n");
}

#[test]
fn damage_ends_no_run_without_a_reason() {
    let bench = Bench::new();
    let host = bench.folder.path();
    shell(
        "mkdir -p t/d; echo 1 >t/d/1; ln t/d/1 t/2; ln -s x t/3; truncate -s 1M t/4; head -c 9000 /dev/urandom >t/5
         tar --format=posix -S -cf 0.tar t; tar --format=gnu -S -cf 1.tar t",
        host,
    );
    let seed = std::env::var("SEED").map_or(17, |seed| seed.parse().unwrap());
    let rounds = std::env::var("ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    println!("SEED={seed}");
    let mut dice = Dice::new(seed);
    let whole: Vec<Vec<u8>> = (0..2)
        .map(|n| std::fs::read(bench.path(&format!("{n}.tar"))).unwrap())
        .collect();
    for round in 0..rounds {
        let mut bytes = whole[round % 2].clone();
        for _ in 0..1 + dice.below(8) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.below(256) as u8;
        }
        for block in bytes
            .chunks_exact_mut(512)
            .filter(|block| &block[257..262] == b"ustar")
        {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        std::fs::write(bench.path("bad.tar"), &bytes).unwrap();
        shell("rm -rf in; mkdir -p in/out", host);
        let done = bench.run(&[
            "tar",
            "-xf",
            &bench.path("bad.tar"),
            "-C",
            &bench.path("in/out"),
        ]);
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            matches!(done.status.code(), Some(0 | 2)),
            "round {round}: {err}"
        );
        assert_eq!(
            done.status.code() == Some(2),
            err.contains("ashift tar: "),
            "round {round}: {err}"
        );
        assert_eq!(shell("ls in", host), "out\n", "round {round}");
    }
}
