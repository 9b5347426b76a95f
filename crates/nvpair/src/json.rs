//! Lists as JSON.
//!
//! # Source
//! OpenZFS lib/libnvpair/libnvpair_json.c (`nvlist_print_json`) @be7657e3.

use crate::{NvList, NvString, NvValue};
use serde_json::{Map, Value};

impl NvList {
    /// The list as a JSON object, in the same order; a pair without a value becomes `true`.
    #[must_use]
    #[doc(alias = "nvlist_print_json")]
    pub fn to_json(&self) -> Value {
        let pairs = self
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_json()));
        Value::Object(pairs.collect::<Map<_, _>>())
    }
}

impl NvValue {
    /// The value as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            NvValue::Boolean => Value::Bool(true),
            NvValue::BooleanValue(v) => Value::Bool(*v),
            NvValue::Byte(v) | NvValue::Uint8(v) => Value::from(*v),
            NvValue::Int8(v) => Value::from(*v),
            NvValue::Int16(v) => Value::from(*v),
            NvValue::Uint16(v) => Value::from(*v),
            NvValue::Int32(v) => Value::from(*v),
            NvValue::Uint32(v) => Value::from(*v),
            NvValue::Int64(v) => Value::from(*v),
            NvValue::Uint64(v) => Value::from(*v),
            NvValue::Hrtime(v) => Value::from(*v as u64),
            NvValue::Double(v) => Value::from(*v),
            NvValue::String(v) => string(v),
            NvValue::List(v) => v.to_json(),
            NvValue::ListArray(v) => v.iter().map(NvList::to_json).collect(),
            NvValue::StringArray(v) => v.iter().map(string).collect(),
            NvValue::ByteArray(v) | NvValue::Uint8Array(v) => array(v),
            NvValue::BooleanArray(v) => array(v),
            NvValue::Int8Array(v) => array(v),
            NvValue::Int16Array(v) => array(v),
            NvValue::Uint16Array(v) => array(v),
            NvValue::Int32Array(v) => array(v),
            NvValue::Uint32Array(v) => array(v),
            NvValue::Int64Array(v) => array(v),
            NvValue::Uint64Array(v) => array(v),
        }
    }
}

fn string(text: &NvString) -> Value {
    Value::String(text.to_string())
}

fn array<T: Copy + Into<Value>>(values: &[T]) -> Value {
    values.iter().map(|&value| value.into()).collect()
}
