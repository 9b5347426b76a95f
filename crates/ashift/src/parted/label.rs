//! `mklabel`: a new table.

use geom::Provider;
use gpart::{Era, Scheme, Table};

use super::commands::Words;
use super::fail;
use super::session::Session;
use crate::failure::{Fail, Outcome};

impl Session<'_> {
    pub(super) fn mklabel(&mut self, words: &mut Words<'_>) -> Outcome {
        let scheme = match words.next() {
            Some("gpt") => Scheme::Gpt,
            Some("msdos" | "mbr") => Scheme::Mbr,
            Some(
                other @ ("aix" | "amiga" | "atari" | "bsd" | "dvh" | "mac" | "pc98" | "sun"
                | "loop"),
            ) => {
                return fail(format!("Error: label type {other} is not kept up here"));
            }
            Some(other) => {
                return fail(format!(
                    "parted: invalid token: {other}\nError: Expecting a disk label type."
                ));
            }
            None => return fail("Error: Expecting a disk label type."),
        };
        let old = Table::read(&*self.reader);
        if !self.world.holders(&self.device)?.is_empty() {
            let path = &self.disk.path;
            let kind = if self.options.is_script {
                "Error"
            } else {
                "Warning"
            };
            return fail(format!("{kind}: Partition(s) on {path} are being used."));
        }
        if matches!(&old, Ok(Some(_))) {
            let path = &self.disk.path;
            self.confirm(
                &format!(
                    "Warning: The existing disk label on {path} will be destroyed and all data on this \
                     disk will be lost. Do you want to continue?"
                ),
                true,
            )?;
        }
        let table = Table::create(scheme, self.shape, None, Era::Nine).map_err(|_| {
            let name = if scheme == Scheme::Gpt {
                "GPT"
            } else {
                "MSDOS"
            };
            Fail::Failed(format!("device is too small for {name}"))
        })?;
        let writer = self.writer()?;
        match old {
            Ok(Some(old)) => old.destroy(&*writer)?,
            Err(_) => wipe(&*writer)?,
            Ok(None) => {}
        }
        self.commit(table)
    }
}

/// Wipes GPT headers that are all damaged.
fn wipe(provider: &dyn Provider) -> Outcome {
    let sector = u64::from(provider.sectorsize());
    let zeros = vec![0; provider.sectorsize() as usize];
    let last = provider.mediasize() / sector - 1;
    for lba in [0, 1, last] {
        provider.write(lba * sector, &zeros)?;
    }
    Ok(())
}
