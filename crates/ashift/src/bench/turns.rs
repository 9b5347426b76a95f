//! One turn of a program, and the median of many turns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::{Context, Error, ErrorKind, Result};

use super::Words;
use crate::failure::Fail;

/// The median.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Megabytes per second of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Speeds {
    pub(super) write: f64,
    pub(super) read: f64,
}

/// Runs a program that prints `write_MBps N` and `read_MBps N`.
pub(super) fn speeds(program: &Path, args: &[String]) -> Result<Speeds> {
    let name = || program.display().to_string();
    let output = Command::new(program)
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .map_err(Error::from)
        .within(name)?;
    if !output.status.success() {
        return Err(Error::new(
            ErrorKind::Io,
            format!("{} ended with {}", name(), output.status),
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let value = line.and_then(|rest| rest.trim().parse().ok());
        value.ok_or_else(|| Error::invalid(format!("{} printed no '{key}N'", name())))
    };
    Ok(Speeds {
        write: value("write_MBps ")?,
        read: value("read_MBps ")?,
    })
}

/// What benchmarks of streams are told alike.
pub(super) struct Streams {
    /// Bytes that a turn writes.
    pub(super) size: u64,
    pub(super) runs: u64,
    /// This program.
    pub(super) own: PathBuf,
    /// The file whose bytes are written.
    pub(super) data: String,
    /// The folder of the devices.
    pub(super) dir: String,
}

impl Streams {
    /// `size`: unless another one is said.
    pub(super) fn take(words: &mut Words, size: u64) -> Result<Streams, Fail> {
        let own = own_program()?;
        let data = words.take("data");
        Ok(Streams {
            size: words.take_number("size", size)?,
            runs: words.take_number("runs", 5)?,
            data: data.unwrap_or_else(|| own.display().to_string()),
            own,
            dir: words.take("dir").unwrap_or_else(|| "/dev/shm".into()),
        })
    }
}

/// The path of this program.
pub(super) fn own_program() -> Result<PathBuf> {
    Ok(std::env::current_exe()?)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
