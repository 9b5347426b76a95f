//! `zpool status -c` and `zpool iostat -c`: scripts that say more of each device.
//!
//! # What it is
//! Scripts are looked for in the folders of `ZPOOL_SCRIPTS_PATH`, or else `~/.zpool.d` and `/etc/zfs/zpool.d`. Each is
//! run for each device, with what it is to look at in its environment, several at a time.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_iter.c (`all_pools_for_each_vdev_run`, `zpool_get_cmd_search_path`), cmd/zpool/zpool_main.c
//! (`zpool_do_status`, `zpool_do_iostat`, `print_zpool_script_list`), lib/libzfs/libzfs_util.c
//! (`zpool_vdev_script_alloc_env`, `libzfs_envvar_is_set`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use admin::getopt::Parsed;
use admin::pool::{DeviceLines, NameStyle, PoolStatus, ScriptOutput, VdevStatus};
use rustix::fs::Access;

use super::Fail;
use crate::caller;

/// Where scripts are that were installed with OpenZFS.
const SCRIPTS_DIR: &str = "/etc/zfs/zpool.d";
/// What a script finds programs by.
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";
/// So many scripts run at a time for each processor.
const AT_A_TIME: usize = 5;

/// The scripts that `-c` names, separated by commas; `None` without this option.
///
/// # Errors
/// If it is given twice, or is not allowed.
pub(super) fn wanted(args: &Parsed) -> Result<Option<&str>, Fail> {
    let mut given = args.values('c');
    let Some(scripts) = given.next() else {
        return Ok(None);
    };
    let refused = |text: &str| Err(Fail::Failed(text.to_owned()));
    if caller::var_os("ZPOOL_SCRIPTS_ENABLED").is_some() && !is_set("ZPOOL_SCRIPTS_ENABLED") {
        return refused("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.");
    }
    let is_root = rustix::process::getuid().is_root() || rustix::process::geteuid().is_root();
    if is_root && !is_set("ZPOOL_SCRIPTS_AS_ROOT") {
        return refused("Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.");
    }
    match given.next() {
        Some(_) => refused("Can't set -c flag twice"),
        None => Ok(Some(scripts)),
    }
}

/// Whether a variable says yes: a number above 0, `YES` or `ON`.
#[doc(alias = "libzfs_envvar_is_set")]
fn is_set(name: &str) -> bool {
    let value = caller::var_os(name).unwrap_or_default();
    let value = value.to_string_lossy();
    // strtoul(3) with base 0: a negative number is a large one.
    let number = value.trim_start();
    let number = number.strip_prefix(['+', '-']).unwrap_or(number);
    let hex = number.strip_prefix("0x").or(number.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) => (hex, 16),
        None if number.starts_with('0') => (number, 8),
        None => (number, 10),
    };
    let mut digits = digits.chars().map_while(|c| c.to_digit(radix));
    digits.any(|digit| digit != 0)
        || value.eq_ignore_ascii_case("yes")
        || value.eq_ignore_ascii_case("on")
}

/// The folders in which scripts are looked for.
#[doc(alias = "zpool_get_cmd_search_path")]
fn folders() -> Vec<PathBuf> {
    if let Some(path) = caller::var_os("ZPOOL_SCRIPTS_PATH") {
        let is_there = |folder: &PathBuf| !folder.as_os_str().is_empty();
        return std::env::split_paths(&path).filter(is_there).collect();
    }
    let home = caller::var_os("HOME").map(|home| Path::new(&home).join(".zpool.d"));
    home.into_iter().chain([SCRIPTS_DIR.into()]).collect()
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

/// What a script prints if it succeeds. Its stdin and stderr lead nowhere.
fn output(mut command: Command) -> Option<String> {
    let command = command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// What `-c` without an argument prints: the scripts that are found, and what each says of itself.
#[doc(alias = "print_zpool_script_list")]
pub(super) fn list(command: &str) {
    println!("Available 'zpool {command} -c' commands:");
    for folder in folders() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths
            .iter()
            .filter(|path| path.is_file() && is_executable(path))
        {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut help = Command::new(path);
            help.arg("-h").env_clear().envs(caller::environment());
            let text = rt::outside(|| output(help)).unwrap_or_default();
            for line in text
                .lines()
                .filter(|line| !line.trim_matches([' ', '\t']).is_empty())
            {
                println!("  {name:<14}  {line}");
            }
        }
    }
}

/// A device that the scripts look at.
struct Device<'p> {
    pool: &'p str,
    vdev: &'p VdevStatus,
    path: &'p str,
}

/// Runs the scripts for the devices of some pools, or for those of these names.
#[doc(alias = "all_pools_for_each_vdev_run")]
pub(super) fn run<'p>(
    scripts: &str,
    pools: impl Iterator<Item = &'p PoolStatus>,
    only: &[String],
    names: NameStyle,
) -> ScriptOutput {
    let mut devices: Vec<Device<'_>> = Vec::new();
    for pool in pools {
        let tops = pool
            .spares
            .iter()
            .chain(&pool.cache)
            .chain(&pool.root.children);
        tops.for_each(|top| gather(&pool.name, top, &mut devices));
    }
    devices.retain(|device| only.is_empty() || only.contains(&device.vdev.name(names)));
    let folders = folders();
    // A name with a slash could lead anywhere.
    let names = scripts
        .split(',')
        .filter(|name| !name.is_empty() && !name.contains('/'));
    let find = |name: &str| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find(|path| is_executable(path))
    };
    let found: Vec<PathBuf> = names.filter_map(find).collect();
    let said = Mutex::new(vec![DeviceLines::default(); devices.len()]);
    let left = Mutex::new(devices.iter().enumerate());
    let work = || loop {
        let next = left.lock().expect("nothing panics with it").next();
        let Some((at, device)) = next else { return };
        let lines = device.ask(&found);
        said.lock().expect("nothing panics with it")[at] = lines;
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    rt::outside(|| {
        std::thread::scope(|scope| {
            for _ in 0..devices.len().min(AT_A_TIME * processors) {
                scope.spawn(work);
            }
        });
    });
    let keys = devices
        .iter()
        .map(|device| (device.pool.to_owned(), device.path.to_owned()));
    let said = said.into_inner().expect("nothing panics with it");
    ScriptOutput::new(keys.zip(said).collect())
}

/// All devices below a vdev, each once: a spare in use is in two places.
#[doc(alias = "for_each_vdev_run_cb")]
fn gather<'p>(pool: &'p str, vdev: &'p VdevStatus, devices: &mut Vec<Device<'p>>) {
    for child in &vdev.children {
        gather(pool, child, devices);
    }
    let is_new = |path: &str| {
        let mut known = devices.iter();
        !known.any(|device| device.pool == pool && device.path == path)
    };
    if let Some(path) = vdev.path.as_deref().filter(|path| is_new(path)) {
        devices.push(Device { pool, vdev, path });
    }
}

impl Device<'_> {
    fn ask(&self, scripts: &[PathBuf]) -> DeviceLines {
        let mut lines = DeviceLines::default();
        for script in scripts {
            let mut command = Command::new(script);
            command.env_clear().envs(self.environment());
            lines.take(&output(command).unwrap_or_default());
        }
        lines
    }

    #[doc(alias = "zpool_vdev_script_alloc_env")]
    fn environment(&self) -> [(&'static OsStr, OsString); 5] {
        let real = std::fs::canonicalize(self.path).unwrap_or_default();
        let enclosure = self.vdev.enclosure.clone().unwrap_or_default();
        [
            ("PATH", PATH.into()),
            ("POOL_NAME", self.pool.into()),
            ("VDEV_PATH", self.path.into()),
            ("VDEV_UPATH", real.into()),
            ("VDEV_ENC_SYSFS_PATH", enclosure.into()),
        ]
        .map(|(name, value): (&str, OsString)| (OsStr::new(name), value))
    }
}
