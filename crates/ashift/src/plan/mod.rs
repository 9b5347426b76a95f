//! `plan`: which pool is best for a folder of files.

mod options;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admin::getopt::{Flag, Parsed};
use base::{Context, Error, Result};
use indicatif::ProgressBar;
use lab::plan::{Header, Journal, Plan, Results, Sample, Shard, Survey, Trial, Tried, page};
use machine::HostProfile;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::lab::{Children, Folder, check_report};
use crate::progress::progress;
use options::Asked;

pub(crate) const PLAN: Command<Entry> = Command::parsed(
    "plan",
    "find the best pool for a folder of files, on drives you may buy",
    "\
usage: ashift plan [-jq] --drives PROFILE,… [--special PROFILE,…] [--layouts LAYOUT,…] [--ashift N,…]
                   [--recordsize SIZE,…] [--compression NAME,…] [--special-small-blocks SIZE,…]
                   [--sample SIZE|all] [--confirm] [--host NAME] [--memory SIZE] [--seed N] [--jobs N]
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
  -C, --confirm                  tries those that it advises once more, with all of the data
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
    ("a:b:c:Cd:f:G:jJ:k:K:l:m:n:o:qr:s:t:", 1),
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
    ("confirm", Flag::Short('C')),
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

/// The exit code of a command that a signal has ended, as of a shell's.
const INTERRUPTED: u8 = 130;

fn made_by() -> String {
    format!("ashift {}", env!("CARGO_PKG_VERSION"))
}

fn run(parsed: &Parsed) -> Outcome {
    match &parsed.operands[..] {
        [verb, files @ ..] if verb == "merge" => merge(parsed, files),
        [data] => plan(parsed, data),
        _ => Err(Fail::Usage("one folder is needed".to_owned())),
    }
}

fn merge(parsed: &Parsed, files: &[String]) -> Outcome {
    if files.is_empty() {
        return Err(Fail::Usage("merge needs the files of --results".to_owned()));
    }
    let is_known = |flag: &Flag| ['j', 'o', 'q'].map(Flag::Short).contains(flag);
    if parsed.options.iter().any(|(flag, _)| !is_known(flag)) {
        let what = "merge takes -j, -q and --report; what to try is in the files";
        return Err(Fail::Usage(what.to_owned()));
    }
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let mut words = vec!["ashift".to_owned(), "plan".to_owned(), "merge".to_owned()];
    words.extend(files.iter().cloned());
    let plan = Plan::of(Results::merge(&paths)?);
    Ok(show(parsed, &plan, &lab::run::as_typed(&words))?)
}

fn plan(parsed: &Parsed, data: &str) -> Outcome {
    let asked = Asked::parse(parsed, data)?;
    (parsed.value('o')).map_or(Ok(()), |file| check_report(Path::new(file)))?;
    let request = &asked.request;
    if HostProfile::find(&request.host).is_none() {
        return Err(Error::invalid(format!("no host '{}'", request.host)).into());
    }
    let looking = bar(parsed, None, false, "looking at the files");
    let survey = Survey::of(&request.data, &|entries| looking.set_position(entries));
    looking.finish_and_clear();
    let survey = survey?;
    let header = Header {
        made_by: made_by(),
        request: request.clone(),
        shard: asked.shard,
        found: survey.found.clone(),
        sample: survey.sample(survey.one_in(request.sample_bytes)),
    };
    let file = asked.results.clone().unwrap_or_else(|| usual_file(&header));
    let (journal, tried) = Journal::open(&file, &header)?;
    let places = 0..request.combinations().len();
    let places = places.filter(|place| asked.shard.has(*place) && !tried.contains_key(place));
    let places: Vec<usize> = places.collect();
    let trying = Trying {
        parsed,
        asked: &asked,
        survey: &survey,
    };
    trying.all(&header.sample, &places, &|place, how| {
        journal.add(place, how)
    })?;
    let mut plan = Plan::of(Results::load(&file)?);
    if parsed.has('C') {
        let whole = survey.sample(1);
        trying.all(&whole, &plan.to_confirm(), &|place, how| {
            journal.confirm(place, how)
        })?;
        plan = Plan::of(Results::load(&file)?);
    }
    Ok(show(parsed, &plan, &asked.again)?)
}

/// A bar about a step of the work.
fn bar(parsed: &Parsed, total: Option<u64>, is_bytes: bool, what: &'static str) -> ProgressBar {
    let bar = match parsed.has('q') {
        true => ProgressBar::hidden(),
        false => progress(total, is_bytes),
    };
    bar.set_message(what);
    bar
}

/// What combinations are tried with.
struct Trying<'a> {
    parsed: &'a Parsed,
    asked: &'a Asked,
    survey: &'a Survey,
}

impl Trying<'_> {
    /// Tries combinations with a sample; `write` puts down each.
    fn all(
        &self,
        sample: &Sample,
        places: &[usize],
        write: &(dyn Fn(usize, Tried) -> Result<()> + Sync),
    ) -> Outcome {
        if places.is_empty() {
            return Ok(());
        }
        let (request, survey) = (&self.asked.request, self.survey);
        let is_interrupted = noticed_signals()?;
        let go_on = || match is_interrupted.load(Ordering::Relaxed) {
            true => Err(Error::invalid("interrupted")),
            false => Ok(()),
        };
        let is_confirming = sample.one_in < survey.one_in(request.sample_bytes);
        let keep = self
            .asked
            .keep
            .as_deref()
            .map(|folder| match is_confirming {
                true => folder.join("whole"),
                false => folder.to_owned(),
            });
        let folder = Folder::make("ashift-plan-", keep.as_deref())?;
        let is_whole = sample.one_in == 1 && survey.found.left_out == 0;
        let files = match is_whole {
            true => request.data.clone(),
            false => folder.path().join("sample"),
        };
        let trial = Trial {
            request,
            files,
            machines: folder.path().to_owned(),
            one_in: sample.one_in,
            scale: sample.scale(survey.found.bytes),
            jobs: self.asked.jobs,
            keep: keep.is_some(),
        };
        trial.check(&Children)?;
        let copying = bar(self.parsed, Some(sample.bytes), true, "taking a sample");
        let copied = match is_whole {
            true => Ok(()),
            false => survey.copy_sample(sample.one_in, &trial.files, &|bytes| {
                copying.set_position(bytes);
                go_on()
            }),
        };
        copying.finish_and_clear();
        let what = match is_confirming {
            true => "combinations, with all files",
            false => "combinations",
        };
        let trying = bar(self.parsed, Some(places.len() as u64), false, what);
        let done = |place, how| {
            write(place, how)?;
            trying.inc(1);
            go_on()
        };
        let outcome = copied.and_then(|()| trial.run(places, &Children, &done));
        trying.finish_and_clear();
        match outcome {
            Ok(()) => Ok(()),
            Err(_) if is_interrupted.load(Ordering::Relaxed) => {
                let text = "interrupted; what has been tried is kept, and the same command goes on from there";
                Err(Fail::Exits(INTERRUPTED, text.to_owned()))
            }
            Err(error) => {
                folder.keep();
                Err(error.into())
            }
        }
    }
}

/// Becomes true when a signal asks the program to end. Another one ends it.
fn noticed_signals() -> Result<Arc<AtomicBool>> {
    let is_noticed = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_noticed))?;
        signal_hook::flag::register(signal, Arc::clone(&is_noticed))?;
    }
    Ok(is_noticed)
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
