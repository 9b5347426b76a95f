//! `zdb -d`: data sets, and what is in them.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_objset`, `dump_zpool`, `dump_path`).

use std::io::Write;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Objset;
use dsl::DslDataset;
use phys::ObjsetType;
use serde_json::json;
use zpl::{Filesystem, OpenOptions};

use super::Request;
use super::objects::{Dumper, write_object};
use super::pool::{Pool, dataset_part};
use super::text::Printer;

/// `DMU_USERUSED_OBJECT`, `DMU_GROUPUSED_OBJECT`, `DMU_PROJECTUSED_OBJECT`
const SPECIAL: [ObjectId; 3] = [
    ObjectId(u64::MAX),
    ObjectId(u64::MAX - 1),
    ObjectId(u64::MAX - 2),
];

/// An objset with what is said about it in its heading.
struct Subject {
    name: String,
    objset: Arc<Objset>,
    creation_txg: u64,
    referenced: u64,
    dataset: Option<(Arc<dsl::Mos>, Arc<DslDataset>)>,
}

/// `zdb -d TARGET [OBJECT…]`.
pub(super) fn run(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    target: &str,
    objects: &[String],
    verbosity: usize,
) -> Result<u8> {
    let ranges = objects
        .iter()
        .map(|text| range(text))
        .collect::<Result<Vec<_>>>()?;
    if dataset_part(target).is_some_and(|part| part != "/") || target.ends_with('/') {
        let subject = open_target(pool, target)?;
        return dump(request, out, &subject, &ranges, verbosity).map(|()| 0);
    }
    let mos = Subject {
        name: "mos".to_owned(),
        objset: pool.mos().clone(),
        creation_txg: 4,
        referenced: pool.dsl().mos_dir().fields().used_bytes,
        dataset: None,
    };
    dump(request, out, &mos, &ranges, verbosity)?;
    if !ranges.is_empty() {
        return Ok(0);
    }
    let mut datasets = Vec::new();
    collect(pool, &pool.name(), &mut datasets)?;
    let mut code = 0;
    for (name, dataset) in datasets {
        match open_dataset(pool, &name, &dataset) {
            Ok(subject) => dump(request, out, &subject, &[], verbosity)?,
            Err(error) => {
                out.flush()?;
                eprintln!("failed to hold dataset '{name}': {error}");
                code = 1;
            }
        }
    }
    if !request.has('j') {
        write_features(out, pool)?;
    }
    Ok(code)
}

/// `object`, or `from:to[:flags]`.
fn range(text: &str) -> Result<(u64, u64)> {
    let bad = || Error::invalid(format!("Invalid object range '{text}'"));
    let parse = |word: &str| -> Option<u64> {
        let negative = word
            .strip_prefix('-')
            .and_then(|w| w.parse::<i64>().ok())
            .map(|n| -n as u64);
        negative.or_else(|| match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        })
    };
    let mut parts = text.split(':');
    let from = parts.next().and_then(parse).ok_or_else(bad)?;
    let to = match parts.next() {
        None => from,
        Some("-1") => u64::MAX >> 16,
        Some(word) => parse(word).ok_or_else(bad)?,
    };
    if to < from || parts.next().is_some() {
        return Err(bad());
    }
    Ok((from, to))
}

fn open_target(pool: &Pool, target: &str) -> Result<Subject> {
    let target = target.trim_end_matches('/');
    let dsl = pool.dsl();
    let dataset = match dsl.dataset(target) {
        Ok(dataset) => dataset,
        Err(error) => {
            let number = target.rsplit('/').next().and_then(|word| word.parse().ok());
            let Some(number) = number.filter(|_| error.kind() == ErrorKind::NotFound) else {
                let text = format!("failed to hold dataset '{target}': {error}");
                return Err(Error::new(error.kind(), text));
            };
            dsl.dataset_of(ObjectId(number))?
        }
    };
    let name = dsl.name_of(&dataset)?;
    open_dataset(pool, &name, &dataset)
}

fn open_dataset(pool: &Pool, name: &str, dataset: &Arc<DslDataset>) -> Result<Subject> {
    let fields = dataset.fields();
    Ok(Subject {
        name: name.to_owned(),
        objset: dataset.objset()?,
        creation_txg: fields.creation_txg,
        referenced: fields.referenced_bytes,
        dataset: Some((pool.dsl().mos().clone(), dataset.clone())),
    })
}

/// All data sets in zdb's order: children as their directory has them, snapshots, then the head.
#[doc(alias = "dmu_objset_find")]
fn collect(pool: &Pool, name: &str, found: &mut Vec<(String, Arc<DslDataset>)>) -> Result<()> {
    let dsl = pool.dsl();
    let fields = dsl.dir(name)?.fields();
    for entry in zap::iter(pool.mos(), ObjectId(fields.child_dir_zapobj))? {
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
        for entry in zap::iter(pool.mos(), ObjectId(snapshots))? {
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

fn dump(
    request: &Request,
    out: &mut Printer,
    subject: &Subject,
    ranges: &[(u64, u64)],
    verbosity: usize,
) -> Result<()> {
    let objset = &subject.objset;
    let root = objset.root_bp();
    if request.has('j') {
        return dump_json(out, subject, verbosity);
    }
    let is_inconsistent = subject
        .dataset
        .as_ref()
        .is_some_and(|(_, ds)| ds.is_inconsistent());
    let rootbp = if verbosity >= 4 {
        format!(", rootbp {root}")
    } else {
        String::new()
    };
    writeln!(
        out,
        "Dataset {} [{}], ID {}, cr_txg {}, {}, {} objects{rootbp}{}",
        subject.name,
        type_name(objset.type_()),
        objset.id(),
        subject.creation_txg,
        out.nice(subject.referenced),
        objset.object_count(),
        if is_inconsistent {
            " (inconsistent)"
        } else {
            ""
        }
    )?;
    let mut dumper = Dumper::new(objset, verbosity);
    for (from, to) in ranges {
        dump_range(out, objset, &mut dumper, *from, *to)?;
    }
    if !ranges.is_empty() || verbosity < 2 {
        return Ok(());
    }
    if verbosity >= 3
        && let Some((mos, dataset)) = &subject.dataset
    {
        super::viewers::deadlist(out, mos, dataset)?;
    }
    if root.is_hole() {
        return Ok(());
    }
    write_object(out, &mut dumper, ObjectId(0))?;
    for special in SPECIAL {
        if objset.hold(special).is_ok() {
            write_object(out, &mut dumper, special)?;
        }
    }
    let (mut used, mut last) = (0, 0);
    let mut at = ObjectId(0);
    while let Some(object) = objset.next_object(at)? {
        let slots = write_object(out, &mut dumper, object)?;
        used += slots;
        last = object.0 + slots - 1;
        at = object;
    }
    let empty = last.saturating_sub(used) as f64 * 100.0 / last as f64;
    writeln!(out, "\n    Dnode slots:")?;
    writeln!(out, "\tTotal used:    {used:10}")?;
    writeln!(out, "\tMax used:      {last:10}")?;
    writeln!(out, "\tPercent empty: {empty:10.6}\n")?;
    Ok(())
}

fn dump_range(
    out: &mut Printer,
    objset: &Arc<Objset>,
    dumper: &mut Dumper,
    from: u64,
    to: u64,
) -> Result<()> {
    let missing = |object: u64| {
        Error::not_found(format!(
            "dmu_object_info() failed, errno 2: there is no object {object}"
        ))
    };
    if from == to || from == 0 {
        let object = ObjectId(from);
        if objset
            .hold(object)
            .is_err_and(|e| e.kind() == ErrorKind::NotFound)
        {
            return Err(missing(from));
        }
        write_object(out, dumper, object)?;
        if from == to {
            return Ok(());
        }
    }
    let mut at = ObjectId(from.saturating_sub(1));
    while let Some(object) = objset.next_object(at)?.filter(|object| object.0 <= to) {
        write_object(out, dumper, object)?;
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
        let mut at = ObjectId(0);
        while let Some(object) = objset.next_object(at)? {
            list.push(super::objects::json_of(objset, object)?);
            at = object;
        }
        value["dnodes"] = list.into();
    }
    writeln!(out, "{value}")?;
    Ok(())
}

/// The counts of features that every data set which uses them adds to.
fn write_features(out: &mut Printer, pool: &Pool) -> Result<()> {
    let features = pool.features();
    for feature in spa::feature::FEATURES.iter().filter(|f| f.per_dataset) {
        let Some(recorded) = features.count(feature.guid) else {
            continue;
        };
        let mut counted = 0;
        let mut datasets = Vec::new();
        collect(pool, &pool.name(), &mut datasets)?;
        for (_, dataset) in &datasets {
            counted += u64::from(dataset.feature_is_active(feature.guid));
        }
        if recorded == counted {
            writeln!(
                out,
                "Verified {} feature refcount of {recorded} is correct",
                feature.name
            )?;
        } else {
            writeln!(
                out,
                "{} feature refcount mismatch: {counted} consumers != {recorded} refcount",
                feature.name
            )?;
        }
    }
    Ok(())
}

/// `zdb -O DATASET PATH`.
pub(super) fn by_path(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    target: &str,
    rest: &[String],
) -> Result<u8> {
    let [path] = rest else {
        return Err(super::usage_error());
    };
    let subject = open_target(pool, target)?;
    let fs = Filesystem::open(subject.objset.clone(), OpenOptions::default())?;
    let object = fs.resolve(path.trim_start_matches('/')).map_err(|error| {
        Error::new(
            error.kind(),
            format!("failed to lookup path '{path}': {error}"),
        )
    })?;
    let verbosity = request.count('d') + request.count('v');
    let mut dumper = Dumper::new(&subject.objset, verbosity);
    write_object(out, &mut dumper, object)?;
    Ok(0)
}
