use super::*;
use base::Buf;
use proptest::prelude::*;
use ram::Memory;
use sha2::{Digest, Sha256};
use std::sync::mpsc;

use crate::{AuthAlgorithm, Cipher, MasterKey};

fn attached(version: u32, ealgo: Cipher, keylen: u16, sectorsize: u32) -> Attached {
    Attached {
        version,
        flags: Flags::default(),
        ealgo,
        keylen,
        aalgo: None,
        provsize: 0,
        sectorsize,
        nkey: Some(0),
        mkey: MasterKey(std::array::from_fn(|n| n as u8)),
    }
}

fn open(disk: &Arc<Memory>, what: &Attached) -> Arc<Eli> {
    let what = Attached {
        provsize: disk.mediasize(),
        ..what.clone()
    };
    Eli::open(disk.clone(), "md0.eli", &what).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// Ciphertext of four sectors of a pattern, for the master key 00 01 02 …: computed with
/// Python's `hmac` and `cryptography` from docs/spec/geli.md.
#[test]
fn writes_the_bytes_of_the_format() {
    use AuthAlgorithm::{HmacSha1, HmacSha256, HmacSha384, HmacSha512};
    use Cipher::{AesCbc, AesXts, Null};
    type Case = (
        u32,
        Cipher,
        u16,
        Option<AuthAlgorithm>,
        u32,
        u64,
        &'static str,
    );
    #[rustfmt::skip]
    let cases: &[Case] = &[
        (7, AesXts, 128, None, 4096, 0, "6df0a6d9a019d273114f6f5a85c850ac8a7539c9cf5c64ed51850bcc5d73ffdd"),
        (7, AesXts, 256, None, 4096, (4 << 30) - 8192, "852834d8d814530dd457279e21820fbc26cbde2f7aa1c14e465187bed32ebc72"),
        (6, AesXts, 128, None, 512, (512 << 20) - 1024, "7ac93c9719f282c4e7c19e0cc215c28fda97edd551fd3ad06b3c71042b4da100"),
        (5, AesXts, 256, None, 512, 4096, "9cf9b0bb0dc5a5c7a427c2aa63d3bd14c2c989c6625972007d24ba4f6149f0ef"),
        (4, AesCbc, 128, None, 512, 1 << 20, "a9c47f2decb9d72b32f42d3a9c5fe4469b7fa46312ad03256d4c7d01b4768934"),
        (7, AesCbc, 256, None, 4096, (4 << 30) - 8192, "625096b48efbd0e1361ee2a19de582b49a6f9faf30403cb7871358a6453314f4"),
        (3, AesCbc, 192, None, 512, 512, "4752cb73c07188473a5178f72b6b0c990d0b3f1a75341f0a40587fc066dda004"),
        (0, AesCbc, 128, None, 512, 512, "7c0fdd2a9c30de94fc38aaa4bb7c0fa5fa1161ae1b417c26e8c91b4da6911963"),
        (7, AesXts, 128, Some(HmacSha256), 4096, 0, "b24208a0c32e095d90be6343b70d9aa8371e2b6f7ae2857444a4331350c58655"),
        (7, AesXts, 128, Some(HmacSha256), 4096, (480 << 20) - 8192, "07c9d93ece86da952cb8ce481bafa71a44363eef0abc2f041dfc72cc244eca77"),
        (6, AesCbc, 128, Some(HmacSha512), 1024, 1 << 20, "cda67afb05b538c1761240097b4f6daefdd2e2fc725091a7c4e9211662fc8bef"),
        (5, AesXts, 128, Some(HmacSha1), 4096, 1 << 30, "4c07a918c1ffa264edb21bf69bdb5480569f53de2eee2665c77bc9153ffb7f28"),
        (4, AesCbc, 256, Some(HmacSha384), 512, 51_200, "92dc4d89923dce65e703422aa6d02729dccedccfa0277433101ceef785dd5a2c"),
        (7, Null, 512, Some(HmacSha256), 4096, 4096, "c3c0b7b92ae75fd10ec7ca6e7435e1dcf0242f695b224e728b853af7905295bb"),
    ];
    for (version, cipher, keylen, aalgo, sectorsize, offset, expected) in cases {
        let disk = Arc::new(Memory::new("md0", 8 << 30));
        let mut what = attached(*version, *cipher, *keylen, *sectorsize);
        what.aalgo = *aalgo;
        let eli = open(&disk, &what);
        let plain = pattern(4 * *sectorsize as usize);
        eli.write(*offset, &plain).unwrap();
        let mut below = vec![0; eli.core.len_below(plain.len())];
        disk.read(eli.core.geometry.offset_below(*offset), &mut below)
            .unwrap();
        let hash: String = Sha256::digest(&below)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hash, *expected, "version {version}, {cipher}, {aalgo:?}");
        let mut back = vec![0; plain.len()];
        eli.read(*offset, &mut back).unwrap();
        assert!(back == plain, "version {version}, {cipher}, {aalgo:?}");
    }
}

#[test]
fn sizes_are_those_of_geli() {
    let disk = Arc::new(Memory::new("md0", 1_000_000 * 512));
    let eli = open(&disk, &attached(7, Cipher::AesXts, 128, 4096));
    assert_eq!(eli.mediasize(), (1_000_000 * 512 - 512) / 4096 * 4096);
    assert_eq!((eli.sectorsize(), eli.stripesize()), (4096, 4096));
    assert_eq!(eli.keys_total(), 1);
    let eli = open(&disk, &attached(7, Cipher::AesXts, 128, 512));
    assert_eq!(eli.mediasize(), 999_999 * 512);
    let mut auth = attached(7, Cipher::AesXts, 128, 4096);
    auth.aalgo = Some(AuthAlgorithm::HmacSha256);
    assert_eq!(open(&disk, &auth).mediasize(), 999_999 / 9 * 4096);
    let mut onetime = attached(7, Cipher::AesXts, 128, 512);
    onetime.flags = Flags::ONETIME;
    assert_eq!(open(&disk, &onetime).mediasize(), 1_000_000 * 512);
    let big = Arc::new(Memory::new("md1", 10 << 30));
    let eli = open(&big, &attached(7, Cipher::AesXts, 128, 4096));
    assert_eq!(eli.keys_total(), 3);
    let eli = open(&big, &attached(4, Cipher::AesCbc, 128, 4096));
    assert_eq!(eli.keys_total(), 1);
}

#[test]
fn refuses_what_does_not_fit() {
    let open = |below: (u32, u64), sectorsize, provsize| {
        let disk = Arc::new(Memory::with_sectors("md0", below.1, below.0, below.0));
        let what = Attached {
            provsize,
            ..attached(7, Cipher::AesXts, 128, sectorsize)
        };
        Eli::open(disk, "md0.eli", &what)
            .err()
            .map(|e| e.to_string())
    };
    let size = 1 << 20;
    assert_eq!(open((512, size), 4096, size), None);
    assert_eq!(open((512, size + 512), 4096, size), None);
    for (below, sectorsize, provsize) in [
        ((4096, size), 512, size),
        ((512, size), 1536, size),
        ((512, size), 0, size),
        ((512, size), 512, size + 512),
        ((512, size), 1 << 20, size),
        ((512, 1024), 512, 0),
    ] {
        let error = open(below, sectorsize, provsize);
        assert!(error.is_some(), "{below:?} {sectorsize} {provsize}");
    }
}

#[test]
fn the_place_of_a_sector_is_in_its_ciphertext() {
    let disk = Arc::new(Memory::new("md0", 64 << 20));
    let mut auth = attached(7, Cipher::AesXts, 128, 4096);
    auth.aalgo = Some(AuthAlgorithm::HmacSha256);
    for what in [
        attached(7, Cipher::AesXts, 256, 4096),
        attached(7, Cipher::AesCbc, 128, 4096),
        auth,
    ] {
        let eli = open(&disk, &what);
        eli.write(0, &[9; 1 << 16]).unwrap();
        let mut below = vec![0; eli.core.len_below(1 << 16)];
        disk.read(0, &mut below).unwrap();
        let per_sector = below.len() / 16;
        let sectors: Vec<&[u8]> = below.chunks(per_sector).collect();
        for (n, sector) in sectors.iter().enumerate() {
            assert!(sectors[..n].iter().all(|other| other != sector));
        }
        // A sector moved to another one's place does not decrypt to its content.
        disk.write(0, &below[per_sector..2 * per_sector]).unwrap();
        let mut back = [0; 4096];
        match eli.read(0, &mut back) {
            Ok(()) => assert_ne!(back, [9; 4096]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Checksum),
        }
    }
}

#[test]
fn authentication_finds_every_flipped_bit() {
    let disk = Arc::new(Memory::new("md0", 1 << 20));
    let mut what = attached(7, Cipher::AesXts, 128, 1024);
    what.aalgo = Some(AuthAlgorithm::HmacSha1);
    let eli = open(&disk, &what);
    eli.write(2048, &pattern(1024)).unwrap();
    let at = eli.core.geometry.offset_below(2048);
    let mut below = vec![0; eli.core.len_below(1024)];
    disk.read(at, &mut below).unwrap();
    let (mut found, mut back) = (0, [0; 1024]);
    for byte in 0..below.len() {
        let mut damaged = below.clone();
        damaged[byte] ^= 4;
        disk.write(at, &damaged).unwrap();
        match eli.read(2048, &mut back) {
            Ok(()) => assert_eq!(back[..], pattern(1024)[..], "byte {byte}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Checksum);
                found += 1;
            }
        }
    }
    // All but what no part of the sector uses.
    assert_eq!(found, 3 * 20 + 1024);
    // A sector that was never written has no code either.
    assert!(eli.read(0, &mut back).is_err());
    assert!(eli.delete(0, 1024).is_err());
}

#[test]
fn flags_are_obeyed() {
    let disk = Arc::new(Memory::new("md0", 1 << 20));
    let mut what = attached(7, Cipher::AesXts, 128, 512);
    what.flags = Flags::RO;
    let eli = open(&disk, &what);
    assert_eq!(
        eli.write(0, &[0; 512]).unwrap_err().kind(),
        ErrorKind::ReadOnly
    );
    assert_eq!(eli.delete(0, 512).unwrap_err().kind(), ErrorKind::ReadOnly);
    what.flags = Flags::NODELETE;
    let eli = open(&disk, &what);
    eli.write(0, &[1; 512]).unwrap();
    assert_eq!(
        eli.delete(0, 512).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    what.flags = Flags::default();
    open(&disk, &what).delete(0, 512).unwrap();
    assert!(eli.read(256, &mut [0; 512]).is_err());
    assert!(eli.write(eli.mediasize(), &[0; 512]).is_err());
}

#[test]
fn queued_and_blocking_commands_agree() {
    let disk = Arc::new(Memory::new("md0", 1 << 20));
    let mut auth = attached(7, Cipher::AesXts, 128, 4096);
    auth.aalgo = Some(AuthAlgorithm::HmacSha256);
    for what in [attached(7, Cipher::AesXts, 128, 4096), auth] {
        let eli = open(&disk, &what);
        let (sender, receiver) = mpsc::channel();
        let submit = |op, offset| {
            let sender = sender.clone();
            let done = Box::new(move |result| sender.send(result).unwrap());
            eli.submit(Bio { op, offset, done });
            receiver.recv().unwrap()
        };
        let plain = pattern(8192);
        submit(BioOp::Write(Buf::copy_of(&plain)), 4096).unwrap();
        submit(BioOp::Flush, 0).unwrap();
        let mut back = vec![0; 8192];
        eli.read(4096, &mut back).unwrap();
        assert!(back == plain);
        eli.execute(0, Command::Write(&[&plain[..4096], &plain[..8192]]))
            .unwrap();
        let read = submit(BioOp::Read { len: 12_288 }, 0).unwrap().into_read();
        assert!(read[..4096] == plain[..4096] && read[4096..] == plain[..]);
        assert!(submit(BioOp::Read { len: 512 }, 0).is_err());
    }
}

#[test]
fn attached_is_kept_as_text() {
    let mut what = attached(7, Cipher::AesXts, 256, 4096);
    what.aalgo = Some(AuthAlgorithm::HmacSha512);
    let text = toml::to_string(&what).unwrap();
    assert!(text.contains("ealgo = \"AES-XTS\""), "{text}");
    assert!(text.contains("mkey = \"000102"), "{text}");
    assert_eq!(toml::from_str::<Attached>(&text).unwrap(), what);
    assert!(toml::from_str::<Attached>(&format!("{text}\nnkeys = 3")).is_err());
    assert!(toml::from_str::<Attached>(&text.replace("mkey = \"00", "mkey = \"0x")).is_err());
    assert!(!format!("{what:?}").contains("00, 1, 2"));
}

fn ciphers() -> impl Strategy<Value = Attached> {
    use AuthAlgorithm::{HmacSha1, HmacSha256, HmacSha512};
    let cipher = prop::sample::select(vec![
        (7, Cipher::AesXts, 128),
        (7, Cipher::AesXts, 256),
        (5, Cipher::AesXts, 128),
        (7, Cipher::AesCbc, 128),
        (2, Cipher::AesCbc, 256),
        (7, Cipher::Null, 512),
    ]);
    let auth = prop::sample::select(vec![
        None,
        None,
        Some(HmacSha1),
        Some(HmacSha256),
        Some(HmacSha512),
    ]);
    let sector = prop::sample::select(vec![512u32, 1024, 4096]);
    (cipher, auth, sector).prop_map(|((version, cipher, bits), auth, sector)| {
        let mut what = attached(version, cipher, bits, sector);
        what.aalgo = auth.filter(|_| version > 0);
        what
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn prop_reads_what_was_written(
        what in ciphers(),
        ops in prop::collection::vec((0u64..64, 1usize..20, any::<u8>(), any::<bool>()), 1..20),
    ) {
        // The first key ends within the range.
        let sector = u64::from(what.sectorsize);
        let disk = Arc::new(Memory::new("md0", 6 << 30));
        let eli = open(&disk, &what);
        let unit = eli.core.geometry.spread.as_ref().map_or(sector, |_| 512);
        let above = if unit == sector { unit << 20 } else { (unit << 20) / eli.core.len_below(sector as usize) as u64 * sector };
        let base = above / sector * sector - 32 * sector;
        let mut model = vec![0u8; (84 * sector) as usize];
        eli.write(base, &model).unwrap();
        for (at, count, fill, is_vectored) in ops {
            let data: Vec<u8> = (0..count * sector as usize).map(|n| fill.wrapping_add(n as u8)).collect();
            let start = (at * sector) as usize;
            model[start..start + data.len()].copy_from_slice(&data);
            let offset = base + at * sector;
            if is_vectored {
                let (head, tail) = data.split_at(sector as usize);
                eli.execute(offset, Command::Write(&[head, tail])).unwrap();
            } else {
                eli.write(offset, &data).unwrap();
            }
            let mut back = vec![0; data.len()];
            eli.read(offset, &mut back).unwrap();
            prop_assert!(back == data);
        }
        let mut back = vec![0; model.len()];
        eli.read(base, &mut back).unwrap();
        prop_assert!(back == model);
    }
}
