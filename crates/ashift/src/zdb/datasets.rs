//! `zdb -d`: objsets and what is in them.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_objset`, `dump_zpool`).

use std::io::Write;
use std::sync::Arc;

use base::{ErrorKind, ObjectId, Result, Txg};
use compress::{Algorithm, ZstdLevel};
use dmu::{ObjectWalk, Objset};
use dsl::DslDataset;
use phys::ObjsetType;
use serde_json::json;
use zio::LogStore;

use super::objects::{Dumper, write_object};
use super::pool::Pool;
use super::request::Request;
use super::targets::{Range, words};
use super::text::Printer;
use super::{bookmarks, dtl, features, intent_log, lists};

/// `DMU_USERUSED_OBJECT`, `DMU_GROUPUSED_OBJECT`, `DMU_PROJECTUSED_OBJECT`
const SPECIAL: [ObjectId; 3] = [
    ObjectId(u64::MAX),
    ObjectId(u64::MAX - 1),
    ObjectId(u64::MAX - 2),
];
/// `TXG_INITIAL`: when the MOS was made, as zdb has it.
const MOS_TXG: u64 = 4;

/// An objset with the data for its heading.
pub(super) struct Subject {
    name: String,
    pub(super) objset: Arc<Objset>,
    creation_txg: u64,
    referenced: u64,
    dataset: Option<Arc<DslDataset>>,
    dsl: Arc<dsl::DslPool>,
    pub(super) pipeline: Arc<zio::Pipeline>,
    /// The first txg that is not on disk.
    pub(super) next_txg: Txg,
}

impl Subject {
    /// A dataset or a snapshot.
    pub(super) fn of(pool: &Pool, name: &str, dataset: &Arc<DslDataset>) -> Result<Subject> {
        let fields = dataset.fields();
        Ok(Subject {
            name: name.to_owned(),
            objset: dataset.objset()?,
            creation_txg: fields.creation_txg,
            referenced: fields.referenced_bytes,
            dataset: Some(dataset.clone()),
            dsl: pool.parts().dsl().clone(),
            pipeline: pool.parts().pipeline().clone(),
            next_txg: pool.uberblock().txg().next(),
        })
    }

    /// The MOS.
    pub(super) fn mos(pool: &Pool) -> Subject {
        Subject {
            name: "mos".to_owned(),
            objset: pool.parts().mos().clone(),
            creation_txg: MOS_TXG,
            referenced: pool.parts().dsl().mos_dir().fields().used_bytes,
            dataset: None,
            dsl: pool.parts().dsl().clone(),
            pipeline: pool.parts().pipeline().clone(),
            next_txg: pool.uberblock().txg().next(),
        }
    }

    /// The compression of writes to the objset, as zdb names it.
    #[doc(alias = "os_compress")]
    pub(super) fn compress(&self) -> String {
        match &self.dataset {
            None => "on".to_owned(),
            Some(dataset) if dataset.is_snapshot() => "inherit".to_owned(),
            Some(_) => match self.objset.props().compress {
                Algorithm::On => Algorithm::Lz4.kind().name().to_owned(),
                // zdb looks up the algorithm's name with its level, and has none for these.
                other @ (Algorithm::Gzip(_) | Algorithm::Zstd(ZstdLevel::DEFAULT)) => {
                    format!("{}-unknown", other.kind().name())
                }
                zstd @ Algorithm::Zstd(_) => zstd.to_string(),
                other => other.kind().name().to_owned(),
            },
        }
    }

    /// The store to read the objset's intent log from.
    pub(super) fn log_store(&self) -> &Arc<dyn LogStore> {
        self.dsl.log_store()
    }
}

/// Everything in a pool: the MOS, what is being freed, and all datasets.
pub(super) fn dump_all(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    ranges: &[Range],
) -> Result<u8> {
    dump(request, out, &Subject::mos(pool), ranges)?;
    if request.level('d') >= 3 && !request.has('j') {
        lists::pool_lists(request, out, pool)?;
        dtl::run(request, out, pool)?;
    }
    let mut datasets = Vec::new();
    collect(pool, &pool.name(), &mut datasets)?;
    for (name, dataset) in &datasets {
        match Subject::of(pool, name, dataset) {
            Ok(subject) => dump(request, out, &subject, ranges)?,
            Err(error) => {
                out.flush()?;
                eprintln!("failed to hold dataset '{name}': {}", words(&error));
            }
        }
    }
    if request.has('j') {
        return Ok(0);
    }
    if request.level('d') >= 3 && !request.has('L') {
        lists::origin_deadlists(request, out, pool)?;
    }
    let all: Vec<_> = datasets.into_iter().map(|(_, dataset)| dataset).collect();
    features::verify(out, pool, &all)
}

/// All datasets in zdb's order: children as their directory has them, snapshots, then the head.
#[doc(alias = "dmu_objset_find")]
fn collect(pool: &Pool, name: &str, found: &mut Vec<(String, Arc<DslDataset>)>) -> Result<()> {
    let dsl = pool.parts().dsl();
    let fields = dsl.dir(name)?.fields();
    for entry in zap::iter(pool.parts().mos(), ObjectId(fields.child_dir_zapobj))? {
        let child = entry?.name_str().into_owned();
        if !child.starts_with('$') {
            collect(pool, &format!("{name}/{child}"), found)?;
        }
    }
    if fields.head_dataset_obj == 0 {
        return Ok(());
    }
    let head = dsl.dataset_of(ObjectId(fields.head_dataset_obj))?;
    let snapshots = head.fields().snapnames_zapobj;
    if snapshots != 0 {
        for entry in zap::iter(pool.parts().mos(), ObjectId(snapshots))? {
            let entry = entry?;
            let snapshot = dsl.dataset_of(ObjectId(entry.first_integer))?;
            found.push((format!("{name}@{}", entry.name_str()), snapshot));
        }
    }
    found.push((name.to_owned(), head));
    Ok(())
}

fn type_name(type_: ObjsetType) -> &'static str {
    match type_ {
        ObjsetType::Meta => "META",
        ObjsetType::Zfs => "ZPL",
        ObjsetType::Zvol => "ZVOL",
        ObjsetType::Other => "OTHER",
        _ => "UNKNOWN",
    }
}

/// An objset: its heading, the objects that were asked for, or all of them.
#[doc(alias = "dump_objset")]
pub(super) fn dump(
    request: &Request,
    out: &mut Printer,
    subject: &Subject,
    ranges: &[Range],
) -> Result<()> {
    let verbosity = request.level('d').max(request.level('N'));
    if request.has('j') {
        return dump_json(out, subject, verbosity);
    }
    write_heading(out, subject, verbosity)?;
    let mut dumper = Dumper::new(request, subject, verbosity);
    for range in ranges {
        dump_range(out, &subject.objset, &mut dumper, range)?;
    }
    if !ranges.is_empty() {
        writeln!(out)?;
        return Ok(());
    }
    if request.level('i') > 0 || verbosity >= 2 {
        intent_log::run(out, subject, verbosity.max(request.level('i')))?;
    }
    if let Some(dataset) = &subject.dataset {
        if verbosity >= 3 {
            lists::deadlists(request, out, &subject.dsl, dataset)?;
        }
        if verbosity >= 4 {
            bookmarks::of_dataset(out, &subject.dsl, dataset)?;
        }
    }
    if verbosity < 2 || subject.objset.root_bp().is_hole() {
        return Ok(());
    }
    dump_objects(out, subject, &mut dumper)
}

fn write_heading(out: &mut Printer, subject: &Subject, verbosity: usize) -> Result<()> {
    let objset = &subject.objset;
    let dataset = subject.dataset.as_ref();
    let rootbp = if verbosity >= 4 {
        format!(", rootbp {}", objset.root_bp())
    } else {
        String::new()
    };
    let state = if dataset.is_some_and(|ds| ds.is_inconsistent()) {
        " (inconsistent)"
    } else {
        ""
    };
    writeln!(
        out,
        "Dataset {} [{}], ID {}, cr_txg {}, {}, {} objects{rootbp}{state}",
        subject.name,
        type_name(objset.type_()),
        objset.id(),
        subject.creation_txg,
        out.nice(subject.referenced),
        objset.object_count(),
    )?;
    Ok(())
}

fn dump_objects(out: &mut Printer, subject: &Subject, dumper: &mut Dumper) -> Result<()> {
    let objset = &subject.objset;
    write_object(out, dumper, ObjectId(0), None)?;
    for special in SPECIAL {
        if objset.hold(special).is_ok() {
            write_object(out, dumper, special, None)?;
        }
    }
    let (mut used, mut last) = (0, 0);
    let (mut at, mut walk) = (ObjectId(0), ObjectWalk::default());
    while let Some(object) = objset.next_object_of(at, &mut walk)? {
        let slots = write_object(out, dumper, object, None)?;
        used += slots;
        last = object.0 + slots - 1;
        at = object;
    }
    let empty = last.saturating_sub(used) as f64 * 100.0 / last as f64;
    writeln!(out, "\n    Dnode slots:")?;
    writeln!(out, "\tTotal used:    {used:10}")?;
    writeln!(out, "\tMax used:      {last:10}")?;
    writeln!(out, "\tPercent empty: {empty:10.6}\n")?;
    if dumper.leaked > 0 {
        let leaked = dumper.leaked;
        writeln!(out, "{leaked} potentially leaked objects detected")?;
    }
    Ok(())
}

fn dump_range(
    out: &mut Printer,
    objset: &Arc<Objset>,
    dumper: &mut Dumper,
    range: &Range,
) -> Result<()> {
    let mut at = ObjectId(range.from);
    if range.from == 0 || range.from == range.to {
        let shown = write_object(out, dumper, at, Some(range));
        shown.map_err(|error| match error.kind() {
            ErrorKind::NotFound => base::Error::not_found("dmu_object_info() failed, errno 2"),
            _ => error,
        })?;
    } else {
        at.0 -= 1;
    }
    let mut walk = ObjectWalk::default();
    let mut next = |at| {
        let next = objset.next_object_of(at, &mut walk)?;
        Ok::<_, base::Error>(next.filter(|next| next.0 <= range.to))
    };
    while let Some(object) = next(at)? {
        write_object(out, dumper, object, Some(range))?;
        at = object;
    }
    Ok(())
}

fn dump_json(out: &mut Printer, subject: &Subject, verbosity: usize) -> Result<()> {
    let objset = &subject.objset;
    let mut value = json!({
        "name": subject.name,
        "type": type_name(objset.type_()),
        "id": objset.id().0,
        "cr_txg": subject.creation_txg,
        "referenced": subject.referenced,
        "objects": objset.object_count(),
        "rootbp": objset.root_bp().to_string(),
    });
    if verbosity >= 2 {
        let mut list = Vec::new();
        let (mut at, mut walk) = (ObjectId(0), ObjectWalk::default());
        while let Some(object) = objset.next_object_of(at, &mut walk)? {
            list.push(super::objects::json_of(objset, object)?);
            at = object;
        }
        value["dnodes"] = list.into();
    }
    writeln!(out, "{value}")?;
    Ok(())
}
