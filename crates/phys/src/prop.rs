//! Values of dataset and pool properties: a ZAP entry with one number or a string.
//!
//! # Source
//! OpenZFS module/zfs/dsl_prop.c (`dsl_prop_set_sync_impl`), module/zfs/spa.c (`spa_sync_props`)
//! @be7657e3.

/// A property's value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropValue {
    /// A number, or the index of a value that is a word.
    Number(u64),
    /// A string, without the terminating NUL that is stored with it.
    Text(String),
}

impl PropValue {
    /// The number, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match self {
            PropValue::Number(number) => Some(*number),
            PropValue::Text(_) => None,
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            PropValue::Number(_) => None,
            PropValue::Text(text) => Some(text),
        }
    }
}

impl std::fmt::Display for PropValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PropValue::Number(number) => number.fmt(f),
            PropValue::Text(text) => text.fmt(f),
        }
    }
}
