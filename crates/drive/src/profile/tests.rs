use super::*;

#[test]
fn profiles_are_found_by_the_models_they_list() {
    for (name, profile) in [
        ("wd20ears", "wd20ears"),
        ("WD20EARS-unbatched", "wd20ears-unbatched"),
        ("WD20EARS-00MVWB0", "wd20ears"),
        ("wdc wd20ears", "wd20ears"),
        ("WDC WD160EDGZ-11B2DA0", "wd160edgz"),
        ("mal32000sa", "mal32000"),
        ("ST2000DM001", "st2000dm001"),
        ("SSDPE2KX010T7", "p4500"),
    ] {
        assert_eq!(Profile::find(name).unwrap().name, profile, "{name}");
    }
    for name in ["", "WDC", "WD20", "00MVWB0"] {
        assert!(Profile::find(name).is_err(), "{name}");
    }
}

fn usb() -> Bus {
    Bus::parse("usb").unwrap()
}

#[test]
fn a_bridge_is_named_or_the_first() {
    assert_eq!(usb().name(), "usb");
    for bridge in bridges() {
        let name = format!("usb:{}", bridge.name);
        let bus = Bus::parse(&name).unwrap();
        assert_eq!(Bus::parse(&bus.name()).unwrap(), bus);
        let plain = Profile::find("wd160edgz").unwrap();
        let bridged = plain.on_bus(bus).unwrap();
        assert_eq!(bridged.bridge.as_ref(), Some(&bridge.bridge));
        assert_eq!(bridged.on_bus(usb()).unwrap(), bridged, "it keeps its own");
        assert_eq!(bridged.on_bus(Bus::Sata).unwrap(), *plain);
        let text = bridged.to_toml();
        assert_eq!(Profile::parse("x", &text).unwrap(), bridged);
    }
    let error = Bus::parse("usb:none").unwrap_err().to_string();
    assert_eq!(
        error,
        "no bus 'usb:none'; there are sata, usb, usb:jms579, usb:asm1051, usb:at2"
    );
    let own = Profile::find("wd160edgz-usb").unwrap();
    let own = own.bridge.as_ref().unwrap();
    assert_eq!(*own, bridges()[0].bridge, "one bridge in two files");
}

#[test]
fn a_bus_changes_what_the_host_sees_and_nothing_of_the_medium() {
    let find = |name| Profile::find(name).unwrap();
    let plain = find("wd160edgz");
    let bridged = plain.on_bus(usb()).unwrap();
    assert_eq!(bridged.host_sectors(), find("wd160edgz-usb").host_sectors());
    assert_eq!(bridged.queue_depth(), 1);
    assert_eq!(bridged.medium_sectors(), plain.medium_sectors());
    assert_eq!(bridged.on_bus(Bus::Sata).unwrap(), *plain);
    let freed = find("wd160edgz-usb").on_bus(Bus::Sata).unwrap();
    assert_eq!(freed.interface, plain.interface);
    assert!(find("p4500").on_bus(usb()).is_err());
    assert!(plain.with_sectors(60_000).unwrap().on_bus(usb()).is_err());
}

#[test]
fn built_in_profiles_are_possible_and_survive_being_written_and_read() {
    for profile in profiles() {
        let again = Profile::parse(&profile.name, &profile.to_toml());
        assert_eq!(**profile, again.expect("what it wrote itself"));
        assert!(std::ptr::eq(
            &**profile,
            &*Profile::find(&profile.name).unwrap()
        ));
    }
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_column() {
    let text = include_str!("../../profiles/wd20ears.toml").replace("\nrpm = ", "\nrmp = ");
    let error = Profile::parse("x.toml", &text).unwrap_err();
    let line = text.lines().position(|l| l.starts_with("rmp")).unwrap() + 1;
    let start = format!("x.toml: line {line}, column 1: unknown field `rmp`, expected");
    assert!(error.to_string().starts_with(&start), "{error}");
}

#[test]
fn every_figure_says_where_it_comes_from() {
    for profile in profiles() {
        let value: toml::Table = toml::from_str(&profile.to_toml()).unwrap();
        let told = |key: &str| profile.source.iter().any(|s| s.of == key);
        for table in [
            "identify",
            "bridge",
            "medium",
            "interface",
            "disk",
            "flash",
            "cache",
        ] {
            let Some(figures) = value.get(table).and_then(|t| t.as_table()) else {
                continue;
            };
            for key in figures.keys() {
                let full = format!("{table}.{key}");
                assert!(told(table) || told(&full), "{}: {full}", profile.name);
            }
        }
        for source in &profile.source {
            let (table, key) = source.of.split_once('.').unwrap_or((&source.of, ""));
            let figures = value.get(table).and_then(|t| t.as_table());
            let known = figures.is_some_and(|t| key.is_empty() || t.contains_key(key));
            assert!(known, "{}: there is no {}", profile.name, source.of);
        }
    }
}

/// The error for the profile with one line replaced.
fn error(from: &str, to: &str) -> String {
    let text = include_str!("../../profiles/wd20ears.toml");
    assert!(text.contains(from), "{from}");
    let error = Profile::parse("x.toml", &text.replacen(from, to, 1)).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::InvalidInput);
    error.to_string()
}

#[test]
fn what_cannot_be_is_refused_with_its_key_and_value() {
    for (from, to, expected) in [
        (
            "rpm = 5400",
            "rpm = 0",
            "x.toml: disk.rpm = 0: must be from 100 to 100000",
        ),
        (
            "rpm = 5400",
            "rpm = nan",
            "x.toml: disk.rpm = NaN: must be from 100 to 100000",
        ),
        (
            "logical_sector_bytes = 512",
            "logical_sector_bytes = 520",
            "x.toml: identify.logical_sector_bytes = 520: must be a power of two from 512 to 65536",
        ),
        (
            "track_skew_ms = 0.9",
            "track_skew_ms = 0.1",
            "x.toml: disk.track_skew_ms = 0.1: must be from 0.8 to 11.111111",
        ),
        ("[disk]", "[flash]", "x.toml: line"),
        (
            "sectors = 3907029168",
            "sectors = 7",
            "x.toml: identify.sectors = 7: must be from 2048",
        ),
    ] {
        let error = error(from, to);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_wrong_type_and_a_missing_key_are_named_with_their_place() {
    let wrong = error("surfaces = 8", "surfaces = \"eight\"");
    assert!(
        wrong.contains(": line ") && wrong.contains("expected u32"),
        "{wrong}"
    );
    let missing = error("seek_avg_ms = 12.0\n", "");
    assert!(missing.contains("missing field `seek_avg_ms`"), "{missing}");
    let torn = error("[disk]", "[disk");
    assert!(torn.starts_with("x.toml: line "), "{torn}");
}

#[test]
fn an_unknown_name_is_answered_with_those_that_there_are() {
    let error = Profile::find("wd21ears").unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::NotFound);
    assert!(error.to_string().contains("wd20ears, "), "{error}");
}

#[test]
fn a_bridge_hides_sectors_and_a_jumper_shifts_them() {
    let usb = Profile::find("wd160edgz-usb").unwrap();
    let sata = Profile::find("WD160EDGZ").unwrap();
    assert_eq!(
        (sata.host_sectors(), sata.queue_depth()),
        (31_251_759_104, 32)
    );
    assert_eq!((usb.host_sectors(), usb.queue_depth()), (31_251_693_568, 1));
    assert_eq!(usb.medium_sectors(), sata.medium_sectors());
    let jumper = Profile::find("wd20ears-jumper").unwrap();
    assert_eq!(
        (jumper.medium_lba(63), jumper.sectors_per_physical()),
        (64, 8)
    );
    let small = sata.with_sectors(1 << 20).unwrap();
    assert_eq!(small.host_sectors(), 1 << 20);
    assert!(usb.with_sectors(65_536).is_err());
}
