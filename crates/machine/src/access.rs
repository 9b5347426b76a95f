//! Access counts: which consumers have a provider open, and which others may open it for writing.
//!
//! # What it is
//! GEOM's rule. What opens a provider is one of its consumers, and the class that makes the
//! provider opens the one below for it, down to the drive: a partition that is written to claims its
//! disk exclusively, a label claims its partition exclusively, a nop passes requests down
//! unchanged, an attached eli claims the provider below for as long as it is attached. A write is
//! refused where another consumer has an exclusive claim, an exclusive claim where another consumer
//! writes. All partitions of a disk are opened by one consumer, their table, so they do not
//! conflict with each other.
//!
//! Commands are short-lived processes, so some claims hold although no process has anything open:
//! those of the imported pools and of the attached elis. [`World::set_pools`] says where to find the
//! pools. Only opens for writing are claims; a read is never refused.
//!
//! # Invariants
//! 1. A file or device of the host has one key, however it is named: its device and inode numbers.
//! 2. Names are resolved to the providers below without reading any, except for labels, which are
//!    only in a partition table.
//!
//! # Concurrency
//! `open` and `known` are leaf locks; no provider is read while one is held.
//!
//! # Source
//! FreeBSD `sys/geom/geom_subr.c` (`g_access`), `part/g_part.c` (`g_part_access`), `geom_slice.c`
//! (`g_slice_access`), `nop/g_nop.c`, `eli/g_eli.c` (`g_eli_create`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base::{Error, ErrorKind, Result};
use rt::Mutex;

use crate::layer::LayerKind;
use crate::world::{DEPTH_MAX, Setting, World};

/// The opener of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An imported pool: all its devices at the same time, by whatever names.
    Pool(String),
    /// A device of a pool that is being made.
    Device(String),
    /// The layer of that name.
    Layer(String),
    /// The partition table on the provider.
    Table,
    /// A program that writes to the raw provider.
    Program,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Pool(name) => write!(f, "pool '{name}'"),
            Holder::Device(pool) => write!(f, "new pool '{pool}'"),
            Holder::Layer(name) => f.write_str(name),
            Holder::Table => f.write_str("its partition table"),
            Holder::Program => f.write_str("another program"),
        }
    }
}

/// Names of the imported pools, each with the paths of all its devices.
pub type Pools = dyn Fn() -> Result<Vec<(String, Vec<String>)>> + Send + Sync;

/// The claims of one world.
#[derive(Default)]
pub(crate) struct Access {
    pools: OnceLock<Box<Pools>>,
    open: Arc<Mutex<Open>>,
    /// The steps below each name of a standing claim, cached until the layers change.
    known: Mutex<BTreeMap<String, Vec<Step>>>,
}

/// The claims of providers that are open.
#[derive(Default)]
struct Open {
    claims: Vec<(u64, Claim)>,
    next: u64,
}

/// One consumer's claim on one provider.
#[derive(Clone, Debug)]
struct Claim {
    key: String,
    consumer: String,
    holder: Holder,
    writes: bool,
    is_exclusive: bool,
}

impl Claim {
    fn stands_against(&self, other: &Claim) -> bool {
        let is_same_pool = matches!(self.holder, Holder::Pool(_)) && self.holder == other.holder;
        self.key == other.key
            && self.consumer != other.consumer
            && !is_same_pool
            && (self.is_exclusive && other.writes || self.writes && other.is_exclusive)
    }
}

/// One provider in the stack below a name.
#[derive(Clone, Debug)]
struct Step {
    key: String,
    /// The class that has it open for the provider above.
    class: Option<(Class, String)>,
}

/// How a class opens the provider below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Part,
    Label,
    /// Passes the access mode down unchanged.
    Layer,
}

/// What a name refers to.
enum Node {
    /// A drive; a file or device of the host, with the disk if the device is a kernel partition.
    Bottom { key: String, disk: Option<String> },
    /// A layer, a partition or a label on the provider of another name.
    On { below: String, class: Class },
}

/// A provider that is held for writing until this is dropped.
pub struct Hold {
    open: Arc<Mutex<Open>>,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.claims.retain(|(number, _)| *number != self.number);
    }
}

impl World {
    /// Sets the source of the list of imported pools; only the first call counts.
    pub fn set_pools(&self, pools: Box<Pools>) {
        let _ = self.access.pools.set(pools);
    }

    /// Claims a provider for writing; for every holder but [`Holder::Program`] the claim is exclusive.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if the provider, one below or one above it has a conflicting claim; what
    /// reading the list of pools returns.
    pub fn hold(&self, name: &str, holder: &Holder) -> Result<Hold> {
        let is_exclusive = *holder != Holder::Program;
        let steps = self.steps(&self.canonical(name), 0);
        let mut claims = claims(&steps, holder, true, is_exclusive);
        let standing = self.standing(Some(holder))?;
        let mut open = self.access.open.lock();
        let number = open.next;
        if *holder == Holder::Program {
            // Each program is a consumer of its own.
            claims[0].consumer = format!("program {number}");
        }
        let others = open.claims.iter().map(|(_, claim)| claim);
        for other in standing.iter().chain(others) {
            if claims.iter().any(|claim| claim.stands_against(other)) {
                let text = format!(
                    "{name}: Operation not permitted ({} is on it)",
                    other.holder
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
        }
        open.next += 1;
        open.claims
            .extend(claims.into_iter().map(|claim| (number, claim)));
        drop(open);
        Ok(Hold {
            open: Arc::clone(&self.access.open),
            number,
        })
    }

    /// The holders of a provider, and of the providers above it.
    ///
    /// # Errors
    /// Errors of reading the list of pools.
    pub fn holders(&self, name: &str) -> Result<Vec<Holder>> {
        let steps = self.steps(&self.canonical(name), 0);
        let standing = self.standing(None)?;
        let open = self.access.open.lock();
        let claims = standing.iter().chain(open.claims.iter().map(|(_, c)| c));
        let mut holders: Vec<Holder> = Vec::new();
        for claim in claims.filter(|claim| claim.key == steps[0].key) {
            if !holders.contains(&claim.holder) {
                holders.push(claim.holder.clone());
            }
        }
        Ok(holders)
    }

    /// What a name leads to, through layers and partitions: a drive of the machine, a device or file of this host.
    #[must_use]
    pub fn lowest(&self, name: &str) -> Option<String> {
        let mut name = self.canonical(name);
        for _ in 0..DEPTH_MAX {
            match self.node(&name, 0)? {
                Node::On { below, .. } => name = below,
                Node::Bottom { .. } => return Some(name),
            }
        }
        None
    }

    /// The block device of this host that a name leads to, through layers and partitions.
    #[must_use]
    pub fn block_device_below(&self, name: &str) -> Option<PathBuf> {
        if self.is_machine() {
            return None;
        }
        let bottom = self.lowest(name)?;
        let kind = fs::metadata(&bottom).ok()?.file_type();
        kind.is_block_device().then(|| PathBuf::from(bottom))
    }

    /// The claims that hold without a process (imported pools, attached elis), except those of `but`.
    fn standing(&self, but: Option<&Holder>) -> Result<Vec<Claim>> {
        let mut all = Vec::new();
        for layer in self.layers() {
            let LayerKind::Eli(attached) = &layer.kind else {
                continue;
            };
            let holder = Holder::Layer(layer.name.clone());
            if but != Some(&holder) {
                let steps = self.known_steps(&layer.name);
                let writes = !attached.flags.contains(geli::Flags::RO);
                // An attached eli claims the providers below it, not its own.
                all.extend(claims(&steps, &holder, writes, true).split_off(1));
            }
        }
        let pools = self.access.pools.get().map(|pools| pools()).transpose()?;
        for (pool, devices) in pools.unwrap_or_default() {
            let holder = Holder::Pool(pool);
            for device in devices.iter().filter(|_| but != Some(&holder)) {
                let steps = self.known_steps(&self.canonical(device));
                all.extend(claims(&steps, &holder, true, true));
            }
        }
        Ok(all)
    }

    fn known_steps(&self, name: &str) -> Vec<Step> {
        if let Some(steps) = self.access.known.lock().get(name) {
            return steps.clone();
        }
        let steps = self.steps(name, 0);
        let mut known = self.access.known.lock();
        known.insert(name.to_owned(), steps.clone());
        steps
    }

    /// To be called when layers have changed.
    pub(crate) fn forget_steps(&self) {
        self.access.known.lock().clear();
    }

    /// The providers from a name down to the drive or file; the first one is its own.
    fn steps(&self, name: &str, depth: u32) -> Vec<Step> {
        let lone = |key: String| vec![Step { key, class: None }];
        if depth > DEPTH_MAX {
            return lone(name.to_owned());
        }
        let (key, class, mut lower) = match self.node(name, depth) {
            None => return lone(name.to_owned()),
            Some(Node::Bottom { key, disk: None }) => return lone(key),
            Some(Node::Bottom {
                key,
                disk: Some(disk),
            }) => (key, Class::Part, lone(disk)),
            Some(Node::On { below, class }) => {
                let lower = self.steps(&below, depth + 1);
                let key = match class {
                    Class::Part => format!("{}{}", lower[0].key, &name[below.len()..]),
                    Class::Label => format!("label of {}", lower[0].key),
                    Class::Layer => name.to_owned(),
                };
                (key, class, lower)
            }
        };
        let consumer = match class {
            Class::Part => table_on(&lower[0].key),
            Class::Label | Class::Layer => key.clone(),
        };
        lower[0].class = Some((class, consumer));
        lower.insert(0, Step { key, class: None });
        lower
    }

    fn node(&self, name: &str, depth: u32) -> Option<Node> {
        if let Some(layer) = self.layer(name) {
            return Some(Node::On {
                below: layer.on,
                class: Class::Layer,
            });
        }
        if let Some(bottom) = self.bottom(name) {
            return Some(bottom);
        }
        if let Ok(Some((_, place))) = self.find_label(name, depth) {
            return Some(Node::On {
                below: place.name,
                class: Class::Label,
            });
        }
        let (disk, _) = name.split_once(":gpt/").unwrap_or_else(|| {
            let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
            (disk.strip_suffix(['p', 's']).unwrap_or_default(), "")
        });
        let is_there = !disk.is_empty() && disk != name && depth <= DEPTH_MAX;
        let disk = Some(disk).filter(|disk| is_there && self.node(disk, depth + 1).is_some());
        disk.map(|disk| Node::On {
            below: disk.to_owned(),
            class: Class::Part,
        })
    }

    fn bottom(&self, name: &str) -> Option<Node> {
        if let Setting::Machine(running) = &self.place {
            let is_drive = running.entries().iter().any(|entry| entry.name == name);
            let key = name.to_owned();
            return is_drive.then_some(Node::Bottom { key, disk: None });
        }
        let facts = fs::metadata(name).ok()?;
        if facts.file_type().is_block_device() {
            let (key, disk) = device_keys(facts.rdev());
            return Some(Node::Bottom { key, disk });
        }
        let key = format!("file {}:{} ", facts.dev(), facts.ino());
        facts.is_file().then_some(Node::Bottom { key, disk: None })
    }
}

/// The consumer that opens a provider for the partitions on it.
fn table_on(key: &str) -> String {
    format!("table on {key}")
}

/// The key of a block device; if it is a kernel partition, also that of its disk.
fn device_keys(device: u64) -> (String, Option<String>) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let key = |number: &str| format!("device {number} ");
    let number = format!("{major}:{minor}");
    let folder = Path::new("/sys/dev/block").join(&number);
    let is_partition = folder.join("partition").exists();
    let disk = fs::read_to_string(folder.join("../dev")).ok();
    let disk = disk.filter(|_| is_partition).map(|disk| key(disk.trim()));
    (key(&number), disk)
}

/// The claims that opening the first of these providers makes on each of them.
fn claims(steps: &[Step], holder: &Holder, writes: bool, is_exclusive: bool) -> Vec<Claim> {
    let mut is_exclusive = is_exclusive;
    let claim = |step: &Step| {
        let consumer = match (&step.class, holder) {
            (Some((class, consumer)), _) => {
                is_exclusive |= match class {
                    Class::Part => writes,
                    Class::Label => true,
                    Class::Layer => false,
                };
                consumer.clone()
            }
            (None, Holder::Table) => table_on(&step.key),
            (None, Holder::Layer(name)) => name.clone(),
            (None, holder) => format!("{holder:?}"),
        };
        Claim {
            key: step.key.clone(),
            consumer,
            holder: holder.clone(),
            writes,
            is_exclusive,
        }
    };
    steps.iter().map(claim).collect()
}
