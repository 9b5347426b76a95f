//! Carries out a script in simulated time.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use ram::Memory;
use rt::splitmix64;

use super::bench::Bench;
use super::script::Script;
use super::step::Act;

/// How often a kind of step was drawn, and how often it had something to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// All.
    pub drawn: u64,
    /// Those with an effect.
    pub done: u64,
}

/// The result of a run in which nothing was wrong.
pub struct Report {
    /// Hash of all times and of everything that reached the disks: the same for the same script.
    pub digest: u64,
    /// How many steps were carried out.
    pub steps: usize,
    /// How long it took, in simulated nanoseconds.
    pub simulated_ns: u64,
    /// How often there was each act.
    pub counts: BTreeMap<Act, Count>,
    /// The devices of each pool, by its name; all pools are exported.
    pub pools: Vec<(String, Vec<Memory>)>,
}

/// What was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Index of the failed step; the number of steps of the script if the failure came after the last one.
    pub step: usize,
    /// The message of the panic.
    pub message: String,
}

impl Failure {
    /// What failures for the same reason have in common: the first line without digits, at most 80 characters.
    #[must_use]
    pub fn reason(&self) -> String {
        let letters = self.message.chars().filter(|c| !c.is_ascii_digit());
        let line: String = letters.take_while(|c| *c != '\n').collect();
        line.chars().take(80).collect()
    }
}

/// Runs a script.
///
/// # Errors
/// What was wrong: a panic of any kind.
pub fn run(script: &Script) -> Result<Report, Failure> {
    let at = AtomicUsize::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        rt::simulate(script.seed, || carry_out(script, &at))
    }));
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Failure {
            step: at.load(Ordering::SeqCst),
            message: text.unwrap_or_default(),
        }
    })
}

fn carry_out(script: &Script, at: &AtomicUsize) -> Report {
    let pools = script.pools.iter().enumerate();
    let mut benches: Vec<Bench> = pools
        .map(|(n, spec)| Bench::new(n, *spec, script.mistake))
        .collect();
    let mut counts: BTreeMap<Act, Count> = Act::all().map(|act| (act, Count::default())).collect();
    let mut digest = Digest(script.seed);
    let mut steps = 0;
    for (n, step) in script.steps.iter().enumerate() {
        at.store(n, Ordering::SeqCst);
        if script
            .end_ms
            .is_some_and(|end| rt::now_ns() >= end * 1_000_000)
        {
            break;
        }
        steps += 1;
        let pool = (step.pool % benches.len() as u64) as usize;
        let is_done = benches[pool].act(step);
        let count = counts.entry(step.act).or_default();
        count.drawn += 1;
        count.done += u64::from(is_done);
        digest.add_pool(&benches[pool]);
    }
    at.store(script.steps.len(), Ordering::SeqCst);
    let pools = benches.into_iter().map(finish).collect();
    digest.add(rt::now_ns());
    Report {
        digest: digest.0,
        steps,
        simulated_ns: rt::now_ns(),
        counts,
        pools,
    }
}

/// Cures, checks and exports the pool.
fn finish(mut bench: Bench) -> (String, Vec<Memory>) {
    bench.cure();
    bench.check();
    bench.forget();
    bench.export();
    (bench.name.clone(), bench.disks.images())
}

struct Digest(u64);

impl Digest {
    fn add(&mut self, number: u64) {
        self.0 ^= number;
        self.0 = splitmix64(&mut self.0);
    }

    /// The uberblock's root pointer has a checksum over everything below it.
    fn add_pool(&mut self, bench: &Bench) {
        let uberblock = bench.spa().uberblock();
        self.add(uberblock.txg.get());
        for word in uberblock.rootbp.cksum {
            self.add(word.get());
        }
        self.add(bench.disks.commands());
        self.add(rt::now_ns());
    }
}
