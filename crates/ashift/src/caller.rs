//! Who called the command that a thread runs: the standard streams, the environment, the chosen machine.
//!
//! # What it is
//! A command does not know whether it runs in a program of its own or, beside others, in one that holds pools
//! (`holder`). It prints by the macros of this module, which have the names of the standard library's, and asks
//! [`caller`] for the rest; nothing else in this crate names the streams and the environment of the process.
//! The current folder and the file creation mask need no such thing: a thread that runs a command for a client has
//! its own (`CLONE_FS`).
//!
//! # Invariants
//! 1. A thread that prints for a command has its caller: those that a command starts get it from the one that
//!    started them ([`spawn`]).
//! 2. A command whose output has no reader ends at the next word that it prints, as SIGPIPE would end it.
//!
//! # Concurrency
//! Each stream has a lock of its own; a line is written as a whole.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, LineWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use jiff::tz::TimeZone;
use rustix::event::{PollFd, PollFlags, Timespec};
use service::Keeper;

/// Exit code that a shell reports for a program killed by SIGINT.
const SIGINT_CODE: u8 = 128 + 2;
/// Exit code that a shell reports for a program killed by SIGPIPE.
const SIGPIPE_CODE: u8 = 128 + 13;

/// Stack of a command's thread: as much as that of a program's first one.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// How often a command that waits looks whether its client is gone, in ns.
const CHECK_NS: u64 = 50_000_000;
/// The same in simulated time, which takes less than it.
const SIMULATED_CHECK_NS: u64 = 1_000_000_000;

/// Prints to the caller's stdout.
macro_rules! print {
    ($($arg:tt)*) => {
        $crate::caller::put($crate::caller::Stream::Out, format_args!($($arg)*))
    };
}

/// Prints a line to the caller's stdout.
macro_rules! println {
    () => { $crate::caller::put($crate::caller::Stream::Out, format_args!("\n")) };
    ($($arg:tt)*) => {
        $crate::caller::put($crate::caller::Stream::Out, format_args!("{}\n", format_args!($($arg)*)))
    };
}

/// Prints to the caller's stderr.
macro_rules! eprint {
    ($($arg:tt)*) => {
        $crate::caller::put($crate::caller::Stream::Err, format_args!($($arg)*))
    };
}

/// Prints a line to the caller's stderr.
macro_rules! eprintln {
    () => { $crate::caller::put($crate::caller::Stream::Err, format_args!("\n")) };
    ($($arg:tt)*) => {
        $crate::caller::put($crate::caller::Stream::Err, format_args!("{}\n", format_args!($($arg)*)))
    };
}

/// A stream that a command prints to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// stdout
    Out,
    /// stderr
    Err,
}

/// Who called a command.
pub(crate) struct Caller {
    input: Mutex<Box<dyn BufRead + Send>>,
    out: Mutex<Box<dyn Write + Send>>,
    err: Mutex<Box<dyn Write + Send>>,
    /// What a client of this process gave; `None` if the process itself was called.
    client: Option<Client>,
    machine: OnceLock<Option<PathBuf>>,
    is_quiet: AtomicBool,
    pub(crate) zone: OnceLock<TimeZone>,
    /// The thread that runs a client's command.
    thread: OnceLock<ThreadId>,
    ending: Ending,
    /// Those of the commands that this one is part of: a script, and what called that.
    outer: Vec<Ending>,
}

/// The exit code with which a command is to end as soon as it can; 0 if it is not.
#[derive(Clone, Default)]
pub(crate) struct Ending(Arc<AtomicU8>);

impl Ending {
    /// The client is gone: its command ends at its next [`check`].
    pub(crate) fn hang_up(&self) {
        self.0.store(SIGINT_CODE, Ordering::Relaxed);
    }

    fn code(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a client gives with a command.
pub(crate) struct Client {
    /// stdin, stdout, stderr
    pub(crate) streams: [OwnedFd; 3],
    pub(crate) environment: BTreeMap<OsString, OsString>,
    /// The state folder of this process.
    pub(crate) state: PathBuf,
    /// The folder of the machine in which the command runs.
    pub(crate) machine: Option<PathBuf>,
    /// What keeps the pools open, if anything does.
    pub(crate) keeper: Option<Arc<Keeper>>,
}

/// The payload of the unwinding that ends a command of a client, with its exit code.
struct Ended(u8);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Caller>>> = const { RefCell::new(None) };
}

/// Who called the command that this thread runs.
pub(crate) fn caller() -> Arc<Caller> {
    static PROCESS: OnceLock<Arc<Caller>> = OnceLock::new();
    let process = || {
        Arc::new(Caller {
            input: Mutex::new(Box::new(BufReader::new(io::stdin()))),
            out: Mutex::new(Box::new(io::stdout())),
            err: Mutex::new(Box::new(io::stderr())),
            client: None,
            machine: OnceLock::new(),
            is_quiet: AtomicBool::new(false),
            zone: OnceLock::new(),
            thread: OnceLock::new(),
            ending: Ending::default(),
            outer: Vec::new(),
        })
    };
    let current = CURRENT.with_borrow(Clone::clone);
    current.unwrap_or_else(|| Arc::clone(PROCESS.get_or_init(process)))
}

/// Runs something for a caller.
pub(crate) fn enter<T>(caller: Arc<Caller>, run: impl FnOnce() -> T) -> T {
    /// Also after an unwinding.
    struct Leaves(Option<Arc<Caller>>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _leaves = Leaves(CURRENT.replace(Some(caller)));
    run()
}

/// Runs a client's command in this thread, and returns its exit code.
pub(crate) fn run(caller: &Arc<Caller>, command: impl FnOnce() -> u8) -> u8 {
    let _ = caller.thread.set(std::thread::current().id());
    let act = || {
        let code = enter(Arc::clone(caller), command);
        caller.flush(Stream::Out);
        code
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
    outcome.unwrap_or_else(|payload| match payload.downcast::<Ended>() {
        Ok(ended) => ended.0,
        Err(payload) => std::panic::resume_unwind(payload),
    })
}

/// Starts a thread that works for the caller of this one.
pub(crate) fn spawn(run: impl FnOnce() + Send + 'static) {
    let caller = caller();
    std::thread::spawn(move || enter(caller, run));
}

/// Ends the command if its client is gone. For what takes long and prints nothing.
pub(crate) fn check() {
    caller().end_if_asked();
}

/// Waits so long, in ns, or until the client is gone.
pub(crate) fn sleep_ns(ns: u64) {
    let step_ns = match rt::is_simulated() {
        true => SIMULATED_CHECK_NS,
        false => CHECK_NS,
    };
    let end_ns = rt::now_ns().saturating_add(ns);
    loop {
        check();
        let left_ns = end_ns.saturating_sub(rt::now_ns());
        if left_ns == 0 {
            return;
        }
        rt::sleep_ns(left_ns.min(step_ns));
    }
}

/// Waits until a stream that a client gave can be read, or until the client is gone: it would read what the next
/// program is to get. In a machine that is up others run meanwhile.
pub(crate) fn wait_for(stream: &impl AsFd) {
    if caller().client.is_none() {
        return;
    }
    let is_ready = |ns: u64| {
        let timeout = Timespec::try_from(Duration::from_nanos(ns)).ok();
        let mut waiting = [PollFd::new(stream, PollFlags::IN)];
        let polled = rustix::event::poll(&mut waiting, timeout.as_ref());
        !matches!(polled, Ok(0) | Err(rustix::io::Errno::INTR))
    };
    let mut is_there = is_ready(0);
    while !is_there {
        check();
        is_there = rt::outside(|| is_ready(CHECK_NS));
    }
}

/// What the macros for printing do.
pub(crate) fn put(stream: Stream, text: fmt::Arguments<'_>) {
    let caller = caller();
    caller.end_if_asked();
    let outcome = match stream {
        Stream::Out => caller.stream(stream).write_fmt(text),
        // In one piece, as both ends of a pipe may report an error at once.
        Stream::Err => caller.stream(stream).write_all(text.to_string().as_bytes()),
    };
    caller.check(stream, outcome);
}

/// A variable of the caller's environment.
pub(crate) fn var_os(name: &str) -> Option<OsString> {
    match &caller().client {
        Some(client) => client.environment.get(std::ffi::OsStr::new(name)).cloned(),
        None => std::env::var_os(name),
    }
}

/// The caller's environment.
pub(crate) fn environment() -> BTreeMap<OsString, OsString> {
    match &caller().client {
        Some(client) => client.environment.clone(),
        None => std::env::vars_os().collect(),
    }
}

/// The caller's stdout, for writing bytes. Each write is a call; a closed pipe ends the command.
#[derive(Clone, Copy)]
pub(crate) struct Stdout;

/// The caller's stdout.
pub(crate) fn stdout() -> Stdout {
    Stdout
}

impl Stdout {
    /// Writes all of it.
    pub(crate) fn put(self, bytes: &[u8]) {
        let caller = caller();
        let outcome = caller.stream(Stream::Out).write_all(bytes);
        caller.check(Stream::Out, outcome);
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        caller().flush(Stream::Out);
        Ok(())
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_client, machine) = (self.client.is_some(), self.machine());
        let mut text = f.debug_struct("Caller");
        text.field("is_client", &is_client)
            .field("machine", &machine);
        text.finish_non_exhaustive()
    }
}

impl Caller {
    /// A client of this process; `ending` ends its command.
    ///
    /// # Errors
    /// When there are too many open files.
    pub(crate) fn client(client: Client, ending: Ending) -> io::Result<Arc<Caller>> {
        Caller::new(client, ending, Vec::new()).map(Arc::new)
    }

    /// The caller of a command that is part of this one's: it ends when this one is to.
    ///
    /// # Errors
    /// When there are too many open files.
    pub(crate) fn within(&self, client: Client) -> io::Result<Arc<Caller>> {
        let outer = [&self.outer[..], std::slice::from_ref(&self.ending)].concat();
        let inner = Caller::new(client, Ending::default(), outer)?;
        inner.is_quiet.store(self.is_quiet(), Ordering::Relaxed);
        Ok(Arc::new(inner))
    }

    fn new(client: Client, ending: Ending, outer: Vec<Ending>) -> io::Result<Caller> {
        let [input, out, err] = &client.streams;
        Ok(Caller {
            input: Mutex::new(Box::new(BufReader::new(File::from(input.try_clone()?)))),
            out: Mutex::new(Box::new(LineWriter::new(File::from(out.try_clone()?)))),
            err: Mutex::new(Box::new(File::from(err.try_clone()?))),
            machine: OnceLock::from(client.machine.clone()),
            client: Some(client),
            is_quiet: AtomicBool::new(false),
            zone: OnceLock::new(),
            thread: OnceLock::new(),
            ending,
            outer,
        })
    }

    /// What a client of this process gave; `None` if the process itself was called.
    pub(crate) fn as_client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Records the machine in which its commands run; `None`: on this host.
    pub(crate) fn choose(&self, machine: Option<PathBuf>) {
        let _ = self.machine.set(machine);
    }

    /// The chosen machine's folder.
    pub(crate) fn machine(&self) -> Option<PathBuf> {
        self.machine.get().cloned().flatten()
    }

    /// Whether it wants to see no progress; see [`be_quiet`](Caller::be_quiet).
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// From now on it is not shown how far a command is.
    pub(crate) fn be_quiet(&self) {
        self.is_quiet.store(true, Ordering::Relaxed);
    }

    /// Whether a stream is a terminal.
    pub(crate) fn is_terminal(&self, stream: Stream) -> bool {
        self.descriptor(stream).is_terminal()
    }

    /// Whether stdin is a terminal.
    pub(crate) fn reads_terminal(&self) -> bool {
        match &self.client {
            Some(client) => client.streams[0].is_terminal(),
            None => io::stdin().is_terminal(),
        }
    }

    /// Width and height of a stream that is a terminal.
    pub(crate) fn screen(&self, stream: Stream) -> Option<(usize, usize)> {
        if !self.is_terminal(stream) {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(self.descriptor(stream)).ok()?;
        (size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
    }

    /// Reads stdin to its end.
    ///
    /// # Errors
    /// As `read`.
    pub(crate) fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.input().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// stdin, locked.
    pub(crate) fn input(&self) -> MutexGuard<'_, Box<dyn BufRead + Send>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that stdin is, for a command that reads nothing else of it.
    ///
    /// # Errors
    /// When there are too many open files.
    pub(crate) fn input_file(&self) -> io::Result<OwnedFd> {
        match &self.client {
            Some(client) => client.streams[0].try_clone(),
            None => io::stdin().as_fd().try_clone_to_owned(),
        }
    }

    /// The file that a stream is; what was printed before is in it.
    ///
    /// # Errors
    /// When there are too many open files.
    pub(crate) fn output_file(&self, stream: Stream) -> io::Result<OwnedFd> {
        self.flush(stream);
        self.descriptor(stream).try_clone_to_owned()
    }

    /// Writes what a stream has kept back.
    pub(crate) fn flush(&self, stream: Stream) {
        let outcome = self.stream(stream).flush();
        self.check(stream, outcome);
    }

    fn stream(&self, stream: Stream) -> MutexGuard<'_, Box<dyn Write + Send>> {
        let stream = match stream {
            Stream::Out => &self.out,
            Stream::Err => &self.err,
        };
        stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn descriptor(&self, stream: Stream) -> BorrowedFd<'_> {
        // Those of the process are open as long as it runs.
        match (&self.client, stream) {
            (Some(client), Stream::Out) => client.streams[1].as_fd(),
            (Some(client), Stream::Err) => client.streams[2].as_fd(),
            (None, Stream::Out) => rustix::stdio::stdout(),
            (None, Stream::Err) => rustix::stdio::stderr(),
        }
    }

    /// Ends the command if a stream could not be written.
    fn check(&self, stream: Stream, outcome: io::Result<()>) {
        let Err(error) = outcome else { return };
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.end(SIGPIPE_CODE);
        }
        // A full disk below stdout must not look like success; one below stderr has nowhere to be reported.
        if stream == Stream::Out {
            let _ = writeln!(self.stream(Stream::Err), "ashift: stdout: {error}");
            self.end(1);
        }
    }

    /// Ends the command: at once, or if another thread of it than its first calls this, at the next [`check`].
    fn end(&self, code: u8) {
        if self.client.is_none() {
            std::process::exit(code.into());
        }
        self.ending.0.store(code, Ordering::Relaxed);
        self.end_if_asked();
    }

    fn end_if_asked(&self) {
        let codes = self.outer.iter().chain([&self.ending]).map(Ending::code);
        let code = codes.max().unwrap_or(0);
        if code != 0 && self.thread.get() == Some(&std::thread::current().id()) {
            std::panic::resume_unwind(Box::new(Ended(code)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(streams: [OwnedFd; 3]) -> Arc<Caller> {
        let environment = BTreeMap::from([("HOME".into(), "/nowhere".into())]);
        let state = tempfile::tempdir().unwrap().keep();
        let pools = crate::session::pools_of_host(state.clone()).unwrap();
        let client = Client {
            streams,
            environment,
            state,
            machine: None,
            keeper: Some(Keeper::new(pools)),
        };
        Caller::client(client, Ending::default()).unwrap()
    }

    fn null() -> OwnedFd {
        File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap()
            .into()
    }

    #[test]
    fn what_a_command_prints_and_asks_is_its_clients() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (input, mut typed) = io::pipe().unwrap();
        typed.write_all(b"yes\nno\n").unwrap();
        drop(typed);
        let caller = client([input.into(), writer.into(), null()]);
        let code = run(&caller, || {
            assert_eq!(var_os("HOME").unwrap(), "/nowhere");
            assert_eq!(var_os("PATH"), None);
            let mut line = String::new();
            super::caller().input().read_line(&mut line).unwrap();
            print!("{line}{}", 1);
            println!();
            let (sender, receiver) = std::sync::mpsc::channel();
            spawn(move || {
                println!("a thread of {} words", 5);
                sender.send(()).unwrap();
            });
            receiver.recv().unwrap();
            assert_eq!(super::caller().read_all().unwrap(), b"no\n");
            print!("no end");
            7
        });
        assert_eq!(code, 7);
        assert!(CURRENT.with_borrow(Option::is_none));
        drop(caller);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "yes\n1\na thread of 5 words\nno end");
    }

    #[test]
    fn output_that_nobody_reads_ends_the_command_and_not_the_process() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let caller = client([null(), writer.into(), null()]);
        let code = run(&caller, || {
            println!("a line");
            unreachable!("it is ended");
        });
        assert_eq!(code, SIGPIPE_CODE);
        assert!(CURRENT.with_borrow(Option::is_none));
    }

    #[test]
    fn a_full_disk_below_stdout_is_a_failure() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let caller = client([null(), full.into(), writer.into()]);
        let code = run(&caller, || {
            println!("a line");
            unreachable!("it is ended");
        });
        assert_eq!(code, 1);
        drop(caller);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(
            said,
            "ashift: stdout: No space left on device (os error 28)\n"
        );
    }
}
