//! Damage: every byte of the headers, of the entries; power cuts; random bytes.

use base::ErrorKind;
use faulty::PowerCut;
use geom::Provider;
use proptest::prelude::*;
use ram::Memory;

use super::{add, disk, fresh};
use crate::{Era, Scheme, Shape, Table};

const SECTORS: u64 = 4096;

fn written(sectorsize: u32) -> (Memory, Table) {
    let one = disk(SECTORS, sectorsize, 4096);
    let mut table = fresh(&one, Scheme::Gpt, Era::Current);
    add(&mut table, "freebsd-boot", Some(128));
    add(&mut table, "freebsd-zfs", None);
    table.modify(2, Some("d1"), None).unwrap();
    table.write(&one).unwrap();
    let table = Table::read(&one).unwrap().unwrap();
    assert!(!table.is_corrupt(), "{:?}", table.notes());
    (one, table)
}

fn flip(disk: &Memory, at: u64, bits: u8) {
    let sector = u64::from(disk.sectorsize());
    let mut bytes = vec![0; disk.sectorsize() as usize];
    disk.read(at - at % sector, &mut bytes).unwrap();
    bytes[usize::try_from(at % sector).unwrap()] ^= bits;
    disk.write(at - at % sector, &bytes).unwrap();
}

#[test]
fn every_damaged_byte_of_a_header_is_noticed_and_recovered() {
    for sectorsize in [512, 4096] {
        let (one, table) = written(sectorsize);
        let sector = u64::from(sectorsize);
        let last = SECTORS - 1;
        for header in [sector, last * sector] {
            for at in header..header + 92 {
                for bits in [1, 0x80, 0xff] {
                    let torn = one.snapshot();
                    flip(&torn, at, bits);
                    let mut read = Table::read(&torn).unwrap().unwrap();
                    assert!(read.is_corrupt(), "byte {at}");
                    assert_eq!(read.partitions(), table.partitions(), "byte {at}");
                    assert_eq!(read.places("ada0").len(), 2);
                    assert!(read.recover("ada0", Era::Current).unwrap());
                    read.write(&torn).unwrap();
                    let back = Table::read(&torn).unwrap().unwrap();
                    assert!(!back.is_corrupt(), "byte {at}: {:?}", back.notes());
                    assert_eq!(back.partitions(), table.partitions(), "byte {at}");
                    assert_eq!(back.disk_guid(), table.disk_guid());
                }
            }
        }
    }
}

#[test]
fn every_damaged_byte_of_the_entries_is_noticed() {
    let (one, table) = written(512);
    let copies = [2 * 512, (SECTORS - 33) * 512];
    for from in copies {
        for at in (from..from + 128 * 128).step_by(7) {
            flip(&one, at, 4);
            let read = Table::read(&one).unwrap().unwrap();
            assert!(read.is_corrupt(), "byte {at}");
            assert_eq!(read.partitions(), table.partitions(), "byte {at}");
            flip(&one, at, 4);
        }
    }
}

#[test]
fn both_copies_damaged_are_an_error_and_may_be_replaced() {
    let (one, _) = written(512);
    flip(&one, 512 + 60, 1);
    flip(&one, (SECTORS - 1) * 512 + 60, 1);
    let error = Table::read(&one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("GPT rejected"), "{error}");
    let table = fresh(&one, Scheme::Gpt, Era::Current);
    let back = Table::read(&one).unwrap().unwrap();
    assert_eq!(back.disk_guid(), table.disk_guid());
}

#[test]
fn a_boot_sector_is_not_always_a_table() {
    let one = disk(SECTORS, 512, 512);
    fresh(&one, Scheme::Mbr, Era::Current);
    assert!(Table::read(&one).unwrap().is_some());
    // a flag that is neither active nor inactive: code of some boot loader
    flip(&one, 446, 0x12);
    assert!(Table::read(&one).unwrap().is_none());
    flip(&one, 446, 0x12);
    // sectors of 512 bytes, clusters of 8: a FAT volume
    flip(&one, 0x0c, 2);
    flip(&one, 0x0d, 8);
    assert!(Table::read(&one).unwrap().is_none());
}

#[test]
fn a_header_in_the_wrong_place_does_not_count() {
    let (one, table) = written(512);
    let mut header = [0; 512];
    one.read(512, &mut header).unwrap();
    one.write((SECTORS - 1) * 512, &header).unwrap();
    let read = Table::read(&one).unwrap().unwrap();
    assert!(read.is_corrupt());
    assert!(
        read.notes()[0].contains("its own LBA is 1"),
        "{:?}",
        read.notes()
    );
    assert_eq!(read.partitions(), table.partitions());
}

#[test]
fn the_protective_entry_decides() {
    let (one, table) = written(512);
    // no boot signature: the secondary header is still found
    let torn = one.snapshot();
    flip(&torn, 510, 0xff);
    let mut read = Table::read(&torn).unwrap().unwrap();
    assert!(read.is_corrupt());
    assert_eq!(read.partitions(), table.partitions());
    assert!(read.recover("ada0", Era::Current).unwrap());
    read.write(&torn).unwrap();
    assert!(!Table::read(&torn).unwrap().unwrap().is_corrupt());
    // an MBR without a protective entry takes precedence over the GPT
    let torn = one.snapshot();
    flip(&torn, 446 + 4, 0xee ^ 0xa5);
    let read = Table::read(&torn).unwrap().unwrap();
    assert_eq!(read.scheme(), Scheme::Mbr);
    assert!(
        read.notes()[0].contains("hides a GPT"),
        "{:?}",
        read.notes()
    );
}

#[test]
fn a_power_cut_leaves_the_old_table_or_the_new_one() {
    let one = PowerCut::new("ada0", SECTORS * 512);
    let mut old = Table::create(Scheme::Gpt, Shape::of(&one), None, Era::Current).unwrap();
    add(&mut old, "freebsd-boot", Some(128));
    old.write(&one).unwrap();
    let before = one.supply().commands();
    let mut new = Table::read(&one).unwrap().unwrap();
    add(&mut new, "freebsd-zfs", Some(1000));
    new.modify(1, Some("boot"), None).unwrap();
    new.write(&one).unwrap();
    for after in before..=one.supply().commands() {
        for seed in 0..20 {
            let left = one.image_after(after, seed);
            let mut read = Table::read(&left).unwrap().unwrap();
            let is_old = read.partitions() == old.partitions();
            let is_new = read.partitions() == new.partitions();
            assert!(is_old || is_new, "after {after}, seed {seed}");
            if read.recover("ada0", Era::Current).unwrap() {
                read.write(&left).unwrap();
            }
            let back = Table::read(&left).unwrap().unwrap();
            assert!(!back.is_corrupt(), "{:?}", back.notes());
        }
    }
    let back = Table::read(&one).unwrap().unwrap();
    assert_eq!(back.partitions(), new.partitions());
}

#[test]
fn a_power_cut_on_a_disk_that_has_grown_leaves_the_old_table_or_the_new_one() {
    for grown_by in [1, 10, 40, SECTORS / 2] {
        let one = PowerCut::new("ada0", SECTORS * 512);
        let shape = Shape::of(&disk(SECTORS - grown_by, 512, 512));
        let mut old = Table::create(Scheme::Gpt, shape, None, Era::Current).unwrap();
        add(&mut old, "freebsd-boot", Some(128));
        crate::gpt::write(&old, &one).unwrap();
        let before = one.supply().commands();
        let mut new = Table::read(&one).unwrap().unwrap();
        assert!(new.recover("ada0", Era::Current).unwrap());
        add(&mut new, "freebsd-zfs", Some(100));
        new.write(&one).unwrap();
        for after in before..=one.supply().commands() {
            for seed in 0..20 {
                let left = one.image_after(after, seed);
                let case = format!("grown by {grown_by}, after {after}, seed {seed}");
                let read = Table::read(&left).unwrap_or_else(|e| panic!("{case}: {e}"));
                let read = read.expect("a table");
                let is_old = read.partitions() == old.partitions();
                let is_new = read.partitions() == new.partitions();
                assert!(is_old || is_new, "{case}");
            }
        }
        let back = Table::read(&one).unwrap().unwrap();
        assert!(!back.is_corrupt(), "{:?}", back.notes());
        assert_eq!(back.partitions(), new.partitions());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Headers with any content and valid CRCs, over a small disk.
    #[test]
    fn prop_nonsense_with_right_sums_is_survived(
        fields in proptest::collection::vec(prop_oneof![0u64..64, Just(u64::MAX), any::<u64>()], 12),
        entry in proptest::collection::vec(any::<u8>(), 256),
        sectorsize in prop_oneof![Just(512u32), Just(4096)],
    ) {
        let one = disk(256, sectorsize, 4096);
        crate::fuzzing::nonsense(&one, &fields, &entry);
        crate::fuzzing::survive(&one);
    }

    #[test]
    fn prop_boot_sectors_of_any_content_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 66),
    ) {
        let one = disk(256, 512, 512);
        let mut sector = [0; 512];
        sector[446..].copy_from_slice(&bytes);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        for entry in 0..4 {
            sector[446 + 16 * entry] &= 0x80;
        }
        one.write(0, &sector).unwrap();
        crate::fuzzing::survive(&one);
    }
}
