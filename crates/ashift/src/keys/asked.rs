//! Where keys of encrypted data sets come from: files, standard input, the terminal.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_crypto.c (`get_key_material`, `libzfs_getpassphrase`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

use base::{Error, Result};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use service::{KeySource, WantedKey};
use zeroize::Zeroizing;

use crate::caller::caller;

/// Bytes after which a key is too long, whatever its format: more are not read.
const KEY_BYTES_MAX: u64 = 1 << 16;

/// Asks the caller.
pub(crate) struct Asked;

impl KeySource for Asked {
    fn key(&self, wanted: &WantedKey<'_>) -> Result<Zeroizing<Vec<u8>>> {
        let location = wanted.location;
        if location == "prompt" {
            return match caller().reads_terminal() {
                true if wanted.is_raw => {
                    Err(Error::invalid("Cannot enter raw keys on the terminal"))
                }
                true => typed(wanted),
                false => read(&mut **caller().input(), wanted.is_raw).map_err(Error::from),
            };
        }
        match location.split_once(':') {
            Some(("file", path)) => {
                let path = path.strip_prefix("//").unwrap_or_default();
                let cannot = |e: io::Error| {
                    let why = e.to_string();
                    let why = why.split(" (os error").next().unwrap_or_default();
                    Error::invalid(format!("Failed to open key material file: {why}"))
                };
                let file = File::open(path).map_err(cannot)?;
                read(&mut BufReader::new(file), wanted.is_raw).map_err(cannot)
            }
            Some((scheme, _)) if is_scheme(scheme) => {
                Err(Error::invalid("URI scheme is not supported"))
            }
            _ => Err(Error::invalid("Invalid keylocation")),
        }
    }
}

fn is_scheme(text: &str) -> bool {
    let is_known = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_known)
}

/// All bytes, or the first line without its line feed.
#[doc(alias = "get_key_material_stream")]
fn read(from: &mut dyn BufRead, is_raw: bool) -> io::Result<Zeroizing<Vec<u8>>> {
    // Of this size from the start: what grows leaves copies behind.
    let mut key = Zeroizing::new(Vec::with_capacity(KEY_BYTES_MAX as usize));
    let mut from = from.take(KEY_BYTES_MAX);
    if is_raw {
        from.read_to_end(&mut key)?;
        return Ok(key);
    }
    from.read_until(b'\n', &mut key)?;
    if key.is_empty() {
        return Err(io::Error::other("encryption failure"));
    }
    if key.last() == Some(&b'\n') {
        key.pop();
    }
    Ok(key)
}

/// Asks on the terminal; for a new key twice.
#[doc(alias = "get_key_interactive")]
fn typed(wanted: &WantedKey<'_>) -> Result<Zeroizing<Vec<u8>>> {
    let key = prompt(wanted, false)?;
    if wanted.is_new && prompt(wanted, true)? != key {
        return Err(Error::invalid("Provided keys do not match."));
    }
    Ok(key)
}

/// Asks on the terminal that stdin is, without showing what is typed.
fn prompt(wanted: &WantedKey<'_>, again: bool) -> io::Result<Zeroizing<Vec<u8>>> {
    let word = wanted.word;
    match (wanted.is_new, again) {
        (false, _) => print!("Enter {word} for '{}':", wanted.root),
        (true, false) => print!("Enter new {word}:"),
        (true, true) => print!("Re-enter new {word}:"),
    }
    caller().flush(crate::caller::Stream::Out);
    let terminal = caller().input_file()?;
    let shown = tcgetattr(terminal.as_fd())?;
    let mut hidden = shown.clone();
    hidden.local_modes &=
        !(LocalModes::ECHO | LocalModes::ECHOE | LocalModes::ECHOK | LocalModes::ECHONL);
    tcsetattr(terminal.as_fd(), OptionalActions::Flush, &hidden)?;
    let line = read(&mut **caller().input(), false);
    tcsetattr(terminal.as_fd(), OptionalActions::Flush, &shown)?;
    println!();
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(location: &str, is_raw: bool) -> Result<Vec<u8>> {
        let wanted = WantedKey {
            root: "tank",
            word: "passphrase",
            is_raw,
            location,
            is_new: false,
        };
        Asked.key(&wanted).map(|key| key.to_vec())
    }

    #[test]
    fn a_key_is_a_line_of_a_file_or_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "correct horse\nbattery").unwrap();
        let location = format!("file://{}", path.display());
        assert_eq!(key(&location, false).unwrap(), b"correct horse");
        assert_eq!(key(&location, true).unwrap(), b"correct horse\nbattery");
    }

    #[test]
    fn what_is_not_a_place_is_refused_in_the_words_of_zfs() {
        let refused = |location| key(location, false).unwrap_err().to_string();
        assert_eq!(
            refused("file:///nowhere"),
            "Failed to open key material file: No such file or directory"
        );
        assert_eq!(refused("ftp://host/key"), "URI scheme is not supported");
        assert_eq!(refused("nonsense"), "Invalid keylocation");
    }
}
