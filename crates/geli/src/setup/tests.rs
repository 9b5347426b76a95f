use super::*;
use crate::Eli;
use ram::Memory;
use std::sync::Arc;

fn disk() -> Arc<Memory> {
    Arc::new(Memory::new("ada0p1", 8 << 20))
}

fn passphrase(text: &str) -> Components {
    Components {
        keyfiles: Vec::new(),
        passphrase: Some(text.as_bytes().to_vec()),
    }
}

fn keyfile(bytes: &[u8]) -> Components {
    Components {
        keyfiles: vec![bytes.to_vec()],
        passphrase: None,
    }
}

fn text<T>(result: Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn a_wrong_passphrase_loses_nothing() {
    let disk = disk();
    let options = InitOptions {
        sectorsize: Some(4096),
        ..InitOptions::default()
    };
    let metadata = init(&*disk, &options, &passphrase("right"), Some(10)).unwrap();
    assert_eq!((metadata.version, metadata.keys), (7, 1));
    assert_eq!((metadata.sectorsize, metadata.keylen), (4096, 128));
    assert_eq!(Metadata::read(&*disk).unwrap(), metadata);
    let error = attach(&*disk, &metadata, &passphrase("wrong"), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission);
    assert_eq!(error.to_string(), "Wrong key for ada0p1.");
    let attached = attach(&*disk, &metadata, &passphrase("right"), None).unwrap();
    let eli = Eli::open(disk.clone(), "ada0p1.eli", &attached).unwrap();
    eli.write(4096, &[5; 4096]).unwrap();
    let again = attach(&*disk, &metadata, &passphrase("right"), Some(0)).unwrap();
    assert_eq!(again, attached);
    let mut back = [0; 4096];
    let eli = Eli::open(disk.clone(), "ada0p1.eli", &again).unwrap();
    eli.read(4096, &mut back).unwrap();
    assert_eq!(back, [5; 4096]);
    assert!(attach(&*disk, &metadata, &passphrase("right"), Some(1)).is_err());
    assert!(attach(&*disk, &metadata, &passphrase("right"), Some(9)).is_err());
}

#[test]
fn options_are_checked_in_the_words_of_geli() {
    let disk = disk();
    let try_init = |change: fn(&mut InitOptions)| {
        let mut options = InitOptions::default();
        change(&mut options);
        text(init(&*disk, &options, &passphrase("p"), Some(1)))
    };
    let sector = "Invalid sector size.";
    assert_eq!(try_init(|o| o.sectorsize = Some(100)), sector);
    assert_eq!(try_init(|o| o.sectorsize = Some(1536)), sector);
    assert_eq!(try_init(|o| o.sectorsize = Some(0)), sector);
    assert_eq!(try_init(|o| o.key_bits = 192), "Invalid key length.");
    assert_eq!(
        try_init(|o| o.version = 8),
        "Invalid version specified should be between 0 and 7."
    );
    assert_eq!(
        try_init(|o| (o.version, o.cipher) = (4, Some(Cipher::AesXts))),
        "AES-XTS algorithm is supported starting from version 5."
    );
    assert_eq!(
        try_init(|o| (o.version, o.auth) = (0, Some(AuthAlgorithm::HmacSha256))),
        "Data authentication is supported starting from version 1."
    );
    let options = InitOptions::default();
    assert_eq!(
        text(init(&*disk, &options, &keyfile(b"k"), Some(1))),
        "Options -i and -P are mutually exclusive."
    );
    assert_eq!(
        text(init(&*disk, &options, &Components::default(), None)),
        "No key components given."
    );
    let native = Memory::with_sectors("ada0", 8 << 20, 4096, 4096);
    let small = InitOptions {
        sectorsize: Some(512),
        ..options
    };
    assert_eq!(
        text(init(&native, &small, &passphrase("p"), Some(1))),
        sector
    );
    // Nothing was written by any of them.
    assert!(Metadata::read(&*disk).is_err());
}

#[test]
fn every_version_opens() {
    for version in 0..=VERSION_MAX {
        let disk = disk();
        let options = InitOptions {
            version,
            auth: (version > 0).then_some(AuthAlgorithm::HmacSha256),
            sectorsize: Some(4096),
            ..InitOptions::default()
        };
        let metadata = init(&*disk, &options, &keyfile(b"k"), None).unwrap();
        assert_eq!(metadata.iterations, -1);
        let attached = attach(&*disk, &metadata, &keyfile(b"k"), None).unwrap();
        let eli = Eli::open(disk, "ada0p1.eli", &attached).unwrap();
        eli.write(8192, &[3; 4096]).unwrap();
        let mut back = [0; 4096];
        eli.read(8192, &mut back).unwrap();
        assert_eq!(back, [3; 4096]);
    }
}

#[test]
fn a_second_key_opens_the_same_data() {
    let disk = disk();
    let options = InitOptions::default();
    let mut metadata = init(&*disk, &options, &passphrase("one"), Some(5)).unwrap();
    let opened = unlock_named(&metadata, &passphrase("one"), None, "ada0p1").unwrap();
    let second = SetKey {
        slot: Some(1),
        iterations: None,
    };
    let slot = set_key(
        &mut metadata,
        (&opened.0, opened.1),
        &passphrase("two"),
        second,
    );
    assert_eq!(slot.unwrap(), 1);
    let one = attach(&*disk, &metadata, &passphrase("one"), None).unwrap();
    let two = attach(&*disk, &metadata, &passphrase("two"), None).unwrap();
    assert_eq!((one.nkey, two.nkey), (Some(0), Some(1)));
    assert_eq!(one.mkey, two.mkey);
    // With two keys the iterations, which both share, cannot change.
    let more = SetKey {
        slot: Some(1),
        iterations: Some(9),
    };
    let key = (&opened.0, opened.1);
    assert_eq!(
        text(set_key(&mut metadata, key, &passphrase("x"), more)),
        "To be able to use '-i' option, only one key can be defined."
    );
    metadata.delete_slot(0, false).unwrap();
    let key = (&opened.0, 1);
    set_key(&mut metadata, key, &passphrase("three"), more).unwrap();
    assert_eq!(metadata.iterations, 9);
    let other = SetKey {
        slot: Some(0),
        iterations: Some(10),
    };
    assert_eq!(
        text(set_key(&mut metadata, key, &passphrase("x"), other)),
        "Only already defined key can be changed when '-i' option is used."
    );
    assert!(
        set_key(
            &mut metadata,
            key,
            &passphrase("x"),
            SetKey {
                slot: Some(2),
                iterations: None
            }
        )
        .is_err()
    );
    attach(&*disk, &metadata, &passphrase("three"), None).unwrap();
}

#[test]
fn onetime_uses_the_whole_provider() {
    let disk = disk();
    let attached = onetime(&*disk, &InitOptions::default()).unwrap();
    assert!(attached.is_onetime());
    let eli = Eli::open(disk.clone(), "ada0p1.eli", &attached).unwrap();
    assert_eq!(eli.mediasize(), disk.mediasize());
    assert_ne!(
        onetime(&*disk, &InitOptions::default()).unwrap().mkey,
        attached.mkey
    );
}

#[test]
fn resize_moves_the_metadata() {
    let big = Arc::new(Memory::new("ada0p1", 8 << 20));
    let small: Arc<dyn Provider> =
        Arc::new(geom::part::Part::new("ada0p1", big.clone(), 0, 4 << 20).unwrap());
    let metadata = init(&*small, &InitOptions::default(), &passphrase("p"), Some(1)).unwrap();
    let attached = attach(&*small, &metadata, &passphrase("p"), None).unwrap();
    let eli = Eli::open(small, "ada0p1.eli", &attached).unwrap();
    eli.write(0, &[8; 512]).unwrap();
    assert_eq!(
        text(attach(&*big, &metadata, &passphrase("p"), None)),
        "Provider size mismatch."
    );
    for (size, error) in [
        (8 << 20, "Size hasn't changed."),
        (9 << 20, "Invalid oldsize: Out of range."),
        (100, "Invalid oldsize: Out of range."),
        (
            3 << 20,
            "Cannot read metadata from ada0p1: Invalid argument.",
        ),
    ] {
        assert_eq!(text(resize(&*big, size)), error);
    }
    resize(&*big, 4 << 20).unwrap();
    let metadata = Metadata::read(&*big).unwrap();
    assert_eq!(metadata.provsize, 8 << 20);
    assert!(Metadata::read_at(&*big, (4 << 20) - 512).is_err());
    let attached = attach(&*big, &metadata, &passphrase("p"), None).unwrap();
    let eli = Eli::open(big, "ada0p1.eli", &attached).unwrap();
    assert_eq!(eli.mediasize(), (8 << 20) - 512);
    let mut back = [0; 512];
    eli.read(0, &mut back).unwrap();
    assert_eq!(back, [8; 512]);
}

#[test]
fn hostile_metadata_is_refused() {
    let disk = disk();
    let good = init(&*disk, &InitOptions::default(), &passphrase("p"), Some(1)).unwrap();
    let attach_with = |change: fn(&mut Metadata)| {
        let mut metadata = good.clone();
        change(&mut metadata);
        text(attach(&*disk, &metadata, &passphrase("p"), None))
    };
    assert_eq!(attach_with(|m| m.keys = 0), "No valid keys on ada0p1.");
    assert!(attach_with(|m| m.ealgo = 21).contains("CAMELLIA-CBC"));
    assert!(attach_with(|m| m.sectorsize = 0).contains("Invalid sector size."));
    assert!(attach_with(|m| m.sectorsize = 1 << 31).contains("too small"));
    assert!(attach_with(|m| m.keylen = 0).contains("Invalid key length."));
    assert!(attach_with(|m| m.keylen = 999).contains("Invalid key length."));
    assert!(attach_with(|m| (m.flags, m.aalgo) = (Flags::AUTH, 8)).contains("HMAC/RIPEMD160"),);
    assert_eq!(attach_with(|m| m.iterations = -7), "Missing -p flag.");
}
