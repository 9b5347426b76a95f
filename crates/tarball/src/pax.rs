//! Records of pax headers: `LENGTH KEY=VALUE\n`.

use base::{Error, Result};

/// What keys of extended attributes begin with.
pub(crate) const XATTR: &[u8] = b"SCHILY.xattr.";
/// The keys of ACLs.
pub(crate) const ACLS: [&[u8]; 2] = [b"SCHILY.acl.access", b"SCHILY.acl.default"];

/// Keys and values.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn malformed() -> Error {
    Error::corrupt("Malformed extended header")
}

/// Reads all records of a header.
pub(crate) fn parse(mut bytes: &[u8]) -> Result<Records> {
    let mut records = Vec::new();
    // GNU tar ends at a NUL, too.
    while bytes.first().is_some_and(|byte| *byte != 0) {
        let space = bytes.iter().position(|byte| *byte == b' ');
        let space = space.ok_or_else(malformed)?;
        let length: usize = number(&bytes[..space]).ok_or_else(malformed)?;
        let record = bytes.get(space + 1..length).ok_or_else(malformed)?;
        let record = record.strip_suffix(b"\n").ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=');
        let equals = equals.ok_or_else(malformed)?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[length..];
    }
    Ok(records)
}

/// Appends a record.
pub(crate) fn put(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + b" =\n".len();
    // The length counts its own digits.
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    bytes.extend(format!("{length} ").bytes());
    for part in [key, b"=", value, b"\n"] {
        bytes.extend(part);
    }
}

/// A decimal number.
pub(crate) fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    // `parse` would take a sign.
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number);
    digits?.parse().ok()
}

/// Seconds and nanoseconds of `-12.5`; what is below a nanosecond is left out.
pub(crate) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let secs: i64 = number(whole)?;
    let digits = &fraction[..fraction.len().min(9)];
    let mut nanos: u32 = if digits.is_empty() {
        0
    } else {
        number(digits)?
    };
    nanos *= 10u32.pow(9 - digits.len() as u32);
    match (is_negative, nanos) {
        (false, _) => Some((secs, nanos)),
        (true, 0) => Some((-secs, 0)),
        (true, _) => Some((-secs - 1, 1_000_000_000 - nanos)),
    }
}

/// The inverse of [`time`].
pub(crate) fn time_text((secs, nanos): (i64, u32)) -> String {
    match (secs, nanos) {
        (_, 0) => secs.to_string(),
        (0.., _) => format!("{secs}.{nanos:09}"),
        _ => format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos),
    }
}

/// The name of an extended attribute in a key: `=` would end it.
pub(crate) fn encoded(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            other => key.push(*other),
        }
    }
    key
}

/// The inverse of [`encoded`].
pub(crate) fn decoded(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    while let Some((byte, rest)) = key.split_first() {
        let (byte, rest) = match key {
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            _ => (*byte, rest),
        };
        name.push(byte);
        key = rest;
    }
    name
}
