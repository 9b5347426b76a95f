use super::*;
use proptest::prelude::*;
use ram::Memory;

fn any_metadata() -> impl Strategy<Value = Metadata> {
    let numbers = (
        0..=VERSION_MAX,
        any::<u32>(),
        any::<[u16; 3]>(),
        any::<u64>(),
        any::<(u32, u8, i32)>(),
    );
    (numbers, any::<u64>()).prop_map(|(numbers, seed)| {
        let (version, flags, [ealgo, keylen, aalgo], provsize, (sectorsize, keys, iterations)) =
            numbers;
        let noise = |n: usize| (seed.rotate_left(n as u32 % 64) >> (n % 13)) as u8;
        Metadata {
            version,
            flags: Flags(flags),
            ealgo,
            keylen,
            aalgo: if version == 0 { 0 } else { aalgo },
            provsize,
            sectorsize,
            keys,
            iterations,
            salt: std::array::from_fn(noise),
            mkeys: std::array::from_fn(|slot| std::array::from_fn(|n| noise(n + 300 * slot))),
        }
    })
}

proptest! {
    #[test]
    fn prop_metadata_goes_there_and_back(metadata in any_metadata()) {
        prop_assert_eq!(Metadata::decode(&metadata.encode()).unwrap(), metadata);
    }

    #[test]
    fn prop_noise_is_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..600), has_magic in any::<bool>()) {
        if has_magic && bytes.len() >= 16 {
            bytes[..16].copy_from_slice(MAGIC);
        }
        prop_assert!(Metadata::decode(&bytes).is_err());
    }
}

fn example(version: u32) -> Metadata {
    Metadata {
        version,
        flags: Flags::AUTORESIZE,
        ealgo: 22,
        keylen: 128,
        aalgo: 0,
        provsize: 1 << 30,
        sectorsize: 4096,
        keys: 1,
        iterations: 1000,
        salt: [1; 64],
        mkeys: [[2; SLOT_BYTES], [3; SLOT_BYTES]],
    }
}

#[test]
fn every_damaged_bit_is_detected() {
    for version in 0..=VERSION_MAX {
        let bytes = example(version).encode();
        let len = if version == 0 { 509 } else { 511 };
        for at in 0..len {
            for bit in 0..8 {
                let mut damaged = bytes;
                damaged[at] ^= 1 << bit;
                assert!(
                    Metadata::decode(&damaged).is_err(),
                    "version {version}, byte {at}, bit {bit}"
                );
            }
        }
        for short in 0..len {
            assert!(Metadata::decode(&bytes[..short]).is_err(), "{short} bytes");
        }
    }
}

#[test]
fn fields_lie_where_the_format_says() {
    let bytes = example(7).encode();
    assert_eq!(&bytes[..20], b"GEOM::ELI\0\0\0\0\0\0\0\x07\0\0\0");
    assert_eq!(bytes[24..30], [22, 0, 128, 0, 0, 0]);
    assert_eq!(bytes[30..38], (1u64 << 30).to_le_bytes());
    assert_eq!(bytes[38..42], 4096u32.to_le_bytes());
    assert_eq!(bytes[42..47], [1, 0xe8, 3, 0, 0]);
    assert_eq!((bytes[47], bytes[111], bytes[303]), (1, 2, 3));
    assert_eq!(bytes[495..], example(7).md5());
    // Version 0 has no authentication algorithm.
    let bytes = example(0).encode();
    assert_eq!(bytes[28..36], (1u64 << 30).to_le_bytes());
    assert_eq!(bytes[493..509], example(0).md5());
}

#[test]
fn errors_are_in_the_words_of_geli() {
    let disk = Memory::new("ada0p1", 1 << 20);
    let error = Metadata::read(&disk).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Cannot read metadata from ada0p1: Invalid argument."
    );
    let mut bytes = example(7).encode();
    bytes[100] ^= 1;
    let error = Metadata::decode_named(&bytes, "ada0p1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Inconsistent provider's ada0p1 metadata."
    );
    bytes[16] = 8;
    let error = Metadata::decode_named(&bytes, "ada0p1").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Provider's ada0p1 metadata version 8 is too new.\n"),
        "{error}"
    );
    assert!(last_sector(&Memory::new("tiny", 512)).is_err());
}

#[test]
fn is_written_to_the_last_sector_and_cleared() {
    let disk = Memory::with_sectors("ada0", 1 << 20, 4096, 4096);
    example(7).write(&disk).unwrap();
    assert_eq!(Metadata::read(&disk).unwrap(), example(7));
    let mut sector = vec![0; 4096];
    disk.read((1 << 20) - 4096, &mut sector).unwrap();
    assert!(sector.starts_with(b"GEOM::ELI"));
    assert!(sector[METADATA_BYTES..].iter().all(|byte| *byte == 0));
    clear(&disk).unwrap();
    assert_eq!(clear(&disk).unwrap_err().kind(), ErrorKind::NotFound);
    disk.read((1 << 20) - 4096, &mut sector).unwrap();
    assert!(sector.iter().all(|byte| *byte == 0));
    trash(&disk, (1 << 20) - 4096).unwrap();
    assert!(Metadata::read(&disk).is_err());
}

#[test]
fn is_dumped_as_geli_dumps_it() {
    let text = example(7).dump();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "     magic: GEOM::ELI");
    assert_eq!(lines[2], "     flags: 0x200");
    assert_eq!(lines[3], "     ealgo: AES-XTS");
    assert_eq!(lines[7], "      keys: 0x01");
    assert!(lines[9].starts_with("      Salt: 0101"));
    assert!(lines[10].starts_with("Master Key: 0202"));
    assert_eq!(lines.len(), 12);
    assert_eq!(Flags(0x202).names(7), "BOOT, AUTORESIZE");
    assert_eq!(Flags::default().names(7), "NONE");
    assert_eq!(Flags::default().names(3), "SINGLE-KEY, NATIVE-BYTE-ORDER");
}
