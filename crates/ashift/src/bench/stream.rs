//! `ashift bench stream`: one turn of ours, with the same steps as the peer.
//!
//! # What it is
//! Makes a pool on files (ashift 12), writes one object of 128 KiB records, a transaction for
//! each MiB, waits until it is synced; exports, imports, reads the object back and compares.

use phys::PropValue;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use base::{Error, ObjectId, Result};
use crypt::{KeyFormat, Suite, WrappingKey};
use dmu::{Content, NewObject};
use dsl::{Encrypted, NewDataset, NewRoot};
use geom::Provider;
use geom::disk::{OpenMode, open};
use phys::feature;
use phys::{CompressType, ObjectType, ObjsetType};
use spa::{CreateOptions, Host, ImportOptions, NewPool, Settings, Spa};
use vdev::import::discover;
use vdev::{NewDevice, TopSpec, VdevKind};

use super::{Words, number, usage_error};
use crate::failure::Outcome;

/// The payload repeats after this many bytes.
const PAYLOAD_BYTES: usize = 64 << 20;
/// Bytes written by one transaction, and requested by one read.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// recordsize
pub(super) const RECORD_BYTES: u64 = 128 << 10;

/// Time since a moment: wall-clock time, and CPU time of all threads of this process.
pub(super) struct Watch {
    wall_ns: u64,
    cpu_ns: u64,
}

/// `CLOCK_PROCESS_CPUTIME_ID`
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Watch {
    pub(super) fn start() -> Watch {
        Watch {
            cpu_ns: cpu_ns(),
            wall_ns: rt::now_ns(),
        }
    }

    /// Prints the speed in the peer's format, and the CPU time, which depends less on other load of the
    /// machine.
    pub(super) fn print(&self, what: &str, bytes: u64) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let wall = seconds(rt::now_ns() - self.wall_ns);
        println!("{what}_MBps {:.1}", bytes as f64 / 1e6 / wall);
        println!("{what}_cpu_seconds {:.3}", seconds(cpu_ns() - self.cpu_ns));
    }
}

/// The first 64 MiB of a file, repeated if it is shorter.
pub(super) fn payload(path: &str) -> Result<Vec<u8>> {
    let within = |e: std::io::Error| Error::from(e).within(path);
    let file = File::open(path).map_err(within)?;
    let mut bytes = Vec::with_capacity(PAYLOAD_BYTES);
    file.take(PAYLOAD_BYTES as u64)
        .read_to_end(&mut bytes)
        .map_err(within)?;
    if bytes.is_empty() {
        return Err(Error::invalid(format!("{path} is empty")));
    }
    while bytes.len() < PAYLOAD_BYTES {
        let more = bytes.len().min(PAYLOAD_BYTES - bytes.len());
        bytes.extend_from_within(..more);
    }
    Ok(bytes)
}

/// `ashift bench stream [--encryption SUITE] LAYOUT COMPRESSION MIB DATA FILE…`: the files are there.
pub(super) fn run(words: &mut Words) -> Outcome {
    let suite = words
        .take("encryption")
        .map(|name| suite(&name))
        .transpose()?;
    words.check_all_taken()?;
    let [layout, compression, mib, data, files @ ..] = &words.operands[..] else {
        return Err(usage_error());
    };
    let compression = match &**compression {
        "off" => CompressType::Off,
        "lz4" => CompressType::Lz4,
        "zstd" => CompressType::Zstd,
        other => return Err(Error::invalid(format!("compression '{other}'")).into()),
    };
    let total = number(mib)? << 20;
    let payload = payload(data)?;
    let tops = super::layout::specs(layout, files)?;
    let object = write(&tops, (compression, suite), total, &payload)?;
    Ok(read(files, object, total, &payload)?)
}

fn suite(name: &str) -> Result<Suite> {
    let mut all = Suite::ALL.into_iter();
    let found = all.find(|suite| suite.to_string() == name);
    found.ok_or_else(|| Error::invalid(format!("encryption '{name}'")))
}

fn key() -> Result<WrappingKey> {
    WrappingKey::new(KeyFormat::Raw, &[7; 32], 0, 0)
}

fn encryption(suite: Option<Suite>) -> Result<Encrypted> {
    let Some(suite) = suite else {
        return Ok(Encrypted::AsAbove);
    };
    Ok(Encrypted::Root(NewRoot {
        suite,
        format: KeyFormat::Raw,
        salt: 0,
        iterations: 0,
        key: key()?,
    }))
}

fn host() -> Host {
    Host {
        id: 0x00be_4c41,
        name: "bench".into(),
    }
}

fn provider(file: &String) -> Result<Arc<dyn Provider>> {
    open(Path::new(file), OpenMode::ReadWrite)
}

fn create(tops: &[TopSpec<String>]) -> Result<Spa> {
    let device = |file: &String| {
        provider(file).map(|provider| NewDevice {
            kind: VdevKind::File,
            path: file.clone(),
            provider,
        })
    };
    let tops = tops.iter().map(|top| top.try_map(device));
    Spa::create(CreateOptions {
        name: "bench".into(),
        aux: vdev::AuxSpec::default(),
        vdevs: tops.collect::<Result<_>>()?,
        new: NewPool {
            ashift: 12,
            features: feature::kept().collect(),
            ..NewPool::default()
        },
        init_root: Box::new(|_, _| Ok(())),
        command: "zpool create bench".into(),
        host: host(),
        settings: Settings::default(),
    })
}

fn write(
    tops: &[TopSpec<String>],
    (compression, suite): (CompressType, Option<Suite>),
    total: u64,
    payload: &[u8],
) -> Result<ObjectId> {
    let spa = create(tops)?;
    let new = NewDataset {
        name: "bench/data".into(),
        type_: ObjsetType::Other,
        flags: 0,
        props: vec![(
            "compression".into(),
            PropValue::Number(u64::from(compression.raw())),
        )],
        init: Box::new(|_, _| Ok(())),
    };
    spa.parts()
        .dsl()
        .create_encrypted(new, encryption(suite)?)?;
    let dataset = spa.parts().dsl().dataset("bench/data")?;
    let objset = dataset.objset()?;
    // Of a type whose blocks are encrypted.
    let type_ = match suite {
        Some(_) => ObjectType::PLAIN_FILE_CONTENTS,
        None => ObjectType::UINT64_OTHER,
    };
    let new = NewObject::new(type_).blksz(RECORD_BYTES);
    let tx = spa.parts().groups().hold_open(0)?;
    let dnode = objset.object_alloc(&tx, &new)?;
    drop(tx);
    spa.sync()?;

    let watch = Watch::start();
    for offset in (0..total).step_by(CHUNK_BYTES as usize) {
        let tx = spa.parts().groups().hold_open(CHUNK_BYTES)?;
        let at = (offset % payload.len() as u64) as usize;
        dnode.write(&tx, offset, &payload[at..at + CHUNK_BYTES as usize])?;
    }
    spa.sync()?;
    watch.print("write", total);
    let id = dnode.id();
    drop((dnode, objset, dataset));
    spa.export()?;
    Ok(id)
}

fn read(files: &[String], object: ObjectId, total: u64, payload: &[u8]) -> Result<()> {
    let devices: Vec<_> = files.iter().map(provider).collect::<Result<_>>()?;
    let found = discover(&devices).pools.into_iter().next();
    let spa = Spa::import(ImportOptions {
        found: found.ok_or_else(|| Error::not_found("no pool after the export"))?,
        new_name: None,
        readonly: false,
        max_txg: None,
        force: false,
        gives_up_logs: false,
        tolerates_missing: false,
        rewinds: false,
        host: host(),
        settings: Settings::default(),
    })?;
    let dsl = spa.parts().dsl();
    let dataset = dsl.dataset("bench/data")?;
    if dsl.encryption(&dataset.dir())?.is_some() {
        dsl.load_key("bench/data", key()?, false)?;
    }
    let objset = dataset.objset()?;
    let dnode = objset.hold(object)?;

    let watch = Watch::start();
    for offset in (0..total).step_by(CHUNK_BYTES as usize) {
        let mut at = (offset % payload.len() as u64) as usize;
        let mut is_same = true;
        dnode.visit(offset, CHUNK_BYTES, &mut |content| {
            is_same = is_same
                && matches!(&content, Content::Data(bytes) if bytes[..] == payload[at..at + bytes.len()]);
            at += RECORD_BYTES as usize;
        })?;
        if !is_same {
            return Err(Error::corrupt(format!(
                "what was read at {offset} was not written"
            )));
        }
    }
    watch.print("read", total);
    drop((dnode, objset, dataset));
    spa.export()
}
