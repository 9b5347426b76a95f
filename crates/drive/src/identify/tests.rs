//! The 512 bytes, and what is printed from them.

use proptest::prelude::*;

use super::*;
use crate::profile::profiles;

fn wd20ears() -> Profile {
    Profile::clone(&Profile::find("wd20ears").unwrap())
}

fn honest() -> Profile {
    let mut profile = wd20ears();
    profile.identify.physical_sector_bytes = 4096;
    profile
}

fn of(profile: &Profile) -> IdentifyData {
    IdentifyData::of(profile, Some("WD-WCAZA1234567"), 1).unwrap()
}

#[test]
fn strings_are_swapped_and_padded() {
    let data = of(&wd20ears());
    let bytes = data.to_bytes();
    assert_eq!(&bytes[54..64], b"DW CDW02AE");
    assert_eq!(&bytes[20..40], b"DWW-ACAZ214365 7    ");
    assert_eq!(data.model(), "WDC WD20EARS-00MVWB0");
    assert_eq!(data.serial(), "WD-WCAZA1234567");
    assert_eq!(data.firmware(), "51.0AB51");
    let error = IdentifyData::of(&wd20ears(), Some("more than twenty characters"), 1);
    assert!(error.unwrap_err().to_string().contains("at most 20"));
    let made_up = IdentifyData::of(&wd20ears(), None, 1).unwrap().serial();
    assert!(
        made_up.starts_with("WD-WCAZA") && made_up.len() == 15,
        "{made_up}"
    );
}

#[test]
fn the_words_say_what_the_profile_says() {
    let liar = of(&wd20ears());
    assert_eq!((liar.word(106), liar.word(209)), (0x4000, 0x4000));
    assert_eq!((liar.word(60), liar.word(61)), (0xffff, 0x0fff));
    assert_eq!(liar.sectors(), 3_907_029_168);
    assert_eq!(
        (liar.logical_sector_bytes(), liar.physical_sector_bytes()),
        (512, 512)
    );
    assert_eq!((liar.word(75), liar.queue_depth()), (31, 32));
    assert_eq!(liar.write_cache(), (true, true));
    let honest_data = of(&honest());
    assert_eq!(honest_data.word(106), 0x6003);
    assert_eq!(honest_data.physical_sector_bytes(), 4096);
    let mut native = honest();
    native.identify.logical_sector_bytes = 4096;
    let native = of(&native);
    assert_eq!(
        (native.word(106), native.word(117), native.word(118)),
        (0x5000, 2048, 0)
    );
    assert_eq!(
        (
            native.logical_sector_bytes(),
            native.physical_sector_bytes()
        ),
        (4096, 4096)
    );
    let mut shifted = honest();
    shifted.identify.alignment_offset_bytes = 512;
    assert_eq!(of(&shifted).word(209), 0x4001);
    assert_eq!(of(&shifted).stripe(true), (4096, 3584));
    assert_eq!(of(&shifted).linux_topology().alignment_offset, 3584);
}

#[test]
fn hosts_make_of_it_what_they_make_of_real_drives() {
    assert_eq!(of(&wd20ears()).stripe(true), (4096, 0), "by the list");
    assert_eq!(of(&wd20ears()).stripe(false), (0, 0));
    assert_eq!(of(&honest()).stripe(false), (4096, 0));
    let linux = of(&wd20ears()).linux_topology();
    assert_eq!(
        (linux.logical_block_size, linux.physical_block_size),
        (512, 512)
    );
    assert_eq!(linux.known_lie(), Some((4096, "FreeBSD")));
    let linux = of(&honest()).linux_topology();
    assert_eq!((linux.minimum_io_size, linux.optimal_io_size), (4096, 0));
    assert_eq!(linux.known_lie(), None);
}

#[test]
fn camcontrol_prints_what_it_prints_of_a_real_drive() {
    let mut profile = honest();
    profile.identify.rotation_rpm = 5400;
    let text = camcontrol_identify(&of(&profile), 0);
    let expect = "\
pass0: <WDC WD20EARS-00MVWB0 51.0AB51> ATA8-ACS SATA 2.x device
pass0: 300.000MB/s transfers (SATA 2.x, UDMA6, PIO 8192bytes)

protocol              ATA/ATAPI-8 SATA 2.x
device model          WDC WD20EARS-00MVWB0
firmware revision     51.0AB51
serial number         WD-WCAZA1234567
";
    assert!(text.starts_with(expect), "{text}");
    for line in [
        "\nsector size           logical 512, physical 4096, offset 0\n",
        "\nLBA supported         268435455 sectors\n",
        "\nLBA48 supported       3907029168 sectors\n",
        "\nmedia RPM             5400\n",
        "\nwrite cache                    yes\tyes\n",
        "\nNative Command Queuing (NCQ)   yes\t\t32 tags\n",
        "\nWWN                   50014ee",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert_eq!(
        camcontrol_devlist(&of(&profile), "ada0", 0, 0),
        "<WDC WD20EARS-00MVWB0 51.0AB51>    at scbus0 target 0 lun 0 (pass0,ada0)"
    );
}

#[test]
fn diskinfo_prints_what_it_prints_of_a_real_drive() {
    let info = DiskInfo {
        name: "ada0".to_owned(),
        mediasize: 2_000_398_934_016,
        sectorsize: 512,
        stripesize: 4096,
        stripeoffset: 0,
        drive: Some(DriveInfo::of(&of(&wd20ears()))),
    };
    let expect = "\
ada0
\t512         \t# sectorsize
\t2000398934016\t# mediasize in bytes (1.8T)
\t3907029168  \t# mediasize in sectors
\t4096        \t# stripesize
\t0           \t# stripeoffset
\t3876021     \t# Cylinders according to firmware.
\t16          \t# Heads according to firmware.
\t63          \t# Sectors according to firmware.
\tWDC WD20EARS-00MVWB0\t# Disk descr.
\tWD-WCAZA1234567\t# Disk ident.
\tNo          \t# TRIM/UNMAP support
\tUnknown     \t# Rotation rate in RPM
\tNot_Zoned   \t# Zone Mode
";
    assert_eq!(diskinfo(&info), expect);
    assert_eq!(
        diskinfo_line(&info),
        "ada0\t512\t2000398934016\t3907029168\t4096\t0\t3876021\t16\t63"
    );
    let plain = DiskInfo {
        drive: None,
        mediasize: 1 << 30,
        ..info
    };
    assert!(diskinfo(&plain).contains("(1.0G)"));
    assert_eq!(diskinfo(&plain).lines().count(), 6);
}

#[test]
fn every_profile_survives_its_own_512_bytes() {
    for profile in profiles() {
        let data = IdentifyData::of(profile, None, 7).unwrap();
        let bytes = data.to_bytes();
        assert_eq!(bytes.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)), 0);
        let back = IdentifyData::from_bytes(&bytes).unwrap();
        assert_eq!(back.to_bytes(), bytes);
        assert_eq!(back.model(), profile.identify.model, "{}", profile.name);
        assert_eq!(back.sectors(), profile.identify.sectors);
        assert_eq!(
            back.logical_sector_bytes(),
            profile.identify.logical_sector_bytes
        );
        let physical = u64::from(profile.identify.physical_sector_bytes);
        assert_eq!(back.physical_sector_bytes(), physical);
        let offset = u64::from(profile.identify.alignment_offset_bytes);
        assert_eq!(back.alignment_offset_bytes(), offset);
    }
}

#[test]
fn linux_keeps_it_behind_sixty_bytes() {
    let mut page = vec![0; 60];
    page[1] = 0x89;
    page.extend_from_slice(&of(&honest()).to_bytes());
    assert_eq!(IdentifyData::from_vpd(&page).unwrap(), of(&honest()));
    assert!(IdentifyData::from_vpd(&page[..500]).is_err());
    page[1] = 0x80;
    assert!(IdentifyData::from_vpd(&page).is_err());
}

proptest! {
    #[test]
    fn prop_garbage_is_read_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 500..520),
        checksum in any::<bool>(),
    ) {
        if let (true, Some(signature)) = (checksum, bytes.get_mut(510)) {
            *signature = 0;
        }
        if let Ok(data) = IdentifyData::from_bytes(&bytes) {
            let text = camcontrol_identify(&data, 0);
            prop_assert!(text.contains("sector size"));
            let _ = (data.stripe(true), data.linux_topology(), data.rotation_rpm());
            let _ = (data.wwn(), data.queue_depth(), data.sectors(), data.write_cache());
        }
    }
}
