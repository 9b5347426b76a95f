//! Pools on images that are to be copied onto disks: their labels call them disks.

use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};

use crate::bench::Bench;

/// The kind that a label says its device has, by the real zdb.
fn kind(path: &str) -> String {
    let said = Zdb::run(&["-l", path]).stdout;
    let line = said
        .lines()
        .rfind(|line| line.starts_with("        type: ") || line.starts_with("            type: "));
    line.unwrap_or(&said).trim().to_owned()
}

#[test]
fn images_are_called_disks_where_that_is_asked_for() {
    if !have_zdb() {
        return;
    }
    let bench = Bench::new(&["a", "b", "c", "d", "e"]);
    let kind = |name: &str| kind(&bench.filled(name));
    bench.ok("zpool create -o ashift=12 tank {a}");
    assert_eq!(kind("{a}"), "type: 'file'");
    bench.ok("zpool add -o type=disk -o ashift=12 tank {b}");
    assert_eq!(kind("{b}"), "type: 'disk'");
    bench.ok("zpool attach -w -o type=disk tank {a} {c}");
    assert_eq!(kind("{c}"), "type: 'disk'");
    bench.ok("zpool replace -w -o type=disk tank {a} {d}");
    assert_eq!(kind("{d}"), "type: 'disk'");
    bench.ok("zpool destroy tank");
    let text = "invalid 'type=stick' property: only 'disk' is allowed, for files that are to be copied onto disks.";
    bench.fails("zpool create -o type=stick tank {a}", 1, text);
    bench.fails(
        "zpool create -o type=disk -o type=stick tank {a}",
        1,
        "property 'type' specified multiple times",
    );
    // What is a partition can only become one of a disk.
    bench.ok("gpart create -s gpt {e}");
    bench.ok("gpart add -t freebsd-zfs -a 1M {e}");
    bench.ok("zpool create part {e}p1");
    bench.ok("zpool export part");
    bench.ok("zpool import -d {e} part");
    let seen = bench.ok("zdb -C part");
    assert!(seen.contains("type: 'disk'"), "{seen}");
}

const KERNEL: &str = "set -e
zpool import -d /dev -R /mnt whole
zpool import -d /dev -R /mnt part
zpool status -P whole part | grep -o '/dev/vd[a-z0-9]*'
cat /mnt/whole/ours /mnt/part/ours
echo theirs >/mnt/part/theirs
zpool scrub -w whole
zpool export -a
";

#[test]
fn slow_the_kernel_takes_images_that_were_copied_onto_disks() {
    let Some(guest) = Guest::find() else { return };
    let bench = Bench::new(&["a", "b", "c"]);
    bench.ok("zpool create -o type=disk -O mountpoint=/whole whole mirror {a} {b}");
    bench.ok("gpart create -s gpt {c}");
    bench.ok("gpart add -t freebsd-zfs -a 1M {c}");
    bench.ok("zpool create -O mountpoint=/part part {c}p1");
    for pool in ["whole", "part"] {
        std::fs::write(bench.path("ours"), format!("of {pool}\n")).unwrap();
        bench.ok(&format!("cp {{dir}}/ours {pool}:/"));
        bench.ok(&format!("zpool export {pool}"));
    }
    let disks = ["a", "b", "c"].map(|name| bench.path(name));
    let host = tempfile::tempdir().unwrap();
    let outcome = guest.run(
        KERNEL,
        host.path(),
        &disks.each_ref().map(std::path::PathBuf::as_path),
    );
    outcome.assert_success();
    let lines: Vec<&str> = outcome.output.lines().collect();
    let (places, texts) = lines.split_at(lines.len() - 2);
    assert_eq!(places.len(), 3, "{lines:?}");
    assert!(
        places.iter().any(|place| place.ends_with('1')),
        "a partition: {places:?}"
    );
    assert_eq!(texts, ["of whole", "of part"]);
    bench.ok("zpool import -d {c} part");
    assert_eq!(bench.ok("cat part:/theirs"), "theirs\n");
    bench.ok("zpool import -d {dir} whole");
    bench.ok("zpool scrub whole");
}
