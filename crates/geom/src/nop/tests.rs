use super::*;
use crate::mem::Memory;

fn on_disk(config: NopConfig) -> Result<Arc<Nop>> {
    let disk = Arc::new(Memory::with_sectors("ada0", 1 << 20, 512, 4096));
    Nop::new(disk, "ada0.nop", config)
}

#[test]
fn says_what_the_config_says_and_inherits_no_physical_sector() {
    let plain = on_disk(NopConfig::default()).unwrap();
    assert_eq!((plain.sectorsize(), plain.stripesize()), (512, 512));
    let big = on_disk(NopConfig {
        offset: 512,
        secsize: 4096,
        ..NopConfig::default()
    })
    .unwrap();
    assert_eq!((big.sectorsize(), big.stripesize()), (4096, 4096));
    assert_eq!(big.mediasize(), (1 << 20) - 4096);
}
