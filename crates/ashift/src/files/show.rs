//! Formatting of files: permissions, dates, paths, JSON.

use std::borrow::Cow;

use admin::number::{Zone, iso_time};
use serde_json::{Value, json};
use zpl::{Attr, FileType, Time};

use crate::caller::{self, Stream, caller};

/// The letter of a file type, as in `ls -l` and `find -type`.
pub(super) fn letter(attr: &Attr, regular: char) -> char {
    match attr.file_type() {
        Some(FileType::Directory) => 'd',
        Some(FileType::Symlink) => 'l',
        Some(FileType::Fifo) => 'p',
        Some(FileType::Socket) => 's',
        Some(FileType::BlockDevice) => 'b',
        Some(FileType::CharDevice) => 'c',
        Some(FileType::Regular) => regular,
        None => '?',
    }
}

/// `drwxr-xr-x`
pub(super) fn permissions(attr: &Attr) -> String {
    format!("{}{}", letter(attr, '-'), rwx(attr.mode))
}

/// `rwxr-xr-x`
pub(super) fn rwx(mode: u32) -> String {
    let mut text = String::new();
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for (i, (bit, lower, upper)) in special.into_iter().enumerate() {
        let three = mode >> (6 - 3 * i);
        text.push(if three & 4 != 0 { 'r' } else { '-' });
        text.push(if three & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & bit != 0, three & 1 != 0) {
            (true, true) => lower,
            (true, false) => upper,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in `zone`, to the minute, or `exact`ly.
pub(super) fn date(time: Time, zone: Zone, exact: bool) -> String {
    let text = iso_time(time.secs, zone);
    if exact {
        format!("{text}.{:09}", time.nanos)
    } else {
        text[..text.len() - ":00".len()].to_owned()
    }
}

/// Everything known about a file, for `-j`.
pub(super) fn to_json(name: &str, attr: &Attr, target: Option<&str>) -> Value {
    let time = |t: Time| format!("{}.{:09}", t.secs, t.nanos);
    let mut value = json!({
        "name": name, "object": attr.id.0, "type": letter(attr, 'f').to_string(),
        "mode": format!("{:04o}", attr.mode & 0o7777), "links": attr.links, "uid": attr.uid,
        "gid": attr.gid, "size": attr.size, "used": attr.used_bytes, "blksz": attr.blksz,
        "atime": time(attr.atime), "mtime": time(attr.mtime), "ctime": time(attr.ctime),
        "crtime": time(attr.crtime),
    });
    if let Some(target) = target {
        value["target"] = target.into();
    }
    value
}

/// The path of a name in a directory.
pub(super) fn join(dir: &str, name: &[u8]) -> String {
    let slash = if dir.ends_with('/') { "" } else { "/" };
    format!("{dir}{slash}{}", String::from_utf8_lossy(name))
}

/// An operand as a prefix for paths below it: without slashes at the end, except a root's.
pub(super) fn top(operand: &str) -> String {
    let trimmed = operand.trim_end_matches('/');
    if trimmed.is_empty() || trimmed.ends_with(':') {
        format!("{trimmed}/")
    } else {
        trimmed.to_owned()
    }
}

/// Prints to stdout.
pub(super) fn put(text: &[u8]) {
    caller::stdout().put(text);
}

/// Lines for stdout. As with the C library's `stdout`, a terminal gets each at once, anything else many together.
#[derive(Default)]
pub(super) struct Lines {
    waiting: Vec<u8>,
    is_terminal: Option<bool>,
}

impl Lines {
    /// Bytes that are waited for.
    const ENOUGH: usize = 32 << 10;

    /// Prints a line; see [`line()`].
    pub(super) fn line(&mut self, text: &str) {
        let is_terminal = self.is_terminal();
        let text = tame(text, || is_terminal);
        self.put(&[text.as_bytes(), b"\n"]);
    }

    /// Prints what is given, all of it together.
    pub(super) fn put(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.waiting.extend(*part));
        if self.waiting.len() >= Lines::ENOUGH || self.is_terminal() {
            self.flush();
        }
    }

    /// Nothing waits any more.
    pub(super) fn flush(&mut self) {
        if !self.waiting.is_empty() {
            put(&self.waiting);
            self.waiting.clear();
        }
    }

    fn is_terminal(&mut self) -> bool {
        let ask = || caller().is_terminal(Stream::Out);
        *self.is_terminal.get_or_insert_with(ask)
    }
}

/// Prints a line. Names in it may contain anything: control characters are not sent to a terminal.
pub(super) fn line(text: &str) {
    put(tame(text, || caller().is_terminal(Stream::Out)).as_bytes());
    put(b"\n");
}

/// On a terminal, replaces control characters other than tabs by question marks, as `ls` does; elsewhere
/// returns the text unchanged. Whether it is a terminal is asked only if it matters: asking takes longer than most
/// lines.
pub(super) fn tame(text: &str, is_terminal: impl FnOnce() -> bool) -> Cow<'_, str> {
    let is_wild = |c: char| c.is_control() && c != '\t';
    if text.contains(is_wild) && is_terminal() {
        Cow::Owned(text.replace(is_wild, "?"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Prints everything gathered for `-j`.
pub(super) fn put_json(all: &[Value]) {
    put(serde_json::to_string_pretty(all)
        .unwrap_or_default()
        .as_bytes());
    put(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_given_control_characters() {
        let name = "a\u{1b}[2J\u{7f}\tb\u{9b}ä\n";
        assert_eq!(tame(name, || true), "a?[2J?\tb?ä?");
        assert_eq!(tame(name, || false), name);
        assert_eq!(tame("b\tä", || panic!("it is not asked")), "b\tä");
    }

    #[test]
    fn paths_can_be_pasted_back() {
        assert_eq!(top("tank/a:"), "tank/a:/");
        assert_eq!(top("tank/a:/"), "tank/a:/");
        assert_eq!(top("tank/a:/b//"), "tank/a:/b");
        assert_eq!(top("/"), "/");
        assert_eq!(join(&top("tank:/"), b"x"), "tank:/x");
        assert_eq!(join(&top("tank:/x/"), b"y"), "tank:/x/y");
    }
}
