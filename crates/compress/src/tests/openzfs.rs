//! Blocks that OpenZFS wrote: one 4 KiB file, written with each algorithm.
//!
//! Made with OpenZFS 2.3.2 on Linux (its zstd is 1.4.5): a pool with `ashift=9` and
//! `feature@embedded_data=disabled`, a file system for each algorithm; block pointers by
//! `zdb -bbbbbb`, bytes read from the disk image without trailing zeros.

use crate::{Algorithm, compress, decompress, max_compressed_len};

/// The contents of the file.
fn file() -> Vec<u8> {
    let byte = |i: usize| match i {
        0..2048 if i % 14 == 13 => b'0' + (i / 14 % 10) as u8,
        0..2048 => b"uberblock txg "[i % 14],
        2048..3072 => 0,
        3072..3168 => ((i as u64 * 2_654_435_761) >> 24) as u8,
        _ => b'z',
    };
    (0..4096).map(byte).collect()
}

/// What was on disk, by value of the property.
const STORED: &[(&str, &str)] = &[
    (
        "lz4",
        "\
         000000b8e975626572626c6f636b20747867300e0019310e0019320e0019330e0019340e\
         0019350e0019360e0019370e0019380e0019390e000f8c00ffffffffffffff5b1f000100\
         ffffffefff539937d67412b04fed8b29c76604a240de7d1bb957f69432d06e0dab49e785\
         24c260fe9d3bd97715b452f08e2dcb6907a544e2801ebc5bf99735d47210ae4ceb8927c5\
         6402a03edc7b19b755f39230ce6c0ba947e58322c05efc9a39d77513b2507a7a0200ffff\
         ff89507a7a7a7a7a",
    ),
    (
        "lzjb",
        "\
         0075626572626c6f63406b2074786730280e3155280e32280e33280e34280e3555280e36\
         280e37280e38280e39ff280efc8c04d2fc8c0446fc8c0446fc8cff0446fc8c0446fc8c04\
         46fc8c0446fc8cff0446fc8c0446fc8c0446fc8c0446fc8cff0446fc8c0446fc8c0446fc\
         8c0446fc8cff0446fc8c0446fc8c0446fc8c0446fc8cff0446fc8c0446fc8c0446fc8c04\
         46fc8cff0446fc8c0446fc8c0446fc8c0446088cfe00fc01fc42fc42fc42fc42fc42fc42\
         fffc42fc42fc42fc42fc42fc42fc42fc420178429937d67412b04f00ed8b29c76604a240\
         00de7d1bb957f6943200d06e0dab49e7852400c260fe9d3bd9771500b452f08e2dcb6907\
         00a544e2801ebc5bf9009735d47210ae4ceb008927c56402a03edc007b19b755f39230ce\
         006c0ba947e58322c0005efc9a39d77513b2fc507afc01fc42fc42fc42fc42fc42fffc42\
         fc42fc42fc42fc42fc42fc42fc42007a7a7a",
    ),
    (
        "gzip-1",
        "\
         78012b4d4a2d4acac94fce5628a948372845e619a2f08c5078c6283c13149e290acf0c85\
         678ec2b340e159a2f046dd028b95d1708185c4687a8185c4683e8285c468f9020b89d172\
         171612a3f5112c2408d6d30ca3603404464360c486c04cf36b25421bfcdf766b1e4f6359\
         e470af567a67f8b7294617f278577b3e6f553994f06faef5cd72d12d411ffa744f67b22f\
         7579d420b727fae774d32b4502eb7c5e77aa1f4d615a6077a75a727be8e74906e772b857\
         ba3f6d563a10f76796e5f552e14d0155a3603404464360d0860000c059fcd8",
    ),
    (
        "gzip-9",
        "\
         78da2b4d4a2d4acac94fce5628a948372845e619a2f08c5078c6283c13149e290acf0c85\
         678ec2b340e159968eba65d42da36e1975cba85b46dd32ea16bab88561148c82513062c1\
         4cf36b25421bfcdf766b1e4f6359e470af567a67f8b7294617f278577b3e6f553994f06f\
         aef5cd72d12d411ffa744f67b22f7579d420b727fae774d32b4502eb7c5e77aa1f4d615a\
         6077a75a727be8e74906e772b857ba3f6d563a10f76796e5f552e14d0155a360148c8241\
         0b00c059fcd8",
    ),
    (
        "zstd-3",
        "\
         0000011c030028a50010bd080016903c3220810906b3d3199902f99c7615bcefa4d9b271\
         917db41b3a029ec18aa3529be02d4cd2ad524f29a594fe06024a21321f62042700220033\
         0078dfbc7935f1be79f36ae27df3e6d5c4fbe6cdab89f7cd9b57130fc545f6a042c2027b\
         c54c5eb3cdab89f7cd9b5713ef9b37af26de376f5e4dbc6fdebc9a78dfbc7935f1be79f3\
         6a063d0346962268b234840e56a03207000852438cd5c50fc149d384cd160751824cca77\
         047835f1be79f36ae27df3e6d5c4fbe6012f1d450ab3a9e71120a2043183951164007b3a\
         9cae8f2306982a0b9f811226891aad8d21845814eb0408497290b9c2002a4871a2b8e1f2\
         305a68a1aa088094a811f0eb977e00f00501120010f8fefaffff012167e0c79ffe4500a9\
         06c9ff01",
    ),
    (
        "zstd-19",
        "\
         0000009e130028a50010cd0400940775626572626c6f636b207478673031323334353637\
         3839009937d67412b04fed8b29c76604a240de7d1bb957f69432d06e0dab49e78524c260\
         fe9d3bd97715b452f08e2dcb6907a544e2801ebc5bf99735d47210ae4ceb8927c56402a0\
         3edc7b19b755f39230ce6c0ba947e58322c05efc9a39d77513b2507a0c2880995807107e\
         76feff7f78216730f88fb2b81fe5b1e530e1c0866b4a",
    ),
    (
        "zstd-fast-10",
        "\
         0000016d700028a50010450b00e41375626572626c6f636b207478673075626572626c6f\
         636b207478673175626572626c6f636b207478673275626572626c6f636b207478673334\
         353637383930313233343536373839303132333435363738393031323334353637383930\
         313233343536373839303132333435363738393031323334353637383930313233343536\
         373839303132333435363738393031323334353637383930313233343536373839303132\
         333435363738393031323334353637383930313233343536373839303132333400000000\
         0000000000009937d67412b04fed8b29c76604a240de7d1bb957f69432d06e0dab49e785\
         24c260fe9d3bd97715b452f08e2dcb6907a544e2801ebc5bf99735d47210ae4ceb8927c5\
         6402a03edc7b19b755f39230ce6c0ba947e58322c05efc9a39d77513b2507a7a7a7a7a7a\
         7a7a7a7a7a7a7a7a7a8091a801f47df40f00e015410012081078fefaffff01af63e0e7e7\
         f7fbfdc7250800040ab7c7f701",
    ),
];

/// psize and cksum of the block pointer (fletcher4).
const SAME_BYTES: &[(&str, usize, [u64; 4])] = &[
    (
        "lzjb",
        0x200,
        [
            0x24446e5bb8,
            0xba31de832d7,
            0x2097b060c4e6a,
            0x41608656bc6355,
        ],
    ),
    (
        "zle",
        0xe00,
        [
            0x1447d90950f,
            0x26955c0f35e09,
            0x2cd8c552f25f1b6,
            0x713c09d4013ba87f,
        ],
    ),
];

fn unhex(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

#[test]
fn reads_what_openzfs_wrote() {
    for (word, hex) in STORED {
        let algorithm: Algorithm = word.parse().unwrap();
        let mut stored = unhex(hex);
        if let Algorithm::Zstd(level) = algorithm {
            assert_eq!(crate::zstd_level(&stored).unwrap(), level);
        }
        let mut block = vec![0; 4096];
        decompress(algorithm.kind(), &stored, &mut block).unwrap();
        assert_eq!(block, file(), "{word}");

        stored.resize(stored.len().next_multiple_of(512), 0);
        block.fill(0xff);
        decompress(algorithm.kind(), &stored, &mut block).unwrap();
        assert_eq!(block, file(), "{word}, padded");
    }
}

#[test]
fn lzjb_and_zle_make_the_bytes_of_openzfs() {
    for (word, psize, cksum) in SAME_BYTES {
        let algorithm: Algorithm = word.parse().unwrap();
        let mut stored = vec![0; 4096];
        let room = max_compressed_len(4096);
        let len = compress(algorithm, &file(), &mut stored[..room]).unwrap();
        stored[len..].fill(0);
        let [mut a, mut b, mut c, mut d] = [0u64; 4];
        for word in stored[..*psize].as_chunks::<4>().0 {
            a += u64::from(u32::from_le_bytes(*word));
            b += a;
            c += b;
            d = d.wrapping_add(c);
        }
        assert_eq!([a, b, c, d], *cksum, "{word}");
    }
}
