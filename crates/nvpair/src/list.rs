//! The list: build, look up, change.

use crate::{NvString, NvType, NvValue};
use base::{Error, Result};

/// `NV_UNIQUE_NAME`: adding a pair removes one of the same name.
pub(crate) const NV_UNIQUE_NAME: u32 = 1;
/// `NV_UNIQUE_NAME_TYPE`: adding a pair removes one of the same name and type.
pub(crate) const NV_UNIQUE_NAME_TYPE: u32 = 2;

/// `nvlist_t`: named values in order.
///
/// Look-ups by name return the first pair of that name *and type*; names are `&str` or bytes.
#[derive(Clone, PartialEq)]
#[doc(alias = "nvlist_t")]
pub struct NvList {
    /// nvl_nvflag: `NV_UNIQUE_*`, as stored
    nvflag: u32,
    pairs: Vec<(NvString, NvValue)>,
}

impl Default for NvList {
    fn default() -> NvList {
        NvList::new()
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $get:ident $expect:ident: $type:ty = $pattern:pat => $result:expr, $what:ident;)*) => {
        /// Values by name and type; `expect_` names the missing key in its error.
        impl NvList {$(
            $(#[$doc])*
            #[must_use]
            pub fn $get(&self, name: impl AsRef<[u8]>) -> Option<$type> {
                self.find(name.as_ref(), |value| match value {
                    $pattern => Some($result),
                    _ => None,
                })
            }

            $(#[$doc])*
            ///
            /// # Errors
            /// `Corrupt` with the key if it is missing or of another type.
            pub fn $expect(&self, name: impl AsRef<[u8]>) -> Result<$type> {
                let name = name.as_ref();
                self.$get(name).ok_or_else(|| self.missing(name, NvType::$what))
            }
        )*}
    };
}

getters! {
    /// The 64-bit unsigned integer of this name.
    get_u64 expect_u64: u64 = NvValue::Uint64(v) => *v, Uint64;
    /// The 64-bit signed integer of this name.
    get_i64 expect_i64: i64 = NvValue::Int64(v) => *v, Int64;
    /// The 32-bit unsigned integer of this name.
    get_u32 expect_u32: u32 = NvValue::Uint32(v) => *v, Uint32;
    /// The 32-bit signed integer of this name.
    get_i32 expect_i32: i32 = NvValue::Int32(v) => *v, Int32;
    /// The boolean of this name; not for pairs without a value, see [`NvList::contains`].
    get_bool expect_bool: bool = NvValue::BooleanValue(v) => *v, BooleanValue;
    /// The string of this name, of any bytes.
    get_string expect_string: &NvString = NvValue::String(v) => v, String;
    /// The list of this name.
    get_list expect_list: &NvList = NvValue::List(v) => v, List;
    /// The array of lists of this name.
    get_lists expect_lists: &[NvList] = NvValue::ListArray(v) => v.as_slice(), ListArray;
    /// The array of 64-bit unsigned integers of this name.
    get_u64s expect_u64s: &[u64] = NvValue::Uint64Array(v) => v.as_slice(), Uint64Array;
    /// The array of strings of this name, of any bytes.
    get_strings expect_strings: &[NvString] = NvValue::StringArray(v) => v.as_slice(), StringArray;
    /// The array of bytes of this name.
    get_bytes expect_bytes: &[u8] = NvValue::ByteArray(v) => v.as_slice(), ByteArray;
    /// The array of 8-bit unsigned integers of this name.
    get_u8s expect_u8s: &[u8] = NvValue::Uint8Array(v) => v.as_slice(), Uint8Array;
}

impl NvList {
    /// An empty list with [`NV_UNIQUE_NAME`].
    #[must_use]
    pub fn new() -> NvList {
        NvList::with_nvflag(NV_UNIQUE_NAME)
    }

    /// An empty list with these `NV_UNIQUE_*` flags.
    #[must_use]
    pub fn with_nvflag(nvflag: u32) -> NvList {
        NvList {
            nvflag,
            pairs: Vec::new(),
        }
    }

    /// `nvlist_nvflag`.
    #[must_use]
    pub fn nvflag(&self) -> u32 {
        self.nvflag
    }

    /// The number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&NvString, &NvValue)> {
        self.pairs.iter().map(|(name, value)| (name, value))
    }

    fn find<'a, T>(&'a self, name: &[u8], pick: impl Fn(&'a NvValue) -> Option<T>) -> Option<T> {
        self.pairs
            .iter()
            .filter(|(key, _)| key.as_bytes() == name)
            .find_map(|(_, v)| pick(v))
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.pairs
            .iter()
            .position(|(key, _)| key.as_bytes() == name)
    }

    fn missing(&self, name: &[u8], expected: NvType) -> Error {
        let name = String::from_utf8_lossy(name);
        Error::corrupt(match self.get(name.as_bytes()) {
            None => format!("nvlist has no '{name}'"),
            Some(value) => {
                let found = value.nv_type();
                format!("'{name}' of nvlist is {found:?}, expected {expected:?}")
            }
        })
    }

    /// The value of this name, of any type.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&NvValue> {
        self.find(name.as_ref(), Some)
    }

    /// The value of this name, to be changed.
    pub fn get_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut NvValue> {
        let index = self.position(name.as_ref())?;
        self.pairs.get_mut(index).map(|(_, value)| value)
    }

    /// The list of this name, to be changed.
    pub fn get_list_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut NvList> {
        match self.get_mut(name)? {
            NvValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// The array of lists of this name, to be changed.
    pub fn get_lists_mut(&mut self, name: impl AsRef<[u8]>) -> Option<&mut Vec<NvList>> {
        match self.get_mut(name)? {
            NvValue::ListArray(lists) => Some(lists),
            _ => None,
        }
    }

    /// `nvlist_exists`: whether there is a pair of this name, with or without a value.
    #[must_use]
    #[doc(alias = "nvlist_exists")]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.position(name.as_ref()).is_some()
    }

    /// The text of this name, if it is a UTF-8 string.
    #[must_use]
    pub fn get_str(&self, name: impl AsRef<[u8]>) -> Option<&str> {
        self.get_string(name).and_then(NvString::to_str)
    }

    /// The text of this name.
    ///
    /// # Errors
    /// `Corrupt` with the key if it is missing, of another type or not UTF-8.
    pub fn expect_str(&self, name: impl AsRef<[u8]>) -> Result<&str> {
        let name = name.as_ref();
        let text = self.expect_string(name)?;
        let name = String::from_utf8_lossy(name);
        text.to_str()
            .ok_or_else(|| Error::corrupt(format!("'{name}' of nvlist is not UTF-8")))
    }

    /// `nvlist_add_*`: removes the pairs that by the list's flags must not coexist with the new one,
    /// then appends.
    ///
    /// Changes the order if the name exists; [`NvList::set`] does not.
    #[doc(alias = "nvlist_add_common")]
    pub fn add(&mut self, name: impl Into<NvString>, value: impl Into<NvValue>) -> &mut NvList {
        let (name, value) = (name.into(), value.into());
        let (nvflag, nv_type) = (self.nvflag, value.nv_type());
        self.pairs.retain(|(key, old)| {
            let same_type = nvflag & NV_UNIQUE_NAME_TYPE != 0 && old.nv_type() == nv_type;
            !(*key == name && (nvflag & NV_UNIQUE_NAME != 0 || same_type))
        });
        self.push(name, value)
    }

    /// Appends without checking whether the name exists, as a decoder does.
    pub(crate) fn push(&mut self, name: NvString, value: NvValue) -> &mut NvList {
        self.pairs.push((name, value));
        self
    }

    /// Replaces the value of this name in its place, or appends.
    pub fn set(&mut self, name: impl Into<NvString>, value: impl Into<NvValue>) -> &mut NvList {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(name.as_bytes()) {
            Some(slot) => {
                *slot = value;
                self
            }
            None => self.push(name, value),
        }
    }

    /// [`NvList::add`] for building: `NvList::new().with("version", 5000u64)`.
    #[must_use]
    pub fn with(mut self, name: impl Into<NvString>, value: impl Into<NvValue>) -> NvList {
        self.add(name, value);
        self
    }

    /// Adds a pair without a value (`nvlist_add_boolean`).
    pub fn add_flag(&mut self, name: impl Into<NvString>) -> &mut NvList {
        self.add(name, ())
    }

    /// Removes the first pair of this name.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> Option<NvValue> {
        let index = self.position(name.as_ref())?;
        Some(self.pairs.remove(index).1)
    }

    /// `nvlist_merge`: adds all pairs of `other`.
    #[doc(alias = "nvlist_merge")]
    pub fn merge(&mut self, other: &NvList) {
        for (name, value) in other.iter() {
            self.add(name.clone(), value.clone());
        }
    }
}

impl<N: Into<NvString>, V: Into<NvValue>> FromIterator<(N, V)> for NvList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> NvList {
        let mut list = NvList::new();
        for (name, value) in pairs {
            list.add(name, value);
        }
        list
    }
}

impl IntoIterator for NvList {
    type Item = (NvString, NvValue);
    type IntoIter = std::vec::IntoIter<(NvString, NvValue)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}
