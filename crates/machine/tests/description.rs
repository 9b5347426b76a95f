//! `machine.toml`: what is refused and where, and that edits keep hand-written text.

use std::path::{Path, PathBuf};

use base::ErrorKind;
use geom::nop::NopConfig;
use machine::{Description, Layer, LayerKind, NewDrive, parse_size};
use proptest::prelude::*;

fn parse(text: &str) -> base::Result<Description> {
    Description::parse(PathBuf::from("m/machine.toml"), text)
}

#[track_caller]
fn refused(text: &str, want: &str) {
    let error = parse(text).expect_err(text).to_string();
    let want = format!("m/machine.toml: {want}");
    assert!(error.starts_with(&want), "{text}\n{error}\n{want}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn mistakes_are_named_with_line_and_column() {
    refused("seeds = 1\n", "line 1, column 1: unknown field `seeds`");
    refused("seed = \"x\"\n", "line 1, column 8: invalid type");
    refused("seed = 1\nseed = 2\n", "line 2, column 1: duplicate key");
    refused("[[drive]\nname = 1\n", "line 1, column 9: ");
    let drive = "[[drive]]\nname = \"ada0\"\nprofile = \"wd20ears\"\n";
    refused(
        &format!("{drive}\n{drive}"),
        "line 6, column 8: there are two drives 'ada0'",
    );
    refused(
        &drive.replace("profile", "profil"),
        "line 3, column 1: unknown field `profil`",
    );
    refused(
        &drive.replace("wd20ears", "wd20"),
        "line 3, column 11: no drive profile 'wd20'; there are ",
    );
    refused(
        &drive.replace("ada0", "ada0p1"),
        "line 2, column 8: 'ada0p1' is not a name of a drive",
    );
    refused(
        &format!("{drive}size = \"3XB\"\n"),
        "line 4, column 8: '3XB' is not a size",
    );
    refused(
        &format!("{drive}size = 5\n"),
        "line 4, column 8: a drive of 5 bytes cannot be",
    );
    refused("host = \"abacus\"\n", "line 1, column 8: no host 'abacus'");
    let layer = "# é is one column\n[[layer]]\nname = \"ada0.nop\"\non = \"ada0\"\n";
    refused(layer, "line 2, column 1: layer 'ada0.nop' has not one of");
    refused(
        &format!("{layer}nop = {{ \"é\" = 1 }}\n"),
        "line 5, column 9: unknown field `é`",
    );
    refused(
        "hostname = \"\"\n",
        "line 1, column 12: a hostname has 1 to 63 bytes",
    );
}

#[test]
fn the_firmware_of_a_drive_can_be_another() {
    let mut machine = parse("").unwrap();
    let drive = NewDrive::parse("ada0=st2000dm001,rmw=unbatched").unwrap();
    machine.add_drive(&drive).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let written = saved(&machine, &folder.path().join("machine.toml"));
    assert!(written.contains("rmw = \"unbatched\"\n"), "{written}");
    let again = parse(&written).unwrap();
    assert_eq!(again.drives, machine.drives);
    let profile = &again.drives[0].profile;
    assert_eq!(profile.cache.rmw_policy.name(), "unbatched");
    let mut sources = profile.source.iter();
    let source = sources.find(|source| source.of == "cache.rmw_policy");
    assert_eq!(source.unwrap().kind, drive::profile::SourceKind::Assumed);
    assert_eq!(sources.filter(|s| s.of == "cache.rmw_policy").count(), 0);
    let error = NewDrive::parse("ada0=st2000dm001,rmw=never").unwrap_err();
    let text = "rmw 'never': there is batched, sync, unbatched, hidden";
    assert_eq!(error.to_string(), text);
    refused(
        &written.replace("unbatched", "never"),
        "line 4, column 7: unknown variant `never`",
    );
}

#[test]
fn edits_keep_comments() {
    let text = "# mine\nseed = 9 # lucky\n\n[[drive]] # the old one\nname = \"ada0\"\n\
                profile = \"wd20ears\" # green\n";
    let mut machine = parse(text).unwrap();
    machine
        .add_drive(&NewDrive::parse("ada1=wd30ezrx,size=1GB,serial=X1").unwrap())
        .unwrap();
    machine.set_pulled("ada0", true).unwrap();
    machine.set_layers(&[nop("ada0"), nop("ada1")]).unwrap();
    machine.set_layers(&[nop("ada1")]).unwrap();
    machine.set_host("modern").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.toml");
    let written = saved(&machine, &path);
    for comment in [
        "# mine\n",
        "seed = 9 # lucky\n",
        "# the old one\n",
        "# green\n",
    ] {
        assert!(written.contains(comment), "{comment}\n{written}");
    }
    let again = parse(&written).unwrap();
    assert_eq!(again.drives, machine.drives);
    assert_eq!((again.seed, again.host.name), (9, "modern"));
    assert_eq!(again.layers, [nop("ada1")]);
    let ada1 = again.drive("ada1").unwrap();
    assert_eq!(
        (ada1.size, ada1.serial.as_deref()),
        (Some(1_000_000_000 / 512 * 512), Some("X1"))
    );
    assert!(again.drive("ada0").unwrap().is_pulled);
    let mut back = again;
    back.set_pulled("ada0", false).unwrap();
    assert!(!saved(&back, &path).contains("pulled"));
}

/// The file as it would be saved.
fn saved(machine: &Description, path: &Path) -> String {
    std::fs::write(path, machine.to_string()).unwrap();
    std::fs::read_to_string(path).unwrap()
}

fn nop(on: &str) -> Layer {
    Layer {
        on: on.to_owned(),
        name: format!("{on}.nop"),
        transient: false,
        kind: LayerKind::Nop(NopConfig {
            secsize: 4096,
            ..NopConfig::default()
        }),
    }
}

#[test]
fn refused_edits_change_nothing() {
    let mut machine = parse("[[drive]]\nname = \"ada0\"\nprofile = \"wd20ears\"\n").unwrap();
    let before = machine.to_string();
    let kind = |text: &str, machine: &mut Description| {
        let drive = NewDrive::parse(text).unwrap();
        machine.add_drive(&drive).unwrap_err().kind()
    };
    assert_eq!(kind("ada0=wd20ears", &mut machine), ErrorKind::Exists);
    assert_eq!(kind("ada1=wd99", &mut machine), ErrorKind::NotFound);
    assert_eq!(kind("1=wd20ears", &mut machine), ErrorKind::InvalidInput);
    assert_eq!(
        kind("ada1=wd20ears,size=9", &mut machine),
        ErrorKind::InvalidInput
    );
    let nobody = machine.set_pulled("ada7", true).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::NotFound);
    assert_eq!(machine.to_string(), before);
}

#[test]
fn sizes_are_as_people_write_them() {
    let cases = [
        ("1048576", 1 << 20),
        ("1M", 1 << 20),
        ("1.5GiB", 3 << 29),
        ("3TB", 3_000_000_000_000),
        ("2.5kb", 2500),
        ("16t", 16 << 40),
    ];
    for (text, want) in cases {
        let got = parse_size(text);
        if want >= 1 << 20 {
            assert_eq!(got.unwrap(), want, "{text}");
        } else {
            assert!(got.is_err(), "{text}");
        }
    }
    for text in [
        "",
        "M",
        "-5M",
        "1..5M",
        "5PB",
        "1e9",
        "99999999999999999999",
        "1.0000001M",
    ] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn prop_no_text_is_too_strange(text in "\\PC{0,60}", line in "[a-z_]{1,8} = \\PC{0,20}") {
        let _ = parse(&text);
        let _ = parse(&format!("[[drive]]\n{line}\n[[layer]]\n{line}\n"));
        let _ = parse_size(&text);
        let _ = NewDrive::parse(&text);
    }
}
