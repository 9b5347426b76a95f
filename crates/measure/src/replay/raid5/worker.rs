//! The thread of an array: between the host's commands, the cache, and the disks.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BlockBuf, Error, Result};
use geom::{Bio, BioData, BioOp, Provider};

use super::DATA_START;
use super::cache::Cache;
use super::layout::Layout;
use super::orders::{Order, Purpose, merged};
use crate::ends::Ends;

/// What the thread is told.
pub(super) enum Event {
    /// The host has a command.
    Asked(Bio),
    /// A command to a disk has ended.
    Ended(u64, Result<()>),
    /// There will not be more.
    Stop,
}

/// A command of the host.
struct Asked {
    /// Pages, or commands to disks, that are not done.
    left: usize,
    /// Its bytes, if it reads.
    read_bytes: usize,
    done: geom::DoneFn,
}

pub(super) struct Worker {
    layout: Layout,
    members: Vec<Arc<dyn Provider>>,
    events: Arc<Ends<Event>>,
    /// Counts commands.
    last: u64,
    asked: BTreeMap<u64, Asked>,
    cache: Cache,
    orders: Vec<Order>,
    in_flight: BTreeMap<u64, Vec<Order>>,
    /// The first error of a disk, which every later command gets.
    failed: Option<Error>,
}

impl Worker {
    pub(super) fn new(
        layout: Layout,
        members: Vec<Arc<dyn Provider>>,
        events: Arc<Ends<Event>>,
    ) -> Worker {
        Worker {
            layout,
            members,
            events,
            last: 0,
            asked: BTreeMap::new(),
            cache: Cache::new(layout),
            orders: Vec::new(),
            in_flight: BTreeMap::new(),
            failed: None,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let mut event = Some(self.events.next());
            while let Some(one) = event {
                match one {
                    Event::Asked(bio) => self.ask(bio),
                    Event::Ended(number, result) => self.end(number, result),
                    Event::Stop => return,
                }
                event = self.events.take();
            }
            let orders = self.cache.work();
            self.orders.extend(orders);
            self.give();
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn ask(&mut self, bio: Bio) {
        let number = self.number();
        let (offset, len) = (bio.offset, bio.op.cmd().1);
        let mut asked = Asked {
            left: 0,
            read_bytes: 0,
            done: bio.done,
        };
        match bio.op {
            BioOp::Write(_) => asked.left = self.cache.write(number, offset, len),
            BioOp::Read { len: bytes } => {
                asked.read_bytes = bytes;
                asked.left = self.read(number, offset, len);
            }
            BioOp::Flush => {
                asked.left = self.members.len();
                self.flush(number);
            }
            BioOp::Delete { .. } => {
                let text = "md tells a RAID-5's disks of nothing that is not needed";
                (asked.done)(Err(Error::new(base::ErrorKind::Unsupported, text)));
                return;
            }
        }
        if asked.left == 0 {
            (asked.done)(Ok(BioData::None));
            return;
        }
        self.asked.insert(number, asked);
    }

    /// Reads from the disks themselves; returns in how many commands.
    fn read(&mut self, asked: u64, offset: u64, len: u64) -> usize {
        let (mut at, end, before) = (offset, offset + len, self.orders.len());
        while at < end {
            let next = (at / self.layout.chunk_bytes + 1) * self.layout.chunk_bytes;
            let (disk, on_disk) = self.layout.locate(at);
            self.orders.push(Order {
                disk,
                is_write: false,
                offset: on_disk,
                len: next.min(end) - at,
                purpose: Purpose::Asked(asked),
            });
            at = next;
        }
        self.orders.len() - before
    }

    fn flush(&mut self, asked: u64) {
        for disk in 0..self.members.len() {
            let order = Order {
                disk,
                is_write: true,
                offset: 0,
                len: 0,
                purpose: Purpose::Asked(asked),
            };
            self.start(vec![order], BioOp::Flush);
        }
    }

    /// Gives the disks their commands.
    fn give(&mut self) {
        for run in merged(std::mem::take(&mut self.orders)) {
            let len = run.iter().map(|order| order.len).sum::<u64>();
            let len = usize::try_from(len).expect("at most a command");
            let op = match run[0].is_write {
                true => BioOp::Write(BlockBuf::paged(len).share()),
                false => BioOp::Read { len },
            };
            self.start(run, op);
        }
    }

    fn start(&mut self, run: Vec<Order>, op: BioOp) {
        let (number, first, events) = (self.number(), run[0], Arc::clone(&self.events));
        let done = move |result: Result<BioData>| {
            events.push(Event::Ended(number, result.map(drop)));
        };
        self.in_flight.insert(number, run);
        self.members[first.disk].submit(Bio {
            offset: match op {
                BioOp::Flush => 0,
                _ => DATA_START + first.offset,
            },
            op,
            done: Box::new(done),
        });
    }

    fn end(&mut self, number: u64, result: Result<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
        for order in self.in_flight.remove(&number).unwrap_or_default() {
            let ended = match order.purpose {
                Purpose::Asked(asked) => vec![asked],
                Purpose::Page(row) => self.cache.end(row, order.disk),
            };
            ended.into_iter().for_each(|asked| self.part_is_done(asked));
        }
    }

    fn part_is_done(&mut self, number: u64) {
        let Some(asked) = self.asked.get_mut(&number) else {
            return;
        };
        asked.left -= 1;
        if asked.left > 0 {
            return;
        }
        if let Some(asked) = self.asked.remove(&number) {
            let result = match &self.failed {
                Some(error) => Err(Error::new(error.kind(), error.to_string())),
                None if asked.read_bytes > 0 => {
                    Ok(BioData::Read(BlockBuf::zeroed(asked.read_bytes)))
                }
                None => Ok(BioData::None),
            };
            (asked.done)(result);
        }
    }
}
