//! Commands for disks, before they are given: what is adjacent becomes one.

/// The largest command to a disk: `max_sectors_kb`.
const COMMAND_MAX: u64 = 1280 << 10;

/// What a command to a disk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The host's command itself: a read, a flush.
    Asked(u64),
    /// The page of a row, read to be known or written.
    Page(u64),
}

/// A command to a disk; sorted, neighbours follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) disk: usize,
    pub(super) is_write: bool,
    /// In bytes from where the data begin.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) purpose: Purpose,
}

impl Order {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The commands, each a list of neighbours that go to their disk as one.
pub(super) fn merged(mut orders: Vec<Order>) -> Vec<Vec<Order>> {
    orders.sort_unstable();
    let mut runs: Vec<Vec<Order>> = Vec::new();
    for order in orders {
        match runs.last_mut().filter(|run| follows(run, &order)) {
            Some(run) => run.push(order),
            None => runs.push(vec![order]),
        }
    }
    runs
}

fn follows(run: &[Order], order: &Order) -> bool {
    let (first, last) = (run[0], run[run.len() - 1]);
    (last.disk, last.is_write, last.end()) == (order.disk, order.is_write, order.offset)
        && order.end() - first.offset <= COMMAND_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_on_one_disk_go_together() {
        let order = |disk, is_write, page: u64| Order {
            disk,
            is_write,
            offset: page * 4096,
            len: 4096,
            purpose: Purpose::Page(page),
        };
        let runs = merged(vec![
            order(0, true, 2),
            order(1, true, 3),
            order(0, true, 1),
            order(0, false, 3),
            order(0, true, 4),
        ]);
        let brief: Vec<(usize, bool, u64, usize)> = runs
            .iter()
            .map(|run| {
                (
                    run[0].disk,
                    run[0].is_write,
                    run[0].offset / 4096,
                    run.len(),
                )
            })
            .collect();
        let expect = [
            (0, false, 3, 1),
            (0, true, 1, 2),
            (0, true, 4, 1),
            (1, true, 3, 1),
        ];
        assert_eq!(brief, expect);
        let long = merged((0..321).map(|page| order(0, true, page)).collect());
        assert_eq!(long.iter().map(Vec::len).collect::<Vec<_>>(), [320, 1]);
    }
}
