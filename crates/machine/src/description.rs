//! `machine.toml`: what a machine is made of.
//!
//! # On disk
//! ```toml
//! seed = 7                      # seeds all randomness; 1 if not given
//! hostname = "lab"              # as labels and history know it; "machine" if not given
//! clock_ns = 0                  # where the clock starts
//! host = "none"                 # the computer around the drives: what work on its processor costs
//! memory = "8G"                 # its memory: what its ZFS made of that; if not given, small caches as on a host
//!
//! [[drive]]
//! name = "ada0"
//! profile = "wd30ezrx"          # of `ashift drives`, or a file beside this one: "mine.toml"
//! size = "3TB"                  # other than the profile's: bytes, or with K M G T (1024), KB MB GB TB (1000)
//! serial = "WD-1"               # other than the generated one
//! bus = "usb"                   # other than the profile's
//! pulled = true                 # not connected
//!
//! [[layer]]
//! name = "gpt/d1.nop"
//! on = "gpt/d1"
//! nop = { secsize = 4096 }
//! ```
//! It can be edited by hand; the program changes single entries and keeps everything else,
//! comments included. Layers that hold keys are not in it, nor state that changes while commands
//! run: it can be kept under version control.
//!
//! # Invariants
//! 1. Every key is known, names are unambiguous and unique, profiles exist: checked whenever it is
//!    read, and the error gives line and column.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Context, Error, ErrorKind, Result};
use drive::Profile;
use drive::profile::{Bus, RmwPolicy};
use geom::nop::NopConfig;
use serde::Deserialize;
use toml::Spanned;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, value};

use crate::host_profile::{HostProfile, host_profiles};
use crate::kept::{complaint, parse_toml, replace};
use crate::layer::Layer;

/// The name of the file in the machine's folder.
pub const FILE_NAME: &str = "machine.toml";
/// The longest name of a drive, in bytes.
const NAME_LEN_MAX: usize = 32;

/// A drive of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveEntry {
    /// `ada0`
    pub name: String,
    /// The name of its profile, as it was written.
    pub profile_name: String,
    /// Its profile, on the bus it is connected to.
    pub profile: Arc<Profile>,
    /// Its size in bytes, if it is not the profile's.
    pub size: Option<u64>,
    /// Its serial number, if it is not generated.
    pub serial: Option<String>,
    /// How it is connected, if not as its profile says.
    pub bus: Option<Bus>,
    /// It is not connected.
    pub is_pulled: bool,
}

/// A drive that is to be added to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDrive {
    /// `ada0`
    pub name: String,
    /// The name of its profile.
    pub profile: String,
    /// Its size as text, for [`parse_size`].
    pub size: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// How it is connected, if not as its profile says.
    pub bus: Option<Bus>,
    /// What its firmware does with partial sectors, if not what its profile says.
    pub rmw: Option<RmwPolicy>,
}

impl NewDrive {
    /// Reads `NAME=PROFILE[,size=…,serial=…,bus=…,rmw=…]`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`].
    pub fn parse(text: &str) -> Result<NewDrive> {
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| Error::invalid(format!("'{text}' is not NAME=PROFILE")))?;
        let mut words = rest.split(',');
        let mut drive = NewDrive {
            name: name.to_owned(),
            profile: words.next().unwrap_or_default().to_owned(),
            size: None,
            serial: None,
            bus: None,
            rmw: None,
        };
        for word in words {
            match word.split_once('=') {
                Some(("size", size)) => drive.size = Some(size.to_owned()),
                Some(("serial", serial)) => drive.serial = Some(serial.to_owned()),
                Some(("bus", bus)) => drive.bus = Some(Bus::parse(bus)?),
                Some(("rmw", policy)) => drive.rmw = Some(RmwPolicy::parse(policy)?),
                _ => {
                    let known = "size=…, serial=…, bus=…, rmw=…";
                    let text = format!("'{word}' is none of {known} (drive '{name}')");
                    return Err(Error::invalid(text));
                }
            }
        }
        Ok(drive)
    }
}

/// The file as serde sees it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seed: Option<u64>,
    hostname: Option<Spanned<String>>,
    clock_ns: Option<u64>,
    host: Option<Spanned<String>>,
    memory: Option<Spanned<Size>>,
    #[serde(default)]
    drive: Vec<FileDrive>,
    #[serde(default)]
    layer: Vec<Spanned<Layer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDrive {
    name: Spanned<String>,
    profile: Spanned<String>,
    size: Option<Spanned<Size>>,
    serial: Option<Spanned<String>>,
    bus: Option<Spanned<Bus>>,
    rmw: Option<RmwPolicy>,
    #[serde(default)]
    pulled: bool,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a size is a number of bytes, or a text like \"3TB\""
)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// `machine.toml`, read and checked.
#[derive(Debug)]
pub struct Description {
    path: PathBuf,
    document: DocumentMut,
    /// Seeds all randomness.
    pub seed: u64,
    /// The hostname in vdev labels and pool history.
    pub hostname: String,
    /// Where its clock starts.
    pub clock_ns: u64,
    /// The computer around the drives.
    pub host: HostProfile,
    /// Its memory in bytes, if that is a figure of it.
    pub memory_bytes: Option<u64>,
    /// Its drives, the pulled ones included.
    pub drives: Vec<DriveEntry>,
    /// The layers that survive a loss of power.
    pub layers: Vec<Layer>,
}

impl Description {
    /// Reads the description in a machine's folder.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none; [`ErrorKind::InvalidInput`] with line and column.
    pub fn read(folder: &Path) -> Result<Description> {
        let path = folder.join(FILE_NAME);
        let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                let folder = folder.display();
                Error::not_found(format!("'{folder}' is not a machine: no {FILE_NAME} in it"))
            }
            _ => Error::from(e).within(path.display()),
        })?;
        Description::parse(path, &text)
    }

    /// Reads a description; `path` is where it is, or will be.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] with line and column.
    pub fn parse(path: PathBuf, text: &str) -> Result<Description> {
        let within = || path.display().to_string();
        let file: File = parse_toml(text).within(within)?;
        let document = text.parse::<DocumentMut>().map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            complaint(text, at, e.message()).within(within())
        })?;
        check(&file, text).within(within)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut drives = Vec::new();
        for drive in file.drive {
            drives.push(entry(drive, text, folder).within(within)?);
        }
        Ok(Description {
            host: host(file.host, text).within(within)?,
            memory_bytes: file
                .memory
                .map(|given| memory(given, text))
                .transpose()
                .within(within)?,
            document,
            seed: file.seed.unwrap_or(1),
            hostname: file
                .hostname
                .map_or_else(|| "machine".to_owned(), Spanned::into_inner),
            clock_ns: file.clock_ns.unwrap_or(0),
            drives,
            layers: file.layer.into_iter().map(Spanned::into_inner).collect(),
            path,
        })
    }

    /// Sets the host profile: the computer around the drives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if there is none of that name.
    pub fn set_host(&mut self, name: &str) -> Result<()> {
        self.edit(|document| {
            document.insert("host", value(name));
            Ok(())
        })
    }

    /// Sets the memory of the computer around the drives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for what is not a size, or not one of a memory.
    pub(crate) fn set_memory(&mut self, size: &str) -> Result<()> {
        self.edit(|document| {
            document.insert("memory", value(size));
            Ok(())
        })
    }

    /// Adds a drive.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if the name is taken; [`ErrorKind::InvalidInput`],
    /// [`ErrorKind::NotFound`] for what could not be read back.
    pub fn add_drive(&mut self, drive: &NewDrive) -> Result<()> {
        if self.drive(&drive.name).is_some() {
            let text = format!("there is a drive '{}' already", drive.name);
            return Err(Error::new(ErrorKind::Exists, text));
        }
        check_name(&drive.name)?;
        let profile = find_profile(&drive.profile, self.folder())?;
        if let Some(size) = &drive.size {
            fitting(&profile, parse_size(size)?)?;
        }
        if let Some(bus) = drive.bus {
            profile.on_bus(bus)?;
        }
        let is_file = drive.profile.ends_with(".toml");
        let known_as = if is_file {
            &drive.profile
        } else {
            &profile.name
        };
        let mut table = Table::new();
        table.insert("name", value(&drive.name));
        table.insert("profile", value(known_as));
        if let Some(bus) = drive.bus {
            table.insert("bus", value(bus.name()));
        }
        if let Some(policy) = drive.rmw {
            table.insert("rmw", value(policy.name()));
        }
        if let Some(size) = &drive.size {
            table.insert("size", value(size));
        }
        if let Some(serial) = &drive.serial {
            table.insert("serial", value(serial));
        }
        self.edit(|document| {
            let item = document.entry("drive");
            let drives = item.or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
            push(drives, table)
        })
    }

    /// Sets whether a drive is pulled.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn set_pulled(&mut self, name: &str, is_pulled: bool) -> Result<()> {
        let at = self.drives.iter().position(|d| d.name == name);
        let at = at.ok_or_else(|| no_drive(name))?;
        self.edit(|document| {
            let Some(table) = nth(document, "drive", at) else {
                return Err(Error::invalid("[[drive]] is not a list of tables"));
            };
            if is_pulled {
                table.insert("pulled", value(true));
            } else {
                table.remove("pulled");
            }
            Ok(())
        })
    }

    /// Sets the bus of a drive.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidInput`] if such a drive cannot be on that bus.
    pub(crate) fn set_bus(&mut self, name: &str, bus: Bus) -> Result<()> {
        let at = self.drives.iter().position(|d| d.name == name);
        let at = at.ok_or_else(|| no_drive(name))?;
        let drive = &self.drives[at];
        find_profile(&drive.profile_name, self.folder())?.on_bus(bus)?;
        self.edit(|document| {
            let Some(table) = nth(document, "drive", at) else {
                return Err(Error::invalid("[[drive]] is not a list of tables"));
            };
            table.insert("bus", value(bus.name()));
            Ok(())
        })
    }

    /// Replaces the layers; those that stay as they are keep their comments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for what could not be read back.
    pub fn set_layers(&mut self, layers: &[Layer]) -> Result<()> {
        let known = self.layers.clone();
        self.edit(|document| {
            let old = document.remove("layer").unwrap_or_default();
            let mut new = ArrayOfTables::new();
            for layer in layers {
                let unchanged = known.iter().position(|k| k == layer);
                let kept = unchanged.and_then(|at| old.as_array_of_tables()?.get(at).cloned());
                new.push(match kept {
                    Some(table) => table,
                    None => layer_table(layer)?,
                });
            }
            if !new.is_empty() {
                document.insert("layer", Item::ArrayOfTables(new));
            }
            Ok(())
        })
    }

    /// Edits the document and parses the result; if that fails, nothing changes.
    fn edit(&mut self, edit: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<()> {
        let mut document = self.document.clone();
        edit(&mut document)?;
        *self = Description::parse(self.path.clone(), &document.to_string())?;
        Ok(())
    }

    /// Writes it to its folder.
    ///
    /// # Errors
    /// What the host says.
    pub fn save(&self) -> Result<()> {
        replace(&self.path, self.document.to_string().as_bytes(), 0o644)
    }

    /// The drive of that name.
    #[must_use]
    pub fn drive(&self, name: &str) -> Option<&DriveEntry> {
        self.drives.iter().find(|drive| drive.name == name)
    }

    /// The machine's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }
}

impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.document.fmt(f)
    }
}

pub(crate) fn no_drive(name: &str) -> Error {
    Error::not_found(format!("there is no drive '{name}' in this machine"))
}

fn push(list: &mut Item, table: Table) -> Result<()> {
    let list = list
        .as_array_of_tables_mut()
        .ok_or_else(|| Error::invalid("[[drive]] is not a list of tables"))?;
    list.push(table);
    Ok(())
}

fn nth<'d>(document: &'d mut DocumentMut, key: &str, at: usize) -> Option<&'d mut Table> {
    document.get_mut(key)?.as_array_of_tables_mut()?.get_mut(at)
}

/// A layer as a table whose details are one inline table, without those that have default values.
fn layer_table(layer: &Layer) -> Result<Table> {
    let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("layer {}: {e}", layer.name));
    let document = |text: std::result::Result<String, toml::ser::Error>| {
        let text = text.map_err(|e| bad(&e))?;
        text.parse::<DocumentMut>().map_err(|e| bad(&e))
    };
    let usual = document(toml::to_string(&NopConfig::default()))?;
    let mut table = Table::new();
    for (key, item) in document(toml::to_string(layer))?.iter() {
        let Item::Table(details) = item else {
            table.insert(key, item.clone());
            continue;
        };
        let mut inline = InlineTable::new();
        for (key, item) in details {
            let is_usual = |usual: &Item| usual.to_string() == item.to_string();
            let is_told = usual.get(key).is_none_or(|usual| !is_usual(usual));
            if let Some(value) = item.as_value().filter(|_| is_told) {
                inline.insert(key, value.clone());
            }
        }
        inline.fmt();
        table.insert(key, value(inline));
    }
    Ok(table)
}

/// Checks what spans entries or serde cannot express: hostname, drive and layer names, keys.
fn check(file: &File, text: &str) -> Result<()> {
    if let Some(hostname) = &file.hostname
        && (hostname.as_ref().is_empty() || hostname.as_ref().len() > 63)
    {
        return Err(complaint(
            text,
            hostname.span().start,
            "a hostname has 1 to 63 bytes",
        ));
    }
    let mut names = BTreeSet::new();
    for drive in &file.drive {
        let (name, at) = (drive.name.as_ref(), drive.name.span().start);
        check_name(name).map_err(|e| complaint(text, at, &e.to_string()))?;
        if !names.insert(name.as_str()) {
            let what = format!("there are two drives '{name}'");
            return Err(complaint(text, at, &what));
        }
    }
    for layer in &file.layer {
        let (at, layer) = (layer.span().start, layer.as_ref());
        if layer.kind.is_secret() {
            let what = format!("layer '{}' holds a key: it has no place here", layer.name);
            return Err(complaint(text, at, &what));
        }
        if !names.insert(&layer.name) {
            let what = format!("there are two providers '{}'", layer.name);
            return Err(complaint(text, at, &what));
        }
    }
    Ok(())
}

fn host(name: Option<Spanned<String>>, text: &str) -> Result<HostProfile> {
    let (name, at) = match name {
        Some(name) => (name.as_ref().clone(), name.span().start),
        None => ("none".to_owned(), 0),
    };
    HostProfile::find(&name).ok_or_else(|| {
        let known: Vec<&str> = host_profiles().iter().map(|host| host.name).collect();
        let what = format!("no host '{name}'; there are {}", known.join(", "));
        complaint(text, at, &what)
    })
}

fn memory(given: Spanned<Size>, text: &str) -> Result<u64> {
    let at = given.span().start;
    let bytes = match given.into_inner() {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(size) => parse_bytes(&size),
    };
    bytes
        .and_then(check_memory)
        .map_err(|e| complaint(text, at, &e.to_string()))
}

/// No computer of these times has less than the first, and none more than the second.
fn check_memory(bytes: u64) -> Result<u64> {
    if (256 << 20..=1 << 48).contains(&bytes) {
        return Ok(bytes);
    }
    Err(Error::invalid(format!(
        "a memory of {bytes} bytes cannot be: 256 MiB is the least, 2^48 bytes the most"
    )))
}

/// A drive's name: lowercase letters, then a number, so that any suffix (`p1`, `.nop`) is
/// unambiguous.
fn check_name(name: &str) -> Result<()> {
    let unit = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let is_good = unit.len() < name.len()
        && !unit.is_empty()
        && unit.bytes().all(|b| b.is_ascii_digit())
        && name.len() <= NAME_LEN_MAX;
    if is_good {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "'{name}' is not a name of a drive: small letters and a number, like ada0"
    )))
}

fn entry(drive: FileDrive, text: &str, folder: &Path) -> Result<DriveEntry> {
    let at = drive.profile.span().start;
    let profile = find_profile(drive.profile.as_ref(), folder)
        .map_err(|e| complaint(text, at, &e.to_string()))?;
    let profile = match &drive.bus {
        None => profile,
        Some(bus) => {
            let moved = profile.on_bus(*bus.as_ref());
            Arc::new(moved.map_err(|e| complaint(text, bus.span().start, &e.to_string()))?)
        }
    };
    let profile = match drive.rmw {
        None => profile,
        Some(policy) => Arc::new(profile.with_rmw_policy(policy)),
    };
    let size = match drive.size {
        None => None,
        Some(size) => {
            let at = size.span().start;
            let bytes = match size.into_inner() {
                Size::Bytes(bytes) => check_size(bytes),
                Size::Text(size) => parse_size(&size),
            };
            let bytes = bytes.and_then(|bytes| fitting(&profile, bytes));
            Some(bytes.map_err(|e| complaint(text, at, &e.to_string()))?)
        }
    };
    Ok(DriveEntry {
        name: drive.name.into_inner(),
        profile_name: drive.profile.into_inner(),
        profile,
        size,
        serial: drive.serial.map(Spanned::into_inner),
        bus: drive.bus.map(Spanned::into_inner),
        is_pulled: drive.pulled,
    })
}

/// That size, rounded down to whole sectors, if such a drive can have it.
fn fitting(profile: &Profile, bytes: u64) -> Result<u64> {
    let sector = u64::from(profile.identify.logical_sector_bytes);
    profile.with_sectors(bytes / sector)?;
    Ok(bytes / sector * sector)
}

/// A profile by its name, or in a file beside the description.
fn find_profile(name: &str, folder: &Path) -> Result<Arc<Profile>> {
    if !name.ends_with(".toml") {
        return Profile::find(name);
    }
    let path = folder.join(name);
    let within = |e: std::io::Error| Error::from(e).within(path.display());
    let text = fs::read_to_string(&path).map_err(within)?;
    Profile::parse(&path.display().to_string(), &text).map(Arc::new)
}

/// Reads `3TB`, `1.5T`, `512M`, `1073741824`, in upper or lower case: K, M, G, T and KiB, MiB, GiB, TiB
/// are powers of 1024, KB, MB, GB, TB powers of 1000.
///
/// # Errors
/// [`ErrorKind::InvalidInput`].
pub fn parse_size(text: &str) -> Result<u64> {
    parse_bytes(text).and_then(check_size)
}

fn parse_bytes(text: &str) -> Result<u64> {
    let bad = || {
        Error::invalid(format!(
            "'{text}' is not a size: a number of bytes, or one with K, M, G, T (1024) or KB, MB, GB, \
             TB (1000)"
        ))
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let (letter, base) = match unit.as_str() {
        "" | "B" => ("", 1),
        unit => match (unit.strip_suffix("IB"), unit.strip_suffix('B')) {
            (Some(letter), _) => (letter, 1024),
            (None, Some(letter)) => (letter, 1000),
            (None, None) => (unit, 1024),
        },
    };
    let power = match letter {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return Err(bad()),
    };
    let factor = u64::pow(base, power);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 6 {
        return Err(bad());
    }
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let parts: u64 = format!("{fraction:0<6}").parse().map_err(|_| bad())?;
    let parts = u128::from(parts) * u128::from(factor) / 1_000_000;
    let bytes = whole
        .checked_mul(factor)
        .and_then(|bytes| bytes.checked_add(u64::try_from(parts).ok()?));
    bytes.ok_or_else(bad)
}

/// A drive has at least 1 MiB, and at most what a 48-bit LBA can address in 512-byte sectors.
fn check_size(bytes: u64) -> Result<u64> {
    if (1 << 20..=1 << 57).contains(&bytes) {
        return Ok(bytes);
    }
    Err(Error::invalid(format!(
        "a drive of {bytes} bytes cannot be: 1 MiB is the least, 2^57 bytes the most"
    )))
}
