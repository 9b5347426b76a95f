//! Pools whose last txgs are damaged: `zpool import -F`, `-Fn`, `-FX`, `-T`, and `zpool clear -F`.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use base::Txg;
use geom::disk::OpenMode;
use phys::label::LABEL_START_SIZE;
use vdev::label::Labels;

use crate::bench::Bench;

/// The txgs of the uberblocks on a device, newest first.
fn txgs(bench: &Bench) -> Vec<Txg> {
    let device = geom::disk::open(&bench.path("a"), OpenMode::ReadOnly).unwrap();
    let labels = Labels::read(&*device).unwrap();
    let all: BTreeSet<Txg> = labels.uberblocks().map(|ub| ub.txg()).collect();
    all.into_iter().rev().collect()
}

/// Overwrites the root blocks of the last `count` txgs.
fn damage(bench: &Bench, count: usize) {
    let device = geom::disk::open(&bench.path("a"), OpenMode::ReadOnly).unwrap();
    let labels = Labels::read(&*device).unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(bench.path("a"))
        .unwrap();
    for txg in txgs(bench).into_iter().take(count) {
        let uberblock = labels.best_uberblock(txg).unwrap();
        for dva in uberblock.rootbp.dvas() {
            let at = dva.offset() + LABEL_START_SIZE;
            file.write_all_at(&[0xa5; 512], at).unwrap();
        }
    }
}

fn bytes(bench: &Bench) -> Vec<u8> {
    std::fs::read(bench.path("a")).unwrap()
}

/// A pool with a file in its first txgs, and more some seconds later; the last txg before that.
fn pool() -> (Bench, Txg) {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    std::fs::write(bench.path("early"), vec![1; 100_000]).unwrap();
    std::fs::write(bench.path("late"), vec![2; 100_000]).unwrap();
    bench.ok("cp {dir}/early tank:/early");
    for _ in 0..4 {
        bench.ok("zpool sync -f tank");
    }
    let early = txgs(&bench)[0];
    std::thread::sleep(Duration::from_millis(2100));
    for name in ["late", "later", "latest"] {
        bench.ok(&format!("cp {{dir}}/late tank:/{name}"));
    }
    (bench, early)
}

#[test]
fn a_damaged_last_txg_is_given_up() {
    let (bench, _) = pool();
    bench.ok("zpool export tank");
    let newest = txgs(&bench)[0];
    damage(&bench, 1);
    let before = bytes(&bench);
    let (code, out, _) = bench.run("zpool import -d {dir} tank");
    assert_eq!(code, 1);
    assert!(
        out.contains("Recovery is possible, but will result in some data loss.\n"),
        "{out}"
    );
    assert!(
        out.contains("by executing 'zpool import -F tank'."),
        "{out}"
    );
    let (code, out, _) = bench.run("zpool import -d {dir} -Fn tank");
    assert_eq!(code, 1);
    assert!(
        out.contains("Would be able to return tank to its state as of "),
        "{out}"
    );
    assert!(bytes(&bench) == before, "nothing was written");
    let out = bench.ok("zpool import -d {dir} -F tank");
    assert!(
        out.contains("Pool tank returned to its state as of "),
        "{out}"
    );
    bench.ok("cat tank:/early");
    assert!(bench.ok("zpool history tank").contains("import -d"));
    bench.ok("cp {dir}/late tank:/again");
    bench.ok("zpool export tank");
    assert!(txgs(&bench)[0] > newest);
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(bench.ok("cat tank:/again").len(), 100_000);
    bench.assert_clean("tank");
}

#[test]
fn what_is_older_needs_an_extreme_rewind() {
    let (bench, early) = pool();
    bench.ok("zpool export tank");
    let all = txgs(&bench);
    let later = all.iter().filter(|txg| **txg > early).count();
    // As OpenZFS does, `-F` tries the first one behind the last three, too.
    assert!(later > 3);
    damage(&bench, later);
    let before = bytes(&bench);
    for refused in ["-F", "-Fn"] {
        let (code, ..) = bench.run(&format!("zpool import -d {{dir}} {refused} tank"));
        assert_eq!(code, 1);
    }
    let (code, out, _) = bench.run("zpool import -d {dir} -FXn tank");
    assert_eq!(code, 1);
    assert!(out.contains("Would discard approximately "), "{out}");
    assert!(bytes(&bench) == before, "nothing was written");
    let out = bench.ok("zpool import -d {dir} -FX tank");
    assert!(
        out.contains("Discarded approximately ") && out.contains(" seconds of transactions."),
        "{out}"
    );
    bench.ok("cat tank:/early");
    assert_eq!(bench.run("cat tank:/late").0, 1);
    bench.assert_clean("tank");
}

#[test]
fn a_pool_goes_back_to_a_txg_for_good() {
    let (bench, _) = pool();
    bench.ok("zpool export tank");
    let all = txgs(&bench);
    let then = all[all.len() - 4];
    let (code, ..) = bench.run("zpool import -d {dir} -T 1 tank");
    assert_eq!(code, 1, "there is no such txg");
    bench.ok(&format!(
        "zpool import -d {{dir}} -T {then} -o readonly=on tank"
    ));
    bench.ok("zpool export tank");
    assert_eq!(txgs(&bench), all, "it was only read");
    let out = bench.ok(&format!("zpool import -d {{dir}} -T {then} tank"));
    assert!(
        out.contains("Pool tank returned to its state as of "),
        "{out}"
    );
    assert_eq!(bench.run("cat tank:/late").0, 1);
    bench.ok("cp {dir}/late tank:/again");
    bench.ok("zpool export tank");
    assert!(txgs(&bench)[0] > all[0]);
    bench.ok("zpool import -d {dir} tank");
    assert_eq!(bench.run("cat tank:/late").0, 1, "it is not back");
    bench.assert_clean("tank");
}

#[test]
fn clear_recovers_a_pool_that_is_imported() {
    let (bench, _) = pool();
    bench.ok("zpool sync -f tank");
    damage(&bench, 1);
    assert_eq!(bench.run("cat tank:/late").0, 1);
    assert_eq!(bench.run("zpool clear tank").0, 1);
    assert_eq!(bench.run("zpool clear -n tank").0, 2);
    let before = bytes(&bench);
    let out = bench.ok("zpool clear -nF tank");
    assert!(
        out.contains("Would be able to return tank to its state as of "),
        "{out}"
    );
    assert!(bytes(&bench) == before, "nothing was written");
    let out = bench.ok("zpool clear -F tank");
    assert!(
        out.contains("Pool tank returned to its state as of "),
        "{out}"
    );
    assert_eq!(bench.ok("cat tank:/early").len(), 100_000);
    bench.assert_clean("tank");
    // Nothing to go back from.
    assert_eq!(bench.ok("zpool clear -F tank"), "");
}

/// The states that `rewind` shows, with these words in between.
fn states(bench: &Bench, words: &str) -> (i32, Vec<serde_json::Value>) {
    let (code, out, error) = bench.run(&format!("rewind {words} -j tank"));
    let document: serde_json::Value =
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{error}"));
    (code, document["states"].as_array().unwrap().clone())
}

#[test]
fn what_is_left_of_each_state_is_shown() {
    let (bench, _) = pool();
    let mut state = 1u64;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = std::iter::repeat_with(&mut byte).take(300_000).collect();
    std::fs::write(bench.path("noise"), &noise).unwrap();
    bench.ok("cp {dir}/noise tank:/noise");
    bench.ok("cp {dir}/late tank:/after");
    // While it is imported, too.
    let (code, all) = states(&bench, "-n 99");
    assert_eq!((code, all[0]["is_whole"].as_bool()), (0, Some(true)));
    bench.ok("zpool export tank");
    let out = bench.ok("rewind -d {dir} -n 1 tank");
    assert!(
        out.contains("The newest state is whole, as far as it was read."),
        "{out}"
    );
    damage(&bench, 2);
    let before = bytes(&bench);
    let (code, all) = states(&bench, "-d {dir}");
    assert_eq!((code, all.len()), (0, txgs(&bench).len()));
    let whole: Vec<bool> = all
        .iter()
        .map(|state| state["is_whole"].as_bool().unwrap())
        .collect();
    assert_eq!(whole[..3], [false, false, true], "{all:?}");
    assert!(
        all[0]["error"].as_str().unwrap().contains("checksum"),
        "{all:?}"
    );
    let third = all[2]["txg"].as_u64().unwrap();
    let out = bench.ok("rewind -d {dir} tank");
    assert!(
        out.contains(&format!("That of txg {third} is the newest that is whole")),
        "{out}"
    );
    let (code, one) = states(&bench, &format!("-d {{dir}} -f -T {third}"));
    assert_eq!((code, one.len()), (0, 1));
    assert_eq!(one[0]["data_errors"], 0);
    assert!(
        one[0]["read_bytes"].as_u64() > all[2]["read_bytes"].as_u64(),
        "all of it is read"
    );
    assert_eq!(bytes(&bench), before, "nothing is changed");
    // Two blocks of the file are lost; whether a sample finds them is chance.
    let found = before
        .windows(4096)
        .position(|window| window == &noise[..4096])
        .unwrap();
    let device = std::fs::File::options()
        .write(true)
        .open(bench.path("a"))
        .unwrap();
    device.write_all_at(&[0; 512], found as u64 + 4096).unwrap();
    device
        .write_all_at(&[0; 512], found as u64 + 4096 + 128 * 1024)
        .unwrap();
    let (code, all) = states(&bench, "-d {dir} -f");
    assert_eq!(code, 0, "its metadata is whole");
    assert_eq!(all[2]["data_errors"], 2, "{all:?}");
    assert_eq!(all[2]["metadata_errors"], 0);
    let out = bench.ok("rewind -d {dir} -f tank");
    assert!(out.contains("2 blocks of data are lost"), "{out}");
    // Nothing is left of what an interrupted one would go on with.
    let notes = std::fs::read_dir(bench.state().join("rewind")).unwrap();
    assert_eq!(notes.count(), 0);
    let (code, _, error) = bench.run("rewind -T x tank");
    assert_eq!(
        (code, error.contains("rewind: invalid txg")),
        (2, true),
        "{error}"
    );
    let (code, _, error) = bench.run("rewind -d {dir} tan");
    assert_eq!(
        (code, error.contains("tan: no such pool")),
        (1, true),
        "{error}"
    );
}
