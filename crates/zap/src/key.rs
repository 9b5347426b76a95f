//! Keys: names, numbers as names, and arrays of words.

use std::borrow::Cow;
use std::fmt;

/// A key of a ZAP. Made from `&str`, `&[u8]` and `&[u64]` by `into()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// A name, without NUL.
    Name(Cow<'a, [u8]>),
    /// A number; its name is the number in lower-case hexadecimal (`zap_add_int_key`).
    Int(u64),
    /// Words, for ZAPs with [`Flags::UINT64_KEY`](crate::Flags::UINT64_KEY).
    Words(&'a [u64]),
}

impl<'a> Key<'a> {
    /// The same key, with a number replaced by its name.
    pub(crate) fn by_name(&self) -> Key<'a> {
        match self {
            Key::Int(number) => Key::Name(Cow::Owned(format!("{number:x}").into_bytes())),
            other => other.clone(),
        }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Self {
        Key::Name(Cow::Borrowed(name.as_bytes()))
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(name: &'a String) -> Self {
        Key::Name(Cow::Borrowed(name.as_bytes()))
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(name: &'a [u8]) -> Self {
        Key::Name(Cow::Borrowed(name))
    }
}

impl<'a> From<&'a Vec<u8>> for Key<'a> {
    fn from(name: &'a Vec<u8>) -> Self {
        Key::Name(Cow::Borrowed(name))
    }
}

impl<'a> From<&'a [u64]> for Key<'a> {
    fn from(words: &'a [u64]) -> Self {
        Key::Words(words)
    }
}

impl<'a, const N: usize> From<&'a [u64; N]> for Key<'a> {
    fn from(words: &'a [u64; N]) -> Self {
        Key::Words(words)
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Name(name) => write!(f, "\"{}\"", String::from_utf8_lossy(name)),
            Key::Int(number) => write!(f, "\"{number:x}\""),
            Key::Words(words) => write!(f, "{words:x?}"),
        }
    }
}
