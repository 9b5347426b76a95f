//! `plan`: which pool is best for a folder of files.

mod options;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use admin::getopt::{Flag, Parsed};
use base::{Context, Error, Result};
use indicatif::ProgressBar;
use lab::plan::{Header, Journal, Plan, Results, Shard, Survey, Trial, page};
use machine::HostProfile;

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::lab::{Children, Folder};
use crate::progress::progress;
use options::Asked;

pub(crate) const PLAN: Command<Entry> = Command::parsed(
    "plan",
    "find the best pool for a folder of files, on drives you may buy",
    "\
usage: ashift plan [-jq] --drives PROFILE,… [--special PROFILE,…] [--layouts LAYOUT,…] [--ashift N,…]
                   [--recordsize SIZE,…] [--compression NAME,…] [--special-small-blocks SIZE,…]
                   [--sample SIZE|all] [--host NAME] [--memory SIZE] [--seed N] [--jobs N]
                   [--results FILE] [--shard K/N] [--keep DIR] [--report FILE] DIR
       ashift plan merge [-j] [--report FILE] FILE…

Tries every combination of the values given: makes a pool on emulated drives, copies the files of DIR in,
lists and reads them, scrubs, and replaces a drive. Shows the space and the times of the best, what to
type for them, and why they are the best. Nothing in DIR is changed. A run that was ended goes on where
it was; what is known already is not tried again.

  -d, --drives PROFILE,…         the pool's drives (`ashift drives` lists them), each with its size if it
                                 is another: st2000dm001,size=1TB
  -s, --special PROFILE,…        those of a special vdev; several are a mirror
  -l, --layouts LAYOUT,…         stripe, mirror, mirrors (of two), raidz1 to 3, draid1 to 3
                                 (default: the usual ones for so many drives)
  -a, --ashift N,…               (default: 9,12; 12 where a drive has sectors of 4096 bytes)
  -r, --recordsize SIZE,…        (default: 128K,1M)
  -c, --compression NAME,…       (default: lz4,zstd-3)
  -b, --special-small-blocks SIZE,…  (default: 0,32K)
  -n, --sample SIZE|all          tries with about that much of the data, one in N of its files and on drives
                                 of an Nth of their size; figures are multiplied (default: 1G)
  -t, --host NAME                whose processor time is charged (default: modern)
  -m, --memory SIZE              the machine's memory, if caches are to be as large as it allows
      --seed N                   of all randomness (default: 1)
      --jobs N                   machines at a time (default: one for each processor)
  -f, --results FILE             what was tried so far (default: in the state folder)
  -k, --shard K/N                tries only this part, for `merge` to put together
      --keep DIR                 makes the machines and the sample in DIR, and leaves them there
  -o, --report FILE              a page of HTML about it
  -q                             no progress       -j  print JSON

merge  shows what the runs on several computers have found, each with a --shard and --results of its own
",
    ("a:b:c:d:f:G:jJ:k:K:l:m:n:o:qr:s:t:", 1),
    run,
)
.long(&[
    ("drives", Flag::Short('d')),
    ("special", Flag::Short('s')),
    ("layouts", Flag::Short('l')),
    ("ashift", Flag::Short('a')),
    ("recordsize", Flag::Short('r')),
    ("compression", Flag::Short('c')),
    ("special-small-blocks", Flag::Short('b')),
    ("sample", Flag::Short('n')),
    ("host", Flag::Short('t')),
    ("memory", Flag::Short('m')),
    ("seed", Flag::Short('G')),
    ("jobs", Flag::Short('J')),
    ("results", Flag::Short('f')),
    ("shard", Flag::Short('k')),
    ("keep", Flag::Short('K')),
    ("report", Flag::Short('o')),
    ("json", Flag::Short('j')),
    ("quiet", Flag::Short('q')),
])
.apart();

fn made_by() -> String {
    format!("ashift {}", env!("CARGO_PKG_VERSION"))
}

fn run(parsed: &Parsed) -> Outcome {
    match &parsed.operands[..] {
        [verb, files @ ..] if verb == "merge" => merge(parsed, files),
        [data] => Ok(plan(parsed, data)?),
        _ => Err(Fail::Usage("one folder is needed".to_owned())),
    }
}

fn merge(parsed: &Parsed, files: &[String]) -> Outcome {
    if files.is_empty() {
        return Err(Fail::Usage("merge needs the files of --results".to_owned()));
    }
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let mut words = vec!["ashift".to_owned(), "plan".to_owned(), "merge".to_owned()];
    words.extend(files.iter().cloned());
    let plan = Plan::of(Results::merge(&paths)?);
    Ok(show(parsed, &plan, &lab::run::as_typed(&words))?)
}

fn plan(parsed: &Parsed, data: &str) -> Result<()> {
    let asked = Asked::parse(parsed, data)?;
    let request = &asked.request;
    if HostProfile::find(&request.host).is_none() {
        return Err(Error::invalid(format!("no host '{}'", request.host)));
    }
    let bar = |total, is_bytes| match parsed.has('q') {
        true => ProgressBar::hidden(),
        false => progress(total, is_bytes),
    };
    let looking = bar(None, false);
    looking.set_message("looking at the files");
    let survey = Survey::of(&request.data, &|entries| looking.set_position(entries));
    looking.finish_and_clear();
    let survey = survey?;
    let folder = Folder::make("ashift-plan-", asked.keep.as_deref())?;
    let one_in = survey.one_in(request.sample_bytes);
    let (files, sample) = if one_in == 1 && survey.found.left_out == 0 {
        (request.data.clone(), survey.whole())
    } else {
        let files = folder.path().join("sample");
        let copying = bar(Some(survey.found.bytes / one_in), true);
        copying.set_message("taking a sample");
        let sample = survey.sample(one_in, &files, &|bytes| copying.set_position(bytes));
        copying.finish_and_clear();
        (files, sample?)
    };
    let header = Header {
        made_by: made_by(),
        request: request.clone(),
        shard: asked.shard,
        found: survey.found.clone(),
        sample,
    };
    let file = asked.results.clone().unwrap_or_else(|| usual_file(&header));
    let (journal, mut tried) = Journal::open(&file, &header)?;
    let count = request.combinations().len();
    let places = (0..count).filter(|place| asked.shard.has(*place) && !tried.contains_key(place));
    let places: Vec<usize> = places.collect();
    let trial = Trial {
        request,
        files,
        machines: folder.path().to_owned(),
        one_in: header.sample.one_in,
        scale: header.sample.scale(survey.found.bytes),
        jobs: asked.jobs,
    };
    if let Some(drive) = trial.too_large().first() {
        eprintln!(
            "note: one in {} of {} is too small for a drive: it is filled less than it would be (--sample takes more)",
            trial.one_in, drive.profile
        );
    }
    drop(survey);
    if !places.is_empty() {
        let trying = bar(Some(places.len() as u64), false);
        trying.set_message("combinations");
        let done = |place, how| {
            journal.add(place, how)?;
            trying.inc(1);
            Ok(())
        };
        let outcome = trial
            .check(&Children)
            .and_then(|()| trial.run(&places, &Children, &done));
        trying.finish_and_clear();
        if let Err(error) = outcome {
            folder.keep();
            return Err(error);
        }
        tried = Results::load(&file)?.tried;
    }
    let plan = Plan::of(Results { header, tried });
    show(parsed, &plan, &asked.again)
}

/// Where results are kept if no file is given: one for each plan of the same files.
fn usual_file(header: &Header) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (&header.made_by, &header.request, header.found.fingerprint).hash(&mut hasher);
    let Shard { at, of } = header.shard;
    let name = format!("{:016x}-{at}-of-{of}.jsonl", hasher.finish());
    crate::state::state_folder().join("plan").join(name)
}

fn show(parsed: &Parsed, plan: &Plan, again: &str) -> Result<()> {
    if let Some(file) = parsed.value('o') {
        let file = Path::new(file);
        fs::write(file, page(plan, again))
            .map_err(Error::from)
            .within(|| file.display().to_string())?;
    }
    if parsed.has('j') {
        println!("{}", serde_json::to_string_pretty(plan).unwrap_or_default());
        return Ok(());
    }
    print!("{}", plan.text());
    if let Some(file) = parsed.value('o') {
        println!("\nThe report is in {file}.");
    }
    Ok(())
}
