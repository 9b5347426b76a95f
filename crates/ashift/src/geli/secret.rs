//! Passphrases and key files: from files, from standard input, or from the terminal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};

use base::{Error, Result};
use geli::{Components, PASSPHRASE_BYTES_MAX};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::caller::caller;
use crate::geomclass::Call;

/// Whether the components unlock a provider now, or are to unlock it in future.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Present,
    New,
}

impl Which {
    /// The options for passphrase files, key files, and no passphrase.
    fn letters(self) -> [char; 3] {
        match self {
            Which::Present => ['j', 'k', 'p'],
            Which::New => ['J', 'K', 'P'],
        }
    }
}

/// Collects what the options give; asks for a passphrase if they give nothing.
#[doc(alias = "eli_genkey")]
pub(super) fn components(call: &Call<'_>, which: Which) -> Result<Components> {
    let [passfiles, keyfiles, none] = which.letters();
    let has_passphrase = !call.options.has(none);
    let passfiles = call.options.all(passfiles);
    if !has_passphrase && !passfiles.is_empty() {
        let letters = which.letters();
        return Err(Error::invalid(format!(
            "Options -{} and -{} are mutually exclusive.",
            letters[0], letters[2]
        )));
    }
    let keyfiles = call.options.all(keyfiles);
    let keyfiles = keyfiles.iter().map(|file| read_keyfile(file));
    let mut components = Components {
        keyfiles: keyfiles.collect::<Result<_>>()?,
        passphrase: None,
    };
    if has_passphrase {
        components.passphrase = Some(if passfiles.is_empty() {
            ask(which)?
        } else {
            read_passfiles(passfiles)?
        });
    }
    components.check()?;
    Ok(components)
}

fn read_keyfile(file: &str) -> Result<Vec<u8>> {
    if file == "-" {
        let bytes = caller().read_all();
        return bytes.map_err(|e| cannot("read keyfile", file, &e));
    }
    fs::read(file).map_err(|e| cannot("open keyfile", file, &e))
}

/// The first lines of files, concatenated.
fn read_passfiles(files: &[String]) -> Result<Vec<u8>> {
    let mut passphrase = Vec::new();
    for file in files {
        let line = if file == "-" {
            first_line(&mut *caller().input())
        } else {
            let open = File::open(file).map_err(|e| cannot("open passfile", file, &e))?;
            first_line(&mut BufReader::new(open))
        };
        let line = line.map_err(|e| cannot("read passfile", file, &e))?;
        passphrase.extend(line);
        if passphrase.len() > PASSPHRASE_BYTES_MAX {
            return Err(Error::invalid(format!("Passphrase in {file} too long.")));
        }
    }
    Ok(passphrase)
}

/// The first line, without its line feed; read only until it is too long for a passphrase.
fn first_line(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let limit = PASSPHRASE_BYTES_MAX as u64 + 2;
    reader.take(limit).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

fn cannot(what: &str, file: &str, error: &io::Error) -> Error {
    let error = Error::from(io::Error::from(error.kind()));
    let kind = error.kind();
    Error::new(kind, format!("Cannot {what} {file}: {error}."))
}

/// Asks on the terminal, without showing what is typed; a new passphrase twice.
fn ask(which: Which) -> Result<Vec<u8>> {
    let no_terminal = |e: io::Error| Error::from(e).within("Cannot read passphrase");
    loop {
        if which == Which::Present {
            return prompt("Enter passphrase: ").map_err(no_terminal);
        }
        let passphrase = prompt("Enter new passphrase: ").map_err(no_terminal)?;
        if prompt("Reenter new passphrase: ").map_err(no_terminal)? == passphrase {
            return Ok(passphrase);
        }
        eprintln!("They didn't match.");
    }
}

fn prompt(text: &str) -> io::Result<Vec<u8>> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    let shown = tcgetattr(&terminal)?;
    let mut hidden = shown.clone();
    hidden.local_modes &= !LocalModes::ECHO;
    tcsetattr(&terminal, OptionalActions::Flush, &hidden)?;
    terminal.write_all(text.as_bytes())?;
    let line = first_line(&mut BufReader::new(&terminal));
    tcsetattr(&terminal, OptionalActions::Flush, &shown)?;
    terminal.write_all(b"\n")?;
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passphrase_is_a_line() {
        let line = |text: &[u8]| first_line(&mut BufReader::new(text)).unwrap();
        assert_eq!(line(b"secret\nmore\n"), b"secret");
        assert_eq!(line(b"secret"), b"secret");
        assert_eq!(line(b"\nsecret"), b"");
        assert!(line(&[b'x'; 5000]).len() > PASSPHRASE_BYTES_MAX);
    }

    #[test]
    fn passfiles_are_one_behind_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let files = [file("a", "one\nx"), file("b", "two")];
        assert_eq!(read_passfiles(&files).unwrap(), b"onetwo");
        let long = [file("c", &"x".repeat(2000))];
        assert!(read_passfiles(&long).is_err());
        let error = read_passfiles(&["/nowhere".to_owned()]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("Cannot open passfile /nowhere: ")
        );
    }
}
