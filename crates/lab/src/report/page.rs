//! The page.

use crate::excerpt;
use crate::outcome::{CaseOutcome, Outcome, Ran};
use crate::table::{Grid, ratios, sensitivity};
use crate::verdict::Verdict;

use super::bars;
use super::drives;
use super::histogram;
use super::html::{escape, prose};

/// One page about all these outcomes. `made_by` names the program and its version.
#[must_use]
pub fn page(outcomes: &[Outcome], made_by: &str) -> String {
    let title = match outcomes {
        [only] => escape(&only.title),
        _ => "Experiments on emulated drives".to_owned(),
    };
    let heading = if outcomes.len() == 1 {
        String::new()
    } else {
        format!("<h1>{title}</h1>\n{}", contents(outcomes))
    };
    let tag = if outcomes.len() == 1 { "h1" } else { "h2" };
    let sections: String = outcomes
        .iter()
        .map(|outcome| section(outcome, tag))
        .collect();
    document(&title, &format!("{heading}{sections}"), made_by)
}

/// A page with this title (escaped) and body.
pub(crate) fn document(title: &str, body: &str, made_by: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}\
         <footer>Made by {}. All times are those of the emulated drives and of the host profile, \
         not of the computer that this ran on.</footer>\n</body>\n</html>\n",
        include_str!("style.css"),
        escape(made_by)
    )
}

/// What is on the page, with the verdicts.
fn contents(outcomes: &[Outcome]) -> String {
    let line = |outcome: &Outcome| {
        let (class, verdict) = match judged(outcome) {
            (0, _) => ("faint", "predictions".to_owned()),
            (all, 0) => ("good", format!("{all} of {all} within their tolerances")),
            (all, missed) => (
                "bad",
                format!("{missed} of {all} outside of their tolerances"),
            ),
        };
        format!(
            "<li><a href=\"#{}\">{}</a> <span class=\"{class}\">{verdict}</span></li>\n",
            escape(&outcome.name),
            escape(&outcome.title)
        )
    };
    let lines: String = outcomes.iter().map(line).collect();
    format!("<ul class=\"contents\">\n{lines}</ul>\n")
}

fn section(outcome: &Outcome, tag: &str) -> String {
    let (name, title) = (escape(&outcome.name), escape(&outcome.title));
    let mut html = format!("<section id=\"{name}\">\n<{tag}>{title}</{tag}>\n");
    html.push_str(&format!("<p>{}</p>\n", prose(&outcome.about)));
    if let Some((title, about)) = &outcome.source {
        html.push_str(&format!(
            "<p class=\"source\">Published: “{}”, {}.</p>\n",
            escape(title),
            escape(about)
        ));
    }
    html.push_str(&verdict(outcome));
    html.push_str(&advice(outcome));
    html.push_str(&table(&outcome.grid()));
    if let Some(ratios) = ratios(outcome) {
        html.push_str(&table(&ratios));
    }
    html.push_str(&bars::charts(outcome));
    html.push_str(&histogram::sections(outcome));
    html.push_str(&assumptions(outcome));
    let (drives, commands) = (drives::sections(outcome), commands(outcome));
    match outcome.answers {
        true => html.extend([commands, drives]),
        false => html.extend([drives, commands]),
    }
    html.push_str(&format!(
        "<h3>Do it again</h3>\n<pre>{}</pre>\n<p class=\"source\">Seed {}; host: {}.</p>\n</section>\n",
        escape(&outcome.again),
        outcome.seed,
        escape(&outcome.host)
    ));
    html
}

/// How many figures, ratios and deviations there is something published or allowed for, and how many of them miss it.
fn judged(outcome: &Outcome) -> (usize, usize) {
    let figures = outcome
        .cases
        .iter()
        .flat_map(|case| &case.figures)
        .map(|f| f.verdict);
    let ratios = outcome.ratios.iter().map(|ratio| ratio.verdict);
    let rms = outcome.rms.iter().map(|(.., verdict)| *verdict);
    let judged: Vec<Verdict> = figures
        .chain(ratios)
        .chain(rms)
        .filter(|v| *v != Verdict::Unjudged)
        .collect();
    let missed = judged.iter().filter(|v| **v == Verdict::Missed).count();
    (judged.len(), missed)
}

fn verdict(outcome: &Outcome) -> String {
    match judged(outcome) {
        (0, _) => {
            "<p class=\"faint\">Predictions: no published figures are set beside them.</p>\n".into()
        }
        (all, 0) => format!(
            "<p class=\"verdict good\">All {all} published figures are reproduced within their \
             tolerances.</p>\n"
        ),
        (all, missed) => format!(
            "<p class=\"verdict bad\">{missed} of {all} published figures are outside of their \
             tolerances.</p>\n"
        ),
    }
}

fn advice(outcome: &Outcome) -> String {
    let choices = outcome.recommendation.iter().flat_map(|r| &r.choices);
    let advice = |choice: &crate::recommend::Choice| {
        let given = match &*choice.given {
            "" => String::new(),
            given => format!("For {}: ", escape(given)),
        };
        format!(
            "<div class=\"advice\"><p>{given}take <b>{}</b></p><p class=\"faint\">Because {}.</p></div>\n",
            escape(&choice.take),
            escape(&choice.reason)
        )
    };
    choices.map(advice).collect()
}

/// What is assumed: by the experiment, with what depends on it, and by the drives' profiles.
fn assumptions(outcome: &Outcome) -> String {
    if outcome.assumed.is_empty() && outcome.assumed_of_drives.is_empty() {
        return String::new();
    }
    let mut html = "<h3>What is assumed</h3>\n".to_owned();
    for assumed in &outcome.assumed {
        let value = match &assumed.value {
            Some((name, value)) => format!(" ({} = {})", escape(name), escape(value)),
            None => String::new(),
        };
        html.push_str(&format!("<p>{}{value}.</p>\n", prose(&assumed.about)));
        match (sensitivity(assumed), &assumed.value) {
            (Some(grid), _) => html.push_str(&table(&grid)),
            (None, Some(_)) => html.push_str(
                "<p class=\"faint\">What depends on it was not measured: <code>--sensitivity</code> does that.</p>\n",
            ),
            (None, None) => {}
        }
    }
    let row = |[profile, of, note]: &[String; 3]| {
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            escape(profile),
            escape(of),
            escape(note)
        )
    };
    let rows: String = outcome.assumed_of_drives.iter().map(row).collect();
    html.push_str(&format!(
        "<details><summary>by the profiles of the drives</summary>\n<div class=\"scroll\"><table>\n\
         <tr><th>profile</th><th>figure</th><th>why</th></tr>\n{rows}</table></div></details>\n"
    ));
    html
}

pub(crate) fn table(grid: &Grid) -> String {
    let cells = |row: &[String], tag: &str| {
        let cell = |text: &String| {
            let class = match &**text {
                "ok" => " class=\"good\"",
                "MISSED" => " class=\"bad\"",
                _ => "",
            };
            format!("<{tag}{class}>{}</{tag}>", escape(text))
        };
        row.iter().map(cell).collect::<String>()
    };
    let rows = grid
        .rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", cells(row, "td")));
    format!(
        "<div class=\"scroll\"><table>\n<tr>{}</tr>\n{}</table></div>\n",
        cells(&grid.heading, "th"),
        rows.collect::<String>()
    )
}

fn commands(outcome: &Outcome) -> String {
    let several = outcome.has_several_titles();
    let open = if outcome.answers { " open" } else { "" };
    let one = |ran: &Ran| {
        let output = excerpt(ran.output.trim_end());
        let gap = if output.is_empty() { "" } else { "\n" };
        let (command, shown) = (escape(&ran.command), escape(output.trim_end()));
        format!("<b># {command}</b>{gap}{shown}\n")
    };
    let case = |case: &CaseOutcome| {
        format!(
            "<details{open}><summary>{}</summary>\n<p class=\"faint\">{:.1} s of the machine's time</p>\n<pre>{}</pre></details>\n",
            escape(&case.label(several)),
            case.seconds,
            case.ran.iter().map(one).collect::<String>()
        )
    };
    let cases: String = outcome.cases.iter().map(case).collect();
    format!("<h3>Commands and their output</h3>\n{cases}")
}
