//! What a guest boots from: a kernel, and an initial RAM disk with what runs in it. Both are made once per release of
//! the kernel, and kept in the user's cache folder.
//!
//! # The kernel
//! Debian's unpacks itself when it starts, for which an emulated processor takes as long as for all the rest of a
//! boot. So it is unpacked here, out of `vmlinuz`: what is packed is found by its header (Linux
//! `Documentation/arch/x86/boot.rst`, `setup_sects`, `payload_offset` and `payload_length`).

use std::fs;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Held while one of them is made: the tests of one process make it once.
static MAKING: Mutex<()> = Mutex::new(());

/// The init script of the guest.
const INIT: &str = r#"#!/bin/sh
export PATH=/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
ln -s /proc/self/mounts /etc/mtab
while read m; do insmod /mods/$m || echo "insmod $m failed"; done </mods/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 host /host
cd /host; echo >/host/started; sh /host/script >/host/output 2>&1; echo $? >/host/status
sync; poweroff -f
"#;

/// Lays out the initial RAM disk in folder `$1` for kernel release `$2`, and packs it into file `$3`.
const BUILD: &str = r#"set -eu
root=$1 release=$2 output=$3
mkdir -p "$root/bin" "$root/sbin" "$root/etc" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" \
  "$root/mnt" "$root/run" "$root/host" "$root/mods"
cp /bin/busybox "$root/bin/"
for applet in $(/bin/busybox --list); do
  [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"; done
for tool in zpool zfs zdb zhack zstream mount.zfs; do
  path=$(ls /sbin/$tool /usr/sbin/$tool 2>/dev/null | head -1)
  cp "$path" "$root/sbin/"
  ldd "$path" | awk '/=> \//{print $3} /ld-linux/{print $1}' | while read -r lib; do
    mkdir -p "$root$(dirname "$lib")"; cp -Lu "$lib" "$root$lib"; done
done
lib=/lib/x86_64-linux-gnu/libgcc_s.so.1
mkdir -p "$root$(dirname $lib)"; cp -L $lib "$root$lib"
for m in virtio_pci virtio_blk 9pnet_virtio 9p zfs; do
  modprobe -S "$release" --show-depends $m | awk '/^insmod/{print $2}'
done | awk '!seen[$0]++' | while read -r m; do
  cp "$m" "$root/mods/"; basename "$m" >>"$root/mods/order"; done
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$output.part"
mv "$output.part" "$output"
"#;

/// Files that QEMU takes.
#[derive(Debug)]
pub(crate) struct BootFiles {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
}

impl BootFiles {
    /// Those for a release of the kernel; they are made if they are not there.
    ///
    /// # Panics
    /// If they cannot be made.
    pub(crate) fn of(release: &str) -> BootFiles {
        let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
        let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
        let folder = cache.join("ashift");
        fs::create_dir_all(&folder).expect("the cache folder can be made");
        let _making = MAKING.lock();
        BootFiles {
            kernel: kernel(&folder, release),
            initrd: initrd(&folder, release),
        }
    }
}

fn kernel(folder: &Path, release: &str) -> PathBuf {
    let packed_path = PathBuf::from(format!("/boot/vmlinuz-{release}"));
    let kernel = folder.join(format!("vmlinux-{release}"));
    if kernel.exists() {
        return kernel;
    }
    let packed = fs::read(&packed_path).expect("the kernel can be read");
    let Some(bytes) = payload(&packed).and_then(unpacked) else {
        // Packed in another way: it boots all the same, only later.
        return packed_path;
    };
    let own = own_name(&kernel);
    fs::write(&own, bytes).expect("the kernel is written");
    fs::rename(&own, &kernel).expect("the kernel is put in place");
    kernel
}

/// The packed part of a kernel, without the length that stands behind it.
fn payload(vmlinuz: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = vmlinuz.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let setup_sectors = usize::from(*vmlinuz.get(0x1f1)?);
    let start = (setup_sectors + 1) * 512 + number(0x248)?;
    vmlinuz.get(start..start + number(0x24c)?.checked_sub(4)?)
}

/// What was packed by `xz`, if it is a kernel in ELF.
fn unpacked(payload: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new("xz")
        .arg("--decompress")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let output = std::thread::scope(|scope| {
        // If it does not take all of it, it fails.
        scope.spawn(move || drop(input.write_all(payload)));
        child.wait_with_output().ok()
    })?;
    (output.status.success() && output.stdout.starts_with(b"\x7fELF")).then_some(output.stdout)
}

fn initrd(folder: &Path, release: &str) -> PathBuf {
    // Another script makes another RAM disk.
    let scripts = BuildHasherDefault::<DefaultHasher>::default().hash_one((INIT, BUILD));
    let initrd = folder.join(format!("openzfs-{scripts:016x}-{release}.gz"));
    if initrd.exists() {
        return initrd;
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::write(root.path().join("init"), INIT).expect("init is written");
    let own = own_name(&initrd);
    let status = Command::new("sh")
        .args(["-c", BUILD, "build"])
        .args([root.path(), Path::new(release), &own])
        .status()
        .expect("sh starts");
    assert!(status.success(), "the initial RAM disk was not built");
    fs::rename(&own, &initrd).expect("the initial RAM disk is put in place");
    initrd
}

/// The name of a file while this process makes it.
fn own_name(file: &Path) -> PathBuf {
    file.with_extension(format!("part-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_part_is_found_by_the_header() {
        let mut vmlinuz = vec![0; 4096];
        vmlinuz[0x1f1] = 3;
        vmlinuz[0x248..0x24c].copy_from_slice(&100_u32.to_le_bytes());
        vmlinuz[0x24c..0x250].copy_from_slice(&10_u32.to_le_bytes());
        vmlinuz[2148..2154].copy_from_slice(b"packed");
        assert_eq!(payload(&vmlinuz), Some(&b"packed"[..]));
        assert_eq!(payload(&vmlinuz[..2150]), None);
        assert_eq!(payload(b"too short"), None);
        assert_eq!(unpacked(b"packed in no way"), None);
    }
}
