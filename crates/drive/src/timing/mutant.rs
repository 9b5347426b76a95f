//! Mistakes that the tests plant in the model, to show that they would be noticed.

/// A planted mistake. There is none outside of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The arm needs no time.
    SeeksAreFree,
    /// There is no rotational latency.
    RotationIsFree,
    /// Bytes pass the head in half the time.
    TransfersAreHalved,
    /// Read-ahead is complete at once.
    ReadAheadIsInstant,
    /// What was read once is kept as long as what was read again.
    ReadsAreKeptAlike,
    /// Each write reads first.
    AlignedWritesRead,
    /// Partial physical sectors are written without having been read.
    PartialWritesDoNotRead,
    /// Rewriting is not reported.
    RewritingIsSilent,
    /// A flush does not wait.
    FlushesLie,
    /// A write with FUA is done when it is in the cache.
    FuaIsIgnored,
    /// Bytes are reported on the medium before they are written.
    DestagedTooEarly,
    /// Adjacent writes are merged, and one tag is lost.
    MergedTagsAreLost,
    /// A newer write to the same sectors does not replace the older one.
    OverlapsAreKeptApart,
    /// The cache never fills up.
    CacheIsBottomless,
    /// A stream of writes fills all of the cache.
    StreamsRunAhead,
    /// The farthest command goes first.
    FarthestFirst,
    /// The age of a command is ignored.
    AgeIsIgnored,
    /// The next pass catches its first sector.
    TurnaroundIsFree,
    /// Randomness that does not come from the seed.
    SeedIsIgnored,
}

#[cfg(test)]
impl Mutant {
    /// All of them.
    pub(crate) const ALL: [Mutant; 19] = [
        Mutant::SeeksAreFree,
        Mutant::RotationIsFree,
        Mutant::TransfersAreHalved,
        Mutant::ReadAheadIsInstant,
        Mutant::ReadsAreKeptAlike,
        Mutant::AlignedWritesRead,
        Mutant::PartialWritesDoNotRead,
        Mutant::RewritingIsSilent,
        Mutant::FlushesLie,
        Mutant::FuaIsIgnored,
        Mutant::DestagedTooEarly,
        Mutant::MergedTagsAreLost,
        Mutant::OverlapsAreKeptApart,
        Mutant::CacheIsBottomless,
        Mutant::StreamsRunAhead,
        Mutant::FarthestFirst,
        Mutant::AgeIsIgnored,
        Mutant::TurnaroundIsFree,
        Mutant::SeedIsIgnored,
    ];
}

/// Randomness that does not come from the seed.
#[cfg(not(test))]
pub(crate) fn unseeded() -> u64 {
    unreachable!("planted in tests only")
}

/// Randomness that does not come from the seed.
#[cfg(test)]
pub(crate) fn unseeded() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut state = COUNT.fetch_add(1, Ordering::Relaxed);
    rt::splitmix64(&mut state)
}
