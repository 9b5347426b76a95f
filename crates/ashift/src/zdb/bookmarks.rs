//! Bookmarks: of a dataset, and one of them by its name.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`dump_bookmark`, `dump_bookmarks`).

use std::io::Write;
use std::sync::Arc;

use base::{Error, ErrorKind, ObjectId, Result};
use dsl::{DslBookmark, DslDataset, DslPool};
use phys::pool_names::DS_FIELD_BOOKMARK_NAMES;

use super::pool::Pool;
use super::targets::words;
use super::text::Printer;

fn write(out: &mut Printer, bookmark: &DslBookmark) -> Result<()> {
    writeln!(
        out,
        "\t#{}: {{guid: {:x} creation_txg: {} creation_time: {} redaction_obj: {}}}",
        bookmark.name,
        bookmark.guid.0,
        bookmark.createtxg,
        bookmark.creation,
        bookmark.redaction_object()
    )?;
    if bookmark.redaction_object().0 != 0 {
        let text = "lists of redacted blocks are not supported yet";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// The bookmarks of a dataset, in the order in which the MOS has them.
pub(super) fn of_dataset(
    out: &mut Printer,
    dsl: &Arc<DslPool>,
    dataset: &Arc<DslDataset>,
) -> Result<()> {
    let bookmarks = dsl.bookmarks(dataset)?;
    if bookmarks.is_empty() {
        return Ok(());
    }
    let mos = dsl.mos().objset();
    let names = zap::lookup_u64(mos, dataset.object(), DS_FIELD_BOOKMARK_NAMES)?;
    let names = names.ok_or_else(|| Error::corrupt("bookmarks without a list of names"))?;
    for entry in zap::iter(mos, ObjectId(names))? {
        let name = entry?.name_str().into_owned();
        if let Some(bookmark) = bookmarks.iter().find(|b| b.name == name) {
            write(out, bookmark)?;
        }
    }
    Ok(())
}

/// `zdb POOL/DATASET#BOOKMARK`.
pub(super) fn run(out: &mut Printer, pool: &Pool, target: &str) -> Result<u8> {
    let failed = |reason: &str| Error::not_found(format!("can't dump '{target}': {reason}"));
    let (dataset, name) = target.split_once('#').unwrap_or((target, ""));
    let dsl = pool.parts().dsl();
    let found = dsl.dataset(dataset).and_then(|head| dsl.bookmarks(&head));
    let bookmarks = found.map_err(|error| failed(&words(&error)))?;
    let bookmark = bookmarks.iter().find(|bookmark| bookmark.name == name);
    // `ESRCH` is OpenZFS's error for a bookmark that a dataset does not have.
    let bookmark = bookmark.ok_or_else(|| failed("No such process"))?;
    write(out, bookmark)?;
    Ok(0)
}
