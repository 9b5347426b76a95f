//! `ashift cat` and `sha256sum`: the contents of files.

use admin::getopt::Parsed;
use base::{Error, ErrorKind, ObjectId, Result};
use dmu::Content;
use service::Access;
use zpl::FileType;
use zpl::mount::Mount;

use super::show::{put, top};
use super::walk::{Visit, Visitor, walk};
use super::{Paths, ReadError, Run};
use crate::command::{Command, Entry};
use crate::failure::Outcome;

/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

pub(crate) const CAT: Command<Entry> = Command::parsed(
    "cat",
    "print files of a data set",
    "usage: ashift cat [-rUv] POOL/DATASET[@SNAPSHOT]:/path…\n\n  \
           -r  every regular file below a directory, in the order of the names\n  \
           -U  with -r: in the order of the directories, as find(1) has them\n  \
           -v  say of errors which block of which device they are about\n",
    ("rUv", 1),
    |parsed| each_file(Run::new("cat"), parsed, print),
);

pub(crate) const SHA256SUM: Command<Entry> = Command::parsed(
    "sha256sum",
    "sum files up",
    "usage: ashift sha256sum [-rUv] POOL/DATASET[@SNAPSHOT]:/path…\n\n  \
           -r  every regular file below a directory, in the order of the names\n  \
           -U  with -r: in the order of the directories, as find(1) has them\n  \
           -v  say of errors which block of which device they are about\n",
    ("rUv", 1),
    |parsed| {
        let mut run = Run::new("sha256sum");
        run.show_progress(true);
        each_file(run, parsed, sum)
    },
);

/// Does something with the contents of a file that messages call so.
type Work = fn(&mut Run, &Mount, ObjectId, &str) -> Result<(), ReadError>;

/// Works on files below a directory, in the order of their names or not.
struct Below<'a, const IN_ORDER: bool> {
    fs: &'a Mount,
    work: Work,
}

impl<const IN_ORDER: bool> Visitor for Below<'_, IN_ORDER> {
    const SORTED: bool = IN_ORDER;

    fn enter(&mut self, visit: &Visit<'_>, run: &mut Run) -> Result<bool> {
        if visit.attr.file_type() == Some(FileType::Regular) {
            let outcome = (self.work)(run, self.fs, visit.attr.id, visit.path);
            report(run, visit.path, outcome);
        }
        Ok(true)
    }
}

fn report(run: &mut Run, path: &str, outcome: Result<(), ReadError>) {
    match outcome {
        Ok(()) => {}
        // Nothing was read: it is not a regular file.
        Err(ReadError { offset: 0, error }) if error.kind() == ErrorKind::IsDirectory => {
            run.complain(path, &error);
        }
        Err(error) => run.say(&format!("{path}: {}", error.words(run.verbose))),
    }
}

/// Works on the file of each operand, or on all below it.
fn each_file(mut run: Run, parsed: &Parsed, work: Work) -> Outcome {
    let paths = Paths::new(Access::Read);
    run.verbose = parsed.has('v');
    for operand in paths.expand(&parsed.operands) {
        let found = paths.find_file(&operand, true);
        let Some((mount, id)) = run.note(&operand, found) else {
            continue;
        };
        let (fs, run) = (&*mount, &mut run);
        match (parsed.has('r'), parsed.has('U')) {
            (false, _) => {
                let outcome = work(run, fs, id, &operand);
                report(run, &operand, outcome);
            }
            (true, true) => walk(fs, id, top(&operand), run, &mut Below::<false> { fs, work }),
            (true, false) => walk(fs, id, top(&operand), run, &mut Below::<true> { fs, work }),
        }
    }
    run.end(paths)
}

/// Prints a file.
fn print(_: &mut Run, fs: &Mount, id: ObjectId, _: &str) -> Result<(), ReadError> {
    each_piece(fs, id, put)
}

/// Prints the checksum of a file.
fn sum(run: &mut Run, fs: &Mount, id: ObjectId, name: &str) -> Result<(), ReadError> {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    each_piece(fs, id, |bytes| {
        hash.update(bytes);
        rt::charge_program(rt::Work::Digest, bytes.len() as u64);
        run.bar.inc(bytes.len() as u64);
    })?;
    let hex: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    run.line(&format!("{hex}  {name}"));
    Ok(())
}

/// Passes all bytes of a file to `see`, in order, up to the first block that cannot be read.
fn each_piece(fs: &Mount, id: ObjectId, mut see: impl FnMut(&[u8])) -> Result<(), ReadError> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let at_start = |error| ReadError { offset: 0, error };
    let attr = fs.getattr(id).map_err(at_start)?;
    if attr.is_directory() {
        return Err(at_start(Error::new(ErrorKind::IsDirectory, "a directory")));
    }
    let block = attr.blksz.max(1);
    let (mut at, mut piece) = (0, PIECE_BYTES);
    loop {
        let contents = match fs.contents(id, at, piece) {
            Ok(contents) if contents.is_empty() => return Ok(()),
            Ok(contents) => contents,
            // Retry block by block: those before the damaged one are good.
            Err(_) if piece > block => {
                piece = block;
                continue;
            }
            Err(error) => return Err(ReadError { offset: at, error }),
        };
        for content in contents {
            match content {
                Content::Data(bytes) => {
                    see(&bytes);
                    at += bytes.len() as u64;
                }
                Content::Hole(len) => {
                    for start in (0..len).step_by(ZEROS.len()) {
                        see(&ZEROS[..ZEROS.len().min(len - start)]);
                    }
                    at += len as u64;
                }
            }
        }
    }
}
