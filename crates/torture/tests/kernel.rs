//! Pools written here, handed to the real OpenZFS kernel module, and back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::ObjsetId;
use geom::Provider;
use geom::disk::{OpenMode, open};
use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};
use phys::PropValue;
use spa::Spa;
use torture::files::Files;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::{Attach, AutoAshift, Grouping, NewDevice, TopSpec, VdevKind};
use zio::AllocClass;
use zpl::mount::{init, mount};
use zpl::{Create, NewFilesystem};

fn images(folder: &Path, count: usize) -> (Vec<PathBuf>, Vec<Arc<dyn Provider>>) {
    let paths: Vec<PathBuf> = (0..count)
        .map(|i| folder.join(format!("disk{i}")))
        .collect();
    let providers = paths.iter().map(|path| {
        if !path.exists() {
            std::fs::File::create(path)
                .unwrap()
                .set_len(512 << 20)
                .unwrap();
        }
        open(path, OpenMode::ReadWrite).unwrap()
    });
    let providers = providers.collect();
    (paths, providers)
}

fn new_fs(spa: &Spa, name: &str, props: &[(&str, u64)]) {
    let props = props
        .iter()
        .map(|(n, v)| ((*n).to_owned(), phys::PropValue::Number(*v)))
        .collect();
    spa.parts()
        .dsl()
        .create_dataset(dsl::NewDataset {
            name: name.into(),
            type_: phys::ObjsetType::Zfs,
            flags: 0,
            props,
            init: init(NewFilesystem::default(), true),
        })
        .unwrap();
}

fn work(spa: &Spa, name: &str, files: &mut Files, dice: &mut Dice, steps: usize) {
    let fs = mount(spa.parts().dsl(), name, false).unwrap();
    for step in 0..steps {
        files
            .step(&fs, dice)
            .unwrap_or_else(|e| panic!("step {step}: {e}"));
    }
    files.compare(&fs).unwrap();
}

/// Properties of a file system, as the numbers used on disk.
const KINDS: &[(&str, &[(&str, u64)])] = &[
    ("plain", &[("compression", 2), ("recordsize", 4096)]),
    ("lz4", &[("compression", 15), ("checksum", 8)]),
    (
        "zstd",
        &[
            ("compression", 16),
            ("recordsize", 1 << 20),
            ("checksum", 14),
        ],
    ),
    (
        "gzip",
        &[
            ("compression", 10),
            ("checksum", 12),
            ("copies", 2),
            ("dnodesize", 1024),
        ],
    ),
    // Two file systems with the same contents.
    ("dedup", DEDUPED),
    ("twin", DEDUPED),
];

/// dedup=on
const DEDUPED: &[(&str, u64)] = &[("dedup", 1), ("compression", 2), ("recordsize", 4096)];

const GUEST: &str = r#"set -e
zpool import -d /dev -R /mnt tank
zpool status -v tank
test $(zpool get -H -o value autotrim tank) = on
zpool scrub -w tank
zpool status -v tank
zpool status tank | grep -q "repaired 0B in .* with 0 errors"
zpool status tank | grep -q "errors: No known data errors"
zfs list -t all -o name,used,refer,mountpoint
for fs in plain lz4 zstd gzip dedup twin; do
  cd /mnt/tank/$fs; sha256sum -c /host/$fs.sums >/host/check.log || { grep -v OK /host/check.log; exit 1; }
  mkdir -p /tmp/snap; mount -t zfs tank/$fs@one /tmp/snap; cd /tmp/snap
  sha256sum -c /host/$fs.one.sums >/host/check.log || { grep -v OK /host/check.log; exit 1; }
  cd /; umount /tmp/snap
done
cd /mnt/tank/clone; sha256sum -c /host/lz4.one.sums >/dev/null; cd /
mkdir /mnt/tank/lz4/kernel
cp -r /sbin/z* /mnt/tank/lz4/kernel/
ln -s zdb /mnt/tank/lz4/kernel/link
for i in $(seq 300); do echo $i >/mnt/tank/plain/kernel$i; done
rm -r /mnt/tank/zstd/*
zpool status -D tank
ratio=$(zpool get -Hpo value dedupratio tank)
[ ${ratio%.*} -ge 2 ]
cp -r /mnt/tank/twin/. /mnt/tank/dedup/again
rm -r /mnt/tank/twin/*
zfs snapshot -r tank@kernel
zfs destroy tank/lz4@one || zfs promote tank/clone
(cd /mnt/tank/lz4/kernel && sha256sum z*) >/host/kernel.sums
zfs userspace -Hp tank/plain >/host/userspace || true
zpool export tank
"#;

#[test]
fn kernel_imports_scrubs_reads_writes_and_gives_back() {
    hand_over(Layout::Mirror, 2);
}

/// That its scrub repairs nothing says that it computes the same parity.
#[test]
fn kernel_imports_scrubs_reads_writes_and_gives_back_a_draid() {
    hand_over(Layout::Draid(2, 3, 0), 7);
}

/// A distributed spare has taken over for a device that is offline.
#[test]
fn kernel_imports_scrubs_reads_writes_and_gives_back_a_draid_with_its_spare_in_use() {
    hand_over(Layout::Draid(1, 2, 1), 5);
}

#[test]
fn kernel_imports_scrubs_reads_writes_and_gives_back_a_raidz() {
    hand_over(Layout::Raidz(3), 6);
}

#[test]
fn kernel_imports_scrubs_reads_writes_and_gives_back_special_dedup_and_log_devices() {
    hand_over(Layout::Classes, 4);
}

fn hand_over(layout: Layout, count: usize) {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed(77));
    let (paths, disks) = images(folder.path(), count);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", layout, 12, &disks, root).unwrap();
    // What is freed becomes holes of the images, here and under the kernel.
    let is_on = PropValue::Number(1);
    spa.set_prop("autotrim", is_on).unwrap();
    let mut all = Vec::new();
    for (name, props) in KINDS {
        let full = format!("tank/{name}");
        new_fs(&spa, &full, props);
        if *props == DEDUPED {
            dice = Dice::new(7);
        }
        let mut files = Files::default();
        work(&spa, &full, &mut files, &mut dice, 300);
        spa.parts()
            .dsl()
            .snapshot(&[&format!("{full}@one")], Vec::new())
            .unwrap();
        std::fs::write(
            host.path().join(format!("{name}.one.sums")),
            files.sha256sums(),
        )
        .unwrap();
        work(&spa, &full, &mut files, &mut dice, 200);
        std::fs::write(host.path().join(format!("{name}.sums")), files.sha256sums()).unwrap();
        all.push((full, files));
    }
    spa.parts()
        .dsl()
        .clone_dataset("tank/clone", "tank/lz4@one", Vec::new())
        .unwrap();
    spa.sync().unwrap();
    for (spare, _) in spa.spares() {
        let old = spa.parts().tree().devices()[1].guid();
        spa.parts().tree().offline(old, false).unwrap();
        spa.attach_distributed(old, spare.guid()).unwrap();
        spa.resilver_if_needed().unwrap();
        spa.wait_scan(&mut |_| true).unwrap();
    }
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();

    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest.run(GUEST, host.path(), &paths).assert_success();

    Zdb::verify(folder.path(), "tank").assert_clean();
    let (_, disks) = images(folder.path(), count);
    let spa = pool::open(&disks, false).unwrap();
    assert!(
        !spa.is_readonly(),
        "kept read-only by {:?}",
        spa.obstacles()
    );
    pool::assert_clean(&spa);
    check_kernel_files(&spa, host.path());
    // Here the files are written again that the kernel removed, and go again with the file system.
    for name in ["tank/again", "tank/twice"] {
        new_fs(&spa, name, DEDUPED);
        work(&spa, name, &mut Files::default(), &mut Dice::new(7), 300);
    }
    spa.parts().dsl().destroy_head("tank/again").unwrap();
    let (name, files) = &mut all[3];
    assert_eq!(name, "tank/gzip", "the kernel left this one as it was");
    work(&spa, name, files, &mut dice, 200);
    spa.sync().unwrap();
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();
}

/// What the kernel wrote reads back here.
fn check_kernel_files(spa: &Spa, host: &Path) {
    let fs = mount(spa.parts().dsl(), "tank/lz4", true).unwrap();
    let sums = std::fs::read_to_string(host.join("kernel.sums")).unwrap();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let id = fs.resolve(format!("kernel/{name}")).unwrap();
        let mut bytes = vec![0; fs.getattr(id).unwrap().size as usize];
        fs.read(id, 0, &mut bytes).unwrap();
        let words = checksum::digest(phys::ChecksumType::Sha256, &[0; 32], &bytes);
        let hex: String = words.iter().map(|word| format!("{word:016x}")).collect();
        assert_eq!(hex, sum, "{name}");
    }
    let plain = mount(spa.parts().dsl(), "tank/plain", true).unwrap();
    for i in 1..=300 {
        let id = plain.resolve(format!("kernel{i}")).unwrap();
        let mut bytes = vec![0; plain.getattr(id).unwrap().size as usize];
        plain.read(id, 0, &mut bytes).unwrap();
        assert_eq!(bytes, format!("{i}\n").into_bytes());
    }
    let root = fs.resolve("kernel/link").unwrap_or(fs.root());
    assert!(fs.getattr(root).is_ok());
}

/// The guest finishes the scrub begun here, and leaves a resilver of its own unfinished.
const SCAN_GUEST: &str = r#"set -e
zpool import -d /dev -R /mnt tank
zpool wait -t scrub tank
zpool status tank
zpool status tank | grep -q "scrub repaired [1-9].* with 0 errors"
echo 1 >/sys/module/zfs/parameters/zfs_scan_suspend_progress
zpool offline tank /dev/vdb
for i in $(seq 50); do echo $i >/mnt/tank/kernel$i; done
zpool sync tank
zpool online tank /dev/vdb
zpool sync tank
zpool status tank | grep scan: -A 2
zpool export tank
"#;

/// Opens a pool of these images, waits for its scan, and checks each side alone.
fn finish_scan(paths: &[PathBuf]) {
    let open_all = || {
        let open_one = |path: &PathBuf| open(path, OpenMode::ReadWrite).unwrap();
        paths.iter().map(open_one).collect::<Vec<_>>()
    };
    let spa = pool::open(&open_all(), true).unwrap();
    let before = spa.scan().unwrap();
    assert_eq!(before.state.get(), phys::scan::DSS_SCANNING, "{before:?}");
    drop(spa);
    let spa = pool::open(&open_all(), false).unwrap();
    spa.resilver_if_needed().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    assert_eq!(scan.errors.get(), 0);
    assert_eq!(scan.state.get(), phys::scan::DSS_FINISHED);
    let is_whole = |device: &Arc<vdev::Vdev>| !device.leaf().has_dtl();
    assert!(spa.parts().tree().devices().iter().all(is_whole));
    spa.export().unwrap();
    drop(spa);
    for device in open_all() {
        let spa = pool::open(&[device], true).unwrap();
        pool::assert_clean(&spa);
    }
}

#[test]
fn a_scan_goes_on_under_the_kernel_and_comes_back() {
    let Some(guest) = Guest::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed(78));
    let (paths, disks) = images(folder.path(), 2);
    let mut settings = pool::settings();
    settings.scan.blocks_max = 10;
    let root = init(NewFilesystem::default(), true);
    let new = pool::create_with("tank", Layout::Mirror, 12, &disks, root, settings);
    let spa = new.unwrap();
    new_fs(&spa, "tank/a", &[("recordsize", 4096)]);
    let mut files = Files::default();
    work(&spa, "tank/a", &mut files, &mut dice, 800);
    spa.parts()
        .dsl()
        .snapshot(&["tank/a@s"], Vec::new())
        .unwrap();
    work(&spa, "tank/a", &mut files, &mut dice, 10);
    // The scan begins with the dedup tables, in the midst of which it is handed over.
    new_fs(&spa, "tank/d", DEDUPED);
    let shared = Dice::new(5).bytes(400 * 4096);
    pool::write_file(&spa, "tank/d", "one", &shared);
    pool::write_file(&spa, "tank/d", "two", &shared);
    // Until the logs of the tables are in these.
    for _ in 0..60 {
        pool::in_mos(&spa, |mos, tx| {
            zap::directory::set(mos, "tick", tx.txg().0, tx)
        });
    }
    pool::in_mos(&spa, |mos, tx| zap::directory::remove(mos, "tick", tx));
    // One side loses much of its data.
    for at in (5 << 20..500 << 20).step_by(1 << 16) {
        disks[1].write(at, &[0x77; 8192]).unwrap();
    }
    spa.scrub().unwrap();
    let is_young = |scan: &phys::ScanPhys| scan.examined.get() < 500_000;
    spa.wait_scan(&mut |scan| is_young(scan)).unwrap();
    let scan = spa.scan().unwrap();
    assert_eq!(scan.state.get(), phys::scan::DSS_SCANNING, "{scan:?}");
    assert!(scan.examined.get() > 0);
    let at = scan.ddt_bookmark;
    assert!(at.class.get() == 1 && at.cursor.get() > 0, "{scan:?}");
    spa.export().unwrap();
    drop((spa, disks));
    let disks: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let outcome = guest.run(SCAN_GUEST, host.path(), &disks);
    outcome.assert_success();
    finish_scan(&paths);
}

/// The guest finishes the error scrub paused here, and leaves one of its own paused.
const ERROR_SCRUB_GUEST: &str = r#"set -e
zpool import -d /dev -R /mnt tank
zpool status tank
zpool status tank | grep -q "scrub: error scrub paused since"
zpool status tank | grep -q "error scrub started on"
! zpool scrub tank 2>/tmp/said
grep "error scrub is paused" /tmp/said
zpool scrub -e tank
for i in $(seq 100); do
    zpool sync tank
    zpool status tank | grep -q "scrub: scrubbed .* error blocks in 0 days 00:0" && break
done
zpool status -v tank
zpool status tank | grep -q "scrub: scrubbed .* error blocks in 0 days 00:0"
zpool status -v tank | grep -q /mnt/tank/d/f1
! zpool status -v tank | grep -q /mnt/tank/d/f0
echo 1 >/sys/module/zfs/parameters/zfs_scan_suspend_progress
zpool scrub -e tank
zpool scrub -p tank
zpool status tank | grep -q "scrub: error scrub paused since"
zpool export tank
"#;

#[test]
fn an_error_scrub_goes_on_under_the_kernel_and_comes_back() {
    let Some(guest) = Guest::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let (paths, disks) = images(folder.path(), 1);
    let mut settings = pool::settings();
    settings.scan.blocks_max = 1;
    let root = init(NewFilesystem::default(), true);
    let new = pool::create_with("tank", Layout::Stripe, 12, &disks, root, settings);
    let spa = new.unwrap();
    new_fs(&spa, "tank/d", &[("compression", 2)]);
    // Those of f0 are good again before the error scrub.
    let names = ["f0", "f1"];
    for name in names {
        pool::write_file(&spa, "tank/d", name, &vec![0x77; 10 * 131_072]);
    }
    spa.sync().unwrap();
    let overwrite = |name: &str, byte: u8| {
        let fs = mount(spa.parts().dsl(), "tank/d", true).unwrap();
        for at in pool::places(&fs, name) {
            disks[0].write(at.start, &[byte; 4096]).unwrap();
        }
    };
    names.iter().for_each(|name| overwrite(name, 0x5a));
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    assert_eq!(spa.damaged().unwrap().len(), 20);
    overwrite("f0", 0x77);
    spa.scrub_errors().unwrap();
    spa.pause_scrub().unwrap();
    assert!(spa.is_error_scrub_paused());
    spa.export().unwrap();
    drop((spa, disks));
    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest
        .run(ERROR_SCRUB_GUEST, host.path(), &names)
        .assert_success();
    let (_, disks) = images(folder.path(), 1);
    let spa = pool::open(&disks, false).unwrap();
    assert!(spa.is_error_scrub_paused(), "{:?}", spa.error_scrub());
    spa.scrub_errors().unwrap();
    spa.wait_error_scrub(&mut |_| true).unwrap();
    let scrub = spa.error_scrub().unwrap();
    assert_eq!(scrub.state.get(), phys::scan::DSS_FINISHED);
    assert_eq!(spa.damaged().unwrap().len(), 10);
}

/// The guest finishes the sequential resilver begun here, and leaves one of its own unfinished.
const REBUILD_GUEST: &str = r#"set -e
zpool import -d /dev -R /mnt tank
zpool status tank
zpool wait -t resilver,scrub tank
zpool status tank
zpool status tank | grep -q "resilvered (mirror-0) [1-9].* with 0 errors"
zpool status tank | grep -q "scrub repaired 0B in .* with 0 errors"
zpool history -i tank | grep -q "rebuild vdev_id=0 vdev_guid=.* complete"
echo 1 >/sys/module/zfs/parameters/zfs_scan_suspend_progress
zpool attach -s tank /dev/vdb /host/disk2
for i in $(seq 50); do echo $i >/mnt/tank/a/late$i; done
zpool sync tank
zpool status tank
zpool status tank | grep -q "resilver (mirror-0) in progress"
zpool export tank
"#;

#[test]
fn a_rebuild_goes_on_under_the_kernel_and_comes_back() {
    let Some(guest) = Guest::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed(79));
    let (mut paths, disks) = images(folder.path(), 2);
    let mut settings = pool::settings();
    (settings.scan.blocks_max, settings.rebuild_max_bytes) = (1, 256 << 10);
    let root = init(NewFilesystem::default(), true);
    let new = pool::create_with("tank", Layout::Stripe, 12, &disks[..1], root, settings);
    let spa = new.unwrap();
    new_fs(&spa, "tank/a", &[("recordsize", 4096)]);
    work(&spa, "tank/a", &mut Files::default(), &mut dice, 800);
    spa.sync().unwrap();
    let device = NewDevice {
        kind: VdevKind::Disk,
        path: "/dev/vdb".to_owned(),
        provider: Arc::clone(&disks[1]),
    };
    let first = spa.parts().tree().devices()[0].guid();
    let (sectors, resilver) = ((0, AutoAshift::default()), spa::Resilver::Sequential);
    spa.attach_with(first, &device, Attach::Side, sectors, resilver)
        .unwrap();
    while spa.rebuilds()[0].phys.last_offset.get() < 1 << 20 {
        spa.force_sync().unwrap();
    }
    assert!(spa.is_rebuilding());
    spa.export().unwrap();
    drop((spa, disks, device));
    Zdb::verify(folder.path(), "tank").assert_clean();
    // The guest cannot label a whole disk: there, the third one is a file.
    let (third, _) = images(host.path(), 3);
    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest
        .run(REBUILD_GUEST, host.path(), &names)
        .assert_success();
    paths.push(folder.path().join("disk2"));
    std::fs::rename(&third[2], &paths[2]).unwrap();
    let (_, disks) = images(folder.path(), 3);
    let spa = pool::open(&disks, true).unwrap();
    assert!(spa.is_rebuilding(), "{:?}", spa.rebuilds());
    drop(spa);
    let spa = pool::open(&disks, false).unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let rebuild = spa.rebuilds()[0].phys;
    assert!(rebuild.bytes_rebuilt.get() > 0 && rebuild.errors.get() == 0);
    let scan = spa.scan().unwrap();
    assert_eq!((scan.errors.get(), scan.processed.get()), (0, 0));
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();
    for path in &paths {
        let spa = pool::open(&[open(path, OpenMode::ReadWrite).unwrap()], true).unwrap();
        pool::assert_clean(&spa);
    }
}

/// The guest names the error that was found here, finds one itself, and removes the file of the first.
const ERRORS_GUEST: &str = r#"set -e
zpool import -d /dev -R /mnt tank
zpool status -v tank
zpool status -v tank | grep -q " /mnt/tank/a/found"
zpool status -v tank | grep -q " tank/a@s:/found"
! zpool status -v tank | grep -q "met"
! cat /mnt/tank/a/met >/dev/null
zpool sync tank
zpool status -v tank | grep -q " /mnt/tank/a/met"
rm /mnt/tank/a/found
zpool sync tank
zpool status -v tank
zpool export tank
"#;

#[test]
fn the_error_log_is_the_kernels_and_ours() {
    let Some(guest) = Guest::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let (paths, disks) = images(folder.path(), 1);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 12, &disks, root).unwrap();
    new_fs(&spa, "tank/a", &[("compression", 2)]);
    let damage = |name: &str| {
        let fs = mount(spa.parts().dsl(), "tank/a", false).unwrap();
        let create = zpl::Create::default();
        let id = fs.create_file(fs.root(), name.as_bytes(), &create);
        let id = id.unwrap().id;
        fs.write(id, 0, &[7; 20_000]).unwrap();
        spa.sync().unwrap();
        let place = pool::places(&fs, name)[0].start;
        disks[0].write(place, &[0x55; 4096]).unwrap();
        id
    };
    let found = damage("found");
    spa.parts()
        .dsl()
        .snapshot(&["tank/a@s"], Vec::new())
        .unwrap();
    spa.scrub().unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let met = damage("met");
    let dataset = |name: &str| ObjsetId(spa.parts().dsl().dataset(name).unwrap().object().0);
    let (head, snapshot) = (dataset("tank/a"), dataset("tank/a@s"));
    spa.export().unwrap();
    drop((spa, disks));
    let disks: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    guest
        .run(ERRORS_GUEST, host.path(), &disks)
        .assert_success();
    let disks = [open(&paths[0], OpenMode::ReadWrite).unwrap()];
    let spa = pool::open(&disks, false).unwrap();
    let mut damaged = spa.damaged().unwrap().into_iter();
    let object = |at: zio::Bookmark| (at.objset, at.object);
    assert_eq!(damaged.next().map(object), Some((head, met)));
    assert_eq!(damaged.next().map(object), Some((snapshot, found)));
    assert_eq!(damaged.next(), None);
}

/// The guest finishes the replacement begun here, and detaches the other side.
const TREE_GUEST: &str = r#"set -e
zpool import -d /dev -R /mnt tank
zpool status tank
zpool wait -t replace tank
zpool wait -t resilver tank
zpool status tank | tee /host/status
if grep -q replacing /host/status; then exit 1; fi
zpool scrub -w tank
zpool status tank | grep -q "repaired 0B in .* with 0 errors"
zpool history -i tank | grep "vdev attach"
zpool get -H all tank all-vdevs >/host/props
value() { zpool get -Hpo value $1 tank $2; }
test "$(value comment root) $(value checksum_n mirror-0)" = "ours 7"
test "$(value allocating raidz1-1) $(value org.ashift:shelf vdc)" = "off 3"
zpool history -i tank | grep "vdev set"
zpool set allocating=on tank raidz1-1
zpool set allocating=off tank mirror-0
zpool set comment=kernels tank mirror-0
zpool set org.ashift:shelf= tank vdc
zpool set org.kernel:shelf=4 tank vdd
zpool detach tank /dev/vda
for i in $(seq 50); do echo $i >/mnt/tank/plain/kernel$i; done
zpool status tank
zpool export tank
"#;

/// What the kernel has set is set here, and its effects are.
fn check_kernel_props(spa: &Spa) {
    let tops = spa.parts().tree().tops();
    let leaves = tops[1].children();
    let props = |vdev: &vdev::Vdev| spa.vdev_props(vdev.guid()).unwrap();
    let text = |text: &str| Some(PropValue::Text(text.to_owned()));
    let top = props(&tops[0]);
    assert_eq!(top.get("comment").cloned(), text("kernels"));
    assert_eq!(top.get("checksum_n"), Some(&PropValue::Number(7)));
    assert_eq!(top.get("allocating"), Some(&PropValue::Number(0)));
    assert!(tops[0].config().non_allocating);
    assert_eq!(
        props(&tops[1]).get("allocating"),
        Some(&PropValue::Number(1))
    );
    assert!(!tops[1].config().non_allocating);
    assert_eq!(props(&leaves[0]).get("org.ashift:shelf"), None);
    let shelf = props(&leaves[1]).get("org.kernel:shelf").cloned();
    assert_eq!(shelf, text("4"));
}

#[test]
fn kernel_goes_on_with_a_tree_that_was_changed() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed(79));
    let (paths, disks) = images(folder.path(), 6);
    let mut settings = pool::settings();
    settings.scan.blocks_max = 5;
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create_with("tank", Layout::Mirror, 12, &disks[..2], root, settings).unwrap();
    new_fs(&spa, "tank/plain", &[("compression", 2)]);
    let mut files = Files::default();
    work(&spa, "tank/plain", &mut files, &mut dice, 300);
    let device = |n: usize| NewDevice {
        kind: VdevKind::Disk,
        path: disks[n].name().to_owned(),
        provider: disks[n].clone(),
    };
    let sectors = (12, AutoAshift::default());
    let raidz = TopSpec::new(Grouping::Raidz { parity: 1 }, (2..5).map(device).collect());
    spa.add(&[raidz], &vdev::AuxSpec::default(), sectors, true)
        .unwrap();
    work(&spa, "tank/plain", &mut files, &mut dice, 300);
    let second = spa.parts().tree().devices()[1].guid();
    spa.attach(second, &device(5), Attach::Replacement, sectors)
        .unwrap();
    let kind = spa.parts().tree().tops()[0].children()[1].kind();
    assert_eq!(kind, VdevKind::Replacing, "it takes longer than that");
    let tops = spa.parts().tree().tops();
    let leaf = tops[1].children()[0].guid();
    let text = |text: &str| PropValue::Text(text.to_owned());
    for (vdev, name, value) in [
        (spa.guid(), "comment", text("ours")),
        (tops[0].guid(), "checksum_n", PropValue::Number(7)),
        (leaf, "org.ashift:shelf", text("3")),
    ] {
        spa.set_vdev_prop(vdev, name, value).unwrap();
    }
    spa.set_allocating(tops[1].guid(), false).unwrap();
    drop(tops);
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();

    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let ran = guest.run(TREE_GUEST, host.path(), &names);
    ran.assert_success();

    Zdb::verify(folder.path(), "tank").assert_clean();
    let (_, disks) = images(folder.path(), 6);
    let spa = pool::open(&disks, false).unwrap();
    let shape: Vec<String> = spa
        .parts()
        .tree()
        .devices()
        .iter()
        .map(|d| d.name())
        .collect();
    let expected = [5, 2, 3, 4].map(|n| paths[n].display().to_string());
    assert_eq!(shape, expected);
    check_kernel_props(&spa);
    let fs = mount(spa.parts().dsl(), "tank/plain", false).unwrap();
    for n in 1..=50 {
        let name = format!("kernel{n}");
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    drop(fs);
    work(&spa, "tank/plain", &mut files, &mut dice, 100);
    pool::assert_clean(&spa);
    spa.export().unwrap();
}

/// Ends the resilver to a spare, and gives it back.
const SPARES_GUEST: &str = r#"
set -ex
zpool import -d /dev -R /mnt tank
zpool wait -t resilver tank
zpool status tank | tee /host/status
grep "vdd .*INUSE .*currently in use" /host/status
grep "vde .*AVAIL" /host/status
zpool scrub -w tank
zpool status tank | grep -q "repaired 0B in .* with 0 errors"
zpool detach tank /dev/vdd
zpool status tank | grep "vdd .*AVAIL"
zpool offline tank /dev/vdb
for i in $(seq 50); do echo $i >/mnt/tank/plain/kernel$i; done
zpool status tank
zpool export tank
"#;

#[test]
fn kernel_goes_on_with_spares_and_back() {
    let Some(guest) = Guest::find() else { return };
    if !have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed(80));
    let (paths, disks) = images(folder.path(), 5);
    let mut settings = pool::settings();
    settings.scan.blocks_max = 5;
    let root = init(NewFilesystem::default(), true);
    let layout = Layout::Raidz(1);
    let spa = pool::create_with("tank", layout, 12, &disks[..3], root, settings).unwrap();
    new_fs(&spa, "tank/plain", &[("compression", 2)]);
    let mut files = Files::default();
    work(&spa, "tank/plain", &mut files, &mut dice, 300);
    let device = |n: usize| NewDevice {
        kind: VdevKind::Disk,
        path: disks[n].name().to_owned(),
        provider: disks[n].clone(),
    };
    let sectors = (12, AutoAshift::default());
    let spares = (3..5).map(device).collect();
    spa.add(
        &[],
        &vdev::AuxSpec {
            spares,
            caches: Vec::new(),
        },
        sectors,
        true,
    )
    .unwrap();
    let first = spa.parts().tree().devices()[0].guid();
    spa.attach(first, &device(3), Attach::Replacement, sectors)
        .unwrap();
    spa.export().unwrap();
    drop((spa, disks));
    Zdb::verify(folder.path(), "tank").assert_clean();

    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let ran = guest.run(SPARES_GUEST, host.path(), &names);
    ran.assert_success();

    Zdb::verify(folder.path(), "tank").assert_clean();
    let (_, disks) = images(folder.path(), 5);
    let spa = pool::open(&disks, false).unwrap();
    let users: Vec<spa::SpareUser> = spa.spares().into_iter().map(|(_, user)| user).collect();
    assert_eq!(users, [spa::SpareUser::None, spa::SpareUser::None]);
    let old = spa.parts().tree().devices()[1].guid();
    let spare = NewDevice {
        kind: VdevKind::Disk,
        path: disks[4].name().to_owned(),
        provider: disks[4].clone(),
    };
    spa.attach(old, &spare, Attach::Replacement, sectors)
        .unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    spa.detach(old).unwrap();
    assert_eq!(spa.spares().len(), 1);
    let fs = mount(spa.parts().dsl(), "tank/plain", false).unwrap();
    for n in 1..=50 {
        let name = format!("kernel{n}");
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    drop(fs);
    work(&spa, "tank/plain", &mut files, &mut dice, 100);
    pool::assert_clean(&spa);
    spa.export().unwrap();
}

/// Finds what is on the cache device, reads from it, and may add to it.
const CACHE_GUEST: &str = r#"
set -ex
P=/sys/module/zfs/parameters
echo 0 >$P/l2arc_rebuild_blocks_min_l2size
echo 0 >$P/l2arc_noprefetch
echo 67108864 >$P/l2arc_write_max
echo 1 >$P/l2arc_feed_secs
zpool import -d /dev -R /mnt tank
sleep 3
zpool list -v tank
grep l2_ /proc/spl/kstat/zfs/arcstats
grep -q "^l2_rebuild_success  *4  *1$" /proc/spl/kstat/zfs/arcstats
cat /mnt/tank/plain/ours >/host/ours
hits=$(awk '$1 == "l2_hits" {print $3}' /proc/spl/kstat/zfs/arcstats)
test $hits -gt 50
bad=$(awk '$1 == "l2_cksum_bad" {print $3}' /proc/spl/kstat/zfs/arcstats)
test $bad -eq 0
head -c 6000000 /dev/urandom >/host/theirs
cp /host/theirs /mnt/tank/plain/theirs
zpool sync
sleep 4
zpool export tank
"#;

#[test]
fn kernel_reads_our_cache_device_and_we_its() {
    let Some(guest) = Guest::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(seed(81));
    let (paths, disks) = images(folder.path(), 2);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 12, &disks[..1], root).unwrap();
    let cache = NewDevice {
        kind: VdevKind::Disk,
        path: disks[1].name().to_owned(),
        provider: disks[1].clone(),
    };
    let aux = vdev::AuxSpec {
        spares: Vec::new(),
        caches: vec![cache],
    };
    spa.add(&[], &aux, (12, AutoAshift::default()), true)
        .unwrap();
    drop(aux);
    new_fs(&spa, "tank/plain", &[("compression", 2)]);
    let ours = dice.bytes(16 << 20);
    let fs = mount(spa.parts().dsl(), "tank/plain", false).unwrap();
    let file = fs.create_file(fs.root(), b"ours", &zpl::Create::default());
    fs.write(file.unwrap().id, 0, &ours).unwrap();
    drop(fs);
    spa.export().unwrap();
    drop((spa, disks));

    let names: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let ran = guest.run(CACHE_GUEST, host.path(), &names);
    ran.assert_success();
    assert!(std::fs::read(host.path().join("ours")).unwrap() == ours);

    let theirs = std::fs::read(host.path().join("theirs")).unwrap();
    let (_, disks) = images(folder.path(), 2);
    let spa = pool::open(&disks, true).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/plain", true).unwrap();
    let read = |name: &str, length: usize| {
        let mut found = vec![0; length];
        fs.read(fs.resolve(name).unwrap(), 0, &mut found).unwrap();
        found
    };
    assert!(read("theirs", theirs.len()) == theirs);
    assert!(read("ours", ours.len()) == ours);
    let (hits, misses) = spa.cache_hits_and_misses();
    assert!(hits > 100, "{hits} hits, {misses} misses");
}

/// The guest finds in the log what was fsync'd, and says how much space there is.
const LOG_GUEST: &str = r#"set -e
zpool import -f -d /dev -R /mnt tank
test "$(cat /mnt/tank/f)" = "in the log"
for i in 1 2 3 4; do zpool sync -f tank; done
zpool list -Hpo size tank >/host/size
zfs get -Hpo value used,available tank >/host/space
zpool export tank
"#;

/// On a large device one metaslab is set aside for log blocks, which is not seen on disk: what is left is as much here
/// as under the kernel, which is asked with `CUTS=all`.
#[test]
fn the_kernel_sets_as_much_aside_for_log_blocks() {
    if !have_zdb() {
        return;
    }
    let (folder, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let large = std::fs::File::create(folder.path().join("disk0")).unwrap();
    large.set_len(40 << 30).unwrap();
    let (paths, disks) = images(folder.path(), 1);
    let root = init(NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 12, &disks, root).unwrap();
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
    // The first one needs a txg.
    fs.fsync(file.id).unwrap();
    fs.write(file.id, 0, b"in the ").unwrap();
    fs.fsync(file.id).unwrap();
    spa.sync().unwrap();
    let aside = || spa.parts().metaslabs().embedded_log(AllocClass::Normal);
    assert!(
        aside().alloc > 0 && aside().space == 512 << 20,
        "{:?}",
        aside()
    );
    fs.write(file.id, 7, b"log").unwrap();
    fs.fsync(file.id).unwrap();
    // The power fails.
    let copied = folder.path().join("copied");
    let mut copy = std::process::Command::new("cp");
    let copy = copy
        .arg("--sparse=always")
        .arg(&paths[0])
        .arg(&copied)
        .status();
    assert!(copy.unwrap().success());
    drop((fs, spa, disks));
    std::fs::rename(&copied, &paths[0]).unwrap();
    Zdb::verify(folder.path(), "tank").assert_clean();
    let is_asked = std::env::var("CUTS").is_ok_and(|cuts| cuts == "all");
    let guest = Guest::find().filter(|_| is_asked);
    if let Some(guest) = &guest {
        let outcome = guest.run(LOG_GUEST, host.path(), &[&paths[0]]);
        outcome.assert_success();
    }
    let disks = images(folder.path(), 1).1;
    let spa = pool::open(&disks, false).unwrap();
    pool::assert_clean(&spa);
    if guest.is_none() {
        return;
    }
    let number = |name: &str| -> u64 {
        let text = std::fs::read_to_string(host.path().join(name)).unwrap();
        let words = text.split_whitespace().map(str::parse::<u64>);
        words.map(Result::unwrap).sum()
    };
    assert_eq!(spa.space().space, number("size"));
    let dsl = spa.parts().dsl();
    let used = dsl.dir("tank").unwrap().fields().used_bytes;
    let (ours, theirs) = (dsl.available_in_pool() + used, number("space"));
    assert!(ours.abs_diff(theirs) < 2 << 20, "{ours} and {theirs}");
}
