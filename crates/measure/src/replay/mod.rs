//! Replay: the commands of a trace, issued to a provider, and how long each took.
//!
//! # What it is
//! [`parse`] reads a trace; [`run`] issues its commands in their order, at their times or as fast as they complete,
//! with at most so many in flight; [`Replayed`] counts latencies. What is written are zeros. [`Raid5`] is an array to
//! replay on.
//!
//! # Invariants
//! 1. Nothing is issued before every command is known to fit: within the device, in whole sectors.
//! 2. A flush is issued when all commands before it are done, and the next one when it is: so a host that asks for
//!    durability waits.

mod raid5;
mod report;
mod trace;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::{BlockBuf, Error, Result};
use geom::{Bio, BioOp, Provider};

use crate::ends::Ends;

pub use raid5::Raid5;
pub use report::{Latencies, Replayed};
pub use trace::{Kind, Traced, parse};

/// How a trace is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// At the trace's times, as far as the device keeps up; otherwise as fast as it can.
    pub keeps_time: bool,
    /// How many commands may be in flight.
    pub depth: usize,
}

/// A command that is done.
struct Ended {
    kind: Kind,
    latency_ns: u64,
    bytes: u64,
    result: Result<()>,
}

/// Refuses commands that the device cannot take.
///
/// # Errors
/// `InvalidInput` for the first of them.
pub fn check(provider: &dyn Provider, trace: &[Traced]) -> Result<()> {
    let (size, sector) = (provider.mediasize(), u64::from(provider.sectorsize()));
    let name = provider.name();
    for one in trace {
        let (line, end) = (one.line, one.offset + one.len);
        if end > size {
            let text = format!("line {line}: ends at byte {end}, {name} at {size}");
            return Err(Error::invalid(text));
        }
        if !one.offset.is_multiple_of(sector) || !one.len.is_multiple_of(sector) {
            let text = format!(
                "line {line}: {} bytes at {} are not whole sectors of {sector}",
                one.len, one.offset
            );
            return Err(Error::invalid(text));
        }
    }
    Ok(())
}

/// Issues the commands, and tells `note` how many are done.
///
/// # Errors
/// As [`check`]; the first error of the device, when what is in flight is done.
pub fn run(
    provider: &dyn Provider,
    trace: &[Traced],
    pace: Pace,
    mut note: impl FnMut(usize),
) -> Result<Replayed> {
    check(provider, trace)?;
    let start_ns = rt::now_ns();
    let mut issuer = Issuer {
        provider,
        ends: Arc::default(),
        in_flight: 0,
        replayed: Replayed::default(),
        failed: None,
    };
    for (n, one) in trace.iter().enumerate() {
        let is_barrier = one.kind == Kind::Flush;
        let most = if is_barrier { 0 } else { pace.depth.max(1) - 1 };
        issuer.wait_until(most);
        if pace.keeps_time {
            let due_ns = start_ns.saturating_add(one.at_ns);
            let now_ns = rt::now_ns();
            rt::sleep_ns(due_ns.saturating_sub(now_ns));
            issuer.replayed.note_lag(now_ns.saturating_sub(due_ns));
        }
        if issuer.failed.is_some() {
            break;
        }
        issuer.issue(one);
        if is_barrier {
            issuer.wait_until(0);
        }
        note(n + 1);
    }
    issuer.wait_until(0);
    issuer.replayed.elapsed_ns = rt::now_ns() - start_ns;
    match issuer.failed {
        Some(error) => Err(error),
        None => Ok(issuer.replayed),
    }
}

struct Issuer<'p> {
    provider: &'p dyn Provider,
    ends: Arc<Ends<Ended>>,
    in_flight: usize,
    replayed: Replayed,
    failed: Option<Error>,
}

impl Issuer<'_> {
    fn issue(&mut self, one: &Traced) {
        let (kind, bytes) = (one.kind, one.len);
        let len = || usize::try_from(bytes).expect("at most a buffer");
        let op = match kind {
            Kind::Read => BioOp::Read { len: len() },
            Kind::Write => BioOp::Write(BlockBuf::paged(len()).share()),
            Kind::Trim => BioOp::Delete { len: bytes },
            Kind::Flush => BioOp::Flush,
        };
        if kind == Kind::Write {
            self.replayed.note_write(
                one,
                self.provider.stripesize(),
                self.provider.stripeoffset(),
            );
        }
        self.in_flight += 1;
        let (ends, submitted_ns) = (Arc::clone(&self.ends), rt::now_ns());
        let done = move |result: Result<geom::BioData>| {
            let ended = Ended {
                kind,
                latency_ns: rt::now_ns() - submitted_ns,
                bytes,
                result: result.map(drop),
            };
            ends.push(ended);
        };
        self.provider.submit(Bio {
            op,
            offset: one.offset,
            done: Box::new(done),
        });
    }

    /// Waits until at most so many commands are in flight.
    fn wait_until(&mut self, most: usize) {
        while let Some(ended) = self.ends.take() {
            self.note(ended);
        }
        while self.in_flight > most {
            let ended = self.ends.next();
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Ended) {
        self.in_flight -= 1;
        match ended.result {
            Ok(()) => self
                .replayed
                .note(ended.kind, ended.bytes, ended.latency_ns),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }
}
