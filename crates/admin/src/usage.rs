//! The commands of `zpool` and `zfs`, and their usage messages.
//!
//! # Source
//! The synopses are those of OpenZFS 2.3 (cmd/zpool/zpool_main.c, cmd/zfs/zfs_main.c), since they are
//! what administrators are used to.

use std::fmt::Write as _;

use crate::prop::{self, TableKind};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `zpool`
    Zpool,
    /// `zfs`
    Zfs,
}

impl Tool {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tool::Zpool => "zpool",
            Tool::Zfs => "zfs",
        }
    }

    /// Its commands in the order of the help; `None` is a blank line.
    #[must_use]
    pub fn commands(self) -> &'static [Option<Command>] {
        match self {
            Tool::Zpool => ZPOOL,
            Tool::Zfs => ZFS,
        }
    }

    /// The command of that name or alias (`umount`, `snap`, `recv`).
    #[must_use]
    pub fn command(self, name: &str) -> Option<&'static Command> {
        let name = match (self, name) {
            (Tool::Zfs, "umount") => "unmount",
            (Tool::Zfs, "recv") => "receive",
            (Tool::Zfs, "snap") => "snapshot",
            (_, name) => name,
        };
        self.commands()
            .iter()
            .flatten()
            .find(|command| command.name == name)
    }
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Its usage: one or more lines, printed with a tab before each.
    pub synopsis: &'static [&'static str],
}

const fn command(name: &'static str, synopsis: &'static [&'static str]) -> Option<Command> {
    Some(Command { name, synopsis })
}

const ZPOOL: &[Option<Command>] = &[
    command("version", &["version [-j]"]),
    None,
    command(
        "create",
        &[
            "create [-fnd] [-o property=value] ... ",
            "    [-O file-system-property=value] ... ",
            "    [-m mountpoint] [-R root] <pool> <vdev> ...",
        ],
    ),
    command("destroy", &["destroy [-f] <pool>"]),
    None,
    command(
        "add",
        &["add [-afgLnP] [-o property=value] <pool> <vdev> ..."],
    ),
    command("remove", &["remove [-npsw] <pool> <device> ..."]),
    None,
    command("labelclear", &["labelclear [-f] <vdev>"]),
    None,
    command("checkpoint", &["checkpoint [-d [-w]] <pool> ..."]),
    command("prefetch", &["prefetch [-t <type>] <pool>"]),
    None,
    command(
        "list",
        &[
            "list [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...",
            "    [-T d|u] [pool] [interval [count]]",
        ],
    ),
    command(
        "iostat",
        &[
            "iostat [[[-c [script1,script2,...][-lq]]|[-rw]] [-T d | u] [-ghHLpPvy]",
            "    [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]",
        ],
    ),
    command(
        "status",
        &[
            "status [--power] [-j [--json-int, --json-flat-vdevs, ...",
            "    --json-pool-key-guid]] [-c [script1,script2,...]] [-dDegiLpPstvx] ...",
            "    [-T d|u] [pool] [interval [count]]",
        ],
    ),
    None,
    command("online", &["online [--power][-e] <pool> <device> ..."]),
    command(
        "offline",
        &["offline [--power]|[[-f][-t]] <pool> <device> ..."],
    ),
    command("clear", &["clear [[--power]|[-nF]] <pool> [device]"]),
    command("reopen", &["reopen [-n] <pool>"]),
    None,
    command(
        "attach",
        &["attach [-fsw] [-o property=value] <pool> <device> <new-device>"],
    ),
    command("detach", &["detach <pool> <device>"]),
    command(
        "replace",
        &["replace [-fsw] [-o property=value] <pool> <device> [new-device]"],
    ),
    command(
        "split",
        &[
            "split [-gLnPl] [-R altroot] [-o mntopts]",
            "    [-o property=value] <pool> <newpool> [<device> ...]",
        ],
    ),
    None,
    command(
        "initialize",
        &["initialize [-c | -s | -u] [-w] <pool> [<device> ...]"],
    ),
    command("resilver", &["resilver <pool> ..."]),
    command("scrub", &["scrub [-e | -s | -p | -C] [-w] <pool> ..."]),
    command(
        "trim",
        &["trim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]"],
    ),
    None,
    command(
        "import",
        &[
            "import [-d dir] [-D]",
            "import [-o mntopts] [-o property=value] ... ",
            "    [-d dir | -c cachefile] [-D] [-l] [-f] [-m] [-N] [-R root] [-F [-n]] -a",
            "import [-o mntopts] [-o property=value] ... ",
            "    [-d dir | -c cachefile] [-D] [-l] [-f] [-m] [-N] [-R root] [-F [-n]]",
            "    [--rewind-to-checkpoint] <pool | id> [newpool]",
        ],
    ),
    command("export", &["export [-af] <pool> ..."]),
    command(
        "upgrade",
        &[
            "upgrade",
            "upgrade -v",
            "upgrade [-V version] <-a | pool ...>",
        ],
    ),
    command("reguid", &["reguid [-g guid] <pool>"]),
    None,
    command("history", &["history [-il] [<pool>] ..."]),
    command("events", &["events [-vHf [pool] | -c]"]),
    None,
    command(
        "get",
        &[
            "get [-Hp] [-j [--json-int, --json-pool-key-guid]] ...",
            "    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...",
        ],
    ),
    command(
        "set",
        &[
            "set <property=value> <pool>",
            "set <vdev_property=value> <pool> <vdev>",
        ],
    ),
    command("sync", &["sync [pool] ..."]),
    None,
    command(
        "wait",
        &["wait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]"],
    ),
    None,
    command("ddtprune", &["ddtprune -d|-p <amount> <pool>"]),
];

const ZFS: &[Option<Command>] = &[
    command("version", &["version [-j]"]),
    None,
    command(
        "create",
        &["create [-Pnpuv] [-o property=value] ... <filesystem>"],
    ),
    command(
        "destroy",
        &[
            "destroy [-fnpRrv] <filesystem|volume>",
            "destroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]",
            "destroy <filesystem|volume>#<bookmark>",
        ],
    ),
    None,
    command(
        "snapshot",
        &["snapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ..."],
    ),
    command("rollback", &["rollback [-rRf] <snapshot>"]),
    command(
        "clone",
        &["clone [-p] [-o property=value] ... <snapshot> <filesystem|volume>"],
    ),
    command("promote", &["promote <clone-filesystem>"]),
    command(
        "rename",
        &[
            "rename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>",
            "rename -p [-f] <filesystem|volume> <filesystem|volume>",
            "rename -u [-f] <filesystem> <filesystem>",
            "rename -r <snapshot> <snapshot>",
        ],
    ),
    command("bookmark", &["bookmark <snapshot|bookmark> <newbookmark>"]),
    command(
        "program",
        &[
            "program [-jn] [-t <instruction limit>] [-m <memory limit (b)>]",
            "    <pool> <program file> [lua args...]",
        ],
    ),
    None,
    command(
        "list",
        &[
            "list [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...",
            "    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...",
        ],
    ),
    None,
    command(
        "set",
        &["set [-u] <property=value> ... <filesystem|volume|snapshot> ..."],
    ),
    command(
        "get",
        &[
            "get [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]",
            "    [-t type[,...]] [-s source[,...]]",
            "    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...",
        ],
    ),
    command(
        "inherit",
        &["inherit [-rS] <property> <filesystem|volume|snapshot> ..."],
    ),
    command(
        "upgrade",
        &[
            "upgrade [-v]",
            "upgrade [-r] [-V version] <-a | filesystem ...>",
        ],
    ),
    None,
    command(
        "userspace",
        &[
            "userspace [-Hinp] [-o field[,...]] [-s field] ...",
            "    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>",
        ],
    ),
    command(
        "groupspace",
        &[
            "groupspace [-Hinp] [-o field[,...]] [-s field] ...",
            "    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>",
        ],
    ),
    command(
        "projectspace",
        &[
            "projectspace [-Hp] [-o field[,...]] [-s field] ... ",
            "    [-S field] ... <filesystem|snapshot|path>",
        ],
    ),
    None,
    command(
        "project",
        &[
            "project [-d|-r] <directory|file ...>",
            "project -c [-0] [-d|-r] [-p id] <directory|file ...>",
            "project -C [-k] [-r] <directory ...>",
            "project [-p id] [-r] [-s] <directory ...>",
        ],
    ),
    None,
    command(
        "mount",
        &[
            "mount [-j]",
            "mount [-flvO] [-o opts] <-a|-R filesystem|filesystem>",
        ],
    ),
    command("unmount", &["unmount [-fu] <-a | filesystem|mountpoint>"]),
    command("share", &["share [-l] <-a [nfs|smb] | filesystem>"]),
    command(
        "unshare",
        &["unshare <-a [nfs|smb] | filesystem|mountpoint>"],
    ),
    None,
    command(
        "send",
        &[
            "send [-DLPbcehnpsVvw] [-i|-I snapshot]",
            "     [-R [-X dataset[,dataset]...]]     <snapshot>",
            "send [-DnVvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>",
            "send [-DnPpVvLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>",
            "send [-nVvPe] -t <receive_resume_token>",
            "send [-PnVv] --saved filesystem",
        ],
    ),
    command(
        "receive",
        &[
            "receive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...",
            "    <filesystem|volume|snapshot>",
            "receive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... ",
            "    [-d | -e] <filesystem>",
            "receive -A <filesystem|volume>",
        ],
    ),
    None,
    command(
        "allow",
        &[
            "allow <filesystem|volume>",
            "allow [-ldug] <\"everyone\"|user|group>[,...] <perm|@setname>[,...]",
            "    <filesystem|volume>",
            "allow [-ld] -e <perm|@setname>[,...] <filesystem|volume>",
            "allow -c <perm|@setname>[,...] <filesystem|volume>",
            "allow -s @setname <perm|@setname>[,...] <filesystem|volume>",
        ],
    ),
    None,
    command(
        "unallow",
        &[
            "unallow [-rldug] <\"everyone\"|user|group>[,...]",
            "    [<perm|@setname>[,...]] <filesystem|volume>",
            "unallow [-rld] -e [<perm|@setname>[,...]] <filesystem|volume>",
            "unallow [-r] -c [<perm|@setname>[,...]] <filesystem|volume>",
            "unallow [-r] -s @setname [<perm|@setname>[,...]] <filesystem|volume>",
        ],
    ),
    None,
    command("hold", &["hold [-r] <tag> <snapshot> ..."]),
    command("holds", &["holds [-rHp] <snapshot> ..."]),
    command("release", &["release [-r] <tag> <snapshot> ..."]),
    command("diff", &["diff [-FHth] <snapshot> [snapshot|filesystem]"]),
    command(
        "load-key",
        &["load-key [-rn] [-L <keylocation>] <-a | filesystem|volume>"],
    ),
    command("unload-key", &["unload-key [-r] <-a | filesystem|volume>"]),
    command(
        "change-key",
        &[
            "change-key [-l] [-o keyformat=<value>]",
            "    [-o keylocation=<value>] [-o pbkdf2iters=<value>]",
            "    <filesystem|volume>",
            "change-key -i [-l] <filesystem|volume>",
        ],
    ),
    command(
        "redact",
        &["redact <snapshot> <bookmark> <redaction_snapshot> ..."],
    ),
    command("wait", &["wait [-t <activity>] <filesystem>"]),
    command("zone", &["zone <nsfile> <filesystem>"]),
    command("unzone", &["unzone <nsfile> <filesystem>"]),
];

/// The end of the usage message of a `zfs` command that takes properties.
const ZFS_VALUES: &str = "
Sizes are specified in bytes with standard units such as K, M, G, etc.

User-defined properties can be specified by using a name containing a colon (:).

The {user|group|project}[obj]{used|quota}@ properties must be appended with
a user|group|project specifier of one of these forms:
    POSIX name      (eg: \"matt\")
    POSIX id        (eg: \"126829\")
    SMB name@domain (eg: \"matt@sun\")
    SMB SID         (eg: \"S-1-234-567-89\")
";

/// The end of the usage message of every other `zfs` command.
const ZFS_MORE: &str = "
For the property list, run: zfs set|get

For the delegated permission list, run: zfs allow|unallow

For further help on a command or topic, run: zfs help [<topic>]
";

/// The usage message of a command, printed below an error in its arguments: its synopsis, and, for
/// commands that take properties, the table of them.
#[must_use]
pub fn usage(tool: Tool, command: &str) -> String {
    let kind = match tool {
        Tool::Zpool => TableKind::Pool,
        Tool::Zfs => TableKind::Dataset,
    };
    usage_with(tool, command, kind)
}

/// Like [`usage`], with another table of properties.
#[must_use]
pub fn usage_with(tool: Tool, command: &str, kind: TableKind) -> String {
    let mut out = "usage:\n".to_owned();
    let Some(command) = tool.command(command) else {
        return usage_of_all(tool, &|_| true);
    };
    push_synopsis(&mut out, command);
    let takes_properties = match tool {
        Tool::Zpool => ["set", "get", "list"].contains(&command.name),
        Tool::Zfs => ["set", "get", "inherit", "list"].contains(&command.name),
    };
    match (tool, takes_properties) {
        (Tool::Zfs, true) => {
            out += "\nThe following properties are supported:\n";
            out += &prop::help(kind);
            out += ZFS_VALUES;
        }
        (Tool::Zfs, false) => out += ZFS_MORE,
        (Tool::Zpool, true) => {
            out += "\nthe following properties are supported:\n";
            out += &prop::help(kind);
            if kind == TableKind::Vdev {
                return out;
            }
            out += "\nThe feature@ properties must be appended with a feature name.\n\
                    See zpool-features(7).\n";
        }
        (Tool::Zpool, false) => {}
    }
    out
}

/// The usage message of all commands for which `is_there` returns true.
#[must_use]
pub fn usage_of_all(tool: Tool, is_there: &dyn Fn(&str) -> bool) -> String {
    let mut out = format!(
        "usage: {} command args ...\nwhere 'command' is one of the following:\n",
        tool.name()
    );
    let mut is_gap = true;
    for entry in tool.commands() {
        match entry {
            None => is_gap = true,
            Some(command) if is_there(command.name) => {
                if std::mem::take(&mut is_gap) {
                    out.push('\n');
                }
                push_synopsis(&mut out, command);
            }
            Some(_) => {}
        }
    }
    if tool == Tool::Zfs {
        out += "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n";
        out += ZFS_MORE;
    } else {
        out += "\nFor further help on a command or topic, run: zpool help [<topic>]\n";
    }
    out
}

fn push_synopsis(out: &mut String, command: &Command) {
    for line in synopsis_here(command) {
        let _ = writeln!(out, "\t{line}");
    }
}

/// The synopsis of a command: OpenZFS's, without the options that are refused here.
fn synopsis_here(command: &Command) -> &'static [&'static str] {
    let here = |synopsis: &str| PARTIAL.iter().find(|(full, _)| full[0] == synopsis);
    command
        .synopsis
        .first()
        .and_then(|first| here(first))
        .map_or(command.synopsis, |(_, partial)| partial)
}

/// Commands of which some options are refused: the first line of OpenZFS's synopsis, and the lines
/// that replace all of it.
const PARTIAL: &[([&str; 1], &[&str])] = &[
    (
        ["status [--power] [-j [--json-int, --json-flat-vdevs, ..."],
        &[
            "status [-j [--json-int, --json-flat-vdevs, ...",
            "    --json-pool-key-guid]] [-c [script1,script2,...]] [-dDegiLpPstvx] ...",
            "    [-T d|u] [pool] [interval [count]]",
        ],
    ),
    (
        ["online [--power][-e] <pool> <device> ..."],
        &["online [-e] <pool> <device> ..."],
    ),
    (
        ["offline [--power]|[[-f][-t]] <pool> <device> ..."],
        &["offline [-f][-t] <pool> <device> ..."],
    ),
    (
        ["clear [[--power]|[-nF]] <pool> [device]"],
        &["clear [-nF] <pool> [device]"],
    ),
    (
        ["wait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]"],
        &["wait [-t <activity>[,...]] <pool>"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{case, cases};

    /// The form of OpenZFS's `zfs create` that is refused here.
    const ZFS_CREATE_VOLUME: &str =
        "\tcreate [-Pnpsv] [-b blocksize] [-o property=value] ... -V <size> <volume>\n";
    const ZFS_USAGE: &str = include_str!("../tests/golden/zfs-usage.txt");
    const ZPOOL_USAGE: &str = include_str!("../tests/golden/zpool-usage.txt");

    /// What OpenZFS 2.3 prints, with what is as in 2.4 here: `zpool prefetch` and `special_small_blocks`.
    fn as_of_2_4(text: &str) -> String {
        let old = "\tprefetch -t <type> [<type opts>] <pool>\n\t    -t ddt <pool>\n";
        text.replace(old, "\tprefetch [-t <type>] <pool>\n")
            .replace("zero or 512 to 1M, power of 2", "0 to 16M")
    }

    #[test]
    fn commands_stand_in_openzfs_order() {
        for (tool, text) in [(Tool::Zpool, ZPOOL_USAGE), (Tool::Zfs, ZFS_USAGE)] {
            let real = as_of_2_4(&case(text, tool.name()).stderr);
            let full = |command: &Command| {
                let lines = command.synopsis.iter();
                lines.map(|line| format!("\t{line}\n")).collect::<String>()
            };
            let mut ours = "following:\n\n".to_owned();
            for entry in tool.commands() {
                ours += &entry.as_ref().map_or("\n".to_owned(), full);
            }
            let synopses = |text: &str| -> String {
                let from = text.find("following:\n").unwrap();
                let lines = text[from..].lines().skip(1);
                let all: Vec<&str> = lines
                    .take_while(|l| l.is_empty() || l.starts_with('\t'))
                    .collect();
                all.join("\n").trim_end().to_owned()
            };
            let real = synopses(&real).replace(ZFS_CREATE_VOLUME, "");
            assert_eq!(synopses(&ours), real);
        }
    }

    #[test]
    fn each_command_has_openzfs_synopsis() {
        let mut checked = 0;
        for (tool, text) in [(Tool::Zpool, ZPOOL_USAGE), (Tool::Zfs, ZFS_USAGE)] {
            for case in cases(text) {
                let args = case.args();
                let name = args.first().copied().unwrap_or("");
                let Some((_, real)) = case.stderr.split_once("usage:\n") else {
                    continue;
                };
                let real = as_of_2_4(real);
                let Some(known) = tool.command(name) else {
                    continue;
                };
                if tool == Tool::Zfs {
                    let real = real.replace(ZFS_CREATE_VOLUME, "");
                    assert_eq!(usage(tool, name), format!("usage:\n{real}"), "{name}");
                    checked += 1;
                    continue;
                }
                let synopsis: Vec<String> = real
                    .lines()
                    .map_while(|l| l.strip_prefix('\t').map(str::to_owned))
                    .collect();
                assert_eq!(known.synopsis, synopsis, "{name}");
                checked += 1;
            }
        }
        assert!(checked > 50, "only {checked} cases");
    }

    #[test]
    fn commands_that_are_not_there_leave_no_gap() {
        let text = usage_of_all(Tool::Zfs, &|name| ["list", "hold"].contains(&name));
        let (list, _) = text.split_once("\nEach dataset").unwrap();
        assert_eq!(list.matches("\n\n").count(), 2);
        assert!(
            Tool::Zfs
                .command("umount")
                .is_some_and(|c| c.name == "unmount")
        );
        assert!(Tool::Zpool.command("snap").is_none());
    }
}
