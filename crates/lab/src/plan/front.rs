//! Which combinations are worth a look, which one to take, and why.
//!
//! # What it is
//! How many drives may be lost is for the user to say, so combinations compete with those that survive as many. Those
//! with many more writes of part of a physical sector than the least are out: aggregation and a drive's cache may hide
//! what that costs while files are copied, and later, smaller writes pay it. Four figures count: space, the time to
//! copy, the time to list and read, the time to scrub and to replace a drive. A combination is on the *Pareto front*
//! unless another is as good in all of them and better in one. Of the front, the one is taken whose factors over the
//! best of each figure have the least product. Why is shown by its neighbours: what differs when one option has another
//! value.

use serde::Serialize;

use super::combination::{Combination, DIMENSIONS, Names};
use super::figures::{Figures, Tried};
use super::{Plan, Row};
use crate::run::as_typed;
use crate::table::{bytes, number};

/// Figures count in steps of this factor.
const EQUAL: f64 = 1.02;
/// Differences from neighbours are told from this on, in percent.
const TOLD_PERCENT: f64 = 3.0;
/// Who is busy for less than this part of the time is not what is waited for, in percent.
const BUSY_PERCENT: f64 = 60.0;

/// A figure that counts: less is better.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    pub(super) name: &'static str,
    pub(super) of: fn(&Figures) -> f64,
}

pub(super) const GOALS: [Goal; 4] = [
    Goal {
        name: "space",
        of: Figures::used,
    },
    Goal {
        name: "copy",
        of: |figures| figures.copy.seconds,
    },
    Goal {
        name: "list and read",
        of: Figures::reading,
    },
    Goal {
        name: "scrub and replace",
        of: Figures::scrub_and_replace,
    },
];

/// What to take if so many drives may be lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// How many drives may be lost.
    pub redundancy: usize,
    /// The places of the front's combinations in [`Plan::rows`], by space.
    pub front: Vec<usize>,
    /// The place of the one to take.
    pub take: usize,
    /// Why.
    pub reasons: Vec<String>,
    /// What to type; names of drives are to be replaced.
    pub commands: Vec<String>,
}

/// A combination with figures.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    place: usize,
    combination: &'a Combination,
    figures: &'a Figures,
}

impl Candidate<'_> {
    /// Whether this one is as good in everything and better in something.
    fn dominates(&self, other: &Candidate<'_>) -> bool {
        let (own, others) = (self.steps(), other.steps());
        own != others && own.iter().zip(others).all(|(own, other)| *own <= other)
    }

    /// The goals, in steps of what counts as equal: so that no three can each be better than the next.
    fn steps(&self) -> [i64; GOALS.len()] {
        GOALS.map(|goal| {
            let value = (goal.of)(self.figures).max(f64::MIN_POSITIVE);
            (value.ln() / EQUAL.ln()).round() as i64
        })
    }
}

/// Advice for each number of drives that may be lost, from none on.
pub(super) fn advise(plan: &Plan) -> Vec<Advice> {
    let drives = plan.request.drives.len();
    let all: Vec<Candidate<'_>> = plan.rows.iter().enumerate().filter_map(candidate).collect();
    let redundancy = |candidate: &Candidate<'_>| candidate.combination.layout.redundancy(drives);
    let mut levels: Vec<usize> = all.iter().map(redundancy).collect();
    levels.sort_unstable();
    levels.dedup();
    let advice = levels.into_iter().filter_map(|level| {
        let group: Vec<Candidate<'_>> = all
            .iter()
            .copied()
            .filter(|one| redundancy(one) == level)
            .collect();
        let whole = writes_whole_sectors(&group);
        let front = front(&whole);
        let take = balanced(&front, &whole)?;
        Some(Advice {
            redundancy: level,
            front: front.iter().map(|one| one.place).collect(),
            take: take.place,
            reasons: reasons(&take, &whole, &group, &all),
            commands: vec![as_typed(
                &take
                    .combination
                    .create(&plan.request, &Names::to_replace(&plan.request)),
            )],
        })
    });
    advice.collect()
}

fn candidate<'a>((place, row): (usize, &'a Row)) -> Option<Candidate<'a>> {
    match &row.tried {
        Some(Tried::Measured(figures)) => Some(Candidate {
            place,
            combination: &row.combination,
            figures,
        }),
        _ => None,
    }
}

/// Those that do not write parts of physical sectors much more often than the others.
fn writes_whole_sectors<'a>(group: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let partial = group.iter().map(|one| one.figures.partial_writes);
    let most = partial.min().map_or(0, unavoidable);
    let whole = group.iter().copied();
    whole
        .filter(|one| one.figures.partial_writes <= most)
        .collect()
}

/// So many writes of part of a sector are as good as the least: a few of them (of a partition table, say) cannot be
/// avoided.
fn unavoidable(least: u64) -> u64 {
    (least * 2).max(least + 16)
}

/// Those that none dominates, by space.
fn front<'a>(group: &[Candidate<'a>]) -> Vec<Candidate<'a>> {
    let is_dominated = |one: &Candidate<'_>| group.iter().any(|other| other.dominates(one));
    let mut front: Vec<Candidate<'a>> = group
        .iter()
        .copied()
        .filter(|one| !is_dominated(one))
        .collect();
    front.sort_by(|a, b| a.figures.used().total_cmp(&b.figures.used()));
    front
}

/// The least of a goal in a group.
fn least(goal: &Goal, group: &[Candidate<'_>]) -> f64 {
    let values = group.iter().map(|one| (goal.of)(one.figures));
    values.fold(f64::INFINITY, f64::min)
}

/// The one whose factors over the least of each goal have the least product.
fn balanced<'a>(front: &[Candidate<'a>], group: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let least = GOALS.map(|goal| least(&goal, group).max(f64::MIN_POSITIVE));
    let factors = |one: &Candidate<'_>| -> f64 {
        let pairs = GOALS.iter().zip(least);
        pairs
            .map(|(goal, least)| ((goal.of)(one.figures) / least).max(f64::MIN_POSITIVE).ln())
            .sum()
    };
    let mut sorted = front.to_vec();
    sorted.sort_by(|a, b| factors(a).total_cmp(&factors(b)));
    sorted.first().copied()
}

fn reasons(
    take: &Candidate<'_>,
    whole: &[Candidate<'_>],
    group: &[Candidate<'_>],
    all: &[Candidate<'_>],
) -> Vec<String> {
    let mut reasons = Vec::new();
    let partial = group.len() - whole.len();
    if partial > 0 {
        let most = group.iter().map(|one| one.figures.partial_writes).max();
        reasons.push(format!(
            "{partial} of {} that survive as much write parts of physical sectors (up to {} times, this one {}): later, \
             small writes will pay for that",
            group.len(),
            most.unwrap_or(0),
            take.figures.partial_writes
        ));
    }
    reasons.push(against_the_best(take, whole));
    reasons.push(bottlenecks(take.figures));
    for dimension in DIMENSIONS {
        for other in all {
            if take.combination.only_difference(other.combination) == Some(dimension) {
                reasons.push(neighbour(dimension, take, other));
            }
        }
    }
    reasons
}

/// `space 1 % over the least, copy the least`
fn against_the_best(take: &Candidate<'_>, group: &[Candidate<'_>]) -> String {
    let over = GOALS.map(|goal| ((goal.of)(take.figures) / least(&goal, group) - 1.0) * 100.0);
    let worse = GOALS.iter().zip(over).filter(|(_, over)| *over >= 0.5);
    let worse: Vec<String> = worse
        .map(|(goal, over)| format!("{} {} % over the least", goal.name, number(over.round())))
        .collect();
    match (group.len(), &worse[..]) {
        (1, _) => "No other is left".to_owned(),
        (count, []) => format!("Of the {count} left it is the best in everything"),
        (count, _) => format!(
            "Of the {count} left: {}; all else the least",
            worse.join(", ")
        ),
    }
}

fn bottlenecks(figures: &Figures) -> String {
    let of = [
        ("copying", &figures.copy),
        ("listing", &figures.walk),
        ("reading", &figures.read),
    ];
    let waits = of.map(|(name, timed)| {
        let (processor, drive) = (timed.processor_percent, timed.drive_percent);
        if processor.max(drive) < BUSY_PERCENT {
            let busy = format!("processor {processor:.0} %, disks {drive:.0} % busy");
            return format!("{name} for one request after the other ({busy})");
        }
        let what = if processor > drive {
            "the processor"
        } else {
            "the disks"
        };
        format!("{name} for {what} ({:.0} % busy)", processor.max(drive))
    });
    format!("What it waits for: {}", waits.join(", "))
}

/// `compression=off instead: space +38 %, copy -4 %`
fn neighbour(dimension: &str, take: &Candidate<'_>, other: &Candidate<'_>) -> String {
    let mut differences = Vec::new();
    for goal in GOALS {
        let (own, others) = ((goal.of)(take.figures), (goal.of)(other.figures));
        let percent = (others / own - 1.0) * 100.0;
        if percent.abs() >= TOLD_PERCENT {
            differences.push(format!("{} {percent:+.0} %", goal.name));
        }
    }
    let (own, others) = (take.figures.partial_writes, other.figures.partial_writes);
    if others > unavoidable(own) {
        differences.push(format!(
            "{others} writes of part of a physical sector instead of {own}"
        ));
    }
    if differences.is_empty() {
        differences.push("no difference".to_owned());
    }
    let value = other.combination.value(dimension);
    format!("With {dimension}={value}: {}", differences.join(", "))
}

/// `2.31 GiB, 12 % full`
pub(super) fn space_line(figures: &Figures) -> String {
    let (used, full) = (bytes(figures.used()), fullness(figures.space.full_percent));
    match figures.special {
        Some(special) => format!(
            "{used} ({} on special, {}), {full}",
            bytes(special.used),
            fullness(special.full_percent)
        ),
        None => format!("{used}, {full}"),
    }
}

/// `12.0 % full`
fn fullness(percent: f64) -> String {
    match percent {
        0.05.. => format!("{percent:.1} % full"),
        _ => "less than 0.1 % full".to_owned(),
    }
}
