//! Drives that are known to lie about their physical sectors.
//!
//! # Source
//! FreeBSD `sys/cam/ata/ata_da.c`, the models with the quirk `ADA_Q_4K`; OpenZFS
//! `cmd/zpool/os/linux/zpool_vdev_os.c`, `vdev_disk_database`, whose keys are the vendor (eight
//! characters) and the first sixteen characters of the model.

/// Patterns of models whose physical sector is 4096 bytes: `?` is any character, `*` any sequence.
const FREEBSD_4K: &[&str] = &[
    "Hitachi H??????????E3*",
    "SAMSUNG HD155UI*",
    "SAMSUNG HD204UI*",
    "ST????DL*",
    "ST???DM*",
    "ST????DM*",
    "ST9500423AS*",
    "ST9500424AS*",
    "ST9640423AS*",
    "ST9640424AS*",
    "ST9750420AS*",
    "ST9750422AS*",
    "ST9750423AS*",
    "ST???LT*",
    "WDC WD????CX*",
    "WDC WD????RS*",
    "WDC WD????RX*",
    "WDC WD??????CX*",
    "WDC WD????AZEX*",
    "WDC WD????FZEX*",
    "WDC WD??????RS*",
    "WDC WD??????RX*",
    "WDC WD???PKT*",
    "WDC WD?????PKT*",
    "WDC WD???PVT*",
    "WDC WD?????PVT*",
    "Corsair CSSD-F*",
    "Corsair Force 3*",
    "Corsair Neutron GTX*",
    "Corsair Force G*",
    "M4-CT???M4SSD2*",
    "C300-CTFDDAC???MAG*",
    "INTEL SSDSA2CW*",
    "INTEL SSDSC2CT*",
    "INTEL SSDSC2MH*",
    "INTEL SSDSC2BW*",
    "INTEL SSDSC2BX*",
    "INTEL SSDSA2M*",
    "KINGSTON SE100S3*",
    "KINGSTON SH103S3*",
    "MARVELL SD88SA02*",
    "Micron 5100 MTFDDAK*",
    "OCZ-AGILITY2*",
    "OCZ-AGILITY3*",
    "DENRSTE251M45*",
    "OCZ?VERTEX2*",
    "OCZ-VERTEX3*",
    "OCZ-VERTEX4*",
    "Samsung SSD 750*",
    "SAMSUNG SSD 830 Series*",
    "Samsung SSD 840*",
    "Samsung SSD 845*",
    "Samsung SSD 850*",
    "Samsung SSD 860*",
    "Samsung SSD 870*",
    "SAMSUNG MZ7KM*",
    "SAMSUNG MZ7*",
    "MZ7*",
    "SAMSUNG SSD PM851*",
    "FTM??CT25H*",
    "SG9XCS2D*",
    "WDC WDS?????G0*",
    "ZA*NM*",
];

/// Models of vendor `ATA` with sectors, or pages, of 4096 bytes.
const OPENZFS_4K: &[&str] = &[
    "APPLE SSD TS064C",
    "APPLE SSD TS128C",
    "APPLE SSD TS256C",
    "APPLE SSD TS512C",
    "INTEL SSDSA2M040",
    "INTEL SSDSA2M080",
    "INTEL SSDSA2M160",
    "INTEL SSDSC2MH12",
    "INTEL SSDSC2MH25",
    "OCZ CORE_SSD",
    "OCZ-VERTEX",
    "SAMSUNG MCCOE32G",
    "SAMSUNG MCCOE64G",
    "SAMSUNG SSD PM80",
    "INTEL SSDSC2BA10",
    "INTEL SSDSC2BA20",
    "INTEL SSDSC2BA40",
    "INTEL SSDSC2BA80",
    "INTEL SSDSC2BB08",
    "INTEL SSDSC2BB12",
    "INTEL SSDSC2BB16",
    "INTEL SSDSC2BB24",
    "INTEL SSDSC2BB30",
    "INTEL SSDSC2BB40",
    "INTEL SSDSC2BB48",
    "INTEL SSDSC2BB60",
    "INTEL SSDSC2BB80",
    "INTEL SSDSC2BW24",
    "INTEL SSDSC2BW48",
    "INTEL SSDSC2BP24",
    "INTEL SSDSC2BP48",
    "MARVELL SD88SA02",
    "Hitachi HDS5C303",
    "SAMSUNG HD204UI",
    "ST2000DL004 HD20",
    "WDC WD10EARS-00M",
    "WDC WD10EARS-00S",
    "WDC WD10EARS-00Z",
    "WDC WD15EARS-00M",
    "WDC WD15EARS-00S",
    "WDC WD15EARS-00Z",
    "WDC WD20EARS-00M",
    "WDC WD20EARS-00S",
    "WDC WD20EARS-00Z",
    "WDC WD1600BEVT-0",
    "WDC WD2500BEVT-0",
    "WDC WD3200BEVT-0",
    "WDC WD5000BEVT-0",
];

/// Models of vendor `ATA` with pages of 8192 bytes.
const OPENZFS_8K: &[&str] = &[
    "ADATA SSD S396 3",
    "APPLE SSD SM128E",
    "APPLE SSD SM256E",
    "APPLE SSD SM512E",
    "APPLE SSD SM768E",
    "C400-MTFDDAC064M",
    "C400-MTFDDAC128M",
    "C400-MTFDDAC256M",
    "C400-MTFDDAC512M",
    "Corsair Force 3",
    "Corsair Force GS",
    "INTEL SSDSA2CT04",
    "INTEL SSDSA2BZ10",
    "INTEL SSDSA2BZ20",
    "INTEL SSDSA2BZ30",
    "INTEL SSDSA2CW04",
    "INTEL SSDSA2CW08",
    "INTEL SSDSA2CW12",
    "INTEL SSDSA2CW16",
    "INTEL SSDSA2CW30",
    "INTEL SSDSA2CW60",
    "INTEL SSDSC2CT06",
    "INTEL SSDSC2CT12",
    "INTEL SSDSC2CT18",
    "INTEL SSDSC2CT24",
    "INTEL SSDSC2CW06",
    "INTEL SSDSC2CW12",
    "INTEL SSDSC2CW18",
    "INTEL SSDSC2CW24",
    "INTEL SSDSC2CW48",
    "KINGSTON SH100S3",
    "KINGSTON SH103S3",
    "M4-CT064M4SSD2",
    "M4-CT128M4SSD2",
    "M4-CT256M4SSD2",
    "M4-CT512M4SSD2",
    "OCZ-AGILITY2",
    "OCZ-AGILITY3",
    "OCZ-VERTEX2 3.5",
    "OCZ-VERTEX3",
    "OCZ-VERTEX3 LT",
    "OCZ-VERTEX3 MI",
    "OCZ-VERTEX4",
    "SAMSUNG MZ7WD120",
    "SAMSUNG MZ7WD240",
    "SAMSUNG MZ7WD480",
    "SAMSUNG MZ7WD960",
    "SAMSUNG SSD 830",
    "Samsung SSD 840",
    "SanDisk SSD U100",
    "TOSHIBA THNSNH06",
    "TOSHIBA THNSNH12",
    "TOSHIBA THNSNH25",
    "TOSHIBA THNSNH51",
];

/// Entries of other vendors.
const OPENZFS_OTHERS: &[(&str, &str)] = &[("NA", "SmrtStorSDLKAE9W"), ("NVMe", "Amazon EC2 NVMe")];

/// The pattern of FreeBSD's list that a model matches, if any: its physical sector is then 4096 bytes.
#[must_use]
#[doc(alias = "ADA_Q_4K")]
pub fn freebsd_quirk_4k(model: &str) -> Option<&'static str> {
    let matches = |pattern: &&&str| is_match(pattern.as_bytes(), model.as_bytes());
    FREEBSD_4K.iter().find(matches).copied()
}

/// The sector size that OpenZFS's list gives for a device; `vendor` is `ATA` for SATA drives.
#[must_use]
#[doc(alias = "vdev_disk_database")]
pub fn openzfs_sector_size(vendor: &str, model: &str) -> Option<u32> {
    let mut key = model.as_bytes().to_vec();
    key.resize(16, b' ');
    let is_key = |entry: &&str| *key.trim_ascii_end() == *entry.as_bytes();
    if vendor != "ATA" {
        let found = OPENZFS_OTHERS
            .iter()
            .any(|(v, m)| *v == vendor && is_key(m));
        return found.then_some(4096);
    }
    let sizes = [(OPENZFS_4K, 4096), (OPENZFS_8K, 8192)];
    sizes
        .iter()
        .find(|(list, _)| list.iter().any(is_key))
        .map(|(_, size)| *size)
}

/// `?` matches one character, `*` any number.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, _) => text.is_empty(),
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skip| is_match(rest, &text[skip..])),
        (Some((_, _)), None) => false,
        (Some((p, rest)), Some((t, others))) => (*p == b'?' || p == t) && is_match(rest, others),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liars_are_known_by_their_models() {
        for (model, pattern) in [
            ("WDC WD20EARS-00MVWB0", Some("WDC WD????RS*")),
            ("WDC WD15EARS-00Z5B1", Some("WDC WD????RS*")),
            ("WDC WD30EZRX-00MMMB0", Some("WDC WD????RX*")),
            ("ST2000DM001-1CH164", Some("ST????DM*")),
            ("Hitachi HDS5C3030ALA630", None),
            ("ZA480NM10001", Some("ZA*NM*")),
            ("MARSHAL MAL32000SA-T72", None),
            ("WDC WD160EDGZ-11B2DA0", None),
            ("", None),
        ] {
            assert_eq!(freebsd_quirk_4k(model), pattern, "{model}");
        }
    }

    #[test]
    fn the_list_of_openzfs_looks_at_sixteen_characters() {
        for (vendor, model, size) in [
            ("ATA", "WDC WD20EARS-00MVWB0", Some(4096)),
            ("ATA", "WDC WD30EZRX-00MMMB0", None),
            ("ATA", "ST2000DM001-1CH164", None),
            ("ATA", "SAMSUNG HD204UI", Some(4096)),
            ("ATA", "OCZ-VERTEX3", Some(8192)),
            ("ATA", "OCZ-VERTEX", Some(4096)),
            ("NVMe", "Amazon EC2 NVMe Instance Storage", Some(4096)),
            ("NVMe", "OCZ-VERTEX", None),
        ] {
            assert_eq!(openzfs_sector_size(vendor, model), size, "{model}");
        }
        let entries = OPENZFS_4K.iter().chain(OPENZFS_8K);
        assert!(entries.clone().all(|entry| entry.len() <= 16));
        assert_eq!(entries.count() + OPENZFS_OTHERS.len(), 104);
    }
}
