//! Walks an intent log whose blocks are the input: each begins with a chain entry out of it, which
//! is sealed, and names the next one if the input wants it.
#![no_main]

use base::{Buf, ObjsetId, Result, Txg};
use libfuzzer_sys::fuzz_target;
use phys::{ChecksumType, LrPhys, Phys, ZilChainPhys, ZilHeaderPhys};
use zil::{Visitor, parse};
use ram::RamStore;
use zio::{Bookmark, LogStore, NewLogBlock};

const BLOCK_BYTES: u64 = 4096;

/// Looks at everything.
struct Reader;

impl Visitor for Reader {
    fn record(&mut self, common: &LrPhys, record: &[u8]) -> Result<()> {
        assert!(common.reclen.get() as usize >= record.len() || record.len() >= LrPhys::SIZE);
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[flags, count], mut bytes)) = input.split_first_chunk() else {
        return;
    };
    let kind = if flags & 1 == 0 {
        ChecksumType::Zilog2
    } else {
        ChecksumType::Zilog
    };
    let store = RamStore::new();
    let objset = ObjsetId(21);
    let verifier = |seq| [0x1234, 0x5678, objset.0, seq];
    let blocks: Vec<_> = (1..=u64::from(count % 4) + 1)
        .map(|seq| {
            store
                .alloc_log(&NewLogBlock {
                    txg: Txg(5),
                    size: BLOCK_BYTES,
                    checksum: kind,
                    verifier: verifier(seq),
                    keeps_to_logs: false,
                })
                .expect("memory")
        })
        .collect();
    for (i, bp) in blocks.iter().enumerate() {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let len = bytes.len().min(block.len());
        block[..len].copy_from_slice(&bytes[..len]);
        bytes = &bytes[len..];
        let at = if kind == ChecksumType::Zilog2 {
            0
        } else {
            block.len() - ZilChainPhys::SIZE
        };
        let mut chain = ZilChainPhys::read(&block[at..]).expect("there is room");
        if let Some(next) = blocks.get(i + 1).filter(|_| flags & 2 == 0) {
            chain.next_blk = *next;
        }
        // what is sealed is what a writer could have counted
        if kind == ChecksumType::Zilog2 {
            let least = ZilChainPhys::SIZE as u64;
            chain.nused.set(least + chain.nused.get() % (BLOCK_BYTES - least + 1));
        }
        chain.write(&mut block[at..]);
        store
            .write_log(bp, Buf::copy_of(&block), &Bookmark::default())
            .expect("memory");
    }
    let mut header = ZilHeaderPhys::read(&[0; ZilHeaderPhys::SIZE]).expect("it has the size");
    header.log = blocks[0];
    if flags & 4 != 0 {
        header.claim_txg.set(5);
        header.claim_blk_seq.set(u64::from(flags >> 3));
        header.claim_lr_seq.set(u64::from(flags >> 4));
        header.flags.set(u64::from(count >> 4));
    }
    let _ = parse(&store, objset, &header, &mut Reader);
});
