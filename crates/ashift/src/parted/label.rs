//! `mklabel`: a new table.

use geom::Provider;
use gpart::{Era, Scheme, Table};
use machine::Holder;

use super::fail;
use super::prompt::Question;
use super::session::Session;
use crate::failure::{Fail, Outcome};

/// The tables that parted knows.
pub(super) const LABELS: &[&str] = &[
    "aix", "amiga", "bsd", "dvh", "gpt", "mac", "msdos", "pc98", "sun", "atari", "loop",
];

impl Session<'_> {
    pub(super) fn mklabel(&mut self) -> Outcome {
        let question = Question::new("New disk label type?").among(LABELS);
        let scheme = match self.prompt.word(question).as_deref() {
            Some("gpt") => Scheme::Gpt,
            Some("msdos") => Scheme::Mbr,
            Some(other) => {
                return fail(format!("Error: label type {other} is not kept up here"));
            }
            None => return fail("Error: Expecting a disk label type."),
        };
        let old = Table::read(&*self.at.reader);
        let path = self.at.disk.path.clone();
        let mut holders = self.world.holders(&self.at.name)?;
        // not this session itself
        holders.retain(|holder| self.at.writer.is_none() || *holder != Holder::Table);
        if !holders.is_empty() {
            let kind = if self.options.is_script {
                "Error"
            } else {
                "Warning"
            };
            let text = format!("{kind}: Partition(s) on {path} are being used.");
            if self.prompt.throw(&text, &["Ignore", "Cancel"]) != Some("Ignore") {
                return Err(Fail::Said(1));
            }
        }
        if matches!(&old, Ok(Some(_))) && !self.options.is_script {
            self.prompt.confirm(&format!(
                "Warning: The existing disk label on {path} will be destroyed and all data on this disk \
                 will be lost. Do you want to continue?"
            ))?;
        }
        let table = Table::create(scheme, self.at.shape, None, Era::Nine).map_err(|_| {
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
        self.commit(table)?;
        self.at.marks.clear();
        Ok(())
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
