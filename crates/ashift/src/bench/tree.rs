//! A tree of small files, the same in every run.

use std::fs;
use std::path::Path;

use base::Result;

const FILES_PER_DIRECTORY: u64 = 100;
/// Largest file, in bytes. Sizes are pseudo-random; about 60 % are smaller than a quarter of it.
pub(super) const SIZE_MAX: u64 = 16 << 10;

/// Pseudo-random numbers, the same in every run.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ self.0 >> 33;
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 16
    }
}

/// Makes `files` text files, a hundred to a directory; returns their total bytes.
pub(super) fn make_tree(root: &Path, files: u64) -> Result<u64> {
    const WORDS: [&str; 16] = [
        "pool",
        "vdev",
        "block",
        "let",
        "mut",
        "txg",
        "sync",
        "fn",
        "match",
        "return",
        "uberblock",
        "spa",
        "(",
        ")",
        "{\n",
        "}\n",
    ];
    let mut numbers = Numbers(1);
    let mut total = 0;
    let mut text = String::new();
    let mut folder = root.to_owned();
    for file in 0..files {
        if file % FILES_PER_DIRECTORY == 0 {
            let n = file / FILES_PER_DIRECTORY;
            folder = root.join(format!("group{:03}/dir{:03}", n / 25, n % 25));
            fs::create_dir_all(&folder)?;
        }
        // The product of two numbers: small files are frequent.
        let (a, b) = (numbers.next() % 1024, numbers.next() % 1024);
        let size = ((a * b * SIZE_MAX) >> 20) as usize;
        text.clear();
        while text.len() < size {
            let n = numbers.next();
            text.push_str(WORDS[(n % 16) as usize]);
            text.push_str(&format!(" {:x} ", n >> 36));
        }
        fs::write(
            folder.join(format!("file{file:06}.txt")),
            &text.as_bytes()[..size],
        )?;
        total += size as u64;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_the_same_every_time() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let bytes = make_tree(&a, 250).unwrap();
        assert_eq!(make_tree(&b, 250).unwrap(), bytes);
        assert!(bytes > 250 * SIZE_MAX / 8 && bytes < 250 * SIZE_MAX);
        let file = "group000/dir002/file000249.txt";
        assert_eq!(
            fs::read(a.join(file)).unwrap(),
            fs::read(b.join(file)).unwrap()
        );
        let dirs = fs::read_dir(a.join("group000")).unwrap();
        assert_eq!(dirs.count(), 3);
    }
}
