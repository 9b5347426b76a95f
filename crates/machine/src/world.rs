//! The world: names to providers.
//!
//! # What it is
//! A name is resolved from its end: a layer's name leads to the provider that the layer is on, and
//! that again has a name; a partition's name leads to the provider that has the table; at the
//! bottom there is a file, a block device or a drive. Nothing is resolved before it is asked for.
//!
//! # Concurrency
//! `layers` and `ledger` are leaf locks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use geom::disk::OpenMode;
use geom::nop::{Nop, NopCounters};
use geom::{Namespace, Provider, Renamed, disk};
use rt::Mutex;

use crate::kept::KeptFile;
use crate::layer::{Layer, LayerKind};
use crate::ledger::{Entry, Ledger, sum};

/// Layers on layers on layers: more than this is a circle in a file that a person wrote.
const DEPTH_MAX: u32 = 16;

/// What can be said of a provider without opening it for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderInfo {
    /// `gpt/d1.nop`
    pub name: String,
    /// The class that makes it, as GEOM calls it: `DISK`, `PART`, `LABEL`, `NOP`, `ELI`.
    pub class: &'static str,
    /// The provider that it is on.
    pub below: Option<String>,
    /// The size in bytes.
    pub mediasize: u64,
    /// The unit of all commands.
    pub sectorsize: u32,
    /// The physical sector.
    pub stripesize: u32,
    /// Where the first physical sector begins.
    pub stripeoffset: u32,
}

/// What names of providers mean.
pub struct World {
    place: Place,
    kept: KeptFile,
    layers: Mutex<Vec<Layer>>,
    ledger: Arc<Ledger>,
}

enum Place {
    Host,
}

impl World {
    /// This host; `state` is the folder in which its layers are kept.
    ///
    /// # Errors
    /// What reading them gives.
    pub fn host(state: &Path) -> Result<World> {
        let kept = KeptFile::within(state);
        let layers = kept.read()?.layers;
        Ok(World {
            place: Place::Host,
            kept,
            layers: Mutex::new(layers),
            ledger: Arc::default(),
        })
    }

    /// Whether names are those of a machine, not of this host.
    #[must_use]
    pub fn is_machine(&self) -> bool {
        match self.place {
            Place::Host => false,
        }
    }

    /// The one name of what has several: without `/dev/` in a machine, an absolute path on a host.
    #[must_use]
    pub fn canonical(&self, name: &str) -> String {
        match self.place {
            Place::Host => host_path(name).to_string_lossy().into_owned(),
        }
    }

    /// Opens a provider; its [`Provider::name`] is the [canonical](World::canonical) one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if nothing has that name, and whatever opening what is below gives.
    pub fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        self.resolve(&self.canonical(name), mode, 0)
    }

    fn resolve(&self, name: &str, mode: OpenMode, depth: u32) -> Result<Arc<dyn Provider>> {
        if depth > DEPTH_MAX {
            let text = format!("{name}: layers are on each other in a circle");
            return Err(Error::invalid(text));
        }
        if let Some(layer) = self.layer(name) {
            let below = self.resolve(&layer.on, mode, depth + 1)?;
            return self.open_layer(&layer, below);
        }
        match self.place {
            Place::Host => disk::open(Path::new(name), mode),
        }
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
        }
    }

    /// Everything that has a name, in the order of tasting: what is on a provider follows it. On a
    /// host these are the layers and what they are on.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when a drive cannot be read. What cannot be opened is left out.
    pub fn providers(&self) -> Result<Vec<ProviderInfo>> {
        let layers = self.layers();
        let mut found: Vec<ProviderInfo> = Vec::new();
        for layer in &layers {
            if !layers.iter().any(|l| l.name == layer.on)
                && !found.iter().any(|info| info.name == layer.on)
                && let Ok(provider) = self.open(&layer.on, OpenMode::Inspect)
            {
                found.push(describe(&*provider, "DISK", None));
            }
            if let Ok(provider) = self.open(&layer.name, OpenMode::Inspect) {
                found.push(describe(&*provider, layer.kind.class(), Some(&layer.on)));
            }
        }
        Ok(found)
    }

    /// The layers there are, in the order in which they were made.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        self.layers.lock().clone()
    }

    /// The layer of that name.
    #[must_use]
    pub fn layer(&self, name: &str) -> Option<Layer> {
        let name = self.canonical(name);
        self.layers.lock().iter().find(|l| l.name == name).cloned()
    }

    /// Adds a layer and keeps it.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the name is taken; what opening the layer gives; what keeping it
    /// gives.
    pub fn add_layer(&self, layer: Layer) -> Result<()> {
        let layer = Layer {
            on: self.canonical(&layer.on),
            name: self.canonical(&layer.name),
            ..layer
        };
        if self.layer(&layer.name).is_some() {
            let text = format!("provider {} already exists", layer.name);
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
    /// [`ErrorKind::NotFound`]; what keeping it gives.
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

    /// Takes a layer off.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Busy`] if another layer is on it; what keeping it
    /// gives.
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

    fn change_layers<T>(&self, edit: impl FnOnce(&mut Vec<Layer>) -> Result<T>) -> Result<T> {
        self.kept.change(|kept| {
            let outcome = edit(&mut kept.layers)?;
            kept.counters
                .retain(|name, _| kept.layers.iter().any(|l| l.name == *name));
            *self.layers.lock() = kept.layers.clone();
            Ok(outcome)
        })
    }

    /// What the nop of that name counted since it was made or reset.
    ///
    /// # Errors
    /// What reading it gives.
    pub fn nop_counters(&self, name: &str) -> Result<NopCounters> {
        let name = self.canonical(name);
        let kept = self.kept.read()?.counters.get(&name).copied();
        let fresh = self.ledger.lock().get(&name).map(|c| c.counters);
        Ok(sum(kept.unwrap_or_default(), fresh.unwrap_or_default()))
    }

    /// Lets the nop of that name count from zero.
    ///
    /// # Errors
    /// What keeping it gives.
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

    /// Keeps what is to be kept: the counters of nops. To be called when every provider is closed.
    ///
    /// # Errors
    /// What writing it gives.
    pub fn close(&self) -> Result<()> {
        let ledger = std::mem::take(&mut *self.ledger.lock());
        let counted: BTreeMap<_, _> = ledger
            .into_iter()
            .filter(|(_, c)| c.counters != NopCounters::default() || c.config.is_some())
            .collect();
        if counted.is_empty() {
            return Ok(());
        }
        self.kept.change(|kept| {
            for (name, counted) in counted {
                let Some(layer) = kept.layers.iter_mut().find(|l| l.name == name) else {
                    continue;
                };
                if let (Some((opened, now)), LayerKind::Nop(config)) =
                    (counted.config, &mut layer.kind)
                    && *config == opened
                {
                    *config = now;
                }
                let sum = sum(
                    kept.counters.get(&name).copied().unwrap_or_default(),
                    counted.counters,
                );
                kept.counters.insert(name, sum);
            }
            Ok(())
        })
    }
}

impl Namespace for World {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        let provider = World::open(self, name, mode)?;
        if !self.is_machine() {
            return Ok(provider);
        }
        let path = format!("/dev/{}", provider.name());
        Ok(Arc::new(Renamed::new(path, provider)))
    }
}

fn no_layer(name: &str) -> Error {
    Error::not_found(format!("there is no layer {name}"))
}

fn describe(provider: &dyn Provider, class: &'static str, below: Option<&str>) -> ProviderInfo {
    ProviderInfo {
        name: provider.name().to_owned(),
        class,
        below: below.map(str::to_owned),
        mediasize: provider.mediasize(),
        sectorsize: provider.sectorsize(),
        stripesize: provider.stripesize(),
        stripeoffset: provider.stripeoffset(),
    }
}

/// An absolute path; the short name of a device when there is one in `/dev` and nothing here.
fn host_path(name: &str) -> PathBuf {
    let given = Path::new(name);
    let here = std::path::absolute(given).unwrap_or_else(|_| given.to_path_buf());
    if given.is_absolute() || here.exists() {
        return here;
    }
    let device = Path::new("/dev").join(name);
    if device.exists() { device } else { here }
}
