//! `ashift links DIR`: symbolic links by which `zpool`, `gpart` and so on mean this program.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

const USAGE: &str = "usage: ashift links DIR\n\nPuts links into DIR that run this program, one for each \
                     tool that it stands for:\n";
const USAGE_END: &str = "DIR is made if it is not there; what is in it already is left alone, \
                         unless it is such a link.\n";

fn usage() -> String {
    let tools: Vec<&str> = crate::tools().collect();
    format!("{USAGE}{}.\n{USAGE_END}", tools.join(" "))
}

/// Its usage names the tools, and is printed here for that reason.
pub(crate) const LINKS: Command<Entry> = Command::words(
    "links",
    "make links named zpool, zfs, gpart and so on",
    "",
    run,
)
.apart();

fn run(args: &[String]) -> Outcome {
    match args {
        [arg] if arg == "-h" || arg == "--help" => print!("{}", usage()),
        [dir] => make(Path::new(dir))?,
        _ => {
            eprint!("{}", usage());
            return Fail::exit(2);
        }
    }
    Ok(())
}

fn make(dir: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for name in crate::tools() {
        let link = dir.join(name);
        let within = |e: std::io::Error| format!("{}: {e}", link.display());
        match symlink(&program, &link) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let target = fs::read_link(&link).map_err(|_| within(e))?;
                if target != program {
                    let target = target.display();
                    return Err(format!("{}: links to {target} already", link.display()));
                }
            }
            Err(e) => return Err(within(e)),
        }
        println!("{} -> {}", link.display(), program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_link_is_a_command() {
        for name in crate::tools() {
            assert!(crate::is_command(name), "{name}");
        }
    }
}
