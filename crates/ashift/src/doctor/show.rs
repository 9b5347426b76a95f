//! How findings are shown.

use doctor::{Finding, Severity};
use serde_json::{Map, Value, json};

use super::visit::Report;

/// How wide a line of text is.
const WIDTH: usize = 100;

/// Prints a report for people.
pub(super) fn text(report: &Report, is_quiet: bool) {
    let is_shown = |finding: &&Finding| !is_quiet || finding.severity > Severity::Note;
    let mut is_first = true;
    for (kind, name, findings) in &report.seen {
        let mut findings = findings.iter().filter(is_shown).peekable();
        if findings.peek().is_none() {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            println!();
        }
        println!("{kind} {name}");
        findings.for_each(show);
    }
    for failure in &report.failures {
        eprintln!("ashift doctor: {failure}");
    }
    if !is_quiet {
        println!("{}{}", if is_first { "" } else { "\n" }, summary(report));
    }
}

fn show(finding: &Finding) {
    let (severity, id) = (finding.severity.name(), finding.id);
    println!("  {severity:<8}  {id}: {}", finding.subject);
    folded("            ", &finding.what);
    folded("    costs:  ", &finding.cost);
    for (n, line) in finding.mend.iter().enumerate() {
        println!(
            "{}{line}",
            if n == 0 {
                "    do:     "
            } else {
                "            "
            }
        );
    }
}

/// Prints a text in lines of a bearable length, which all begin where the first does.
fn folded(lead: &str, text: &str) {
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            println!("{line}");
            line = " ".repeat(lead.len());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    println!("{line}");
}

fn summary(report: &Report) -> String {
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let of_kind = |wanted: &str| {
        report
            .seen
            .iter()
            .filter(|(kind, _, _)| *kind == wanted)
            .count()
    };
    let of = |severity: Severity| {
        report
            .findings()
            .filter(|one| one.severity == severity)
            .count()
    };
    let seen = format!(
        "{}, {}",
        many(of_kind("disk"), "disk"),
        many(of_kind("pool"), "pool")
    );
    let (critical, warnings, notes) = (
        of(Severity::Critical),
        of(Severity::Warning),
        of(Severity::Note),
    );
    match critical + warnings + notes {
        0 if report.failures.is_empty() => format!("{seen}: nothing is wrong"),
        0 => format!("{seen}: nothing is wrong with what could be looked at"),
        _ => format!(
            "{seen}: {critical} critical, {}, {}",
            many(warnings, "warning"),
            many(notes, "note")
        ),
    }
}

/// The report as JSON.
pub(super) fn document(report: &Report) -> String {
    let finding = |finding: &Finding| -> Value {
        json!({
            "id": finding.id, "severity": finding.severity.name(), "subject": finding.subject,
            "what": finding.what, "cost": finding.cost, "do": finding.mend,
        })
    };
    let entry = |(kind, name, findings): &(&'static str, String, Vec<Finding>)| -> Value {
        json!({ "kind": kind, "name": name, "findings": findings.iter().map(finding).collect::<Vec<_>>() })
    };
    let mut body = Map::new();
    body.insert("seen".to_owned(), report.seen.iter().map(entry).collect());
    body.insert("failures".to_owned(), report.failures.clone().into());
    admin::listing::json_document("ashift doctor", body)
}
