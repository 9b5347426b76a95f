//! Copies that only the entries of dedup tables have.
//!
//! # What it is
//! An entry of a table of `fast_dedup` is given more copies when a pointer wants more than it has. Pointers from
//! before keep their fewer ones, and may outlive those that have all; the copies stay until the last pointer goes.
//!
//! # Source
//! OpenZFS `cmd/zdb/zdb.c` (`zdb_count_block`), which puts the copies of the entry into every pointer.

use std::sync::Arc;

use base::Result;
use ddt::Ddts;
use dmu::Objset;

use crate::Finding;
use crate::space::Space;
use crate::walk::Tally;

/// Claims the copies of entries whose blocks were found; returns the bytes that no pointer led to.
pub(crate) fn claim(mos: &Arc<Objset>, space: &Space, tally: &mut Tally) -> u64 {
    let mut bytes = 0;
    let result = each_flat(mos, &mut |entry| {
        let [_, block, ..] = &entry.phys;
        let copies: Vec<_> = block.dvas().copied().collect();
        bytes += space.claim_further(&copies, &mut tally.findings);
    });
    if let Err(error) = result {
        let what = format!("copies in dedup tables: {error}");
        tally.findings.push(Finding::NotChecked { what });
    }
    bytes
}

/// The entries of the tables of `fast_dedup`.
fn each_flat(mos: &Arc<Objset>, each: &mut dyn FnMut(&ddt::DdtEntry)) -> Result<()> {
    let tables = Ddts::open(mos, true, &|dva| dva.asize())?;
    if tables.tables().all(|table| table.flags() == 0) {
        return Ok(());
    }
    tables.walk(&mut |_, _, entry| {
        if entry.class_start.is_some() {
            each(&entry);
        }
        Ok(())
    })
}
