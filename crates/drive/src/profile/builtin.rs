//! The profiles that come with the program.

use std::sync::{Arc, OnceLock};

use super::Profile;

/// File names and texts, in listing order.
const TEXTS: &[(&str, &str)] = &[
    (
        "wd15ears.toml",
        include_str!("../../profiles/wd15ears.toml"),
    ),
    (
        "wd20ears.toml",
        include_str!("../../profiles/wd20ears.toml"),
    ),
    (
        "wd20ears-unbatched.toml",
        include_str!("../../profiles/wd20ears-unbatched.toml"),
    ),
    (
        "wd20ears-jumper.toml",
        include_str!("../../profiles/wd20ears-jumper.toml"),
    ),
    (
        "wd30ezrx.toml",
        include_str!("../../profiles/wd30ezrx.toml"),
    ),
    (
        "st2000dm001.toml",
        include_str!("../../profiles/st2000dm001.toml"),
    ),
    (
        "mal32000.toml",
        include_str!("../../profiles/mal32000.toml"),
    ),
    (
        "mal32000-4k.toml",
        include_str!("../../profiles/mal32000-4k.toml"),
    ),
    (
        "wd160edgz.toml",
        include_str!("../../profiles/wd160edgz.toml"),
    ),
    (
        "wd160edgz-usb.toml",
        include_str!("../../profiles/wd160edgz-usb.toml"),
    ),
    (
        "huh721010ale600.toml",
        include_str!("../../profiles/huh721010ale600.toml"),
    ),
    ("p4500.toml", include_str!("../../profiles/p4500.toml")),
];

/// The built-in profiles.
#[must_use]
pub fn profiles() -> &'static [Arc<Profile>] {
    static PROFILES: OnceLock<Vec<Arc<Profile>>> = OnceLock::new();
    PROFILES.get_or_init(|| {
        let parse = |(file, text): &(&str, &str)| match Profile::parse(file, text) {
            Ok(profile) => Arc::new(profile),
            Err(e) => panic!("built-in profile: {e}"),
        };
        TEXTS.iter().map(parse).collect()
    })
}
