//! Reads a pool's history out of a ring, and the bonus that describes it, that are the input.
#![no_main]

use base::ObjectId;
use libfuzzer_sys::fuzz_target;
use phys::{HistoryPhys, ObjectType, Phys};
use spa::History;
use zap::NewZap;

#[path = "../common/objset.rs"]
mod objset;

fuzz_target!(|input: &[u8]| {
    let (mos, tx) = objset::new();
    let directory = NewZap::new(ObjectType::OBJECT_DIRECTORY);
    zap::create_claim(&mos, &tx, ObjectId(1), &directory).expect("memory");
    let history = History::create(&mos, 1 << 30, &tx).expect("memory");
    let dnode = mos.hold(history.object()).expect("it was made");
    let (bonus, ring) = input.split_at(input.len().min(HistoryPhys::SIZE));
    dnode.write(&tx, 0, ring).expect("memory");
    let mut whole = vec![0; HistoryPhys::SIZE];
    whole[..bonus.len()].copy_from_slice(bonus);
    dnode.set_bonus(&tx, &whole).expect("it fits");
    let _ = history.for_each(&mut |_| Ok(()));
    let _ = history.append(
        &nvpair::NvList::new().with("history command", "x"),
        true,
        &tx,
    );
    let _ = history.for_each(&mut |_| Ok(()));
});
