//! Bodies of fuzz targets: each takes arbitrary bytes and must return.

use crate::{decode, decode_native, decode_xdr, encode_native, encode_xdr};

/// Decodes XDR; what can be decoded must round-trip.
pub fn nvlist_xdr(bytes: &[u8]) {
    if let Ok(list) = decode_xdr(bytes) {
        let encoded = encode_xdr(&list);
        let again = decode_xdr(&encoded).expect("own encoding");
        // Bytes, not lists: a NaN differs from itself.
        assert_eq!(encode_xdr(&again), encoded);
        let _ = (list.dump(0), list.to_json());
    }
}

/// Decodes the native encoding; what can be decoded must round-trip.
pub fn nvlist_native(bytes: &[u8]) {
    if let Ok(list) = decode_native(bytes) {
        let encoded = encode_native(&list);
        let again = decode_native(&encoded).expect("own encoding");
        assert_eq!(encode_native(&again), encoded);
        let _ = (list.dump(0), list.to_json());
    }
    let _ = decode(bytes);
}
