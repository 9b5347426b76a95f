//! `ashift rewind`: which earlier states of a pool are still whole.

use std::sync::Arc;

use admin::getopt::Parsed;
use admin::number::{date_time, nice_bytes};
use serde_json::{Value, json};
use service::{Access, Condition, Depth, Past, PastState, SAMPLED, Session};

use crate::caller;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::progress::progress;
use crate::search;
use crate::session::session;
use crate::strays;
use crate::zone;

const USAGE: &str = "\
usage: ashift rewind [-d FOLDER|DEVICE]… [-f] [-n NUMBER] [-T TXG] [-Sjpv] POOL|GUID
";

const MORE: &str = "
Shows the states of a pool that its labels still know, newest first, and what is left of each: all of its metadata is
read, and of the data of files one block in 64. Nothing is changed; `zpool import -T TXG` goes back to a state.
What was interrupted goes on where it was.

  -d PLACE   look for the devices there; otherwise on all disks, and among the imported pools
  -f         read all data
  -n NUMBER  only so many states
  -T TXG     only this one
  -S         read the devices from beginning to end for labels, where a partition table is lost
  -j  JSON   -p  exact numbers   -v  the first error of each
";

pub(crate) const REWIND: Command<Entry> = Command::parsed(
    "rewind",
    "show which earlier states of a damaged pool are whole",
    USAGE,
    ("d:fn:ST:jpv", 1),
    run,
)
.more(MORE);

/// A state, and what was found.
type Row = (PastState, Condition);

fn run(parsed: &Parsed) -> Outcome {
    let [wanted] = &parsed.operands[..] else {
        return Err(Fail::Usage("one pool".to_owned()));
    };
    let number = |option, what| -> Result<Option<u64>, Fail> {
        let value = parsed.value(option).map(str::parse::<u64>);
        let wrong = |_| Fail::Usage(format!("invalid {what}"));
        value.transpose().map_err(wrong)
    };
    let (count, txg) = (number('n', "number")?, number('T', "txg")?);
    let session = session(Access::Read, "");
    let places: Vec<&str> = parsed.values('d').collect();
    let seek = parsed.has('S').then_some("rewind");
    let mut past = find(&session, wanted, &places, seek)?;
    let is_asked = |state: &&PastState| txg.is_none_or(|txg| state.txg.0 == txg);
    let states = past.states().iter().filter(is_asked);
    let count = count.map_or(usize::MAX, |count| count.try_into().unwrap_or(usize::MAX));
    let states: Vec<PastState> = states.take(count).cloned().collect();
    if states.is_empty() {
        let text = match past.states().is_empty() {
            true => format!("{wanted}: no uberblock is left on any label"),
            false => "no label has an uberblock of this txg".to_owned(),
        };
        return Err(Fail::Failed(text));
    }
    let depth = match parsed.has('f') {
        true => Depth::Full,
        false => Depth::Sampled,
    };
    let mut table = Table::new(parsed);
    let mut rows: Vec<Row> = Vec::new();
    for state in states {
        let condition = look(&mut past, &state, depth)?;
        table.row(&state, &condition);
        rows.push((state, condition));
    }
    past.finish();
    match parsed.has('j') {
        true => print!("{}", document(wanted, depth, &rows)),
        false => advise(wanted, &places, &rows),
    }
    Fail::exit(u8::from(!rows.iter().any(|(_, found)| found.can_return())))
}

/// The past of a pool: one that could be imported, or one that is. `seek`: its devices are looked for everywhere on the
/// disks, by the program of this name.
///
/// # Errors
/// When there is none, or several, or it is in use.
pub(crate) fn find(
    session: &Session,
    wanted: &str,
    places: &[&str],
    seek: Option<&str>,
) -> Result<Past, Fail> {
    let cannot = |e: base::Error| Fail::Failed(format!("{wanted}: {e}"));
    if places.is_empty() && session.pools().is_imported(wanted)? {
        return session.past_of_imported(wanted).map_err(cannot);
    }
    let mut providers = search::devices(session.pools().world(), places)?;
    let strays = seek.map_or_else(Vec::new, |program| strays::find(program, &providers));
    providers.extend(strays.iter().cloned());
    let mut pools = session.pools().importable(&providers, false)?;
    pools.extend(session.pools().importable(&providers, true)?);
    let guid = wanted.parse::<u64>().ok();
    pools.retain(|pool| pool.name == wanted || Some(pool.guid.0) == guid);
    let Some(found) = pools.pop() else {
        let more = match seek {
            Some(_) => "",
            None => ", '-S' where a partition table is lost",
        };
        let text =
            format!("{wanted}: no such pool; '-d FOLDER' looks for its devices in a folder{more}");
        return Err(Fail::Failed(text));
    };
    if !pools.is_empty() {
        let text = format!("{wanted}: more than one pool; 'zpool import' shows their guids");
        return Err(Fail::Failed(text));
    }
    session.past(found, &strays).map_err(cannot)
}

fn look(past: &mut Past, state: &PastState, depth: Depth) -> Result<Condition, Fail> {
    if let Some(known) = past.known(state, depth) {
        return Ok(known.clone());
    }
    caller::check();
    let bar = progress(None, true);
    bar.set_message(format!("txg {}", state.txg));
    let shown = bar.clone();
    let condition = past.look(
        state,
        depth,
        Arc::new(move |progress| shown.set_position(progress.verified_bytes)),
    );
    bar.finish_and_clear();
    Ok(condition?)
}

/// The table, printed as it grows.
struct Table {
    is_shown: bool,
    is_exact: bool,
    is_verbose: bool,
    has_title: bool,
}

impl Table {
    fn new(parsed: &Parsed) -> Table {
        Table {
            is_shown: !parsed.has('j'),
            is_exact: parsed.has('p'),
            is_verbose: parsed.has('v'),
            has_title: false,
        }
    }

    fn row(&mut self, state: &PastState, condition: &Condition) {
        if !self.is_shown {
            return;
        }
        if !std::mem::replace(&mut self.has_title, true) {
            println!("{:>12}  {:<24}  LABELS     READ  STATE", "TXG", "TIME");
        }
        let time = match self.is_exact {
            true => state.at_secs.to_string(),
            false => date_time(state.at_secs, zone::local()),
        };
        let read = match condition {
            Condition::Lost(_) => "-".to_owned(),
            Condition::Read { read_bytes, .. } if self.is_exact => read_bytes.to_string(),
            Condition::Read { read_bytes, .. } => nice_bytes(*read_bytes),
        };
        let (txg, labels) = (state.txg, state.copies);
        let words = words(condition);
        println!("{txg:>12}  {time:<24}  {labels:>6}  {read:>7}  {words}");
        let (Condition::Lost(why)
        | Condition::Read {
            first: Some(why), ..
        }) = condition
        else {
            return;
        };
        if self.is_verbose {
            println!("{:>12}  {why}", "");
        }
    }
}

fn words(condition: &Condition) -> String {
    let many = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    };
    match condition {
        Condition::Lost(_) => "cannot be opened".to_owned(),
        found if found.is_whole() => "whole".to_owned(),
        Condition::Read {
            metadata_errors: 0,
            data_errors,
            ..
        } => {
            let blocks = many(*data_errors, "block of data is", "blocks of data are");
            format!("{blocks} lost")
        }
        Condition::Read {
            metadata_errors,
            data_errors,
            ..
        } => {
            let errors = many(*metadata_errors, "error", "errors");
            let blocks = many(*data_errors, "block", "blocks");
            format!("{errors} in its metadata, {blocks} of data lost")
        }
    }
}

/// What can be done.
fn advise(pool: &str, places: &[&str], rows: &[Row]) {
    let newest = |is_so: fn(&Condition) -> bool| rows.iter().find(|(_, found)| is_so(found));
    let Some((state, found)) = newest(Condition::is_whole).or(newest(Condition::can_return)) else {
        println!("\nNone of them has whole metadata: the pool cannot be returned to any.");
        return;
    };
    let what = match (found.is_whole(), rows[0].0 == *state) {
        (true, true) => {
            println!("\nThe newest state is whole, as far as it was read.");
            return;
        }
        (true, false) => "is whole, as far as it was read",
        (false, _) => "has whole metadata",
    };
    let places: String = places.iter().map(|place| format!(" -d {place}")).collect();
    let txg = state.txg;
    println!(
        "\nThat of txg {txg} is the newest that {what}. To look at it, and then to return to it for good:\n  \
         zpool import{places} -o readonly=on -T {txg} {pool}\n  zpool import{places} -T {txg} {pool}"
    );
}

fn document(pool: &str, depth: Depth, rows: &[Row]) -> String {
    let row = |(state, found): &Row| -> Value {
        let mut value = json!({
            "txg": state.txg.0, "time": state.at_secs, "labels": state.copies, "is_whole": found.is_whole(),
            "can_return": found.can_return(),
        });
        match found {
            Condition::Lost(why) => value["error"] = why.as_str().into(),
            Condition::Read {
                read_bytes,
                all_bytes,
                metadata_errors,
                data_errors,
                first,
            } => {
                value["read_bytes"] = (*read_bytes).into();
                value["all_bytes"] = (*all_bytes).into();
                value["metadata_errors"] = (*metadata_errors).into();
                value["data_errors"] = (*data_errors).into();
                value["error"] = first.as_deref().into();
            }
        }
        value
    };
    let mut body = serde_json::Map::new();
    body.insert("pool".to_owned(), pool.into());
    let one_in = match depth {
        Depth::Sampled => SAMPLED,
        Depth::Full => 1,
    };
    body.insert("reads_one_block_of_data_in".to_owned(), one_in.into());
    body.insert("states".to_owned(), rows.iter().map(row).collect());
    admin::listing::json_document("ashift rewind", body)
}
