//! gpart's figures and texts on disks whose answers are known.

use base::ErrorKind;

use super::{add, disk, fresh};
use crate::listing::{Show, show, status};
use crate::{Backup, Era, NewPartition, Scheme, Shape, Table, Wish, backup};

/// Sectors of a drive of 3 TB: those of the WD30EZRX.
const SECTORS_3TB: u64 = 5_860_533_168;

fn wish(alignment: Option<u64>, start: Option<u64>, size: Option<u64>) -> NewPartition {
    NewPartition {
        wish: Wish {
            alignment,
            start,
            size,
        },
        ..NewPartition::default()
    }
}

#[test]
fn old_tables_begin_at_34_and_new_ones_at_40() {
    let shape = Shape::of(&disk(SECTORS_3TB, 512, 512));
    let old = Table::create(Scheme::Gpt, shape, None, Era::Nine).unwrap();
    assert_eq!((old.first(), old.last()), (34, SECTORS_3TB - 34));
    assert_eq!(
        show(&old, "ada0", Show::Type, false),
        "=>        34  5860533101  ada0  GPT  (2.7T)\n          34  5860533101        - free -  (2.7T)\n\n"
    );
    let new = Table::create(Scheme::Gpt, shape, None, Era::Current).unwrap();
    assert_eq!(new.first(), 40);
    assert_eq!((new.last() + 1) % 8, 0);
    let shape = Shape::of(&disk(SECTORS_3TB / 8, 4096, 4096));
    for era in [Era::Nine, Era::Current] {
        let table = Table::create(Scheme::Gpt, shape, None, era).unwrap();
        assert_eq!((table.first(), table.last()), (6, SECTORS_3TB / 8 - 6));
    }
}

#[test]
fn without_a_physical_sector_partitions_are_not_aligned() {
    let shape = Shape::of(&disk(SECTORS_3TB, 512, 512));
    let mut table = Table::create(Scheme::Gpt, shape, None, Era::Nine).unwrap();
    assert_eq!(add(&mut table, "freebsd-zfs", None), 1);
    let one = table.partition(1).unwrap();
    assert_eq!((one.start_sector, one.last_sector()), (34, table.last()));
    table.delete(1).unwrap();
    // -a 4K
    table
        .add("freebsd-zfs", &wish(Some(8), None, None))
        .unwrap();
    let one = table.partition(1).unwrap();
    assert_eq!((one.start_sector, one.sectors % 8), (40, 0));
}

#[test]
fn partitions_are_aligned_to_the_physical_sector_that_is_admitted() {
    let shape = Shape::of(&disk(SECTORS_3TB, 512, 4096));
    let mut table = Table::create(Scheme::Gpt, shape, None, Era::Nine).unwrap();
    add(&mut table, "freebsd-boot", Some(129));
    add(&mut table, "freebsd-zfs", None);
    let places: Vec<_> = table
        .partitions()
        .iter()
        .map(|p| (p.start_sector, p.sectors))
        .collect();
    assert_eq!(places[0], (40, 128));
    assert_eq!((places[1].0, places[1].1 % 8), (168, 0));
    // a start and a size are taken as they are
    table.delete(2).unwrap();
    table
        .add("freebsd-zfs", &wish(None, Some(1001), Some(77)))
        .unwrap();
    assert_eq!(table.partition(2).unwrap().start_sector, 1001);
}

#[test]
fn a_shifted_disk_is_aligned_where_its_physical_sectors_begin() {
    let shape = Shape {
        mediasize: SECTORS_3TB * 512,
        sectorsize: 512,
        stripesize: 4096,
        stripeoffset: 3584,
    };
    let mut table = Table::create(Scheme::Gpt, shape, None, Era::Nine).unwrap();
    add(&mut table, "freebsd-zfs", None);
    let one = table.partition(1).unwrap();
    assert_eq!(one.start_sector % 8, 7);
    assert_eq!(shape.misalignment(one.start_sector), 0);
    assert_eq!(one.sectors % 8, 0);
}

#[test]
fn mbr_of_old_has_whole_tracks() {
    let shape = Shape::of(&disk(20_000_000, 512, 512));
    let mut table = Table::create(Scheme::Mbr, shape, None, Era::Nine).unwrap();
    let new = NewPartition {
        era: Era::Nine,
        ..wish(None, None, Some(1_000_000))
    };
    table.add("freebsd", &new).unwrap();
    let one = table.partition(1).unwrap();
    assert_eq!((one.start_sector, one.sectors % 63), (63, 0));
    assert_eq!(one.suffix(), "s1");
    let mut table = Table::create(Scheme::Mbr, shape, None, Era::Current).unwrap();
    add(&mut table, "freebsd", Some(1_000_000));
    assert_eq!(table.partition(1).unwrap().sectors, 1_000_000);
}

#[test]
fn refusals_are_in_the_words_of_gpart() {
    let shape = Shape::of(&disk(100_000, 512, 512));
    let mut table = Table::create(Scheme::Gpt, shape, None, Era::Nine).unwrap();
    add(&mut table, "freebsd-ufs", Some(1000));
    let mut check = |kind: &str, new: &NewPartition, expect: &str| {
        let error = table.add(kind, new).unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    check(
        "freebsd-ufs",
        &wish(None, Some(0), Some(10)),
        "start '0': Invalid argument",
    );
    check(
        "freebsd-ufs",
        &wish(None, Some(99_000), Some(1000)),
        "size '1000': Invalid argument",
    );
    check(
        "freebsd-ufs",
        &wish(None, Some(500), Some(10)),
        "start '500': No space left on device",
    );
    check(
        "freebsd-ufs",
        &wish(None, None, Some(200_000)),
        "autofill: No space left on device",
    );
    check(
        "fat32",
        &wish(None, None, Some(10)),
        "type 'fat32': Invalid argument",
    );
    let taken = NewPartition {
        index: Some(1),
        ..wish(None, None, Some(10))
    };
    check("freebsd-ufs", &taken, "index '1': File exists");
    let far = NewPartition {
        index: Some(129),
        ..wish(None, None, Some(10))
    };
    check("freebsd-ufs", &far, "index '129': Invalid argument");
    let error = table.delete(7).unwrap_err();
    assert_eq!(error.to_string(), "index '7': No such file or directory");
    let small = Shape::of(&disk(100, 512, 512));
    let error = Table::create(Scheme::Gpt, small, None, Era::Nine).unwrap_err();
    assert_eq!(error.to_string(), "provider: No space left on device");
    let mut mbr = Table::create(Scheme::Mbr, shape, None, Era::Current).unwrap();
    let error = mbr.add("ebr", &wish(None, None, None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn resize_goes_as_far_as_the_next_partition() {
    let shape = Shape::of(&disk(100_000, 512, 4096));
    let mut table = Table::create(Scheme::Gpt, shape, None, Era::Current).unwrap();
    table.add("efi", &wish(None, Some(40), Some(80))).unwrap();
    table
        .add("efi", &wish(None, Some(1003), Some(800)))
        .unwrap();
    let largest = Wish::default();
    table.resize(1, &largest, Era::Current).unwrap();
    assert_eq!(table.partition(1).unwrap().last_sector(), 999);
    let error = table.resize(1, &largest, Era::Current).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    table.resize(2, &largest, Era::Current).unwrap();
    assert_eq!(table.partition(2).unwrap().last_sector(), table.last());
    let exactly = |size| Wish {
        size: Some(size),
        ..Wish::default()
    };
    table.resize(2, &exactly(5), Era::Current).unwrap();
    assert_eq!(table.partition(2).unwrap().sectors, 5);
    let error = table.resize(1, &exactly(2000), Era::Current).unwrap_err();
    assert_eq!(error.to_string(), "size '2000': No space left on device");
    let error = table
        .resize(2, &exactly(1 << 40), Era::Current)
        .unwrap_err();
    assert!(error.to_string().ends_with("Invalid argument"));
}

#[test]
fn labels_and_attributes_are_kept() {
    let disk = disk(100_000, 512, 512);
    let mut table = fresh(&disk, Scheme::Gpt, Era::Current);
    add(&mut table, "freebsd-zfs", Some(1000));
    add(&mut table, "freebsd", Some(1000));
    let long = "ü".repeat(20) + &"🖴".repeat(9);
    table.modify(1, Some(&long), None).unwrap();
    table.set("bootme", Some(1), true).unwrap();
    table.set("bootonce", Some(2), true).unwrap();
    table.set("bootme", Some(2), false).unwrap();
    table.set("active", None, true).unwrap();
    table.write(&disk).unwrap();
    let back = Table::read(&disk).unwrap().unwrap();
    assert!(!back.is_corrupt(), "{:?}", back.notes());
    assert_eq!(back.partitions(), table.partitions());
    let label = back.partition(1).unwrap().label();
    assert_eq!(label, "ü".repeat(20) + &"🖴".repeat(8));
    assert_eq!(back.partition(2).unwrap().attribute_names(), ["bootonce"]);
    let text = show(&back, "ada0", Show::Type, true);
    assert!(
        text.contains("    40   1000  ada0p1  freebsd-zfs  [bootme]  (500K)\n"),
        "{text}"
    );
    assert!(
        text.contains("  1040   1000  ada0s2  freebsd  [bootonce]  (500K)\n"),
        "{text}"
    );
    assert!(table.set("nonsense", Some(1), true).is_err());
    assert!(table.set("bootme", None, true).is_err());
}

#[test]
fn a_backup_brings_the_same_table_back() {
    let one = disk(100_000, 512, 4096);
    let mut table = fresh(&one, Scheme::Gpt, Era::Current);
    add(&mut table, "freebsd-boot", Some(128));
    add(&mut table, "freebsd-zfs", None);
    table.modify(2, Some("my disk [1]"), None).unwrap();
    table.set("bootme", Some(2), true).unwrap();
    let text = backup(&table);
    assert!(
        text.starts_with("GPT 128\n1   freebsd-boot    40   128  \n2    freebsd-zfs   168 "),
        "{text}"
    );
    let back = Backup::parse(&text).unwrap();
    let back = back.table(Shape::of(&one), true).unwrap();
    let facts = |t: &Table| -> Vec<_> {
        let of = |p: &crate::Partition| {
            (
                p.index,
                p.start_sector,
                p.sectors,
                p.kind,
                p.label(),
                p.attributes,
            )
        };
        t.partitions().iter().map(of).collect()
    };
    assert_eq!(facts(&back), facts(&table));
    for text in [
        "",
        "#\n",
        "GPT 128 x\n",
        "FOO 1\n",
        "GPT 128\n1 efi 40\n",
        "GPT x\n",
    ] {
        assert!(Backup::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_disk_that_grew_or_shrank_is_recovered_if_its_partitions_fit() {
    let one = disk(200_000, 512, 512);
    let mut table = fresh(&one, Scheme::Gpt, Era::Current);
    add(&mut table, "freebsd-zfs", Some(50_000));
    table.write(&one).unwrap();
    for sectors in [100_000, 134_464, 400_000] {
        let other = disk(sectors, 512, 512);
        copy(&one, &other);
        let mut read = Table::read(&other).unwrap().unwrap();
        assert!(read.is_corrupt());
        assert!(show(&read, "da0", Show::Type, false).contains("[CORRUPT]"));
        assert!(status(&[("da0".to_owned(), read.clone())]).contains("CORRUPT"));
        let error = read.check_writable("da0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "table 'da0' is corrupt: Operation not permitted"
        );
        assert!(read.recover("da0", Era::Current).unwrap());
        read.write(&other).unwrap();
        let back = Table::read(&other).unwrap().unwrap();
        assert!(!back.is_corrupt(), "{:?}", back.notes());
        assert_eq!(back.partitions(), table.partitions());
        assert_eq!((back.last() + 1) % 8, 0);
    }
    let other = disk(40_000, 512, 512);
    copy(&one, &other);
    let mut read = Table::read(&other).unwrap().unwrap();
    let notes = read.notes().join("\n");
    assert!(notes.contains("it was made on a larger disk"), "{notes}");
    assert!(read.places("da0").is_empty());
    let error = read.recover("da0", Era::Current).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("partition 1 ends in sector 50039"),
        "{error}"
    );
}

/// Copies as much as fits.
fn copy(from: &ram::Memory, to: &ram::Memory) {
    use geom::Provider;
    let len = from.mediasize().min(to.mediasize());
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    from.read(0, &mut bytes).unwrap();
    to.write(0, &bytes).unwrap();
}

#[test]
fn destroy_leaves_nothing() {
    for scheme in [Scheme::Gpt, Scheme::Mbr] {
        let one = disk(100_000, 512, 512);
        let table = fresh(&one, scheme, Era::Current);
        assert!(Table::read(&one).unwrap().is_some());
        let table = Table::read(&one).unwrap().unwrap_or(table);
        table.destroy(&one).unwrap();
        assert!(Table::read(&one).unwrap().is_none());
    }
}

#[test]
fn boot_code_leaves_the_table_alone() {
    let one = disk(100_000, 512, 512);
    let mut table = fresh(&one, Scheme::Mbr, Era::Current);
    add(&mut table, "freebsd", Some(1000));
    table.set("active", Some(1), true).unwrap();
    let serial = table.serial();
    table.set_bootcode(&[0xcc; 512], false).unwrap();
    assert_eq!(table.serial(), serial);
    table.write(&one).unwrap();
    let back = Table::read(&one).unwrap().unwrap();
    assert_eq!(back.partitions(), table.partitions());
    assert_eq!(back.partition(1).unwrap().attribute_names(), ["active"]);
    assert!(table.set_bootcode(&[0; 513], false).is_err());
    assert!(table.set_bootcode(&[0; 100], false).is_err());
}
