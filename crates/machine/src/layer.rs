//! Layers: classes that are put onto providers by command, and stay until they are taken off.

use base::{Error, Result};
use geli::Attached;
use geom::nop::NopConfig;
use serde::{Deserialize, Serialize};

/// A nop or an eli on a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Entry", try_from = "Entry")]
pub struct Layer {
    /// The provider that it is on.
    pub on: String,
    /// Its own provider: `gpt/d1.nop`.
    pub name: String,
    /// It does not survive a loss of power.
    pub transient: bool,
    /// Its kind, with its configuration.
    pub kind: LayerKind,
}

/// The kind of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A nop.
    Nop(NopConfig),
    /// An attached eli.
    Eli(Attached),
}

impl LayerKind {
    /// The name of its class, as GEOM has it.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            LayerKind::Nop(_) => "NOP",
            LayerKind::Eli(_) => "ELI",
        }
    }

    /// Whether it holds a key, which must not be in a file that others may read.
    #[must_use]
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self, LayerKind::Eli(_))
    }
}

/// A layer as it is stored in a file: one key says what it is.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    on: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    transient: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nop: Option<NopConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eli: Option<Attached>,
}

impl From<Layer> for Entry {
    fn from(layer: Layer) -> Entry {
        let (nop, eli) = match layer.kind {
            LayerKind::Nop(config) => (Some(config), None),
            LayerKind::Eli(attached) => (None, Some(attached)),
        };
        Entry {
            name: layer.name,
            on: layer.on,
            transient: layer.transient,
            nop,
            eli,
        }
    }
}

impl TryFrom<Entry> for Layer {
    type Error = Error;
    fn try_from(entry: Entry) -> Result<Layer> {
        let kind = match (entry.nop, entry.eli) {
            (Some(config), None) => LayerKind::Nop(config),
            (None, Some(attached)) => LayerKind::Eli(attached),
            _ => {
                let name = entry.name;
                let text = format!("layer '{name}' has not one of `nop` and `eli`");
                return Err(Error::invalid(text));
            }
        };
        Ok(Layer {
            on: entry.on,
            name: entry.name,
            transient: entry.transient,
            kind,
        })
    }
}
