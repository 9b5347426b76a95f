//! What `help` says of each command.

use gpart::parted::{FLAGS, PMBR_BOOT, SYSTEMS, Unit};

use super::label::LABELS;
use super::prompt::COLUMNS;
use super::words::fold;

const NUMBER: &str = "NUMBER is the partition number.\n";
const LOCATION: &str = "is a place on the disk, such as 4GB or 10%. Negative values count from its end: -1s is the last \
                        sector.\n";
const STATE: &str = "STATE is one of: on, off\n";

/// Columns of what follows the first line.
const INDENT: usize = 8;

/// The line of a command in the list.
pub(super) fn summary(name: &str) -> Option<&'static str> {
    Some(match name {
        "align-check" => {
            "align-check TYPE N                       check partition N for TYPE(min|opt) alignment"
        }
        "help" => "help [COMMAND]                           print general help, or help on COMMAND",
        "mklabel" => {
            "mklabel,mktable LABEL-TYPE               create a new disklabel (partition table)"
        }
        "mkpart" => "mkpart PART-TYPE [FS-TYPE] START END     make a partition",
        "name" => "name NUMBER NAME                         name partition NUMBER as NAME",
        "print" => {
            "print [devices|free|list,all]            display the partition table, or available devices, or free space, \
             or all found partitions"
        }
        "quit" => "quit                                     exit program",
        "resizepart" => "resizepart NUMBER END                    resize partition NUMBER",
        "rm" => "rm NUMBER                                delete partition NUMBER",
        "select" => "select DEVICE                            choose the device to edit",
        "disk_set" => "disk_set FLAG STATE                      change the FLAG on selected device",
        "disk_toggle" => {
            "disk_toggle [FLAG]                       toggle the state of FLAG on selected device"
        }
        "set" => "set NUMBER FLAG STATE                    change the FLAG on partition NUMBER",
        "toggle" => {
            "toggle [NUMBER [FLAG]]                   toggle the state of FLAG on partition NUMBER"
        }
        "unit" => "unit UNIT                                set the default unit to UNIT",
        "version" => "version                                  display the version number",
        _ => return None,
    })
}

/// What `help NAME` says besides.
fn details(name: &str) -> String {
    let one_of = |what: &str, names: &[&str]| format!("{what} is one of: {}\n", names.join(", "));
    match name {
        "align-check" => format!("{NUMBER}TYPE is one of: minimal, optimal\n"),
        "mklabel" => one_of("LABEL-TYPE", LABELS),
        "mkpart" => {
            let kinds = one_of("PART-TYPE", &["primary", "logical", "extended"]);
            let systems = one_of("FS-TYPE", SYSTEMS);
            format!(
                "{kinds}{systems}START or END {LOCATION}No file system is made: FS-TYPE only sets the type of the \
                 partition. A GPT has names instead of PART-TYPE.\n"
            )
        }
        "name" => format!("{NUMBER}NAME is any word.\n"),
        "print" => "devices: all drives of the machine\nfree: free space, too\nlist, all: the tables of all drives of \
                    the machine\n"
            .to_owned(),
        "resizepart" => format!("{NUMBER}END {LOCATION}"),
        "rm" => NUMBER.to_owned(),
        "select" => "DEVICE is a drive of the machine, or on a host the path of an image or block device.\n".to_owned(),
        "disk_set" => one_of("FLAG", &[PMBR_BOOT]) + STATE,
        "disk_toggle" => one_of("FLAG", &[PMBR_BOOT]),
        "set" => format!("{NUMBER}{}{STATE}", one_of("FLAG", FLAGS)),
        "toggle" => format!("{NUMBER}{}", one_of("FLAG", FLAGS)),
        "unit" => one_of("UNIT", &Unit::names()),
        _ => String::new(),
    }
}

/// The list of commands.
pub(super) fn print_all<'a>(names: impl Iterator<Item = &'a str>) {
    names.for_each(print_summary);
}

fn print_summary(name: &str) {
    if let Some(text) = summary(name) {
        println!("  {}", fold(text, COLUMNS, 2, INDENT));
    }
}

/// What there is to say of a command.
pub(super) fn print_one(name: &str) {
    print_summary(name);
    let details = details(name);
    if !details.is_empty() {
        let details = details.trim_end();
        println!("\n\t{}", fold(details, COLUMNS, INDENT, INDENT));
    }
}
