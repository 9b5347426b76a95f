//! Published measurements, physics, and planted mistakes.

mod extremes;
mod geometry;
mod laws;
mod state;
mod trial;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use proptest::prelude::*;

use super::mutant::Mutant;
use super::*;
use crate::profiles;
use trial::{Verdict, hold};

/// The profiles that are disks.
fn disks() -> impl Iterator<Item = &'static Arc<Profile>> {
    profiles().iter().filter(|p| p.disk.is_some())
}

/// Holds a law on each of them.
fn on_every_disk(law: fn(&Arc<Profile>, Option<Mutant>) -> Verdict) {
    for profile in disks() {
        law(profile, None).unwrap();
    }
}

fn find(name: &str) -> Arc<Profile> {
    Profile::find(name).expect("it is built in")
}

fn phybs(profile: &Arc<Profile>, mutant: Option<Mutant>, size: u32, offset: u32) -> f64 {
    Experiment::Phybs { size, offset }.run_on(&mut trial::drive(profile, 1, mutant), 1)
}

#[test]
fn published_measurements_are_reproduced() {
    for profile in profiles() {
        for r in reproduce(profile) {
            let (error, within) = (r.error_percent(), r.published.within_percent);
            let what = &r.published.experiment;
            assert!(
                error.abs() <= within,
                "{}: {what}: {error:.1} %, not within {within} %",
                profile.name
            );
        }
    }
}

#[test]
fn the_phybs_table_of_2010_comes_out_and_its_missing_row_is_predicted() {
    let rows = reproduce(&find("wd20ears"));
    assert_eq!(rows.len(), 13);
    let squares: f64 = rows.iter().map(|r| r.error_percent().powi(2)).sum();
    let rms = (squares / 13.0).sqrt();
    assert!(rms <= 8.0, "{rms} %");
    let whole = phybs(&find("wd20ears"), None, 8192, 0);
    let missing = phybs(&find("wd20ears"), None, 8192, 4096);
    assert!(
        (missing / whole - 1.0).abs() < 0.02,
        "{missing} like {whole} ms"
    );
}

#[test]
fn misaligned_writes_take_sixty_two_or_three_times_as_long_as_the_regime_says() {
    for (name, aligned, ratio) in [
        ("wd20ears-unbatched", 0, 62.4),
        ("wd20ears-jumper", 3584, 2.75),
        ("wd20ears", 0, 2.99),
        ("st2000dm001", 0, 1.0),
    ] {
        let profile = find(name);
        let got = phybs(&profile, None, 4096, 512) / phybs(&profile, None, 4096, aligned);
        assert!(
            (got / ratio - 1.0).abs() <= 0.1,
            "{name}: {got}, not {ratio}"
        );
    }
}

#[test]
fn a_batch_costs_a_revolution_for_each_pass() {
    let profile = find("wd20ears");
    let mut timing = Timing::new(profile, 1);
    let e = Experiment::Phybs {
        size: 4096,
        offset: 512,
    };
    let _ = e.run_on(&mut timing, 1);
    let s = timing.statistics();
    assert_eq!(s.partial_writes, 32768);
    assert!(
        s.write_passes.abs_diff(32768 / 12) < 8,
        "{}",
        s.write_passes
    );
    assert!(s.rewrite_passes.abs_diff(s.write_passes) < 2);
}

#[test]
fn experiments_are_written_as_they_are_read() {
    for text in [
        "phybs -w 4096@512",
        "sequential read outer",
        "sequential write whole depth 32 +512",
        "random write 4096 depth 1 sync +512",
    ] {
        let experiment: Experiment = text.parse().expect("it is one");
        assert_eq!(experiment.to_string(), text);
    }
    for text in [
        "",
        "phybs",
        "phybs -w 0@0",
        "random read 100 depth 1",
        "sequential read here",
    ] {
        let error = text.parse::<Experiment>().unwrap_err();
        assert!(error.to_string().contains("must be phybs"), "{error}");
    }
    for profile in profiles() {
        for published in &profile.published {
            let experiment: Experiment = published.experiment.parse().expect("it is one");
            assert_eq!(experiment.unit(), published.unit);
        }
    }
}

/// All the laws, on the drives that show a violation best.
fn suite(mutant: Option<Mutant>) -> Verdict {
    for profile in disks() {
        laws::mixtures_obey(profile, mutant, 0..8)?;
    }
    for name in ["wd20ears-unbatched", "wd30ezrx", "wd160edgz"] {
        laws::runs_repeat(&find(name), mutant, 5)?;
    }
    laws::depth_helps(&find("wd20ears"), mutant)?;
    laws::nobody_starves(&find("wd20ears"), mutant)?;
    laws::random_reads_take_a_seek_and_half_a_turn(&find("wd20ears"), mutant)?;
    laws::streams_pass_at_the_rate_of_the_zone(&find("wd30ezrx"), mutant)?;
    laws::streams_stay_in_the_read_cache(&find("wd20ears"), mutant)?;
    laws::streams_do_not_run_ahead(&find("wd20ears"), mutant)?;
    let ms = phybs(&find("wd20ears"), mutant, 4096, 512);
    hold!(
        (ms / 61_987.0 - 1.0).abs() < 0.12,
        "phybs 4096@512: {ms} ms"
    );
    let drawn = find("wd20ears-unbatched");
    let ms = phybs(&drawn, mutant, 4096, 512);
    let again = phybs(&drawn, mutant, 4096, 512);
    hold!(ms == again, "phybs from equal seeds: {ms} ms, {again} ms");
    Ok(())
}

#[test]
fn the_model_itself_breaks_no_law() {
    suite(None).unwrap();
}

#[test]
fn every_planted_mistake_is_noticed() {
    for mutant in Mutant::ALL {
        let verdict = catch_unwind(AssertUnwindSafe(|| suite(Some(mutant))));
        let noticed = verdict.map_or_else(|_| Some("a panic".to_string()), Result::err);
        let how = noticed.unwrap_or_else(|| panic!("nobody notices {mutant:?}"));
        println!("{mutant:?}: {how}");
    }
}

#[test]
fn a_head_that_reads_on_is_on_the_next_track_after_the_switch() {
    let seed = 1_074_848_182_363;
    laws::mixtures_obey(&find("wd20ears"), None, seed..seed + 1).unwrap();
}

#[test]
fn small_drives_obey_the_same_laws() {
    for sectors in [1 << 17, 1 << 21, 1 << 27] {
        for profile in disks() {
            let small = Arc::new(profile.with_sectors(sectors).expect("large enough"));
            laws::mixtures_obey(&small, None, 20..22).unwrap();
        }
    }
}

#[test]
fn flash_without_capacitors_keeps_its_promises() {
    let mut profile = (*find("p4500")).clone();
    profile.flash.as_mut().expect("flash").power_loss_protected = false;
    for cache_kib in [65_536, 256, 0] {
        profile.cache.write_cache_kib = cache_kib;
        let profile = Arc::new(profile.clone());
        for seed in 0..10 {
            let list = laws::mixture(&profile, seed, 200);
            let outcome = trial::run(&profile, seed, None, &list);
            outcome.check().unwrap();
            outcome.writes_are_told_once().unwrap();
        }
        laws::runs_repeat(&profile, None, 3).unwrap();
    }
}

#[test]
fn flash_works_on_all_channels_at_once() {
    let profile = find("p4500");
    let ms = |text: &str| {
        text.parse::<Experiment>()
            .expect("it is one")
            .run(&profile, 1)
    };
    let (one, many) = (
        ms("random read 4096 depth 1"),
        ms("random read 4096 depth 128"),
    );
    assert!(
        one / many > 20.0,
        "{one} ms one at a time, {many} ms each of 128"
    );
}

#[test]
fn a_drive_without_a_write_cache_is_done_when_the_medium_is() {
    let mut profile = (*find("wd30ezrx")).clone();
    profile.cache.write_cache_kib = 0;
    let profile = Arc::new(profile);
    laws::mixtures_obey(&profile, None, 30..36).unwrap();
    let e: Experiment = "random write 4096 depth 1".parse().expect("it is one");
    let ms = e.run(&profile, 1);
    assert!(
        (16.0..20.0).contains(&ms),
        "a seek and half a revolution, not {ms} ms"
    );
}

#[test]
fn random_reads_take_a_seek_and_half_a_revolution_on_every_disk() {
    on_every_disk(laws::random_reads_take_a_seek_and_half_a_turn);
}

#[test]
fn deeper_queues_are_never_slower_on_any_disk() {
    on_every_disk(laws::depth_helps);
}

#[test]
fn streams_pass_at_the_rate_of_the_zone_on_every_disk_at_every_depth() {
    on_every_disk(laws::streams_pass_at_the_rate_of_the_zone);
}

#[test]
fn cached_writes_are_chosen_from_as_queued_reads_are_on_every_disk() {
    on_every_disk(laws::cached_writes_are_chosen_from_as_queued_reads_are);
}

#[test]
fn streams_stay_in_the_read_cache_of_every_disk() {
    on_every_disk(laws::streams_stay_in_the_read_cache);
}

#[test]
fn streams_do_not_run_ahead_of_any_disk() {
    on_every_disk(laws::streams_do_not_run_ahead);
}

#[test]
fn nobody_starves_on_any_disk() {
    on_every_disk(laws::nobody_starves);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn prop_mixtures_break_no_law(which in 0usize..profiles().len(), seed in 0u64..1 << 40) {
        let verdict = laws::mixtures_obey(&profiles()[which], None, seed..seed + 1);
        prop_assert!(verdict.is_ok(), "{:?}", verdict);
    }

    #[test]
    fn prop_equal_seeds_give_equal_times(which in 0usize..profiles().len(), seed in 0u64..1 << 40) {
        let verdict = laws::runs_repeat(&profiles()[which], None, seed);
        prop_assert!(verdict.is_ok(), "{:?}", verdict);
    }
}
