//! File locks, which commands wait for in turn.
//!
//! # What it is
//! [`FileLock::take`] locks a file, shared or exclusively, and waits as long as its [`Patience`] lasts. The
//! file says which command took it last: `PID COMMAND LINE`.
//!
//! # Concurrency
//! `flock` is not fair: a chain of readers, each of which begins before the last one ends, would keep a
//! writer out for ever. So a command first locks `NAME.queue` and holds that until it has the lock itself:
//! later ones, reader or writer, wait behind it. Both files are polled, since a blocking `flock` has no
//! timeout.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use base::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Interval between attempts to take a lock: 20 ms.
const TRY_EVERY_NS: u64 = 20_000_000;
/// How long a wait lasts before it is reported: 1 s.
const SAY_AFTER_NS: u64 = 1_000_000_000;
/// Length to which a command line is cut in the lock file, in characters.
const COMMAND_LINE_CHARS: usize = 60;

/// How long to wait for other commands, and how the wait is reported.
pub struct Patience<'a> {
    /// After this time a lock that is not free is an error.
    pub wait_ns: u64,
    /// Called once, when a wait has lasted a second, with what it is for and the obstacle:
    /// `pool 'tank': in use by …`.
    pub on_wait: &'a dyn Fn(&str),
}

impl Patience<'_> {
    /// Calls `attempt` until it returns an outcome (`Ok`) or the time is up; `Err` is the obstacle, and the
    /// attempt is repeated. `what` names the thing waited for.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] with the obstacle; the error in the outcome of `attempt`.
    pub fn wait_for<T>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> std::result::Result<Result<T>, String>,
    ) -> Result<T> {
        let start_ns = rt::now_ns();
        let mut is_said = false;
        loop {
            let obstacle = match attempt() {
                Ok(outcome) => return outcome,
                Err(obstacle) => obstacle,
            };
            let waited_ns = rt::now_ns() - start_ns;
            if waited_ns >= self.wait_ns {
                return Err(Error::new(ErrorKind::Busy, obstacle));
            }
            if waited_ns >= SAY_AFTER_NS && !is_said {
                (self.on_wait)(&format!("{what}: {obstacle}"));
                is_said = true;
            }
            rt::sleep_ns(TRY_EVERY_NS.min(self.wait_ns - waited_ns));
        }
    }
}

/// The mode of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Reading, shared with other readers.
    Shared,
    /// Changing, exclusive.
    Exclusive,
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct FileLock(File);

impl Drop for FileLock {
    /// Closing alone would not do: a child process has a copy of the descriptor between `fork` and `exec`,
    /// and would keep the lock until then.
    fn drop(&mut self) {
        // If this fails, closing the file unlocks it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl FileLock {
    /// Locks the file at `path`, which is created if missing, for `what`: `pool 'tank'`.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] with the command that has it when the time is up; what the host says.
    pub fn take(
        path: &Path,
        mode: LockMode,
        what: &str,
        patience: &Patience<'_>,
    ) -> Result<FileLock> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| Error::from(e).within(folder.display()))?;
        }
        let mut lock = FileLock(open(path)?);
        let queue = FileLock(open(&queue_of(path))?);
        let operation = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        let mut is_next = false;
        patience.wait_for(what, || {
            let turn = if is_next {
                Ok(true)
            } else {
                try_lock(&queue.0, FlockOperation::NonBlockingLockExclusive)
            };
            is_next = matches!(turn, Ok(true));
            let locked = turn.and_then(|turn| Ok(turn && try_lock(&lock.0, operation)?));
            match locked {
                Ok(true) => Ok(Ok(())),
                Ok(false) => Err(in_use_by(path)),
                Err(error) => Ok(Err(error.within(path.display()))),
            }
        })?;
        // For the messages of commands that wait; nothing else depends on it.
        let file = &mut lock.0;
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{} {}", std::process::id(), own_command_line()));
        Ok(lock)
    }
}

fn queue_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".queue");
    PathBuf::from(name)
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::from(e).within(path.display()))
}

fn try_lock(file: &File, operation: FlockOperation) -> Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(Error::from(std::io::Error::from(errno))),
    }
}

/// Says which command has a lock, as far as its file tells: with several readers it names the last to take
/// it, which may have ended since.
fn in_use_by(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    let known = read.ok().and_then(|_| text.trim().split_once(' '));
    let lives = |pid: &str| pid.parse::<u32>().is_ok() && Path::new("/proc").join(pid).exists();
    match known.filter(|(pid, _)| lives(pid)) {
        Some((pid, command)) => format!("in use by `{command}` (pid {pid})"),
        None => "in use by another command".to_owned(),
    }
}

/// The command line of this process, as other commands show it.
fn own_command_line() -> String {
    let mut words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(program) = words.first_mut() {
        let name = Path::new(program.as_str()).file_name();
        *program = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    }
    let line = words.join(" ").replace(char::is_control, "?");
    match line.char_indices().nth(COMMAND_LINE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const NO_WAIT: Patience<'_> = Patience {
        wait_ns: 0,
        on_wait: &|_| {},
    };
    const LONG_WAIT: Patience<'_> = Patience {
        wait_ns: 20_000_000_000,
        on_wait: &|_| {},
    };

    fn take(path: &Path, mode: LockMode, patience: &Patience<'_>) -> Result<FileLock> {
        FileLock::take(path, mode, "pool 'tank'", patience)
    }

    #[test]
    fn readers_share_a_lock_and_a_writer_is_told_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks/tank.lock");
        let first = take(&path, LockMode::Shared, &NO_WAIT).unwrap();
        let second = take(&path, LockMode::Shared, &NO_WAIT).unwrap();
        let error = take(&path, LockMode::Exclusive, &NO_WAIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let text = error.to_string();
        let pid = format!("(pid {})", std::process::id());
        assert!(text.starts_with("in use by `"), "{text}");
        assert!(text.ends_with(&pid), "{text}");
        drop((first, second));
        take(&path, LockMode::Exclusive, &NO_WAIT).unwrap();
    }

    #[test]
    fn a_chain_of_readers_lets_a_writer_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let is_done = Arc::new(AtomicBool::new(false));
        // Each takes the lock before it lets the last one go.
        let reader = std::thread::spawn({
            let (path, is_done) = (path.clone(), is_done.clone());
            move || {
                let mut held = take(&path, LockMode::Shared, &LONG_WAIT).unwrap();
                while !is_done.load(Ordering::Acquire) {
                    let next = Patience {
                        wait_ns: 50_000_000,
                        on_wait: &|_| {},
                    };
                    match take(&path, LockMode::Shared, &next) {
                        Ok(next) => held = next,
                        // Queued behind the writer, which waits for this reader.
                        Err(_) => break,
                    }
                }
                drop(held);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        let writer = take(&path, LockMode::Exclusive, &LONG_WAIT);
        is_done.store(true, Ordering::Release);
        reader.join().unwrap();
        writer.unwrap();
    }
}
