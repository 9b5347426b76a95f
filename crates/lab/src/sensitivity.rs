//! What is assumed, and how much figures depend on it.
//!
//! # What it is
//! An [`Assumption`](crate::Assumption) that is a parameter is halved and doubled, one at a time, and all cases run
//! again; the outcome has each figure at the three values.

use crate::experiment::Experiment;
use crate::outcome::{Assumed, CaseOutcome, Measured, Sensitivity};

/// Factors of the values at which everything runs again.
const FACTORS: [f64; 2] = [0.5, 2.0];

/// Names and values: half and twice each assumption that is a parameter, in the order of the assumptions.
pub(crate) fn variants(experiment: &Experiment) -> Vec<(String, String)> {
    let names = experiment
        .assumptions
        .iter()
        .filter_map(|assumption| assumption.parameter.as_ref());
    let both = names.filter_map(|name| {
        let value = experiment.parameters.number(name)?;
        Some(FACTORS.map(|factor| (name.clone(), (value * factor).to_string())))
    });
    both.flatten().collect()
}

/// The assumptions; `others` has the cases of [`variants`], one set after the other, or nothing.
pub(crate) fn assumed(
    experiment: &Experiment,
    cases: &[CaseOutcome],
    others: &[CaseOutcome],
) -> Vec<Assumed> {
    let mut sets = others.chunks_exact(cases.len().max(1));
    let mut all = Vec::new();
    for assumption in &experiment.assumptions {
        let name = assumption.parameter.as_ref();
        let value =
            name.and_then(|name| Some((name.clone(), experiment.parameters.get(name)?.to_owned())));
        let figures = match (&value, sets.len() >= FACTORS.len()) {
            (Some(_), true) => beside(
                sets.next().unwrap_or(&[]),
                cases,
                sets.next().unwrap_or(&[]),
            ),
            _ => Vec::new(),
        };
        all.push(Assumed {
            about: assumption.about.clone(),
            value,
            figures,
        });
    }
    all
}

fn beside(half: &[CaseOutcome], cases: &[CaseOutcome], twice: &[CaseOutcome]) -> Vec<Sensitivity> {
    let several = cases.windows(2).any(|pair| pair[0].title != pair[1].title);
    let mut rows = Vec::new();
    for ((case, half), twice) in cases.iter().zip(half).zip(twice) {
        for figure in &case.figures {
            let other = |of: &CaseOutcome| {
                of.figure(&figure.name)
                    .map_or(f64::NAN, |f: &Measured| f.value)
            };
            rows.push(Sensitivity {
                case: case.label(several),
                title: figure.title.clone(),
                unit: figure.unit.clone(),
                values: [other(half), figure.value, other(twice)],
            });
        }
    }
    rows
}

/// What the profiles of the drives assume, each once.
pub(crate) fn assumed_of_drives(cases: &[CaseOutcome]) -> Vec<[String; 3]> {
    let mut all: Vec<[String; 3]> = Vec::new();
    for drive in cases.iter().flat_map(|case| &case.drives) {
        for [of, note] in &drive.assumed {
            let row = [drive.profile.clone(), of.clone(), note.clone()];
            if !all.contains(&row) {
                all.push(row);
            }
        }
    }
    all
}
