//! Installs what the tests need from Debian: `cargo xtask install`.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Packages from Debian 12's main section.
const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "linux-image-amd64",
    "linux-headers-amd64",
    "busybox-static",
    "cpio",
    "gdisk",
    "kmod",
    "btrfs-progs",
    "e2fsprogs",
    "acl",
    "attr",
    "g++",
    "git",
    "rsync",
    "fio",
    "sqlite3",
    "postgresql",
    "dbench",
    "bonnie++",
    "strace",
    "parallel",
    "fuse3",
    "xz-utils",
];
/// Packages from bookworm-backports, section contrib.
const BACKPORTS: &[&str] = &["zfs-dkms", "zfsutils-linux", "zfs-test", "libzfslinux-dev"];
/// Test programs for file systems, from the registry of crates.
const CRATES: &[(&str, &str)] = &[("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];
const LIST: &str = "/etc/apt/sources.list.d/contrib-backports.list";

/// Whether everything of Debian's that the tests use is installed.
#[must_use]
pub(crate) fn is_installed() -> bool {
    let tools = [
        "/usr/sbin/zdb",
        "/usr/bin/qemu-system-x86_64",
        "/usr/bin/cpio",
        "/bin/busybox",
        "/usr/sbin/sgdisk",
        "/usr/sbin/mkfs.btrfs",
        "/usr/sbin/mkfs.ext4",
        "/usr/bin/getfacl",
        "/usr/bin/getfattr",
        "/usr/bin/g++",
    ];
    let programs = [
        "git",
        "rsync",
        "fio",
        "sqlite3",
        "postgres",
        "setpriv",
        "dbench",
        "bonnie++",
        "strace",
        "parallel",
        "fusermount3",
        "xz",
    ];
    tools
        .iter()
        .all(|t| Path::new(t).exists() || Path::new(&t.replacen("/usr", "", 1)).exists())
        && programs.iter().all(|name| crate::find_tool(name).is_some())
        && crate::vm::Guest::kernel_release().is_some()
}

/// Installs the packages with apt-get, which needs root, and the crates with cargo. Says on stderr what it does.
///
/// # Errors
/// A message for the user.
pub fn install() -> Result<(), String> {
    if !is_installed() {
        install_packages()?;
    }
    for (name, version) in CRATES {
        if crate::find_tool(name).is_none() {
            install_crate(name, version)?;
        }
    }
    Ok(())
}

fn install_crate(name: &str, version: &str) -> Result<(), String> {
    eprintln!("installing {name} {version} with cargo (half a minute, once)");
    let status = Command::new("cargo")
        .args(["install", "--locked", "--quiet", "--version", version, name])
        .current_dir("/")
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("cargo install {name} failed")),
    }
}

fn install_packages() -> Result<(), String> {
    eprintln!("installing OpenZFS, QEMU and a kernel from Debian (about four minutes, once)");
    apt(&["update", "-qq"])?;
    add_archive()?;
    apt(&["update", "-qq"])?;
    let base = ["install", "-y", "-qq", "--no-install-recommends"];
    apt(&[&base[..], PACKAGES].concat())?;
    apt(&[&base[..], &["-t", "bookworm-backports"], BACKPORTS].concat())?;
    if is_installed() {
        Ok(())
    } else {
        Err("apt-get left something out".into())
    }
}

/// Adds contrib and backports of the archive that apt already uses.
fn add_archive() -> Result<(), String> {
    let targets = Command::new("apt-get")
        .args([
            "indextargets",
            "--format",
            "$(CODENAME)|$(COMPONENT)|$(REPO_URI)",
        ])
        .output()
        .map_err(|e| format!("apt-get: {e}"))?;
    let text = String::from_utf8_lossy(&targets.stdout).into_owned();
    if text
        .lines()
        .any(|l| l.starts_with("bookworm-backports|contrib|"))
    {
        return Ok(());
    }
    let archive = text
        .lines()
        .find_map(|l| l.strip_prefix("bookworm|main|"))
        .ok_or("apt knows no bookworm archive: this needs Debian 12")?;
    let list =
        format!("deb {archive} bookworm contrib\ndeb {archive} bookworm-backports main contrib\n");
    fs::write(LIST, list).map_err(|e| format!("{LIST}: {e} (are you root?)"))
}

fn apt(args: &[&str]) -> Result<(), String> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::process::Stdio::null())
        .status()
        .map_err(|e| format!("apt-get: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("apt-get {} failed", args.join(" ")))
    }
}
