//! Layers: classes that are put onto providers by command, and stay until they are taken off.

use base::{Error, Result};
use geom::nop::NopConfig;
use serde::{Deserialize, Serialize};

/// A nop or an eli on a provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Entry", try_from = "Entry")]
pub struct Layer {
    /// The provider that it is on.
    pub on: String,
    /// Its own provider: `gpt/d1.nop`.
    pub name: String,
    /// It is gone when the power is.
    pub transient: bool,
    /// What it is.
    pub kind: LayerKind,
}

/// What a layer is.
#[derive(Clone, Debug)]
pub enum LayerKind {
    /// A nop.
    Nop(NopConfig),
}

impl LayerKind {
    /// The name of its class, as GEOM has it.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            LayerKind::Nop(_) => "NOP",
        }
    }

    /// Whether it holds a key, which must not be in a file that others may read.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        match self {
            LayerKind::Nop(_) => false,
        }
    }
}

/// A layer as it stands in a file: one key says what it is.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    on: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    transient: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nop: Option<NopConfig>,
}

impl From<Layer> for Entry {
    fn from(layer: Layer) -> Entry {
        let LayerKind::Nop(nop) = layer.kind;
        Entry {
            name: layer.name,
            on: layer.on,
            transient: layer.transient,
            nop: Some(nop),
        }
    }
}

impl TryFrom<Entry> for Layer {
    type Error = Error;
    fn try_from(entry: Entry) -> Result<Layer> {
        let Some(nop) = entry.nop else {
            let text = format!("layer '{}' does not say what it is", entry.name);
            return Err(Error::invalid(text));
        };
        Ok(Layer {
            on: entry.on,
            name: entry.name,
            transient: entry.transient,
            kind: LayerKind::Nop(nop),
        })
    }
}
