//! Providers that fail on request, for the tests of what stands on providers.
//!
//! # What it is
//! - [`FaultInjector`]: a provider that misbehaves on request and never forgets the right bytes,
//! - [`PowerCut`]: RAM disks whose power can be cut after any command,
//! - [`Delay`]: a provider whose commands take a while.

mod delay;
mod injector;
mod powercut;

pub use delay::Delay;
pub use injector::{Damage, FaultInjector};
pub use powercut::{PowerCut, PowerSupply};
