//! The order of `zfs list`: by `-s` and `-S`, else by name.

use std::cmp::Ordering;

use crate::prop::{Kind, PropName, TableKind};

use super::{Item, Style};

/// A property to sort by: `-s name`, or `-S name` for descending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The property.
    pub name: PropName,
    /// Descending.
    pub is_reverse: bool,
}

/// Sorts datasets as `zfs list -s/-S` does; without keys, by name, with snapshots below their dataset
/// in order of creation.
#[doc(alias = "zfs_sort")]
pub fn sort_datasets(items: &mut [Item], keys: &[SortKey]) {
    items.sort_by(|a, b| {
        let by_key = keys.iter().map(|key| compare_by(key, a, b));
        by_key
            .fold(Ordering::Equal, Ordering::then)
            .then_with(|| compare_names(a, b))
    });
}

fn compare_by(key: &SortKey, a: &Item, b: &Item) -> Ordering {
    let name = key.name.as_str();
    let ordering = if name == "name" {
        a.name.cmp(&b.name)
    } else {
        let desc = TableKind::Dataset.lookup(name);
        let is_number = desc.is_some_and(|d| matches!(d.kind, Kind::Number(_)));
        let (Some(a), Some(b)) = (a.get(name), b.get(name)) else {
            // Items without the property come last, in either order.
            return b.get(name).is_some().cmp(&a.get(name).is_some());
        };
        let style = Style::new(TableKind::Dataset);
        if is_number {
            a.value.as_number().cmp(&b.value.as_number())
        } else {
            style
                .format(name, &a.value)
                .cmp(&style.format(name, &b.value))
        }
    };
    if key.is_reverse {
        ordering.reverse()
    } else {
        ordering
    }
}

#[doc(alias = "zfs_compare")]
fn compare_names(a: &Item, b: &Item) -> Ordering {
    let split = |item: &Item| {
        let (dataset, snapshot) = match item.name.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some(snapshot)),
            None => (item.name.as_str(), None),
        };
        let txg = if snapshot.is_some() {
            item.number("createtxg")
        } else {
            0
        };
        (
            dataset.to_owned(),
            snapshot.is_some(),
            txg,
            snapshot.unwrap_or("").to_owned(),
        )
    };
    split(a).cmp(&split(b))
}
