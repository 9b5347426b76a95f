//! Checksums that OpenZFS wrote.
//!
//! Made with OpenZFS 2.3.2 on Linux. [`BLOCKS`]: files of noise in file systems that differ in
//! their `checksum`, block pointers by `zdb -bbbbbb`, salt from the pool's object directory.
//! Embedded checksums: blocks as on disk, with rows of zeros left out. The gang header comes
//! from a pool with `metaslab_force_ganging`; the intent log blocks from frozen pools
//! (`zpool freeze`), one of version 20 for `zilog`.

use crate::{Templates, Words, digest, embedded};
use base::{ErrorKind, Txg, VdevId};
use phys::ChecksumType as C;
use sha2::Digest;

const SALT: &str = "fc0781a68c34924fe6ec63b5bbbfaccfb8acd6c7fc1ac9b507cdbe7326d54d8c";

/// The words of 4 KiB of `noise(2)` and of 128 KiB of `noise(1)`.
const BLOCKS: &[(C, Words, Words)] = &[
    (
        C::Fletcher2,
        [
            0x7de29d8495ee46d5,
            0xdbe411310fe6face,
            0xff75a5d956e45122,
            0xc66cd90b7e8098d9,
        ],
        [
            0x5ab585a66eac24ea,
            0x42a5be2b23994af1,
            0x0d8b25e765382be5,
            0xccfbce87fc4db430,
        ],
    ),
    (
        C::Fletcher4,
        [
            0x00000208ff9bef55,
            0x000417013bbed9c2,
            0x0574cee7c190ef1e,
            0x73cf36465e020af6,
        ],
        [
            0x000040092fa093a1,
            0x100321227e58543a,
            0x39f721563831f1ae,
            0xee1f23b52277af43,
        ],
    ),
    (
        C::Sha256,
        [
            0xff492bcfa9082c2a,
            0x84ac930516b4946d,
            0x850719966d7fa9c7,
            0x5ace83dc1496fa74,
        ],
        [
            0x3ed334e788f0928e,
            0xd50fa931e43a9d08,
            0x3ff9745feb334abf,
            0x8d109042e5007c97,
        ],
    ),
    (
        C::Sha512,
        [
            0x45c4e4d7ea8b2ecd,
            0x6e2876e6085aca4f,
            0x7e37c752618344a3,
            0x4cf2493168c8dc38,
        ],
        [
            0x27bc0f8cbdcbabb8,
            0xdd0e4222b76a4b65,
            0xed17ca6e231b4227,
            0x4ff536562b069e39,
        ],
    ),
    (
        C::Skein,
        [
            0x7c3eea33e21c4466,
            0x6a8742e926be9dca,
            0xfdae0cada5fb820f,
            0xb6460424932b1d68,
        ],
        [
            0x96bb0437331f1414,
            0xef39220bf87c2359,
            0xae56fcf9d292e0a5,
            0x4b54970c48acd529,
        ],
    ),
    (
        C::EdonR,
        [
            0xd51e598a7d33270a,
            0xc55dd861642714f1,
            0xb9546dea565d9e09,
            0x9845a6c1ba205348,
        ],
        [
            0x422914c5610cea03,
            0x5d4e5abb5fbcdcdf,
            0x06442e4628e24c98,
            0x4618b563c1c05231,
        ],
    ),
    (
        C::Blake3,
        [
            0x34072bb18bc94f4a,
            0x36563442785e93bd,
            0x26e9984d84f495ad,
            0xd8058fee5e25e660,
        ],
        [
            0x3dec83e81b811ea6,
            0xac258017f0ddcf47,
            0x67de536cb56b17cb,
            0x8c2d889e566fe47e,
        ],
    ),
];

type Rows = [(usize, &'static str)];

/// The boot environment block of the first label, at 8 KiB.
const LABEL: &Rows = &[
    (
        0x1fc0,
        "000000000000000000000000000000000000000000000000117a0cb17ada1002",
    ),
    (
        0x1fe0,
        "3f2a6e7f808ff497fcceaa58169f90af8bb46dff57ead1cbab5f460ddb92c66e",
    ),
];

/// At offset 0x422a00 of vdev 0, born in txg 63.
const GANG_HEADER: &Rows = &[
    (
        0x0,
        "570000000000000016210000000000800100000000000000ef0b010000000080",
    ),
    (
        0x20,
        "0000000000000000000000000000000055005500020700800000000000000000",
    ),
    (
        0x40,
        "000000000000000000000000000000003f000000000000000000000000000000",
    ),
    (
        0x60,
        "a7ca874c841500006d34eb28452ed1012ea0e3f3dcb696167428e8e2dbe2edaf",
    ),
    (
        0x80,
        "560000000000000017210000000000800100000000000000f00b010000000080",
    ),
    (
        0xa0,
        "0000000000000000000000000000000054005400020700800000000000000000",
    ),
    (
        0xc0,
        "000000000000000000000000000000003f000000000000000000000000000000",
    ),
    (
        0xe0,
        "19caf068401500008f8f73b12fd5c401dbf8170f4c882c1cee61a73416fcd9a8",
    ),
    (
        0x100,
        "560000000000000018210000000000800100000000000000f10b010000000080",
    ),
    (
        0x120,
        "0000000000000000000000000000000054005400020700800000000000000000",
    ),
    (
        0x140,
        "000000000000000000000000000000003f000000000000000000000000000000",
    ),
    (
        0x160,
        "e1fe277a44150000bef62294d8fec00165fd83bc8c48d8c5a1434b8adb53fe8f",
    ),
    (
        0x1c0,
        "000000000000000000000000000000000000000000000000117a0cb17ada1002",
    ),
    (
        0x1e0,
        "a02482ce93b75d50ff86044aa366370438642f0b69e41024d31686b92c22e6f7",
    ),
];

const ZILOG: &Rows = &[
    (
        0x0,
        "010000000000000070000000000000000e000000000000000100000000000000",
    ),
    (
        0x20,
        "21000000000000000300000000000000a4810000000000000000000000000000",
    ),
    (
        0x40,
        "00000000000000000e000000000000002b50016b0000000000fcac0600000000",
    ),
    (
        0x60,
        "0000000000000000660000000000000000000000000000000000000000000000",
    ),
    (
        0xf40,
        "000000000000000000000000000000000800000000000000f300000000000000",
    ),
    (
        0xf80,
        "0700070002050980000000000000000000000000000000000000000000000000",
    ),
    (
        0xfa0,
        "0e0000000000000000000000000000006b669ce6e367f15e008b7f0ec90bc775",
    ),
    (
        0xfc0,
        "2e0000000000000003000000000000007000000000000000117a0cb17ada1002",
    ),
    (
        0xfe0,
        "be9f4138cad4eb3df18db8d40cf29eedf4b84839b4ffe1980f3f3e04f6e1a33e",
    ),
];
const ZILOG_WORDS: Words = [0x5ef167e3e69c666b, 0x75c70bc90e7f8b00, 0x2e, 2];

const ZILOG2: &Rows = &[
    (
        0x0,
        "0000000000000000080000000000000075000000000000000000000000000000",
    ),
    (
        0x20,
        "0000000000000000000000000000000000000000000000000700070002090980",
    ),
    (
        0x40,
        "0000000000000000000000000000000000000000000000001100000000000000",
    ),
    (
        0x60,
        "000000000000000057791fa5ecc249399a4a30856b59d1b93600000000000000",
    ),
    (
        0x80,
        "03000000000000002801000000000000117a0cb17ada1002b6932aff05000000",
    ),
    (
        0xa0,
        "1896cc01281700009f80be5ed2c22c006c2dc9f844cfbf390100000000000000",
    ),
    (
        0xc0,
        "7000000000000000110000000000000001000000000000002200000000000000",
    ),
    (
        0xe0,
        "8000000000000000a48100000000000000000000000000000000000000000000",
    ),
    (
        0x100,
        "11000000000000002b50016b0000000000a02526000000000000000000000000",
    ),
    (
        0x120,
        "6600000000000000000000000000000000000000000000000000000000000000",
    ),
];
const ZILOG2_WORDS: Words = [0x3949c2eca51f7957, 0xb9d1596b85304a9a, 0x36, 2];

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut word = || {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((x >> 32) as u32).to_le_bytes()
    };
    (0..len / 4).flat_map(|_| word()).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn block(rows: &Rows, len: usize) -> Vec<u8> {
    let mut block = vec![0; len];
    for (at, hex) in rows {
        let bytes = unhex(hex);
        block[*at..at + bytes.len()].copy_from_slice(&bytes);
    }
    block
}

#[test]
fn digests_are_those_in_block_pointers() {
    let salt = unhex(SALT).try_into().unwrap();
    let templates = Templates::new(&salt);
    let (small, large) = (noise(2, 4096), noise(1, 131_072));
    for (kind, of_small, of_large) in BLOCKS {
        assert_eq!(digest(*kind, &salt, &small), *of_small, "{kind}");
        assert_eq!(digest(*kind, &salt, &large), *of_large, "{kind}");
        assert_eq!(templates.digest(*kind, &large), *of_large, "{kind}");
    }
    let mut copy = vec![0; large.len()];
    assert_eq!(crate::copy_fletcher4(&large, &mut copy), BLOCKS[1].2);
}

/// Checks that the block verifies, that `set` recreates it, and that no bit of it or of the verifier
/// can change unnoticed.
fn check(kind: C, verifier: &Words, block: &[u8], eck_at: usize, covered: usize) {
    embedded::verify(kind, verifier, block).unwrap();

    let mut again = block.to_vec();
    again[eck_at..eck_at + embedded::ECK_BYTES].fill(0);
    embedded::set(kind, verifier, &mut again);
    assert_eq!(again, block);

    for word in 0..4 {
        let mut other = *verifier;
        other[word] ^= 1;
        let error = embedded::verify(kind, &other, block).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum);
    }
    for at in (0..block.len()).step_by(7) {
        again[at] ^= 1 << (at % 8);
        let result = embedded::verify(kind, verifier, &again);
        assert_eq!(result.is_err(), at < covered, "byte {at}");
        again[at] ^= 1 << (at % 8);
    }
}

#[test]
fn label_of_openzfs_verifies() {
    let block = block(LABEL, 8192);
    check(
        C::Label,
        &embedded::label_verifier(8192),
        &block,
        8152,
        8192,
    );
    let words = crate::label_digest(8192, &block);
    assert_eq!(words[0].to_le_bytes(), block[8160..8168]);
}

#[test]
fn gang_header_of_openzfs_verifies() {
    let verifier = embedded::gang_header_verifier(VdevId(0), 0x422a00, Txg(63));
    check(C::GangHeader, &verifier, &block(GANG_HEADER, 512), 472, 512);
}

#[test]
fn zilog_of_openzfs_verifies() {
    check(C::Zilog, &ZILOG_WORDS, &block(ZILOG, 4096), 4056, 4096);
}

#[test]
fn zilog2_of_openzfs_verifies() {
    let mut bytes = block(ZILOG2, 4096);
    check(C::Zilog2, &ZILOG2_WORDS, &bytes, 144, 4096);
    // unused bytes are not covered
    bytes.resize(8192, 0xee);
    check(C::Zilog2, &ZILOG2_WORDS, &bytes, 144, 4096);
}

#[test]
fn blocks_that_cannot_be_are_checksum_errors() {
    let zilog2 = block(ZILOG2, 4096);
    for len in [0, 39, 40, 143, 183, 184, 512, 4095] {
        let error = embedded::verify(C::Zilog2, &ZILOG2_WORDS, &zilog2[..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum, "{len}");
    }
    for nused in [0, 4097, u64::MAX, u64::MAX - 4096] {
        let mut bytes = zilog2.clone();
        bytes[136..144].copy_from_slice(&nused.to_le_bytes());
        let error = embedded::verify(C::Zilog2, &ZILOG2_WORDS, &bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum, "{nused}");
    }
    let error = embedded::verify(C::Label, &[0; 4], &[0; 39]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    // The magic of a big-endian host, and then words that it would not have written.
    let mut foreign = block(LABEL, 8192);
    foreign[8152..8160].reverse();
    let error = embedded::verify(C::Label, &[8192, 0, 0, 0], &foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
}

#[test]
fn what_was_in_a_block_before_does_not_matter_when_it_is_sealed() {
    // The magic of a big-endian host, where a log block's own goes.
    let mut block = vec![0; 4096];
    block[136..144].copy_from_slice(&184u64.to_le_bytes());
    block[144..152].copy_from_slice(&0x0210_da7a_b10c_7a11u64.to_be_bytes());
    embedded::set(C::Zilog2, &ZILOG2_WORDS, &mut block);
    embedded::verify(C::Zilog2, &ZILOG2_WORDS, &block).unwrap();
}

#[test]
fn a_label_of_a_big_endian_host_is_verified() {
    let mut label = block(LABEL, 8192);
    label[8152..8160].reverse();
    label[8160..].fill(0);
    label[8160..8168].copy_from_slice(&8192u64.to_be_bytes());
    // A big-endian host stores the hash as it is.
    let hash: [u8; 32] = sha2::Sha256::digest(&label).into();
    label[8160..].copy_from_slice(&hash);
    embedded::verify(C::Label, &[8192, 0, 0, 0], &label).unwrap();
    assert_eq!(
        embedded::find_label_offset(&label, [0, 8192].into_iter()),
        Some(8192)
    );
    label[7] ^= 1;
    assert!(embedded::verify(C::Label, &[8192, 0, 0, 0], &label).is_err());
}
