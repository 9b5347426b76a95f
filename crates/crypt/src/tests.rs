//! Suites beside another implementation, keys and their wrapping, and blocks of which only parts are encrypted.

use base::{ErrorKind, Txg};
use phys::blkptr::CryptParams;
use phys::zil::{LrPhys, LrWritePhys, ZilChainPhys, tx};
use phys::{BlkPtrPhys, DnodeImage, DnodePhys, ObjectType, ObjsetPhys, Phys};
use zerocopy::IntoBytes;

use crate::{DataKey, KeyFormat, Suite, WrappedKey, WrappingKey, indirect_mac};

/// Forty bytes encrypted and their MAC, by Python's `cryptography` (AESCCM, AESGCM with the key that HKDF makes), from
/// the master key 0, 1, 2…
const SEALED: [(Suite, &str); 6] = [
    (
        Suite::Aes128Ccm,
        "a2bc88b7bab613bb18c2772ed514b3adb3bc013bdac79948c87704a73f79dab420782b0ca24d6af4423a5901f0e8b56ec1d6e6110da523cb",
    ),
    (
        Suite::Aes192Ccm,
        "bbfd1c49c1e02ed8c9266b3fb95ff39d5048ab600c2237d60fdf985e335103ec5dd5242028d6055eb503fabb7446fb663eb5de393d49cc53",
    ),
    (
        Suite::Aes256Ccm,
        "cea10a0f7b1e328d8456cf890ad50f1d2b4923a5d607bef37a823738dbb173c4f6166bbaefb9b0056eb8379162e359234f0a559d0ef4c179",
    ),
    (
        Suite::Aes128Gcm,
        "3a18c3bf4304904f0b7ecff00140fa9dd971a314a8641ba1870845f846b1cece8276b804a15526b87dcf6666dec490740b7b75bb7ab39298",
    ),
    (
        Suite::Aes192Gcm,
        "9553644944b5a03f57a743bf0c378d8a6d08410c3b05455dd995c8a3ef628b6b566c011a5c8a8731b3397a61d8f7a6f962dfe15cdcca0283",
    ),
    (
        Suite::Aes256Gcm,
        "e34df99437a6e1092dd7bece2a17110f81de01149eb1b77dfb0a8994e348ead891d1cc6cacdbcce2ff5b623d3d0d94e5eca5f2ba2bed93b5",
    ),
];

const PARAMS: CryptParams = CryptParams {
    salt: [1, 2, 3, 4, 5, 6, 7, 8],
    iv: [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111],
};

fn key(suite: Suite) -> DataKey {
    let master: Vec<u8> = (0..suite.key_len() as u8).collect();
    DataKey::new(suite, 77, &master, &[9; 64])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn suites_encrypt_as_another_implementation_does() {
    for (suite, expected) in SEALED {
        let text: Vec<u8> = (0..40).collect();
        let mut sealed = [0; 40];
        let contents = ObjectType::PLAIN_FILE_CONTENTS.raw();
        let mac = key(suite)
            .block_key(&PARAMS.salt)
            .encrypt(contents, &PARAMS.iv, &text, &mut sealed)
            .unwrap();
        assert_eq!(hex(&[&sealed[..], &mac].concat()), expected, "{suite}");
    }
}

#[test]
fn passphrases_become_keys_as_in_another_implementation() {
    let salt = 0x1122_3344_5566_7788;
    let passphrase = WrappingKey::new(KeyFormat::Passphrase, b"correct horse", salt, 1000);
    // Python's hashlib.pbkdf2_hmac
    let expected = "5740582b49cbb62e49778ba9223510147129b138cb72f1baf2e56c519d0a0fe3";
    let digits = WrappingKey::new(KeyFormat::Hex, expected.to_uppercase().as_bytes(), 0, 0);
    let (passphrase, digits) = (passphrase.unwrap(), digits.unwrap());
    let wrapped = WrappedKey::wrap(&key(Suite::Aes192Ccm), &passphrase, [5; 12]);
    assert_eq!(wrapped.unwrap(&digits).unwrap().guid(), 77);
}

#[test]
fn what_is_not_a_key_is_refused_in_the_words_of_zfs() {
    let refused = |format, given: &[u8]| {
        let error = WrappingKey::new(format, given, 0, 0).unwrap_err();
        error.context().to_owned()
    };
    assert_eq!(
        refused(KeyFormat::Raw, &[1; 33]),
        "Raw key too long (expected 32)."
    );
    assert_eq!(
        refused(KeyFormat::Hex, b"abc"),
        "Hex key too short (expected 64)."
    );
    assert_eq!(
        refused(KeyFormat::Hex, &[b'g'; 64]),
        "Invalid hex character detected."
    );
}

#[test]
fn a_wrapped_key_opens_with_its_own_key_only_and_unchanged() {
    let (right, wrong) = ([3; 32], [4; 32]);
    let raw = |bytes: &[u8]| WrappingKey::new(KeyFormat::Raw, bytes, 0, 0).unwrap();
    for suite in Suite::ALL {
        let wrapped = WrappedKey::wrap(&key(suite), &raw(&right), [5; 12]);
        assert_eq!(wrapped.master.len(), suite.key_len());
        let opened = wrapped.unwrap(&raw(&right)).unwrap();
        assert_eq!(opened.mac(b"text"), key(suite).mac(b"text"));
        let refused = wrapped.unwrap(&raw(&wrong)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Permission);
        let other = WrappedKey {
            guid: 78,
            ..wrapped.clone()
        };
        assert!(other.unwrap(&raw(&right)).is_err(), "the guid is covered");
        let old = WrappedKey {
            version: 0,
            ..wrapped
        };
        let refused = old.unwrap(&raw(&right)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn no_debug_output_shows_a_key() {
    let wrapping = WrappingKey::new(KeyFormat::Raw, &[0xab; 32], 0, 0).unwrap();
    assert_eq!(format!("{wrapping:?}"), "WrappingKey(32 secret bytes)");
    assert_eq!(
        format!("{:?}", key(Suite::Aes256Gcm)),
        "DataKey aes-256-gcm 4d"
    );
}

/// A block of two dnodes: one with a bonus that is secret, one whose bonus is not.
fn dnodes() -> Vec<u8> {
    let mut core = DnodePhys {
        type_: ObjectType::PLAIN_FILE_CONTENTS.raw(),
        indblkshift: 17,
        nlevels: 1,
        nblkptr: 1,
        bonustype: ObjectType::SA.raw(),
        ..DnodePhys::default()
    };
    core.set_datablksz(4096);
    let mut file = DnodeImage::new(core);
    file.set_bonus(b"who owns it, and when it was changed");
    core.bonustype = ObjectType::DSL_DIR.raw();
    let mut other = DnodeImage::new(core);
    other.set_bonus(b"in the clear");
    let mut block = [file.bytes(), other.bytes()].concat();
    block.resize(4096, 0);
    block
}

/// Decrypts a block, or checks its MAC.
fn open(key: &DataKey, bp: &BlkPtrPhys, bytes: &mut [u8]) -> base::Result<()> {
    if !bp.is_encrypted() {
        return key.check(bp, bytes);
    }
    let sealed = bytes.to_vec();
    key.block_key(&bp.crypt_params().salt)
        .open(bp, &sealed, bytes)
}

fn sealed(type_: ObjectType, mac: [u8; 16]) -> BlkPtrPhys {
    let mut bp = BlkPtrPhys::default();
    bp.set_lsize(4096);
    bp.set_psize(4096);
    bp.set_type(type_.raw());
    bp.set_birth(Txg(1), Txg(1));
    bp.set_little_endian();
    bp.set_crypt(true);
    bp.set_sealed(&PARAMS, &mac);
    bp
}

#[test]
fn of_dnodes_only_bonus_bytes_are_encrypted_and_the_rest_is_covered() {
    for suite in Suite::ALL {
        let (plain, key) = (dnodes(), key(suite));
        let mut block = vec![0; plain.len()];
        let dnode = ObjectType::DNODE;
        let mac = key
            .block_key(&PARAMS.salt)
            .encrypt(dnode.raw(), &PARAMS.iv, &plain, &mut block)
            .unwrap();
        let changed: Vec<usize> = (0..block.len())
            .filter(|at| block[*at] != plain[*at])
            .collect();
        assert!(
            changed.iter().all(|at| (192..512).contains(at)),
            "{changed:?}"
        );
        assert!(changed.len() > 280, "the whole room is encrypted");

        let bp = sealed(dnode, mac);
        let mut opened = block.clone();
        open(&key, &bp, &mut opened).unwrap();
        assert!(opened == plain);
        // What the system changes without a key.
        let mut used = block.clone();
        used[24] = 7;
        open(&key, &bp, &mut used).unwrap();
        for at in [0, 16, 180, 200, 520, 704] {
            let mut forged = block.clone();
            forged[at] ^= 1;
            let refused = open(&key, &bp, &mut forged);
            assert!(refused.is_err(), "byte {at}");
        }
    }
}

#[test]
fn of_log_blocks_only_what_is_in_records_is_encrypted_but_no_pointers() {
    let record = |type_: u64, len: usize| {
        let mut record = vec![0x55; len];
        let common = LrPhys {
            txtype: type_.into(),
            reclen: (len as u64).into(),
            ..LrPhys::default()
        };
        common.write(&mut record);
        record
    };
    let records = [
        record(tx::WRITE, LrWritePhys::SIZE + 64),
        record(tx::REMOVE, 48),
    ]
    .concat();
    let mut chain = ZilChainPhys::default();
    chain.nused.set((ZilChainPhys::SIZE + records.len()) as u64);
    let mut plain = [chain.as_bytes(), &records].concat();
    plain.resize(4096, 0);

    let key = key(Suite::Aes128Gcm);
    let mut block = vec![0; plain.len()];
    let log = ObjectType::INTENT_LOG;
    let mac = key
        .block_key(&PARAMS.salt)
        .encrypt(log.raw(), &PARAMS.iv, &plain, &mut block)
        .unwrap();
    let changed: Vec<usize> = (0..block.len())
        .filter(|at| block[*at] != plain[*at])
        .collect();
    let secret =
        |at: &usize| (216..248).contains(at) || (376..440).contains(at) || (472..488).contains(at);
    assert!(changed.iter().all(secret), "{changed:?}");
    assert!(changed.len() > 100);
    // The MAC is in the block itself.
    let at = ZilChainPhys::SIZE - 16;
    block[at..ZilChainPhys::SIZE].copy_from_slice(&mac);
    open(&key, &sealed(log, [0; 16]), &mut block).unwrap();
    block[at..ZilChainPhys::SIZE].fill(0);
    assert!(block == plain);
}

#[test]
fn the_sum_of_an_indirect_block_is_that_of_the_macs_below() {
    let below = sealed(ObjectType::PLAIN_FILE_CONTENTS, [7; 16]);
    let block = [below.as_bytes(), BlkPtrPhys::default().as_bytes()].concat();
    let mut moved = below;
    moved.set_checksum(3);
    moved.set_dedup(true);
    let elsewhere = [moved.as_bytes(), BlkPtrPhys::default().as_bytes()].concat();
    assert_eq!(indirect_mac(&block), indirect_mac(&elsewhere));
    let swapped = [BlkPtrPhys::default().as_bytes(), below.as_bytes()].concat();
    assert_ne!(indirect_mac(&block), indirect_mac(&swapped));
    let other = sealed(ObjectType::PLAIN_FILE_CONTENTS, [8; 16]);
    let other = [other.as_bytes(), BlkPtrPhys::default().as_bytes()].concat();
    assert_ne!(indirect_mac(&block), indirect_mac(&other));
}

#[test]
fn bytes_that_do_not_fit_are_errors() {
    let key = key(Suite::Aes256Gcm);
    let bp = sealed(ObjectType::DNODE, [0; 16]);
    for (at, byte) in [(3, 4), (3, 255), (12, 31), (7, 4)] {
        let mut block = dnodes();
        block[at] = byte;
        block[3] = block[3].max(if byte == 4 && at == 7 { 3 } else { 0 });
        assert!(open(&key, &bp, &mut block).is_err(), "byte {at} is {byte}");
    }
    for used in [0, 183, 4097, u64::MAX] {
        let mut block = vec![0; 4096];
        let mut chain = ZilChainPhys::default();
        chain.nused.set(used);
        chain.write(&mut block);
        let bp = sealed(ObjectType::INTENT_LOG, [0; 16]);
        assert_eq!(
            open(&key, &bp, &mut block).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
    }
    let mut objset = ObjsetPhys::default();
    objset.type_.set(2);
    objset.meta_dnode.core.nblkptr = 9;
    let mut bp = sealed(ObjectType::DNODE, [0; 16]);
    bp.set_type(ObjectType::OBJSET.raw());
    let mut bytes = objset.as_bytes().to_vec();
    assert_eq!(
        open(&key, &bp, &mut bytes).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
}

#[test]
fn bytes_of_a_big_endian_host_that_do_not_fit_are_errors() {
    let key = key(Suite::Aes256Gcm);
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    for type_ in [
        ObjectType::DNODE,
        ObjectType::INTENT_LOG,
        ObjectType::OBJSET,
        ObjectType::PLAIN_FILE_CONTENTS,
        ObjectType::UINT64_OTHER,
    ] {
        let mut bp = BlkPtrPhys::default();
        bp.set_type(type_.raw());
        bp.set_crypt(true);
        assert!(!bp.is_little_endian());
        for round in 0..300 {
            let mut block: Vec<u8> = (0..4096).map(|_| next()).collect();
            // A log block whose records are looked at.
            if type_ == ObjectType::INTENT_LOG && round % 2 == 0 {
                let used = 184 + 8 * u64::from(next());
                block[136..144].copy_from_slice(&used.to_be_bytes());
                block[184..192].copy_from_slice(&u64::from(next() % 26).to_be_bytes());
                block[192..200].copy_from_slice(&(used - 184).to_be_bytes());
            }
            // A block of dnodes that fit.
            if type_ == ObjectType::DNODE && round % 2 == 0 {
                for dnode in block.chunks_mut(512) {
                    (dnode[3], dnode[12]) = (dnode[3] % 4, 0);
                }
            }
            let refused = open(&key, &bp, &mut block).unwrap_err().kind();
            assert!(matches!(refused, ErrorKind::Checksum | ErrorKind::Corrupt));
        }
    }
}
