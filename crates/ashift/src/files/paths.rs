//! The files that operands name, on this host and in pools.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ObjectId, Result};
use service::{Access, Session, below};
use zpl::mount::Mount;

use super::glob::{expand, is_pattern};
use crate::session::{session, session_in};

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// On this host.
    Host(PathBuf),
    /// In a dataset or snapshot: its name, and the path in it.
    Pool(String, String),
}

impl Location {
    /// Reads an operand. If `:/` or a final `:` follows a possible dataset name, it is in a pool; `./a:/b`
    /// is on the host.
    pub(crate) fn parse(text: &str) -> Location {
        let (name, path) = match text.split_once(":/") {
            Some((name, path)) => (name, path),
            None => match text.strip_suffix(':') {
                Some(name) => (name, ""),
                None => return Location::Host(text.into()),
            },
        };
        if name.is_empty() || name.starts_with(['/', '.']) {
            return Location::Host(text.into());
        }
        Location::Pool(name.to_owned(), path.trim_end_matches('/').to_owned())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Host(path) => write!(f, "{}", path.display()),
            Location::Pool(name, path) => write!(f, "{name}:/{path}"),
        }
    }
}

/// Whether a path may lead to where a dataset is mounted. In a machine all datasets are mounted; on the
/// host they would be, and existing host files take precedence.
pub(crate) fn may_be_mounted(text: &str) -> bool {
    text.starts_with('/') && (crate::world::is_machine() || !is_on_host(text))
}

/// Whether the host has a file at this path, or could create one.
fn is_on_host(text: &str) -> bool {
    let path = Path::new(text);
    path.symlink_metadata().is_ok()
        || path
            .parent()
            .is_some_and(|p| p.exists() && p != Path::new("/"))
}

/// The error for a file `image` given in place of a pool.
fn not_imported(image: &str) -> Error {
    let text =
        format!("'{image}' is a file; import the pool on it first: ashift zpool import -d {image}");
    Error::invalid(text)
}

/// Mountpoints and names of mounted file systems.
type Mountpoints = Vec<(String, String)>;

/// The files that the operands of one command name, in the pools of its session.
pub(crate) struct Paths(Session);

impl Paths {
    pub(crate) fn new(access: Access) -> Paths {
        Paths(session(access, ""))
    }

    /// Those in the pools of another state folder, to be read.
    pub(crate) fn in_state(state: &Path) -> Result<Paths> {
        Ok(Paths(session_in(state.to_owned())?))
    }

    /// Reads an operand like [`Location::parse`], but an absolute path may lead to where a dataset is
    /// mounted ([`may_be_mounted`]). Any other path is on the host.
    pub(crate) fn locate(&self, text: &str) -> Result<Location> {
        let location = Location::parse(text);
        if !may_be_mounted(text) {
            return Ok(location);
        }
        let mut best: Option<(usize, Location)> = None;
        let mut closed = None;
        for name in self.0.pools().names()? {
            let pool = match self.0.pool(&name) {
                Ok(pool) => pool,
                Err(error) => {
                    let is_likely = below(text, &format!("/{name}")).is_some();
                    let in_machine = crate::world::is_machine();
                    if is_likely || (in_machine && !is_on_host(text)) {
                        closed.get_or_insert(error);
                    }
                    continue;
                }
            };
            for (mountpoint, dataset) in pool.mountpoints()? {
                let Some(path) = below(text, &mountpoint) else {
                    continue;
                };
                if best.as_ref().is_none_or(|(len, _)| *len < mountpoint.len()) {
                    let location = Location::Pool(dataset, path.to_owned());
                    best = Some((mountpoint.len(), location));
                }
            }
        }
        match (best, closed) {
            (Some((_, location)), _) => Ok(location),
            // The path may be in the pool that could not be opened, and must not be taken for one of the
            // host.
            (None, Some(error)) => Err(error),
            (None, None) => Ok(location),
        }
    }

    /// Each pool, with mountpoints and names of its mounted file systems.
    pub(super) fn mounted(&self) -> Result<Vec<(String, Result<Mountpoints>)>> {
        let pools = self.0.pools().names()?.into_iter().map(|name| {
            let datasets = self.0.pool(&name).and_then(|pool| pool.mountpoints());
            (name, datasets)
        });
        Ok(pools.collect())
    }

    /// The dataset that an operand is in, and the path in it.
    pub(super) fn find(&self, text: &str) -> Result<(Arc<Mount>, String)> {
        match self.locate(text)? {
            Location::Pool(name, path) => Ok((self.mount(&name)?, path)),
            Location::Host(_) => {
                let image = text.split_once(":/").map_or(text, |(image, _)| image);
                if Path::new(image).is_file() && image != text {
                    return Err(not_imported(image));
                }
                let text = "not a path in a pool (POOL/DATASET:/path): use the host's own tools";
                Err(Error::invalid(text))
            }
        }
    }

    /// The file that an operand names; a link at its end is followed if `follow`, or if a slash comes after
    /// it.
    pub(super) fn find_file(&self, text: &str, follow: bool) -> Result<(Arc<Mount>, ObjectId)> {
        let (mount, path) = self.find(text)?;
        let id = if follow || text.ends_with('/') {
            mount.resolve(&path)?
        } else {
            mount.resolve_link(&path)?
        };
        Ok((mount, id))
    }

    /// Replaces operands with patterns in pool paths by the names that match. The others stay as they are,
    /// as do those that cannot be read: the command that uses them will report why.
    pub(super) fn expand(&self, operands: &[String]) -> Vec<String> {
        let matching = |operand: &String| -> Option<Vec<String>> {
            if !is_pattern(operand) {
                return None;
            }
            let Location::Pool(name, path) = self.locate(operand).ok()? else {
                return None;
            };
            let paths = expand(&*self.mount(&name).ok()?, &path);
            let found: Vec<_> = paths.iter().map(|path| format!("{name}:/{path}")).collect();
            (!found.is_empty()).then_some(found)
        };
        let all = operands
            .iter()
            .map(|operand| matching(operand).unwrap_or_else(|| vec![operand.clone()]));
        all.flatten().collect()
    }

    /// The file system of a dataset or snapshot.
    pub(crate) fn mount(&self, name: &str) -> Result<Arc<Mount>> {
        self.0.mount(name).map_err(|e| {
            let pool = name.split(['/', '@']).next().unwrap_or(name);
            let is_imported = self.0.pools().is_imported(pool).unwrap_or(true);
            let is_image = !is_imported && Path::new(name).is_file();
            if is_image { not_imported(name) } else { e }
        })
    }

    /// Syncs everything to disk and closes the pools.
    pub(crate) fn close(self) -> Result<()> {
        self.0.close().map_err(service::Failure::into_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_pools_have_a_colon_and_a_slash() {
        let pool = |name: &str, path: &str| Location::Pool(name.into(), path.into());
        assert_eq!(Location::parse("tank/a:/b/c"), pool("tank/a", "b/c"));
        assert_eq!(Location::parse("tank/a@s:/"), pool("tank/a@s", ""));
        assert_eq!(Location::parse("tank:"), pool("tank", ""));
        assert_eq!(
            Location::parse("/tank:/a"),
            Location::Host("/tank:/a".into())
        );
        assert_eq!(
            Location::parse("./tank:/a"),
            Location::Host("./tank:/a".into())
        );
        assert_eq!(Location::parse("plain"), Location::Host("plain".into()));
    }
}
