//! What the caller decides for all its sessions, and what it is told while they work.

use std::sync::Arc;

use dmu::SuspendEvent;

use crate::keys::KeySource;

/// Shows how far some work is: bytes done, and bytes in all.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Told while a session works; each call returns soon.
pub trait Observer: Send + Sync {
    /// A session has waited for a second; `what` names the thing and the obstacle.
    fn waiting(&self, what: &str);

    /// A pool is suspended, or has resumed.
    fn suspended(&self, pool: &str, event: &SuspendEvent<'_>);

    /// Work begins that may take long: returns what is called with the bytes done and the bytes in all, and
    /// is dropped when the work ends.
    fn progress(&self) -> Progress;

    /// Something that a user should know, and that does not fail the request.
    fn notice(&self, text: &str);
}

/// What the caller decides for all its sessions.
#[derive(Clone)]
pub struct Environment {
    /// How long to wait for other sessions and for failed devices, in ns; `None`: the defaults.
    pub wait_ns: Option<u64>,
    /// Bytes of the block cache of each pool; `None`: the default.
    pub arc_bytes: Option<u64>,
    /// Who is told.
    pub observer: Arc<dyn Observer>,
    /// Where keys of encrypted data sets come from.
    pub keys: Arc<dyn KeySource>,
}
