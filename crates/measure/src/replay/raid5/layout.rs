//! Where the bytes of an array are on its disks: md's default layout, `left-symmetric`.

/// How many disks there are, and how many bytes of one disk follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) disks: usize,
    pub(super) chunk_bytes: u64,
}

impl Layout {
    /// The disk with this byte of the array, and where on it.
    pub(super) fn locate(&self, at: u64) -> (usize, u64) {
        let (chunk, within) = (at / self.chunk_bytes, at % self.chunk_bytes);
        let data_disks = self.disks as u64 - 1;
        let (stripe, nth) = (chunk / data_disks, chunk % data_disks);
        let offset = stripe * self.chunk_bytes + within;
        let disk = (self.parity_disk(offset) as u64 + 1 + nth) % self.disks as u64;
        (usize::try_from(disk).expect("one of them"), offset)
    }

    /// The disk with the parity of what the others have at this offset.
    pub(super) fn parity_disk(&self, offset: u64) -> usize {
        let turn = (offset / self.chunk_bytes) % self.disks as u64;
        self.disks - 1 - usize::try_from(turn).expect("less than the disks")
    }

    /// How large an array of disks of this size is.
    pub(super) fn array_bytes(&self, disk_bytes: u64) -> u64 {
        disk_bytes / self.chunk_bytes * self.chunk_bytes * (self.disks as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of md(4) for four disks, a letter for each chunk in the order of the array.
    #[test]
    fn chunks_go_round_after_the_parity() {
        let layout = Layout {
            disks: 4,
            chunk_bytes: 10,
        };
        let mut rows = vec![vec!['P'; 4]; 4];
        for (nth, letter) in ('a'..='l').enumerate() {
            let (disk, offset) = layout.locate(nth as u64 * 10 + 3);
            assert_eq!(offset % 10, 3);
            rows[usize::try_from(offset / 10).unwrap()][disk] = letter;
        }
        let rows: Vec<String> = rows.into_iter().map(String::from_iter).collect();
        assert_eq!(rows, ["abcP", "efPd", "iPgh", "Pjkl"]);
        assert_eq!(layout.array_bytes(49), 120);
    }
}
