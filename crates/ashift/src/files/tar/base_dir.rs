//! `-C`: where names that are not absolute begin.

use std::path::PathBuf;

use base::Result;

use super::super::{Location, Paths};

/// A directory of the host or in a data set.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct BaseDir(Location);

impl Default for BaseDir {
    fn default() -> BaseDir {
        BaseDir(Location::Host(PathBuf::new()))
    }
}

fn is_relative(text: &str) -> bool {
    !text.starts_with('/') && matches!(Location::parse(text), Location::Host(_))
}

impl BaseDir {
    /// The directory itself.
    pub(super) fn location(&self) -> Location {
        match &self.0 {
            Location::Host(path) if path.as_os_str().is_empty() => Location::Host(".".into()),
            other => other.clone(),
        }
    }

    /// Goes into another one, from here.
    ///
    /// # Errors
    /// Those of pools that cannot be opened.
    pub(super) fn enter(&mut self, paths: &Paths, text: &str) -> Result<()> {
        self.0 = self.locate(paths, text)?;
        Ok(())
    }

    fn locate(&self, paths: &Paths, text: &str) -> Result<Location> {
        match &self.0 {
            _ if !is_relative(text) => paths.locate(text),
            Location::Host(dir) => Ok(Location::Host(dir.join(text))),
            Location::Pool(name, dir) => {
                let path = format!("{dir}/{text}");
                Ok(Location::Pool(
                    name.clone(),
                    path.trim_matches('/').to_owned(),
                ))
            }
        }
    }

    /// The files that an operand means, and what they are called in an archive: several for a pattern in a pool.
    ///
    /// # Errors
    /// Those of pools that cannot be opened.
    pub(super) fn files(&self, paths: &Paths, text: &str) -> Result<Vec<(Location, Vec<u8>)>> {
        let location = self.locate(paths, text)?;
        let name = match Location::parse(text) {
            Location::Host(_) => text.to_owned(),
            Location::Pool(_, path) => path,
        };
        let Location::Pool(..) = &location else {
            return Ok(vec![(location, name.into_bytes())]);
        };
        let typed = location.to_string();
        let found = paths.expand(std::slice::from_ref(&typed));
        if found == [typed] {
            return Ok(vec![(location, name.into_bytes())]);
        }
        let begin = match &self.0 {
            Location::Pool(_, dir) if is_relative(text) && !dir.is_empty() => dir.len() + 1,
            _ => 0,
        };
        let files = found.into_iter().map(|found| {
            let location = Location::parse(&found);
            let path = super::path_of(&location);
            let name = path.get(begin..).unwrap_or(&path).as_bytes().to_vec();
            (location, name)
        });
        Ok(files.collect())
    }
}
