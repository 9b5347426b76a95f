//! Tables as JSON.

use gpart::{Partition, Table, align};
use serde_json::{Value, json};

/// What `show -j`, `list -j` and `status -j` print.
pub(super) fn tables(tables: &[(String, Table)]) -> Value {
    let tables: Vec<Value> = tables.iter().map(|(name, t)| table(name, t)).collect();
    json!({ "tables": tables })
}

fn table(name: &str, table: &Table) -> Value {
    let shape = table.shape();
    let partitions = table.partitions().iter();
    let partitions: Vec<Value> = partitions.map(|p| partition(name, table, p)).collect();
    let free = align::free_ranges(table).into_iter();
    let free = free.map(|(first, last)| json!({ "start": first, "sectors": last - first + 1 }));
    json!({
        "name": name,
        "scheme": table.scheme().name(),
        "state": if table.is_corrupt() { "CORRUPT" } else { "OK" },
        "notes": table.notes(),
        "guid": table.disk_guid().map(|guid| guid.to_string()),
        "mediasize": shape.mediasize,
        "sectorsize": shape.sectorsize,
        "stripesize": shape.stripesize,
        "first": table.first(),
        "last": table.last(),
        "entries": table.entries(),
        "partitions": partitions,
        "free": free.collect::<Vec<_>>(),
    })
}

fn partition(disk: &str, table: &Table, one: &Partition) -> Value {
    let shape = table.shape();
    let is_gpt = table.disk_guid().is_some();
    json!({
        "name": format!("{disk}{}", one.suffix()),
        "index": one.index,
        "start": one.start_sector,
        "end": one.last_sector(),
        "sectors": one.sectors,
        "bytes": one.sectors.saturating_mul(u64::from(shape.sectorsize)),
        "type": one.kind.to_string(),
        "rawtype": one.kind.raw(),
        "label": Some(one.label()).filter(|label| !label.is_empty()),
        "rawuuid": is_gpt.then(|| one.guid.to_string()),
        "attributes": one.attribute_names(),
        "aligned": shape.misalignment(one.start_sector) == 0,
    })
}
