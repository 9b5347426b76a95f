//! The registry and the layouts of a file system.
//!
//! # On disk
//! The SA master node, a ZAP, names two more: `REGISTRY` (attribute name to number, length and
//! kind) and `LAYOUTS` (layout number in decimal to an array of attribute numbers). Both are made
//! when the first attribute is written.
//!
//! # Invariants
//! 1. The first 16 numbers are those of the old znode, whether registered or not.
//! 2. Layout 0 is the old znode, layout 1 is empty; neither is on disk.
//!
//! # Concurrency
//! One lock around the tables in memory. It is held for writing while a new layout is added to the ZAP,
//! so that no thread uses a number before it is there.
//!
//! # Source
//! OpenZFS `module/zfs/sa.c` (`sa_setup`, `sa_attr_table_setup`, `sa_attr_register_sync`,
//! `sa_add_layout_entry`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Context, Error, ErrorKind, ObjectId, Result};
use dmu::{Objset, Tx};
use phys::ObjectType;
use phys::sa::{SA_LAYOUT_MAX, SA_LAYOUTS, SA_REGISTRY, SaAttrReg, SaBswap, ZplAttr};
use rt::{RwLock, RwLockReadGuard};
use zap::Zap;

use super::buffer::AttrSet;

/// How many attributes the old znode has; they have these numbers everywhere.
const LEGACY_ATTRS: usize = 16;
/// Attributes that are registered by this program: all but those of future file systems.
const REGISTERED: usize = ZplAttr::Projid as usize + 1;

/// An attribute as the file system knows it.
#[derive(Clone, Debug)]
struct AttrFacts {
    name: String,
    reg: SaAttrReg,
    is_registered: bool,
}

/// The tables in memory.
pub(crate) struct Tables {
    registry: Option<ObjectId>,
    layouts_object: Option<ObjectId>,
    attrs: Vec<Option<AttrFacts>>,
    /// Whether all of `attrs` are in the registry.
    are_registered: bool,
    /// The number of each [`ZplAttr`]; `None` for those the file system does not have.
    numbers: Vec<Option<u16>>,
    layouts: BTreeMap<u16, Arc<[u16]>>,
    by_attrs: BTreeMap<Arc<[u16]>, u16>,
}

/// The attributes of a file system (`sa_os_t`).
#[doc(alias = "sa_os_t")]
pub(crate) struct SaTable {
    /// The SA master node; `None` before ZPL version 5.
    master: Option<ObjectId>,
    tables: RwLock<Tables>,
}

impl Tables {
    /// The attributes of layout `number`.
    pub(crate) fn layout(&self, number: u16) -> Result<&[u16]> {
        let layout = self.layouts.get(&number);
        let layout = layout.ok_or_else(|| Error::corrupt(format!("SA layout {number}")))?;
        Ok(layout)
    }

    /// The registered length of an attribute; 0 if it varies.
    pub(crate) fn fixed_len(&self, attr: u16) -> usize {
        let facts = self.attrs.get(usize::from(attr)).and_then(Option::as_ref);
        facts.map_or(0, |facts| facts.reg.length.into())
    }

    /// The kind of an attribute's elements, if it is registered.
    pub(crate) fn kind(&self, attr: u16) -> Option<SaBswap> {
        let facts = self.attrs.get(usize::from(attr))?.as_ref()?;
        Some(facts.reg.bswap)
    }

    /// The registered length of each attribute in a set.
    pub(crate) fn fixed_lens(&self, attrs: &AttrSet) -> Vec<usize> {
        attrs.iter().map(|(attr, _)| self.fixed_len(attr)).collect()
    }

    /// The number of an attribute in this file system.
    pub(crate) fn number(&self, attr: ZplAttr) -> Option<u16> {
        self.numbers.get(attr as usize).copied().flatten()
    }

    fn next_layout(&self) -> Result<u16> {
        // OpenZFS takes the count of layouts; after a gap that number may be in use.
        let mut number = self.layouts.len() as u16;
        while self.layouts.contains_key(&number) {
            number += 1;
        }
        if number >= SA_LAYOUT_MAX {
            return Err(Error::new(
                ErrorKind::NoSpace,
                "all SA layout numbers are taken",
            ));
        }
        Ok(number)
    }

    fn insert_layout(&mut self, number: u16, attrs: &[u16]) {
        let attrs: Arc<[u16]> = attrs.into();
        self.layouts.insert(number, attrs.clone());
        // Of equal layouts the one that was read first is used.
        self.by_attrs.entry(attrs).or_insert(number);
    }
}

impl SaTable {
    /// Reads the tables of a file system; `master` is its SA master node, if it has one.
    ///
    /// # Errors
    /// I/O; `Corrupt` names the attribute or layout.
    #[doc(alias = "sa_setup")]
    pub(crate) fn open(objset: &Arc<Objset>, master: Option<ObjectId>) -> Result<SaTable> {
        let entry = |name: &str| match master {
            Some(master) => zap::lookup_u64(objset, master, name),
            None => Ok(None),
        };
        let mut tables = Tables {
            registry: entry(SA_REGISTRY)?.map(ObjectId),
            layouts_object: entry(SA_LAYOUTS)?.map(ObjectId),
            attrs: Vec::new(),
            are_registered: false,
            numbers: vec![None; ZplAttr::ALL.len()],
            layouts: BTreeMap::new(),
            by_attrs: BTreeMap::new(),
        };
        read_registry(objset, &mut tables).within(|| "SA registry")?;
        let legacy: Vec<u16> = (0..LEGACY_ATTRS as u16).collect();
        tables.layouts.insert(0, legacy.into());
        tables.layouts.insert(1, [].into());
        read_layouts(objset, &mut tables).within(|| "SA layouts")?;
        Ok(SaTable {
            master,
            tables: RwLock::new(tables),
        })
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read()
    }

    /// The number of the layout `attrs`, made if there is none yet.
    pub(crate) fn layout_for(&self, objset: &Arc<Objset>, tx: &Tx, attrs: &[u16]) -> Result<u16> {
        if let Some(number) = self.tables.read().by_attrs.get(attrs) {
            return Ok(*number);
        }
        let mut tables = self.tables.write();
        if let Some(number) = tables.by_attrs.get(attrs) {
            return Ok(*number);
        }
        let master = self.require_master()?;
        let number = tables.next_layout()?;
        let object = match tables.layouts_object {
            Some(object) => object,
            None => {
                let type_ = ObjectType::SA_ATTR_LAYOUTS;
                zap::create_link(objset, tx, type_, master, SA_LAYOUTS)?
            }
        };
        tables.layouts_object = Some(object);
        zap::update(objset, tx, object, &number.to_string(), attrs)?;
        tables.insert_layout(number, attrs);
        Ok(number)
    }

    /// Enters the attributes that are not in the registry yet.
    pub(crate) fn register(&self, objset: &Arc<Objset>, tx: &Tx) -> Result<()> {
        if self.master.is_none() || self.tables.read().are_registered {
            return Ok(());
        }
        let mut tables = self.tables.write();
        let master = self.require_master()?;
        let object = match tables.registry {
            Some(object) => object,
            None => {
                let type_ = ObjectType::SA_ATTR_REGISTRATION;
                zap::create_link(objset, tx, type_, master, SA_REGISTRY)?
            }
        };
        tables.registry = Some(object);
        let registry = Zap::open(objset, object)?;
        for facts in tables
            .attrs
            .iter_mut()
            .flatten()
            .filter(|facts| !facts.is_registered)
        {
            registry.update_u64(tx, &facts.name, facts.reg.encode())?;
            facts.is_registered = true;
        }
        tables.are_registered = true;
        Ok(())
    }

    fn require_master(&self) -> Result<ObjectId> {
        self.master.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "file system without system attributes",
            )
        })
    }
}

fn read_registry(objset: &Arc<Objset>, tables: &mut Tables) -> Result<()> {
    let mut registered = BTreeMap::new();
    if let Some(object) = tables.registry {
        for entry in &Zap::open(objset, object)? {
            let entry = entry?;
            let name = entry.name_str().into_owned();
            let reg = SaAttrReg::decode(entry.first_integer).within(|| name.clone())?;
            registered.insert(name, reg);
        }
    }
    let count = if registered.is_empty() {
        LEGACY_ATTRS
    } else {
        registered.len()
    };
    tables.attrs = vec![None; count];
    for (name, reg) in &registered {
        let slot = tables.attrs.get_mut(usize::from(reg.num));
        let slot = slot.ok_or_else(|| {
            Error::corrupt(format!(
                "attribute {name} has number {} of {count}",
                reg.num
            ))
        })?;
        *slot = Some(AttrFacts {
            name: name.clone(),
            reg: *reg,
            is_registered: true,
        });
    }
    for attr in ZplAttr::ALL {
        add_attr(tables, *attr, registered.get(attr.facts().name));
    }
    Ok(())
}

/// Gives `attr` its number, a new one if need be.
fn add_attr(tables: &mut Tables, attr: ZplAttr, registered: Option<&SaAttrReg>) {
    let index = attr as usize;
    let num = match registered {
        Some(reg) => reg.num,
        None if index < LEGACY_ATTRS => index as u16,
        None if index < REGISTERED => {
            tables.attrs.push(None);
            (tables.attrs.len() - 1) as u16
        }
        None => return,
    };
    tables.numbers[index] = Some(num);
    // The registry may lack attributes whose numbers are fixed.
    let needed = usize::from(num) + 1;
    if tables.attrs.len() < needed {
        tables.attrs.resize(needed, None);
    }
    let slot = &mut tables.attrs[usize::from(num)];
    if slot.is_none() {
        let facts = attr.facts();
        let bswap: SaBswap = facts.bswap;
        let reg = SaAttrReg {
            num,
            bswap,
            length: facts.length,
        };
        *slot = Some(AttrFacts {
            name: facts.name.to_owned(),
            reg,
            is_registered: false,
        });
    }
}

fn read_layouts(objset: &Arc<Objset>, tables: &mut Tables) -> Result<()> {
    let Some(object) = tables.layouts_object else {
        return Ok(());
    };
    let zap = Zap::open(objset, object)?;
    for entry in &zap {
        let entry = entry?;
        let name = entry.name_str().into_owned();
        let number = name
            .parse::<u16>()
            .ok()
            .filter(|number| *number < SA_LAYOUT_MAX);
        let number = number.ok_or_else(|| Error::corrupt(format!("layout \"{name}\"")))?;
        let attrs = zap.lookup::<u16>(&entry.name)?.unwrap_or_default();
        let unknown = attrs.iter().find(|attr| {
            tables
                .attrs
                .get(usize::from(**attr))
                .is_none_or(Option::is_none)
        });
        if let Some(attr) = unknown {
            return Err(Error::corrupt(format!(
                "layout {number} has attribute {attr}"
            )));
        }
        tables.insert_layout(number, &attrs);
    }
    Ok(())
}
