//! `ashift demo`: a complete session on image files in a temporary folder.
//!
//! Creates a mirror of two image files, copies a directory tree into it with compression, verifies every
//! block, compares every file with its source, and exports the pool. Each command is shown as it would be
//! typed.

use std::path::{Path, PathBuf};
use std::process;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::files;

pub(crate) const DEMO: Command<Entry> = Command::words(
    "demo",
    "the whole way once, on image files",
    "\
usage: ashift demo [--dir FOLDER] [--compression NAME] [SOURCE]

Makes a pool of two image files in FOLDER (default: a new temporary one), copies SOURCE (default:
/usr/share/doc) into it, verifies and compares everything, exports it, and says what to do next.
",
    run,
)
.apart();

/// Bytes of each image; sparse.
const IMAGE_BYTES: u64 = 4 << 30;

struct Demo {
    folder: PathBuf,
    state: PathBuf,
}

impl Demo {
    /// Shows a command and runs it.
    fn run(&self, args: &[&str]) -> Result<(), String> {
        println!("\n$ ashift {}", args.join(" "));
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let status = process::Command::new(own)
            .args(args)
            .env("ASHIFT_STATE", &self.state)
            .status()
            .map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("ashift {} failed", args.join(" ")))
        }
    }
}

fn run(args: &[String]) -> Outcome {
    let (mut folder, mut compression, mut source) = (None, "lz4".to_owned(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--dir" => folder = args.next().map(PathBuf::from),
            "--compression" => compression = args.next().cloned().unwrap_or_default(),
            "-h" | "--help" => return Err(Fail::Help),
            other if other.starts_with('-') => return Err(Fail::Usage(String::new())),
            other => source = Some(PathBuf::from(other)),
        }
    }
    let source = source.unwrap_or_else(|| PathBuf::from("/usr/share/doc"));
    Ok(demo(folder, &compression, &source)?)
}

fn demo(folder: Option<PathBuf>, compression: &str, source: &Path) -> Result<(), String> {
    let folder = match folder {
        Some(folder) => folder,
        None => tempfile::Builder::new()
            .prefix("ashift-demo-")
            .tempdir()
            .map_err(|e| format!("cannot make a temporary folder: {e}"))?
            .keep(),
    };
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let folder = folder
        .canonicalize()
        .map_err(|e| format!("{}: {e}", folder.display()))?;
    let source = source
        .canonicalize()
        .map_err(|e| format!("{}: {e}", source.display()))?;
    let images = ["disk0.img", "disk1.img"].map(|name| folder.join(name).display().to_string());
    for image in &images {
        let file = std::fs::File::create(image).map_err(|e| format!("{image}: {e}"))?;
        file.set_len(IMAGE_BYTES)
            .map_err(|e| format!("{image}: {e}"))?;
    }
    let demo = Demo {
        state: folder.join("state"),
        folder,
    };
    let name = source
        .file_name()
        .map_or("root".into(), |n| n.to_string_lossy().into_owned());
    let from = source.display().to_string();
    demo.run(&[
        "zpool",
        "create",
        "-f",
        "-o",
        "ashift=12",
        "tank",
        "mirror",
        &images[0],
        &images[1],
    ])?;
    demo.run(&[
        "zfs",
        "create",
        "-o",
        &format!("compression={compression}"),
        "tank/data",
    ])?;
    demo.run(&["cp", "-a", &from, "tank/data:/"])?;
    demo.run(&["zpool", "list"])?;
    demo.run(&["zpool", "status"])?;
    demo.run(&["zpool", "get", "ashift,size,allocated", "tank"])?;
    demo.run(&["zfs", "get", "used,compressratio,compression", "tank/data"])?;
    demo.run(&["zpool", "scrub", "-w", "tank"])?;
    compare(&demo, &source, &name)?;
    demo.run(&["zpool", "export", "tank"])?;
    let at = demo.folder.display();
    println!(
        "\nThe pool is in {at}. To go on:\n\
         \x20 export ASHIFT_STATE={at}/state\n\
         \x20 ashift zpool import -d {at} tank\n\
         \x20 ashift ls -l tank/data:/{name}\n\
         \x20 ashift zfs snapshot tank/data@today\n\
         On a machine with OpenZFS, as root: zpool import -d {at} tank\n\
         To be rid of it: rm -r {at}"
    );
    Ok(())
}

/// Compares the copy with its source.
fn compare(demo: &Demo, source: &Path, name: &str) -> Result<(), String> {
    println!("\n# comparing every file with {}", source.display());
    let compared = files::compare_with_host(&demo.state, source, "tank/data", name)
        .map_err(|e| e.to_string())?;
    for path in compared.differences.iter().take(10) {
        println!("differs: {path}");
    }
    println!(
        "{} names, {} bytes compared",
        compared.files, compared.bytes
    );
    match compared.differences.len() {
        0 => Ok(()),
        n => Err(format!(
            "{n} names differ (did the source change meanwhile?)"
        )),
    }
}
