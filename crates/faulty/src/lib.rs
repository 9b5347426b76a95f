//! Providers that fail on request, for tests of the code above providers.
//!
//! # What it is
//! - [`FaultInjector`]: a provider that misbehaves on request, with the right bytes kept below,
//! - [`PowerCut`]: RAM disks whose power can be cut after any command,
//! - [`Delay`]: a provider whose commands take a random time.

mod delay;
mod injector;
mod powercut;

pub use delay::Delay;
pub use injector::{Damage, FaultInjector};
pub use powercut::{PowerCut, PowerSupply};
