//! Encrypted blocks: what their MAC says of a copy, and what their checksum.

use base::{Buf, ErrorKind};
use crypt::{DataKey, Suite};
use phys::{BlkPtrPhys, DvaPhys, ObjectType};

use super::{Bench, TXG, bench, bookmark, mixed, noise, plain, request};
use crate::{BlockStore, WritePolicy, WriteRequest};

impl Bench {
    /// Loads the key of all blocks here, made from this byte.
    fn load(&self, suite: Suite, byte: u8) {
        let mut fill = |bytes: &mut [u8]| bytes.fill(byte);
        let key = DataKey::generate(suite, &mut fill);
        self.pipeline.keys().insert(bookmark().objset, key);
    }

    fn stored(&self, dva: &DvaPhys, bp: &BlkPtrPhys) -> Vec<u8> {
        self.vdevs.bytes_at(dva, bp.psize() as usize)
    }

    /// Changes the last word of the first copy so that its checksum stays right.
    fn damage_unnoticed(&self, bp: &BlkPtrPhys) {
        let last_word = bp.psize() - 4..bp.psize();
        let mut changes = last_word.flat_map(|at| (1..=255).map(move |bits| (at, bits)));
        let is_unnoticed = |(at, bits)| {
            self.vdevs.flip(&bp.dva[0], at, bits);
            let passes = self.pipeline.verifies(bp, &self.stored(&bp.dva[0], bp));
            if !passes {
                self.vdevs.flip(&bp.dva[0], at, bits);
            }
            passes
        };
        assert!(changes.any(is_unnoticed), "no change is unnoticed");
    }

    fn assert_whole(&self, bp: &BlkPtrPhys) {
        let report = self.pipeline.verify_physical(bp, &bookmark()).unwrap();
        assert_eq!((report.bad, report.repaired), (0, 0));
    }
}

fn encrypted(data: Buf, policy: WritePolicy) -> WriteRequest {
    let policy = WritePolicy {
        encrypt: true,
        copies: 2,
        ..policy
    };
    request(data, policy)
}

/// Blocks of each kind: of which the MAC covers all, also compressed or in half a sector; and dnodes.
fn kinds() -> Vec<(Buf, WriteRequest)> {
    let dnodes = Buf::zeroed(16_384);
    [
        (noise(131_072, 4), plain(), None),
        (mixed(131_072, 40, 4), WritePolicy::default(), None),
        (noise(1536, 4), plain(), None),
        (dnodes, plain(), Some(ObjectType::DNODE.raw())),
    ]
    .map(|(data, policy, type_)| {
        let mut request = encrypted(data.clone(), policy);
        request.object_type = type_.unwrap_or(request.object_type);
        (data, request)
    })
    .into()
}

#[test]
fn a_bad_copy_is_healed_with_what_is_stored() {
    for suite in Suite::ALL {
        for (data, request) in kinds() {
            let bench = bench(12);
            bench.load(suite, 1);
            let bp = bench.write(request);
            let was = bench.stored(&bp.dva[0], &bp);
            assert_eq!(was, bench.stored(&bp.dva[1], &bp));
            for at in [0, bp.psize() - 1] {
                bench.vdevs.damage(&bp.dva[0], at);
                assert_eq!(&*bench.read(&bp).unwrap(), &*data);
                assert!(bench.stored(&bp.dva[0], &bp) == was, "{suite}");
            }
            assert_eq!(bench.pipeline.stats().healed, 2);
            bench.assert_whole(&bp);
        }
    }
}

#[test]
fn with_another_key_the_copies_are_good_and_the_block_is_not() {
    for (data, request) in kinds() {
        let bench = bench(12);
        bench.load(Suite::Aes256Gcm, 1);
        let bp = bench.write(request);
        let was = bench.stored(&bp.dva[0], &bp);
        bench.load(Suite::Aes256Gcm, 2);
        let writes = bench.vdevs.state.lock().writes;
        let error = bench.read(&bp).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checksum);
        assert!(error.context().contains("the MAC is wrong"), "{error}");
        assert_eq!(bench.vdevs.state.lock().writes, writes);

        // A copy that really is bad is told from it, and healed.
        bench.vdevs.damage(&bp.dva[0], 3);
        let error = bench.read(&bp).unwrap_err();
        assert!(error.context().contains("the MAC is wrong"), "{error}");
        assert!(bench.stored(&bp.dva[0], &bp) == was);
        bench.load(Suite::Aes256Gcm, 1);
        assert_eq!(&*bench.read(&bp).unwrap(), &*data);
        bench.assert_whole(&bp);
    }
}

/// Fletcher4 is folded where it is beside a MAC: many a change of the last word goes unnoticed.
#[test]
fn a_bad_copy_with_the_right_checksum_is_told_by_its_mac() {
    for (data, request) in kinds() {
        let bench = bench(12);
        bench.load(Suite::Aes128Gcm, 1);
        let bp = bench.write(request);
        let was = bench.stored(&bp.dva[0], &bp);
        bench.damage_unnoticed(&bp);
        assert_eq!(&*bench.read(&bp).unwrap(), &*data);
        assert!(bench.stored(&bp.dva[0], &bp) == was);
        assert_eq!(bench.pipeline.stats().healed, 1);
        assert_eq!(bench.vdevs.state.lock().checksum_errors, 1);
    }
}

#[test]
fn without_a_good_copy_the_checksum_is_what_is_wrong() {
    let bench = bench(12);
    bench.load(Suite::Aes128Gcm, 1);
    let bp = bench.write(encrypted(noise(8192, 4), plain()));
    bp.dvas().for_each(|dva| bench.vdevs.damage(&dva, 100));
    let error = bench.read(&bp).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checksum);
    assert!(!error.context().contains("MAC"), "{error}");
}

#[test]
fn encrypted_gangs_are_opened_whole() {
    let bench = bench(12);
    bench.load(Suite::Aes256Gcm, 1);
    bench.space.fragment(16_384);
    let data = noise(131_072, 4);
    let bp = bench.write(encrypted(data.clone(), plain()));
    assert!(bp.is_gang());
    bench.vdevs.damage(&bp.dva[0], 20);
    assert_eq!(&*bench.read(&bp).unwrap(), &*data);
    bench.assert_whole(&bp);
    bench.pipeline.free(TXG, &bp);
    assert_eq!(bench.space.allocated(), 0);
}
