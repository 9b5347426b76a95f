//! The world: resolves names to providers.
//!
//! # What it is
//! A name is resolved from its end: a layer's name leads to the name of the provider that the layer
//! is on; a partition's name leads to the provider that has the table; at the bottom is a file, a
//! block device or a drive. Resolution is lazy.
//!
//! # Concurrency
//! `layers`, `ledger` and `shared` are leaf locks; so are the locks of a [`Running`] machine, but
//! for each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::{Error, ErrorKind, Result};
use drive::Emulated;
use geli::Eli;
use geom::disk::OpenMode;
use geom::nop::{Nop, NopCounters};
use geom::{Namespace, Provider, Renamed, disk};
use rt::Mutex;

use crate::access::{Access, Holder};
use crate::kept::{Kept, KeptFile};
use crate::layer::{Layer, LayerKind};
use crate::ledger::{Counted, Entry, Ledger, sum};
use crate::lock::Patience;
use crate::machine::Machine;
use crate::running::Running;
use crate::taste::Tables;

/// Maximum depth of stacked providers: more can only be a cycle in a hand-written file.
pub(crate) const DEPTH_MAX: u32 = 16;
/// How long to wait for a machine that is in use: 10 s.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Resolves names of providers, on this host or in a machine.
pub struct World {
    pub(crate) place: Setting,
    kept: KeptFile,
    layers: Mutex<Vec<Layer>>,
    ledger: Arc<Ledger>,
    /// Open layers of a machine, by name: all users of a layer share one instance.
    shared: Mutex<BTreeMap<String, Weak<dyn Provider>>>,
    pub(crate) tables: Tables,
    pub(crate) access: Access,
}

/// The kind of a world.
pub(crate) enum Setting {
    Host,
    Machine(Box<Running>),
}

impl World {
    /// This host; `state` is the folder in which its layers are kept.
    ///
    /// # Errors
    /// Errors of reading them.
    pub fn host(state: &Path) -> Result<World> {
        let kept = KeptFile::within(state);
        let layers = kept.read()?.layers;
        Ok(World::new(Setting::Host, kept, layers))
    }

    /// The machine in that folder, switched on: its drives are open. The caller is inside a
    /// simulation, whose clock jumps to that of the machine.
    ///
    /// # Errors
    /// Those of [`Machine::open`], and of opening the drives.
    pub fn machine(folder: &Path) -> Result<World> {
        let patience = Patience {
            wait_ns: PATIENCE_NS,
            on_wait: &|_| {},
        };
        World::start(Machine::open(folder, &patience)?)
    }

    /// Switches a machine on, like [`World::machine`].
    ///
    /// # Errors
    /// Errors of opening the drives and reading the layers.
    pub fn start(machine: Machine) -> Result<World> {
        assert!(rt::is_simulated(), "a machine runs in simulated time");
        rt::sleep_ns(machine.clock_ns().saturating_sub(rt::now_ns()));
        let kept = KeptFile::within(&machine.state());
        let mut layers = machine.description.layers.clone();
        layers.extend(kept.read()?.layers);
        let running = Running::start(machine)?;
        Ok(World::new(
            Setting::Machine(Box::new(running)),
            kept,
            layers,
        ))
    }

    fn new(place: Setting, kept: KeptFile, layers: Vec<Layer>) -> World {
        World {
            place,
            kept,
            layers: Mutex::new(layers),
            ledger: Arc::default(),
            shared: Mutex::default(),
            tables: Tables::default(),
            access: Access::default(),
        }
    }

    /// Whether names are those of a machine, not of this host.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        self.running().is_some()
    }

    /// The machine, if it is one.
    #[must_use]
    pub fn running(&self) -> Option<&Running> {
        match &self.place {
            Setting::Host => None,
            Setting::Machine(running) => Some(running),
        }
    }

    /// The drives of a machine that are connected; none on a host.
    #[must_use]
    pub fn drives(&self) -> Vec<Arc<Emulated>> {
        self.running().map_or_else(Vec::new, Running::drives)
    }

    /// The canonical form of a name: without `/dev/` in a machine, an absolute path on a host.
    #[must_use]
    pub fn canonical(&self, name: &str) -> String {
        match self.place {
            Setting::Host => host_path(name).to_string_lossy().into_owned(),
            Setting::Machine(_) => name.strip_prefix("/dev/").unwrap_or(name).to_owned(),
        }
    }

    /// Opens a provider; its [`Provider::name`] is the [canonical](World::canonical) one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if nothing has that name, [`ErrorKind::Exists`] if it is a label that
    /// two partitions have; for writing also those of [`World::hold`]; those of opening the providers
    /// below.
    pub fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        self.open_as(name, mode, &Holder::Program)
    }

    /// Like [`World::open`], on behalf of a holder: its own claims do not conflict.
    ///
    /// # Errors
    /// As [`World::open`].
    pub fn open_as(
        &self,
        name: &str,
        mode: OpenMode,
        holder: &Holder,
    ) -> Result<Arc<dyn Provider>> {
        let canonical = self.canonical(name);
        if mode != OpenMode::ReadWrite {
            return self.resolve(&canonical, mode, 0);
        }
        let hold = self.hold(name, holder)?;
        let provider = self.resolve(&canonical, mode, 0)?;
        let own = provider.name().to_owned();
        Ok(Arc::new(Renamed::new(own, provider).holding(hold)))
    }

    /// This world as a [`Namespace`] for a holder: a pool, or a device of a new one.
    #[must_use]
    pub fn names_for(&self, holder: Holder) -> NamesFor<'_> {
        NamesFor {
            world: self,
            holder,
        }
    }

    pub(crate) fn resolve(
        &self,
        name: &str,
        mode: OpenMode,
        depth: u32,
    ) -> Result<Arc<dyn Provider>> {
        if depth > DEPTH_MAX {
            let text = format!("{name}: layers are on each other in a circle");
            return Err(Error::invalid(text));
        }
        let provider = if let Some(layer) = self.find_layer(name) {
            self.open_on(&layer, mode, depth)?
        } else if let Some(provider) = self.open_bottom(name, mode)? {
            provider
        } else if let Some(place) = self.find_place(name, mode, depth)? {
            place
        } else {
            return Err(self.not_found(name));
        };
        if mode == OpenMode::ReadWrite {
            self.tables.forget(name);
        }
        Ok(provider)
    }

    /// Opens a provider at the bottom of the stack: a path of the host, a drive.
    fn open_bottom(&self, name: &str, mode: OpenMode) -> Result<Option<Arc<dyn Provider>>> {
        match &self.place {
            Setting::Host => match disk::open(Path::new(name), mode) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                other => other.map(Some),
            },
            Setting::Machine(running) => running.drive(name),
        }
    }

    fn not_found(&self, name: &str) -> Error {
        match &self.place {
            Setting::Host => Error::not_found(format!("{name}: No such file or directory")),
            Setting::Machine(_) => {
                Error::not_found(format!("{name}: there is no such provider in this machine"))
            }
        }
    }

    /// Opens a layer. In a machine all users of a layer share one instance.
    fn open_on(&self, layer: &Layer, mode: OpenMode, depth: u32) -> Result<Arc<dyn Provider>> {
        let is_shared = self.is_machine();
        let open = self.shared.lock().get(&layer.name).and_then(Weak::upgrade);
        if let Some(provider) = open.filter(|_| is_shared) {
            return Ok(provider);
        }
        let below = self.resolve(&layer.on, mode, depth + 1)?;
        let provider = self.open_layer(layer, below)?;
        if is_shared {
            let weak = Arc::downgrade(&provider);
            self.shared.lock().insert(layer.name.clone(), weak);
        }
        Ok(provider)
    }

    fn open_layer(&self, layer: &Layer, below: Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
        match &layer.kind {
            LayerKind::Nop(config) => {
                let nop = Nop::new(below, &layer.name, config.clone())?;
                let entry = Entry {
                    nop: Arc::clone(&nop),
                    opened: config.clone(),
                    ledger: Arc::clone(&self.ledger),
                };
                Ok(Arc::new(Renamed::new(&layer.name, nop).holding(entry)))
            }
            LayerKind::Eli(attached) => Ok(Eli::open(below, layer.name.as_str(), attached)?),
        }
    }

    /// The layers there are, in the order in which they were made.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        self.layers.lock().clone()
    }

    /// The layer of that name.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<Layer> {
        self.find_layer(&self.canonical(name))
    }

    fn find_layer(&self, name: &str) -> Option<Layer> {
        self.layers.lock().iter().find(|l| l.name == name).cloned()
    }

    /// Adds a layer and keeps it.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the name is taken; errors of opening the layer and of saving it.
    pub fn add_layer(&self, layer: Layer) -> Result<()> {
        let layer = Layer {
            on: self.canonical(&layer.on),
            name: self.canonical(&layer.name),
            ..layer
        };
        let is_taken = match self.resolve(&layer.name, OpenMode::Inspect, 0) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        if is_taken {
            let text = format!("Provider {} already exists.", layer.name);
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let below = self.resolve(&layer.on, OpenMode::Inspect, 0)?;
        drop(self.open_layer(&layer, below)?);
        self.change_layers(|layers| {
            layers.push(layer);
            Ok(())
        })
    }

    /// Replaces the layer of that name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; errors of saving it.
    pub fn update_layer(&self, layer: Layer) -> Result<()> {
        let layer = Layer {
            on: self.canonical(&layer.on),
            name: self.canonical(&layer.name),
            ..layer
        };
        self.change_layers(|layers| {
            let place = layers.iter_mut().find(|l| l.name == layer.name);
            let place = place.ok_or_else(|| no_layer(&layer.name))?;
            *place = layer;
            Ok(())
        })
    }

    /// Removes a layer.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Busy`] if another layer is on it; errors of saving the
    /// layers.
    pub fn remove_layer(&self, name: &str) -> Result<Layer> {
        let name = self.canonical(name);
        if let Some(above) = self.layers().iter().find(|l| l.on == name) {
            let text = format!("{name} is used by {}", above.name);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        self.change_layers(|layers| {
            let at = layers.iter().position(|l| l.name == name);
            Ok(layers.remove(at.ok_or_else(|| no_layer(&name))?))
        })
    }

    /// Changes the layers, and the files they are kept in: on a host all in one file; in a machine
    /// those that survive a loss of power and hold no key are in its description.
    fn change_layers<T>(&self, edit: impl FnOnce(&mut Vec<Layer>) -> Result<T>) -> Result<T> {
        let change = |kept: &mut Kept| {
            let mut layers = match &self.place {
                Setting::Host => kept.layers.clone(),
                Setting::Machine(_) => self.layers(),
            };
            let outcome = edit(&mut layers)?;
            kept.layers = match &self.place {
                Setting::Host => layers.clone(),
                Setting::Machine(running) => {
                    let (open, hidden) = layers
                        .iter()
                        .cloned()
                        .partition::<Vec<_>, _>(|l| !l.transient && !l.kind.is_secret());
                    running.set_layers(&open)?;
                    hidden
                }
            };
            let is_there = |name: &String| layers.iter().any(|l| l.name == *name);
            kept.counters.retain(|name, _| is_there(name));
            *self.layers.lock() = layers;
            Ok(outcome)
        };
        let outcome = self.kept.change(change)?;
        self.shared.lock().clear();
        self.forget_steps();
        Ok(outcome)
    }

    /// Removes the layers that do not survive a loss of power, and resets the counters.
    ///
    /// # Errors
    /// Errors of saving them.
    pub fn lose_layers(&self) -> Result<()> {
        self.ledger.lock().clear();
        self.change_layers(|layers| {
            // Layers on a lost layer are lost with it.
            let is_lost = |l: &Layer| l.transient || l.kind.is_secret();
            while let Some(at) = layers.iter().position(is_lost) {
                let gone = layers.remove(at);
                for layer in layers.iter_mut().filter(|l| l.on == gone.name) {
                    layer.transient = true;
                }
            }
            Ok(())
        })?;
        self.kept.change(|kept| {
            kept.counters.clear();
            Ok(())
        })
    }

    /// The counters of the nop of that name since it was made or reset.
    ///
    /// # Errors
    /// Errors of reading them.
    pub fn nop_counters(&self, name: &str) -> Result<NopCounters> {
        let name = self.canonical(name);
        let kept = self.kept.read()?.counters.get(&name).copied();
        let fresh = self.ledger.lock().get(&name).map(|c| c.counters);
        Ok(sum(kept.unwrap_or_default(), fresh.unwrap_or_default()))
    }

    /// Resets the counters of the nop of that name.
    ///
    /// # Errors
    /// Errors of saving them.
    pub fn reset_nop_counters(&self, name: &str) -> Result<()> {
        let name = self.canonical(name);
        if let Some(counted) = self.ledger.lock().get_mut(&name) {
            counted.counters = NopCounters::default();
        }
        self.kept.change(|kept| {
            kept.counters.remove(&name);
            Ok(())
        })
    }

    /// Saves the counters of the nops and, of a machine, its drives and its clock. To be called
    /// when every provider is closed.
    ///
    /// # Errors
    /// The first error of writing; whatever can be written is written nevertheless.
    pub fn close(&self) -> Result<()> {
        let kept = self.keep_ledger();
        match &self.place {
            Setting::Host => kept,
            Setting::Machine(running) => kept.and(running.stop()),
        }
    }

    fn keep_ledger(&self) -> Result<()> {
        let ledger = std::mem::take(&mut *self.ledger.lock());
        let is_used = |c: &Counted| c.counters != NopCounters::default() || c.config.is_some();
        if !ledger.values().any(is_used) {
            return Ok(());
        }
        let mut outcome = Ok(());
        for (name, counted) in &ledger {
            outcome = outcome.and(self.keep_config(name, counted));
        }
        outcome.and(self.kept.change(|kept| {
            for (name, counted) in ledger {
                if self.find_layer(&name).is_some() {
                    let so_far = kept.counters.entry(name).or_default();
                    *so_far = sum(*so_far, counted.counters);
                }
            }
            Ok(())
        }))
    }

    /// Saves the config of a nop that changed by itself while open: one that counts down to its
    /// failure.
    fn keep_config(&self, name: &str, counted: &Counted) -> Result<()> {
        let Some((opened, now)) = &counted.config else {
            return Ok(());
        };
        self.change_layers(|layers| {
            let layer = layers.iter_mut().find(|l| l.name == name);
            if let Some(LayerKind::Nop(config)) = layer.map(|l| &mut l.kind)
                && config == opened
            {
                *config = now.clone();
            }
            Ok(())
        })
    }
}

/// Names as they are in the vdev labels of pools: in a machine with `/dev/`.
pub struct NamesFor<'a> {
    world: &'a World,
    holder: Holder,
}

impl Namespace for NamesFor<'_> {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        let provider = self.world.open_as(name, mode, &self.holder)?;
        if !self.world.is_machine() {
            return Ok(provider);
        }
        let path = format!("/dev/{}", provider.name());
        Ok(Arc::new(Renamed::new(path, provider)))
    }

    /// In a machine all providers, labels first, as they say more than drive numbers; on a host none.
    fn names(&self) -> Result<Vec<String>> {
        if !self.world.is_machine() {
            return Ok(Vec::new());
        }
        let (mut names, others): (Vec<_>, Vec<_>) = self
            .world
            .providers()?
            .into_iter()
            .partition(|info| info.class == "LABEL");
        names.extend(others);
        Ok(names.iter().map(|i| format!("/dev/{}", i.name)).collect())
    }
}

impl Namespace for World {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        self.names_for(Holder::Program).open(name, mode)
    }

    fn names(&self) -> Result<Vec<String>> {
        self.names_for(Holder::Program).names()
    }
}

fn no_layer(name: &str) -> Error {
    Error::not_found(format!("there is no layer {name}"))
}

/// The absolute path of a name. A relative name that does not exist in the current folder is looked
/// up in `/dev`.
fn host_path(name: &str) -> PathBuf {
    let given = Path::new(name);
    let here = std::path::absolute(given).unwrap_or_else(|_| given.to_path_buf());
    if given.is_absolute() || here.exists() {
        return here;
    }
    let device = Path::new("/dev").join(name);
    if device.exists() { device } else { here }
}
