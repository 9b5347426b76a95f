//! What an array of disks in memory is asked for.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use base::{BlockBuf, Error, ErrorKind, Result};
use geom::{Bio, BioCmd, BioOp, Command, Provider, Shape};
use proptest::prelude::*;
use ram::Memory;
use rt::Mutex;

use super::layout::Layout;
use super::worker::{Event, Worker};
use super::{DATA_START, PAGE, Raid5};
use crate::ends::Ends;

const CHUNK: u64 = 64 << 10;
const DISK: u64 = DATA_START + (4 << 20);

/// A disk that puts down its commands: what, where from the beginning of the data, bytes.
struct Noted {
    disk: Memory,
    commands: Mutex<Vec<(BioCmd, u64, u64)>>,
    is_broken: Mutex<bool>,
}

impl Provider for Noted {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn shape(&self) -> Shape {
        self.disk.shape()
    }
    fn execute(&self, offset: u64, command: Command<'_>) -> Result<()> {
        let (cmd, len) = command.cmd();
        let at = offset.saturating_sub(DATA_START);
        self.commands.lock().push((cmd, at, len));
        if *self.is_broken.lock() {
            return Err(Error::new(ErrorKind::Io, "broken"));
        }
        self.disk.execute(offset, command)
    }
}

fn disks(count: usize) -> Vec<Arc<Noted>> {
    let one = |n| {
        Arc::new(Noted {
            disk: Memory::new(format!("disk{n}"), DISK),
            commands: Mutex::default(),
            is_broken: Mutex::default(),
        })
    };
    (0..count).map(one).collect()
}

fn members(disks: &[Arc<Noted>]) -> Vec<Arc<dyn Provider>> {
    let one = |disk: &Arc<Noted>| Arc::clone(disk) as Arc<dyn Provider>;
    disks.iter().map(one).collect()
}

/// What a disk was asked for since the last time.
fn asked(disk: &Noted) -> Vec<(BioCmd, u64, u64)> {
    std::mem::take(&mut disk.commands.lock())
}

/// Writes these ranges, all at once, and waits for them.
fn write_together(disks: &[Arc<Noted>], ranges: &[(u64, u64)]) {
    let layout = Layout {
        disks: disks.len(),
        chunk_bytes: CHUNK,
    };
    let events = Arc::new(Ends::default());
    let (sender, receiver) = mpsc::channel();
    for (offset, len) in ranges.iter().copied() {
        let sender = sender.clone();
        events.push(Event::Asked(Bio {
            op: BioOp::Write(BlockBuf::zeroed(usize::try_from(len).unwrap()).share()),
            offset,
            done: Box::new(move |result| sender.send(result.map(drop)).unwrap()),
        }));
    }
    let worker = Worker::new(layout, members(disks), Arc::clone(&events));
    let thread = rt::spawn("raid5", || worker.run());
    for _ in ranges {
        receiver.recv().unwrap().unwrap();
    }
    events.push(Event::Stop);
    thread.join();
}

#[test]
fn a_page_costs_a_read_and_two_writes() {
    let disks = disks(3);
    let array = Raid5::new(members(&disks), CHUNK).unwrap();
    assert_eq!(array.mediasize(), 2 * (4 << 20));
    array.write(PAGE, &[0; 4096]).unwrap();
    // The first chunk is on disk 0, the second on disk 1, their parity on disk 2.
    let wrote = [(BioCmd::Write, PAGE, PAGE)];
    assert_eq!(asked(&disks[0]), wrote);
    assert_eq!(asked(&disks[1]), [(BioCmd::Read, PAGE, PAGE)]);
    assert_eq!(asked(&disks[2]), wrote);
    // What is known is not read again.
    array.write(PAGE, &[0; 4096]).unwrap();
    array.write(CHUNK + PAGE, &[0; 4096]).unwrap();
    let all = [&disks[0], &disks[1], &disks[2]].map(|disk| asked(disk));
    assert_eq!(all, [&wrote[..], &wrote, &[wrote[0], wrote[0]]]);
}

#[test]
fn whole_stripes_are_written_without_a_read_and_each_disk_gets_one_command() {
    let disks = disks(3);
    let array = Raid5::new(members(&disks), CHUNK).unwrap();
    array
        .write(2 * CHUNK, &vec![0; 2 * CHUNK as usize])
        .unwrap();
    for disk in &disks {
        assert_eq!(asked(disk), [(BioCmd::Write, CHUNK, CHUNK)]);
    }
    array.flush().unwrap();
    for disk in &disks {
        assert_eq!(asked(disk), [(BioCmd::Flush, 0, 0)]);
    }
    array.read(CHUNK - 512, &mut [0; 1024]).unwrap();
    assert_eq!(asked(&disks[0]), [(BioCmd::Read, CHUNK - 512, 512)]);
    assert_eq!(asked(&disks[1]), [(BioCmd::Read, 0, 512)]);
    assert_eq!(asked(&disks[2]), []);
    assert!(array.delete(0, 4096).is_err());
    assert!(array.write(array.mediasize(), &[0; 512]).is_err());
}

#[test]
fn what_comes_at_the_same_time_fills_a_row() {
    let disks = disks(3);
    write_together(&disks, &[(0, CHUNK), (CHUNK, CHUNK)]);
    for disk in &disks {
        assert_eq!(asked(disk), [(BioCmd::Write, 0, CHUNK)]);
    }
}

#[test]
fn more_rows_than_are_kept_take_their_turns() {
    let disks = disks(3);
    let ranges: Vec<(u64, u64)> = (0..2048).map(|n| (n * 7 % 2048 * PAGE, PAGE)).collect();
    write_together(&disks, &ranges);
    let written: u64 = asked(&disks[0])
        .iter()
        .filter(|(cmd, ..)| *cmd == BioCmd::Write)
        .map(|(_, _, len)| len)
        .sum();
    assert!(written >= 4 << 20, "{written}");
}

#[test]
fn an_error_of_a_disk_is_one_of_the_array() {
    let disks = disks(3);
    let array = Raid5::new(members(&disks), CHUNK).unwrap();
    *disks[2].is_broken.lock() = true;
    let error = array.write(0, &[0; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(array.flush().is_err());
}

#[test]
fn what_is_not_an_array_is_refused() {
    let refuse = |count: usize, chunk: u64, why: &str| {
        let error = Raid5::new(members(&disks(count)), chunk).err().unwrap();
        assert!(error.to_string().contains(why), "{error}");
    };
    refuse(2, CHUNK, "it needs three");
    refuse(3, 5000, "a power of two");
    refuse(3, 2048, "a power of two");
    refuse(3, 8 << 20, "too small");
}

proptest! {
    /// Each page is written to its disk, each row's parity with it, and nothing else is.
    #[test]
    fn prop_data_and_parity_are_written_where_they_belong(
        count in 3..6_usize,
        ranges in prop::collection::vec((0..4000_u64, 1..600_u64), 1..12),
    ) {
        let disks = disks(count);
        let layout = Layout { disks: count, chunk_bytes: CHUNK };
        let ranges: Vec<(u64, u64)> = ranges.iter().map(|(at, len)| (at * 512, len * 512)).collect();
        write_together(&disks, &ranges);
        let mut expect = BTreeSet::new();
        for (offset, len) in &ranges {
            for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
                let (disk, at) = layout.locate(page * PAGE);
                expect.extend([(disk, at / PAGE), (layout.parity_disk(at), at / PAGE)]);
            }
        }
        let mut written = BTreeSet::new();
        for (n, disk) in disks.iter().enumerate() {
            for (cmd, at, len) in asked(disk) {
                if cmd == BioCmd::Write {
                    written.extend((at / PAGE..(at + len) / PAGE).map(|page| (n, page)));
                }
            }
        }
        prop_assert_eq!(written, expect);
    }
}
