//! The disk's layout: sectors follow one another without a gap, and time and place are each other's inverse.

use proptest::prelude::*;

use super::super::Geometry;
use super::disks;

fn geometry(which: usize) -> Geometry {
    let profile = disks().nth(which).expect("there are ten");
    Geometry::new(profile, profile.disk.as_ref().expect("a disk"))
}

proptest! {
    #[test]
    fn prop_passes_add_up(which in 0usize..10, at: u64, first in 1u64..4000, second in 1u64..4000) {
        let g = geometry(which);
        let sector = at % (g.sectors() - 8000);
        let (place, then) = (g.locate(sector), g.locate(sector + first));
        let whole = g.pass_ns(&place, first + second);
        let parts = g.pass_ns(&place, first) + g.gap_ns(sector + first) + g.pass_ns(&then, second);
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn prop_the_next_sector_comes_round_when_the_last_one_has_passed(
        which in 0usize..10,
        at: u64,
        count in 1u64..5000,
    ) {
        let g = geometry(which);
        let sector = at % (g.sectors() - 8000);
        let place = g.locate(sector);
        let end = place.angle + g.pass_ns(&place, count) + g.gap_ns(sector + count);
        prop_assert_eq!(end % g.turn_ns(), g.locate(sector + count).angle);
    }

    #[test]
    fn prop_as_many_sectors_have_passed_as_there_was_time_for(
        which in 0usize..10,
        at: u64,
        ns in 0u64..60_000_000,
        most in 1u64..8000,
    ) {
        let g = geometry(which);
        let place = g.locate(at % (g.sectors() - 8000));
        let passed = g.passed(&place, ns, most);
        prop_assert!(passed <= most);
        prop_assert!(passed == 0 || g.pass_ns(&place, passed) <= ns);
        prop_assert!(passed == most || g.pass_ns(&place, passed + 1) > ns);
    }

    #[test]
    fn prop_longer_seeks_take_longer(which in 0usize..10, from: u64, near: u64, far: u64) {
        let g = geometry(which);
        let (from, near, far) = (from % g.tracks(), near % g.tracks(), far % g.tracks());
        let distance = |to: u64| g.cylinder(from).abs_diff(g.cylinder(to));
        if (1..=distance(far)).contains(&distance(near)) {
            prop_assert!(g.seek_ns(from, near) <= g.seek_ns(from, far));
        }
    }
}

#[test]
fn the_last_sector_lies_on_the_last_tracks() {
    for which in 0..10 {
        let g = geometry(which);
        let last = g.locate(g.sectors() - 1);
        assert!(last.track < g.tracks(), "{last:?} of {}", g.tracks());
        assert!(last.track + 2000 > g.tracks(), "{last:?} of {}", g.tracks());
    }
}
