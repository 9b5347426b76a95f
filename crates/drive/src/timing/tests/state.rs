//! Stored states that were edited or damaged are refused or continued; they never panic.

use proptest::prelude::*;

use super::super::*;
use super::{find, laws};

/// A drive in the middle of its work, as JSON.
fn busy(name: &str, seed: u64) -> serde_json::Value {
    let profile = find(name);
    let mut timing = Timing::new(profile.clone(), seed);
    for (n, (gap, mut command)) in laws::mixture(&profile, seed, 60).into_iter().enumerate() {
        command.tag = n as u64;
        timing.submit(n as u64 * gap.min(100_000), command);
    }
    serde_json::to_value(timing.state()).unwrap()
}

/// Replaces the `which`th number in the tree.
fn replace(value: &mut serde_json::Value, which: &mut usize, by: u64) {
    match value {
        serde_json::Value::Number(_) => {
            if *which == 0 {
                *value = by.into();
            }
            *which = which.wrapping_sub(1);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(|v| replace(v, which, by)),
        serde_json::Value::Object(map) => map.values_mut().for_each(|v| replace(v, which, by)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn prop_damaged_states_never_panic(
        name in prop_oneof![Just("wd20ears"), Just("wd20ears-unbatched"), Just("p4500")],
        seed in 0u64..8,
        which in 0usize..3000,
        by in prop_oneof![Just(0), 0u64..100, 0u64..1 << 33, Just(1 << 60), any::<u64>()],
    ) {
        let mut value = busy(name, seed);
        let mut which = which;
        replace(&mut value, &mut which, by);
        let Ok(state) = serde_json::from_value::<TimingState>(value) else {
            return Ok(());
        };
        let Ok(mut timing) = Timing::restore(find(name), state) else {
            return Ok(());
        };
        let mut events = Vec::new();
        for _ in 0..2000 {
            let Some(at) = timing.next_event_at() else { break };
            timing.advance(at, &mut events);
        }
    }
}

#[test]
fn a_disk_does_not_continue_what_flash_did() {
    let state: TimingState = serde_json::from_value(busy("p4500", 1)).unwrap();
    let error = Timing::restore(find("wd20ears"), state).unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::Corrupt);
}
