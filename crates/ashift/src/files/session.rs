//! The pools and datasets that one command has open.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::{Error, ErrorKind, ObjectId, Result};
use zpl::mount::{Mount, mount};

use super::glob::{expand, is_pattern};
use crate::host::{Access, Host, OpenPools};
use crate::mounted::{below, mounted};

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
    text.starts_with('/') && (crate::machine::state_of_current().is_some() || !is_on_host(text))
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

/// The pools and datasets of one command.
pub(crate) struct Session {
    // Declared first, so that mounts are dropped before the pools they are in.
    mounts: RefCell<BTreeMap<String, Rc<Mount>>>,
    pools: OpenPools,
}

impl Session {
    pub(crate) fn new(access: Access) -> Session {
        Session::on(Host::here(), access)
    }

    /// A session with another state folder.
    pub(crate) fn with_state(state: &Path, access: Access) -> Session {
        Session::on(Host::with_state(state.to_owned()), access)
    }

    fn on(host: Host, access: Access) -> Session {
        Session {
            mounts: RefCell::default(),
            pools: OpenPools::new(host, access),
        }
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
        for (name, _) in self.pools.host.pools()? {
            let pool = match self.pools.get(&name) {
                Ok(pool) => pool,
                Err(error) => {
                    let is_likely = below(text, &format!("/{name}")).is_some();
                    let in_machine = crate::machine::state_of_current().is_some();
                    if is_likely || (in_machine && !is_on_host(text)) {
                        closed.get_or_insert(error);
                    }
                    continue;
                }
            };
            for (mountpoint, dataset) in mounted(&pool)? {
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
        let pools = self.pools.host.pools()?.into_iter().map(|(name, _)| {
            let datasets = self.pools.get(&name).and_then(|pool| mounted(&pool));
            (name, datasets)
        });
        Ok(pools.collect())
    }

    /// The dataset that an operand is in, and the path in it.
    pub(super) fn find(&self, text: &str) -> Result<(Rc<Mount>, String)> {
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
    pub(super) fn find_file(&self, text: &str, follow: bool) -> Result<(Rc<Mount>, ObjectId)> {
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
    pub(crate) fn mount(&self, name: &str) -> Result<Rc<Mount>> {
        if let Some(mount) = self.mounts.borrow().get(name) {
            return Ok(mount.clone());
        }
        let pool_name = name.split(['/', '@']).next().unwrap_or(name);
        let pool = self.pools.get(pool_name).map_err(|e| {
            let is_image = e.kind() == ErrorKind::NotFound && Path::new(name).is_file();
            if is_image { not_imported(name) } else { e }
        })?;
        let readonly = self.pools.access == Access::Read || pool.is_readonly();
        let mount = mount(pool.dsl(), name, readonly).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::new(
                e.kind(),
                format!("cannot open '{name}': data set does not exist"),
            ),
            _ => e,
        })?;
        let mount = Rc::new(mount);
        self.mounts
            .borrow_mut()
            .insert(name.to_owned(), mount.clone());
        Ok(mount)
    }

    /// Syncs everything to disk and closes the pools.
    pub(crate) fn close(self) -> Result<()> {
        self.mounts.borrow_mut().clear();
        for pool in self.pools.take().into_values() {
            pool.close()?;
        }
        Ok(())
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
