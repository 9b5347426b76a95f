//! The devices of `zpool create` and `zpool add`: `mirror a b raidz2 c d e f log g spare h`.
//!
//! # What it is
//! Words are read from left to right. `mirror`, `raidz…` and `draid…` take the words that follow, up
//! to the next keyword; `log`, `special` and `dedup` say what the following vdevs are for; `spare`
//! and `cache` take devices alone. Afterwards the levels of redundancy are compared, which `-f`
//! overrides.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_vdev.c `construct_spec`, `get_replication`, `check_replication` @be7657e3.

use std::fmt::Write as _;

/// `VDEV_RAIDZ_MAXPARITY`
const PARITY_MAX: u64 = 3;
/// The most devices below one RAID-Z or dRAID.
const CHILDREN_MAX: usize = 255;
/// `ZPOOL_FUZZ`: sizes that differ by no more than this are the same.
const SIZE_FUZZ: u64 = 16 << 20;

/// How the devices of a top-level vdev belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One device.
    Single,
    /// All the same.
    Mirror,
    /// Single, double or triple parity.
    Raidz {
        /// 1 to 3
        parity: u64,
    },
    /// The same, spread over more devices.
    Draid {
        /// 1 to 3
        parity: u64,
        /// Data devices per group
        data: u64,
        /// All devices
        children: u64,
        /// Distributed spares
        spares: u64,
    },
}

impl Grouping {
    /// `ZPOOL_CONFIG_TYPE`, for a grouping; single devices are "disk" or "file".
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Grouping::Single => "disk",
            Grouping::Mirror => "mirror",
            Grouping::Raidz { .. } => "raidz",
            Grouping::Draid { .. } => "draid",
        }
    }

    /// What a vdev of this grouping is called, without the number.
    #[must_use]
    pub fn display_name(&self) -> String {
        match self {
            Grouping::Single | Grouping::Mirror => self.type_name().to_owned(),
            Grouping::Raidz { parity } => format!("raidz{parity}"),
            Grouping::Draid {
                parity,
                data,
                children,
                spares,
            } => {
                format!("draid{parity}:{data}d:{children}c:{spares}s")
            }
        }
    }

    /// How many devices may fail.
    #[must_use]
    pub fn parity(&self) -> u64 {
        match self {
            Grouping::Raidz { parity } | Grouping::Draid { parity, .. } => *parity,
            Grouping::Single | Grouping::Mirror => 0,
        }
    }
}

/// What a top-level vdev is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VdevClass {
    /// Everything.
    #[default]
    Normal,
    /// `log`
    Log,
    /// `special`
    Special,
    /// `dedup`
    Dedup,
}

impl VdevClass {
    /// `vdev_alloc_bias` on disk: log, special, dedup; none for normal vdevs.
    #[must_use]
    pub fn alloc_bias(self) -> Option<&'static str> {
        match self {
            VdevClass::Normal => None,
            VdevClass::Log => Some("log"),
            VdevClass::Special => Some("special"),
            VdevClass::Dedup => Some("dedup"),
        }
    }

    /// The heading in listings.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            VdevClass::Normal => "normal",
            VdevClass::Log => "logs",
            VdevClass::Special => "special",
            VdevClass::Dedup => "dedup",
        }
    }
}

/// A top-level vdev to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopSpec {
    /// How its devices belong together.
    pub grouping: Grouping,
    /// What it is for.
    pub class: VdevClass,
    /// Its devices, as they were given.
    pub leaves: Vec<String>,
}

/// All that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VdevSpec {
    /// Top-level vdevs, in order.
    pub tops: Vec<TopSpec>,
    /// Hot spares.
    pub spares: Vec<String>,
    /// Cache devices.
    pub cache: Vec<String>,
}

impl VdevSpec {
    /// Every device.
    pub fn leaves(&self) -> impl Iterator<Item = &str> {
        let tops = self.tops.iter().flat_map(|top| &top.leaves);
        tops.chain(&self.spares)
            .chain(&self.cache)
            .map(String::as_str)
    }
}

/// A word that is not a device.
enum Keyword {
    Group(Grouping),
    Class(VdevClass),
    Spare,
    Cache,
}

fn keyword(word: &str) -> Option<Keyword> {
    Some(match word {
        "mirror" => Keyword::Group(Grouping::Mirror),
        "spare" => Keyword::Spare,
        "cache" => Keyword::Cache,
        "log" => Keyword::Class(VdevClass::Log),
        "special" => Keyword::Class(VdevClass::Special),
        "dedup" => Keyword::Class(VdevClass::Dedup),
        _ => {
            if let Some(rest) = word.strip_prefix("raidz") {
                let parity = parity_of(rest)?;
                return Some(Keyword::Group(Grouping::Raidz { parity }));
            }
            let rest = word.strip_prefix("draid")?;
            let parity = parity_of(rest.split(':').next().unwrap_or(""))?;
            // What the devices leave open is filled in when they are known.
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
    let mut class = VdevClass::Normal;
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
                let leaves = vec![word.to_owned()];
                spec.tops.push(TopSpec {
                    grouping: Grouping::Single,
                    class,
                    leaves,
                });
            }
            Some(Keyword::Class(next)) => {
                if next == VdevClass::Log && has_log {
                    return invalid("'log' can be specified only once");
                }
                has_log |= next == VdevClass::Log;
                class = next;
            }
            Some(Keyword::Spare) => {
                at += taken;
                class = VdevClass::Normal;
                take_alone(&mut spec.spares, word, devices)?;
            }
            Some(Keyword::Cache) => {
                at += taken;
                class = VdevClass::Normal;
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
    if has_log && !spec.tops.iter().any(|top| top.class == VdevClass::Log) {
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
    class: VdevClass,
    word: &str,
    leaves: Vec<String>,
) -> Result<TopSpec, String> {
    if class == VdevClass::Log && grouping != Grouping::Mirror {
        let name = grouping.type_name();
        return invalid(&format!("unsupported 'log' device: {name}"));
    }
    let least = if grouping == Grouping::Mirror {
        2
    } else {
        grouping.parity() as usize + 1
    };
    if leaves.len() < least {
        return invalid(&format!("{word} requires at least {least} devices"));
    }
    if grouping != Grouping::Mirror && leaves.len() > CHILDREN_MAX {
        return invalid(&format!(
            "{word} supports no more than {CHILDREN_MAX} devices"
        ));
    }
    let grouping = match grouping {
        Grouping::Draid { parity, .. } => draid(word, parity, leaves.len() as u64)?,
        other => other,
    };
    Ok(TopSpec {
        grouping,
        class,
        leaves,
    })
}

/// `draid_config_by_type`: `draid[parity][:datad][:childrenc][:sparess]`
fn draid(word: &str, parity: u64, given: u64) -> Result<Grouping, String> {
    let (mut data, mut spares) = (None, 0);
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
            // The real tool says it without the comma here too.
            _ => return Err(bad("")),
        }
    }
    let left = given.checked_sub(parity + spares).filter(|left| *left > 0);
    let Some(left) = left else {
        return Err(format!(
            "requested number of distributed spares {spares} and parity level {parity} leaves no \
             disks available for data"
        ));
    };
    let data = data.unwrap_or(left.min(8));
    if data == 0 || data > left {
        return Err(format!(
            "requested number of dRAID data disks {data} per group is too high,\nat most {left} \
             disks are available for data"
        ));
    }
    if spares > 100 {
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

/// How redundant a top-level vdev is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// "disk", "file", "mirror", "raidz", "draid"
    pub type_name: &'static str,
    /// How many devices
    pub children: u64,
    /// How many of them are parity
    pub parity: u64,
}

impl Replication {
    fn mirror_pair(a: Self, b: Self) -> Option<(Self, Self)> {
        let is_parity = |r: Self| ["raidz", "draid"].contains(&r.type_name);
        match () {
            () if is_parity(a) && b.type_name == "mirror" => Some((a, b)),
            () if is_parity(b) && a.type_name == "mirror" => Some((b, a)),
            () => None,
        }
    }

    /// Both have parity: then the number of devices may differ.
    fn have_parity(self, other: Self) -> bool {
        let is_parity = |r: Self| ["raidz", "draid"].contains(&r.type_name);
        is_parity(self) && is_parity(other)
    }
}

/// What is known about a device before it is opened for good.
#[derive(Clone, Copy, Debug)]
pub struct LeafFacts {
    /// A regular file rather than a disk.
    pub is_file: bool,
    /// Bytes, if known.
    pub size: Option<u64>,
}

/// Compares the redundancy of the vdevs in `spec` with each other and with `existing`, that of the
/// pool they are added to. `facts` says what each device is.
///
/// # Errors
/// Everything that `-f` would override, a line each; for [`override_message`].
pub fn check_replication(
    spec: &VdevSpec,
    existing: Option<Replication>,
    facts: &dyn Fn(&str) -> LeafFacts,
) -> Result<(), Vec<String>> {
    let mut wrong = Vec::new();
    let mut last: Option<Replication> = None;
    for top in spec.tops.iter().filter(|top| top.class != VdevClass::Log) {
        let now = replication_of(top, facts, &mut wrong);
        if let Some(last) = last {
            wrong.extend(mismatch(last, now));
        }
        last = Some(now);
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    if let (Some(pool), Some(new)) = (existing, last) {
        wrong.extend(mismatch_with_pool(pool, new));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn replication_of(
    top: &TopSpec,
    facts: &dyn Fn(&str) -> LeafFacts,
    wrong: &mut Vec<String>,
) -> Replication {
    let kinds: Vec<LeafFacts> = top.leaves.iter().map(|leaf| facts(leaf)).collect();
    if top.grouping == Grouping::Single {
        let type_name = if kinds.iter().any(|k| k.is_file) {
            "file"
        } else {
            "disk"
        };
        return Replication {
            type_name,
            children: 1,
            parity: 0,
        };
    }
    let type_name = top.grouping.type_name();
    if kinds.iter().any(|k| k.is_file) && kinds.iter().any(|k| !k.is_file) {
        wrong.push(format!(
            "mismatched replication level: {type_name} contains both files and devices"
        ));
    } else {
        let sizes: Vec<u64> = kinds.iter().filter_map(|k| k.size).collect();
        if sizes
            .windows(2)
            .any(|pair| pair[0].abs_diff(pair[1]) > SIZE_FUZZ)
        {
            wrong.push(format!("{type_name} contains devices of different sizes"));
        }
    }
    Replication {
        type_name,
        children: top.leaves.len() as u64,
        parity: top.grouping.parity(),
    }
}

fn mismatch(last: Replication, now: Replication) -> Option<String> {
    let text = if let Some((raidz, mirror)) = Replication::mirror_pair(last, now) {
        let failures = mirror.children - 1;
        if raidz.parity == failures {
            return None;
        }
        format!(
            "{} and mirror vdevs with different redundancy, {} vs. {failures} ({}-way) are present",
            raidz.type_name, raidz.parity, mirror.children
        )
    } else if last.have_parity(now) {
        if last.parity == now.parity {
            return None;
        }
        parity_text(last, now)
    } else if last.type_name != now.type_name {
        format!(
            "both {} and {} vdevs are present",
            last.type_name, now.type_name
        )
    } else if last.children != now.children {
        format!(
            "both {}-way and {}-way {} vdevs are present",
            last.children, now.children, now.type_name
        )
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

fn parity_text(last: Replication, now: Replication) -> String {
    format!(
        "{} and {} vdevs with different redundancy, {} vs. {} are present",
        last.type_name, now.type_name, last.parity, now.parity
    )
}

fn mismatch_with_pool(pool: Replication, new: Replication) -> Option<String> {
    let text = if let Some((raidz, mirror)) = Replication::mirror_pair(pool, new) {
        let failures = mirror.children - 1;
        if raidz.parity == failures {
            return None;
        }
        format!(
            "pool and new vdev with different redundancy, {} and mirror vdevs, {} vs. {failures} \
             ({}-way)",
            raidz.type_name, raidz.parity, mirror.children
        )
    } else if pool.have_parity(new) {
        if pool.parity == new.parity {
            return None;
        }
        format!(
            "pool and new vdev with different redundancy, {} and {} vdevs, {} vs. {}",
            pool.type_name, new.type_name, pool.parity, new.parity
        )
    } else if pool.type_name != new.type_name {
        format!(
            "pool uses {} and new vdev is {}",
            pool.type_name, new.type_name
        )
    } else if pool.children != new.children {
        format!(
            "pool uses {}-way {} and new vdev uses {}-way {}",
            pool.children, pool.type_name, new.children, new.type_name
        )
    } else {
        return None;
    };
    Some(format!("mismatched replication level: {text}"))
}

/// What to print about things that `-f` overrides; about those it does not, when `is_forced`.
#[must_use]
#[doc(alias = "vdev_error")]
pub fn override_message(wrong: &[String], is_forced: bool) -> String {
    let heading = if is_forced {
        "the following errors must be manually repaired:"
    } else {
        "use '-f' to override the following errors:"
    };
    let lines: String = wrong.iter().flat_map(|line| [line, "\n"]).collect();
    format!("invalid vdev specification\n{heading}\n{lines}")
}

/// Checks that a new pool has something to put data on.
///
/// # Errors
/// As [`check_replication`].
pub fn check_has_normal(spec: &VdevSpec) -> Result<(), Vec<String>> {
    if spec.tops.iter().any(|top| top.class == VdevClass::Normal) {
        return Ok(());
    }
    Err(vec![
        "at least one general top-level vdev must be specified".to_owned(),
    ])
}

/// What `zpool create -n` prints: the pool that would be made. `name_of` shortens device names.
#[must_use]
pub fn layout(pool: &str, spec: &VdevSpec, name_of: &dyn Fn(&str) -> String) -> String {
    let mut out = format!("would create '{pool}' with the following layout:\n\n");
    let classes = [
        VdevClass::Normal,
        VdevClass::Dedup,
        VdevClass::Special,
        VdevClass::Log,
    ];
    for class in classes {
        let heading = if class == VdevClass::Normal {
            pool
        } else {
            class.heading()
        };
        let tops: Vec<&TopSpec> = spec.tops.iter().filter(|top| top.class == class).collect();
        if tops.is_empty() && class != VdevClass::Normal {
            continue;
        }
        let _ = writeln!(out, "\t{heading}");
        for top in tops {
            let indent = if top.grouping == Grouping::Single {
                "  "
            } else {
                let _ = writeln!(out, "\t  {}", top.grouping.display_name());
                "    "
            };
            for leaf in &top.leaves {
                let _ = writeln!(out, "\t{indent}{}", name_of(leaf));
            }
        }
    }
    for (heading, devices) in [("cache", &spec.cache), ("spares", &spec.spares)] {
        if !devices.is_empty() {
            let _ = writeln!(out, "\t{heading}");
        }
        for device in devices {
            let _ = writeln!(out, "\t  {}", name_of(device));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::getopt::{OptSpec, parse};
    use crate::golden::cases;
    use crate::name::check_pool_name;

    const ZPOOL_CREATE: &str = include_str!("../tests/golden/zpool-create.txt");
    const CREATE: OptSpec = OptSpec {
        short: ":fndR:m:o:O:t:",
        long: &[],
    };

    /// Complaints about the words, not about what the devices are.
    const OURS: [&str; 3] = [
        "invalid vdev specification",
        "invalid number of dRAID",
        "invalid dRAID",
    ];

    fn disks(_: &str) -> LeafFacts {
        LeafFacts {
            is_file: false,
            size: None,
        }
    }

    #[test]
    fn zpool_create_reads_devices_as_openzfs_does() {
        let mut checked = 0;
        for case in cases(ZPOOL_CREATE) {
            let args = case.args();
            let Ok(parsed) = parse(&CREATE, &args[1..]) else {
                continue;
            };
            let is_ours = OURS.iter().any(|words| case.stderr.starts_with(words));
            let foreign = !is_ours && !case.stderr.is_empty() || case.stderr.contains("part of");
            if foreign
                || parsed.operands.len() < 2
                || case.command.contains("/tmp/")
                || case.command.contains("ta nk")
            {
                continue;
            }
            let (pool, words) = parsed.operands.split_first().unwrap();
            let outcome = parse_vdev_spec(words).and_then(|spec| {
                if !parsed.has('f') {
                    let lines = check_replication(&spec, None, &disks)
                        .and_then(|()| check_has_normal(&spec));
                    lines.map_err(|lines| override_message(&lines, false).trim_end().to_owned())?;
                }
                Ok(spec)
            });
            match outcome {
                Ok(spec) if parsed.has('n') => {
                    let got = layout(pool, &spec, &str::to_owned);
                    assert_eq!(got, case.stdout, "{}", case.command);
                }
                Ok(_) => assert_eq!(case.stderr, "", "{}", case.command),
                Err(got) => assert_eq!(got + "\n", case.stderr, "{}", case.command),
            }
            checked += 1;
        }
        assert!(checked > 50, "only {checked} cases");
    }

    #[test]
    fn pool_names_are_refused_as_openzfs_does() {
        let mut checked = 0;
        for case in cases(ZPOOL_CREATE) {
            let args: Vec<&str> = case.args();
            let [_, name, "vda1"] = args[..] else {
                continue;
            };
            if name.starts_with('-') || name.is_empty() || !name.is_ascii() {
                continue;
            }
            let got = check_pool_name(name, true).err().map(|e| e.to_string());
            let first = case.stderr.lines().next().unwrap_or("");
            let want = first.strip_prefix(&format!("cannot create '{name}': "));
            if let (Some(got), Some(want)) = (&got, want) {
                assert_eq!(got, want, "{}", case.command);
                checked += 1;
            } else {
                assert_eq!(got, None, "{}: {first}", case.command);
            }
        }
        assert!(checked >= 10, "only {checked} cases");
    }

    #[test]
    fn vdevs_that_do_not_match_the_pool() {
        let spec = parse_vdev_spec(&["vdj1"]).unwrap();
        let pool = Replication {
            type_name: "mirror",
            children: 2,
            parity: 0,
        };
        let wrong = check_replication(&spec, Some(pool), &disks).unwrap_err();
        let text = "mismatched replication level: pool uses mirror and new vdev is disk";
        assert_eq!(wrong, [text]);
    }

    #[test]
    fn files_and_disks_do_not_mix() {
        let spec = parse_vdev_spec(&["mirror", "/f", "d"]).unwrap();
        let facts = |name: &str| LeafFacts {
            is_file: name == "/f",
            size: Some(1 << 30),
        };
        let wrong = check_replication(&spec, None, &facts).unwrap_err();
        let text = "mismatched replication level: mirror contains both files and devices";
        assert_eq!(wrong, [text]);
        let sizes = |name: &str| LeafFacts {
            is_file: false,
            size: Some(if name == "d" { 1 << 30 } else { 2 << 30 }),
        };
        let wrong = check_replication(&spec, None, &sizes).unwrap_err();
        assert_eq!(wrong, ["mirror contains devices of different sizes"]);
    }
}
