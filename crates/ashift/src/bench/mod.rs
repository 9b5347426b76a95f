//! `ashift bench`: speed relative to another program that does the same work.
//!
//! # What it is
//! The speed of one machine says little, so nothing here prints a speed alone: in one run both programs
//! take turns, and what counts is the ratio of the medians. Each turn of either side is a separate process,
//! so neither has an advantage from warm caches.
//!
//! | word     | the other side                                                      |
//! |----------|---------------------------------------------------------------------|
//! | `peer`   | OpenZFS in user space (libzpool), and a plain copy-checksum-write loop |
//! | `crypt`  | AES-GCM with a file and alone, and the file alone                   |
//! | `verify` | OpenZFS's `zdb -bcc`                                                |
//! | `cp`     | `cp -a` into a file system of the kernel                              |
//! | `mount`  | file systems of the kernel, and FUSE with nothing behind it             |
//! | `parity` | OpenZFS's `raidz_test -B`                                            |
//! | `compress` | the prices of compression that host profiles charge              |
//! | `lab`    | the clock of the machines in the experiments                          |
//! | `stream` | none: one turn of ours, for `peer`                                  |
//! | `plain`  | none: one turn of the plain loop, for `peer`                        |
//! | `seal`   | none: one turn of AES-GCM alone, for `crypt`                        |
//! | `passthrough` | none: a folder through FUSE, for `mount`                       |

mod compress;
mod cp;
mod crypt;
mod host_fs;
mod lab;
mod layout;
mod mount;
mod parity;
mod peer;
mod plain;
mod stream;
mod tree;
mod turns;
mod verify;

use base::{Error, Result};

use crate::command::{Command, Entry, Table, verb};
use crate::failure::{Fail, Outcome};

pub(crate) const BENCH: Command<Entry> = Command::explained(
    "bench",
    "measure speeds beside other programs",
    "\
usage: ashift bench peer --peer PROGRAM [--layout LAYOUT] [--devices N] [--compression off|lz4|zstd]
                         [--size SIZE] [--runs N] [--data FILE] [--dir DIR] [-j]
       ashift bench crypt [--size SIZE] [--runs N] [--data FILE] [--dir DIR] [-j]
       ashift bench verify --dir DIR [--zdb PROGRAM] [--runs N] [-j] POOL
       ashift bench cp [--files N] [--fs btrfs|ext4|xfs] [--runs N] [--dir DIR] [-j]
       ashift bench mount [--files N] [--size SIZE] [--runs N] [--load NAME] [--dir DIR] [-j]
       ashift bench parity [--raidz-test PROGRAM] [-j]
       ashift bench parity each
       ashift bench compress [--data DIR|FILE] [--record SIZE] [--runs N] [-j] [ALGORITHM...]
       ashift bench lab [--data DIR] [--runs N] [-j] [EXPERIMENT...]
       ashift bench stream [--encryption SUITE] LAYOUT COMPRESSION MIB DATA FILE...
       ashift bench plain MIB DATA FILE
       ashift bench seal [--cipher none] MIB DATA [FILE]
       ashift bench passthrough FOLDER DIR

    peer    write and read an object, beside PROGRAM LAYOUT RECORDSIZE COMPRESSION MIB DATA FILE...,
            which prints 'write_MBps N' and 'read_MBps N'; N devices are made in DIR (/dev/shm); LAYOUT
            is single (the default, on one device) or a word of zpool create: mirror, raidz2, draid2:4d:12c:1s
    crypt   write and read an object of an encrypted data set, beside AES-GCM on all cores, with a file and alone,
            and the file alone
    verify  check the exported POOL whose devices are in DIR, beside zdb -e -p DIR -bcc POOL
    cp      copy a tree of N small files into a new pool, beside cp -a and sync into a new file
            system on a loop device, both on images in DIR (the temporary folder); needs root
    mount   work on a mounted data set: streams of SIZE, 4K blocks with fio, a tree of N files; beside btrfs
            and ext4 on loop devices and FUSE with nothing behind it, all on images in DIR; needs root; NAME is
            part of the name of a line of its table: only these are done then
    parity  compute and solve the parity of RAID-Z beside raidz_test -B (minutes); each: with each of
            our implementations that this processor can run, without a peer
    compress  compress and decompress a sample of DIR (/usr/lib) and noise with each algorithm, on one core, in
            cycles; beside what the host profiles of machines charge for it
    lab     run experiments, beside the time that they may take; the sweep only with --data
    stream  make a pool on FILEs, which are there, write MIB of DATA, export, import, read, compare
    plain   copy, sum and write MIB of DATA to FILE; read, sum and compare
    seal    encrypt and decrypt MIB of DATA in memory, with AES-256-GCM on all cores; write them to FILE, which is
            there, and read them from it between; with --cipher none all but the encryption
    passthrough  show FOLDER at DIR through FUSE until that is unmounted
",
    run,
)
.apart()
.leads_with("bench: ");

const VERBS: Table<fn(&mut Words) -> Outcome> = Table {
    program: "ashift bench",
    commands: &[
        verb("peer", peer::run),
        verb("crypt", crypt::run),
        verb("verify", verify::run),
        verb("cp", cp::run),
        verb("mount", mount::run),
        verb("parity", parity::run),
        verb("compress", compress::run),
        verb("lab", lab::run),
        verb("stream", stream::run),
        verb("plain", plain::run),
        verb("seal", crypt::seal),
        verb("passthrough", mount::passthrough::run),
    ],
};

fn run(args: &[String]) -> Outcome {
    let (command, rest) = VERBS.pick(args)?;
    (command.run)(&mut Words::parse(rest)?)
}

/// Options with a value, and everything else.
struct Words {
    options: Vec<(String, String)>,
    is_json: bool,
    operands: Vec<String>,
}

impl Words {
    fn parse(args: &[String]) -> Outcome<Words> {
        let mut words = Words {
            options: Vec::new(),
            is_json: false,
            operands: Vec::new(),
        };
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if word == "-j" || word == "--json" {
                words.is_json = true;
            } else if let Some(name) = word.strip_prefix("--") {
                let value = rest.next().ok_or_else(usage_error)?;
                words.options.push((name.to_owned(), value.clone()));
            } else {
                words.operands.push(word.clone());
            }
        }
        Ok(words)
    }

    /// Removes an option and returns its value; options left in the end are unknown.
    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(have, _)| have == name)?;
        Some(self.options.remove(at).1)
    }

    fn take_number(&mut self, name: &str, default: u64) -> Result<u64> {
        self.take(name).map_or(Ok(default), |text| number(&text))
    }

    fn check_all_taken(&self) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid(format!("unknown option --{name}"))),
        }
    }
}

/// A number with an optional K, M or G.
fn number(text: &str) -> Result<u64> {
    let bad = || Error::invalid(format!("'{text}' is not a number"));
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches(['K', 'M', 'G']);
    let shift = match &upper[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(bad()),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number
        .checked_mul(1 << shift)
        .filter(|n| *n > 0)
        .ok_or_else(bad)
}

fn usage_error() -> Fail {
    Fail::Usage(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_have_a_unit() {
        assert_eq!(number("3").unwrap(), 3);
        assert_eq!(number("2G").unwrap(), 2 << 30);
        assert_eq!(number("2g").unwrap(), 2 << 30);
        assert!(number("G").is_err() && number("0").is_err() && number("1X").is_err());
        assert!(number("99999999999G").is_err());
    }

    #[test]
    fn options_are_taken_once() {
        let args = ["--runs", "7", "pool", "-j"].map(String::from);
        let mut words = Words::parse(&args).unwrap();
        assert_eq!(words.take_number("runs", 5).unwrap(), 7);
        assert_eq!(words.take_number("size", 5).unwrap(), 5);
        assert!(words.check_all_taken().is_ok() && words.is_json);
        assert_eq!(words.operands, ["pool"]);
    }
}
