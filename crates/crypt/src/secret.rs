//! Bytes that are wiped when they are dropped, and that no `Debug` shows.

use std::fmt;

use zeroize::Zeroizing;

/// A key.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes over `bytes`, which are not copied.
    pub(crate) fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    pub(crate) fn zeroed(len: usize) -> Secret {
        Secret::new(vec![0; len])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}
