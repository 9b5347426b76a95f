//! md's stripe cache: which pages are read and written, and when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::PAGE;
use super::layout::Layout;
use super::orders::{Order, Purpose};
use super::row::Row;

/// Rows that are kept: md's `stripe_cache_size`.
const ROWS_MAX: usize = 256;

/// The bytes that a command of the host writes into one page.
struct Piece {
    asked: u64,
    disk: usize,
    /// The page on its disk.
    row: u64,
    is_whole: bool,
}

/// The rows, and what waits for them.
pub(super) struct Cache {
    layout: Layout,
    /// Counts uses.
    last: u64,
    /// Pages for which there is no row yet.
    backlog: VecDeque<Piece>,
    rows: BTreeMap<u64, Row>,
    /// Rows in which nothing happens, by their last use.
    idle: BTreeSet<(u64, u64)>,
    /// Rows whose commands have ended and that have more to do.
    after_io: Vec<u64>,
    /// Rows that wait until they may read.
    delayed: Vec<u64>,
    /// How many rows may read and are not written yet.
    reading: usize,
    orders: Vec<Order>,
}

impl Cache {
    pub(super) fn new(layout: Layout) -> Cache {
        Cache {
            layout,
            last: 0,
            backlog: VecDeque::new(),
            rows: BTreeMap::new(),
            idle: BTreeSet::new(),
            after_io: Vec::new(),
            delayed: Vec::new(),
            reading: 0,
            orders: Vec::new(),
        }
    }

    /// Takes what a command of the host writes; returns in how many pages.
    pub(super) fn write(&mut self, asked: u64, offset: u64, len: u64) -> usize {
        let (mut at, end, before) = (offset, offset + len, self.backlog.len());
        while at < end {
            let next = (at / PAGE + 1) * PAGE;
            let (disk, on_disk) = self.layout.locate(at);
            self.backlog.push_back(Piece {
                asked,
                disk,
                row: on_disk / PAGE,
                is_whole: at.is_multiple_of(PAGE) && next <= end,
            });
            at = next;
        }
        self.backlog.len() - before
    }

    /// The commands that can be given to the disks now.
    pub(super) fn work(&mut self) -> Vec<Order> {
        let rows = self.admit();
        rows.into_iter().for_each(|row| self.handle(row));
        if self.reading == 0 {
            self.activate();
        }
        std::mem::take(&mut self.orders)
    }

    /// A command for a page of a row has ended; returns the commands of the host that have one page less to wait for.
    pub(super) fn end(&mut self, number: u64, disk: usize) -> Vec<u64> {
        let Some(row) = self.rows.get_mut(&number) else {
            return Vec::new();
        };
        row.learn(disk);
        row.in_flight -= 1;
        if row.in_flight > 0 {
            return Vec::new();
        }
        let written = std::mem::take(&mut row.writing);
        if row.is_due() {
            self.after_io.push(number);
        } else {
            self.idle.insert((row.used, number));
        }
        written
    }

    /// Moves pages into rows, as long as there are rows; returns the rows that can be handled.
    fn admit(&mut self) -> BTreeSet<u64> {
        let mut due: BTreeSet<u64> = BTreeSet::new();
        while let Some(piece) = self.backlog.front() {
            let number = piece.row;
            if !self.rows.contains_key(&number) && !self.make_room() {
                break;
            }
            let Some(piece) = self.backlog.pop_front() else {
                break;
            };
            self.last += 1;
            let used = self.last;
            let (disks, parity) = (self.layout.disks, self.layout.parity_disk(piece.row * PAGE));
            let row = self
                .rows
                .entry(number)
                .or_insert_with(|| Row::new(disks, parity));
            self.idle.remove(&(row.used, number));
            row.used = used;
            row.add(piece.disk, piece.is_whole, piece.asked);
            due.insert(number);
        }
        due.extend(std::mem::take(&mut self.after_io));
        due
    }

    /// Whether there is room for a row: the one that was used longest ago is forgotten.
    fn make_room(&mut self) -> bool {
        if self.rows.len() < ROWS_MAX {
            return true;
        }
        match self.idle.pop_first() {
            Some((_, row)) => self.rows.remove(&row).is_some(),
            None => false,
        }
    }

    /// Writes a row if its parity can be computed, reads what is missing if it may, or lets it wait.
    fn handle(&mut self, number: u64) {
        let Some(row) = self.rows.get_mut(&number).filter(|row| row.is_due()) else {
            return;
        };
        let missing = row.missing();
        if missing.is_empty() {
            self.reading -= usize::from(row.may_read);
            let disks = row.write();
            self.order(number, &disks, true);
        } else if row.may_read {
            row.in_flight = missing.len();
            self.order(number, &missing, false);
        } else if !self.delayed.contains(&number) {
            self.delayed.push(number);
        }
    }

    /// Lets the rows that wait read.
    fn activate(&mut self) {
        for number in std::mem::take(&mut self.delayed) {
            if let Some(row) = self.rows.get_mut(&number).filter(|row| row.is_due()) {
                row.may_read = true;
                self.reading += 1;
                self.handle(number);
            }
        }
    }

    /// A command for a page of each of these disks.
    fn order(&mut self, row: u64, disks: &[usize], is_write: bool) {
        self.orders.extend(disks.iter().map(|disk| Order {
            disk: *disk,
            is_write,
            offset: row * PAGE,
            len: PAGE,
            purpose: Purpose::Page(row),
        }));
    }
}
