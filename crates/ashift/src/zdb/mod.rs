//! `zdb`: looks at labels, objects and blocks without changing anything, and checks whole pools.
//!
//! # What it is
//! The output is that of OpenZFS's zdb 2.3 where it says the same; what it also says (histograms of
//! the leaves of ZAPs, lists of deadlist entries) is left out. The pool is opened read-only.
//!
//! # Source
//! OpenZFS cmd/zdb/zdb.c, and what Debian's zdb 2.3 prints.

mod blocks;
mod datasets;
mod dedup;
mod labels;
mod metaslabs;
mod objects;
mod pool;
mod read;
mod text;
mod viewers;

use std::io::Write;
use std::process::ExitCode;

use admin::getopt::{Flag, OptSpec, Parsed, parse};

use text::Printer;

const USAGE: &str = "\
usage: zdb [-bcCdmuvPL] [-e [-p path] ...] [-U cachefile] [-j] pool[/dataset | /objset id] [object ...]
       zdb -l[lu] device ...
       zdb -O [-e [-p path] ...] pool/dataset path
       zdb -R [-e [-p path] ...] pool vdev:offset:[lsize/]psize[:flags]
       zdb -S [-e [-p path] ...] [-U cachefile] [-Pj] pool
       zdb -C [-U cachefile]

    -b      block statistics, and whether blocks and space maps agree (-bb: by type)
    -c      verify the checksums of metadata, -cc of everything
    -C      the configuration of a pool, or of the cachefile
    -d      data sets; -dd objects, -dddd their content, -ddddd their blocks
    -e      the pool is exported: look for it on devices
    -j      JSON instead of text (-l, -C, -u, -d, -b, -m, -S)
    -l      the labels of a device; -ll how they fill their place, -lu uberblocks, too
    -L      do not look for leaks
    -m      metaslabs; -mm with histograms
    -O      an object by its path
    -p      where to look for devices: a folder or a device
    -P      exact numbers
    -R      raw blocks; flags: b block pointers, d decompress, i indirect block, r raw to stdout
    -S      what deduplication would save: blocks by how often the same one is there
    -u      the uberblock
    -U      another cachefile
";

/// What is asked for.
pub(crate) struct Request {
    args: Parsed,
}

impl Request {
    /// How often an option was given.
    fn count(&self, letter: char) -> usize {
        self.args
            .options
            .iter()
            .filter(|(flag, _)| *flag == Flag::Short(letter))
            .count()
    }

    fn has(&self, letter: char) -> bool {
        self.args.has(letter)
    }

    /// How much to say about `letter`: as often as it, and `-v`, were given.
    fn verbosity(&self, letter: char) -> usize {
        let own = self.count(letter);
        if own == 0 { 0 } else { own + self.count('v') }
    }
}

/// Runs `zdb ARGS`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let spec = OptSpec {
        short: "AbcdDeFGiI:jklK:LmMNo:OCp:PqrRsSt:TuU:vVx:XyYZ",
        long: &[("json", Flag::Short('j'))],
    };
    let args = match parse(&spec, args) {
        Ok(args) => args,
        Err(error) => {
            eprint!("zdb: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let missing = "DiIkKMorstTVxXyYZFN"
        .chars()
        .find(|letter| args.has(*letter));
    if let Some(letter) = missing {
        return crate::say::fail("zdb", 1, &format!("-{letter} is not supported yet"));
    }
    let mut out = Printer::new(args.has('P'));
    let request = Request { args };
    let outcome = dispatch(&request, &mut out);
    let flushed = out.flush();
    match outcome {
        Ok(code) if flushed.is_ok() => ExitCode::from(code),
        Ok(_) => ExitCode::from(1),
        Err(error)
            if error.kind() == base::ErrorKind::InvalidInput && error.to_string().is_empty() =>
        {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => crate::say::fail("zdb", 1, &error.to_string()),
    }
}

fn usage_error() -> base::Error {
    base::Error::invalid("")
}

fn dispatch(request: &Request, out: &mut Printer) -> base::Result<u8> {
    if request.has('l') {
        return labels::run(request, out);
    }
    let Some((target, rest)) = request.args.operands.split_first() else {
        if request.has('C') {
            return pool::cachefile_config(request, out);
        }
        return Err(usage_error());
    };
    let pool = pool::open(request, target)?;
    if request.has('O') {
        return datasets::by_path(request, out, &pool, target, rest);
    }
    if request.has('S') {
        return dedup::run(request, out, &pool);
    }
    if request.has('R') {
        return read::run(out, &pool, rest);
    }
    let shows = ["b", "c", "C", "d", "m", "u"];
    let is_told = shows.iter().any(|l| l.chars().any(|l| request.has(l)));
    if pool::dataset_part(target).is_some() && !request.has('d') {
        return datasets::run(request, out, &pool, target, rest, 1);
    }
    if request.has('u') || !is_told {
        pool::uberblock(request, out, &pool)?;
    }
    if request.has('C') || !is_told {
        pool::config(request, out, &pool)?;
    }
    if request.has('m') {
        metaslabs::run(request, out, &pool)?;
    }
    if request.has('d') || !is_told {
        let verbosity = request.verbosity('d').max(1);
        datasets::run(request, out, &pool, target, rest, verbosity)?;
    }
    if request.has('b') || request.has('c') || !is_told {
        return blocks::run(request, out, &pool);
    }
    Ok(0)
}
