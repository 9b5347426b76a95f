//! The kernel's OpenZFS mounts a pool made here, and reports the same properties.

use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};

use crate::Place;
use crate::errors::noise;

const LOOK: &str = "set -e
zpool import -d /host -N -o readonly=on tank
zfs get -Hp -r all tank
zpool export tank
";

const WORK: &str = "set -e
zpool import -d /host -R /mnt tank
echo from the kernel >/mnt/tank/a/kernel
cat /mnt/tank/a/ours /mnt/tank/clone/ours
zfs set compression=gzip tank/a
zfs destroy tank/a/b
zfs snapshot tank/a@kernel
zfs bookmark tank/a@kernel tank/a#mark
zfs clone tank/a@kernel tank/lively
dd if=/dev/urandom of=/mnt/tank/lively/noise bs=128k count=4 2>/dev/null
zfs clone tank/a@kernel tank/doomed
dd if=/dev/urandom of=/mnt/tank/doomed/noise bs=128k count=4 2>/dev/null
zpool sync tank
zfs destroy tank/doomed
zpool get -H -o value feature@livelist,feature@bookmarks tank
zpool export tank
";

/// All lines except for properties that differ by nature: `mounted` and `readonly`.
fn comparable(text: &str) -> Vec<&str> {
    let differs = ["mounted", "readonly"];
    let property = |line: &str| line.split('\t').nth(1).unwrap_or("").to_owned();
    text.lines()
        .filter(|line| !differs.contains(&property(line).as_str()))
        .collect()
}

#[test]
fn slow_the_kernel_reads_and_goes_on() {
    let Some(guest) = Guest::find() else { return };
    let place = Place::with_pool("-O mountpoint=/tank -O compression=zstd");
    place.zfs("create -o quota=200M -o xattr=sa -o acltype=posix -o note:x=y tank/a");
    place.zfs("create -o reservation=10M -o dnodesize=auto -o recordsize=1M tank/a/b");
    place.write("tank/a", "ours", b"from here\n").unwrap();
    // The kernel drops the livelist of a clone that shares little.
    place.write("tank/a", "shared", &noise(8 << 20)).unwrap();
    place.write("tank/a/b", "file", &vec![9; 3 << 20]).unwrap();
    place.zfs("snapshot -r tank/a@one");
    place.zfs("clone -o refquota=50M -o redundant_metadata=most tank/a@one tank/clone");
    place.zfs("set snapdir=visible logbias=throughput sync=always copies=2 tank/clone");
    place.zfs("destroy tank/a/b@one");
    assert_eq!(place.run("zpool export tank").code, 0);
    // Read after an export and import, because the export writes another txg.
    let share = place.images();
    let import = format!(
        "zpool import -o readonly=on -d {} tank",
        crate::path(&share)
    );
    assert_eq!(place.run(&import).code, 0);
    let ours = place.zfs("get -Hp -r all tank");
    assert_eq!(place.run("zpool export tank").code, 0);
    // The kernel opens a pool made on files only from files: hence a shared folder instead of disks.
    let looked = guest.run(LOOK, &share, &[]);
    looked.assert_success();
    assert_eq!(comparable(&ours), comparable(&looked.output));

    let worked = guest.run(WORK, &share, &[]);
    worked.assert_success();
    assert_eq!(worked.output, "from here\nfrom here\nactive\nactive\n");
    for rest in ["script", "output", "status", "console"] {
        std::fs::remove_file(share.join(rest)).unwrap();
    }
    if have_zdb() {
        Zdb::verify(&place.images(), "tank").assert_clean();
    }
    let import = place.run(&format!(
        "zpool import -d {} tank",
        crate::path(&place.images())
    ));
    assert_eq!((import.code, import.err.as_str()), (0, ""));
    assert_eq!(place.get("compression", "tank/a"), "gzip local");
    assert_eq!(
        place.names(),
        "tank tank/a tank/a@one tank/a@kernel tank/a#mark tank/clone tank/lively"
    );
    // Here a clone's livelist is dropped before the clone changes.
    place
        .write("tank/lively", "ours too", &[1; 300_000])
        .unwrap();
    let mut files = place.files("tank/lively");
    files.sort();
    assert_eq!(files, ["kernel", "noise", "ours", "ours too", "shared"]);
    assert_eq!(
        place.run("zpool get -H -o value feature@livelist tank").out,
        "enabled\n"
    );
    place.zfs("destroy tank/lively");
    place.zfs("destroy tank/a#mark");
    let mut files = place.files("tank/a");
    files.sort();
    assert_eq!(files, ["kernel", "ours", "shared"]);
    place.verify();
}
