//! All of these tests once more through io_uring.

use std::fs;
use std::process::Command;

use crate::tree::{IS_AGAIN, Tree, alone, can_mount};

/// Whether the kernel offers io_uring to those who mount.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers io_uring until this is dropped.
struct Offered {
    before: String,
}

impl Offered {
    /// `None` where the kernel cannot.
    fn new() -> Option<Offered> {
        let before = fs::read_to_string(PARAMETER);
        let offered = before.and_then(|before| {
            fs::write(PARAMETER, "Y")?;
            Ok(Offered { before })
        });
        offered
            .inspect_err(|error| eprintln!("SKIPPED: FUSE over io_uring: {PARAMETER}: {error}"))
            .ok()
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = fs::write(PARAMETER, self.before.trim());
    }
}

#[test]
fn all_of_this_works_through_io_uring() {
    if !can_mount() || std::env::var_os(IS_AGAIN).is_some() {
        return;
    }
    // The kernel's parameter is that of all mounts.
    let _alone = alone();
    let Some(_offered) = Offered::new() else {
        return;
    };
    let tree = Tree::new("");
    fs::write(tree.path("f"), "content").unwrap();
    assert!(tree.has_rings(), "no thread waits for a ring");
    tree.end();
    let again = Command::new(std::env::current_exe().unwrap())
        .env(IS_AGAIN, "1")
        .output();
    let again = again.unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success(), "{said}");
}

#[test]
fn without_it_the_kernel_asks_by_the_device() {
    if !can_mount() || std::env::var_os(IS_AGAIN).is_some() {
        return;
    }
    let is_offered = fs::read_to_string(PARAMETER).is_ok_and(|text| text.trim() == "Y");
    let tree = Tree::new("");
    fs::write(tree.path("f"), "content").unwrap();
    assert_eq!(tree.has_rings(), is_offered);
    tree.end();
}
