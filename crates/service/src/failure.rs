//! Why a request was not carried out.

use admin::pool::VdevStatus;
use base::Error;

use crate::rewind::Rewound;

/// Why a request was not carried out: what was tried with which pool, and what prevented it.
#[derive(Debug)]
pub struct Failure {
    /// What was tried.
    pub attempt: Attempt,
    /// The pool.
    pub pool: String,
    /// What prevented it.
    pub reason: Reason,
}

/// The result of a request.
pub type Outcome<T> = Result<T, Failure>;

/// What was tried when a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// To open an imported pool.
    Open,
    /// To read what is shown of a pool.
    Look,
    /// To write the history at the end of a session.
    Write,
    /// To sync and close at the end of a session.
    Close,
    /// To create a pool.
    Create,
    /// To import a pool.
    Import,
    /// To export a pool.
    Export,
    /// To destroy a pool.
    Destroy,
    /// To sync a pool.
    Sync,
    /// To scrub a pool.
    Scrub,
    /// To cancel a running scrub.
    CancelScrub,
    /// To pause a running scrub.
    PauseScrub,
    /// To log the command, or to update what is remembered of a pool.
    Record,
}

/// What prevented a request.
#[derive(Debug)]
pub enum Reason {
    /// An error of the engine or of the host.
    Error(Error),
    /// The last state of the pool is damaged.
    Damaged {
        /// In which way.
        error: Error,
        /// An earlier state that is not.
        recovery: Option<Rewound>,
    },
    /// Another session has the pool's name locked.
    InUse(Error),
    /// The pool can only be read.
    ReadOnly,
    /// The name is that of another imported pool.
    NameTaken,
    /// The labels say that another host has the pool open.
    Foreign {
        /// Its name; may be empty.
        hostname: String,
        /// Its id.
        hostid: u64,
        /// When it last wrote an uberblock, in seconds since 1970.
        accessed_secs: u64,
    },
    /// Not all devices that the pool needs are there.
    DevicesUnavailable,
    /// These log devices are not there.
    LogsMissing(Vec<VdevStatus>),
    /// The labels give no usable tree of vdevs.
    ConfigInvalid,
    /// The labels were no longer those of the pool when its devices were locked.
    LabelsChanged,
}

impl Failure {
    /// The error, for callers that know what was tried.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self.reason {
            Reason::Error(error) | Reason::InUse(error) | Reason::Damaged { error, .. } => error,
            other => Error::invalid(format!("{other:?}")),
        }
    }

    pub(crate) fn new(attempt: Attempt, pool: &str, reason: impl Into<Reason>) -> Failure {
        Failure {
            attempt,
            pool: pool.to_owned(),
            reason: reason.into(),
        }
    }

    /// A function that makes an error the failure of an attempt.
    pub(crate) fn of(attempt: Attempt, pool: &str) -> impl Fn(Error) -> Failure {
        move |error| Failure::new(attempt, pool, error)
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Reason {
        Reason::Error(error)
    }
}
