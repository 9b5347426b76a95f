//! Runs command lines one after the other, here or in the guest, and keeps the output of each.
//!
//! The same shell script runs on both sides. Only the prelude differs: where the tools are, and how a file gets
//! into a dataset (`put DATASET /PATH`, from stdin) or gets another owner (`own DATASET /PATH UID:GID`), and that
//! pools are to stay open (`hold`), as they do above a kernel module.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use oracle::parity::Said;
use oracle::vm::Guest;

use crate::lists::{List, Section};
use crate::normal::Places;

/// The folder of the images in the guest.
const GUEST_IMAGES: &str = "/tmp/images";
/// Time limit for a command, in seconds.
const LIMIT: u32 = 60;

/// Recreates the image files of a section below `$D`.
const FRESH: &str = r#"fresh() {
  rm -rf "$D"; mkdir -p "$D"
  for i in 1 2 3 4 5 6; do truncate -s 128M "$D/d$i"; done
  truncate -s 32M "$D/small"
}
"#;

/// Runs one command line, appends what it printed to `$T/out` and `$T/err`, and ends both with a
/// line that begins with the byte 1 (and has the exit code in `out`).
const RUN: &str = r#"run() {
  timeout -s KILL "$LIMIT" sh -c ". $T/prelude
$1" </dev/null >>"$T/out" 2>>"$T/err"
  rc=$?
  printf '\001%s\n' $rc >>"$T/out"; printf '\001\n' >>"$T/err"
}
"#;

/// The helper commands, using this program.
const OUR_PRELUDE: &str = r#"put() { cat >"$T/in"; ashift cp "$T/in" "$1:$2"; }
own() { ashift chown "$3" "$1:$2"; }
hold() { ashift serve --background; }
"#;

/// The helper commands, for mounted datasets.
const REAL_PRELUDE: &str = r#"at() { zfs get -H -o value mountpoint "$1"; }
put() { cat >"$(at "$1")$2"; rc=$?; zpool sync "${1%%/*}"; return $rc; }
own() { chown "$3" "$(at "$1")$2"; zpool sync "${1%%/*}"; }
hold() { :; }
"#;

/// What the guest needs before the first command: users, and the folders that the tools write to.
const GUEST_SETUP: &str = r#"hostname parity
mkdir -p /etc/zfs /etc/exports.d /usr/share/zfs
cp -r /host/compatibility.d /usr/share/zfs/
printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >/etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' >/etc/group
gone() {
  zpool list -H -o name | while read -r p; do zpool destroy -f "$p" || zpool export -f "$p"; done
}
"#;

/// Wraps a text in single quotes for the shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn runs(section: &Section) -> String {
    let lines = section.commands.iter();
    lines.map(|c| format!("run {}\n", quote(&c.line))).collect()
}

/// Parses what [`RUN`] wrote into `folder`; `None` unless every command was run.
fn collect(folder: &Path, commands: usize) -> Option<Vec<Said>> {
    let read = |name: &str| -> Vec<(String, String)> {
        let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut said = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('\u{1}') {
            let (code, after) = after.split_once('\n').expect("a line");
            said.push((before.to_owned(), code.to_owned()));
            rest = after;
        }
        said
    };
    let (out, err) = (read("out"), read("err"));
    if (out.len(), err.len()) != (commands, commands) {
        return None;
    }
    let all = out
        .into_iter()
        .zip(err)
        .map(|((out, code), (err, _))| Said {
            code: code.parse().expect("an exit code"),
            out,
            err,
        });
    Some(all.collect())
}

/// Runs a section with this program, in a separate folder.
pub(crate) fn run_here(section: &Section) -> Vec<Said> {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    };
    let folder = folder.expect("a temporary folder");
    let at = folder.path();
    let tools = at.join("tools");
    std::fs::create_dir(&tools).unwrap();
    for name in ["ashift", "zpool", "zfs"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ashift"), tools.join(name)).unwrap();
    }
    std::fs::write(at.join("prelude"), OUR_PRELUDE).unwrap();
    let script = format!(
        "PATH={}:$PATH D={} T={} LIMIT={LIMIT}\nexport PATH D T\n{FRESH}{RUN}fresh\ncd \"$T\"\n{}",
        quote(tools.to_str().unwrap()),
        quote(&format!("{}/images", at.display())),
        quote(at.to_str().unwrap()),
        runs(section),
    );
    let status = Process::new("sh")
        .args(["-c", &script])
        .env("ASHIFT_STATE", at.join("state"))
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("sh starts");
    assert!(status.success() || status.code().is_some(), "{status}");
    // A section may have made pools stay open, with `hold` or by mounting.
    let ended = Process::new(env!("CARGO_BIN_EXE_ashift"))
        .args(["serve", "--stop"])
        .env("ASHIFT_STATE", at.join("state"))
        .output();
    ended.expect("it starts");
    let places = Places {
        images: format!("{}/images", at.display()),
        state: format!("{}/state", at.display()),
    };
    let said = collect(at, section.commands.len()).expect("every command was run");
    let commands = section.commands.iter();
    let normal = commands
        .zip(said)
        .map(|(c, s)| places.normalise(&c.line, &s));
    normal.collect()
}

/// Runs a list under the real tools, in one boot of the guest.
pub(crate) fn run_in_guest(guest: &Guest, list: &List) -> Vec<Said> {
    let folder = kept(list);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("prelude"), REAL_PRELUDE).unwrap();
    let copied = Process::new("cp")
        .args(["-r", "/usr/share/zfs/compatibility.d"])
        .arg(&folder)
        .status();
    assert!(
        copied.is_ok_and(|s| s.success()),
        "zfsutils-linux's compatibility.d"
    );
    let sections: String = list
        .sections
        .iter()
        .map(|section| format!("gone; fresh\n{}", runs(section)))
        .collect();
    let script = format!(
        "export D={GUEST_IMAGES} T=/host TZ=UTC LC_ALL=C LIMIT={LIMIT}\n\
         {GUEST_SETUP}{FRESH}{RUN}{sections}gone\n"
    );
    let outcome = guest.run(&script, &folder, &[]);
    recorded_before(list).unwrap_or_else(|| panic!("{}: {}", list.name, outcome.output))
}

/// The output that the last boot for this list left, if it is complete.
pub(crate) fn recorded_before(list: &List) -> Option<Vec<Said>> {
    let places = Places {
        images: GUEST_IMAGES.to_owned(),
        state: "/etc/zfs".to_owned(),
    };
    let said = collect(&kept(list), list.commands().count())?;
    let commands = list.commands();
    let normal = commands
        .zip(said)
        .map(|(c, s)| places.normalise(&c.line, &s));
    Some(normal.collect())
}

/// The folder that keeps the guest's output unchanged.
fn kept(list: &List) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("parity")
        .join(&list.name)
}
