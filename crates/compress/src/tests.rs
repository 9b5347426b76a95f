mod openzfs;

use super::*;
use base::ErrorKind;
use proptest::prelude::*;

/// Text, zeros, repetition and noise: something for every algorithm.
fn mixed(len: usize) -> Vec<u8> {
    let mut x = 7u64;
    let mut noise = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    let byte = |i: usize| match i / 500 % 5 {
        0 => b"the quick brown fox "[i % 20],
        1 => 0,
        2 => (i % 3) as u8,
        3 => noise(),
        _ => (i / 7 % 251) as u8,
    };
    (0..len).map(byte).collect()
}

/// Every algorithm that compresses, with only a few of the slow levels.
fn algorithms() -> Vec<Algorithm> {
    Algorithm::all()
        .filter(|a| !matches!(a, Algorithm::Off | Algorithm::Empty))
        .filter(|a| !matches!(a, Algorithm::Zstd(level) if level.get() > 9 && level.get() < 19))
        .collect()
}

/// Compresses into just enough room and back, with padding after it; returns the length.
fn round_trip(algorithm: Algorithm, bytes: &[u8]) -> Option<usize> {
    let mut target = vec![0xaa; bytes.len() + 1024];
    let len = compress(algorithm, bytes, &mut target)?;
    let psize = len.next_multiple_of(512);
    target.resize(psize, 0);
    target[len..].fill(0);
    let mut back = vec![0x55; bytes.len()];
    decompress(algorithm.kind(), &target, &mut back).unwrap();
    assert_eq!(back, bytes, "{algorithm}");
    decompress(algorithm.kind(), &target[..len], &mut back).unwrap();
    Some(len)
}

#[test]
fn every_algorithm_shrinks_what_can_be_shrunk() {
    let bytes = mixed(131_072);
    for algorithm in algorithms() {
        let len = round_trip(algorithm, &bytes).unwrap();
        assert!(
            len <= max_compressed_len(bytes.len()),
            "{algorithm} makes {len}"
        );
    }
}

#[test]
fn nothing_is_stored_that_does_not_fit() {
    let bytes = mixed(20_000);
    for algorithm in algorithms() {
        let len = round_trip(algorithm, &bytes).unwrap();
        let mut target = vec![0; len - 1];
        assert_eq!(
            compress(algorithm, &bytes, &mut target),
            None,
            "{algorithm}"
        );
        for room in 0..40 {
            assert_eq!(compress(algorithm, &bytes, &mut target[..room]), None);
        }
    }
}

#[test]
fn lz4_zstd_and_gzip_use_all_of_the_room() {
    let bytes = mixed(20_000);
    for word in ["lz4", "zstd", "zstd-fast-10", "gzip"] {
        let algorithm = word.parse().unwrap();
        let len = round_trip(algorithm, &bytes).unwrap();
        let mut target = vec![0; len];
        let tight = compress(algorithm, &bytes, &mut target);
        // zstd may need a little more room than its result takes
        assert!(tight == Some(len) || word.starts_with("zstd"), "{word}");
    }
}

/// Bytes that no algorithm makes smaller.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 11u64;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn what_came_before_does_not_change_the_bytes() {
    let bytes = mixed(131_072);
    let (other, noise) = (mixed(5_000), noise(131_072));
    let room = max_compressed_len(noise.len());
    for algorithm in algorithms() {
        let fresh = std::thread::scope(|s| {
            let run = || {
                let mut target = vec![0; bytes.len()];
                let len = compress(algorithm, &bytes, &mut target).unwrap();
                target.truncate(len);
                target
            };
            s.spawn(run).join().unwrap()
        });
        let mut target = vec![0; bytes.len()];
        // each leaves the thread's context in a different state: gave up early, late, ended
        let before: [(&[u8], usize); 4] = [
            (&other, 100),
            (&noise, room),
            (&bytes, fresh.len() - 1),
            (&other, 5_000),
        ];
        for (source, room) in before {
            let _ = compress(algorithm, source, &mut target[..room]);
            let len = compress(algorithm, &bytes, &mut target).unwrap();
            assert!(target[..len] == fresh, "{algorithm} after room for {room}");
        }
    }
}

#[test]
fn blocks_of_noise_and_of_text_take_turns_and_all_come_back() {
    let (text, noise) = (mixed(131_072), noise(131_072));
    let room = max_compressed_len(text.len());
    for algorithm in algorithms() {
        for _ in 0..3 {
            let mut target = vec![0; room];
            assert_eq!(compress(algorithm, &noise, &mut target), None);
            let len = compress(algorithm, &text, &mut target).unwrap();
            let mut back = vec![0; text.len()];
            decompress(algorithm.kind(), &target[..len], &mut back)
                .unwrap_or_else(|e| panic!("{algorithm}: {e}"));
            assert!(back == text, "{algorithm}");
        }
    }
}

#[test]
fn a_damaged_block_does_not_spoil_the_next() {
    let bytes = mixed(131_072);
    for algorithm in algorithms() {
        let mut good = vec![0; bytes.len()];
        let len = compress(algorithm, &bytes, &mut good).unwrap();
        let mut back = vec![0; bytes.len()];
        for (at, bits) in [(0, 0xff), (9, 0x55), (len / 2, 0x10), (len - 1, 1)] {
            let mut damaged = good[..len].to_vec();
            damaged[at] ^= bits;
            let _ = decompress(algorithm.kind(), &damaged, &mut back);
            let _ = decompress(algorithm.kind(), &good[..at], &mut back);
            decompress(algorithm.kind(), &good[..len], &mut back)
                .unwrap_or_else(|e| panic!("{algorithm}: {e}"));
            assert!(back == bytes, "{algorithm}");
        }
    }
}

#[test]
fn property_words_decompress_nothing() {
    for kind in [CompressType::Inherit, CompressType::On, CompressType::Empty] {
        let error = decompress(kind, &[0; 512], &mut [0; 512]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let mut target = [0; 4];
    decompress(CompressType::Off, &[1, 2, 3, 4], &mut target).unwrap();
    assert_eq!(target, [1, 2, 3, 4]);
    assert!(decompress(CompressType::Off, &[1, 2, 3], &mut target).is_err());
}

#[test]
fn a_wrong_logical_size_is_refused() {
    let bytes = mixed(10_000);
    for algorithm in algorithms() {
        let mut target = vec![0; 20_000];
        let len = compress(algorithm, &bytes, &mut target).unwrap();
        let stored = &target[..len];
        let error = decompress(algorithm.kind(), stored, &mut vec![0; 10_001]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{algorithm}");
        // without an end mark, a shorter target is just a prefix
        let endless = matches!(algorithm, Algorithm::Lzjb | Algorithm::Zle);
        let shorter = decompress(algorithm.kind(), stored, &mut vec![0; 9_999]);
        assert!(shorter.is_err() || endless, "{algorithm}");
    }
}

#[test]
fn an_eighth_must_be_saved() {
    assert_eq!(max_compressed_len(131_072), 114_688);
    assert_eq!(max_compressed_len(512), 448);
    assert_eq!(max_compressed_len(0), 0);
    let in_pool =
        |lsize, min_alloc| max_compressed_len_in_pool(Algorithm::Lz4, lsize, min_alloc, min_alloc);
    assert_eq!(in_pool(131_072, 4096), 114_688);
    assert_eq!(in_pool(16_384, 4096), 12_288);
    assert_eq!(in_pool(4096, 4096), 112);
    assert_eq!(in_pool(4096, 512), 3584);
    assert_eq!(
        max_compressed_len_in_pool(Algorithm::Zle, 4096, 4096, 4096),
        3584
    );
}

#[test]
fn zstd_header_says_length_level_and_version() {
    let bytes = mixed(4096);
    let mut target = vec![0; 4096];
    for (word, number) in [("zstd", 3), ("zstd-19", 19), ("zstd-fast-10", 112)] {
        let len = compress(word.parse().unwrap(), &bytes, &mut target).unwrap();
        assert_eq!(target[..4], (len as u32 - 8).to_be_bytes());
        assert_eq!(target[4], number);
        assert_eq!(target[5..8], zstd_safe::version_number().to_be_bytes()[1..]);
        assert_eq!(zstd_level(&target).unwrap().number(), number);
    }
    // version 1.4.5, level 3, as an early big-endian host wrote it
    assert_eq!(
        zstd_level(&[0, 0, 0, 9, 0, 0x28, 0xa5, 3]).unwrap().get(),
        3
    );
    assert_eq!(
        zstd_level(&[0, 0, 0, 9, 3, 0, 0x28, 0xa5]).unwrap().get(),
        3
    );
    assert!(zstd_level(&[0, 0, 0, 9, 0, 0, 0x28, 0xa5]).is_err());
    assert!(zstd_level(&[0; 7]).is_err());
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        (any::<u8>(), 1usize..1000).prop_map(|(byte, len)| vec![byte; len]),
        (prop::collection::vec(any::<u8>(), 1..20), 1usize..100)
            .prop_map(|(word, times)| word.repeat(times)),
        (1usize..300).prop_map(|len| vec![0; len]),
    ];
    prop::collection::vec(piece, 1..10).prop_map(|pieces| pieces.concat())
}

/// A block of a pool: noise, text, or some of each.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let len = prop::sample::select(vec![512usize, 1536, 4096, 32_768, 131_072]);
    (len, 0usize..=4, any::<usize>()).prop_map(|(len, noisy, seed)| {
        let (noise, text) = (noise(len + 4096), mixed(len + 4096));
        let start = seed % 4096;
        let cut = len * noisy / 4;
        [&noise[start..start + cut], &text[start..start + len - cut]].concat()
    })
}

fn kind() -> impl Strategy<Value = CompressType> {
    prop::sample::select(CompressType::ALL)
}

proptest! {
    #[test]
    fn prop_round_trip(bytes in data(), algorithm in prop::sample::select(algorithms())) {
        round_trip(algorithm, &bytes);
    }

    #[test]
    fn prop_any_sequence_of_blocks_through_one_thread_comes_back(
        pair in prop::sample::subsequence(algorithms(), 2),
        blocks in prop::collection::vec((block(), 0usize..5, 2usize..=7), 2..16),
    ) {
        for (bytes, which, eighths) in blocks {
            let algorithm = pair[which / 4];
            let mut target = vec![0; bytes.len() * eighths / 8];
            if let Some(len) = compress(algorithm, &bytes, &mut target) {
                let mut back = vec![0; bytes.len()];
                let outcome = decompress(algorithm.kind(), &target[..len], &mut back);
                prop_assert!(outcome.is_ok(), "{:?}", outcome);
                prop_assert!(back == bytes, "{} of {} bytes", algorithm, bytes.len());
            }
        }
    }

    #[test]
    fn prop_compressing_into_any_room_is_safe(
        bytes in data(), algorithm in prop::sample::select(algorithms()), room in 0usize..3000,
    ) {
        let mut target = vec![0; room];
        if let Some(len) = compress(algorithm, &bytes, &mut target) {
            let mut back = vec![0; bytes.len()];
            decompress(algorithm.kind(), &target[..len], &mut back).unwrap();
            prop_assert_eq!(back, bytes);
        }
    }

    #[test]
    fn prop_garbage_never_panics(
        kind in kind(), bytes in prop::collection::vec(any::<u8>(), 0..600), lsize in 0usize..3000,
    ) {
        let _ = decompress(kind, &bytes, &mut vec![0; lsize]);
    }

    #[test]
    fn prop_damage_never_panics(
        bytes in data(),
        algorithm in prop::sample::select(algorithms()),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut target = vec![0; bytes.len() * 2 + 1024];
        let len = compress(algorithm, &bytes, &mut target).unwrap();
        target.truncate(len);
        for (at, bits) in flips {
            *at.get_mut(&mut target) ^= bits;
        }
        let mut back = vec![0; bytes.len()];
        let _ = decompress(algorithm.kind(), &target, &mut back);
        let _ = decompress(algorithm.kind(), &target[..cut.index(len)], &mut back);
    }
}
