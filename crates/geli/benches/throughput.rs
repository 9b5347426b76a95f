//! Bytes per second of encrypted providers on this machine: `cargo bench -p geli`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Error, Result};
use geli::{AuthAlgorithm, Cipher, Components, Eli, InitOptions};
use geom::Provider;
use ram::Memory;

const COMMAND_BYTES: usize = 128 << 10;
const RANGE_BYTES: u64 = 8 << 20;

fn main() -> Result<()> {
    println!("one core, commands of {COMMAND_BYTES} bytes on a RAM disk");
    println!("{:<32} {:>10} {:>10}", "", "write MB/s", "read MB/s");
    let disk = Arc::new(Memory::new("md0", 16 << 20));
    print("no encryption", &*disk)?;
    for (cipher, bits) in [
        (Cipher::Null, 0),
        (Cipher::AesXts, 128),
        (Cipher::AesXts, 256),
        (Cipher::AesCbc, 128),
    ] {
        for sectorsize in [512, 4096] {
            measure(cipher, bits, sectorsize, None)?;
        }
    }
    measure(Cipher::AesXts, 128, 4096, Some(AuthAlgorithm::HmacSha256))
}

fn measure(
    cipher: Cipher,
    key_bits: u16,
    sectorsize: u32,
    auth: Option<AuthAlgorithm>,
) -> Result<()> {
    let disk = Arc::new(Memory::new("md0", 16 << 20));
    let options = InitOptions {
        cipher: Some(cipher),
        key_bits,
        sectorsize: Some(sectorsize),
        auth,
        ..InitOptions::default()
    };
    let key = Components {
        keyfiles: vec![b"key".to_vec()],
        passphrase: None,
    };
    let metadata = geli::init(&*disk, &options, &key, None)?;
    let attached = geli::attach(&*disk, &metadata, &key, None)?;
    let eli = Eli::open(disk, "md0.eli", &attached)?;
    let auth = auth.map_or_else(String::new, |auth| format!(" {auth}"));
    let name = format!("{cipher} {}{auth} -s {sectorsize}", attached.keylen);
    print(&name, &*eli)
}

fn print(name: &str, provider: &dyn Provider) -> Result<()> {
    let mut bytes = vec![0x5a; COMMAND_BYTES];
    let write = rate(|at| provider.write(at, &bytes))?;
    let read = rate(|at| provider.read(at, &mut bytes))?;
    println!("{name:<32} {write:>10.0} {read:>10.0}");
    Ok(())
}

/// The best of many rounds over the range.
fn rate(mut command: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for at in (0..RANGE_BYTES).step_by(COMMAND_BYTES) {
            command(at)?;
        }
        best = best.min(start.elapsed());
    }
    if best.is_zero() {
        return Err(Error::invalid("the clock stands still"));
    }
    Ok(RANGE_BYTES as f64 / best.as_secs_f64() / 1e6)
}
