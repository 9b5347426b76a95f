//! What a client asks of the holder.
//!
//! # Layout
//! A length (u32, little endian), then so many bytes: fields, each with its length (u32) in front. The first field is
//! `stop`, `restart`, `cut` or `run`; the second the version of the program; then, to cut: the seed (decimal); to run:
//! `quiet` or nothing, the file creation mask (octal), the count of words (decimal), the words, and the environment as
//! `NAME=VALUE`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Bytes of a request, at most: the kernel's limit on arguments and environment, and some more.
const BYTES_MAX: u32 = 16 << 20;

/// The version of this program, which client and holder must have in common.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Run a command.
    Run(Run),
    /// End.
    Stop,
    /// Begin anew: what is to be done with a machine.
    Restart(Restart),
}

/// How a machine begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    /// In order.
    Reboot,
    /// After a power cut; the seed decides what is lost.
    PowerCut(Option<u64>),
}

/// A command with what its caller gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// The version of the client's program.
    pub(super) version: String,
    pub(super) is_quiet: bool,
    pub(super) umask: u32,
    /// The name of the command, and its arguments.
    pub(super) words: Vec<String>,
    pub(super) environment: BTreeMap<OsString, OsString>,
}

impl Request {
    /// Sends it.
    ///
    /// # Errors
    /// As `write`; `InvalidInput` if it is too long.
    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut body = Vec::new();
        let mut add = |field: &[u8]| {
            body.extend((field.len() as u32).to_le_bytes());
            body.extend(field);
        };
        match self {
            Request::Stop => {
                add(b"stop");
                add(VERSION.as_bytes());
            }
            Request::Restart(Restart::Reboot) => {
                add(b"restart");
                add(VERSION.as_bytes());
            }
            Request::Restart(Restart::PowerCut(seed)) => {
                add(b"cut");
                add(VERSION.as_bytes());
                add(seed
                    .map_or_else(String::new, |seed| seed.to_string())
                    .as_bytes());
            }
            Request::Run(run) => {
                add(b"run");
                add(run.version.as_bytes());
                add(if run.is_quiet { b"quiet" } else { b"" });
                add(format!("{:o}", run.umask).as_bytes());
                add(run.words.len().to_string().as_bytes());
                run.words.iter().for_each(|word| add(word.as_bytes()));
                for (name, value) in &run.environment {
                    add(&[name.as_bytes(), b"=", value.as_bytes()].concat());
                }
            }
        }
        let len = u32::try_from(body.len())
            .ok()
            .filter(|len| *len <= BYTES_MAX);
        let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too long"))?;
        to.write_all(&len.to_le_bytes())?;
        to.write_all(&body)
    }

    /// Receives one.
    ///
    /// # Errors
    /// As `read`; `InvalidData` for what is not a request.
    pub(super) fn receive(from: &mut impl Read) -> io::Result<Request> {
        let mut len = [0; 4];
        from.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len);
        if len > BYTES_MAX {
            return Err(wrong());
        }
        let mut body = Vec::new();
        from.take(len.into()).read_to_end(&mut body)?;
        if body.len() != len as usize {
            return Err(wrong());
        }
        Request::parse(&body).ok_or_else(wrong)
    }

    fn parse(body: &[u8]) -> Option<Request> {
        let mut fields = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let (len, after) = rest.split_first_chunk()?;
            let field;
            (field, rest) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            fields.push(field);
        }
        let mut fields = fields.into_iter();
        let mut text = || Some(std::str::from_utf8(fields.next()?).ok()?.to_owned());
        let (kind, version) = (text()?, text()?);
        match kind.as_str() {
            "stop" => return Some(Request::Stop),
            "restart" => return Some(Request::Restart(Restart::Reboot)),
            "cut" => {
                let seed = text()?;
                let seed = match seed.as_str() {
                    "" => None,
                    seed => Some(seed.parse().ok()?),
                };
                return Some(Request::Restart(Restart::PowerCut(seed)));
            }
            _ => {}
        }
        let (is_quiet, umask, count) = (text()? == "quiet", text()?, text()?);
        let words = (0..count.parse::<usize>().ok()?)
            .map(|_| text())
            .collect::<Option<_>>()?;
        let variable = |field: &[u8]| {
            // A name may begin with "=".
            let at = field.iter().skip(1).position(|b| *b == b'=')? + 1;
            let os = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
            Some((os(&field[..at]), os(&field[at + 1..])))
        };
        Some(Request::Run(Run {
            version,
            is_quiet,
            umask: u32::from_str_radix(&umask, 8).ok()?,
            words,
            environment: fields.filter_map(variable).collect(),
        }))
        .filter(|_| kind == "run")
    }
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a request")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn example() -> Request {
        let odd = OsString::from_vec(b"\xff\n=x".to_vec());
        Request::Run(Run {
            version: VERSION.to_owned(),
            is_quiet: true,
            umask: 0o27,
            words: ["cp", "", "a b\n", "ä"].map(str::to_owned).to_vec(),
            environment: BTreeMap::from([("A".into(), odd), ("=C".into(), "".into())]),
        })
    }

    #[test]
    fn a_request_is_received_as_it_was_sent() {
        let restarts = [
            Restart::Reboot,
            Restart::PowerCut(None),
            Restart::PowerCut(Some(7)),
        ];
        let requests = restarts.map(Request::Restart);
        for request in [example(), Request::Stop].into_iter().chain(requests) {
            let mut bytes = Vec::new();
            request.send(&mut bytes).unwrap();
            assert_eq!(Request::receive(&mut &bytes[..]).unwrap(), request);
        }
    }

    #[test]
    fn what_is_no_request_is_refused_whatever_it_is() {
        let mut bytes = Vec::new();
        example().send(&mut bytes).unwrap();
        for len in 0..bytes.len() {
            assert!(Request::receive(&mut &bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let _ = Request::receive(&mut &bytes[..]);
            }
        }
        assert!(Request::receive(&mut &u32::MAX.to_le_bytes()[..]).is_err());
    }
}
