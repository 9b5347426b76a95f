//! Takes the input for what a sector of a disk begins with, and looks for the root of an objset, a block of dnodes, or
//! an indirect block above such.
#![no_main]

use dmu::{Likeness, sketch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(sketch) = sketch(input) else {
        return;
    };
    let mut stored = input.to_vec();
    stored.resize(sketch.psize as usize, 0);
    match sketch.likeness {
        Likeness::Objset => {
            if let Ok(objset) = sketch.objset(&stored) {
                assert!(!objset.pointers().is_empty(), "an objset without pointers");
                let _ = (objset.birth(), objset.objset_type());
            }
        }
        Likeness::Dnodes => {
            if let Ok(dnodes) = sketch.dnodes(&stored) {
                assert!(dnodes.dnodes().count() > 0, "a block without dnodes");
            }
        }
        Likeness::Pointers => {
            if let Ok(pointers) = sketch.pointers(&stored) {
                let below = pointers.blocks().map(|bp| bp.level() + 1);
                assert!(
                    below.eq(pointers.blocks().map(|_| pointers.level())),
                    "pointers of several levels"
                );
                assert!(
                    pointers.blocks().count() > 0,
                    "an indirect block without pointers"
                );
                let _ = (pointers.birth(), pointers.fill());
            }
        }
    }
});
