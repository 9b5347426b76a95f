//! Devices are found by what is left of their labels, wherever they lie on a disk.

use std::sync::Arc;

use faulty::{Damage, FaultInjector};
use geom::Provider;
use geom::part::Part;
use phys::label::{LABEL_SIZE, LABELS, label_device_size, label_offset};
use ram::Memory;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use vdev::stray::{Stray, find_strays};
use zpl::mount::mount;

const DISK_BYTES: u64 = 300 << 20;
const DEVICE_MIN: u64 = 64 << 20;

fn part(disk: &Arc<dyn Provider>, start: u64, len: u64) -> Arc<dyn Provider> {
    Arc::new(Part::new(format!("/part{start}"), disk.clone(), start, len).unwrap())
}

fn create(layout: Layout, devices: &[Arc<dyn Provider>], bytes: &[u8]) {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", layout, 12, devices, root).unwrap();
    pool::write_file(&spa, "tank", "file", bytes);
    spa.export().unwrap();
}

fn assert_has(devices: &[Arc<dyn Provider>], bytes: &[u8]) {
    let spa = pool::open(devices, true).unwrap();
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    let mut got = vec![0; bytes.len()];
    fs.read(fs.resolve("file").unwrap(), 0, &mut got).unwrap();
    assert!(got == bytes);
}

fn find(disk: &Arc<dyn Provider>) -> Vec<Stray> {
    let mut seen = 0;
    let strays = find_strays(&**disk, &mut |bytes| seen = bytes);
    assert_eq!(seen, disk.mediasize());
    strays
}

/// Overwrites what is asked for of the labels of a device.
fn lose(disk: &Arc<dyn Provider>, start: u64, len: u64, lost: &[usize], dice: &mut Dice) {
    for index in lost {
        let at = start + label_offset(len, *index).unwrap();
        disk.write(at, &dice.bytes(LABEL_SIZE as usize)).unwrap();
    }
}

#[test]
fn one_label_of_four_says_where_a_device_is() {
    for n in 0..24 {
        let seed = seed(n);
        let mut dice = Dice::new(seed);
        let sector = if dice.once_in(3) { 4096 } else { 512 };
        let disk: Arc<dyn Provider> =
            Arc::new(Memory::with_sectors("/disk", DISK_BYTES, sector, 4096));
        let unit = u64::from(sector);
        let len = base::align_down(DEVICE_MIN + dice.below(100 << 20), unit);
        let start = base::align_down(dice.below(DISK_BYTES - len), unit);
        let bytes = dice.bytes(3 << 20);
        create(Layout::Stripe, &[part(&disk, start, len)], &bytes);
        // Each set of labels but all.
        let is_lost = |index: &usize| (n + 1) & (1 << index) != 0;
        let lost: Vec<usize> = (0..LABELS).filter(is_lost).collect();
        let lost = lost.strip_prefix(&[0, 1, 2]).unwrap_or(&lost);
        lose(&disk, start, len, lost, &mut dice);
        let strays = find(&disk);
        let [stray] = &strays[..] else {
            panic!("SEED={seed} {strays:?}");
        };
        let ends = (2..LABELS).filter(|index| !lost.contains(index)).count();
        let what = format!("SEED={seed}: {start} {len} without {lost:?}: {stray:?}");
        assert_eq!((stray.start, &*stray.pool), (start, "tank"), "{what}");
        assert_eq!(stray.labels, LABELS - lost.len(), "{what}");
        assert_eq!(stray.has_end, ends > 0, "{what}");
        let more = stray.len - label_device_size(len);
        match ends {
            0 => assert_eq!(stray.len, DISK_BYTES - start, "{what}"),
            1 => assert!(more <= LABEL_SIZE, "{what}"),
            _ => assert_eq!(more, 0, "{what}"),
        }
        assert_has(&[part(&disk, stray.start, stray.len)], &bytes);
    }
}

#[test]
fn several_devices_of_one_disk_are_found_around_what_cannot_be_read() {
    let memory = Arc::new(Memory::new("/disk", DISK_BYTES));
    let faulty = Arc::new(FaultInjector::new(memory));
    let disk: Arc<dyn Provider> = faulty.clone();
    let mut dice = Dice::new(9);
    let len = 80 << 20;
    let places = [512, (90 << 20) + 1536, 200 << 20];
    let devices: Vec<_> = places
        .iter()
        .map(|start| part(&disk, *start, len))
        .collect();
    let bytes = dice.bytes(5 << 20);
    create(Layout::Raidz(1), &devices, &bytes);
    lose(&disk, places[0], len, &[0, 1], &mut dice);
    lose(&disk, places[1], len, &[2, 3], &mut dice);
    // What begins a chunk, and a label beside others.
    for start in [32 << 20, places[2] + LABEL_SIZE + 4096] {
        faulty.damage(start..start + 4096, Damage::ReadError);
    }
    let strays = find(&disk);
    let found: Vec<_> = strays
        .iter()
        .map(|stray| (stray.start, stray.has_end))
        .collect();
    let mut expected = vec![(places[0], true), (places[1], false), (places[2], true)];
    expected.sort_unstable();
    let mut sorted = found.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "{strays:?}");
    let devices: Vec<_> = strays.iter().map(|s| part(&disk, s.start, s.len)).collect();
    assert_has(&devices, &bytes);
}

/// What looks like a label and is none: one that was copied to where it was not written for.
#[test]
fn a_copy_of_a_label_elsewhere_is_none() {
    let disk: Arc<dyn Provider> = Arc::new(Memory::new("/disk", DISK_BYTES));
    let device = part(&disk, 150 << 20, 100 << 20);
    create(Layout::Stripe, &[device], &[7; 100_000]);
    let mut label = vec![0; LABEL_SIZE as usize];
    disk.read(150 << 20, &mut label).unwrap();
    let before = find(&disk);
    // A device there would begin before the disk, or at no multiple of a sector.
    disk.write(0, &label[512..]).unwrap();
    assert_eq!(find(&disk), before);
}
