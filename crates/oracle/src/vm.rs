//! A Linux kernel with the real OpenZFS module, in QEMU, for one shell script at a time.
//!
//! # What it is
//! The guest has busybox, the module and `zpool`/`zfs`/`zdb` ([`BootFiles`]). It gets each image as a
//! virtio disk (`/dev/vda`, `/dev/vdb`, …) and a folder of the host as `/host`; it runs
//! `/host/script` as root and powers off. A boot takes about eight seconds under emulation.
//!
//! # A boot that hangs
//! Now and then an emulated processor stays for ever in a piece of code that the other one has
//! just patched, mostly in the kernel's own tests of its ciphers; these are switched off. A guest
//! that does not come to its script is booted again, since it has changed nothing by then. One
//! that hangs in its script fails, because that may be the pool's doing.
//!
//! There is no udev in the guest: import with `zpool import -d /dev`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::boot_files::BootFiles;

/// A guest that can be booted.
#[derive(Debug)]
pub struct Guest {
    boot_files: BootFiles,
    memory_mib: u32,
}

/// The result of a script in the guest.
#[derive(Debug)]
pub struct Outcome {
    /// The script's exit status.
    pub status: i32,
    /// What it printed, stdout and stderr together.
    pub output: String,
}

impl Outcome {
    /// Asserts that the script succeeded.
    ///
    /// # Panics
    /// When it failed, with its output.
    #[track_caller]
    pub fn assert_success(&self) {
        assert_eq!(self.status, 0, "in the guest:\n{}", self.output);
    }
}

/// Seconds after which a hanging guest is stopped. The longest recording takes some minutes.
const TIME_LIMIT_S: &str = "1200";

/// How long a guest may take to come to its script, also on a computer that is busy.
const BOOT_LIMIT: Duration = Duration::from_secs(150);

/// The emulated processor. At its start OpenZFS measures each kind of vector instruction that a processor has, which
/// takes seconds for those that it emulates as slowly as AVX2.
const PROCESSOR: &str = "Westmere";

/// How often a guest is booted that does not come to its script.
const BOOTS: u32 = 3;

impl Guest {
    /// The newest installed kernel release that has an OpenZFS module.
    #[must_use]
    pub(crate) fn kernel_release() -> Option<String> {
        fs::read_dir("/lib/modules")
            .ok()?
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|r| {
                let dkms = Path::new("/lib/modules").join(r).join("updates/dkms");
                let has_zfs = fs::read_dir(dkms).is_ok_and(|mut d| {
                    d.any(|e| {
                        e.is_ok_and(|e| e.file_name().to_string_lossy().starts_with("zfs.ko"))
                    })
                });
                has_zfs && Path::new("/boot").join(format!("vmlinuz-{r}")).exists()
            })
            .max_by_key(|release| release_numbers(release))
    }

    /// A guest; `None`, after reporting what to install, if there cannot be one.
    #[must_use]
    pub fn find() -> Option<Guest> {
        let qemu = Path::new("/usr/bin/qemu-system-x86_64").exists();
        let Some(release) = Guest::kernel_release().filter(|_| qemu) else {
            crate::skip("QEMU or a kernel with the OpenZFS module is missing");
            return None;
        };
        Some(Guest {
            boot_files: BootFiles::of(&release),
            memory_mib: 2048,
        })
    }

    /// Boots, runs `script` with `disks` attached and `host` as `/host`, and powers off.
    ///
    /// # Panics
    /// When the guest did not finish the script, with the end of its console output.
    #[must_use]
    pub fn run(&self, script: &str, host: &Path, disks: &[&Path]) -> Outcome {
        fs::write(host.join("script"), script).expect("the script is written");
        for boot in 1..=BOOTS {
            for old in ["started", "output", "status"] {
                let _ = fs::remove_file(host.join(old));
            }
            let status = self.boot(host, disks);
            if let Ok(code) = fs::read_to_string(host.join("status")) {
                return Outcome {
                    status: code.trim().parse().unwrap_or(-1),
                    output: fs::read_to_string(host.join("output")).unwrap_or_default(),
                };
            }
            let console = fs::read_to_string(host.join("console")).unwrap_or_default();
            let end = last_lines(&console, 30);
            let has_started = host.join("started").exists();
            assert!(
                !has_started && boot < BOOTS,
                "the guest did not finish ({status}), boot {boot}:\n{end}"
            );
            eprintln!("the guest did not come to its script ({status}), boot {boot}:\n{end}");
        }
        unreachable!("the last boot returns or panics");
    }

    /// Boots once, and waits until the guest is off or has hung before its script.
    fn boot(&self, host: &Path, disks: &[&Path]) -> ExitStatus {
        let log = fs::File::create(host.join("console")).expect("the console log is made");
        let mut child = self
            .command(host, disks)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("QEMU starts");
        let begun = Instant::now();
        while !host.join("started").exists() {
            if let Some(status) = child.try_wait().expect("QEMU is there") {
                return status;
            }
            if begun.elapsed() > BOOT_LIMIT {
                return end(&mut child);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        child.wait().expect("QEMU ends")
    }

    fn command(&self, host: &Path, disks: &[&Path]) -> Command {
        let mut command = Command::new("timeout");
        command.args([
            TIME_LIMIT_S,
            "qemu-system-x86_64",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            PROCESSOR,
        ]);
        command.args([
            "-smp",
            "2",
            "-m",
            &self.memory_mib.to_string(),
            "-nographic",
            "-no-reboot",
        ]);
        command
            .arg("-kernel")
            .arg(&self.boot_files.kernel)
            .arg("-initrd")
            .arg(&self.boot_files.initrd)
            .args(["-append", "console=ttyS0 panic=-1 cryptomgr.notests"]);
        for (i, disk) in disks.iter().enumerate() {
            let file = disk.display();
            command
                .args([
                    "-drive",
                    &format!("file={file},format=raw,if=none,id=d{i},cache=unsafe"),
                ])
                .args([
                    "-device",
                    &format!("virtio-blk-pci,drive=d{i},serial=disk{i}"),
                ]);
        }
        let share = format!(
            "local,path={},mount_tag=host,security_model=none",
            host.display()
        );
        command.args(["-virtfs", &share]);
        command
    }
}

/// Ends QEMU by ending `timeout`, which hands the signal on.
fn end(child: &mut Child) -> ExitStatus {
    let pid = child.id().to_string();
    let _ = Command::new("kill").arg(pid).status();
    child.wait().expect("QEMU ends")
}

/// The last `count` lines of `text`.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The numbers in the name of a release, to compare it by: 6.1.0-13 is newer than 6.1.0-9.
fn release_numbers(release: &str) -> Vec<u64> {
    let numbers = release.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_their_numbers() {
        let newest = ["6.1.0-9-amd64", "6.1.0-13-amd64", "5.10.0-30-amd64"]
            .into_iter()
            .max_by_key(|release| release_numbers(release));
        assert_eq!(newest, Some("6.1.0-13-amd64"));
    }

    #[test]
    fn guest_has_the_module() {
        let Some(guest) = Guest::find() else { return };
        let host = tempfile::tempdir().unwrap();
        let outcome = guest.run("zfs version", host.path(), &[]);
        outcome.assert_success();
        assert!(
            outcome.output.contains("zfs-kmod-2.3"),
            "{}",
            outcome.output
        );
    }
}
