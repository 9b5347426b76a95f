//! The real OpenZFS, to test against: Debian's `zdb`, and Debian's kernel module in QEMU.
//!
//! # What it is
//! What OpenZFS accepts is what is right. [`zdb`] runs its user-space debugger on image files;
//! [`vm`] boots a Linux kernel with the module under software emulation, hands it image files as
//! disks and runs a shell script as root in there.
//!
//! Where a tool is missing, [`have_zdb`] and [`vm::Guest::find`] say so on stderr, with what to
//! install, and the test that asked passes without having tested: except when `CI` is set, where
//! nothing may be missing.

pub mod install;
pub mod parity;
pub mod vm;
pub mod zdb;

pub use zdb::{Zdb, have_zdb};

/// Says loudly that a test did not test, and what would make it. Panics when `CI` is set.
pub fn skip(what: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{what}: nothing may be missing in CI"
    );
    eprintln!("SKIPPED: {what}; `cargo xtask install` installs it");
}
