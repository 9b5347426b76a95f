//! zdb and pools that lie with checksums that are right: whatever they say, each view ends soon, with an error
//! or without.
//!
//! The ordinary run takes a sample. `HOSTILE_IMAGES=1000` tries so many, from `SEED` on.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use geom::Provider;
use torture::{Dice, hostile, seed};

/// Images in the ordinary run.
const SAMPLE: u64 = 6;
/// Views of a pool.
const VIEWS: [&str; 8] = [
    "-ddddddd", "-bcc", "-h", "-mmmm", "-MM", "-CC", "-u", "-iiiii",
];
/// A view may take so long, on a machine with other things to do.
const AT_MOST: Duration = Duration::from_secs(60);
/// Addresses that a view may have, in KiB: more than it needs by far, less than what a lie asks for.
const ADDRESSES_KIB: u64 = 4 << 20;

fn write(devices: &[Arc<dyn Provider>], folder: &Path) {
    for (n, device) in devices.iter().enumerate() {
        let file = File::create(folder.join(format!("disk{n}"))).unwrap();
        file.set_len(device.mediasize()).unwrap();
        let mut chunk = vec![0; 1 << 20];
        for offset in (0..device.mediasize()).step_by(chunk.len()) {
            device.read(offset, &mut chunk).unwrap();
            if chunk.iter().any(|byte| *byte != 0) {
                file.write_all_at(&chunk, offset).unwrap();
            }
        }
    }
}

/// Runs zdb; answers what is wrong with how it ended, and how many bytes it wrote.
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

#[test]
fn every_view_of_a_pool_that_lies_ends() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = seed(1);
    let count = number("HOSTILE_IMAGES").unwrap_or(SAMPLE);
    let state = tempfile::tempdir().unwrap();
    let mut failed = Vec::new();
    let (mut bytes, mut longest) = (0, Duration::ZERO);
    for seed in first..first + count {
        let folder = tempfile::tempdir().unwrap();
        write(&hostile::devices(&mut Dice::new(seed)), folder.path());
        let place = folder.path().display().to_string();
        let disk = folder.path().join("disk0").display().to_string();
        let pools = VIEWS.map(|view| vec!["-e", "-p", &place, view, "tank"]);
        let labels = [vec!["-lll", &disk], vec!["-luuu", &disk]];
        for arguments in pools.iter().chain(&labels) {
            let begun = Instant::now();
            match ends(folder.path(), state.path(), arguments) {
                Ok(written) => bytes += written,
                Err(how) => {
                    eprintln!("HOSTILE_SEED={seed}: zdb {arguments:?}: {how}");
                    failed.push(seed);
                }
            }
            longest = longest.max(begun.elapsed());
        }
    }
    eprintln!("{count} images, {bytes} bytes, {longest:?} for the longest view");
    assert!(failed.is_empty(), "{failed:?}");
    assert!(bytes > count * 1000, "zdb says nothing");
}
