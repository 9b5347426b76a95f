//! Programs that tests run on what ashift made.

use std::path::PathBuf;

/// Where a program is: among PostgreSQL's, in `PATH`, where Debian keeps those of the administrator, or where cargo
/// installs its own.
#[must_use]
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    // PostgreSQL's first: a link to one of them elsewhere has none of the others beside it.
    postgresql()
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(administrators)
        .chain(cargos())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Whether a program is installed; if not, reports what to install.
#[must_use]
pub fn have_tool(name: &str) -> bool {
    let is_there = find_tool(name).is_some();
    if !is_there {
        crate::skip(&format!("the program {name} is missing"));
    }
    is_there
}

/// The folder of the newest PostgreSQL's programs.
fn postgresql() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions.flatten().max_by_key(|version| {
        let name = version.file_name();
        name.to_str().and_then(|name| name.parse::<u32>().ok())
    });
    Some(newest?.path().join("bin"))
}

/// The folder of the programs that cargo has installed.
fn cargos() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    Some(home?.join("bin"))
}
