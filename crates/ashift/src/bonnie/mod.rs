//! `bonnie++`: speed of a file system with one large file and with many small ones; and the tools for its lines.

mod lines;
mod pool_files;
mod request;
mod semaphores;
mod user;
mod zcav;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Context, Error};
use bonnie::{Bench, Files, HostFiles, Observer, Random, Report, Results, Stop, Test};
use service::Access;
use signal_hook::consts::SIGINT;

use self::pool_files::PoolFiles;
use self::request::{Request, Runs, Seed, Served, Turns};
use self::user::User;
use crate::caller::{self, Stream, caller};
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::files::{Location, Paths};

pub(crate) use lines::{CSV2HTML, CSV2TXT};
pub(crate) use zcav::ZCAV;

/// What the original ends with after Ctrl-C.
const INTERRUPTED_CODE: u8 = 5;

const USAGE: &str = "\
usage: bonnie++ [-d FOLDER] [-s MIB[:CHUNK[:SEEKS[:SEEKERS]]]]
                [-n THOUSANDS[:MAX[:MIN[:DIRECTORIES[:CHUNK]]]]] [-m MACHINE] [-r RAM_MIB] [-x RUNS]
                [-u USER[:GROUP]] [-g GROUP] [-c CONCURRENCY] [-f[MIB]] [-b] [-D] [-q] [-y p|s]
                [-z SEED | -Z FILE] [--era 1.96|2.00]
       bonnie++ -p RUNS|-1
";

const MORE: &str = "
Measures a file system: a large file is written, rewritten, read and sought in, then many files are made,
read and removed, in order and at random. FOLDER is one of this host, which may be a mount, or one in a
pool (POOL/DATASET:/path); in a machine it is below a mountpoint, and the time is simulated.

  -s   size of the large file (100, 16g), of a read or write (8k), how many seeks by how many threads;
       0: no such test; default: twice the memory
  -n   thousands of files, their greatest and least size, in how many directories; 0: no such test;
       a MAX of -1 makes hard links, of -2 symbolic ones
  -m   the name in the report             -r   memory, which the size is checked against; 0: not
  -x   so many runs, a line for each      -c   how many of these run at a time, for the report
  -u   the owner of the files             -g   their group
  -f   nothing, or MIB, byte by byte      -b   everything onto the disk at once
  -D   past the cache                     -q   tables to stderr, and nothing else there
  -z   where random numbers begin         -Z   a file of them
  -y p asks before each test; -y s waits for the others: `bonnie++ -p 3` makes semaphores for three runs that
       begin each test together, `-p -1` removes them; in a machine they are there while it is on

The tables have the layout of version 2.00a, or with --era 1.96 of that one. In a machine whose
memory is not known (`machine create --memory`) it is not looked at unless -r says it.
";

pub(crate) const BONNIE: Command<Entry> = Command::explained(
    "bonnie++",
    "speed of a file system, with one file and with many",
    USAGE,
    run,
)
.more(MORE)
.leads_with("")
.misused_is_1()
.tool();

fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    if let Some(served) = request.semaphores {
        return serve(served);
    }
    if request.turns == Turns::Semaphores {
        semaphores::semaphores().find()?;
    }
    let number = match crate::world::is_machine() {
        true => 1000 + rt::random_below(60_000) as u32,
        false => std::process::id(),
    };
    let random = match &request.seed {
        Seed::Clock => Random::seeded(number ^ rt::wall_clock().secs as u32),
        Seed::Number(seed) => Random::seeded(*seed),
        Seed::File(name) => {
            let bytes = std::fs::read(name).map_err(Error::from);
            let failed = || format!("Can't open random file \"{name}\"");
            Random::given(name, &bytes.within(failed)?).within(failed)?
        }
    };
    let paths = Paths::new(Access::Write);
    let outcome = measure(&request, &paths, random, number);
    let outcome = outcome.map_err(|fail| fail.say(""));
    paths.close()?;
    outcome
}

/// Makes or removes the semaphores that runs with `-y s` wait for.
fn serve(served: Served) -> Outcome {
    let semaphores = semaphores::semaphores();
    match served {
        Served::Runs(runs) => {
            semaphores.make(runs)?;
            println!("Creating semaphore for {runs} procs.");
        }
        Served::Nobody => {
            semaphores.remove()?;
            println!("Semaphore removed.");
        }
    }
    Ok(())
}

fn measure(request: &Request, paths: &Paths, random: Random, number: u32) -> Outcome {
    let user = request.user.as_ref().map(User::find).transpose()?;
    let unreachable = || format!("Can't change to directory \"{}\"", request.folder);
    let (files, _became): (Arc<dyn Files>, _) = match paths.locate(&request.folder)? {
        Location::Host(_) if crate::world::is_machine() => {
            let why = Error::not_found("no data set is mounted there");
            return Err(why.within(unreachable()).into());
        }
        Location::Host(folder) => {
            let folder = folder.to_string_lossy();
            let files = HostFiles::new(&folder).within(unreachable)?;
            if user.is_none() && rustix::process::geteuid().is_root() {
                let text = "You must use the \"-u\" switch when running as root.";
                return Err(Fail::Usage(text.to_owned()));
            }
            let became = user.as_ref().map(User::become_it).transpose()?;
            (Arc::new(files), became)
        }
        Location::Pool(dataset, path) => {
            let mount = paths.mount(&dataset)?;
            let owner = user.as_ref().map_or_else(user::own, User::ids);
            let files = PoolFiles::new(mount, &path, owner).within(unreachable)?;
            (Arc::new(files), None)
        }
    };
    if let Some(user) = user.filter(|_| !request.is_quiet) {
        let (uid, gid) = user.ids();
        eprintln!("Using uid:{uid}, gid:{gid}.");
    }
    let seed = random.seed().to_owned();
    let mut bench = Bench::new(files, request.options.clone(), random, number);
    let mut progress = Progress::new(request)?;
    if matches!(request.runs, Runs::Lines(2..)) {
        print!("{}", Report::header());
    }
    for _ in 0..request.runs.count() {
        let results = bench.run(&mut progress).map_err(|stop| match stop {
            Stop::Failed(text) => Fail::Failed(text),
            Stop::Interrupted => Fail::Said(INTERRUPTED_CODE),
        })?;
        print(request, &seed, &results);
    }
    Ok(())
}

fn print(request: &Request, seed: &str, results: &Results) {
    let report = Report {
        era: request.era,
        options: &request.options,
        machine: &request.machine,
        seed,
        results,
    };
    if request.runs == Runs::Tables {
        match request.is_quiet {
            true => eprint!("{}", report.text()),
            false => print!("{}", report.text()),
        }
    }
    print!("{}", report.csv());
    caller().flush(Stream::Out);
}

/// Says on stderr how far it is.
struct Progress<'a> {
    request: &'a Request,
    is_interrupted: Arc<AtomicBool>,
}

impl Progress<'_> {
    fn new(request: &Request) -> Outcome<Progress<'_>> {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        // A client is told otherwise when its command is to end.
        if caller().as_client().is_none() {
            signal_hook::flag::register(SIGINT, Arc::clone(&is_interrupted))?;
        }
        Ok(Progress {
            request,
            is_interrupted,
        })
    }
}

impl Observer for Progress<'_> {
    fn say(&mut self, text: &str) {
        if !self.request.is_quiet {
            eprint!("{text}");
        }
    }

    fn wait_for_turn(&mut self, test: Test) -> Result<(), Stop> {
        match self.request.turns {
            Turns::Free => Ok(()),
            Turns::Asked => {
                print!("\n{}:\n", test as usize);
                let caller = caller();
                caller.flush(Stream::Out);
                let mut line = String::new();
                let read = caller.input().read_line(&mut line);
                read.map_err(|error| Stop::Failed(format!("stdin: {error}")))?;
                Ok(())
            }
            Turns::Semaphores => {
                let come = semaphores::semaphores().come_to(test, &mut || self.is_interrupted());
                come.map_err(|error| Stop::Failed(error.to_string()))
            }
        }
    }

    fn is_interrupted(&mut self) -> bool {
        caller::check();
        self.is_interrupted.load(Ordering::Relaxed)
    }
}
