//! The tests on one large file.

use std::io::SeekFrom;
use std::sync::Arc;

use base::BlockBuf;
use rt::Mutex;

use crate::bench::{Observer, Stop};
use crate::files::{File, Files, How};
use crate::options::Options;
use crate::random::Random;
use crate::results::{Longest, Results, Stopwatch, Taken, Test};

/// One in how many chunks that are looked for is written.
const UPDATED_ONE_IN: u32 = 10;
/// How long the threads have to get ready, in ns.
const READY_NS: u64 = 3_000_000_000;
/// How many bytes are written before their value begins again at 0.
const BYTE_VALUES: usize = 128;

type Outcome<T = ()> = Result<T, Stop>;

/// The file, which is removed when this is dropped.
pub(crate) struct Stream<'a> {
    files: &'a Arc<dyn Files>,
    options: &'a Options,
    name: &'a str,
    open: Option<Box<dyn File>>,
    buf: BlockBuf,
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // A failure has been reported, or the last seeker has removed it.
        let _ = close(&mut self.open);
        let _ = self.files.unlink(self.name);
    }
}

/// Closes a file, after everything in it is on stable storage.
fn close(open: &mut Option<Box<dyn File>>) -> Outcome {
    match open.take() {
        Some(mut file) => file.fsync().map_err(Stop::of("Can't sync file")),
        None => Ok(()),
    }
}

impl<'a> Stream<'a> {
    pub(crate) fn new(files: &'a Arc<dyn Files>, options: &'a Options, name: &'a str) -> Self {
        Stream {
            files,
            options,
            name,
            open: None,
            buf: BlockBuf::zeroed(options.chunk_bytes as usize),
        }
    }

    /// Runs the tests.
    pub(crate) fn run(
        &mut self,
        random: &mut Random,
        observer: &mut dyn Observer,
        results: &mut Results,
    ) -> Outcome {
        self.create()?;
        if self.options.byte_chunks() > 0 {
            results.record(Test::ByteWrite, self.write_bytes(observer)?);
        }
        results.record(Test::Write, self.write(observer)?);
        results.record(Test::Rewrite, self.rewrite(observer)?);
        if self.options.byte_chunks() > 0 {
            results.record(Test::ByteRead, self.read_bytes(observer)?);
        }
        results.record(Test::Read, self.read(observer)?);
        results.record(Test::Seek, self.seek(random, observer)?);
        Ok(())
    }

    /// Makes the file anew.
    fn create(&mut self) -> Outcome {
        close(&mut self.open)?;
        // Mostly there is none.
        let _ = self.files.unlink(self.name);
        let direct = self.options.is_direct;
        self.open(How::Create { direct })
    }

    fn open(&mut self, how: How) -> Outcome {
        close(&mut self.open)?;
        self.open = Some(open(&**self.files, self.name, how)?);
        Ok(())
    }

    /// Opens it to be read from the start on, where the other tests begin.
    fn rewind(&mut self) -> Outcome {
        self.open(How::ReadWrite)?;
        let sought = self.file().seek(SeekFrom::Start(0));
        sought.map_err(Stop::of("lseek before a test"))
    }

    fn file(&mut self) -> &mut dyn File {
        &mut **self.open.as_mut().expect("a test has opened it")
    }

    /// Does one operation for each of so many chunks, and closes the file.
    fn each(
        &mut self,
        observer: &mut dyn Observer,
        chunks: u64,
        mut operation: impl FnMut(&mut dyn File, &mut [u8], u64) -> Outcome,
    ) -> Outcome<Taken> {
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        for chunk in 0..chunks {
            if observer.is_interrupted() {
                return Err(Stop::Interrupted);
            }
            let file = &mut **self.open.as_mut().expect("a test has opened it");
            longest.time(|| operation(file, &mut self.buf, chunk))?;
        }
        close(&mut self.open)?;
        let taken = watch.stop(&longest);
        observer.say("done\n");
        Ok(taken)
    }

    fn write_bytes(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        observer.wait_for_turn(Test::ByteWrite)?;
        observer.say("Writing a byte at a time...");
        let chunks = self.options.byte_chunks();
        self.each(observer, chunks, |file, buf, _| {
            for at in 0..buf.len() {
                let byte = [(at % BYTE_VALUES) as u8];
                file.write(&byte)
                    .map_err(Stop::of("Can't write() - disk full?"))?;
            }
            Ok(())
        })
    }

    fn write(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        self.create()?;
        observer.wait_for_turn(Test::Write)?;
        observer.say("Writing intelligently...");
        self.buf.fill(0);
        self.each(observer, self.options.chunks(), |file, buf, chunk| {
            let at = usize::try_from(chunk).expect("a number of chunks") % buf.len();
            buf[at] = buf[at].wrapping_add(1);
            write_all(file, buf).map_err(|reason| {
                let why = match reason {
                    Stop::Failed(why) => why,
                    Stop::Interrupted => String::new(),
                };
                Stop::Failed(format!("Can't write block {chunk}: {why}"))
            })
        })
    }

    fn rewrite(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        self.rewind()?;
        observer.wait_for_turn(Test::Rewrite)?;
        observer.say("Rewriting...");
        self.each(observer, self.options.chunks(), |file, buf, chunk| {
            read_all(file, buf)?;
            let at = usize::try_from(chunk).expect("a number of chunks") % buf.len();
            buf[at] = buf[at].wrapping_add(1);
            let back = -i64::try_from(buf.len()).expect("a chunk");
            let sought = file.seek(SeekFrom::Current(back));
            sought.map_err(Stop::of("lseek in the rewrite"))?;
            write_all(file, buf)
        })
    }

    fn read_bytes(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        self.open(How::ReadWrite)?;
        observer.wait_for_turn(Test::ByteRead)?;
        observer.say("Reading a byte at a time...");
        let chunks = self.options.byte_chunks();
        self.each(observer, chunks, |file, buf, _| {
            for _ in 0..buf.len() {
                match file.read(&mut [0]) {
                    Ok(1) => {}
                    Ok(_) => return Err(Stop::Failed("Can't read a byte: the file ends".into())),
                    Err(error) => return Err(Stop::of("Can't read a byte")(error)),
                }
            }
            Ok(())
        })
    }

    fn read(&mut self, observer: &mut dyn Observer) -> Outcome<Taken> {
        self.rewind()?;
        observer.wait_for_turn(Test::Read)?;
        observer.say("Reading intelligently...");
        self.each(observer, self.options.chunks(), |file, buf, _| {
            read_all(file, buf)
        })
    }

    /// Threads look for chunks; the time counts from the first one's start to the last one's end.
    fn seek(&mut self, random: &mut Random, observer: &mut dyn Observer) -> Outcome<Taken> {
        let tickets: Vec<(u32, bool)> = (0..self.options.seeks)
            .map(|_| random.next())
            .map(|number| (number, number > 0 && number % UPDATED_ONE_IN == 0))
            .collect();
        self.open(How::ReadWrite)?;
        let tickets = Arc::new(Tickets::new(tickets));
        let seekers: Vec<_> = (0..self.options.seekers)
            .map(|_| {
                let seeker = Seeker {
                    files: Arc::clone(self.files),
                    name: self.name.to_owned(),
                    tickets: Arc::clone(&tickets),
                    chunks: self.options.chunks(),
                    chunk_bytes: self.options.chunk_bytes,
                    syncs: self.options.syncs,
                };
                rt::spawn("seeker", move || seeker.run())
            })
            .collect();
        rt::sleep_ns(READY_NS);
        let may_begin = observer.wait_for_turn(Test::Seek);
        tickets.open(may_begin.is_ok());
        if may_begin.is_ok() {
            observer.say("start 'em...");
        }
        let closed = close(&mut self.open);
        let mut reports = Vec::new();
        let mut outcome = may_begin.and(closed);
        for seeker in seekers {
            match seeker.join() {
                Ok(report) => {
                    observer.say("done...");
                    reports.push(report);
                }
                Err(stop) => outcome = outcome.and(Err(stop)),
            }
        }
        outcome?;
        observer.say("\n");
        let start_ns = reports.iter().map(|report| report.start_ns).min();
        let end_ns = reports.iter().map(|r| r.start_ns + r.taken.elapsed_ns);
        let span = end_ns.max().zip(start_ns).map(|(end, start)| end - start);
        Ok(Taken {
            elapsed_ns: span.unwrap_or_default(),
            // Each has counted what the whole process took, as in the original.
            cpu_ns: reports.iter().map(|report| report.taken.cpu_ns).sum(),
            latency_ns: (reports.iter().map(|report| report.taken.latency_ns))
                .max()
                .unwrap_or_default(),
        })
    }
}

fn open(files: &dyn Files, name: &str, how: How) -> Outcome<Box<dyn File>> {
    let opened = files.open(name, how);
    opened.map_err(Stop::of(format_args!("Can't open file {name}")))
}

fn read_all(file: &mut dyn File, buf: &mut [u8]) -> Outcome {
    let mut done = 0;
    while done < buf.len() {
        match file.read(&mut buf[done..]) {
            Ok(0) => {
                let text = format!("Can't read a full block, only got {done} bytes.");
                return Err(Stop::Failed(text));
            }
            Ok(read) => done += read,
            Err(error) => return Err(Stop::of("Can't read block")(error)),
        }
    }
    Ok(())
}

fn write_all(file: &mut dyn File, buf: &[u8]) -> Outcome {
    match file.write(buf) {
        Ok(written) if written == buf.len() => Ok(()),
        Ok(written) => Err(Stop::Failed(format!(
            "Can't write block: only {written} bytes were written"
        ))),
        Err(error) => Err(Stop::of("Can't write block")(error)),
    }
}

/// The chunks that are to be looked for, handed out one by one once all threads are there.
struct Tickets {
    state: Mutex<Handing>,
    changed: rt::Condvar,
}

struct Handing {
    left: std::vec::IntoIter<(u32, bool)>,
    /// Whether they are handed out; `Some(false)`: they never are.
    is_open: Option<bool>,
}

impl Tickets {
    fn new(tickets: Vec<(u32, bool)>) -> Tickets {
        Tickets {
            state: Mutex::new(Handing {
                left: tickets.into_iter(),
                is_open: None,
            }),
            changed: rt::Condvar::default(),
        }
    }

    fn open(&self, is_open: bool) {
        self.state.lock().is_open = Some(is_open);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<(u32, bool)> {
        let mut state = self.state.lock();
        (self.changed).wait_while(&mut state, |state| state.is_open.is_none());
        state.left.next().filter(|_| state.is_open == Some(true))
    }
}

/// One thread that looks for chunks.
struct Seeker {
    files: Arc<dyn Files>,
    name: String,
    tickets: Arc<Tickets>,
    chunks: u64,
    chunk_bytes: u32,
    syncs: bool,
}

/// When a seeker began, and what it took.
struct Report {
    start_ns: u64,
    taken: Taken,
}

impl Seeker {
    fn run(self) -> Outcome<Report> {
        let mut open = Some(open(&*self.files, &self.name, How::ReadWrite)?);
        let mut buf = BlockBuf::zeroed(self.chunk_bytes as usize);
        let mut next = self.tickets.next();
        let (watch, mut longest) = (Stopwatch::start(), Longest::default());
        let file = &mut **open.as_mut().expect("just opened");
        while let Some((number, is_updated)) = next {
            let chunk = u64::from(number) % self.chunks;
            longest.time(|| self.look_for(file, &mut buf, chunk, is_updated))?;
            next = self.tickets.next();
        }
        close(&mut open)?;
        let report = Report {
            start_ns: watch.start_ns(),
            taken: watch.stop(&longest),
        };
        // Each thread of the original removes the file at its end; for all but the first it is gone.
        let _ = self.files.unlink(&self.name);
        Ok(report)
    }

    fn look_for(
        &self,
        file: &mut dyn File,
        buf: &mut [u8],
        chunk: u64,
        is_updated: bool,
    ) -> Outcome {
        let at = SeekFrom::Start(chunk * u64::from(self.chunk_bytes));
        file.seek(at).map_err(Stop::of("lseek in doseek"))?;
        read_all(file, buf)?;
        if !is_updated {
            return Ok(());
        }
        let at_byte = usize::try_from(chunk).expect("a number of chunks") % buf.len();
        let byte = &mut buf[at_byte];
        *byte = byte.wrapping_sub(1);
        file.seek(at).map_err(Stop::of("lseek in doseek update"))?;
        write_all(file, buf)?;
        if self.syncs {
            file.fsync().map_err(Stop::of("Can't sync file"))?;
        }
        Ok(())
    }
}
