//! Metadata in human-readable form.

use std::fmt::{self, Write};

use md5::{Digest, Md5};

use super::Metadata;
use crate::algorithm::{auth_name, cipher_name};
use crate::attached::to_hex;
use crate::{Flags, METADATA_BYTES};

impl Metadata {
    /// The lines of `geli dump`.
    #[must_use]
    #[doc(alias = "eli_metadata_dump")]
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn fmt::Display| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:>10}: {value}");
        };
        line("magic", &"GEOM::ELI");
        line("version", &self.version);
        line("flags", &format_args!("{:#x}", self.flags.0));
        line("ealgo", &cipher_name(self.ealgo));
        line("keylen", &self.keylen);
        if self.flags.contains(Flags::AUTH) {
            line("aalgo", &auth_name(self.aalgo));
        }
        line("provsize", &self.provsize);
        line("sectorsize", &self.sectorsize);
        line("keys", &format_args!("{:#04x}", self.keys));
        line("iterations", &self.iterations);
        line("Salt", &to_hex(&self.salt));
        line("Master Key", &to_hex(self.mkeys.as_flattened()));
        line("MD5 hash", &to_hex(&self.md5()));
        text
    }

    /// The checksum on disk.
    #[must_use]
    pub fn md5(&self) -> [u8; 16] {
        let covered = METADATA_BYTES - 16 - if self.version == 0 { 2 } else { 0 };
        Md5::digest(&self.encode()[..covered]).into()
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dump())
    }
}

impl Flags {
    /// The names of the flags, as `geli list` has them.
    #[must_use]
    pub fn names(self, version: u32) -> String {
        let named = [
            (version < 5, "SINGLE-KEY"),
            (version < 4, "NATIVE-BYTE-ORDER"),
            (self.contains(Flags::ONETIME), "ONETIME"),
            (self.contains(Flags::BOOT), "BOOT"),
            (self.contains(Flags::WO_DETACH), "W-DETACH"),
            (self.contains(Flags::RW_DETACH), "RW-DETACH"),
            (self.contains(Flags::AUTH), "AUTH"),
            (self.contains(Flags::RO), "READ-ONLY"),
            (self.contains(Flags::NODELETE), "NODELETE"),
            (self.contains(Flags::GELIBOOT), "GELIBOOT"),
            (self.contains(Flags::GELIDISPLAYPASS), "GELIDISPLAYPASS"),
            (self.contains(Flags::AUTORESIZE), "AUTORESIZE"),
        ];
        let names: Vec<_> = named.iter().filter(|n| n.0).map(|n| n.1).collect();
        if names.is_empty() {
            return "NONE".to_owned();
        }
        names.join(", ")
    }
}
