//! Objects against a model: bytes, sizes, bonus, spill, over many txgs and reopens.

mod rig;

use std::collections::BTreeMap;

use base::{BlkId, Buf, ErrorKind, ObjectId, ObjsetId};
use compress::Algorithm;
use dmu::{Dnode, NewObject, OBJECT_END, ObjsetProps, TxgSettings};
use phys::ObjectType;
use proptest::prelude::*;
use rig::{Pool, behind};

/// Bytes that the model looks at.
const REACH: usize = 160 << 10;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        shape: usize,
    },
    Free {
        object: usize,
    },
    Write {
        object: usize,
        offset: usize,
        len: usize,
        seed: u8,
    },
    WriteBlock {
        object: usize,
        block: usize,
        seed: u8,
    },
    Modify {
        object: usize,
        offset: usize,
        seed: u8,
    },
    Punch {
        object: usize,
        offset: usize,
        len: usize,
    },
    Truncate {
        object: usize,
        offset: usize,
    },
    Blksz {
        object: usize,
        blksz: u64,
    },
    Bonus {
        object: usize,
        len: usize,
        seed: u8,
    },
    Spill {
        object: usize,
        len: usize,
        seed: u8,
    },
    Look {
        object: usize,
        offset: usize,
        len: usize,
    },
    Kick,
    Sync,
    Audit,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let object = 0usize..4;
    let offset = prop_oneof![0..REACH, 0usize..4096];
    let len = prop_oneof![1usize..600, 1usize..20_000];
    prop_oneof![
        2 => (0usize..SHAPES.len()).prop_map(|shape| Op::Alloc { shape }),
        1 => object.clone().prop_map(|object| Op::Free { object }),
        8 => (object.clone(), offset.clone(), len.clone(), any::<u8>())
            .prop_map(|(object, offset, len, seed)| Op::Write { object, offset, len, seed }),
        3 => (object.clone(), 0usize..300, any::<u8>())
            .prop_map(|(object, block, seed)| Op::WriteBlock { object, block, seed }),
        3 => (object.clone(), offset.clone(), any::<u8>())
            .prop_map(|(object, offset, seed)| Op::Modify { object, offset, seed }),
        4 => (object.clone(), offset.clone(), len.clone())
            .prop_map(|(object, offset, len)| Op::Punch { object, offset, len }),
        2 => (object.clone(), offset.clone())
            .prop_map(|(object, offset)| Op::Truncate { object, offset }),
        2 => (object.clone(), prop_oneof![Just(512u64), Just(1536), Just(4096), Just(16_384)])
            .prop_map(|(object, blksz)| Op::Blksz { object, blksz }),
        1 => (object.clone(), 0usize..1000, any::<u8>())
            .prop_map(|(object, len, seed)| Op::Bonus { object, len, seed }),
        1 => (object.clone(), 0usize..3, any::<u8>())
            .prop_map(|(object, len, seed)| Op::Spill { object, len: len * 512, seed }),
        4 => (object, offset, len).prop_map(|(object, offset, len)| Op::Look { object, offset, len }),
        2 => Just(Op::Kick),
        2 => Just(Op::Sync),
        1 => Just(Op::Audit),
        1 => Just(Op::Reopen),
    ]
}

/// Block size, indirect block shift, slots.
const SHAPES: [(u64, u8, u8); 5] = [
    (512, 12, 1),
    (1024, 12, 2),
    (4096, 12, 1),
    (16_384, 17, 4),
    (1536, 12, 1),
];

#[derive(Clone)]
struct Model {
    bytes: Vec<u8>,
    bonus: Vec<u8>,
    spill: Option<Vec<u8>>,
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    // A third of what is written is zeros, so that blocks become holes by themselves.
    if seed.is_multiple_of(3) {
        return vec![0; len];
    }
    (0..len)
        .map(|i| (i as u8).wrapping_mul(seed) ^ seed)
        .collect()
}

struct World {
    pool: std::sync::Arc<Pool>,
    models: BTreeMap<u64, Model>,
    /// Zeros become holes.
    finds_holes: bool,
}

impl World {
    fn new((props, settings): (ObjsetProps, TxgSettings)) -> World {
        let finds_holes = props.compress != Algorithm::Off;
        World {
            pool: Pool::new(ObjsetId(21), props, settings),
            models: BTreeMap::new(),
            finds_holes,
        }
    }

    fn pick(&self, object: usize) -> Option<(u64, std::sync::Arc<Dnode>)> {
        let id = *self.models.keys().nth(object % self.models.len().max(1))?;
        Some((id, self.pool.objset().hold(ObjectId(id)).unwrap()))
    }

    /// What may be written: everything, or the first block if its size is odd.
    fn limit(dnode: &Dnode) -> usize {
        let blksz = dnode.blksz();
        if blksz.is_power_of_two() {
            REACH
        } else {
            blksz as usize
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Alloc { shape } => return self.alloc(*shape),
            Op::Kick => return self.pool.groups.kick(),
            Op::Sync => return self.pool.sync(),
            Op::Audit => {
                let found = self.pool.audit();
                assert!(
                    found.objects.keys().eq(self.models.keys()),
                    "objects on disk"
                );
                if self.finds_holes {
                    self.check_holes();
                }
                return;
            }
            Op::Reopen => return self.pool.reopen(),
            _ => {}
        }
        let (Op::Free { object }
        | Op::Write { object, .. }
        | Op::WriteBlock { object, .. }
        | Op::Modify { object, .. }
        | Op::Punch { object, .. }
        | Op::Truncate { object, .. }
        | Op::Blksz { object, .. }
        | Op::Bonus { object, .. }
        | Op::Spill { object, .. }
        | Op::Look { object, .. }) = op
        else {
            unreachable!("handled above")
        };
        let Some((id, dnode)) = self.pick(*object) else {
            return;
        };
        if matches!(op, Op::Free { .. }) {
            let tx = self.pool.hold();
            self.pool.objset().object_free(&tx, ObjectId(id)).unwrap();
            self.models.remove(&id);
            let error = self.pool.objset().hold(ObjectId(id)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            return;
        }
        let model = self.models.get_mut(&id).unwrap();
        change(&self.pool, &dnode, model, op);
    }

    fn alloc(&mut self, shape: usize) {
        if self.models.len() >= 4 {
            return;
        }
        let (blksz, ibs, slots) = SHAPES[shape];
        let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS)
            .blksz(blksz)
            .ibs(ibs);
        let new = new.bonus(ObjectType::SA, 0).dnode_slots(slots);
        let tx = self.pool.hold();
        let dnode = self.pool.objset().object_alloc(&tx, &new).unwrap();
        let model = Model {
            bytes: vec![0; REACH + 32_768],
            bonus: Vec::new(),
            spill: None,
        };
        assert!(
            self.models.insert(dnode.id().0, model).is_none(),
            "{} is taken",
            dnode.id()
        );
    }

    /// Everything reads as the model says.
    fn check(&self) {
        let objset = self.pool.objset();
        let mut seen = Vec::new();
        let mut at = ObjectId(0);
        while let Some(next) = objset.next_object(at).unwrap() {
            seen.push(next.0);
            at = next;
        }
        assert!(seen.iter().eq(self.models.keys()), "{seen:?}");
        for (id, model) in &self.models {
            let dnode = objset.hold(ObjectId(*id)).unwrap();
            let mut bytes = vec![0xee; model.bytes.len()];
            dnode.read(0, &mut bytes).unwrap();
            assert!(
                bytes == model.bytes,
                "object {id}: {:?}",
                differs(&bytes, &model.bytes)
            );
            assert_eq!(*dnode.bonus(), *model.bonus, "object {id}");
            let spill = dnode.spill().unwrap().map(|buf| buf.to_vec());
            assert_eq!(spill, model.spill, "object {id}");
        }
    }

    /// After a sync, blocks of zeros are holes, and only they.
    fn check_holes(&self) {
        for (id, model) in &self.models {
            let dnode = self.pool.objset().hold(ObjectId(*id)).unwrap();
            let blksz = dnode.blksz() as usize;
            let end = (dnode.maxblkid().0 as usize + 1) * blksz;
            let data: Vec<bool> = model
                .bytes
                .chunks(blksz)
                .map(|block| block.iter().any(|b| *b != 0))
                .collect();
            for at in (0..model.bytes.len()).step_by(509) {
                let next = (at / blksz..data.len()).find(|i| data[*i]);
                let next = next.map(|block| (block * blksz).max(at) as u64);
                assert_eq!(dnode.next_data(at as u64).unwrap(), next, "{id} {at}");
                let blocks = at / blksz..end / blksz;
                let hole = blocks
                    .into_iter()
                    .find(|i| !data[*i])
                    .unwrap_or(end / blksz);
                let hole = (hole * blksz).max(at) as u64;
                assert_eq!(dnode.next_hole(at as u64).unwrap(), hole, "{id} {at}");
            }
        }
    }
}

fn differs(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

#[expect(
    clippy::too_many_lines,
    reason = "one random run: a table of operations"
)]
fn change(pool: &Pool, dnode: &Dnode, model: &mut Model, op: &Op) {
    let limit = World::limit(dnode);
    let blksz = dnode.blksz() as usize;
    match *op {
        Op::Write {
            offset, len, seed, ..
        } => {
            let offset = offset % limit;
            let data = pattern(seed, len.min(limit - offset));
            dnode.write(&pool.hold(), offset as u64, &data).unwrap();
            model.bytes[offset..offset + data.len()].copy_from_slice(&data);
        }
        Op::WriteBlock { block, seed, .. } => {
            let block = block % (limit / blksz).max(1);
            let data = pattern(seed, blksz);
            let buf = Buf::copy_of(&data);
            dnode
                .write_block(&pool.hold(), BlkId(block as u64), buf)
                .unwrap();
            model.bytes[block * blksz..(block + 1) * blksz].copy_from_slice(&data);
        }
        Op::Modify { offset, seed, .. } => {
            let offset = offset % limit;
            let block = BlkId((offset / blksz) as u64);
            let old = dnode.modify_block(&pool.hold(), block, |bytes| {
                std::mem::replace(&mut bytes[offset % blksz], seed)
            });
            assert_eq!(
                old.unwrap(),
                std::mem::replace(&mut model.bytes[offset], seed)
            );
        }
        Op::Punch { offset, len, .. } => {
            dnode
                .free_range(&pool.hold(), offset as u64, len as u64)
                .unwrap();
            let end = (offset + len).min(model.bytes.len());
            model.bytes[offset.min(end)..end].fill(0);
        }
        Op::Truncate { offset, .. } => {
            dnode
                .free_range(&pool.hold(), offset as u64, OBJECT_END)
                .unwrap();
            model.bytes[offset..].fill(0);
        }
        Op::Blksz { blksz, .. } => {
            let allowed = dnode.maxblkid().0 == 0 || dnode.blksz() == blksz;
            let result = dnode.set_blksz(&pool.hold(), blksz);
            assert_eq!(result.is_ok(), allowed, "{result:?}");
            if allowed && dnode.maxblkid().0 == 0 {
                model.bytes[blksz as usize..].fill(0);
            }
        }
        Op::Bonus { len, seed, .. } => {
            let bonus = pattern(seed, len);
            let result = dnode.set_bonus(&pool.hold(), &bonus);
            assert_eq!(result.is_ok(), len <= dnode.max_bonus_len());
            if result.is_ok() {
                model.bonus = bonus;
            }
        }
        Op::Spill { len: 0, .. } => {
            dnode.remove_spill(&pool.hold()).unwrap();
            model.spill = None;
        }
        Op::Spill { len, seed, .. } => {
            let spill = pattern(seed | 1, len);
            let spill = if spill[0] == 0 { vec![9; len] } else { spill };
            let fits = dnode.bonus_len() + 128 + 192 <= usize::from(dnode.slots()) * 512;
            let result = dnode.set_spill(&pool.hold(), Buf::copy_of(&spill));
            assert_eq!(result.is_ok(), fits, "bonus {}", dnode.bonus_len());
            if fits {
                model.spill = Some(spill);
            }
        }
        Op::Look { offset, len, .. } => {
            let end = (offset + len).min(model.bytes.len());
            let mut bytes = vec![0xee; end - offset];
            dnode.read(offset as u64, &mut bytes).unwrap();
            assert!(bytes == model.bytes[offset..end]);
            look_for_holes(dnode, model, offset);
        }
        _ => unreachable!("not a change of an object"),
    }
}

/// No byte that is not zero is in a hole.
fn look_for_holes(dnode: &Dnode, model: &Model, offset: usize) {
    let data = dnode.next_data(offset as u64).unwrap();
    let skipped = data.map_or(model.bytes.len(), |data| data as usize);
    assert!(skipped >= offset);
    let end = skipped.min(model.bytes.len());
    assert!(model.bytes[offset..end].iter().all(|b| *b == 0));
    let hole = dnode.next_hole(offset as u64).unwrap() as usize;
    assert!(hole >= offset);
    let blksz = dnode.blksz() as usize;
    let end = ((hole / blksz + 1) * blksz).min(model.bytes.len());
    assert!(hole >= model.bytes.len() || model.bytes[hole..end].iter().all(|b| *b == 0));
}

fn run(setup: (ObjsetProps, TxgSettings), ops: &[Op]) {
    let mut world = World::new(setup);
    for op in ops {
        world.apply(op);
    }
    world.check();
    world.pool.reopen();
    world.check();
    world.apply(&Op::Audit);
    // Once its objects are freed, only the objset is left.
    let ids: Vec<u64> = world.models.keys().copied().collect();
    for id in ids {
        world
            .pool
            .objset()
            .object_free(&world.pool.hold(), ObjectId(id))
            .unwrap();
    }
    assert_eq!(world.pool.audit().blocks.len(), 1);
    world.pool.stop();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn prop_objects_are_what_was_written(ops in prop::collection::vec(op(), 1..60)) {
        run(Default::default(), &ops);
    }

    #[test]
    fn sim_objects_are_what_was_written(
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        rt::simulate(seed, || run(Default::default(), &ops));
    }

    #[test]
    fn prop_objects_written_behind_are_what_was_written(ops in prop::collection::vec(op(), 1..60)) {
        run(behind(), &ops);
    }

    #[test]
    fn sim_objects_written_behind_are_what_was_written(
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        rt::simulate(seed, || run(behind(), &ops));
    }
}
