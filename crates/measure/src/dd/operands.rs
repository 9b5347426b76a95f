//! The operands of `dd`.

use std::fmt;

use crate::number::{Amount, Flavour, NumberError, dd_amount, dd_number};

/// The default block size, in bytes, as in every `dd`.
const BLOCK_BYTES: u64 = 512;
/// The largest block size, in bytes: a block is held in memory.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// What `-h` prints.
pub const HELP: &str = "\
usage: ashift dd [--gnu | --freebsd] [--yes-write-to-device] [OPERAND]...

  if=FILE, of=FILE     from, to; standard input and output if not given. FILE is a file or device of
                       this host, a provider (ada0, gpt/d1, disk.img.nop), or a file in a pool
                       (POOL/DATASET:/path). In a machine: /dev/NAME, /dev/zero, /dev/random,
                       /dev/null, and /path below a mount point
  bs=BYTES             both blocks, and every block read is written as it comes
  ibs=BYTES, obs=BYTES block of input, of output; default 512
  count=N              so many blocks of input
  skip=N, seek=N       so many blocks from the start of the input, of the output (iseek=, oseek=)
  conv=LIST            notrunc sync osync noerror sparse fsync fdatasync swab lcase ucase excl nocreat
  iflag=LIST           direct fullblock sync dsync nofollow noatime nonblock count_bytes skip_bytes
  oflag=LIST           direct append sync dsync fsync nofollow noatime nonblock seek_bytes
  status=LEVEL         none, noxfer (no closing line), progress (a line per second)

BYTES and N may end in b (512), k, m, g, t (powers of 1024), kB, MB, GB (powers of 1000), KiB, MiB …, w,
and be products: 2x512. GNU's N may end in B to count bytes.

  --freebsd, --gnu     whose words and closing line; FreeBSD's in a machine, GNU's on a host
  --yes-write-to-device
                       write to a block device of this host: what it holds is lost
";

/// `conv`: what happens to the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "as many switches as the operand has words"
)]
pub struct Conversions {
    /// Do not truncate the output.
    pub notrunc: bool,
    /// Pad every input block with zeros.
    pub sync: bool,
    /// Pad the last output block with zeros.
    pub osync: bool,
    /// Go on after read errors.
    pub noerror: bool,
    /// Leave holes where a block is zeros.
    pub sparse: bool,
    /// Swap pairs of bytes.
    pub swab: bool,
    /// To lower case.
    pub lcase: bool,
    /// To upper case.
    pub ucase: bool,
    /// The output must not exist.
    pub excl: bool,
    /// The output must exist.
    pub nocreat: bool,
}

/// What is flushed to the medium before `dd` ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncAtEnd {
    /// Nothing in particular.
    #[default]
    No,
    /// `conv=fdatasync`
    Data,
    /// `conv=fsync`
    All,
}

/// `iflag`, `oflag`: how the input or output is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "as many switches as the operand has words"
)]
pub struct Flags {
    /// Write at the end.
    pub append: bool,
    /// Bypass the host's cache.
    pub direct: bool,
    /// Every write is on the medium when it returns; `sync` for its metadata, too.
    pub dsync: bool,
    /// See `dsync`.
    pub sync: bool,
    /// Gather full blocks of input.
    pub fullblock: bool,
    /// Do not follow a link.
    pub nofollow: bool,
    /// Do not touch the access time.
    pub noatime: bool,
    /// Do not wait for the other end of a pipe.
    pub nonblock: bool,
}

/// `status`: what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// The records and the closing line.
    #[default]
    All,
    /// Only complaints.
    None,
    /// No closing line.
    NoTransfer,
    /// A line per second in addition.
    Progress,
}

/// The operands of `dd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operands {
    /// Which `dd` to follow.
    pub flavour: Flavour,
    /// `if`
    pub input: Option<String>,
    /// `of`
    pub output: Option<String>,
    /// `ibs`
    pub input_block_bytes: u64,
    /// `obs`
    pub output_block_bytes: u64,
    /// `bs`: blocks are written as they were read.
    pub one_block: bool,
    /// `count`
    pub count: Option<Amount>,
    /// `skip`
    pub skip: Amount,
    /// `seek`
    pub seek: Amount,
    /// `conv`
    pub conversions: Conversions,
    /// `conv=fsync`, `conv=fdatasync`
    pub sync_at_end: SyncAtEnd,
    /// `iflag`
    pub input_flags: Flags,
    /// `oflag`
    pub output_flags: Flags,
    /// `status`
    pub status: Status,
}

/// What is wrong with the operands, in the wording of the chosen `dd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandError(String);

impl fmt::Display for OperandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OperandError {}

type Parsed<T> = Result<T, OperandError>;

impl Operands {
    /// No operands at all.
    #[must_use]
    pub fn new(flavour: Flavour) -> Operands {
        Operands {
            flavour,
            input: None,
            output: None,
            input_block_bytes: BLOCK_BYTES,
            output_block_bytes: BLOCK_BYTES,
            one_block: false,
            count: None,
            skip: Amount::default(),
            seek: Amount::default(),
            conversions: Conversions::default(),
            sync_at_end: SyncAtEnd::No,
            input_flags: Flags::default(),
            output_flags: Flags::default(),
            status: Status::default(),
        }
    }

    /// Parses the operands.
    ///
    /// # Errors
    /// The first problem found.
    pub fn parse<S: AsRef<str>>(args: &[S], flavour: Flavour) -> Parsed<Operands> {
        let mut operands = Operands::new(flavour);
        let mut block = None;
        for arg in args {
            operands.set(arg.as_ref(), &mut block)?;
        }
        if let Some(bytes) = block {
            operands.input_block_bytes = bytes;
            operands.output_block_bytes = bytes;
            let conversions = operands.conversions;
            // With these conversions output is gathered, as if ibs and obs had been given.
            operands.one_block = !(conversions.lcase || conversions.ucase || conversions.swab);
        }
        operands.check()?;
        Ok(operands)
    }

    /// Where the input begins.
    #[must_use]
    pub fn skip_bytes(&self) -> u64 {
        bytes_of(self.skip, self.input_block_bytes)
    }

    /// Where the output begins.
    #[must_use]
    pub fn seek_bytes(&self) -> u64 {
        bytes_of(self.seek, self.output_block_bytes)
    }

    /// Whether the output ends where the last record does, or at `seek` when there is none.
    #[must_use]
    pub fn truncates(&self) -> bool {
        !self.conversions.notrunc
    }

    fn set(&mut self, arg: &str, block: &mut Option<u64>) -> Parsed<()> {
        let Some((name, value)) = arg.split_once('=') else {
            return Err(self.unknown_operand(arg));
        };
        if value.is_empty() && self.flavour == Flavour::FreeBsd {
            return Err(OperandError(format!("no value specified for {name}")));
        }
        match name {
            "if" => self.input = Some(value.to_owned()),
            "of" => self.output = Some(value.to_owned()),
            "bs" => *block = Some(self.block(name, value)?),
            "ibs" => self.input_block_bytes = self.block(name, value)?,
            "obs" => self.output_block_bytes = self.block(name, value)?,
            "count" => self.count = Some(self.amount(name, value)?),
            "skip" | "iseek" => self.skip.number = self.amount_into(name, value, true)?,
            "seek" | "oseek" => self.seek.number = self.amount_into(name, value, false)?,
            "conv" => value.split(',').try_for_each(|word| self.convert(word))?,
            "iflag" => value
                .split(',')
                .try_for_each(|word| self.flag(word, true))?,
            "oflag" => value
                .split(',')
                .try_for_each(|word| self.flag(word, false))?,
            "status" => self.status = self.status_of(value)?,
            "cbs" | "files" | "fillchar" | "speed" => {
                return Err(OperandError(format!("{name}=: not supported")));
            }
            _ => return Err(self.unknown_operand(arg)),
        }
        Ok(())
    }

    fn amount_into(&mut self, name: &str, value: &str, input: bool) -> Parsed<u64> {
        let amount = self.amount(name, value)?;
        let target = if input {
            &mut self.skip
        } else {
            &mut self.seek
        };
        target.is_bytes |= amount.is_bytes;
        Ok(amount.number)
    }

    fn amount(&self, name: &str, value: &str) -> Parsed<Amount> {
        let mut amount =
            dd_amount(value, self.flavour).map_err(|e| self.bad_number(name, value, e))?;
        if name == "count" {
            amount.is_bytes |= self.count.is_some_and(|count| count.is_bytes);
        }
        Ok(amount)
    }

    fn block(&self, name: &str, value: &str) -> Parsed<u64> {
        let bytes = dd_number(value, self.flavour).map_err(|e| self.bad_number(name, value, e))?;
        if bytes == 0 {
            return Err(OperandError(match self.flavour {
                Flavour::FreeBsd => "buffer sizes cannot be zero".to_owned(),
                Flavour::Gnu => format!("invalid number: '{value}'"),
            }));
        }
        Ok(bytes)
    }

    fn convert(&mut self, word: &str) -> Parsed<()> {
        let conversions = &mut self.conversions;
        match word {
            "notrunc" => conversions.notrunc = true,
            "sync" => conversions.sync = true,
            "osync" => conversions.osync = true,
            "noerror" => conversions.noerror = true,
            "sparse" => conversions.sparse = true,
            "swab" => conversions.swab = true,
            "lcase" => conversions.lcase = true,
            "ucase" => conversions.ucase = true,
            "excl" => conversions.excl = true,
            "nocreat" => conversions.nocreat = true,
            "fsync" => self.sync_at_end = SyncAtEnd::All,
            "fdatasync" if self.sync_at_end == SyncAtEnd::No => self.sync_at_end = SyncAtEnd::Data,
            "fdatasync" => {}
            "ascii" | "ebcdic" | "ibm" | "block" | "unblock" | "oldascii" | "oldebcdic"
            | "oldibm" | "pareven" | "parnone" | "parodd" | "parset" => {
                return Err(OperandError(format!("conv={word}: not supported")));
            }
            _ => {
                return Err(match self.flavour {
                    Flavour::FreeBsd => OperandError(format!("unknown conversion {word}")),
                    Flavour::Gnu => gnu_usage(&format!("invalid conversion: '{word}'")),
                });
            }
        }
        Ok(())
    }

    fn flag(&mut self, word: &str, input: bool) -> Parsed<()> {
        let flags = if input {
            &mut self.input_flags
        } else {
            &mut self.output_flags
        };
        match word {
            "append" => flags.append = true,
            "direct" => flags.direct = true,
            "dsync" => flags.dsync = true,
            "sync" => flags.sync = true,
            "fsync" if !input => flags.sync = true,
            "nofollow" => flags.nofollow = true,
            "noatime" => flags.noatime = true,
            "nonblock" => flags.nonblock = true,
            "noctty" => {}
            "fullblock" if input => flags.fullblock = true,
            "count_bytes" if input => {
                let number = self.count.map(|count| count.number);
                self.count = Some(Amount {
                    number: number.unwrap_or(u64::MAX),
                    is_bytes: true,
                });
            }
            "skip_bytes" if input => self.skip.is_bytes = true,
            "seek_bytes" if !input => self.seek.is_bytes = true,
            _ => {
                let side = if input { "input" } else { "output" };
                return Err(match self.flavour {
                    Flavour::FreeBsd => OperandError(format!("unknown {side} flag {word}")),
                    Flavour::Gnu => gnu_usage(&format!("invalid {side} flag: '{word}'")),
                });
            }
        }
        Ok(())
    }

    fn status_of(&self, value: &str) -> Parsed<Status> {
        match value {
            "none" => Ok(Status::None),
            "noxfer" => Ok(Status::NoTransfer),
            "progress" => Ok(Status::Progress),
            _ => Err(match self.flavour {
                Flavour::FreeBsd => OperandError(format!("unknown status {value}")),
                Flavour::Gnu => gnu_usage(&format!("invalid status level: '{value}'")),
            }),
        }
    }

    fn check(&self) -> Parsed<()> {
        for (side, bytes) in [
            ("input", self.input_block_bytes),
            ("output", self.output_block_bytes),
        ] {
            if bytes > BLOCK_BYTES_MAX {
                let text = format!("memory exhausted by {side} buffer of size {bytes} bytes");
                return Err(OperandError(text));
            }
        }
        let too_far = |amount: Amount, block| {
            !amount.is_bytes
                && amount
                    .number
                    .checked_mul(block)
                    .is_none_or(|b| b > i64::MAX as u64)
                || amount.number > i64::MAX as u64
        };
        if too_far(self.skip, self.input_block_bytes) || too_far(self.seek, self.output_block_bytes)
        {
            return Err(OperandError("offset too large".to_owned()));
        }
        let conversions = self.conversions;
        if conversions.lcase && conversions.ucase {
            return Err(OperandError("cannot combine lcase and ucase".to_owned()));
        }
        if conversions.excl && conversions.nocreat {
            return Err(OperandError("cannot combine excl and nocreat".to_owned()));
        }
        Ok(())
    }

    fn unknown_operand(&self, arg: &str) -> OperandError {
        match self.flavour {
            Flavour::FreeBsd => {
                let name = arg.split('=').next().unwrap_or(arg);
                OperandError(format!("unknown operand {name}"))
            }
            Flavour::Gnu => gnu_usage(&format!("unrecognized operand '{arg}'")),
        }
    }

    fn bad_number(&self, name: &str, value: &str, error: NumberError) -> OperandError {
        OperandError(match (self.flavour, error) {
            (Flavour::FreeBsd, NumberError::Invalid) => format!("{name}: illegal numeric value"),
            (Flavour::FreeBsd, NumberError::TooLarge) => format!("{name}: Result too large"),
            (Flavour::Gnu, NumberError::Invalid) => format!("invalid number: '{value}'"),
            (Flavour::Gnu, NumberError::TooLarge) => {
                format!("invalid number: '{value}': Value too large for defined data type")
            }
        })
    }
}

fn gnu_usage(text: &str) -> OperandError {
    OperandError(format!(
        "{text}\nTry 'ashift dd --help' for more information."
    ))
}

/// Cannot overflow: [`Operands::check`] has checked the product.
fn bytes_of(amount: Amount, block: u64) -> u64 {
    amount.number * if amount.is_bytes { 1 } else { block }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, flavour: Flavour) -> Result<Operands, String> {
        let args: Vec<_> = text.split_whitespace().collect();
        Operands::parse(&args, flavour).map_err(|e| e.to_string())
    }

    #[test]
    fn operands_are_read_in_any_order() {
        let text = "of=b seek=2 bs=1m if=a conv=notrunc,sync,noerror,fdatasync count=3 skip=4";
        let operands = parse(text, Flavour::FreeBsd).unwrap();
        assert_eq!(operands.input.as_deref(), Some("a"));
        assert_eq!(operands.output.as_deref(), Some("b"));
        assert_eq!(operands.input_block_bytes, 1 << 20);
        assert_eq!(operands.output_block_bytes, 1 << 20);
        assert_eq!(operands.skip_bytes(), 4 << 20);
        assert_eq!(operands.seek_bytes(), 2 << 20);
        assert_eq!(operands.sync_at_end, SyncAtEnd::Data);
        assert!(operands.one_block && !operands.truncates());
        assert!(operands.conversions.sync && operands.conversions.noerror);
    }

    #[test]
    fn amounts_count_bytes_where_told() {
        let operands = parse("ibs=512 count=100B skip=3 iflag=skip_bytes", Flavour::Gnu).unwrap();
        assert_eq!(operands.skip_bytes(), 3);
        assert!(operands.count.unwrap().is_bytes);
        let later = parse("count=100 iflag=count_bytes", Flavour::Gnu).unwrap();
        let earlier = parse("iflag=count_bytes count=100", Flavour::Gnu).unwrap();
        assert_eq!(later.count, earlier.count);
        assert_eq!(later.count.unwrap().number, 100);
    }

    #[test]
    fn complaints_are_in_the_words_of_either() {
        let check = |text: &str, free_bsd: &str, gnu: &str| {
            assert_eq!(parse(text, Flavour::FreeBsd).unwrap_err(), free_bsd);
            let error = parse(text, Flavour::Gnu).unwrap_err();
            assert_eq!(error.lines().next(), Some(gnu));
        };
        check(
            "foo=1",
            "unknown operand foo",
            "unrecognized operand 'foo=1'",
        );
        check("bs=1q", "bs: illegal numeric value", "invalid number: '1q'");
        check("bs=0", "buffer sizes cannot be zero", "invalid number: '0'");
        check("conv=x", "unknown conversion x", "invalid conversion: 'x'");
        check("status=x", "unknown status x", "invalid status level: 'x'");
        check(
            "oflag=x",
            "unknown output flag x",
            "invalid output flag: 'x'",
        );
        let same = |text: &str, expect: &str| check(text, expect, expect);
        same("conv=block", "conv=block: not supported");
        same("skip=9e bs=1k", "offset too large");
        same("conv=lcase,ucase", "cannot combine lcase and ucase");
        same(
            "bs=2g",
            "memory exhausted by input buffer of size 2147483648 bytes",
        );
    }
}
