//! The work that is measured.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use base::{Context, Error, ErrorKind, Result};

use super::super::host_fs::silent;
use super::super::tree::{Numbers, make_tree};

const MIB: usize = 1 << 20;
/// The file that small blocks are read from and written to, in MiB.
const SMALL_BLOCKS_MIB: u64 = 64;
/// How long small blocks are read or written, in s.
const SMALL_BLOCKS_SECONDS: &str = "5";

/// A piece of work.
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Whether less is better.
    pub(super) is_time: bool,
    /// The ratio to btrfs that is to be reached.
    pub(super) goal: f64,
    /// Whether nothing may be in a cache when it begins.
    pub(super) is_cold: bool,
    /// Whether it ends when all that was written is on disk.
    pub(super) is_written_out: bool,
    pub(super) prepare: fn(&Loads, &Path) -> Result<()>,
    pub(super) run: fn(&Loads, &Path) -> Result<f64>,
}

pub(super) const LOADS: [Load; 7] = [
    Load {
        name: "stream write",
        unit: "MB/s",
        is_time: false,
        goal: 0.8,
        is_cold: false,
        is_written_out: false,
        prepare: nothing,
        run: |loads, place| loads.rate(|| loads.write_stream(place)),
    },
    Load {
        name: "stream read",
        unit: "MB/s",
        is_time: false,
        goal: 0.8,
        is_cold: true,
        is_written_out: false,
        prepare: Loads::write_stream_once,
        run: |loads, place| loads.rate(|| loads.read_stream(place)),
    },
    Load {
        name: "4K read, cached",
        unit: "IOPS",
        is_time: false,
        goal: 0.5,
        is_cold: false,
        is_written_out: false,
        prepare: Loads::write_blocks,
        run: |_, place| fio(place, "read", &["--rw=randread"]),
    },
    Load {
        name: "4K write, fsync",
        unit: "IOPS",
        is_time: false,
        goal: 0.7,
        is_cold: false,
        is_written_out: false,
        prepare: Loads::write_blocks,
        run: |_, place| fio(place, "write", &["--rw=randwrite", "--fsync=1"]),
    },
    Load {
        name: "untar",
        unit: "s",
        is_time: true,
        goal: 0.5,
        is_cold: false,
        is_written_out: true,
        prepare: nothing,
        run: |loads, place| seconds(|| loads.untar(place)),
    },
    Load {
        name: "find",
        unit: "s",
        is_time: true,
        goal: 0.5,
        is_cold: true,
        is_written_out: false,
        prepare: Loads::untar_once,
        run: |_, place| seconds(|| find(place)),
    },
    Load {
        name: "rm -r",
        unit: "s",
        is_time: true,
        goal: 0.5,
        is_cold: false,
        is_written_out: false,
        prepare: Loads::untar_once,
        run: |_, place| seconds(|| silent(Command::new("rm").arg("-r").arg(place.join("tree")))),
    },
];

/// What the work needs.
pub(super) struct Loads {
    /// A tree of small files.
    archive: PathBuf,
    size_bytes: u64,
    /// Bytes that do not compress; each MiB of a stream is a rotation of them.
    noise: Vec<u8>,
}

impl Loads {
    pub(super) fn prepare(folder: &Path, files: u64, size_bytes: u64) -> Result<Loads> {
        let archive = folder.join("tree.tar");
        make_tree(&folder.join("tree"), files)?;
        let mut tar = Command::new("tar");
        silent(
            tar.arg("-cf")
                .arg(&archive)
                .arg("-C")
                .arg(folder)
                .arg("tree"),
        )?;
        fs::remove_dir_all(folder.join("tree"))?;
        let mut numbers = Numbers(7);
        let noise = (0..2 * MIB / 4).flat_map(|_| (numbers.next() as u32).to_le_bytes());
        Ok(Loads {
            archive,
            size_bytes,
            noise: noise.collect(),
        })
    }

    /// MB/s of a stream.
    fn rate(&self, stream: impl FnOnce() -> Result<()>) -> Result<f64> {
        Ok(self.size_bytes as f64 / 1e6 / seconds(stream)?)
    }

    fn piece(&self, number: u64) -> &[u8] {
        let start = (number as usize).wrapping_mul(4093) % MIB;
        &self.noise[start..start + MIB]
    }

    fn write_stream(&self, place: &Path) -> Result<()> {
        let mut file = File::create(place.join("stream"))?;
        for number in 0..self.size_bytes / MIB as u64 {
            file.write_all(self.piece(number))?;
        }
        Ok(file.sync_all()?)
    }

    fn write_stream_once(&self, place: &Path) -> Result<()> {
        match place.join("stream").exists() {
            true => Ok(()),
            false => self.write_stream(place),
        }
    }

    fn read_stream(&self, place: &Path) -> Result<()> {
        let mut file = File::open(place.join("stream"))?;
        let mut piece = vec![0; MIB];
        for number in 0..self.size_bytes / MIB as u64 {
            file.read_exact(&mut piece)?;
            if piece != self.piece(number) {
                let text = format!("MiB {number} of the stream is not what was written");
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
        }
        Ok(())
    }

    fn write_blocks(&self, place: &Path) -> Result<()> {
        let mut file = File::create(place.join("blocks"))?;
        for number in 0..SMALL_BLOCKS_MIB {
            file.write_all(self.piece(number))?;
        }
        Ok(file.sync_all()?)
    }

    fn untar(&self, place: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        silent(tar.arg("-xf").arg(&self.archive).arg("-C").arg(place))
    }

    fn untar_once(&self, place: &Path) -> Result<()> {
        match place.join("tree").exists() {
            true => Ok(()),
            false => self.untar(place),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn nothing(_: &Loads, _: &Path) -> Result<()> {
    Ok(())
}

/// Names and attributes of all files.
fn find(place: &Path) -> Result<()> {
    silent(Command::new("find").arg(place.join("tree")).arg("-ls"))
}

pub(super) fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = rt::now_ns();
    work()?;
    Ok((rt::now_ns() - start) as f64 / 1e9)
}

/// Operations per second of fio on the file of small blocks.
fn fio(place: &Path, side: &str, args: &[&str]) -> Result<f64> {
    let output = Command::new("fio")
        .args([
            "--name=bench",
            "--ioengine=psync",
            "--bs=4k",
            "--time_based",
        ])
        .args(["--runtime", SMALL_BLOCKS_SECONDS, "--output-format=json"])
        .arg(format!("--filename={}", place.join("blocks").display()))
        .arg(format!("--size={SMALL_BLOCKS_MIB}m"))
        .args(args)
        .output()
        .map_err(Error::from)
        .within(|| "fio (Debian's package fio)".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map(|start| &text[start..]);
    let said = json.and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok());
    let iops = said.and_then(|said| said["jobs"][0][side]["iops"].as_f64());
    let iops = iops.filter(|iops| output.status.success() && *iops > 0.0);
    iops.ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Error::new(ErrorKind::Io, format!("fio: {}", complaint.trim()))
    })
}
