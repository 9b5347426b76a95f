//! zdb on pools with malicious contents but correct checksums: every view ends soon, with or without an
//! error.
//!
//! The ordinary run takes a sample. `HOSTILE_IMAGES=1000` tries that many, from `SEED` on.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use geom::Provider;
use torture::hostile::seeds::{self, Kind};
use torture::hostile::{Edit, FIRST_VDEV_SEED, bombs};
use torture::{Dice, hostile, seed};

/// Number of images in the ordinary run.
const SAMPLE: u64 = 6;
/// Seeds that once failed.
const FOUND: [u64; 2] = [5059, 5113];
/// Views of a pool.
const VIEWS: [&str; 8] = [
    "-ddddddd", "-bcc", "-h", "-mmmm", "-MM", "-CC", "-u", "-iiiii",
];
/// Time limit of a view, on a busy machine.
const AT_MOST: Duration = Duration::from_secs(60);
/// Limit of a view's address space, in KiB: far more than it needs, less than a malicious size would
/// allocate.
const ADDRESSES_KIB: u64 = 4 << 20;

/// Runs zdb; returns what is wrong with how it ended, or the bytes it wrote.
fn ends(folder: &Path, state: &Path, arguments: &[&str]) -> Result<u64, String> {
    let limited = format!("ulimit -v {ADDRESSES_KIB}; exec \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_ashift"), "zdb"])
        .args(arguments)
        .env("ASHIFT_STATE", state)
        .stdout(Stdio::piped())
        .stderr(Stdio::from(File::create(folder.join("stderr")).unwrap()))
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut bytes, mut chunk) = (0, vec![0; 1 << 16]);
        while let Ok(count @ 1..) = out.read(&mut chunk) {
            bytes += count as u64;
        }
        bytes
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > AT_MOST {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("hangs, after {} bytes", reader.join().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let bytes = reader.join().unwrap();
    let said = std::fs::read(folder.join("stderr")).unwrap();
    let said = String::from_utf8_lossy(&said);
    if status.signal().is_some() || said.contains("panicked") || status.code() == Some(101) {
        return Err(format!("{status}: {said}"));
    }
    Ok(bytes)
}

/// Turns a pool into a malicious one.
type Bomb = fn(&mut Edit<'_>);

/// Runs all views of the pool on these devices; returns how many bytes they write, and how long the longest
/// takes.
fn view(devices: &[Arc<dyn Provider>]) -> Result<(u64, Duration), String> {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    hostile::write(devices, folder.path());
    let place = folder.path().display().to_string();
    let disk = folder.path().join("disk0").display().to_string();
    let pools = VIEWS.map(|view| vec!["-e", "-p", &place, view, "tank"]);
    let labels = [vec!["-lll", &disk], vec!["-luuu", &disk]];
    let (mut bytes, mut longest) = (0, Duration::ZERO);
    for arguments in pools.iter().chain(&labels) {
        let begun = Instant::now();
        let ended = ends(folder.path(), state.path(), arguments);
        bytes += ended.map_err(|how| format!("zdb {arguments:?}: {how}"))?;
        longest = longest.max(begun.elapsed());
    }
    Ok((bytes, longest))
}

#[test]
fn every_view_of_a_pool_that_lies_ends() {
    let number = std::env::var("HOSTILE_IMAGES").ok();
    let count = number.and_then(|text| text.parse().ok()).unwrap_or(SAMPLE);
    let first = seed(1);
    let mut failed = Vec::new();
    let (mut bytes, mut longest) = (0, Duration::ZERO);
    let of_vdevs = FIRST_VDEV_SEED..FIRST_VDEV_SEED + count.div_ceil(2);
    let seeds = FOUND.into_iter().chain(first..first + count);
    for seed in seeds.chain(of_vdevs) {
        match view(&hostile::devices(
            &hostile::images(seed),
            &mut Dice::new(seed),
        )) {
            Ok((written, took)) => (bytes, longest) = (bytes + written, longest.max(took)),
            Err(how) => {
                eprintln!("HOSTILE_SEED={seed}: {how}");
                failed.push(seed);
            }
        }
    }
    eprintln!("{count} images, {bytes} bytes, {longest:?} for the longest view");
    assert!(failed.is_empty(), "{failed:?}");
    assert!(bytes > count * 1000, "zdb says nothing");
}

#[test]
fn every_view_of_a_bomb_ends() {
    let images = seeds::all();
    let bombs: [(&str, Bomb); 3] = [
        ("data", |edit| _ = bombs::sparse(edit, false)),
        ("holes", |edit| _ = bombs::sparse(edit, true)),
        ("dnodes", |edit| bombs::dnodes(edit)),
    ];
    for (name, bomb) in bombs {
        let mut edit = images[Kind::Files as usize].edit();
        bomb(&mut edit);
        let (bytes, longest) = view(&edit.finish()).unwrap_or_else(|how| panic!("{name}: {how}"));
        eprintln!("{name}: {bytes} bytes, {longest:?} for the longest view");
    }
}
