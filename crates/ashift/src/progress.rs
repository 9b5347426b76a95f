//! Progress of a command that takes a while.
//!
//! # What it is
//! On a terminal, one line that is updated: what is done, of how much, how fast, and the time left.
//! Elsewhere (a log, a pipe), a line every ten seconds. Always on stderr, and off with
//! `ashift --no-progress` or `ASHIFT_PROGRESS=off`.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use admin::number::{duration, nice_bytes};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};
use zpl::Filesystem;

use crate::caller::{self, Caller, Stream, caller};

/// How often a line is printed where output is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often the line on a terminal is drawn, per second.
const DRAWS_PER_SEC: u8 = 10;
/// Interval of redraws without progress, which show that the command is alive.
const TICK: Duration = Duration::from_millis(250);
/// A copy that takes less time than this is not worth counting ahead.
const COUNT_AFTER: Duration = Duration::from_secs(1);
/// Columns of a line that is not on a terminal.
const LINE_COLUMNS: u16 = 100;
/// Bytes in a block of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

fn is_off() -> bool {
    let asked = caller::var_os("ASHIFT_PROGRESS");
    caller().is_quiet() || asked.is_some_and(|value| value == "off" || value == "0")
}

/// A bar for work of `total` units, or of an unknown amount (set later with `set_length`). `unit_bytes`:
/// the units are bytes, not items.
pub(crate) fn progress(total: Option<u64>, unit_bytes: bool) -> ProgressBar {
    if is_off() {
        return ProgressBar::hidden();
    }
    let terminal = terminal();
    let is_terminal = terminal.is_some();
    let target = if let Some(terminal) = terminal {
        ProgressDrawTarget::term(terminal, DRAWS_PER_SEC)
    } else {
        ProgressDrawTarget::term_like_with_hz(Box::new(Lines::new()), DRAWS_PER_SEC)
    };
    let bar = ProgressBar::with_draw_target(total, target);
    let template = if is_terminal {
        "{spinner} {so_far}  {wide_msg}"
    } else {
        "{so_far}  {wide_msg}"
    };
    let style = ProgressStyle::with_template(template).expect("the template is right");
    bar.set_style(style.with_key(
        "so_far",
        move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let text = so_far(
                state.pos(),
                state.len(),
                state.elapsed().as_secs_f64(),
                unit_bytes,
            );
            let _ = out.write_str(&text);
        },
    ));
    bar.enable_steady_tick(TICK);
    bar
}

/// The caller's terminal, if stderr is one.
fn terminal() -> Option<Term> {
    let caller = caller();
    if !caller.is_terminal(Stream::Err) {
        return None;
    }
    let file = || caller.output_file(Stream::Err).map(File::from);
    Some(Term::read_write_pair(file().ok()?, file().ok()?))
}

/// `1.20G of 3.40G (35%), 120M/s, 00:00:42 left`
fn so_far(done: u64, total: Option<u64>, secs: f64, unit_bytes: bool) -> String {
    let number = |n: u64| {
        if unit_bytes {
            nice_bytes(n)
        } else {
            n.to_string()
        }
    };
    let total = total.filter(|total| *total > 0);
    if done == 0 && total.is_none() {
        return String::new();
    }
    let mut text = number(done);
    if let Some(total) = total {
        let percent = done.min(total).saturating_mul(100) / total;
        text += &format!(" of {} ({percent}%)", number(total));
    }
    // During the first second the rate means little.
    if secs >= 1.0 && done > 0 {
        let rate = done as f64 / secs;
        text += &format!(", {}/s", number(rate as u64));
        if let Some(left) = total.map(|total| total.saturating_sub(done)) {
            text += &format!(", {} left", duration((left as f64 / rate) as u64));
        }
    }
    text
}

/// Takes what is drawn where output is not a terminal, and prints it now and then.
#[derive(Debug)]
struct Lines(Mutex<LinesState>);

#[derive(Debug)]
struct LinesState {
    caller: Arc<Caller>,
    drawn: String,
    printed: Instant,
}

impl Lines {
    fn new() -> Lines {
        Lines(Mutex::new(LinesState {
            caller: caller(),
            drawn: String::new(),
            printed: Instant::now(),
        }))
    }

    fn change(&self, edit: impl FnOnce(&mut LinesState)) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        edit(&mut state);
        Ok(())
    }
}

impl TermLike for Lines {
    fn width(&self) -> u16 {
        LINE_COLUMNS
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.change(|state| state.drawn.push_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.change(|state| state.drawn.clear())
    }

    fn flush(&self) -> io::Result<()> {
        self.change(|state| {
            let drawn = std::mem::take(&mut state.drawn);
            let text = drawn.trim();
            if !text.is_empty() && state.printed.elapsed() >= LINE_EVERY {
                caller::enter(Arc::clone(&state.caller), || eprintln!("{text}"));
                state.printed = Instant::now();
            }
        })
    }
}

/// Counts the bytes to be copied from a file or folder of the host, concurrently with the copy.
pub(crate) fn count_ahead(bar: &ProgressBar, from: &Path) {
    let from = from.to_owned();
    count_beside(bar, move |is_going_on| bytes_below(from, is_going_on));
}

/// Like [`count_ahead`], for a file or directory of a dataset.
pub(crate) fn count_ahead_in(bar: &ProgressBar, fs: &Arc<Filesystem>, from: &str) {
    // A simulation controls only its own threads.
    if rt::is_simulated() {
        return;
    }
    // The copy may end before the counting does.
    let (fs, from) = (Arc::downgrade(fs), from.to_owned());
    count_beside(bar, move |is_going_on| bytes_in(&fs, &from, is_going_on));
}

/// Sets the bar's length once the total is counted, unless the work ends first.
fn count_beside(
    bar: &ProgressBar,
    count: impl FnOnce(&dyn Fn() -> bool) -> Option<u64> + Send + 'static,
) {
    if bar.is_hidden() {
        return;
    }
    let bar = bar.downgrade();
    caller::spawn(move || {
        std::thread::sleep(COUNT_AFTER);
        let is_going_on = || bar.upgrade().is_some_and(|bar| !bar.is_finished());
        if is_going_on()
            && let Some(total) = count(&is_going_on)
            && let Some(bar) = bar.upgrade()
        {
            bar.set_length(total);
        }
    });
}

/// Like [`bytes_below`], but counts holes, and returns `None` if something cannot be read: the copy will
/// report it.
fn bytes_in(fs: &Weak<Filesystem>, from: &str, is_going_on: &dyn Fn() -> bool) -> Option<u64> {
    let mut seen = HashSet::new();
    let mut total = 0;
    let mut rest = vec![fs.upgrade()?.resolve_link(from).ok()?];
    while let Some(id) = rest.pop() {
        // A damaged pool may have a directory that contains itself.
        if !is_going_on() || !seen.insert(id) {
            continue;
        }
        let fs = fs.upgrade()?;
        let attr = fs.getattr(id).ok()?;
        if attr.is_directory() {
            rest.extend(fs.list(id).ok()?.into_iter().map(|entry| entry.id));
        } else {
            total += attr.size;
        }
    }
    is_going_on().then_some(total)
}

/// The bytes of all files in `root`, without holes, each file once; `None` if the work has ended. What
/// cannot be read is skipped: the copy will report it.
fn bytes_below(root: PathBuf, is_going_on: &dyn Fn() -> bool) -> Option<u64> {
    let mut seen = HashSet::new();
    let mut total = 0;
    let mut rest = vec![root];
    while let Some(path) = rest.pop() {
        if !is_going_on() {
            return None;
        }
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            rest.extend(entries.map(|entry| entry.path()));
        } else if metadata.is_file()
            && (metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino())))
        {
            total += metadata.len().min(metadata.blocks() * STAT_BLOCK_BYTES);
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_shown() {
        let cases = [
            ((0, None, 0.1, true), ""),
            ((1 << 20, None, 0.5, true), "1M"),
            ((1 << 30, None, 8.0, true), "1G, 128M/s"),
            (
                (1 << 30, Some(4 << 30), 8.0, true),
                "1G of 4G (25%), 128M/s, 00:00:24 left",
            ),
            ((0, Some(10), 5.0, false), "0 of 10 (0%)"),
            (
                (30, Some(90), 10.0, false),
                "30 of 90 (33%), 3/s, 00:00:20 left",
            ),
            ((7, Some(0), 1.0, false), "7, 7/s"),
            (
                (9, Some(8), 3.0, false),
                "9 of 8 (100%), 3/s, 00:00:00 left",
            ),
        ];
        for ((done, total, secs, unit_bytes), expected) in cases {
            assert_eq!(so_far(done, total, secs, unit_bytes), expected);
        }
    }

    #[test]
    fn a_tree_is_counted_with_each_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/a"), vec![1; 8192]).unwrap();
        std::fs::write(at("b"), vec![1; 4096]).unwrap();
        std::fs::hard_link(at("b"), at("d/link")).unwrap();
        std::os::unix::fs::symlink("b", at("symlink")).unwrap();
        let hole = std::fs::File::create(at("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let root = folder.path().to_owned();
        assert_eq!(bytes_below(root.clone(), &|| true), Some(12288));
        assert_eq!(bytes_below(root, &|| false), None);
    }
}
