//! The commands that the drives received in each case.

use crate::outcome::{CaseOutcome, DriveTrace, Outcome};
use crate::table::{bytes, number};

use super::histogram::histograms;
use super::html::escape;
use super::picture::{period, picture};

/// A section for each case: its drives with picture and histograms.
pub(crate) fn sections(outcome: &Outcome) -> String {
    let several = outcome.has_several_titles();
    // With more than 4 cases the sections are collapsed, so that long sweeps stay readable.
    let open = if outcome.cases.len() <= 4 {
        " open"
    } else {
        ""
    };
    let section = |case: &CaseOutcome| {
        let period = period(&case.drives).unwrap_or_default();
        let drives: String = alike(&case.drives)
            .into_iter()
            .map(|(n, d)| drive(d, &n, period))
            .collect();
        if drives.is_empty() {
            return String::new();
        }
        format!(
            "<details{open}><summary>{}</summary>\n{drives}</details>\n",
            escape(&case.label(several))
        )
    };
    let sections: String = outcome.cases.iter().map(section).collect();
    if sections.is_empty() {
        return sections;
    }
    format!(
        "<h3>What the drives saw</h3>\n<p class=\"legend\"><i class=\"whole\"></i>write of whole \
         physical sectors <i class=\"partial\"></i>write that begins or ends inside of one \
         <i class=\"read\"></i>read</p>\n<p class=\"faint\">Time goes to the right, from the first command of \
         the machine to the last; addresses go upwards. What was not touched is left out, and each band has a scale \
         of its own.</p>\n{sections}"
    )
}

/// Groups drives of one profile whose write counters differ by at most 1 % (the sides of a mirror):
/// one of each group is drawn.
fn alike(drives: &[DriveTrace]) -> Vec<(Vec<&str>, &DriveTrace)> {
    let mut groups: Vec<(Vec<&str>, &DriveTrace)> = Vec::new();
    let near = |a: u64, b: u64| a.abs_diff(b) * 100 <= a.max(b);
    for trace in drives {
        let same = |known: &DriveTrace| {
            known.profile == trace.profile
                && near(known.writes, trace.writes)
                && near(known.written_bytes, trace.written_bytes)
                && near(known.partial_writes, trace.partial_writes)
        };
        match groups.iter_mut().find(|(_, known)| same(known)) {
            Some((names, _)) => names.push(&trace.drive),
            None => groups.push((vec![&trace.drive], trace)),
        }
    }
    groups
}

fn drive(trace: &DriveTrace, names: &[&str], period: (u64, u64)) -> String {
    if trace.writes + trace.reads == 0 {
        return String::new();
    }
    let share = trace.partial_writes as f64 * 100.0 / (trace.writes.max(1)) as f64;
    let alike = if names.len() > 1 {
        " (much the same on each: one is drawn)"
    } else {
        ""
    };
    format!(
        "<h4>{} <span class=\"faint\">{}{alike}</span></h4>\n<p>{} writes, {}; <b>{} partial</b> \
         ({share:.1} %); {} reads, {}</p>\n{}{}",
        escape(&names.join(", ")),
        escape(&trace.profile),
        trace.writes,
        bytes(trace.written_bytes as f64),
        number(trace.partial_writes as f64),
        trace.reads,
        bytes(trace.read_bytes as f64),
        picture(trace, period),
        histograms(trace)
    )
}
