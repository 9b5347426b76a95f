//! `zdb`: looks at labels, objects and blocks without changing anything, and checks whole pools.
//!
//! # What it is
//! The output is that of OpenZFS's zdb 2.3. The pool is opened read-only.
//!
//! ```text
//! request  options and usage          pool     which pool, configurations, uberblock
//! labels   -l                         datasets -d: objsets    targets  names, ranges, paths
//! objects  one object                 viewers, zaps, znodes   what is in an object
//! lists    deadlists, bpobjs          bookmarks, intent_log, dtl, features
//! blocks   -b, -c   metaslabs -m -M   dedup -D -S   read -R   embedded -E   history -h   stats -s
//! ```
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c (`main`, `dump_zpool`), and what Debian's zdb 2.3 prints.

mod block_types;
mod blocks;
mod bookmarks;
mod datasets;
mod dedup;
mod dtl;
mod embedded;
mod features;
mod history;
mod intent_log;
mod label_stats;
mod labels;
mod lists;
mod metaslab_groups;
mod metaslabs;
mod objects;
mod pool;
mod read;
mod request;
mod stats;
mod targets;
mod text;
mod viewers;
mod zaps;
mod znodes;

use std::io::Write;

use base::Result;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

use pool::Pool;
use request::{Request, USAGE};
use targets::Target;
use text::Printer;

/// The exit status of OpenZFS's zdb for any failure.
const FAILED: u8 = 1;

pub(crate) const ZDB: Command<Entry> = Command::words(
    "zdb",
    "look at labels, objects, blocks; check a pool",
    USAGE,
    run,
)
.tool()
.misused_is_1();

fn run(args: &[String]) -> Outcome {
    if args.iter().any(|arg| arg == "--help") {
        return Err(Fail::Help);
    }
    let request = Request::parse(args).map_err(|complaint| {
        if !complaint.is_empty() {
            eprintln!("{complaint}");
        }
        usage_error()
    })?;
    if let Some(letter) = request.missing() {
        return Err(Fail::Failed(format!("-{letter} is not supported yet")));
    }
    let mut out = Printer::new(&request);
    let outcome = dispatch(&request, &mut out);
    let flushed = out.flush();
    let code = outcome?;
    Fail::exit(flushed.map_or(FAILED, |()| code))
}

/// The failure for invalid arguments: the usage text is shown.
fn usage_error() -> Fail {
    Fail::Usage(String::new())
}

fn dispatch(request: &Request, out: &mut Printer) -> Outcome<u8> {
    let operands = request.operands();
    if request.has('R') && operands.len() < 2 {
        return Err(usage_error());
    }
    if request.has('E') {
        let [words] = operands else {
            return Err(usage_error());
        };
        return Ok(embedded::run(out, words)?);
    }
    let Some((name, rest)) = operands.split_first() else {
        if request.level('C') > 0 && !request.has('e') {
            return Ok(pool::cachefile_config(request, out)?);
        }
        return Err(usage_error());
    };
    if request.has('l') {
        return Ok(labels::run(request, out, name)?);
    }
    let target = Target::parse(name);
    if request.has('N') && target.is_bad_number() {
        writeln!(out, "Supply a numeric objset ID with -N")?;
        return Ok(FAILED);
    }
    let pool = match pool::open(request, out, &target) {
        Err(error) if request.has('O') || request.has('r') => {
            return Ok(targets::is_missing(request, &target, error)?);
        }
        Err(error) => {
            targets::say_missing(request, &target, &error);
            return Err(error.into());
        }
        Ok(pool) => pool,
    };
    if request.has('O') {
        return targets::show_path(request, out, &pool, &target, rest);
    }
    if request.has('r') {
        return targets::copy_path(request, out, &pool, &target, rest);
    }
    if request.has('R') {
        return Ok(read::run(out, &pool, rest)?);
    }
    if let Some(bookmark) = target.bookmark() {
        return Ok(bookmarks::run(out, &pool, bookmark)?);
    }
    let ranges = targets::ranges(request, rest)?;
    let metaslabs = metaslabs::Choice::parse(request, rest);
    if target.is_dataset() {
        let subject = targets::open(request, &pool, &target)?;
        datasets::dump(request, out, &subject, &ranges)?;
        return Ok(0);
    }
    if !ranges.is_empty() && request.level('m') == 0 {
        let mos = datasets::Subject::mos(&pool);
        datasets::dump(request, out, &mos, &ranges)?;
        return Ok(0);
    }
    Ok(dump_pool(request, out, &pool, &ranges, &metaslabs)?)
}

/// Everything requested about a pool, in zdb's order.
#[doc(alias = "dump_zpool")]
fn dump_pool(
    request: &Request,
    out: &mut Printer,
    pool: &Pool,
    ranges: &[targets::Range],
    metaslabs: &metaslabs::Choice,
) -> Result<u8> {
    if request.has('y') {
        lists::verify_livelists(out, pool)?;
    }
    if request.has('S') {
        return dedup::run(request, out, pool);
    }
    if request.level('C') > 0 {
        pool::configs(request, out, pool)?;
    }
    if request.level('u') > 0 {
        pool::uberblock(request, out, pool)?;
    }
    if request.level('D') > 0 {
        dedup::tables(request, out, pool)?;
    }
    if request.level('T') > 0 {
        features::clones(out, pool)?;
    }
    let shows_space = request.level('m') > 0 || request.level('d') > 2 && !request.has('j');
    if shows_space {
        metaslabs::run(request, out, pool, metaslabs)?;
    }
    if request.level('M') > 0 {
        metaslab_groups::run(out, pool)?;
    }
    let mut code = 0;
    if request.level('d') > 0 || request.level('i') > 0 {
        code = datasets::dump_all(request, out, pool, ranges)?;
    }
    if code == 0 && (request.level('b') > 0 || request.level('c') > 0) {
        code = blocks::run(request, out, pool)?;
    }
    if code == 0 {
        code = features::space_maps(out, pool)?;
    }
    if request.level('s') > 0 {
        stats::run(out, pool)?;
    }
    if request.level('h') > 0 {
        history::run(request, out, pool)?;
    }
    if code == 0 {
        pool::checkpoint(out, pool)?;
    }
    Ok(code)
}
