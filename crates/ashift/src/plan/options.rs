//! The command line of `plan`.

use std::path::PathBuf;
use std::sync::Arc;

use admin::getopt::Parsed;
use admin::number::parse_number;
use base::{Context, Error, Result};
use drive::profile::Profile;
use lab::plan::{Layout, PlannedDrive, Request, Shard};
use machine::NewDrive;

/// What a plan tries if nothing is said.
const RECORDSIZES: &str = "128K,1M";
const COMPRESSIONS: &str = "lz4,zstd-3";
const SMALL: &str = "0,32K";
const SAMPLE_BYTES: u64 = 1 << 30;

/// The parsed options.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) shard: Shard,
    pub(super) jobs: usize,
    pub(super) results: Option<PathBuf>,
    pub(super) keep: Option<PathBuf>,
    /// A command line that does it again.
    pub(super) again: String,
}

impl Asked {
    /// # Errors
    /// `InvalidInput` with what to write instead; `NotFound` for a folder or profile that is not there.
    pub(super) fn parse(parsed: &Parsed, data: &str) -> Result<Asked> {
        let drives = drives(parsed.value('d').unwrap_or_default())?;
        let special = drives_of_special(parsed)?;
        let words = |letter: char, usual: &str| -> Vec<String> {
            let text = parsed.value(letter).unwrap_or(usual);
            let words = text.split(',').filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let layouts = match parsed.value('l') {
            Some(text) => text.split(',').map(Layout::parse).collect::<Result<_>>()?,
            None => Layout::usual(drives.len()),
        };
        let all = drives.iter().chain(&special);
        let usual_ashifts = if all.clone().all(|(_, sector)| *sector == 512) {
            "9,12"
        } else {
            "12"
        };
        let ashifts = words('a', usual_ashifts);
        let number = |text: &String| {
            text.parse()
                .map_err(|_| Error::invalid(format!("ashift: '{text}' is not a number")))
        };
        let of =
            |drives: Vec<(PlannedDrive, u32)>| drives.into_iter().map(|(drive, _)| drive).collect();
        let request = Request {
            data: std::fs::canonicalize(data)
                .map_err(Error::from)
                .within(|| data.to_owned())?,
            layouts,
            ashifts: ashifts.iter().map(number).collect::<Result<_>>()?,
            recordsizes: words('r', RECORDSIZES),
            compressions: words('c', COMPRESSIONS),
            small: words('b', SMALL),
            drives: of(drives),
            special: of(special),
            sample_bytes: sample(parsed.value('n'))?,
            host: parsed.value('t').unwrap_or("modern").to_owned(),
            memory: parsed.value('m').map(str::to_owned),
            seed: natural(parsed, 'G', "--seed")?.unwrap_or(1),
        };
        if request.data.to_str().is_none() {
            return Err(Error::invalid(format!(
                "{}: its path is not UTF-8",
                request.data.display()
            )));
        }
        request.check()?;
        if parsed.has('C') && parsed.value('k').is_some() {
            let text = "--confirm is for what a whole plan advises, not for a --shard of it";
            return Err(Error::invalid(text));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = natural(parsed, 'J', "--jobs")?;
        Ok(Asked {
            again: again(&request, parsed),
            request,
            shard: parsed.value('k').map_or(Ok(Shard::WHOLE), Shard::parse)?,
            jobs: jobs.map_or(cores, |jobs| {
                usize::try_from(jobs.clamp(1, 64)).unwrap_or(1)
            }),
            results: parsed.value('f').map(PathBuf::from),
            keep: parsed.value('K').map(PathBuf::from),
        })
    }
}

/// A command line that asks for the same.
fn again(request: &Request, parsed: &Parsed) -> String {
    let mut words = vec!["ashift".to_owned(), "plan".to_owned()];
    let given = [
        ('d', "--drives"),
        ('s', "--special"),
        ('l', "--layouts"),
        ('a', "--ashift"),
        ('r', "--recordsize"),
        ('c', "--compression"),
        ('b', "--special-small-blocks"),
        ('n', "--sample"),
        ('t', "--host"),
        ('m', "--memory"),
        ('G', "--seed"),
    ];
    for (letter, name) in given {
        if let Some(value) = parsed.value(letter) {
            words.extend([name.to_owned(), value.to_owned()]);
        }
    }
    if parsed.has('C') {
        words.push("--confirm".to_owned());
    }
    words.push(request.data.display().to_string());
    lab::run::as_typed(&words)
}

fn natural(parsed: &Parsed, letter: char, name: &str) -> Result<Option<u64>> {
    let Some(text) = parsed.value(letter) else {
        return Ok(None);
    };
    let number = text
        .parse()
        .map_err(|_| Error::invalid(format!("{name} takes a number, not '{text}'")))?;
    Ok(Some(number))
}

fn sample(text: Option<&str>) -> Result<Option<u64>> {
    match text {
        None => Ok(Some(SAMPLE_BYTES)),
        Some("all") => Ok(None),
        Some(text) => match parse_number(text) {
            Ok(bytes) if bytes > 0 => Ok(Some(bytes)),
            _ => Err(Error::invalid(format!(
                "--sample takes a size or 'all', not '{text}'"
            ))),
        },
    }
}

fn drives_of_special(parsed: &Parsed) -> Result<Vec<(PlannedDrive, u32)>> {
    parsed.value('s').map_or(Ok(Vec::new()), drives)
}

/// Reads `PROFILE,PROFILE,size=…,PROFILE`: drives, each with the bytes of the sectors that the host sees.
fn drives(text: &str) -> Result<Vec<(PlannedDrive, u32)>> {
    let mut items: Vec<String> = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        match items.last_mut() {
            // It says more of the drive before.
            Some(last) if word.contains('=') => last.push_str(&format!(",{word}")),
            _ => items.push(word.to_owned()),
        }
    }
    items.iter().map(|item| drive(item)).collect()
}

fn drive(text: &str) -> Result<(PlannedDrive, u32)> {
    let new = NewDrive::parse(&format!("drive={text}"))?;
    if new.serial.is_some() {
        return Err(Error::invalid(format!(
            "'{text}': a plan has no use for a serial number"
        )));
    }
    let mut profile = Profile::find(&new.profile)?;
    if let Some(bus) = new.bus {
        profile = Arc::new(profile.on_bus(bus)?);
    }
    if let Some(policy) = new.rmw {
        profile = Arc::new(profile.with_rmw_policy(policy));
    }
    let bytes = match &new.size {
        Some(size) => machine::parse_size(size)?,
        None => profile.host_bytes(),
    };
    let bus = new
        .bus
        .map_or(String::new(), |bus| format!(",bus={}", bus.name()));
    let rmw = new
        .rmw
        .map_or(String::new(), |policy| format!(",rmw={}", policy.name()));
    let cache = &profile.cache;
    let planned = PlannedDrive {
        profile: format!("{}{bus}{rmw}", new.profile),
        bytes,
        read_cache_bytes: u64::from(cache.read_segments) * u64::from(cache.read_segment_kib) * 1024,
    };
    Ok((planned, profile.host_sector_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_belongs_to_the_drive_before_it() {
        let drives =
            drives("wd30ezrx,st2000dm001,size=1GB,bus=usb:asm1051,wd30ezrx,rmw=sync").unwrap();
        let drives: Vec<(&str, u64)> = drives
            .iter()
            .map(|(drive, _)| (&*drive.profile, drive.bytes))
            .collect();
        assert_eq!(drives[1], ("st2000dm001,bus=usb:asm1051", 1_000_000_000));
        assert_eq!(
            (drives.len(), drives[0].0, drives[2].0),
            (3, "wd30ezrx", "wd30ezrx,rmw=sync")
        );
        let sector = |text| super::drives(text).unwrap()[0].1;
        assert_eq!(
            (sector("st2000dm001"), sector("st2000dm001,bus=usb:asm1051")),
            (512, 4096)
        );
        assert!(super::drives("wd30ezrx,serial=X").is_err());
        assert!(super::drives("nosuch").is_err());
        assert!(super::drives("size=1GB").is_err());
    }
}
