//! The rate of a drive at each place: `zcav`.
//!
//! # Source
//! `zcav.cpp` and `zcav_io.cpp` of bonnie++ 2.00a.

use std::io::SeekFrom;

use crate::files::File;
use crate::options::MIB;

/// At most so many rounds.
const LOOPS_MAX: u32 = 100;

/// What is measured; all sizes in MiB.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much is timed at once.
    pub block_mib: u32,
    /// Size of a read or write.
    pub chunk_mib: u32,
    /// How often everything is read.
    pub loops: u32,
    /// Where it begins.
    pub start_mib: u32,
    /// Where it ends; 0: where the drive does.
    pub end_mib: u32,
    /// Of so many blocks one is read.
    pub skip_rate: u32,
    /// It is written instead.
    pub writes: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            block_mib: 512,
            chunk_mib: 1,
            loops: 1,
            start_mib: 0,
            end_mib: 0,
            skip_rate: 1,
            writes: false,
        }
    }
}

impl Options {
    /// Whether they make sense together.
    #[must_use]
    pub fn make_sense(&self) -> bool {
        (1..=self.block_mib).contains(&self.chunk_mib)
            && self.block_mib <= 1 << 20
            && self.chunk_mib <= 1024
            && (1..=LOOPS_MAX).contains(&self.loops)
            && (1..=20).contains(&self.skip_rate)
    }
}

/// What is said while it is measured.
#[derive(Debug)]
pub enum Line {
    /// For the log.
    Log(String),
    /// For the user: this round has ended.
    Finished(u32),
}

/// Why it ended early: the exit code of the original, and a text for the user.
#[derive(Debug)]
pub struct Failure {
    /// 1: it cannot be sought in, or a line cannot be written; 2: it is too small.
    pub code: u8,
    /// What is wrong.
    pub text: String,
}

/// Measures, and says each line.
///
/// # Errors
/// Those of the first calls, and of `say`; a later one ends the round.
pub fn run(
    file: &mut dyn File,
    name: &str,
    options: &Options,
    say: &mut dyn FnMut(Line) -> Result<(), String>,
) -> Result<(), Failure> {
    let mut say = |line| say(line).map_err(|text| Failure { code: 1, text });
    let mut buf = vec![0; options.chunk_mib as usize * MIB as usize];
    let mut times: Vec<Vec<f64>> = Vec::new();
    let prints_at_once = options.loops == 1;
    if prints_at_once {
        say(title())?;
    }
    for round in 0..options.loops {
        let first = options.start_mib / options.block_mib;
        let start = u64::from(first) * u64::from(options.block_mib) * MIB;
        let sought = file.seek(SeekFrom::Start(start));
        sought.map_err(|error| Failure {
            code: 1,
            text: format!("Can't lseek(): {error}"),
        })?;
        let end = match options.end_mib / options.block_mib {
            0 => u32::MAX,
            end => end,
        };
        let (mut block, mut total_s) = (first, 0.0);
        while block < end && (round == 0 || ((block - first) as usize) < times.len()) {
            if block > 0 && options.skip_rate > 1 {
                let skipped = u64::from(options.skip_rate - 1) * u64::from(options.block_mib) * MIB;
                let by = i64::try_from(skipped).expect("blocks and rates are bounded");
                if file.seek(SeekFrom::Current(by)).is_err() {
                    break;
                }
            }
            let Some(seconds) = one_block(file, &mut buf, options) else {
                if block == 0 {
                    return Err(Failure {
                        code: 2,
                        text: format!("Data file/device \"{name}\" too small."),
                    });
                }
                break;
            };
            total_s += seconds;
            if prints_at_once {
                say(at(block, seconds, options))?;
            } else if round == 0 {
                times.push(vec![seconds]);
            } else {
                times[(block - first) as usize].push(seconds);
            }
            block += 1;
        }
        say(Line::Finished(round + 1))?;
        let mib = u64::from(block) * u64::from(options.block_mib);
        say(Line::Log(format!(
            "# Read {mib} megs in {} seconds, {} megabytes per second.",
            total_s as u64,
            (mib as f64 / total_s) as u64
        )))?;
    }
    if !prints_at_once {
        say(Line::Log(format!("#loops: {}", options.loops)))?;
        say(title())?;
        for (block, times) in (options.start_mib / options.block_mib..).zip(&mut times) {
            say(at(block, average(times), options))?;
        }
    }
    Ok(())
}

fn title() -> Line {
    Line::Log("#block offset (GiB), MiB/s, time".to_owned())
}

fn at(block: u32, seconds: f64, options: &Options) -> Line {
    let position = f64::from(block) * f64::from(options.skip_rate);
    let gib = position * f64::from(options.block_mib) / 1024.0;
    Line::Log(match seconds < 1.0 {
        // So short a time says nothing of the rate.
        true => format!("#{gib:.2} ++++ {seconds:.3}"),
        false => {
            let rate = f64::from(options.block_mib) / seconds;
            format!("{gib:.2} {rate:.2} {seconds:.3}")
        }
    })
}

/// The mean of the middle third.
fn average(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let skipped = times.len() / 3;
    let middle = &times[skipped..times.len() - skipped];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// How long a block took, in seconds; `None` where the file ends or fails.
fn one_block(file: &mut dyn File, buf: &mut [u8], options: &Options) -> Option<f64> {
    let start_ns = rt::now_ns();
    let mut left_mib = options.block_mib;
    while left_mib > 0 {
        let part_mib = left_mib.min(options.chunk_mib);
        let mut part = &mut buf[..part_mib as usize * MIB as usize];
        while !part.is_empty() {
            let done = match options.writes {
                true => file.write(part),
                false => file.read(part),
            };
            let done = done.ok().filter(|done| *done > 0)?;
            part = &mut part[done..];
        }
        if options.writes {
            file.fsync().ok()?;
        }
        left_mib -= part_mib;
    }
    Some((rt::now_ns() - start_ns) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_times_the_middle_one_counts() {
        assert_eq!(average(&mut [5.0, 1.0, 2.0]), 2.0);
        assert_eq!(average(&mut [4.0, 2.0]), 3.0);
    }

    #[test]
    fn short_times_are_commented_out() {
        let options = Options {
            skip_rate: 2,
            ..Options::default()
        };
        let text = |line| match line {
            Line::Log(text) => text,
            Line::Finished(_) => unreachable!("a line of the log"),
        };
        assert_eq!(text(at(3, 0.5, &options)), "#3.00 ++++ 0.500");
        assert_eq!(text(at(3, 4.0, &options)), "3.00 128.00 4.000");
    }
}
