//! Absurd profiles: whatever the check accepts must run.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::{Event, Timing};
use super::laws;
use crate::profile::{Profile, profiles};

/// Replaces the `which`th number of the figures.
fn replace(value: &mut toml::Value, which: &mut usize, by: f64) {
    match value {
        toml::Value::Integer(n) => {
            if *which == 0 {
                *n = by as i64;
            }
            *which = which.wrapping_sub(1);
        }
        toml::Value::Float(n) => {
            if *which == 0 {
                *n = by;
            }
            *which = which.wrapping_sub(1);
        }
        toml::Value::Table(table) => {
            for (_, v) in table.iter_mut().filter(|(key, _)| *key != "published") {
                replace(v, which, by);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn prop_whatever_the_check_lets_pass_runs(
        profile in 0usize..profiles().len(),
        numbers in prop::collection::vec(
            (0usize..45, prop_oneof![
                Just(0.0), Just(1.0), Just(512.0), Just(65536.0), Just(1e5), Just(1e6),
                Just(4294967295.0), Just(1e15), Just(1e-9), Just(f64::NAN), -10.0..1e4,
            ]),
            1..4,
        ),
        seed: u64,
    ) {
        let text = profiles()[profile].to_toml();
        let mut value: toml::Value = toml::from_str::<toml::Table>(&text).unwrap().into();
        for (which, by) in numbers {
            replace(&mut value, &mut { which }, by);
        }
        let Ok(profile) = Profile::parse("x.toml", &toml::to_string(&value).unwrap()) else {
            return Ok(());
        };
        let profile = Arc::new(profile);
        if profile.host_sectors() < 1 << 15 {
            return Ok(());
        }
        let mut timing = Timing::new(profile.clone(), seed);
        let (mut now, mut events) = (0, Vec::new());
        for (n, (gap, mut command)) in laws::mixture(&profile, seed, 40).into_iter().enumerate() {
            command.tag = n as u64;
            now += gap;
            timing.submit(now, command);
            if n % 8 == 7 {
                now += 1 << 50;
                timing.advance(now, &mut events);
            }
        }
        while let Some(at) = timing.next_event_at() {
            timing.advance(at, &mut events);
        }
        let done = events.iter().filter(|e| matches!(e, Event::Done { .. }));
        prop_assert_eq!(done.count(), 40);
    }
}
