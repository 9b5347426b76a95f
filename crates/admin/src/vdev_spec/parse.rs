//! Parses words into a [`VdevSpec`].

use super::{AllocClass, Grouping, TopSpec, VdevSpec};

/// `VDEV_RAIDZ_MAXPARITY`
const PARITY_MAX: u64 = 3;
/// The largest number of devices in one RAID-Z or dRAID.
const CHILDREN_MAX: usize = 255;

/// A word that is not a device.
enum Keyword {
    Group(Grouping),
    Class(AllocClass),
    Spare,
    Cache,
}

fn keyword(word: &str) -> Option<Keyword> {
    Some(match word {
        "mirror" => Keyword::Group(Grouping::Mirror),
        "spare" => Keyword::Spare,
        "cache" => Keyword::Cache,
        "log" => Keyword::Class(AllocClass::Log),
        "special" => Keyword::Class(AllocClass::Special),
        "dedup" => Keyword::Class(AllocClass::Dedup),
        _ => {
            if let Some(rest) = word.strip_prefix("raidz") {
                let parity = parity_of(rest)?;
                return Some(Keyword::Group(Grouping::Raidz { parity }));
            }
            let rest = word.strip_prefix("draid")?;
            let parity = parity_of(rest.split(':').next().unwrap_or(""))?;
            // The rest is filled in by `draid`, when the devices are known.
            let open = Grouping::Draid {
                parity,
                data: 0,
                children: 0,
                spares: 0,
            };
            Keyword::Group(open)
        }
    })
}

/// `get_parity`: 1 when not given; 1 to 3 without a leading zero otherwise.
fn parity_of(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return Some(1);
    }
    let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    let parity = digits.parse().ok().filter(|_| plain)?;
    (1..=PARITY_MAX).contains(&parity).then_some(parity)
}

fn invalid<T>(text: &str) -> Result<T, String> {
    Err(format!("invalid vdev specification: {text}"))
}

/// Reads the words after the pool's name.
///
/// # Errors
/// The line to print.
#[doc(alias = "construct_spec")]
pub fn parse_vdev_spec<S: AsRef<str>>(words: &[S]) -> Result<VdevSpec, String> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let mut spec = VdevSpec::default();
    let mut class = AllocClass::Normal;
    let (mut has_log, mut at) = (false, 0);
    while at < words.len() {
        let word = words[at];
        at += 1;
        let taken = words[at..]
            .iter()
            .take_while(|w| keyword(w).is_none())
            .count();
        let devices: Vec<String> = words[at..at + taken]
            .iter()
            .map(|&w| w.to_owned())
            .collect();
        match keyword(word) {
            None => {
                spec.tops.push(TopSpec {
                    grouping: Grouping::Single,
                    class,
                    devices: vec![word.to_owned()],
                });
            }
            Some(Keyword::Class(next)) => {
                if next == AllocClass::Log && has_log {
                    return invalid("'log' can be specified only once");
                }
                has_log |= next == AllocClass::Log;
                class = next;
            }
            Some(Keyword::Spare) => {
                at += taken;
                class = AllocClass::Normal;
                take_alone(&mut spec.spares, word, devices)?;
            }
            Some(Keyword::Cache) => {
                at += taken;
                class = AllocClass::Normal;
                take_alone(&mut spec.cache, word, devices)?;
            }
            Some(Keyword::Group(grouping)) => {
                at += taken;
                spec.tops.push(group(grouping, class, word, devices)?);
            }
        }
    }
    if spec == VdevSpec::default() {
        return invalid("at least one toplevel vdev must be specified");
    }
    if has_log && !spec.tops.iter().any(|top| top.class == AllocClass::Log) {
        return invalid("log requires at least 1 device");
    }
    Ok(spec)
}

fn take_alone(into: &mut Vec<String>, word: &str, devices: Vec<String>) -> Result<(), String> {
    if !into.is_empty() {
        return invalid(&format!("'{word}' can be specified only once"));
    }
    if devices.is_empty() {
        return invalid(&format!("{word} requires at least 1 devices"));
    }
    *into = devices;
    Ok(())
}

fn group(
    grouping: Grouping,
    class: AllocClass,
    word: &str,
    devices: Vec<String>,
) -> Result<TopSpec<String>, String> {
    if class == AllocClass::Log && grouping != Grouping::Mirror {
        let name = grouping.type_name();
        return invalid(&format!("unsupported 'log' device: {name}"));
    }
    let least = if grouping == Grouping::Mirror {
        2
    } else {
        grouping.parity() as usize + 1
    };
    if devices.len() < least {
        return invalid(&format!("{word} requires at least {least} devices"));
    }
    if grouping != Grouping::Mirror && devices.len() > CHILDREN_MAX {
        return invalid(&format!(
            "{word} supports no more than {CHILDREN_MAX} devices"
        ));
    }
    let grouping = match grouping {
        Grouping::Draid { parity, .. } => draid(word, parity, devices.len() as u64)?,
        other => other,
    };
    Ok(TopSpec {
        grouping,
        class,
        devices,
    })
}

/// `draid_config_by_type`: `draid[parity][:datad][:childrenc][:sparess]`
fn draid(word: &str, parity: u64, given: u64) -> Result<Grouping, String> {
    let (mut data, mut spares): (_, u64) = (None, 0);
    for part in word.split(':').skip(1) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let bad = |comma| {
            format!("invalid dRAID syntax; expected [:<number><c|d|s>]{comma} not '{word}'")
        };
        if digits == 0 {
            return Err(bad(""));
        }
        let value: u64 = part[..digits].parse().map_err(|_| bad(","))?;
        match part[digits..]
            .chars()
            .next()
            .map(|c| c.to_ascii_lowercase())
        {
            Some('c') if value != given => {
                return Err(format!(
                    "invalid number of dRAID children; {value} required but {given} provided"
                ));
            }
            Some('c') => {}
            Some('d') => data = Some(value),
            Some('s') => spares = value,
            // The real tool omits the comma here too.
            _ => return Err(bad("")),
        }
    }
    // The real tool computes these without looking for numbers below zero.
    let usable = given.wrapping_sub(spares);
    let data = match data {
        Some(data) => data,
        None if given > spares + parity => (given - spares - parity).min(8),
        None => {
            return Err(format!(
                "request number of distributed spares {spares} and parity level {parity}\nleaves no disks \
                 available for data"
            ));
        }
    };
    let width = data.saturating_add(parity);
    if data == 0 || width > usable {
        let left = usable.wrapping_sub(parity);
        return Err(format!(
            "requested number of dRAID data disks per group {data} is too high,\nat most {left} disks are \
             available for data"
        ));
    }
    if spares > 100 || spares > given.wrapping_sub(width) {
        return Err(format!(
            "invalid number of dRAID spares {spares}; additional disks would be required"
        ));
    }
    Ok(Grouping::Draid {
        parity,
        data,
        children: given,
        spares,
    })
}
