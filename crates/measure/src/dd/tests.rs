use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::ErrorKind;
use faulty::{Damage, FaultInjector};
use geom::Provider;
use proptest::prelude::*;
use ram::Memory;

use super::ends::{Device, Null, Random, Zeros};
use super::host::HostFile;
use super::*;

/// Collects the messages.
#[derive(Default)]
struct Heard(Vec<String>);

impl Observer for Heard {
    fn complain(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn passed_over(&mut self, _counts: &Counts) {}
    fn block_done(&mut self, _counts: &Counts) {}
}

/// The outcome of a `dd`: how it ended, the records it printed, and the contents of the output.
#[derive(PartialEq, Eq)]
struct Outcome {
    succeeded: bool,
    records: String,
    output: Vec<u8>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.output);
        write!(
            f,
            "{} {:?} {} bytes {text:?}",
            self.succeeded,
            self.records,
            self.output.len()
        )
    }
}

fn operands(args: &[String], flavour: Flavour) -> Operands {
    Operands::parse(args, flavour).unwrap()
}

fn ours(args: &[String], output: &Path) -> Outcome {
    let operands = operands(args, Flavour::Gnu);
    let input = Path::new(operands.input.as_deref().unwrap());
    let mut input = HostFile::input(input, operands.input_flags).unwrap();
    let mut to = HostFile::output(output, &operands).unwrap();
    let mut counts = Counts::default();
    let mut heard = Heard::default();
    let result = copy(&operands, &mut input, &mut to, &mut counts, &mut heard);
    Outcome {
        succeeded: result.is_ok(),
        records: counts.summary(Flavour::Gnu, Status::NoTransfer, 0),
        output: fs::read(output).unwrap(),
    }
}

fn theirs(args: &[String], output: &Path) -> Outcome {
    let done = Command::new("dd")
        .env("LC_ALL", "C")
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stderr).unwrap();
    let records = text.lines().filter(|line| line.contains(" records "));
    Outcome {
        succeeded: done.status.success(),
        records: records.map(|line| format!("{line}\n")).collect(),
        output: fs::read(output).unwrap(),
    }
}

/// Whether GNU's `dd` is installed, to compare with.
fn has_gnu_dd() -> bool {
    let version = Command::new("dd").arg("--version").output();
    let is_gnu = version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("coreutils"));
    if !is_gnu {
        eprintln!("SKIPPED: no GNU dd here: install coreutils");
    }
    is_gnu
}

fn some_args() -> impl Strategy<Value = Vec<String>> {
    let blocks = prop_oneof![
        (1u32..700).prop_map(|bs| vec![format!("bs={bs}")]),
        (1u32..700, 1u32..700).prop_map(|(i, o)| vec![format!("ibs={i}"), format!("obs={o}")]),
        (1u32..700).prop_map(|obs| vec![format!("obs={obs}")]),
        Just(vec!["bs=2b".to_owned()]),
        Just(vec!["ibs=1kB".to_owned()]),
    ];
    let amount = |name: &'static str, most: u32| {
        prop_oneof![
            2 => Just(None),
            2 => (0..most).prop_map(move |n| Some(format!("{name}={n}"))),
            1 => (0..most * 100).prop_map(move |n| Some(format!("{name}={n}B"))),
        ]
    };
    let words = prop::sample::subsequence(vec!["notrunc", "sync", "sparse", "swab", "lcase"], 0..5);
    let flags = prop::sample::select(vec!["", "iflag=fullblock", "oflag=append", "oflag=dsync"]);
    let amounts = (amount("count", 12), amount("skip", 9), amount("seek", 6));
    (blocks, amounts, words, flags).prop_map(|(mut args, (count, skip, seek), mut words, flags)| {
        // GNU's truncates at 0, not at `seek`, when that is less than a block: bytes before it are lost.
        if seek.as_ref().is_some_and(|seek| seek.ends_with('B')) && !words.contains(&"notrunc") {
            words.push("notrunc");
        }
        args.extend([count, skip, seek].into_iter().flatten());
        if !words.is_empty() {
            args.push(format!("conv={}", words.join(",")));
        }
        if !flags.is_empty() {
            args.push(flags.to_owned());
        }
        args
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn prop_the_hosts_dd_does_the_same(
        args in some_args(),
        input in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => b'A'..b'z'], 0..4000),
        before in prop::option::of(prop::collection::vec(any::<u8>(), 0..3000)),
    ) {
        if !has_gnu_dd() {
            return Ok(());
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("in"), &input).unwrap();
        let mut outcomes = Vec::new();
        for (name, run) in [("a", ours as fn(&[String], &Path) -> Outcome), ("b", theirs)] {
            if let Some(before) = &before {
                fs::write(at(name), before).unwrap();
            }
            let mut args = args.clone();
            args.push(format!("if={}", at("in").display()));
            args.push(format!("of={}", at(name).display()));
            outcomes.push(run(&args, &at(name)));
        }
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }

    #[test]
    fn prop_sizes_are_printed_as_by_the_hosts_dd(bytes in 0u64..30_000_000) {
        if !has_gnu_dd() {
            return Ok(());
        }
        let done = Command::new("dd")
            .env("LC_ALL", "C")
            .args(["if=/dev/zero", "of=/dev/null", "bs=1M", &format!("count={bytes}B")])
            .output()
            .unwrap();
        let text = String::from_utf8(done.stderr).unwrap();
        let size = |text: &str| text.lines().last().unwrap().split(" copied").next().unwrap().to_owned();
        let counts = Counts { bytes, ..Counts::default() };
        prop_assert_eq!(size(&counts.summary(Flavour::Gnu, Status::All, 1)), size(&text));
    }
}

/// Runs `args` from an input to an output; returns the records, the messages and the error.
fn run(
    args: &str,
    flavour: Flavour,
    input: &mut dyn Input,
    output: &mut dyn Output,
) -> (Counts, Vec<String>, Option<String>) {
    let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
    let mut counts = Counts::default();
    let mut heard = Heard::default();
    let result = copy(
        &operands(&args, flavour),
        input,
        output,
        &mut counts,
        &mut heard,
    );
    (counts, heard.0, result.err())
}

fn disk(mediasize: u64) -> Arc<dyn Provider> {
    Arc::new(Memory::with_sectors("ada0", mediasize, 512, 512))
}

#[test]
fn a_device_that_ends_is_said_so_in_free_bsds_words() {
    let mut device = Device::new(disk(2560), Flags::default());
    let (counts, heard, error) = run(
        "of=/dev/ada0 bs=1k",
        Flavour::FreeBsd,
        &mut Zeros,
        &mut device,
    );
    assert_eq!(heard, ["/dev/ada0: short write on character device"]);
    assert_eq!(error.as_deref(), Some("/dev/ada0: end of device"));
    assert_eq!(
        counts.summary(Flavour::FreeBsd, Status::NoTransfer, 0),
        "3+0 records in\n2+1 records out\n"
    );
    assert_eq!(counts.bytes, 2560);
}

#[test]
fn a_block_that_is_no_sector_is_refused() {
    let provider = disk(1 << 20);
    let mut device = Device::new(Arc::clone(&provider), Flags::default());
    let (_, _, error) = run("of=ada0 bs=100", Flavour::FreeBsd, &mut Zeros, &mut device);
    assert_eq!(error.as_deref(), Some("ada0: Invalid argument"));
    let mut device = Device::new(provider, Flags::default());
    let (_, _, error) = run("if=ada0 bs=100", Flavour::Gnu, &mut device, &mut Null);
    assert_eq!(
        error.as_deref(),
        Some("error reading 'ada0': Invalid argument")
    );
}

#[test]
fn unreadable_blocks_are_passed_over_and_padded() {
    let provider = disk(4096);
    provider.write(0, &[7; 4096]).unwrap();
    let fault = Arc::new(FaultInjector::new(provider));
    fault.damage(1024..1536, Damage::ReadError);
    let rescue = |args: &str, flavour| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rescued");
        let name = format!("of={}", path.display());
        let operands = operands(&[name], flavour);
        let mut output = HostFile::output(&path, &operands).unwrap();
        let mut device = Device::new(fault.clone(), Flags::default());
        let outcome = run(args, flavour, &mut device, &mut output);
        (outcome, fs::read(&path).unwrap())
    };
    let ((_, _, error), _) = rescue("if=ada0", Flavour::FreeBsd);
    assert_eq!(error.as_deref(), Some("ada0: Input/output error"));

    let args = "if=ada0 bs=512 conv=noerror,sync";
    let mut expect = vec![7; 4096];
    expect[1024..1536].fill(0);
    for (flavour, records) in [
        (Flavour::FreeBsd, "8+0 records in\n8+0 records out\n"),
        (Flavour::Gnu, "7+1 records in\n8+0 records out\n"),
    ] {
        let ((counts, heard, error), rescued) = rescue(args, flavour);
        assert_eq!(error, None);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert_eq!(counts.summary(flavour, Status::NoTransfer, 0), records);
        assert_eq!(rescued, expect);
    }
    let ((counts, _, _), rescued) = rescue("if=ada0 bs=512 conv=noerror", Flavour::Gnu);
    assert_eq!(rescued.len(), 3584);
    assert_eq!(counts.in_full, 7);
}

#[test]
fn sparse_copies_leave_what_is_there() {
    let provider = disk(4096);
    provider.write(0, &[7; 4096]).unwrap();
    let mut device = Device::new(Arc::clone(&provider), Flags::default());
    let args = "of=ada0 bs=512 count=2 seek=1 conv=sparse";
    let (counts, _, error) = run(args, Flavour::Gnu, &mut Zeros, &mut device);
    assert_eq!((counts.out_full, error), (2, None));
    let mut back = [0; 4096];
    provider.read(0, &mut back).unwrap();
    assert_eq!(back, [7; 4096]);
}

#[test]
fn skipping_past_the_end_copies_nothing() {
    let mut device = Device::new(disk(1024), Flags::default());
    let (counts, heard, error) = run("if=ada0 skip=3", Flavour::Gnu, &mut device, &mut Null);
    assert_eq!(heard, ["'ada0': cannot skip to specified offset"]);
    assert_eq!((counts.in_full, error), (0, None));
}

#[test]
fn odd_swabs_are_counted_as_free_bsd_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in");
    fs::write(&path, b"abcde").unwrap();
    let mut input = HostFile::input(&path, Flags::default()).unwrap();
    let (counts, _, _) = run("conv=swab", Flavour::FreeBsd, &mut input, &mut Null);
    let text = counts.summary(Flavour::FreeBsd, Status::NoTransfer, 0);
    assert!(text.ends_with("1 odd length swab block\n"), "{text}");
}

#[test]
fn a_file_that_exists_or_not_is_as_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let open = |conv: &str| {
        let conv = format!("conv={conv}");
        HostFile::output(&path, &operands(&[conv], Flavour::Gnu)).map(drop)
    };
    assert_eq!(open("nocreat").unwrap_err().kind(), ErrorKind::NotFound);
    open("excl").unwrap();
    assert_eq!(open("excl").unwrap_err().kind(), ErrorKind::Exists);
    fs::write(&path, b"kept").unwrap();
    open("notrunc").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"kept");
}

#[test]
fn sim_random_bytes_follow_from_the_seed() {
    let draw = |seed| {
        rt::simulate(seed, || {
            let mut block = [0; 100];
            Random::new().read(&mut block).unwrap();
            block
        })
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
