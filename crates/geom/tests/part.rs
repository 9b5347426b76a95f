//! A part of a provider keeps to its range.

use std::sync::Arc;

use geom::Provider;
use geom::part::Part;
use ram::Memory;

#[test]
fn keeps_to_its_range() {
    let whole = Arc::new(Memory::with_sectors("md0", 1 << 20, 512, 4096));
    let part = Part::new("md0p1", whole.clone(), 512 * 63, 1 << 19).unwrap();
    assert_eq!(part.stripeoffset(), 512);
    part.write(0, &[5; 512]).unwrap();
    let mut back = [0; 512];
    whole.read(512 * 63, &mut back).unwrap();
    assert_eq!(back, [5; 512]);
    assert!(part.write(1 << 19, &[5; 512]).is_err());
    assert!(Part::new("p", whole, 1 << 19, (1 << 19) + 512).is_err());
}
