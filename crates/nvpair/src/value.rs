//! Types, values and strings.

use crate::NvList;
use base::{Error, Result};
use std::borrow::Cow;
use std::fmt;

/// A string of any bytes except NUL, for names of pairs and string values. Mostly UTF-8, but names
/// of extended attributes and paths need not be.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NvString(Vec<u8>);

impl NvString {
    /// A string of these bytes.
    ///
    /// # Errors
    /// `Corrupt` if `bytes` contains a NUL.
    pub fn from_bytes(bytes: &[u8]) -> Result<NvString> {
        if bytes.contains(&0) {
            return Err(Error::corrupt("nvlist string with a NUL inside"));
        }
        Ok(NvString(bytes.to_vec()))
    }

    /// The bytes, without NUL.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is UTF-8.
    #[must_use]
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text, with replacement characters where it is not UTF-8.
    #[must_use]
    pub(crate) fn to_str_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for NvString {
    fn from(text: &str) -> NvString {
        assert!(
            !text.contains('\0'),
            "nvlist string with a NUL inside: {text:?}"
        );
        NvString(text.as_bytes().to_vec())
    }
}

impl From<&String> for NvString {
    fn from(text: &String) -> NvString {
        NvString::from(text.as_str())
    }
}

impl From<String> for NvString {
    fn from(text: String) -> NvString {
        assert!(
            !text.contains('\0'),
            "nvlist string with a NUL inside: {text:?}"
        );
        NvString(text.into_bytes())
    }
}

impl PartialEq<str> for NvString {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for NvString {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl AsRef<[u8]> for NvString {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_str_lossy())
    }
}

impl fmt::Debug for NvString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str_lossy(), f)
    }
}

macro_rules! nv_types {
    ($($(#[$doc:meta])* $name:ident $(($payload:ty))? = $number:literal;)*) => {
        /// `data_type_t`: the type of a value, as numbered on disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[doc(alias = "data_type_t")]
        pub enum NvType {
            $($(#[$doc])* $name = $number,)*
        }

        impl NvType {
            /// Every type, in order of number.
            pub const ALL: &[NvType] = &[$(NvType::$name),*];

            /// The number on disk.
            #[must_use]
            pub const fn raw(self) -> i32 {
                self as i32
            }
        }

        impl TryFrom<i32> for NvType {
            type Error = Error;

            fn try_from(raw: i32) -> Result<NvType> {
                match raw {
                    $($number => Ok(NvType::$name),)*
                    _ => Err(Error::corrupt(format!("nvpair of type {raw}"))),
                }
            }
        }

        /// A value.
        #[derive(Clone, Debug, PartialEq)]
        pub enum NvValue {
            $($(#[$doc])* $name $(($payload))?,)*
        }

        impl NvValue {
            /// Its type.
            #[must_use]
            pub fn nv_type(&self) -> NvType {
                match self {
                    $(nv_types!(@pattern $name $(($payload))?) => NvType::$name,)*
                }
            }
        }
    };
    (@pattern $name:ident ($payload:ty)) => { NvValue::$name(_) };
    (@pattern $name:ident) => { NvValue::$name };
}

nv_types! {
    /// Present, without a value
    Boolean = 1;
    /// A byte
    Byte(u8) = 2;
    /// 16 bits, signed
    Int16(i16) = 3;
    /// 16 bits
    Uint16(u16) = 4;
    /// 32 bits, signed
    Int32(i32) = 5;
    /// 32 bits
    Uint32(u32) = 6;
    /// 64 bits, signed
    Int64(i64) = 7;
    /// 64 bits
    Uint64(u64) = 8;
    /// Text
    String(NvString) = 9;
    /// Bytes
    ByteArray(Vec<u8>) = 10;
    /// Integers of 16 bits, signed
    Int16Array(Vec<i16>) = 11;
    /// Integers of 16 bits
    Uint16Array(Vec<u16>) = 12;
    /// Integers of 32 bits, signed
    Int32Array(Vec<i32>) = 13;
    /// Integers of 32 bits
    Uint32Array(Vec<u32>) = 14;
    /// Integers of 64 bits, signed
    Int64Array(Vec<i64>) = 15;
    /// Integers of 64 bits
    Uint64Array(Vec<u64>) = 16;
    /// Texts
    StringArray(Vec<NvString>) = 17;
    /// Nanoseconds
    Hrtime(i64) = 18;
    /// A list
    List(NvList) = 19;
    /// Lists
    ListArray(Vec<NvList>) = 20;
    /// True or false
    BooleanValue(bool) = 21;
    /// 8 bits, signed
    Int8(i8) = 22;
    /// 8 bits
    Uint8(u8) = 23;
    /// Booleans
    BooleanArray(Vec<bool>) = 24;
    /// Integers of 8 bits, signed
    Int8Array(Vec<i8>) = 25;
    /// Integers of 8 bits
    Uint8Array(Vec<u8>) = 26;
    /// Floating point; user space only
    Double(f64) = 27;
}

impl NvType {
    /// `nvpair_type_is_array`.
    #[must_use]
    pub(crate) const fn is_array(self) -> bool {
        matches!(
            self,
            NvType::ByteArray
                | NvType::Int16Array
                | NvType::Uint16Array
                | NvType::Int32Array
                | NvType::Uint32Array
                | NvType::Int64Array
                | NvType::Uint64Array
                | NvType::StringArray
                | NvType::ListArray
                | NvType::BooleanArray
                | NvType::Int8Array
                | NvType::Uint8Array
        )
    }

    /// Checks `nvp_value_elem`: 0 for a boolean, 1 for a single value, any number for an array.
    pub(crate) fn check_nelem(self, nelem: i32) -> Result<usize> {
        let valid = match self {
            _ if self.is_array() => nelem >= 0,
            NvType::Boolean => nelem == 0,
            _ => nelem == 1,
        };
        let nelem_usize = usize::try_from(nelem).ok().filter(|_| valid);
        nelem_usize.ok_or_else(|| Error::corrupt(format!("{self:?} nvpair of {nelem} elements")))
    }
}

impl NvValue {
    /// `nvp_value_elem`.
    pub(crate) fn nelem(&self) -> usize {
        match self {
            NvValue::Boolean => 0,
            NvValue::ByteArray(v) | NvValue::Uint8Array(v) => v.len(),
            NvValue::Int8Array(v) => v.len(),
            NvValue::BooleanArray(v) => v.len(),
            NvValue::Int16Array(v) => v.len(),
            NvValue::Uint16Array(v) => v.len(),
            NvValue::Int32Array(v) => v.len(),
            NvValue::Uint32Array(v) => v.len(),
            NvValue::Int64Array(v) => v.len(),
            NvValue::Uint64Array(v) => v.len(),
            NvValue::StringArray(v) => v.len(),
            NvValue::ListArray(v) => v.len(),
            _ => 1,
        }
    }

    /// Bytes of the value in memory (`i_get_value_size`), without the pairs of lists.
    pub(crate) fn native_size(&self) -> usize {
        let nelem = self.nelem();
        match self {
            NvValue::Boolean => 0,
            NvValue::Byte(_) | NvValue::Int8(_) | NvValue::Uint8(_) => 1,
            NvValue::Int16(_) | NvValue::Uint16(_) => 2,
            NvValue::BooleanValue(_) | NvValue::Int32(_) | NvValue::Uint32(_) => 4,
            NvValue::Int64(_) | NvValue::Uint64(_) | NvValue::Hrtime(_) | NvValue::Double(_) => 8,
            NvValue::String(text) => text.as_bytes().len().saturating_add(1),
            NvValue::ByteArray(_) | NvValue::Uint8Array(_) | NvValue::Int8Array(_) => nelem,
            NvValue::Int16Array(_) | NvValue::Uint16Array(_) => nelem.saturating_mul(2),
            NvValue::BooleanArray(_) | NvValue::Int32Array(_) | NvValue::Uint32Array(_) => {
                nelem.saturating_mul(4)
            }
            NvValue::Int64Array(_) | NvValue::Uint64Array(_) => nelem.saturating_mul(8),
            NvValue::StringArray(texts) => {
                texts.iter().fold(nelem.saturating_mul(8), |size, text| {
                    size.saturating_add(text.as_bytes().len()).saturating_add(1)
                })
            }
            NvValue::List(_) => 24,
            NvValue::ListArray(_) => nelem.saturating_mul(8 + 24),
        }
    }

    /// The text, if it is a UTF-8 string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            NvValue::String(text) => text.to_str(),
            _ => None,
        }
    }

    /// The list, if it is one.
    #[must_use]
    pub fn as_list(&self) -> Option<&NvList> {
        match self {
            NvValue::List(list) => Some(list),
            _ => None,
        }
    }
}

macro_rules! value_from {
    ($($type:ty => $variant:ident;)*) => {$(
        impl From<$type> for NvValue {
            fn from(value: $type) -> NvValue {
                NvValue::$variant(value.into())
            }
        }
    )*};
}

value_from! {
    bool => BooleanValue;
    i8 => Int8;
    u8 => Uint8;
    i16 => Int16;
    u16 => Uint16;
    i32 => Int32;
    u32 => Uint32;
    i64 => Int64;
    u64 => Uint64;
    f64 => Double;
    &str => String;
    String => String;
    NvString => String;
    NvList => List;
    Vec<NvList> => ListArray;
    Vec<NvString> => StringArray;
    Vec<u64> => Uint64Array;
    &[u64] => Uint64Array;
    Vec<i64> => Int64Array;
    Vec<u32> => Uint32Array;
}

impl From<()> for NvValue {
    fn from((): ()) -> NvValue {
        NvValue::Boolean
    }
}

impl From<Vec<&str>> for NvValue {
    fn from(texts: Vec<&str>) -> NvValue {
        NvValue::StringArray(texts.into_iter().map(NvString::from).collect())
    }
}

impl From<Vec<String>> for NvValue {
    fn from(texts: Vec<String>) -> NvValue {
        NvValue::StringArray(texts.into_iter().map(NvString::from).collect())
    }
}
