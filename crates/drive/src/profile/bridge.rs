//! How a SATA drive is connected: directly, or in a USB enclosure, whose bridge is what the host sees.
//!
//! # What it is
//! A bridge translates SCSI commands to ATA commands. What it adds or hides is a file of `bridges/`:
//!
//! | | what the host sees |
//! |---|---|
//! | `hidden_sectors` | a smaller drive: what is at its end by SATA is out of reach, and the other way round |
//! | `sector_bytes` | larger sectors, as READ CAPACITY says: tables count in them, and mean other places by SATA |
//! | `hides_identify` | no IDENTIFY DEVICE: the bridge's name for the model, nothing of physical sectors |
//!
//! The drive inside does what it does by SATA, on the same places of its medium.
//!
//! # Source
//! Each file names its own. SCSI/ATA Translation: T10 SAT-3.

use std::sync::OnceLock;

use base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Interface, Source};

/// A USB enclosure: the host sees the bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridge {
    /// The bridge's chip.
    pub model: String,
    /// Sectors of the drive, at its end, that the bridge keeps for itself.
    pub hidden_sectors: u64,
    /// Commands that the bridge passes on at the same time.
    pub queue_depth: u32,
    /// The sector that it shows; `None`: the drive's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_bytes: Option<u32>,
    /// It does not pass on ATA commands: nobody can ask the drive what it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hides_identify: bool,
}

/// A bridge of the catalogue.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsbBridge {
    /// The name that selects it.
    pub name: String,
    /// What it is, in one line.
    pub title: String,
    /// What it does.
    pub bridge: Bridge,
    /// How commands reach the drive through it.
    pub interface: Interface,
    /// Where the figures come from.
    pub source: Vec<Source>,
}

const TEXTS: &[&str] = &[
    include_str!("../../bridges/jms579.toml"),
    include_str!("../../bridges/asm1051.toml"),
    include_str!("../../bridges/at2.toml"),
];

/// The USB bridges there are; the first one is meant if none is named.
#[must_use]
pub fn bridges() -> &'static [UsbBridge] {
    static BRIDGES: OnceLock<Vec<UsbBridge>> = OnceLock::new();
    BRIDGES.get_or_init(|| {
        let parse = |text: &&str| toml::from_str(text).expect("a file of bridges/");
        TEXTS.iter().map(parse).collect()
    })
}

/// How a SATA drive is connected to the host.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub enum Bus {
    /// Directly.
    Sata,
    /// Behind a USB bridge.
    Usb(&'static UsbBridge),
}

impl PartialEq for Bus {
    fn eq(&self, other: &Bus) -> bool {
        match (self, other) {
            (Bus::Sata, Bus::Sata) => true,
            (Bus::Usb(one), Bus::Usb(two)) => one.name == two.name,
            _ => false,
        }
    }
}

impl Eq for Bus {}

impl Bus {
    /// `sata`, `usb`, or `usb:BRIDGE` with a name of [`bridges`].
    ///
    /// # Errors
    /// `InvalidInput` for anything else.
    pub fn parse(text: &str) -> Result<Bus> {
        let all = bridges();
        let found = match text {
            "sata" => return Ok(Bus::Sata),
            "usb" => all.first(),
            _ => {
                let name = text.strip_prefix("usb:");
                name.and_then(|name| all.iter().find(|bridge| bridge.name == name))
            }
        };
        found.map(Bus::Usb).ok_or_else(|| {
            let names: Vec<String> = all.iter().map(|b| format!("usb:{}", b.name)).collect();
            Error::invalid(format!(
                "no bus '{text}'; there are sata, usb, {}",
                names.join(", ")
            ))
        })
    }

    /// Its name, as [`parse`](Bus::parse) takes it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Bus::Sata => "sata".to_owned(),
            Bus::Usb(_) if self.is_default() => "usb".to_owned(),
            Bus::Usb(bridge) => format!("usb:{}", bridge.name),
        }
    }

    /// Whether it is the bridge that is meant if none is named.
    pub(super) fn is_default(self) -> bool {
        self == Bus::Usb(&bridges()[0])
    }
}

impl TryFrom<String> for Bus {
    type Error = Error;

    fn try_from(text: String) -> Result<Bus> {
        Bus::parse(&text)
    }
}
