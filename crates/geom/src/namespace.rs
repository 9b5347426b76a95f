//! What names of providers mean.
//!
//! # What it is
//! The engine knows its devices by name: from labels, a cachefile or a command line. What a name
//! resolves to is left to the caller: on a host names are paths, in a machine of emulated drives
//! they are names like `/dev/gpt/d1.nop`. A [`Namespace`] is for code that opens a device by its
//! name; [`HostNames`] is that of this host.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use base::Result;

use crate::disk::{self, OpenMode};
use crate::{Bio, Command, Provider, Shape};

/// A namespace of providers.
pub trait Namespace: Send + Sync {
    /// Opens a provider. Its [`Provider::name`] is the name to store in labels: opening that name leads
    /// to the same provider.
    ///
    /// # Errors
    /// [`base::ErrorKind::NotFound`] if there is no such name, [`base::ErrorKind::Busy`] if it
    /// is in use.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>>;

    /// The names to search for a device that is not at its old name, the likeliest first. Empty where
    /// there are too many.
    ///
    /// # Errors
    /// [`base::ErrorKind::Io`].
    fn names(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The names of this host: paths of files and block devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostNames;

impl Namespace for HostNames {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn Provider>> {
        disk::open(Path::new(name), mode)
    }
}

/// A provider under another name.
pub struct Renamed {
    name: String,
    provider: Arc<dyn Provider>,
    /// Dropped after the provider.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

impl Renamed {
    /// `provider`, called `name` from now on.
    #[must_use]
    pub fn new(name: impl Into<String>, provider: Arc<dyn Provider>) -> Renamed {
        Renamed {
            name: name.into(),
            provider,
            _held: None,
        }
    }

    /// Keeps `held` for as long as the provider is open.
    #[must_use]
    pub fn holding(self, held: impl Any + Send + Sync) -> Renamed {
        Renamed {
            _held: Some(Box::new(held)),
            ..self
        }
    }
}

impl Provider for Renamed {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        self.provider.shape()
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        self.provider.execute(offset, command)
    }
    fn submit(&self, bio: Bio) {
        self.provider.submit(bio);
    }
}
