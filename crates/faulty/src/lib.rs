//! Providers that fail on request, for the tests of what stands on providers.
//!
//! # What it is
//! - [`FaultInjector`]: a provider that misbehaves on request and never forgets the right bytes,
//! - [`PowerCut`]: RAM disks whose power can be cut after any command,
//! - [`Delay`]: a provider whose commands take a while.

/// The methods by which a provider says that its name, sizes and kind are those of the one that it stands
/// on, in field `$below`.
macro_rules! same_shape_as {
    ($below:ident) => {
        fn name(&self) -> &str {
            self.$below.name()
        }
        fn mediasize(&self) -> u64 {
            self.$below.mediasize()
        }
        fn sectorsize(&self) -> u32 {
            self.$below.sectorsize()
        }
        fn stripesize(&self) -> u32 {
            self.$below.stripesize()
        }
        fn stripeoffset(&self) -> u32 {
            self.$below.stripeoffset()
        }
        fn is_rotational(&self) -> bool {
            self.$below.is_rotational()
        }
        fn writes_at_once(&self) -> usize {
            self.$below.writes_at_once()
        }
        fn keeps_unflushed(&self) -> bool {
            self.$below.keeps_unflushed()
        }
    };
}

mod delay;
mod injector;
mod powercut;

pub use delay::Delay;
pub use injector::{Damage, FaultInjector};
pub use powercut::{PowerCut, PowerSupply};
