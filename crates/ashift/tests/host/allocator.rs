//! The allocator that the program is linked with has the settings that memory bounds rest on.

use std::process::Command;

#[test]
fn the_allocator_takes_its_settings() {
    let output = Command::new(env!("CARGO_BIN_EXE_ashift"))
        .arg("--version")
        .env("_RJEM_MALLOC_CONF", "confirm_conf:true")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    for setting in ["narenas:2", "dirty_decay_ms:5000", "muzzy_decay_ms:0"] {
        assert!(
            told.contains(&format!("Set conf value: {setting}")),
            "{told}"
        );
    }
}
