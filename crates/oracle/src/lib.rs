//! The real OpenZFS, to test against: Debian's `zdb`, and Debian's kernel module in QEMU.
//!
//! # What it is
//! OpenZFS decides what is right. [`zdb`] runs its user-space debugger on image files; [`vm`] boots a Linux
//! kernel with the module under software emulation, gives it image files as disks, and runs a shell script as
//! root in it.
//!
//! If a tool is missing, [`have_zdb`] and [`vm::Guest::find`] say so on stderr, with what to install, and the
//! test passes without having tested anything; if `CI` is set they panic instead, because nothing may be
//! missing there.

mod boot_files;
pub mod install;
pub mod parity;
pub mod tools;
pub mod vm;
pub mod zdb;

pub use tools::{find_tool, have_tool};
pub use zdb::{Zdb, have_zdb, have_zdb_2_4};

/// Reports that a test is skipped, and what to install. Panics when `CI` is set.
pub fn skip(what: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "{what}: nothing may be missing in CI"
    );
    eprintln!("SKIPPED: {what}; `cargo xtask install` installs it");
}
