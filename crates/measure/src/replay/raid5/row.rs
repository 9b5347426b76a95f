//! A row of md's stripe cache: one page of each disk, and what has to be read before it can be written.

/// What is to be written into a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum New {
    #[default]
    Nothing,
    /// A part of it.
    Part,
    /// All of it.
    Whole,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    new: New,
    /// What is on the disk is in memory.
    is_known: bool,
}

/// One page of each disk, at the same offset.
#[derive(Debug)]
pub(super) struct Row {
    pages: Vec<Page>,
    parity: usize,
    /// The commands of the host whose bytes are to be written, one for each of their pages.
    pub(super) waiting: Vec<u64>,
    /// Those whose bytes are being written.
    pub(super) writing: Vec<u64>,
    /// Commands to disks in flight.
    pub(super) in_flight: usize,
    /// It may read before it is written; until then it waits for more to be written.
    pub(super) may_read: bool,
    /// When it was last used.
    pub(super) used: u64,
}

impl Row {
    pub(super) fn new(disks: usize, parity: usize) -> Row {
        Row {
            pages: vec![Page::default(); disks],
            parity,
            waiting: Vec::new(),
            writing: Vec::new(),
            in_flight: 0,
            may_read: false,
            used: 0,
        }
    }

    /// Something is to be written to a disk's page, by the host's command `asked`.
    pub(super) fn add(&mut self, disk: usize, is_whole: bool, asked: u64) {
        let page = &mut self.pages[disk];
        if is_whole {
            page.new = New::Whole;
        } else if page.new == New::Nothing {
            page.new = New::Part;
        }
        self.waiting.push(asked);
    }

    /// Whether nothing is in flight and something is to be written.
    pub(super) fn is_due(&self) -> bool {
        self.in_flight == 0 && !self.waiting.is_empty()
    }

    /// The disks whose pages have to be read before the parity is known; none if it is. Either what is overwritten and
    /// the old parity (read, modify, write), or all that is not overwritten (reconstruct), whichever is less.
    pub(super) fn missing(&self) -> Vec<usize> {
        let those = |is_wanted: &dyn Fn(usize, &Page) -> bool| -> Vec<usize> {
            let pages = self.pages.iter().enumerate();
            let wanted = pages.filter(|(disk, page)| !page.is_known && is_wanted(*disk, page));
            wanted.map(|(disk, _)| disk).collect()
        };
        let modify = those(&|disk, page| disk == self.parity || page.new != New::Nothing);
        let construct = those(&|disk, page| disk != self.parity && page.new != New::Whole);
        match modify.len() < construct.len() {
            true => modify,
            false => construct,
        }
    }

    /// A page was read.
    pub(super) fn learn(&mut self, disk: usize) {
        self.pages[disk].is_known = true;
    }

    /// Begins to write: the disks that are written to.
    pub(super) fn write(&mut self) -> Vec<usize> {
        self.writing = std::mem::take(&mut self.waiting);
        self.may_read = false;
        let parity = self.parity;
        let pages = self.pages.iter_mut().enumerate();
        let written = pages.filter(|(disk, page)| *disk == parity || page.new != New::Nothing);
        let written: Vec<usize> = written
            .map(|(disk, page)| {
                page.new = New::Nothing;
                page.is_known = true;
                disk
            })
            .collect();
        self.in_flight = written.len();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose parity is on the last disk, with these disks overwritten.
    fn row(disks: usize, whole: &[usize]) -> Row {
        let mut row = Row::new(disks, disks - 1);
        whole.iter().for_each(|disk| row.add(*disk, true, 0));
        row
    }

    #[test]
    fn the_way_with_fewer_reads_is_taken() {
        // Of two disks with data, one: the other one is read, not the page and its parity.
        assert_eq!(row(3, &[0]).missing(), [1]);
        assert_eq!(row(3, &[0, 1]).missing(), []);
        // Of four, one: that page and the parity, two reads instead of three.
        assert_eq!(row(5, &[1]).missing(), [1, 4]);
        // Of four, two: as many reads either way as three against two.
        assert_eq!(row(5, &[1, 2]).missing(), [0, 3]);
        // As many reads either way: what is not overwritten.
        assert_eq!(row(4, &[0]).missing(), [1, 2]);
    }

    #[test]
    fn a_page_that_is_written_in_part_is_read() {
        let mut row = Row::new(3, 2);
        row.add(0, false, 0);
        assert_eq!(row.missing(), [0, 1]);
        row.add(0, true, 1);
        assert_eq!(row.missing(), [1], "the rest came later");
    }

    #[test]
    fn what_was_read_or_written_is_known_from_then_on() {
        let mut row = row(3, &[0]);
        row.learn(1);
        assert_eq!(row.missing(), []);
        assert_eq!((row.write(), row.in_flight), (vec![0, 2], 2));
        assert!(!row.is_due());
        row.in_flight = 0;
        row.add(1, true, 0);
        assert!(row.is_due());
        assert_eq!(row.missing(), []);
    }
}
