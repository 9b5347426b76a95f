//! `camcontrol` and `diskinfo`: what drives say about themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admin::getopt::{OptSpec, Parsed};
use base::{Context, Error, ErrorKind, Result};
use drive::IdentifyData;
use drive::identify::{
    DiskInfo, DriveInfo, camcontrol_devlist, camcontrol_identify, diskinfo as diskinfo_text,
    diskinfo_line, speed,
};
use geom::Provider;
use geom::disk::OpenMode;
use geom::topology::Topology;
use machine::World;
use serde_json::{Value, json};

use crate::command::{Command, Entry, Table, verb};
use crate::failure::{Fail, Outcome};

pub(crate) const CAMCONTROL: Command<Entry> = Command::words(
    "camcontrol",
    "what drives say of themselves",
    "\
usage: camcontrol devlist [-j]
       camcontrol identify [-jv] device

What the drives of the machine, or the disks of this host, say about themselves.

  devlist   one line for each
  identify  the answer to IDENTIFY DEVICE; of a SATA disk of this host as well, where Linux has kept it
  -v        the 256 words, too
  -j        print JSON
",
    camcontrol,
)
.tool()
.misused_is_1();

const VERBS: Table<fn(&Parsed) -> Result<()>> = Table {
    program: "camcontrol",
    commands: &[verb("devlist", devlist), verb("identify", identify)],
};

pub(crate) const DISKINFO: Command<Entry> = Command::parsed(
    "diskinfo",
    "sizes and sectors of providers",
    "\
usage: diskinfo [-cjltv] disk ...

What GEOM knows of a provider of the machine, or of a device or file of this host: name, sector size,
size in bytes, size in sectors, physical sector (stripe) and where the first one begins.

  -v  a line for each
  -l  what Linux says of its sectors, or would, and whether it is known to lie
  -c  measure the overhead of a command
  -t  measure seeks and transfer rates
  -j  print JSON
",
    ("cjltvh", 0),
    diskinfo,
)
.tool()
.misused_is_1();

fn camcontrol(args: &[String]) -> Outcome {
    let (word, rest) = args
        .split_first()
        .ok_or_else(|| Fail::Usage(String::new()))?;
    let options = OptSpec {
        short: "jvh",
        long: &[],
    };
    let parsed = admin::getopt::parse(&options, rest).map_err(|e| Fail::Usage(e.to_string()))?;
    if parsed.has('h') || matches!(word.as_str(), "-h" | "--help" | "help") {
        return Err(Fail::Help);
    }
    let unknown = || Fail::Usage(format!("{word}: no such command here"));
    let command = VERBS.find(word).ok_or_else(unknown)?;
    Ok((command.run)(&parsed)?)
}

/// A disk, and its IDENTIFY data if it can be queried.
struct Device {
    name: String,
    identify: Option<IdentifyData>,
    /// The model that Linux reports, for a disk that cannot be queried.
    model: Option<String>,
}

/// The names of the drives of a machine, or of the disks of this host.
pub(crate) fn disk_names(world: &World) -> Result<Vec<String>> {
    let devices = devices(world)?.into_iter();
    Ok(devices.map(|device| device.name).collect())
}

fn devices(world: &World) -> Result<Vec<Device>> {
    if world.is_machine() {
        let of = |drive: Arc<drive::Emulated>| {
            let says = drive.identify();
            Device {
                name: drive.name().to_owned(),
                model: Some(says.model()),
                identify: Some(says).filter(|says| !says.is_hidden()),
            }
        };
        return Ok(world.drives().into_iter().map(of).collect());
    }
    let folder = Path::new("/sys/block");
    let entries = std::fs::read_dir(folder)
        .map_err(Error::from)
        .within(|| folder.display())?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).join("device").exists())
        .collect();
    names.sort();
    let of = |name: String| Device {
        identify: host_identify(&name).ok(),
        model: std::fs::read_to_string(folder.join(&name).join("device/model"))
            .ok()
            .map(|text| text.trim().to_owned()),
        name,
    };
    Ok(names.into_iter().map(of).collect())
}

/// A SATA disk's IDENTIFY data, as cached by Linux.
fn host_identify(name: &str) -> Result<IdentifyData> {
    let path = PathBuf::from(format!("/sys/block/{name}/device/vpd_pg89"));
    let page = std::fs::read(&path).map_err(|_| {
        let text = format!("{name}: no IDENTIFY data: not a SATA disk that Linux knows");
        Error::not_found(text)
    })?;
    IdentifyData::from_vpd(&page).within(|| path.display())
}

fn devlist(parsed: &Parsed) -> Result<()> {
    let world = crate::world::current()?;
    let devices = devices(&world)?;
    if parsed.has('j') {
        let entries: Vec<Value> = devices.iter().map(device_json).collect();
        println!("{:#}", json!({ "devices": entries }));
        return Ok(());
    }
    for (device, unit) in devices.iter().zip(0u32..) {
        let name = &device.name;
        match (&device.identify, &device.model) {
            (Some(data), _) => println!("{}", camcontrol_devlist(data, name, unit, unit)),
            (None, model) => {
                let inquiry = format!("<{}>", model.as_deref().unwrap_or("?"));
                println!("{inquiry:<33}  at scbus{unit} target 0 lun 0 (pass{unit},{name})");
            }
        }
    }
    Ok(())
}

fn device_json(device: &Device) -> Value {
    let data = device.identify.as_ref();
    json!({
        "name": device.name,
        "model": data.map(IdentifyData::model).or_else(|| device.model.clone()),
        "firmware": data.map(IdentifyData::firmware),
        "serial": data.map(IdentifyData::serial),
    })
}

fn identify(parsed: &Parsed) -> Result<()> {
    let [name] = &parsed.operands[..] else {
        return Err(Error::invalid("identify: one device is needed"));
    };
    let world = crate::world::current()?;
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let devices = devices(&world)?;
    let place = devices.iter().position(|device| device.name == name);
    let Some(unit) = place else {
        let text = format!("{name}: no such drive");
        return Err(Error::new(ErrorKind::NotFound, text));
    };
    let data = match &devices[unit].identify {
        Some(data) => data.clone(),
        None if world.is_machine() => {
            let text = format!(
                "{name}: its USB bridge passes no ATA command on: IDENTIFY DEVICE has no answer"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        None => host_identify(name)?,
    };
    if parsed.has('j') {
        println!("{:#}", identify_json(name, &data));
        return Ok(());
    }
    print!(
        "{}",
        camcontrol_identify(&data, u32::try_from(unit).unwrap_or(0))
    );
    if parsed.has('v') {
        println!("\nIDENTIFY DEVICE, 256 words:");
        for row in (0..256).step_by(8) {
            let words: Vec<String> = (row..row + 8)
                .map(|n| format!("{:04x}", data.word(n)))
                .collect();
            println!("{row:3}  {}", words.join(" "));
        }
    }
    Ok(())
}

fn identify_json(name: &str, data: &IdentifyData) -> Value {
    let (has_cache, cache_is_on) = data.write_cache();
    let words: Vec<u16> = (0..256).map(|n| data.word(n)).collect();
    json!({
        "device": name,
        "protocol": if data.is_sata() { "SATA" } else { "NVMe" },
        "model": data.model(),
        "firmware": data.firmware(),
        "serial": data.serial(),
        "wwn": data.wwn().map(|wwn| format!("{wwn:016x}")),
        "sectors": data.sectors(),
        "logical_sector_bytes": data.logical_sector_bytes(),
        "physical_sector_bytes": data.physical_sector_bytes(),
        "alignment_offset_bytes": data.alignment_offset_bytes(),
        "rotation_rpm": data.rotation_rpm(),
        "queue_depth": data.queue_depth(),
        "write_cache": { "supported": has_cache, "enabled": cache_is_on },
        "trim": data.has_trim(),
        "words": words,
    })
}

fn diskinfo(parsed: &Parsed) -> Outcome {
    if parsed.has('h') {
        return Err(Fail::Help);
    }
    if parsed.operands.is_empty() {
        return Err(Fail::Usage(String::new()));
    }
    let mut outcome = Ok(());
    let mut entries = Vec::new();
    for name in &parsed.operands {
        match show(name, parsed) {
            Ok(entry) => entries.push(entry),
            Err(error) => outcome = Err(Fail::from(error).say("diskinfo: ")),
        }
    }
    if parsed.has('j') {
        println!("{:#}", json!({ "disks": entries }));
    }
    outcome
}

/// Prints a provider, unless JSON is wanted; returns the JSON for it.
fn show(name: &str, parsed: &Parsed) -> Result<Value> {
    let world = crate::world::current()?;
    if parsed.has('l') {
        let topology = topology(&world, name)?;
        if !parsed.has('j') {
            println!("{}", topology_text(name, &topology));
        }
        return Ok(topology_json(name, &topology));
    }
    let is_timed = parsed.has('c') || parsed.has('t');
    let provider = match is_timed {
        true => crate::phybs::open(&world, name, false, 1)?,
        false => world.open(name, OpenMode::Inspect)?,
    };
    let info = info(&world, name, &*provider)?;
    let is_json = parsed.has('j');
    if !is_json && (parsed.has('v') || is_timed) {
        println!("{}", diskinfo_text(&info));
    } else if !is_json {
        println!("{}", diskinfo_line(&info));
    }
    let mut entry = info_json(&info);
    if parsed.has('c') {
        let overhead = speed::command_overhead(&*provider)?;
        entry["command_overhead"] = json!({
            "megabytes_10_s": overhead.megabytes_s, "sectors_20480_s": overhead.sectors_s,
        });
        if !is_json {
            println!("{}", overhead.text());
        }
    }
    if parsed.has('t') {
        let speed = speed::speed(&*provider)?;
        let list = |timed: &[speed::Timed], unit: &str| -> Vec<Value> {
            let one =
                |t: &speed::Timed| json!({ "what": t.what, unit: t.count, "seconds": t.seconds });
            timed.iter().map(one).collect()
        };
        entry["seeks"] = json!(list(&speed.seeks, "reads"));
        entry["transfers"] = json!(list(&speed.transfers, "kbytes"));
        if !is_json {
            println!("{}", speed.text());
        }
    }
    Ok(entry)
}

/// The topology that Linux reports, or would report for a machine's drive.
pub(crate) fn topology(world: &World, name: &str) -> Result<Topology> {
    if !world.is_machine() {
        return Topology::of(Path::new(name));
    }
    let name = world.canonical(name);
    let drive = world
        .drives()
        .into_iter()
        .find(|drive| drive.name() == name);
    let drive = drive.ok_or_else(|| Error::not_found(format!("{name}: no such drive")))?;
    Ok(drive.linux_topology())
}

fn topology_text(name: &str, topology: &Topology) -> String {
    let mut out = format!("{name}\n");
    let mut line = |value: &str, what: &str| {
        out += &format!("\t{value:<12}\t# {what}\n");
    };
    line(&topology.mediasize.to_string(), "size in bytes");
    line(
        &topology.logical_block_size.to_string(),
        "logical_block_size",
    );
    line(
        &topology.physical_block_size.to_string(),
        "physical_block_size",
    );
    line(&topology.minimum_io_size.to_string(), "minimum_io_size");
    line(&topology.optimal_io_size.to_string(), "optimal_io_size");
    line(&topology.alignment_offset.to_string(), "alignment_offset");
    let rotational = topology.is_rotational.map(|is| u8::from(is).to_string());
    line(rotational.as_deref().unwrap_or("?"), "rotational");
    line(topology.model.as_deref().unwrap_or("?"), "model");
    match topology.known_lie() {
        Some((size, list)) => line(&size.to_string(), &format!("in truth, says {list}'s list")),
        None => line("-", "not known to lie"),
    }
    out
}

fn topology_json(name: &str, topology: &Topology) -> Value {
    let lie = topology.known_lie();
    json!({
        "name": name,
        "mediasize": topology.mediasize,
        "logical_block_size": topology.logical_block_size,
        "physical_block_size": topology.physical_block_size,
        "minimum_io_size": topology.minimum_io_size,
        "optimal_io_size": topology.optimal_io_size,
        "alignment_offset": topology.alignment_offset,
        "rotational": topology.is_rotational,
        "model": topology.model,
        "known_lie": lie.map(|(size, list)| json!({ "physical_block_size": size, "list": list })),
    })
}

fn info(world: &World, name: &str, provider: &dyn Provider) -> Result<DiskInfo> {
    let drive = match world.is_machine() {
        true => drive_below(world, &world.canonical(name))?,
        false => host_drive(Path::new(name)),
    };
    let has_stripe = provider.stripesize() != provider.sectorsize();
    Ok(DiskInfo {
        name: name.to_owned(),
        mediasize: provider.mediasize(),
        sectorsize: provider.sectorsize(),
        stripesize: if has_stripe { provider.stripesize() } else { 0 },
        stripeoffset: provider.stripeoffset(),
        drive,
    })
}

/// The drive below a provider of the machine.
fn drive_below(world: &World, name: &str) -> Result<Option<DriveInfo>> {
    let providers = world.providers()?;
    let mut at = name.to_owned();
    for _ in 0..=providers.len() {
        if let Some(drive) = world.drives().iter().find(|drive| drive.name() == at) {
            return Ok(Some(DriveInfo::of(&drive.identify())));
        }
        let below = providers.iter().find(|info| info.name == at);
        match below.and_then(|info| info.below.clone()) {
            Some(below) => at = below,
            None => break,
        }
    }
    Ok(None)
}

/// What Linux reports about the disk behind a path; `None` for a file.
fn host_drive(path: &Path) -> Option<DriveInfo> {
    let topology = Topology::of(path).ok()?;
    topology.is_rotational?;
    let name = path.file_name()?.to_str()?;
    if let Ok(data) = host_identify(name) {
        return Some(DriveInfo::of(&data));
    }
    let sysfs = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/block/{name}/{file}")).ok()?;
        Some(text.trim().to_owned())
    };
    Some(DriveInfo {
        descr: topology.model.unwrap_or_else(|| "?".to_owned()),
        ident: sysfs("device/serial")
            .or_else(|| sysfs("serial"))
            .unwrap_or_default(),
        can_delete: sysfs("queue/discard_granularity").is_some_and(|text| text != "0"),
        rotation_rpm: if topology.is_rotational == Some(false) {
            Some(1)
        } else {
            None
        },
    })
}

fn info_json(info: &DiskInfo) -> Value {
    let drive = info.drive.as_ref().map(|drive| {
        json!({
            "descr": drive.descr,
            "ident": drive.ident,
            "can_delete": drive.can_delete,
            "rotation_rpm": drive.rotation_rpm,
        })
    });
    json!({
        "name": info.name,
        "sectorsize": info.sectorsize,
        "mediasize": info.mediasize,
        "sectors": info.mediasize / u64::from(info.sectorsize.max(1)),
        "stripesize": info.stripesize,
        "stripeoffset": info.stripeoffset,
        "drive": drive,
    })
}
