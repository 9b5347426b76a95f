//! A RAID-5 of Linux's md as a device to replay on: which commands it gives its disks, and in what order.
//!
//! # What it is
//! [`Raid5`] is a provider over equal disks. It moves no data: what is written to it are zeros, and so is their parity,
//! so it is for replays alone. What it models of md:
//! - The layout: `left-symmetric`, chunks of any size, metadata 1.2, whose data begin at sector 264192 of disks of this
//!   size.
//! - Reads go to the disks themselves, cut where chunks end.
//! - Writes go through the stripe cache: 256 rows of one page (4096 bytes) of each disk. A row whose parity can be
//!   computed is written; else pages are read first (`row.rs`), and stay known as long as the row stays.
//! - A row that has to read waits until no other row reads, so that what comes meanwhile may fill it.
//! - What is adjacent at one moment goes to a disk as one command, of at most 1280 KiB: that is the block layer's work.
//! - A flush goes to all disks.
//!
//! Left out: disks that fail, resynchronisation, bitmaps (`--bitmap=none`), writes that the host calls synchronous (md
//! lets their rows read at once; a trace does not say which these are), a stripe cache that grows, and what computing
//! the parity takes.
//!
//! # Concurrency
//! One thread, as `md0_raid5`, has everything; commands and their ends come to it through a queue.
//!
//! # Source
//! `drivers/md/raid5.c` of Linux (`raid5_compute_sector`, `handle_stripe_dirtying`, `raid5_activate_delayed`); the
//! place of the data as `super1.c` of mdadm chooses it.

mod cache;
mod layout;
mod orders;
mod row;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

use base::{Error, Result};
use geom::{Bio, Provider, Shape, check_range};
use rt::JoinHandle;

use crate::ends::Ends;
use layout::Layout;
use worker::{Event, Worker};

/// Bytes of a page, md's unit.
const PAGE: u64 = 4096;

/// Where the data of a disk of 128 GiB or more begin, in bytes: sector 264192.
const DATA_START: u64 = 264_192 * 512;

/// The largest number of bytes of a chunk.
const CHUNK_MAX: u64 = 1 << 30;

/// A RAID-5 over disks, for replays.
pub struct Raid5 {
    name: String,
    shape: Shape,
    events: Arc<Ends<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Raid5 {
    /// Puts disks together.
    ///
    /// # Errors
    /// `InvalidInput` for fewer than three disks, for disks too small for any data, and for a chunk that is not a power
    /// of two from a page to 1 GiB.
    pub fn new(members: Vec<Arc<dyn Provider>>, chunk_bytes: u64) -> Result<Raid5> {
        if members.len() < 3 {
            let text = format!("a RAID-5 of {} disks: it needs three", members.len());
            return Err(Error::invalid(text));
        }
        if !chunk_bytes.is_power_of_two() || !(PAGE..=CHUNK_MAX).contains(&chunk_bytes) {
            let text = format!("a chunk of {chunk_bytes} bytes: a power of two from 4096 on");
            return Err(Error::invalid(text));
        }
        let layout = Layout {
            disks: members.len(),
            chunk_bytes,
        };
        let smallest = members.iter().map(|one| one.mediasize()).min();
        let mediasize = layout.array_bytes(smallest.unwrap_or(0).saturating_sub(DATA_START));
        if mediasize == 0 {
            let text = format!("the disks are too small: the data begin at byte {DATA_START}");
            return Err(Error::invalid(text));
        }
        let sectorsize = members.iter().map(|one| one.sectorsize()).max();
        let names: Vec<&str> = members.iter().map(|one| one.name()).collect();
        let name = format!("raid5({})", names.join(","));
        let shape = Shape {
            stripesize: members[0].stripesize(),
            stripeoffset: members[0].stripeoffset(),
            is_rotational: true,
            is_queued: true,
            ..Shape::new(mediasize, sectorsize.unwrap_or(512))
        };
        let events = Arc::new(Ends::default());
        let worker = Worker::new(layout, members, Arc::clone(&events));
        let thread = Some(rt::spawn("raid5", || worker.run()));
        Ok(Raid5 {
            name,
            shape,
            events,
            thread,
        })
    }
}

impl Provider for Raid5 {
    fn name(&self) -> &str {
        &self.name
    }
    fn shape(&self) -> Shape {
        self.shape
    }
    fn submit(&self, bio: Bio) {
        match check_range(self, bio.offset, bio.op.cmd().1) {
            Ok(()) => self.events.push(Event::Asked(bio)),
            Err(error) => (bio.done)(Err(error)),
        }
    }
}

impl Drop for Raid5 {
    fn drop(&mut self) {
        self.events.push(Event::Stop);
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
