//! `ashift ls`, `stat`, `cat`, `find`, `du`, `sha256sum`: looking at files in data sets.

use std::io::Write;
use std::process::ExitCode;
use std::rc::Rc;

use admin::getopt::{OptSpec, Parsed};
use admin::number::{Zone, nice_bytes};
use base::{Error, ObjectId, Result};
use dmu::Content;
use serde_json::{Value, json};
use zpl::mount::Mount;
use zpl::{Attr, FileType, Time};

use super::{Location, Run, Session, Usage, parse};
use crate::host::Access;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;

fn find_mount(session: &Session, text: &str) -> Result<(Rc<Mount>, String)> {
    match session.locate(text)? {
        Location::Pool(name, path) => Ok((session.mount(&name)?, path)),
        Location::Host(_) => Err(Error::invalid(
            "not a path in a pool (POOL/DATASET:/path): use the host's own tools",
        )),
    }
}

/// The letter of a type, as `ls -l` and `find -type` have it.
fn letter(attr: &Attr, regular: char) -> char {
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

fn permissions(attr: &Attr) -> String {
    let mut text = String::from(letter(attr, '-'));
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for (i, (bit, lower, upper)) in special.into_iter().enumerate() {
        let three = attr.mode >> (6 - 3 * i);
        text.push(if three & 4 != 0 { 'r' } else { '-' });
        text.push(if three & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & bit != 0, three & 1 != 0) {
            (true, true) => lower,
            (true, false) => upper,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn date(time: Time, zone: Zone, exact: bool) -> String {
    let secs = time.secs.saturating_add((zone.0)(time.secs.max(0) as u64));
    let days = secs.div_euclid(86_400);
    let clock = secs.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (clock / 3600, clock / 60 % 60);
    let text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}");
    if exact {
        format!("{text}:{:02}.{:09}", clock % 60, time.nanos)
    } else {
        text
    }
}

/// Year, month and day of a day since 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (
        yoe + era * 400 + i64::from(month <= 2),
        month,
        doy - (153 * mp + 2) / 5 + 1,
    )
}

fn to_json(name: &str, attr: &Attr, target: Option<&str>) -> Value {
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

/// Prints to stdout; a closed pipe ends the program quietly.
fn put(text: &[u8]) {
    if std::io::stdout().write_all(text).is_err() {
        std::process::exit(0);
    }
}

fn line(text: &str) {
    put(text.as_bytes());
    put(b"\n");
}

struct Ls<'a> {
    parsed: &'a Parsed,
    zone: Zone,
    json: Vec<Value>,
}

/// Runs `ashift ls`.
pub(crate) fn ls(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "ls",
        text: "\
usage: ashift ls [-1aAdhijlnR] POOL/DATASET[@SNAPSHOT]:/path…

  -l  long: permissions, links, owner, group, size, time
  -n  as -l (owners are numbers anyway)
  -a  names that begin with a dot, and . and ..;  -A without . and ..
  -d  directories themselves, not what is in them
  -i  object numbers          -h  sizes for people
  -R  everything below        -j  JSON
",
        options: OptSpec {
            short: "1aAdhijlnR",
            long: &[],
        },
    };
    let parsed = match parse(&usage, args, 1) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Read);
    let mut run = Run::new("ls");
    let mut ls = Ls {
        parsed: &parsed,
        zone: crate::zone::local(),
        json: Vec::new(),
    };
    let many = parsed.operands.len() > 1 || parsed.has('R');
    for operand in &parsed.operands {
        let outcome = find_mount(&session, operand).and_then(|(mount, path)| {
            let id = mount.resolve(&path)?;
            let attr = mount.getattr(id)?;
            if attr.is_directory() && !parsed.has('d') {
                ls.directory(&mount, id, operand.trim_end_matches('/'), many)
            } else {
                ls.entry(&mount, operand, &attr, 0)
            }
        });
        run.note(operand, outcome);
    }
    if parsed.has('j') {
        line(&serde_json::to_string_pretty(&ls.json).unwrap_or_default());
    }
    run.end(session)
}

impl Ls<'_> {
    fn directory(&mut self, fs: &Mount, id: ObjectId, shown: &str, many: bool) -> Result<()> {
        let json = self.parsed.has('j');
        if many && !json {
            line(&format!("{shown}:"));
        }
        let mut entries = Vec::new();
        if self.parsed.has('a') {
            entries.push((".".to_owned(), id));
            entries.push(("..".to_owned(), fs.getattr(id)?.parent));
        }
        for entry in fs.list(id)? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if !name.starts_with('.') || self.parsed.has('a') || self.parsed.has('A') {
                entries.push((name, entry.id));
            }
        }
        entries.sort();
        let mut below = Vec::new();
        let width = entries
            .iter()
            .map(|(_, id)| id.0.to_string().len())
            .max()
            .unwrap_or(0);
        for (name, id) in entries {
            let attr = fs.getattr(id)?;
            let label = if json {
                format!("{shown}/{name}")
            } else {
                name.clone()
            };
            self.entry(fs, &label, &attr, width)?;
            if self.parsed.has('R') && attr.is_directory() && name != "." && name != ".." {
                below.push((format!("{shown}/{name}"), id));
            }
        }
        for (shown, id) in below {
            if !json {
                line("");
            }
            self.directory(fs, id, &shown, true)?;
        }
        Ok(())
    }

    fn entry(&mut self, fs: &Mount, name: &str, attr: &Attr, width: usize) -> Result<()> {
        let is_link = attr.file_type() == Some(FileType::Symlink);
        let target = if is_link {
            Some(fs.readlink(attr.id)?)
        } else {
            None
        };
        let target = target.map(|t| String::from_utf8_lossy(&t).into_owned());
        if self.parsed.has('j') {
            self.json.push(to_json(name, attr, target.as_deref()));
            return Ok(());
        }
        let mut text = String::new();
        if self.parsed.has('i') {
            text.push_str(&format!("{:>width$} ", attr.id.0));
        }
        if self.parsed.has('l') || self.parsed.has('n') {
            let size = match attr.file_type() {
                Some(FileType::BlockDevice | FileType::CharDevice) => {
                    let (major, minor) = zpl::device_major_minor(attr.rdev);
                    format!("{major}, {minor}")
                }
                _ if self.parsed.has('h') => nice_bytes(attr.size),
                _ => attr.size.to_string(),
            };
            let when = date(attr.mtime, self.zone, false);
            text.push_str(&format!(
                "{} {:>3} {:>5} {:>5} {:>10} {when} ",
                permissions(attr),
                attr.links,
                attr.uid,
                attr.gid,
                size
            ));
        }
        text.push_str(name);
        if let Some(target) = target.filter(|_| self.parsed.has('l') || self.parsed.has('n')) {
            text.push_str(&format!(" -> {target}"));
        }
        line(&text);
        Ok(())
    }
}

/// Runs `ashift stat`.
pub(crate) fn stat(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "stat",
        text: "usage: ashift stat [-j] POOL/DATASET[@SNAPSHOT]:/path…\n",
        options: OptSpec {
            short: "j",
            long: &[],
        },
    };
    let parsed = match parse(&usage, args, 1) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Read);
    let mut run = Run::new("stat");
    let zone = crate::zone::local();
    let mut all = Vec::new();
    for operand in &parsed.operands {
        let outcome = find_mount(&session, operand).and_then(|(mount, path)| {
            let attr = mount.getattr(mount.resolve(&path)?)?;
            if parsed.has('j') {
                all.push(to_json(operand, &attr, None));
            } else {
                stat_text(operand, &attr, zone);
            }
            Ok(())
        });
        run.note(operand, outcome);
    }
    if parsed.has('j') {
        line(&serde_json::to_string_pretty(&all).unwrap_or_default());
    }
    run.end(session)
}

fn stat_text(name: &str, attr: &Attr, zone: Zone) {
    let kind = match attr.file_type() {
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink) => "symbolic link",
        Some(FileType::Fifo) => "fifo",
        Some(FileType::Socket) => "socket",
        Some(FileType::BlockDevice) => "block special file",
        Some(FileType::CharDevice) => "character special file",
        Some(FileType::Regular) if attr.size == 0 => "regular empty file",
        _ => "regular file",
    };
    line(&format!("  File: {name}"));
    line(&format!(
        "  Size: {:<15} Blocks: {:<10} IO Block: {:<6} {kind}",
        attr.size,
        attr.used_bytes.div_ceil(512),
        attr.blksz
    ));
    line(&format!("Object: {:<15} Links: {}", attr.id, attr.links));
    line(&format!(
        "Access: ({:04o}/{})  Uid: {:<6} Gid: {}",
        attr.mode & 0o7777,
        permissions(attr),
        attr.uid,
        attr.gid
    ));
    let times = [
        ("Access", attr.atime),
        ("Modify", attr.mtime),
        ("Change", attr.ctime),
        (" Birth", attr.crtime),
    ];
    for (what, time) in times {
        line(&format!("{what}: {}", date(time, zone, true)));
    }
}

fn each_piece(fs: &Mount, id: ObjectId, mut see: impl FnMut(&[u8])) -> Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = 0;
    loop {
        let contents = fs.contents(id, at, PIECE_BYTES)?;
        if contents.is_empty() {
            return Ok(());
        }
        for content in contents {
            match content {
                Content::Data(bytes) => {
                    see(&bytes);
                    at += bytes.len() as u64;
                }
                Content::Hole(len) => {
                    for start in (0..len).step_by(ZEROS.len()) {
                        see(&ZEROS[..ZEROS.len().min(len - start)]);
                    }
                    at += len as u64;
                }
            }
        }
    }
}

/// Opens what each operand leads to, and does something with it.
fn each_file(
    usage: &Usage,
    args: &[String],
    work: impl Fn(&Parsed, &str, &Mount, ObjectId) -> Result<()>,
) -> ExitCode {
    let parsed = match parse(usage, args, 1) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Read);
    let mut run = Run::new(usage.name);
    for operand in &parsed.operands {
        let outcome = find_mount(&session, operand)
            .and_then(|(mount, path)| work(&parsed, operand, &mount, mount.resolve_link(&path)?));
        run.note(operand, outcome);
    }
    run.end(session)
}

/// Runs `ashift cat`.
pub(crate) fn cat(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "cat",
        text: "usage: ashift cat POOL/DATASET[@SNAPSHOT]:/path…\n",
        options: OptSpec {
            short: "",
            long: &[],
        },
    };
    each_file(&usage, args, |_, _, fs, id| each_piece(fs, id, put))
}

/// Runs `ashift sha256sum`.
pub(crate) fn sha256sum(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "sha256sum",
        text: "usage: ashift sha256sum [-r] POOL/DATASET[@SNAPSHOT]:/path…\n\n\
               -r  every regular file below a directory, in the order of the names\n",
        options: OptSpec {
            short: "r",
            long: &[],
        },
    };
    each_file(&usage, args, |parsed, operand, fs, id| {
        if !parsed.has('r') {
            return sum(fs, id, operand);
        }
        let top = operand.trim_end_matches('/');
        walk(fs, id, top, 0, &mut |name, attr, _| {
            if attr.file_type() == Some(FileType::Regular) {
                sum(fs, attr.id, name)?;
            }
            Ok(true)
        })
    })
}

/// Prints the sum of a file.
fn sum(fs: &Mount, id: ObjectId, name: &str) -> Result<()> {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    each_piece(fs, id, |bytes| hash.update(bytes))?;
    let hex: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    line(&format!("{hex}  {name}"));
    Ok(())
}

/// What `ashift find` asks of each name.
struct Tests {
    name: Option<String>,
    type_: Option<char>,
    size: Option<(std::cmp::Ordering, u64)>,
    max_depth: Option<usize>,
    zero: bool,
    json: bool,
}

impl Tests {
    /// Reads `-name`, `-type`, `-size`, `-maxdepth`, `-print0`, `-j` behind the paths.
    fn parse(args: &[String]) -> Result<(Vec<String>, Tests)> {
        let mut tests = Tests {
            name: None,
            type_: None,
            size: None,
            max_depth: None,
            zero: false,
            json: false,
        };
        let mut paths = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                let value = args.next().cloned();
                value.ok_or_else(|| Error::invalid(format!("missing argument to '{arg}'")))
            };
            match arg.as_str() {
                "-name" => tests.name = Some(value()?),
                "-type" => tests.type_ = value()?.chars().next(),
                "-maxdepth" => {
                    let depth = value()?
                        .parse()
                        .map_err(|_| Error::invalid("-maxdepth N"))?;
                    tests.max_depth = Some(depth);
                }
                "-size" => tests.size = Some(parse_size(&value()?)?),
                "-print" => {}
                "-print0" => tests.zero = true,
                "-j" => tests.json = true,
                other if other.starts_with('-') => {
                    return Err(Error::invalid(format!("unknown predicate '{other}'")));
                }
                path => paths.push(path.to_owned()),
            }
        }
        Ok((paths, tests))
    }

    fn accept(&self, name: &str, attr: &Attr) -> bool {
        let base = name.rsplit('/').next().unwrap_or(name);
        self.name
            .as_deref()
            .is_none_or(|pattern| glob(pattern.as_bytes(), base.as_bytes()))
            && self.type_.is_none_or(|wanted| letter(attr, 'f') == wanted)
            && self
                .size
                .is_none_or(|(order, bytes)| attr.size.cmp(&bytes) == order)
    }
}

fn parse_size(text: &str) -> Result<(std::cmp::Ordering, u64)> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (order, rest) = match text.as_bytes().first() {
        Some(b'+') => (Greater, &text[1..]),
        Some(b'-') => (Less, &text[1..]),
        _ => (Equal, text),
    };
    Ok((
        order,
        admin::number::parse_number(rest.trim_end_matches('c'))?,
    ))
}

/// Shell patterns: `*`, `?`, `[a-z]`.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            glob(&pattern[1..], name) || (!name.is_empty() && glob(pattern, &name[1..]))
        }
        (Some(b'?'), Some(_)) => glob(&pattern[1..], &name[1..]),
        (Some(b'['), Some(c)) => match pattern.iter().position(|b| *b == b']') {
            Some(end) if end > 1 => {
                let set = &pattern[1..end];
                let (set, negated) = set
                    .strip_prefix(b"!")
                    .map_or((set, false), |set| (set, true));
                let within = set
                    .windows(3)
                    .any(|w| w[1] == b'-' && (w[0]..=w[2]).contains(c));
                (set.contains(c) || within) != negated && glob(&pattern[end + 1..], &name[1..])
            }
            _ => *c == b'[' && glob(&pattern[1..], &name[1..]),
        },
        (Some(p), Some(c)) => p == c && glob(&pattern[1..], &name[1..]),
        _ => false,
    }
}

/// Runs `ashift find`.
pub(crate) fn find(args: &[String]) -> ExitCode {
    const TEXT: &str = "\
usage: ashift find POOL/DATASET[@SNAPSHOT]:/path… [TEST…]

  -name PATTERN   -type f|d|l|p|s|b|c   -size [+-]N[K|M|G]   -maxdepth N   -print0   -j
";
    if args.iter().any(|arg| arg == "--help") {
        print!("{TEXT}");
        return ExitCode::SUCCESS;
    }
    let (paths, tests) = match Tests::parse(args) {
        Ok((paths, tests)) if !paths.is_empty() => (paths, tests),
        Ok(_) => {
            eprint!("ashift find: missing operand\n{TEXT}");
            return ExitCode::from(2);
        }
        Err(e) => {
            eprint!("ashift find: {e}\n{TEXT}");
            return ExitCode::from(2);
        }
    };
    let session = Session::new(Access::Read);
    let mut run = Run::new("find");
    let mut all = Vec::new();
    for path in &paths {
        let outcome = find_mount(&session, path).and_then(|(mount, inner)| {
            let id = mount.resolve(&inner)?;
            walk(
                &mount,
                id,
                path.trim_end_matches('/'),
                0,
                &mut |name, attr, depth| {
                    if tests.accept(name, attr) {
                        match (tests.json, tests.zero) {
                            (true, _) => all.push(to_json(name, attr, None)),
                            (_, true) => put(&[name.as_bytes(), b"\0"].concat()),
                            _ => line(name),
                        }
                    }
                    Ok(tests.max_depth.is_none_or(|max| depth < max))
                },
            )
        });
        run.note(path, outcome);
    }
    if tests.json {
        line(&serde_json::to_string_pretty(&all).unwrap_or_default());
    }
    run.end(session)
}

/// Shows a file and, while `see` says yes, everything below it, parents first.
fn walk(
    fs: &Mount,
    id: ObjectId,
    name: &str,
    depth: usize,
    see: &mut dyn FnMut(&str, &Attr, usize) -> Result<bool>,
) -> Result<()> {
    let attr = fs.getattr(id)?;
    if !see(name, &attr, depth)? || !attr.is_directory() {
        return Ok(());
    }
    let mut entries = fs.list(id)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let child = format!("{name}/{}", String::from_utf8_lossy(&entry.name));
        walk(fs, entry.id, &child, depth + 1, see)?;
    }
    Ok(())
}

struct Du<'a> {
    parsed: &'a Parsed,
    max_depth: Option<usize>,
    seen: std::collections::BTreeSet<ObjectId>,
    json: Vec<Value>,
}

/// Runs `ashift du`.
pub(crate) fn du(args: &[String]) -> ExitCode {
    let usage = Usage {
        name: "du",
        text: "\
usage: ashift du [-ahjs] [-d N] POOL/DATASET[@SNAPSHOT]:/path…

Space on disk, in KiB.   -s  only the sum   -a  files, too   -d  at most N levels
                         -h  for people     -j  JSON, in bytes
",
        options: OptSpec {
            short: "ahjsd:",
            long: &[],
        },
    };
    let parsed = match parse(&usage, args, 1) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let session = Session::new(Access::Read);
    let mut run = Run::new("du");
    let max_depth = if parsed.has('s') {
        Some(0)
    } else {
        parsed.value('d').and_then(|d| d.parse().ok())
    };
    let mut du = Du {
        parsed: &parsed,
        max_depth,
        seen: Default::default(),
        json: Vec::new(),
    };
    for operand in &parsed.operands {
        let outcome = find_mount(&session, operand).and_then(|(mount, path)| {
            du.sum(
                &mount,
                mount.resolve(&path)?,
                operand.trim_end_matches('/'),
                0,
            )
        });
        run.note(operand, outcome);
    }
    if parsed.has('j') {
        line(&serde_json::to_string_pretty(&du.json).unwrap_or_default());
    }
    run.end(session)
}

impl Du<'_> {
    fn sum(&mut self, fs: &Mount, id: ObjectId, name: &str, depth: usize) -> Result<u64> {
        let attr = fs.getattr(id)?;
        if attr.links > 1 && !attr.is_directory() && !self.seen.insert(id) {
            return Ok(0);
        }
        let mut total = attr.used_bytes;
        if attr.is_directory() {
            let mut entries = fs.list(id)?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            for entry in entries {
                let child = format!("{name}/{}", String::from_utf8_lossy(&entry.name));
                total += self.sum(fs, entry.id, &child, depth + 1)?;
            }
        }
        let shown = attr.is_directory() || self.parsed.has('a') || depth == 0;
        if shown && self.max_depth.is_none_or(|max| depth <= max) {
            match (self.parsed.has('j'), self.parsed.has('h')) {
                (true, _) => self.json.push(json!({"name": name, "used": total})),
                (_, true) => line(&format!("{}\t{name}", nice_bytes(total))),
                _ => line(&format!("{}\t{name}", total.div_ceil(1024))),
            }
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(civil(-1), (1969, 12, 31));
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expect) in [
            ("*.rs", "lib.rs", true),
            ("*.rs", "lib.c", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("*", "", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), name.as_bytes()),
                expect,
                "{pattern} {name}"
            );
        }
    }
}
