//! The dialogue of parted, beside GNU parted: on a pipe and on a terminal, the same words to both, on the same image.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

/// Sessions, a line of input each.
const DIALOGUES: &[&[&str]] = &[
    &[
        "print", "mklabel", "gpt", "mkpart", "one", "", "1MiB", "50%", "print", "name 1", " a  b ",
        "print", "quit",
    ],
    &[
        "mklabel gpt unit MiB",
        "mkpart a ext4 1 20 mkpart 'b c' 20 40",
        "print",
        "print free",
        "resizepart 2 60",
        "rm 7",
        "rm",
        "1",
        "print",
        "unit",
        "",
        "unit foo",
        "s",
        "print",
        "print 2",
        "print 9",
        "q",
    ],
    // a misaligned partition, and what is not to be had
    &[
        "mklabel gpt",
        "mkpart x 34s 2000s",
        "ignore",
        "align-check",
        "",
        "1",
        "align-check min 1",
        "mkpart y 3000s 4000s",
        "c",
        "print",
        "mkpart z 1000s 5000s",
        "yes",
        "print",
        "mkpart z 1s 2s",
        "mkpart z 5GB 6GB",
        "mkpart z 9 8",
        "mkpart z fat",
        "fat32",
        "50%",
        "60%",
        "print",
        "quit",
    ],
    // flags of a GPT
    &[
        "mklabel gpt mkpart a 0% 50% mkpart b linux-swap 50% 70%",
        "set",
        "1",
        "boot",
        "",
        "print",
        "set 1 esp",
        "off",
        "toggle 1 raid",
        "toggle 1 hidden toggle 1 legacy_boot",
        "print",
        "set 1 foo",
        "bios_grub",
        "maybe",
        "on",
        "set 2 swap off",
        "set 2 linux-home on",
        "print",
        "disk_set pmbr_boot",
        "",
        "print",
        "disk_toggle",
        "",
        "print",
        "q",
    ],
    // an MBR, and its flags
    &[
        "mklabel msdos",
        "mkpart",
        "primary",
        "",
        "1MiB",
        "20MiB",
        "print",
        "mkp p fat32 20MiB 40MiB",
        "set 2 hidden on",
        "print",
        "set 1 lvm on",
        "set 1 lvm off",
        "set 1 boot on set 2 boot on",
        "print",
        "toggle 1 diag",
        "set 2 lba off",
        "print",
        "name 1 x",
        "mkpart primary ntfs 40MiB 50MiB",
        "set 3 msftres on",
        "mkpart primary linux-swap 50MiB 60MiB",
        "print",
        "toggle 4 swap toggle 4 raid",
        "set 1 root on",
        "q",
        "print",
        "mklabel",
        "gpt",
        "no",
        "print",
        "mklabel gpt",
        "yes",
        "mklabel msdos",
        "yes",
        "print",
        "quit",
    ],
    // shrinking asks; the table is read again after a refusal
    &[
        "mklabel gpt mkpart a ext4 1MiB 50MiB",
        "print",
        "resizepart 1 30MiB",
        "no",
        "print",
        "resizepart 1 30MiB",
        "yes",
        "resizepart 1 70MiB",
        "unit s print",
        "resizepart 1",
        "",
        "print",
        "quit",
    ],
    // cut short, in any case, ambiguous; other devices
    &[
        "UNIT s",
        "mk",
        "pri",
        "mklab",
        "nothing",
        "gpt",
        "resize",
        "select",
        "",
        "select other.img",
        "print",
        "sel nowhere.img",
        "cancel",
        "print",
        "mkpart",
        "",
        "",
        "",
        "end",
    ],
];

fn has_parted() -> bool {
    let found = Command::new("parted").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: parted is missing (install parted to run this test)");
    }
    found
}

/// A command of either program.
fn command(program: &str, folder: &Path, args: &[&str]) -> Command {
    let mut command = match program {
        "ashift" => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ashift"));
            command.arg("parted");
            command
        }
        program => Command::new(program),
    };
    command
        .args(args)
        .current_dir(folder)
        .env("ASHIFT_STATE", folder.join("state"))
        .env_remove("ASHIFT_MACHINE")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "dumb");
    command
}

/// Blank images.
fn images(folder: &Path) {
    for name in ["d.img", "other.img"] {
        let path = folder.join(name);
        let _ = std::fs::remove_file(&path);
        File::create(path).unwrap().set_len(100 << 20).unwrap();
    }
}

/// stdout, stderr and the exit code.
type Said = (String, String, Option<i32>);

fn piped(mut command: Command, lines: &[&str]) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let _ = pipe.write_all((lines.join("\n") + "\n").as_bytes());
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| named_alike(&String::from_utf8_lossy(bytes));
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code(),
    )
}

/// The two programs name themselves, each in its own way.
fn named_alike(text: &str) -> String {
    let own = concat!("parted (ashift ", env!("CARGO_PKG_VERSION"), ")");
    text.replace(own, "GNU Parted 3.5")
        .replace("Welcome to parted!", "Welcome to GNU Parted!")
}

/// A new terminal: our side, and the program's.
fn terminal() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(path.to_str().unwrap())
        .unwrap();
    (File::from(ours), theirs.into())
}

/// Types a line whenever the program asks for one; the end of the input after the last one.
fn typed(mut command: Command, lines: &[&str]) -> Said {
    let (mut ours, theirs) = terminal();
    let side = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = command
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .unwrap();
    drop(command);
    drop(theirs);
    let mut seen = String::new();
    let mut lines = lines.iter();
    let mut bytes = [0; 4096];
    // the other side is closed when the program ends
    while let Ok(len @ 1..) = ours.read(&mut bytes) {
        seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
        if seen.ends_with("? ") || seen.ends_with("(parted) ") {
            let line = lines
                .next()
                .map_or("\x04".to_owned(), |line| format!("{line}\n"));
            ours.write_all(line.as_bytes()).unwrap();
        }
    }
    (
        named_alike(&seen),
        String::new(),
        child.wait().unwrap().code(),
    )
}

/// What GNU parted finds on the images.
fn tables(folder: &Path) -> Vec<String> {
    let print = |name| {
        let mut parted = command("parted", folder, &["-sm", name, "unit", "s", "print"]);
        String::from_utf8_lossy(&parted.output().unwrap().stdout).into_owned()
    };
    ["d.img", "other.img"].map(print).to_vec()
}

/// The list of commands without `rescue`, and with the words of this program on its version.
fn without_what_is_not_there(theirs: &str) -> String {
    let mut said = theirs.to_owned();
    for end in ["\n", "\r\n"] {
        let rescue =
            "  rescue START END                         rescue a lost partition near START";
        said = said.replace(&format!("{rescue}{end}        and END{end}"), "");
        let version = "display the version number";
        let long = format!("{version} and{end}        copyright information of GNU Parted{end}");
        said = said.replace(&long, &format!("{version}{end}"));
    }
    said
}

fn compare(say: fn(Command, &[&str]) -> Said) {
    if !has_parted() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    for dialogue in DIALOGUES {
        let [theirs, ours] = ["parted", "ashift"].map(|program| {
            images(at);
            let said = say(command(program, at, &["d.img"]), dialogue);
            (said, tables(at))
        });
        let ((out, err, code), found) = &ours;
        let ((their_out, their_err, their_code), their_found) = &theirs;
        let their_out = &without_what_is_not_there(their_out);
        assert_eq!(
            out, their_out,
            "{dialogue:?}\nours:\n{out}\ntheirs:\n{their_out}"
        );
        assert_eq!((err, code), (their_err, their_code), "{dialogue:?}");
        assert_eq!(found, their_found, "{dialogue:?}");
    }
}

#[test]
fn on_a_pipe_the_dialogue_is_that_of_gnu_parted() {
    compare(piped);
}

#[test]
fn on_a_terminal_the_dialogue_is_that_of_gnu_parted() {
    compare(typed);
}

#[test]
fn what_a_command_line_lacks_is_asked_for() {
    if !has_parted() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let lines: &[(&str, &[&str])] = &[
        ("d.img mklabel", &["gpt"]),
        ("d.img mkpart", &["name", "", "10%", "50%"]),
        ("d.img mkpart two 50% 60% set 2", &["lvm", ""]),
        ("d.img print rm", &["2"]),
        ("d.img mklabel msdos", &["no"]),
        ("nowhere.img print", &["cancel"]),
    ];
    let [theirs, ours] = ["parted", "ashift"].map(|program| {
        images(at);
        let say = |(args, typing): &(&str, &[&str])| {
            let args: Vec<&str> = args.split(' ').collect();
            typed(command(program, at, &args), typing)
        };
        (lines.iter().map(say).collect::<Vec<_>>(), tables(at))
    });
    assert_eq!(ours, theirs);
}
