//! The loop of `dd`: read a block, count it, convert it, write it.

use base::{BlockBuf, Error, ErrorKind};

use super::{Flavour, Input, Operands, Output};

/// Records and bytes, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Full input blocks.
    pub in_full: u64,
    /// Partial ones.
    pub in_partial: u64,
    /// Full output blocks.
    pub out_full: u64,
    /// Partial ones.
    pub out_partial: u64,
    /// Input blocks with an odd byte at the end, for FreeBSD's `conv=swab`.
    pub odd_swabs: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Copies; `counts` is how far it came, also after an error. `observer` is given every complaint that
/// does not end the copy, and is called after every block.
///
/// # Errors
/// The message to print, in the wording of the chosen `dd`.
pub fn copy(
    operands: &Operands,
    input: &mut dyn Input,
    output: &mut dyn Output,
    counts: &mut Counts,
    observer: &mut dyn Observer,
) -> Result<(), String> {
    let block = |bytes: u64| BlockBuf::paged(usize::try_from(bytes).expect("checked: a block"));
    let mut copier = Copier {
        operands,
        input,
        output,
        counts,
        observer,
        input_block: block(operands.input_block_bytes),
        output_block: block(operands.output_block_bytes),
        gathered: 0,
        swab_left: None,
        warned: false,
    };
    copier.position()?;
    copier.run()
}

/// Callbacks for the progress and the messages of a copy.
pub trait Observer {
    /// A complaint that does not end the copying.
    fn complain(&mut self, text: &str);
    /// An error was ignored (`conv=noerror`); the counts are to be shown.
    fn passed_over(&mut self, counts: &Counts);
    /// A block was copied.
    fn block_done(&mut self, counts: &Counts);
}

struct Copier<'a> {
    operands: &'a Operands,
    input: &'a mut dyn Input,
    output: &'a mut dyn Output,
    counts: &'a mut Counts,
    observer: &'a mut dyn Observer,
    input_block: BlockBuf,
    output_block: BlockBuf,
    /// Bytes of the output block that are filled.
    gathered: usize,
    /// The odd byte that `conv=swab` carries over to the next block; GNU's only.
    swab_left: Option<u8>,
    warned: bool,
}

impl Copier<'_> {
    fn position(&mut self) -> Result<(), String> {
        let skip = self.operands.skip_bytes();
        if skip > 0 {
            let skipped = self.input.skip(skip).map_err(|e| self.input_error(&e))?;
            if skipped < skip && self.operands.flavour == Flavour::Gnu {
                let name = self.operands.input_name();
                let text = format!("{name}: cannot skip to specified offset");
                self.observer.complain(&text);
            }
        }
        let seek = self.operands.seek_bytes();
        if seek > 0 {
            self.output.seek(seek).map_err(|e| self.output_error(&e))?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(wanted) = self.next_len() {
            let Some(read) = self.read(wanted)? else {
                continue;
            };
            if read == 0 {
                break;
            }
            if self.operands.one_block {
                self.write_as_read(read)?;
            } else {
                self.gather(read)?;
            }
            self.observer.block_done(self.counts);
        }
        if let Some(byte) = self.swab_left.take() {
            self.gather_byte(byte)?;
        }
        self.write_rest()?;
        let finished = self.output.finish(self.operands.sync_at_end);
        finished.map_err(|e| self.finish_error(&e))
    }

    /// How much to read next; `None` when `count` is reached.
    fn next_len(&self) -> Option<usize> {
        let block = self.operands.input_block_bytes;
        let records = self.counts.in_full + self.counts.in_partial;
        let len = match self.operands.count {
            None => block,
            Some(count) if !count.is_bytes => (records < count.number).then_some(block)?,
            Some(count) if records < count.number / block => block,
            Some(count) if records == count.number / block => count.number % block,
            Some(_) => 0,
        };
        (len > 0).then(|| usize::try_from(len).expect("checked: a block"))
    }

    /// Reads and counts a block; returns its length after padding, 0 at the end, `None` after an
    /// ignored error with nothing to write.
    fn read(&mut self, wanted: usize) -> Result<Option<usize>, String> {
        let conversions = self.operands.conversions;
        let read = match self.read_block(wanted) {
            Ok(0) => return Ok(Some(0)),
            Ok(read) => read,
            Err(error) => {
                let text = self.input_error(&error);
                if !conversions.noerror {
                    return Err(text);
                }
                self.observer.complain(&text);
                self.observer.passed_over(self.counts);
                let skipped = self.input.skip(wanted as u64);
                if skipped.map_err(|e| self.input_error(&e))? == 0 {
                    return Ok(Some(0));
                }
                if !conversions.sync {
                    return Ok(None);
                }
                self.input_block[..].fill(0);
                match self.operands.flavour {
                    Flavour::FreeBsd => self.counts.in_full += 1,
                    Flavour::Gnu => self.counts.in_partial += 1,
                }
                return Ok(Some(self.input_block.len()));
            }
        };
        let block = self.input_block.len();
        if read == block {
            self.counts.in_full += 1;
            return Ok(Some(read));
        }
        self.counts.in_partial += 1;
        if !conversions.sync {
            return Ok(Some(read));
        }
        self.input_block[read..].fill(0);
        Ok(Some(block))
    }

    fn read_block(&mut self, wanted: usize) -> base::Result<usize> {
        rt::charge(rt::Work::SystemCall, 1);
        rt::charge(rt::Work::Copy, wanted as u64);
        let mut read = self.input.read(&mut self.input_block[..wanted])?;
        assert!(read <= wanted, "{read} bytes read of {wanted}");
        while self.operands.input_flags.fullblock && read > 0 && read < wanted {
            match self.input.read(&mut self.input_block[read..wanted])? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }

    fn write_as_read(&mut self, len: usize) -> Result<(), String> {
        // Taken out of `self`, to be borrowed while `self` is borrowed mutably.
        let block = std::mem::replace(&mut self.input_block, BlockBuf::scratch(0));
        let written = self.write(&block[..len]);
        self.input_block = block;
        written
    }

    fn gather(&mut self, len: usize) -> Result<(), String> {
        let mut block = std::mem::replace(&mut self.input_block, BlockBuf::scratch(0));
        let outcome = self.convert_and_gather(&mut block[..len]);
        self.input_block = block;
        outcome
    }

    fn convert_and_gather(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let conversions = self.operands.conversions;
        if conversions.lcase {
            bytes.make_ascii_lowercase();
        }
        if conversions.ucase {
            bytes.make_ascii_uppercase();
        }
        if !conversions.swab {
            return self.gather_bytes(bytes);
        }
        if self.operands.flavour == Flavour::FreeBsd {
            self.counts.odd_swabs += u64::from(bytes.len() % 2 == 1);
            bytes.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
            return self.gather_bytes(bytes);
        }
        // GNU's swaps across block boundaries.
        let mut bytes = &mut bytes[..];
        if let Some(left) = self.swab_left.take() {
            let (first, rest) = bytes.split_first_mut().expect("a block that was read");
            self.gather_bytes(&[*first, left])?;
            bytes = rest;
        }
        let even = bytes.len() & !1;
        self.swab_left = bytes.get(even).copied();
        bytes[..even]
            .chunks_exact_mut(2)
            .for_each(|pair| pair.swap(0, 1));
        self.gather_bytes(&bytes[..even])
    }

    fn gather_byte(&mut self, byte: u8) -> Result<(), String> {
        self.gather_bytes(&[byte])
    }

    fn gather_bytes(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let room = self.output_block.len() - self.gathered;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.output_block[self.gathered..][..now.len()].copy_from_slice(now);
            self.gathered += now.len();
            bytes = later;
            if self.gathered == self.output_block.len() {
                self.write_gathered()?;
            }
        }
        Ok(())
    }

    fn write_rest(&mut self) -> Result<(), String> {
        if self.gathered > 0 && self.operands.conversions.osync {
            self.output_block[self.gathered..].fill(0);
            self.gathered = self.output_block.len();
        }
        if self.gathered > 0 {
            self.write_gathered()
        } else {
            Ok(())
        }
    }

    fn write_gathered(&mut self) -> Result<(), String> {
        let len = std::mem::take(&mut self.gathered);
        let block = std::mem::replace(&mut self.output_block, BlockBuf::scratch(0));
        let written = self.write(&block[..len]);
        self.output_block = block;
        written
    }

    /// Writes and counts one output record.
    fn write(&mut self, record: &[u8]) -> Result<(), String> {
        let full = record.len() as u64 == self.operands.output_block_bytes;
        if self.operands.conversions.sparse && record.iter().all(|byte| *byte == 0) {
            let left = self.output.leave_hole(record.len() as u64);
            left.map_err(|e| self.output_error(&e))?;
            self.counts.bytes += record.len() as u64;
            self.count_out(full);
            return Ok(());
        }
        let mut rest = record;
        while !rest.is_empty() {
            rt::charge(rt::Work::SystemCall, 1);
            let written = match self.output.write(rest) {
                Ok(0) => return Err(self.end_of_device(record.len() > rest.len())),
                Ok(written) => written,
                Err(error) => {
                    self.count_short(record.len() > rest.len());
                    return Err(self.output_error(&error));
                }
            };
            assert!(written <= rest.len(), "{written} written of {}", rest.len());
            self.counts.bytes += written as u64;
            rest = &rest[written..];
            self.warn_of_short_write(!rest.is_empty());
        }
        self.count_out(full);
        Ok(())
    }

    fn count_out(&mut self, full: bool) {
        if full {
            self.counts.out_full += 1;
        } else {
            self.counts.out_partial += 1;
        }
    }

    /// Counts a record of which only a part could be written.
    fn count_short(&mut self, wrote_some: bool) {
        let counts = self.operands.flavour == Flavour::FreeBsd || !self.operands.one_block;
        self.counts.out_partial += u64::from(wrote_some && counts);
    }

    fn warn_of_short_write(&mut self, is_short: bool) {
        let says_so = self.operands.flavour == Flavour::FreeBsd;
        if !is_short || self.warned || !says_so || !self.output.is_character_device() {
            return;
        }
        self.warned = true;
        let name = self.operands.output_name();
        let text = format!("{name}: short write on character device");
        self.observer.complain(&text);
    }

    fn end_of_device(&mut self, wrote_some: bool) -> String {
        self.count_short(wrote_some);
        let name = self.operands.output_name();
        match self.operands.flavour {
            Flavour::FreeBsd => format!("{name}: end of device"),
            Flavour::Gnu => format!("error writing {name}: No space left on device"),
        }
    }

    fn input_error(&self, error: &Error) -> String {
        let (name, words) = (self.operands.input_name(), words(error));
        match self.operands.flavour {
            Flavour::FreeBsd => format!("{name}: {words}"),
            Flavour::Gnu => format!("error reading {name}: {words}"),
        }
    }

    fn output_error(&self, error: &Error) -> String {
        let (name, words) = (self.operands.output_name(), words(error));
        match self.operands.flavour {
            Flavour::FreeBsd => format!("{name}: {words}"),
            Flavour::Gnu => format!("error writing {name}: {words}"),
        }
    }

    fn finish_error(&self, error: &Error) -> String {
        let (name, words) = (self.operands.output_name(), words(error));
        match self.operands.flavour {
            Flavour::FreeBsd => format!("{name}: {words}"),
            Flavour::Gnu => format!("closing output file {name}: {words}"),
        }
    }
}

impl Operands {
    /// The name of the input in messages.
    #[must_use]
    pub(crate) fn input_name(&self) -> String {
        self.quoted(self.input.as_deref(), ("stdin", "standard input"))
    }

    /// The name of the output in messages.
    #[must_use]
    pub(crate) fn output_name(&self) -> String {
        self.quoted(self.output.as_deref(), ("stdout", "standard output"))
    }

    fn quoted(&self, name: Option<&str>, (free_bsd, gnu): (&str, &str)) -> String {
        match self.flavour {
            Flavour::FreeBsd => name.unwrap_or(free_bsd).to_owned(),
            Flavour::Gnu => format!("'{}'", name.unwrap_or(gnu)),
        }
    }

    /// The message for an input or output that could not be opened.
    #[must_use]
    pub fn open_error(&self, is_input: bool, error: &Error) -> String {
        let name = if is_input {
            self.input_name()
        } else {
            self.output_name()
        };
        let words = words(error);
        match self.flavour {
            Flavour::FreeBsd => format!("{name}: {words}"),
            Flavour::Gnu => format!("failed to open {name}: {words}"),
        }
    }
}

/// An error in the wording of the C library, followed by our own if that says too little.
fn words(error: &Error) -> String {
    let context = error.context();
    if let Some((text, _)) = context.rsplit_once(" (os error") {
        return text.rsplit(": ").next().unwrap_or(text).to_owned();
    }
    let plain = std::io::Error::from_raw_os_error(error.kind().errno()).to_string();
    let plain = plain.split(" (os error").next().unwrap_or_default();
    match error.kind() {
        ErrorKind::Checksum
        | ErrorKind::Corrupt
        | ErrorKind::Suspended
        | ErrorKind::Unsupported
        | ErrorKind::Busy
        | ErrorKind::Permission
        | ErrorKind::ReadOnly => format!("{plain} ({error})"),
        _ => plain.to_owned(),
    }
}
