//! `ashift tar` in a machine: it takes simulated time, the same each time.

use std::fs;
use std::os::unix::fs::FileExt;

use super::Bench;

#[test]
fn archives_take_the_same_time_twice() {
    let session = || {
        let bench = Bench::new(1);
        let clock = || {
            let shown = bench.ok("machine show -j");
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            shown["clock_ns"].as_u64().unwrap()
        };
        fs::write(bench.path("file"), vec![5; 1 << 20]).unwrap();
        bench.ok("zpool create -O compression=off tank gpt/d0");
        bench.ok("mkdir /tank/d /tank/back");
        for n in 0..7 {
            bench.ok(&format!("cp file /tank/d/{n}"));
        }
        let begun = clock();
        bench.ok("tar -cf /tank/a.tar -C /tank d");
        let made = clock();
        bench.ok("tar -xf /tank/a.tar -C /tank/back");
        let extracted = clock();
        let listed = bench.ok("tar -tvf tank:/a.tar");
        assert_eq!(listed.lines().count(), 8, "{listed}");
        assert_eq!(bench.ok("cat /tank/back/d/6"), bench.ok("cat /tank/d/6"));
        bench.ok("zpool export tank");
        let media = fs::File::open(bench.path("m/drives/ada0.img")).unwrap();
        let mut bytes = vec![0; 64 << 20];
        media.read_exact_at(&mut bytes, 0).unwrap();
        (made - begun, extracted - made, clock(), listed, bytes)
    };
    let (one, other) = (session(), session());
    // 7 MiB at a drive's pace.
    assert!(
        one.0 > 10_000_000 && one.1 > 10_000_000,
        "{} {}",
        one.0,
        one.1
    );
    assert_eq!((one.0, one.1, one.2), (other.0, other.1, other.2));
    assert_eq!(one.3, other.3);
    assert!(one.4 == other.4, "other bytes");
}
