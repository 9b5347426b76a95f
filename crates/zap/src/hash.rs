//! The CRC-64 by which every ZAP is ordered.
//!
//! # What it is
//! A reflected CRC-64 (ECMA-182 polynomial) without final complement, started from the object's
//! random salt so that colliding names cannot be prepared. The SA layer hashes its layouts with
//! the same table.
//!
//! # Source
//! OpenZFS `module/zfs/zap_impl.c` (`zap_hash`), `include/sys/spa.h` (`ZFS_CRC64_POLY`).

/// `ZFS_CRC64_POLY`: ECMA-182, reflected.
const CRC64_POLY: u64 = 0xC96C_5795_D787_0F42;

/// `zfs_crc64_table`: the CRC of each byte.
pub(crate) static CRC64_TABLE: [u64; 256] = crc64_table();

const fn crc64_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { CRC64_POLY } else { 0 });
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

const _: () = assert!(CRC64_TABLE_128 == CRC64_POLY);
const CRC64_TABLE_128: u64 = crc64_table()[128];

/// Continues `crc` over `bytes`.
#[must_use]
pub fn crc64(crc: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(crc, |crc, byte| {
        (crc >> 8) ^ CRC64_TABLE[((crc ^ u64::from(byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_crc64_xz() {
        // CRC-64/XZ is this CRC with all ones before and after; its published check value.
        assert_eq!(!crc64(u64::MAX, *b"123456789"), 0x995d_c9bb_df19_39fa);
    }
}
