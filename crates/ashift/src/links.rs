//! `ashift links DIR`: symbolic links by which `zpool`, `zfs` and `zdb` mean this program.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

const NAMES: [&str; 3] = ["zpool", "zfs", "zdb"];

const USAGE: &str = "usage: ashift links DIR\n\nPuts links named zpool, zfs and zdb into DIR that \
                     run this program.\nDIR is made if it is not there; what is in it already is left alone, \
                     unless it is such a link.\n";

/// Runs `links ARGS`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    match args {
        [arg] if arg == "-h" || arg == "--help" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        [dir] => match make(Path::new(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(text) => crate::say::fail("ashift links", 1, &text),
        },
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn make(dir: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for name in NAMES {
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
