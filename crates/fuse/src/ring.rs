//! Requests and answers through io_uring, where the kernel has that enabled.
//!
//! # What it is
//! The kernel has a queue of requests for each processor, and asks by that of the processor on which a program waits.
//! Each thread that answers has a [`Slot`]: a ring of its own with one command in it, which carries the answer to the
//! last request and is completed by the next one. So a request costs one system call, on the processor where it was
//! made, and a request that waits keeps no other one from being answered.
//!
//! # Invariants
//! 1. While its command is with the kernel, nothing here looks at the buffers of a slot; they are kept until the
//!    kernel has given the command back.
//! 2. Every queue has a slot, also that of a processor that is switched off: only then does the kernel use any.
//! 3. What cannot be done is found out before the kernel is promised to use rings.
//!
//! # Concurrency
//! A thread starts another one for its queue when it takes a request and none waits there for the next, up to
//! [`QUEUE_THREADS_MAX`]. Forgotten files, interrupts, and what the kernel is told of come and go by `/dev/fuse`.
//!
//! # Source
//! Linux `fs/fuse/dev_uring.c`, `Documentation/filesystems/fuse/fuse-io-uring.rst`.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rt::Mutex;
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{self, InHeader, Iovec, OutHeader, RingCommand, RingHeader};
use crate::device::Device;
use crate::requests::Request;

/// Most threads of one queue.
pub(crate) const QUEUE_THREADS_MAX: usize = 32;
/// Most queues; hosts with more processors are served by `/dev/fuse`.
const QUEUES_MAX: usize = 256;
/// Which processors there may be.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// How often a command is given again that the kernel could not take at the moment.
const TRIES_MAX: u32 = 100;
/// The offset of `len` in `io_uring_sqe`.
const LEN_OFFSET: usize = 24;

/// A ring with one command.
pub(crate) struct Slot {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    header: Box<RingHeader>,
    payload: Vec<u8>,
    queue: u16,
}

/// What has become of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Request,
    /// There are no more: it is unmounted, or the kernel goes on by `/dev/fuse`.
    Nothing,
    /// The kernel may still have the command.
    Unknown,
}

/// The queues of a mount.
pub(crate) struct Queues {
    all: Vec<Queue>,
    /// The first slot of each, until threads take them.
    first: Mutex<Vec<Slot>>,
}

#[derive(Default)]
struct Queue {
    threads: AtomicUsize,
    waiting: AtomicUsize,
}

impl Queues {
    /// One slot for each queue; `None` where this host gives no rings.
    pub(crate) fn prepare(payload_bytes: usize) -> Option<Queues> {
        let possible = std::fs::read_to_string(POSSIBLE).ok()?;
        let count = count(possible.trim())?;
        if count > QUEUES_MAX {
            return None;
        }
        let slots = (0..count).map(|queue| Slot::new(queue as u16, payload_bytes));
        let first: Vec<Slot> = slots.collect::<io::Result<_>>().ok()?;
        let mut all = Vec::new();
        all.resize_with(count, Queue::default);
        Some(Queues {
            all,
            first: Mutex::new(first),
        })
    }

    /// The first slots, once.
    pub(crate) fn take_first(&self) -> Vec<Slot> {
        std::mem::take(&mut *self.first.lock())
    }

    fn of(&self, slot: &Slot) -> &Queue {
        &self.all[usize::from(slot.queue)]
    }

    /// A thread begins to serve a queue.
    pub(crate) fn enter(&self, slot: &Slot) {
        self.of(slot).threads.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread waits for a request.
    pub(crate) fn wait(&self, slot: &Slot) {
        self.of(slot).waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits no longer; if it has a request and none waits for the next, returns a slot for another thread.
    pub(crate) fn woke(&self, slot: &Slot, has_request: bool) -> Option<Slot> {
        let queue = self.of(slot);
        let was_last = queue.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
        if !has_request || !was_last || queue.threads.load(Ordering::Relaxed) >= QUEUE_THREADS_MAX {
            return None;
        }
        // Without more memory those that are there have to do.
        Slot::new(slot.queue, slot.payload.len()).ok()
    }
}

impl Slot {
    /// A ring that is not used yet; the thread that does so enables it.
    fn new(queue: u16, payload_bytes: usize) -> io::Result<Slot> {
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .dontfork()
            .build(1)?;
        Ok(Slot {
            ring,
            header: Box::new(RingHeader::new_zeroed()),
            payload: vec![0; payload_bytes],
            queue,
        })
    }

    /// The processor whose requests it takes.
    pub(crate) fn processor(&self) -> usize {
        usize::from(self.queue)
    }

    /// Gives the kernel the buffers, and waits for the first request.
    pub(crate) fn begin(&mut self, device: &Device) -> Taken {
        if self.ring.submitter().register_enable_rings().is_err() {
            return Taken::Nothing;
        }
        let buffers = [
            Iovec {
                base: std::ptr::from_mut(&mut *self.header).expose_provenance() as u64,
                len: size_of::<RingHeader>() as u64,
            },
            Iovec {
                base: self.payload.as_mut_ptr().expose_provenance() as u64,
                len: self.payload.len() as u64,
            },
        ];
        let command = self.command(device, abi::RING_REGISTER, 0);
        let command = command.addr(Some(buffers.as_ptr().expose_provenance() as u64));
        let command = with_len(command.build(), buffers.len() as u32);
        self.run(&command)
    }

    /// Sends the answer, and waits for the next request.
    pub(crate) fn commit(&mut self, device: &Device) -> Taken {
        let command = self.command(device, abi::RING_COMMIT_AND_FETCH, self.header.commit_id);
        self.run(&command.build())
    }

    fn command(&self, device: &Device, operation: u32, commit_id: u64) -> opcode::UringCmd80 {
        let command = RingCommand {
            flags: 0,
            commit_id,
            qid: self.queue,
            padding: [0; 6],
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        opcode::UringCmd80::new(types::Fd(device.descriptor()), operation).cmd(bytes)
    }

    /// Gives the kernel a command, and waits until it comes back.
    fn run(&mut self, command: &squeue::Entry128) -> Taken {
        for _ in 0..TRIES_MAX {
            // SAFETY: what the command refers to, the two buffers of this slot and the list of them, stays until it
            // has come back: this function waits for that, and its callers keep a slot whose command has not.
            let is_queued = unsafe { self.ring.submission().push(command) }.is_ok();
            if !is_queued {
                return Taken::Nothing;
            }
            let Some(result) = self.completed() else {
                return Taken::Unknown;
            };
            match result {
                0.. => return Taken::Request,
                _ if result == -Errno::AGAIN.raw_os_error() => rt::yield_now(),
                _ if result == -Errno::INTR.raw_os_error() => {}
                _ => return Taken::Nothing,
            }
        }
        Taken::Nothing
    }

    /// Waits for the command; `None` if that cannot be done.
    fn completed(&mut self) -> Option<i32> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if let Some(done) = self.ring.completion().next() {
                return Some(done.result());
            }
        }
    }

    /// The request that the command has come back with.
    pub(crate) fn request(&self) -> Option<Request<'_>> {
        let (header, _) = InHeader::read_from_prefix(&self.header.in_out).ok()?;
        let payload = self.payload.get(..self.header.payload_size as usize)?;
        Some(Request::in_parts(header, &self.header.op_in, payload))
    }

    /// Puts the answer where the kernel finds it; one that is too long becomes an error.
    pub(crate) fn answer(&mut self, unique: u64, error: i32, pieces: &[&[u8]]) {
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let (error, pieces) = match len <= self.payload.len() {
            true => (error, pieces),
            false => (-Errno::IO.raw_os_error(), &[][..]),
        };
        let mut at = 0;
        for piece in pieces {
            self.payload[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let header = OutHeader {
            len: (size_of::<OutHeader>() + at) as u32,
            error,
            unique,
        };
        self.header.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        self.header.payload_size = at as u32;
    }
}

/// A command with that `len`, which the crate has no name for.
fn with_len(mut command: squeue::Entry128, len: u32) -> squeue::Entry128 {
    let bytes = (&raw mut command).cast::<u8>();
    // SAFETY: a command is an `io_uring_sqe` as the kernel declares it, of 128 bytes in the order of C. The four of
    // them at this offset are `len`, a number that may have any value.
    unsafe { bytes.add(LEN_OFFSET).cast::<u32>().write_unaligned(len) };
    command
}

/// How many numbers a list like `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    let mut count = 0usize;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("0-3,8-11,15"), Some(9));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }
}
