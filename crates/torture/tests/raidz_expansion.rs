//! RAID-Zs that OpenZFS expanded, or has begun to expand: read and written here, whole, without any set of devices
//! that may be lost and with damage, and taken back by the real zdb.

use std::fmt::Write as _;
use std::sync::Arc;

use base::SPA_MAXBLOCKSIZE;
use geom::Provider;
use geom::disk::{OpenMode, open};
use phys::feature::RAIDZ_EXPANSION;
use spa::Spa;
use torture::golden;
use torture::pool;
use zpl::mount::mount;

/// An image, and what is on it.
struct Image {
    name: &'static str,
    pool: &'static str,
    devices: usize,
    parity: u32,
    /// Of the numbers that `seq` printed to a file, the last one is that of the file times this larger than the first.
    numbers: u64,
    /// Bytes of the other files, as many times.
    bytes: usize,
    /// Files in the root, those of them that were removed, files in `fs`.
    files: (u64, &'static [u64], u64),
    /// How often it was expanded.
    expansions: u64,
    /// Whether it still is.
    is_expanding: bool,
}

const IMAGES: [Image; 3] = [
    Image {
        name: "openzfs-2.3.2-raidz1-expanded",
        pool: "e1",
        devices: 4,
        parity: 1,
        numbers: 900,
        bytes: 100_000,
        files: (14, &[2, 4, 7], 0),
        expansions: 1,
        is_expanding: false,
    },
    Image {
        name: "openzfs-2.3.2-raidz2-expanded-twice",
        pool: "e2",
        devices: 6,
        parity: 2,
        numbers: 300,
        bytes: 25_000,
        files: (12, &[2, 5], 4),
        expansions: 2,
        is_expanding: false,
    },
    Image {
        name: "openzfs-2.3.2-raidz1-expanding",
        pool: "e3",
        devices: 4,
        parity: 1,
        numbers: 900,
        bytes: 100_000,
        files: (26, &[2, 17], 0),
        expansions: 1,
        is_expanding: true,
    },
];

fn file(spa: &Spa, dataset: &str, name: &str) -> Vec<u8> {
    let fs = mount(spa.parts().dsl(), dataset, true).unwrap();
    let file = fs.resolve(name).unwrap();
    let mut bytes = vec![0; SPA_MAXBLOCKSIZE as usize];
    let length = fs.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

impl Image {
    /// What file `n` has.
    fn contents(&self, n: u64) -> Vec<u8> {
        if n.is_multiple_of(3) {
            let mut text = String::new();
            for number in n * 100_000..=n * 100_000 + n * self.numbers {
                writeln!(text, "{number}").unwrap();
            }
            return text.into_bytes();
        }
        let line = format!("line of file {n}\n").into_bytes();
        let length = n as usize * (self.bytes + 1);
        line.iter().copied().cycle().take(length).collect()
    }

    fn check_files(&self, spa: &Spa, what: &dyn std::fmt::Debug) {
        let (in_root, removed, in_fs) = self.files;
        for n in (1..=in_root).filter(|n| !removed.contains(n)) {
            let is_right = file(spa, self.pool, &format!("f{n}")) == self.contents(n);
            assert!(is_right, "{}, {what:?}: f{n}", self.name);
        }
        let snapshot = format!("{}/fs@one", self.pool);
        for n in 1..=in_fs {
            let is_right = file(spa, &snapshot, &format!("f{n}")) == self.contents(n);
            assert!(is_right, "{}, {what:?}: fs/f{n}", self.name);
        }
    }

    fn disks(&self) -> Vec<Arc<dyn Provider>> {
        golden::disks(self.name, self.devices)
    }
}

#[test]
fn what_openzfs_wrote_is_read_without_any_set_of_devices_that_may_be_lost() {
    for image in &IMAGES {
        let devices = image.disks();
        for (left, lost) in golden::without_any(&devices, image.parity) {
            let spa = pool::open(&left, true).unwrap_or_else(|e| panic!("{lost:?}: {e}"));
            assert_eq!(
                spa.parts().features().count(RAIDZ_EXPANSION),
                Some(image.expansions)
            );
            image.check_files(&spa, &lost);
        }
    }
}

#[test]
fn a_raidz_that_openzfs_expanded_is_written_here_and_taken_back() {
    for image in &IMAGES {
        let devices = image.disks();
        let spa = pool::open(&devices, false).unwrap();
        assert!(!spa.is_readonly(), "{}: {:?}", image.name, spa.obstacles());
        let top = spa.parts().tree().tops()[0].clone();
        assert_eq!(top.config().expanding, image.is_expanding);
        pool::assert_clean(&spa);
        let bytes: Vec<u8> = (0..3_000_000u32)
            .map(|n| (n.wrapping_mul(n) / 7) as u8)
            .collect();
        pool::write_file(&spa, image.pool, "ours", &bytes);
        image.check_files(&spa, &"written to");
        pool::assert_clean(&spa);
        spa.export().unwrap();
        drop(spa);
        pool::verify_with_zdb(&devices, image.pool);
        let spa = pool::open(&devices, false).unwrap();
        assert_eq!(file(&spa, image.pool, "ours"), bytes);
        image.check_files(&spa, &"opened again");
        spa.export().unwrap();
    }
}

/// The guest ends the expansion that was half done, and checks what is there. The devices are files, as they were when
/// the pools were made.
const GUEST: &str = r#"set -e
zpool import -d /host/disks -R /mnt -a
zpool wait -t raidz_expand,scrub e3
for pool in e1 e2 e3; do
  zpool scrub -w $pool
  zpool status $pool
  zpool status $pool | grep -q "repaired 0B in .* with 0 errors"
  zpool status $pool | grep -q "errors: No known data errors"
  cd /mnt/$pool; sha256sum -c /host/$pool.sums; cd /
  cp /mnt/$pool/f3 /mnt/$pool/theirs
done
zpool status e3 | grep -q "expand: expanded raidz1-0"
zpool export -a
"#;

#[test]
fn the_kernel_takes_what_was_written_here_and_ends_an_expansion() {
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let folder = host.path().join("disks");
    std::fs::create_dir(&folder).unwrap();
    let ours: Vec<u8> = (0..2_000_000u32)
        .map(|n| (n.wrapping_mul(n) / 7) as u8)
        .collect();
    for image in &IMAGES {
        let devices = image.disks();
        let spa = pool::open(&devices, false).unwrap();
        pool::write_file(&spa, image.pool, "ours", &ours);
        spa.export().unwrap();
        drop(spa);
        let words = checksum::digest(phys::ChecksumType::Sha256, &[0; 32], &ours);
        let hex: String = words.iter().map(|word| format!("{word:016x}")).collect();
        let sums = host.path().join(format!("{}.sums", image.pool));
        std::fs::write(sums, format!("{hex}  ours\n")).unwrap();
        for (n, device) in devices.iter().enumerate() {
            let mut bytes = vec![0; device.mediasize() as usize];
            device.read(0, &mut bytes).unwrap();
            let path = folder.join(format!("{}-{n}", image.pool));
            std::fs::write(&path, bytes).unwrap();
        }
    }
    guest.run(GUEST, host.path(), &[]).assert_success();
    for image in &IMAGES {
        let of_pool = |n| folder.join(format!("{}-{n}", image.pool));
        let open = |n| open(&of_pool(n), OpenMode::ReadWrite).unwrap();
        let devices: Vec<Arc<dyn Provider>> = (0..image.devices).map(open).collect();
        let spa = pool::open(&devices, false).unwrap();
        assert!(!spa.parts().tree().tops()[0].config().expanding);
        pool::assert_clean(&spa);
        image.check_files(&spa, &"after the kernel");
        assert_eq!(file(&spa, image.pool, "theirs"), image.contents(3));
        assert_eq!(file(&spa, image.pool, "ours"), ours);
        spa.export().unwrap();
    }
}
