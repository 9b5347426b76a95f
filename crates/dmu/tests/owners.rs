//! Space by owner, and what the accounting is told.

mod rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{BlkId, Buf, ObjectId, ObjsetId, Result};
use dmu::{
    NewObject, OBJECT_END, Objset, ObjsetProps, Owner, OwnerAccounting, OwnerDelta, OwnerDeltas,
    Tx, TxgSettings, USERUSED_OBJECT,
};
use phys::ObjectType;
use rig::Pool;

/// The owner is the first three bytes of the bonus, or of the spill block; sums are kept in memory, the
/// number of their changes in an object.
#[derive(Default)]
struct Sums {
    users: rt::Mutex<BTreeMap<u64, OwnerDelta>>,
}

impl OwnerAccounting for Sums {
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8], spill: Option<&[u8]>) -> Option<Owner> {
        if bonus_type != ObjectType::SA {
            return None;
        }
        let bytes = if bonus.is_empty() { spill? } else { bonus };
        let [user, group, project] = [bytes[0], bytes[1], bytes[2]].map(u64::from);
        Some(Owner {
            user,
            group,
            project,
        })
    }

    fn account(&self, objset: &Arc<Objset>, tx: &Tx, deltas: &OwnerDeltas) -> Result<()> {
        let mut users = self.users.lock();
        for (user, delta) in &deltas.users {
            let sum = users.entry(*user).or_default();
            sum.bytes += delta.bytes;
            sum.objects += delta.objects;
        }
        users.retain(|_, sum| *sum != OwnerDelta::default());
        let total = |map: &BTreeMap<u64, OwnerDelta>| map.values().map(|d| d.bytes).sum::<i64>();
        assert_eq!(total(&deltas.users), total(&deltas.groups));
        assert_eq!(total(&deltas.users), total(&deltas.projects));
        let dnode = match objset.hold(USERUSED_OBJECT) {
            Ok(dnode) => dnode,
            Err(_) => {
                let new = NewObject::new(ObjectType::USERGROUP_USED).blksz(512);
                objset.object_claim(tx, USERUSED_OBJECT, &new)?
            }
        };
        dnode.modify_block(tx, BlkId(0), |block| block[0] = block[0].wrapping_add(1))
    }
}

/// What the sums should be, from the dnodes themselves.
fn expected(pool: &Pool, owners: &BTreeMap<u64, u64>) -> BTreeMap<u64, OwnerDelta> {
    let mut users: BTreeMap<u64, OwnerDelta> = BTreeMap::new();
    let found = pool.audit();
    for (id, user) in owners {
        let sum = users.entry(*user).or_default();
        sum.objects += 1;
        sum.bytes += 512 + found.objects[id].used_bytes() as i64;
    }
    users
}

#[test]
fn owners_are_charged_what_their_objects_use() {
    let pool = Pool::new(ObjsetId(3), ObjsetProps::default(), TxgSettings::default());
    let sums = Arc::new(Sums::default());
    pool.objset()
        .set_owner_accounting(Some(Arc::clone(&sums) as _));
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(4096);
    let new = new.bonus(ObjectType::SA, 0).dnode_slots(2);
    let mut owners = BTreeMap::new();
    let check = |owners: &BTreeMap<u64, u64>| {
        assert_eq!(expected(&pool, owners), *sums.users.lock());
    };
    for n in 0..12u8 {
        let tx = pool.hold();
        let dnode = pool.objset().object_alloc(&tx, &new).unwrap();
        dnode.set_bonus(&tx, &[n % 3, n, 0]).unwrap();
        dnode
            .write(&tx, 0, &vec![n; 10_000 * usize::from(n)])
            .unwrap();
        owners.insert(dnode.id().0, u64::from(n % 3));
    }
    check(&owners);
    // One object changes its owner, one shrinks, one is freed, one is made and freed, one moves its
    // owner to the spill.
    let tx = pool.hold();
    let hold = |n: usize| {
        pool.objset()
            .hold(ObjectId(*owners.keys().nth(n).unwrap()))
            .unwrap()
    };
    let (given, shrunk, freed, moved) = (hold(4), hold(11), hold(7), hold(2));
    given.set_bonus(&tx, &[9, 9, 9]).unwrap();
    shrunk.free_range(&tx, 5000, OBJECT_END).unwrap();
    pool.objset().object_free(&tx, freed.id()).unwrap();
    let brief = pool.objset().object_alloc(&tx, &new).unwrap();
    brief.set_bonus(&tx, &[1, 1, 1]).unwrap();
    pool.objset().object_free(&tx, brief.id()).unwrap();
    moved.set_bonus(&tx, &[]).unwrap();
    moved.set_spill(&tx, Buf::copy_of(&[2; 512])).unwrap();
    drop(tx);
    owners.insert(given.id().0, 9);
    owners.remove(&freed.id().0);
    owners.insert(moved.id().0, 2);
    check(&owners);
    moved.write(&pool.hold(), 0, &[1; 5000]).unwrap();
    check(&owners);
    pool.stop();
}

#[test]
fn the_accounting_hears_of_changes_before_they_are_frozen() {
    let pool = Pool::new(ObjsetId(3), ObjsetProps::default(), TxgSettings::default());
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS);
    for _ in 0..3 {
        let tx = pool.hold();
        assert!(pool.books.dirtied.load(Ordering::Relaxed) < tx.txg().0);
        assert!(!pool.objset().is_dirty());
        pool.objset().object_alloc(&tx, &new).unwrap();
        assert_eq!(pool.books.dirtied.load(Ordering::Relaxed), tx.txg().0);
        assert!(pool.objset().is_dirty());
        drop(tx);
        pool.sync();
    }
    assert_eq!(pool.groups.dirty_bytes(), 0);
    pool.stop();
}
