//! Keys in every format, key objects, and blocks under a key, all out of the input: what is wrong is refused, and what
//! is encrypted is decrypted again.
#![no_main]

use base::Result;
use crypt::{DataKey, KeyFields, KeyFormat, Suite, WrappedKey, WrappingKey, set_log_mac};
use libfuzzer_sys::fuzz_target;
use phys::blkptr::CryptParams;
use phys::{BlkPtrPhys, ObjectType, Phys};

/// Rounds of a passphrase, at most: they take time, and do nothing else.
const ITERATIONS_MAX: u64 = 3;

/// A key object whose fields are cut out of the input, one after the other; every seventh may be missing.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// The place of a field: names differ in their length and letters.
    fn place(&self, name: &str) -> Option<&[u8]> {
        let sum: usize = name.bytes().map(usize::from).sum();
        let at = sum % self.0.len().max(1);
        let rest = self.0.get(at..)?;
        rest.first().is_some_and(|byte| byte % 7 != 0).then_some(rest)
    }
}

impl KeyFields for Fields<'_> {
    fn number(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.place(name).map(|rest| u64::from(rest[0] % 16)))
    }

    fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>> {
        // Mostly as long as it has to be.
        let right = match name {
            "DSL_CRYPTO_IV" => 12,
            "DSL_CRYPTO_MAC" => 16,
            "DSL_CRYPTO_HMAC_KEY_1" => 64,
            _ => 32,
        };
        let cut = |rest: &[u8]| {
            let len = if rest[0] & 0x80 == 0 { right } else { usize::from(rest[0]) };
            let mut bytes = rest[..len.min(rest.len())].to_vec();
            bytes.resize(len, rest[0]);
            bytes
        };
        Ok(self.place(name).map(cut))
    }
}

/// A key of one of the formats; the same twice.
fn wrapping_key(pick: u8, input: &[u8]) -> Option<WrappingKey> {
    let format = KeyFormat::from_raw(u64::from(pick % 5)).ok()?;
    let (salt, iterations) = (u64::from(pick), u64::from(pick) % (ITERATIONS_MAX + 1));
    let key = WrappingKey::new(format, input, salt, iterations);
    let is_right = match format {
        KeyFormat::Raw => input.len() == 32,
        KeyFormat::Hex => input.len() == 64 && input.iter().all(u8::is_ascii_hexdigit),
        KeyFormat::Passphrase => iterations > 0,
    };
    assert_eq!(key.is_ok(), is_right, "{format:?} {input:?}");
    key.ok()
}

/// A master key is what was wrapped, and nothing else.
fn wrap(key: &DataKey, wrapping: &WrappingKey, input: &[u8]) {
    let mut wrapped = WrappedKey::wrap(key, wrapping, [7; 12]);
    let opened = wrapped.unwrap(wrapping).expect("its own key");
    assert_eq!((opened.guid(), opened.suite()), (key.guid(), key.suite()));
    assert_eq!(opened.mac(input), key.mac(input));
    wrapped.mac[usize::from(input.first().copied().unwrap_or(0)) % 16] ^= 1;
    assert!(wrapped.unwrap(wrapping).is_err());
}

/// A block of any type under a key: read as if it was encrypted, then encrypted and read.
fn block(key: &DataKey, type_: u8, input: &[u8]) {
    let mut bp = BlkPtrPhys::read(&[0; BlkPtrPhys::SIZE]).expect("it has the size");
    bp.set_crypt(true);
    bp.set_type(type_);
    let params = CryptParams { salt: [1; 8], iv: [2; 12] };
    if bp.is_encrypted() {
        bp.set_sealed(&params, &[3; 16]);
    }
    let block_key = key.block_key(&params.salt);
    let open = |bp: &BlkPtrPhys, bytes: &mut [u8]| match bp.is_encrypted() {
        true => {
            let sealed = bytes.to_vec();
            block_key.open(bp, &sealed, bytes)
        }
        false => key.check(bp, bytes),
    };
    let _ = open(&bp, &mut input.to_vec());
    // What is encrypted below is this host's.
    bp.set_little_endian();
    let _ = open(&bp, &mut input.to_vec());
    let _ = key.seal_objset(&mut input.to_vec());
    let mut bytes = vec![0; input.len()];
    let Ok(mac) = block_key.encrypt(type_, &params.iv, input, &mut bytes) else {
        return;
    };
    if type_ == ObjectType::INTENT_LOG.raw() {
        let (mut sealed, mut plain) = (bytes, input.to_vec());
        set_log_mac(&mut sealed, &mac).expect("a log block");
        set_log_mac(&mut plain, &mac).expect("a log block");
        open(&bp, &mut sealed).expect("what was encrypted");
        assert_eq!(sealed, plain);
        return;
    }
    if bp.is_encrypted() {
        bp.set_sealed(&params, &mac);
        open(&bp, &mut bytes).expect("what was encrypted");
        assert_eq!(bytes, input);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[pick, type_], input)) = input.split_first_chunk() else {
        return;
    };
    let _ = crypt::check_passphrase(input);
    let suite = Suite::ALL[usize::from(pick) % Suite::ALL.len()];
    let mut at = input.iter().cycle();
    let key = DataKey::generate(suite, &mut |bytes| {
        bytes.fill_with(|| at.next().copied().unwrap_or(pick));
    });
    let wrapping = wrapping_key(pick, input);
    if let Some(wrapping) = &wrapping {
        wrap(&key, wrapping, input);
    }
    if let Ok(wrapped) = WrappedKey::read(&Fields(input)) {
        let raw = WrappingKey::new(KeyFormat::Raw, &[pick; 32], 0, 0).expect("32 bytes");
        assert!(wrapped.unwrap(&raw).is_err(), "nobody has wrapped it");
    }
    block(&key, type_, input);
});
