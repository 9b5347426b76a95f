//! What the tests took: time, processor, and the longest single operation.

/// The tests, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// The file is written byte by byte.
    ByteWrite,
    /// It is written in chunks.
    Write,
    /// Each chunk is read, changed and written again.
    Rewrite,
    /// The file is read byte by byte.
    ByteRead,
    /// It is read in chunks.
    Read,
    /// Chunks anywhere in it are read, and every tenth written.
    Seek,
    /// Files are made whose names are in order.
    CreateInOrder,
    /// They are read in the order of the directory.
    StatInOrder,
    /// They are removed in it.
    DeleteInOrder,
    /// Files are made whose names are in no order.
    CreateRandom,
    /// They are read in a random order.
    StatRandom,
    /// They are removed in another one.
    DeleteRandom,
}

/// How many tests there are.
pub const TESTS: usize = 12;

pub(crate) const FILE_TESTS: [Test; 6] = [
    Test::ByteWrite,
    Test::Write,
    Test::Rewrite,
    Test::ByteRead,
    Test::Read,
    Test::Seek,
];

pub(crate) const FILES_TESTS: [Test; 6] = [
    Test::CreateInOrder,
    Test::StatInOrder,
    Test::DeleteInOrder,
    Test::CreateRandom,
    Test::StatRandom,
    Test::DeleteRandom,
];

/// What one test took, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) elapsed_ns: u64,
    pub(crate) cpu_ns: u64,
    /// The longest single operation.
    pub(crate) latency_ns: u64,
}

/// What the tests took that were run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    taken: [Option<Taken>; TESTS],
}

impl Results {
    pub(crate) fn record(&mut self, test: Test, taken: Taken) {
        self.taken[test as usize] = Some(taken);
    }

    pub(crate) fn of(&self, test: Test) -> Option<Taken> {
        self.taken[test as usize]
    }
}

/// Time and processor from a moment on.
pub(crate) struct Stopwatch {
    start_ns: u64,
    start_cpu_ns: u64,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch {
            start_ns: rt::now_ns(),
            start_cpu_ns: rt::cpu_ns(),
        }
    }

    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    pub(crate) fn stop(&self, longest: &Longest) -> Taken {
        Taken {
            elapsed_ns: rt::now_ns() - self.start_ns,
            cpu_ns: rt::cpu_ns().saturating_sub(self.start_cpu_ns),
            latency_ns: longest.0,
        }
    }
}

/// The time of the longest of some operations, in ns.
#[derive(Default)]
pub(crate) struct Longest(u64);

impl Longest {
    /// Does one of them.
    pub(crate) fn time<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let start_ns = rt::now_ns();
        let value = f();
        self.since(start_ns);
        value
    }

    /// One of them began then and ends now.
    pub(crate) fn since(&mut self, start_ns: u64) {
        self.0 = self.0.max(rt::now_ns() - start_ns);
    }
}
