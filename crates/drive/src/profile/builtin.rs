//! The profiles that come with the program.

use std::sync::{Arc, OnceLock};

use super::Profile;

/// File names and texts, in the order in which they are listed.
const TEXTS: &[(&str, &str)] = &[(
    "wd20ears.toml",
    include_str!("../../profiles/wd20ears.toml"),
)];

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
