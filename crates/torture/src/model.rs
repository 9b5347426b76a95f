//! Datasets of plain objects checked against a model: names, snapshots, clones and bytes.
//!
//! A [`World`] does each operation twice, on the pool and in memory; [`World::compare`] then reads
//! everything back.

use phys::PropValue;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result};
use dmu::{NewObject, Objset};
use dsl::{DslDataset, DslPool, NewDataset};
use phys::{ObjectType, ObjsetType};
use spa::Spa;

use crate::Dice;

/// The objects of a dataset.
pub type Objects = BTreeMap<u64, Vec<u8>>;

/// What the pool should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct World {
    /// Heads by full name.
    pub heads: BTreeMap<String, Head>,
    /// Makes names unique: none is used twice.
    next: u64,
}

/// A head with its objects, its snapshots, and its origin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// What it holds now.
    pub objects: Objects,
    /// Snapshots by name, oldest first.
    pub snapshots: Vec<(String, Objects)>,
    /// The snapshot that it was cloned from.
    pub origin: Option<String>,
}

const FILE_BYTES_MAX: u64 = 600_000;

impl World {
    /// What a pool holds that something else has made: all data sets but the root, each object as its bytes.
    ///
    /// # Errors
    /// Any read error.
    pub fn of(spa: &Spa) -> Result<World> {
        let dsl = spa.parts().dsl();
        let mut world = World::default();
        for name in dsl.descendants(&spa.name())? {
            if name == spa.name() {
                continue;
            }
            let ds = dsl.dataset(&name)?;
            let origin = ObjectId(ds.dir().fields().origin_obj);
            let is_clone = origin.0 != 0 && Some(origin) != dsl.origin_object();
            let origin = match is_clone {
                true => Some(dsl.name_of(&dsl.dataset_of(origin)?)?),
                false => None,
            };
            let snapshots = dsl.snapshots(&ds)?.into_iter();
            let snapshots = snapshots.map(|(snap, ds)| Ok((snap, objects_of(&ds)?)));
            let head = Head {
                objects: objects_of(&ds)?,
                snapshots: snapshots.collect::<Result<_>>()?,
                origin,
            };
            world.heads.insert(name, head);
        }
        Ok(world)
    }

    /// One random operation.
    ///
    /// # Errors
    /// What the pool returns for an operation that works in the model.
    pub fn step(&mut self, spa: &Spa, dice: &mut Dice) -> Result<()> {
        let names: Vec<String> = self.heads.keys().cloned().collect();
        let Some(name) = dice.pick(&names).cloned() else {
            return self.create(spa);
        };
        match dice.below(100) {
            0..3 => self.create(spa),
            3..50 => self.write(spa, &name, dice),
            50..60 => self.stream(spa, &name, dice),
            60..70 => self.punch(spa, &name, dice),
            70..76 => self.remove(spa, &name, dice),
            76..84 => self.snapshot(spa, &name),
            84..89 => self.clone_snapshot(spa, &name, dice),
            89..94 => self.destroy_snapshot(spa, &name, dice),
            94..96 => self.rollback(spa, &name),
            96..98 => self.destroy(spa, &name),
            _ => spa.sync().map(|_| ()),
        }
    }

    fn fresh(&mut self, stem: &str) -> String {
        self.next += 1;
        format!("{stem}{}", self.next)
    }

    fn create(&mut self, spa: &Spa) -> Result<()> {
        let name = format!("{}/{}", spa.name(), self.fresh("fs"));
        // Only blocks that are not compressed are written behind.
        let off = ("compression".to_owned(), PropValue::Number(2));
        let is_plain = self.heads.len().is_multiple_of(2);
        spa.parts().dsl().create_dataset(NewDataset {
            name: name.clone(),
            type_: ObjsetType::Other,
            flags: 0,
            props: is_plain.then_some(off).into_iter().collect(),
            init: Box::new(|_, _| Ok(())),
        })?;
        self.heads.insert(name, Head::default());
        Ok(())
    }

    fn write(&mut self, spa: &Spa, name: &str, dice: &mut Dice) -> Result<()> {
        let (objset, _ds) = objset(spa.parts().dsl(), name)?;
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let ids: Vec<u64> = head.objects.keys().copied().collect();
        let shift = dice.below(18);
        let length = (1 + dice.below(1 << shift)) as usize;
        let bytes = dice.bytes(length);
        let tx = spa.parts().groups().hold_open(length as u64)?;
        let id = match dice.pick(&ids) {
            Some(id) if !dice.once_in(4) => *id,
            _ => {
                let blksz = 512 << dice.below(9);
                let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(blksz);
                let id = objset.object_alloc(&tx, &new)?.id().0;
                head.objects.insert(id, Vec::new());
                id
            }
        };
        let mut offset = dice.below(FILE_BYTES_MAX);
        let dnode = objset.hold(ObjectId(id))?;
        let mut bytes = &bytes[..];
        let blksz = dnode.blksz();
        if !blksz.is_power_of_two() {
            // There is no second block.
            offset %= blksz;
            bytes = &bytes[..length.min((blksz - offset) as usize)];
        }
        dnode.write(&tx, offset, bytes)?;
        let model = head.objects.get_mut(&id).expect("it is there by now");
        let end = offset as usize + bytes.len();
        if model.len() < end {
            model.resize(end, 0);
        }
        model[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    /// A new object, written sequentially from its beginning; like every step, in one transaction.
    fn stream(&mut self, spa: &Spa, name: &str, dice: &mut Dice) -> Result<()> {
        let (objset, _ds) = objset(spa.parts().dsl(), name)?;
        let blksz = 4096u64 << dice.below(5);
        let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).blksz(blksz);
        let tx = spa.parts().groups().hold_open(16 * blksz)?;
        let dnode = objset.object_alloc(&tx, &new)?;
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let model = head.objects.entry(dnode.id().0).or_default();
        for _ in 0..dice.below(16) {
            let length = blksz * (1 + dice.below(3));
            let bytes = dice.bytes(length as usize);
            dnode.write(&tx, model.len() as u64, &bytes)?;
            model.extend(bytes);
        }
        Ok(())
    }

    fn punch(&mut self, spa: &Spa, name: &str, dice: &mut Dice) -> Result<()> {
        let (objset, _ds) = objset(spa.parts().dsl(), name)?;
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let ids: Vec<u64> = head.objects.keys().copied().collect();
        let Some(id) = dice.pick(&ids) else {
            return Ok(());
        };
        let model = head.objects.get_mut(id).expect("it was picked from there");
        let start = dice.below(FILE_BYTES_MAX);
        let end = start + dice.below(FILE_BYTES_MAX);
        let tx = spa.parts().groups().hold_open(0)?;
        objset
            .hold(ObjectId(*id))?
            .free_range(&tx, start, end - start)?;
        let (start, end) = (
            model.len().min(start as usize),
            model.len().min(end as usize),
        );
        model[start..end].fill(0);
        Ok(())
    }

    fn remove(&mut self, spa: &Spa, name: &str, dice: &mut Dice) -> Result<()> {
        let (objset, _ds) = objset(spa.parts().dsl(), name)?;
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let ids: Vec<u64> = head.objects.keys().copied().collect();
        let Some(id) = dice.pick(&ids) else {
            return Ok(());
        };
        let tx = spa.parts().groups().hold_open(0)?;
        objset.object_free(&tx, ObjectId(*id))?;
        head.objects.remove(id);
        Ok(())
    }

    fn snapshot(&mut self, spa: &Spa, name: &str) -> Result<()> {
        let snap = self.fresh("s");
        spa.parts()
            .dsl()
            .snapshot(&[&format!("{name}@{snap}")], Vec::new())?;
        let head = self.heads.get_mut(name).expect("it was picked from there");
        let objects = head.objects.clone();
        head.snapshots.push((snap, objects));
        Ok(())
    }

    fn clone_snapshot(&mut self, spa: &Spa, name: &str, dice: &mut Dice) -> Result<()> {
        let Some((snap, objects)) = dice.pick(&self.heads[name].snapshots).cloned() else {
            return Ok(());
        };
        let origin = format!("{name}@{snap}");
        let clone = format!("{}/{}", spa.name(), self.fresh("clone"));
        spa.parts()
            .dsl()
            .clone_dataset(&clone, &origin, Vec::new())?;
        let head = Head {
            objects,
            snapshots: Vec::new(),
            origin: Some(origin),
        };
        self.heads.insert(clone, head);
        Ok(())
    }

    fn has_clones(&self, snapshot: &str) -> bool {
        self.heads
            .values()
            .any(|head| head.origin.as_deref() == Some(snapshot))
    }

    fn destroy_snapshot(&mut self, spa: &Spa, name: &str, dice: &mut Dice) -> Result<()> {
        let Some((snap, _)) = dice.pick(&self.heads[name].snapshots).cloned() else {
            return Ok(());
        };
        let full = format!("{name}@{snap}");
        let outcome = spa.parts().dsl().destroy_snapshots(&[&full], false);
        if self.has_clones(&full) {
            assert!(outcome.is_err(), "{full} has a clone");
            return Ok(());
        }
        outcome?;
        let head = self.heads.get_mut(name).expect("it was picked from there");
        head.snapshots.retain(|(s, _)| *s != snap);
        Ok(())
    }

    fn rollback(&mut self, spa: &Spa, name: &str) -> Result<()> {
        let Some((_, objects)) = self.heads[name].snapshots.last().cloned() else {
            return Ok(());
        };
        spa.parts().dsl().rollback(name, None, 0)?;
        self.heads
            .get_mut(name)
            .expect("it was picked from there")
            .objects = objects;
        Ok(())
    }

    fn destroy(&mut self, spa: &Spa, name: &str) -> Result<()> {
        if !self.heads[name].snapshots.is_empty() {
            let refused = spa
                .parts()
                .dsl()
                .destroy_head(name)
                .expect_err("it has snapshots");
            assert_ne!(refused.kind(), ErrorKind::Suspended, "{refused}");
            return Ok(());
        }
        spa.parts().dsl().destroy_head(name)?;
        self.heads.remove(name);
        Ok(())
    }

    /// Reads everything back.
    ///
    /// # Errors
    /// What differs, or the error of a read.
    pub fn compare(&self, dsl: &Arc<DslPool>) -> Result<(), String> {
        for (name, head) in &self.heads {
            compare_objects(dsl, name, &head.objects)?;
            for (snap, objects) in &head.snapshots {
                compare_objects(dsl, &format!("{name}@{snap}"), objects)?;
            }
        }
        Ok(())
    }
}

/// The objset of a dataset, and the hold without which it must not be used.
fn objset(dsl: &Arc<DslPool>, name: &str) -> Result<(Arc<Objset>, Arc<DslDataset>)> {
    let ds = dsl.dataset(name)?;
    Ok((ds.objset()?, ds))
}

fn objects_of(ds: &Arc<DslDataset>) -> Result<Objects> {
    let objset = ds.objset()?;
    let mut objects = Objects::new();
    let mut at = ObjectId(0);
    while let Some(next) = objset.next_object(at)? {
        let dnode = objset.hold(next)?;
        let blocks = dnode.maxblkid().0 + 1;
        let mut bytes = vec![0; (blocks * dnode.blksz()) as usize];
        dnode.read(0, &mut bytes)?;
        objects.insert(next.0, bytes);
        at = next;
    }
    Ok(objects)
}

fn compare_objects(dsl: &Arc<DslPool>, name: &str, objects: &Objects) -> Result<(), String> {
    let within = |e: base::Error| format!("{name}: {e}");
    let (objset, _ds) = objset(dsl, name).map_err(within)?;
    for (id, bytes) in objects {
        let dnode = objset.hold(ObjectId(*id)).map_err(within)?;
        let mut found = vec![0; bytes.len()];
        dnode.read(0, &mut found).map_err(within)?;
        if found != *bytes {
            let at = found.iter().zip(bytes).position(|(a, b)| a != b);
            return Err(format!(
                "{name}: object {id} differs at byte {} of {}",
                at.expect("one differs"),
                bytes.len()
            ));
        }
    }
    let mut ids = Vec::new();
    let mut at = ObjectId(0);
    while let Some(next) = objset.next_object(at).map_err(within)? {
        ids.push(next.0);
        at = next;
    }
    let expected: Vec<u64> = objects.keys().copied().collect();
    if ids == expected {
        Ok(())
    } else {
        Err(format!("{name}: objects {ids:?}, not {expected:?}"))
    }
}
