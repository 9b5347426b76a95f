//! Files, records and space.

use crate::bench::Bench;
use crate::expect;

/// A file that does not compress, on the host.
fn file(bench: &Bench, name: &str, bytes: usize) {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let contents: Vec<u8> = (0..bytes / 8).flat_map(|_| next()).collect();
    std::fs::write(bench.path(name), contents).unwrap();
}

#[test]
fn records_are_judged_beside_files_and_vdevs() {
    let bench = Bench::new(&["a", "b", "c", "d", "e"]);
    let f = bench.path("f").display().to_string();
    bench.image("f", 256);
    bench.ok(&format!(
        "zpool create -o ashift=12 -O recordsize=8K tank raidz2 {{a}} {{b}} {{c}} {{d}} {{e}} {f}"
    ));
    expect(&bench, "tank", &["warning records-and-parity tank"]);
    bench.ok("zfs set recordsize=128K special_small_blocks=16K tank");
    expect(&bench, "tank", &["note small-blocks-nowhere tank"]);
    bench.ok("zpool destroy tank");
    bench.ok("zpool create -f tank mirror {a} {b} special mirror {c} {d}");
    bench.ok("zfs create -o special_small_blocks=128K tank/all");
    expect(&bench, "tank", &["warning special-takes-all tank/all"]);
    bench.ok("zfs destroy tank/all");
    for (name, options) in [("tails", "compression=off"), ("records", "recordsize=4K")] {
        bench.ok(&format!("zfs create -o {options} tank/{name}"));
    }
    file(&bench, "short", 129 << 10);
    for n in 0..40 {
        bench.ok(&format!("cp {{dir}}/short tank/tails:/{n}"));
    }
    file(&bench, "long", 8 << 20);
    bench.ok("cp {dir}/long tank/records:/long");
    let tails = "warning empty-tails tank/tails";
    expect(&bench, "tank", &[tails, "note small-records tank/records"]);
    bench.ok("zfs set recordsize=1M tank/records");
    expect(&bench, "tank", &[tails, "note older-records tank/records"]);
    // Without a look at files there is nothing to say of them.
    expect(&bench, "-n 0 tank", &[]);
}

#[test]
fn damage_and_room_that_is_idle_are_found() {
    let bench = Bench::new(&[]);
    bench.image("a", 96);
    bench.image("b", 96);
    bench.ok("zpool create tank mirror {a} {b}");
    file(&bench, "long", 8 << 20);
    bench.ok("cp {dir}/long tank:/kept");
    bench.scribble("a", 5 << 20..70 << 20);
    bench.run("zpool scrub tank");
    expect(&bench, "tank", &["warning device-errors tank: a"]);
    bench.ok("zpool clear tank");
    bench.ok("zpool detach tank {a}");
    bench.ok("zpool export tank");
    std::fs::File::options()
        .write(true)
        .open(bench.path("b"))
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    bench.ok("zpool import -d {b} tank");
    let (_, out, _) = bench.run("doctor -j tank");
    assert!(out.contains("\"id\":\"expandable\""), "{out}");
}
