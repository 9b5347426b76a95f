//! Comparing the referenced bytes that datasets record with those counted.
//!
//! # What it is
//! A dataset references what its previous snapshot references, less what it has freed since (its
//! deadlist), plus what was born in it since (the blocks that the walk visited in it).
//!
//! # Source
//! OpenZFS `module/zfs/dsl_dataset.c` (`dsl_dataset_block_born`, `_kill`), `dsl_deadlist.c`.

use std::collections::BTreeMap;

use base::{ObjectId, ObjsetId, Result};
use dmu::Objset;
use phys::dsl::BPOBJ_SIZE_V0;
use phys::{BpobjPhys, DeadlistPhys, DslDatasetPhys, ObjectType, Phys};

use crate::lists::bonus;
use crate::walk::Tally;
use crate::{Finding, Pool};

/// Checks every dataset visited.
pub(crate) fn check(_pool: &Pool, mos: &Objset, tally: &mut Tally) {
    // Blocks that could not be read were not counted, so there is nothing to compare.
    if tally
        .findings
        .iter()
        .any(|f| matches!(f, Finding::Unreadable { .. }))
    {
        return;
    }
    let by_id: BTreeMap<ObjsetId, &DslDatasetPhys> =
        tally.datasets.iter().map(|d| (d.id, &d.phys)).collect();
    let mut findings = Vec::new();
    for (id, phys) in &by_id {
        let previous = ObjsetId(phys.prev_snap_obj.get());
        let inherited = match by_id.get(&previous) {
            _ if previous.0 == 0 => 0,
            Some(previous) => previous.referenced_bytes.get(),
            None => {
                let what = format!("previous snapshot {previous} is not a dataset");
                findings.push(Finding::BadObject {
                    objset: ObjsetId(0),
                    object: ObjectId(id.0),
                    what,
                });
                continue;
            }
        };
        let dead = match deadlist_used(mos, ObjectId(phys.deadlist_obj.get())) {
            Ok(dead) => dead,
            Err(error) => {
                findings.push(Finding::BadObject {
                    objset: ObjsetId(0),
                    object: ObjectId(id.0),
                    what: format!("deadlist: {error}"),
                });
                continue;
            }
        };
        let born = tally.born.get(id).copied().unwrap_or_default();
        let recorded = phys.referenced_bytes.get();
        let counted = inherited.wrapping_add(born).wrapping_sub(dead);
        if recorded != counted {
            findings.push(Finding::Referenced {
                dataset: *id,
                recorded,
                counted,
            });
        }
    }
    tally.findings.append(&mut findings);
}

/// Bytes on a deadlist, which in old pools is a bpobj.
fn deadlist_used(mos: &Objset, object: ObjectId) -> Result<u64> {
    if object.0 == 0 {
        return Ok(0);
    }
    let dnode = mos.hold(object)?;
    if dnode.type_() == ObjectType::BPOBJ {
        return Ok(bonus::<BpobjPhys>(&dnode, BPOBJ_SIZE_V0)?.bytes.get());
    }
    Ok(bonus::<DeadlistPhys>(&dnode, DeadlistPhys::SIZE)?
        .used
        .get())
}
