//! The property `compatibility`: which features a pool may have.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_pool.c (`zpool_load_compat`).

use base::{Error, Result};
use phys::feature::{FEATURES, Feature, Release};

const FOLDERS: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];

/// A value of the property `compatibility`, with the features that it allows.
#[derive(Debug, Clone)]
pub struct Compatibility {
    value: String,
    allowed: Vec<&'static Feature>,
}

impl Compatibility {
    /// Reads the sets that `value` names: all features for `off`, none for `legacy`, otherwise those that all
    /// of the sets have.
    ///
    /// # Errors
    /// `InvalidInput` for a set that cannot be read.
    #[doc(alias = "zpool_load_compat")]
    pub fn load(value: &str) -> Result<Compatibility> {
        let mut allowed: Vec<&'static Feature> = FEATURES.iter().collect();
        match value {
            "" | "off" => {}
            "legacy" => allowed.clear(),
            _ => {
                let sets: Vec<&str> = value.split(',').filter(|set| !set.is_empty()).collect();
                if sets.is_empty() {
                    return Err(Error::invalid("no valid compatibility files specified"));
                }
                for set in sets {
                    restrict(&mut allowed, set)?;
                }
            }
        }
        Ok(Compatibility {
            value: value.to_owned(),
            allowed,
        })
    }

    /// The value as it is stored.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether a pool may have this feature.
    #[must_use]
    pub fn allows(&self, feature: &Feature) -> bool {
        self.allowed.iter().any(|f| f.guid == feature.guid)
    }
}

/// Keeps the features of one set.
fn restrict(allowed: &mut Vec<&'static Feature>, set: &str) -> Result<()> {
    let release = set
        .strip_prefix("openzfs-")
        .map(|rest| rest.trim_end_matches("-linux").trim_end_matches("-freebsd"));
    let release = match release {
        Some("2.0" | "2.1") => Some(Release::V2_1),
        Some("2.2") => Some(Release::V2_2),
        Some("2.3") => Some(Release::V2_3),
        Some("2.4") => Some(Release::V2_4),
        _ => None,
    };
    if let Some(release) = release {
        allowed.retain(|feature| feature.release() <= release);
        return Ok(());
    }
    let folders = if set.starts_with('/') {
        &[""][..]
    } else {
        &FOLDERS
    };
    let text = folders
        .iter()
        .find_map(|folder| std::fs::read_to_string(format!("{folder}/{set}")).ok());
    let text = text
        .ok_or_else(|| Error::invalid(format!("could not read/parse feature file(s): {set} ")))?;
    let names: Vec<&str> = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""))
        .flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','))
        .collect();
    allowed.retain(|f| names.contains(&f.name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_allows_only_what_it_had() {
        let allows = |set: &str, name: &str| {
            let feature = phys::feature::by_name(name).unwrap();
            Compatibility::load(set).unwrap().allows(feature)
        };
        assert!(!allows("openzfs-2.1-linux", "raidz_expansion"));
        assert!(!allows("openzfs-2.2", "raidz_expansion"));
        assert!(
            !allows("openzfs-2.3", "physical_rewrite") && allows("openzfs-2.4", "physical_rewrite")
        );
        assert!(allows("openzfs-2.3", "raidz_expansion"));
        assert!(!allows("openzfs-2.1", "blake3") && allows("openzfs-2.2-linux", "blake3"));
    }
}
