//! A plan as a page of HTML.

use super::front::{GOALS, space_line};
use super::scatter::scatter;
use super::table::{confirmed, level};
use super::{Advice, Plan, Tried};
use crate::report::html::{escape, prose};
use crate::report::page::{document, table};

/// What the figures take for granted.
const ASSUMED: &str = "\
The files are read in no time and copied one after another, in the order of their names, with `cp -a`. Each command begins \
with empty caches and idle drives. Nothing runs beside a scrub or a replacement. Drives and the host are those of their profiles; \
`ashift drives NAME` says where each figure comes from.";

/// One page about a plan. `again` is the command line that makes it.
#[must_use]
pub fn page(plan: &Plan, again: &str) -> String {
    let title = format!("A pool for {}", plan.request.data.display());
    let mut body = format!(
        "<section>\n<h1>{}</h1>\n<p>{}.</p>\n",
        escape(&title),
        escape(&plan.about())
    );
    body.push_str(&drives(plan));
    for note in plan.notes() {
        body.push_str(&format!("<p class=\"faint\">{}.</p>\n", escape(&note)));
    }
    body.push_str(
        "<p class=\"legend\"><i class=\"take\"></i>to take <i class=\"front\"></i>best in something \
         <i class=\"rest\"></i>another is as good in everything</p>\n",
    );
    for (at, title) in [
        (1, "Time to copy"),
        (2, "Time to list and read everything"),
        (3, "Time to scrub and replace"),
    ] {
        body.push_str(&scatter(plan, title, &GOALS[at]));
    }
    for advice in &plan.advice {
        body.push_str(&section(plan, advice));
    }
    let all: Vec<usize> = (0..plan.rows.len()).collect();
    let mark = |place| if plan.is_on_front(place) { "• " } else { "" };
    body.push_str(&format!(
        "<details><summary>All {} combinations</summary>\n{}</details>\n",
        all.len(),
        table(&plan.grid(&all, &mark))
    ));
    body.push_str(&format!(
        "<h3>What is assumed</h3>\n<p>{}</p>\n",
        prose(ASSUMED)
    ));
    body.push_str(&format!(
        "<h3>Do it again</h3>\n<pre>{}</pre>\n<p class=\"source\">Seed {}; host: {}.</p>\n</section>\n",
        escape(again),
        plan.request.seed,
        escape(&plan.request.host)
    ));
    document(&escape(&title), &body, &plan.made_by)
}

fn drives(plan: &Plan) -> String {
    let profiles = |drives: &[super::PlannedDrive]| {
        let names: Vec<&str> = drives.iter().map(|drive| &*drive.profile).collect();
        escape(&names.join(", "))
    };
    let special = match plan.request.special.len() {
        0 => String::new(),
        _ => format!("; special: {}", profiles(&plan.request.special)),
    };
    format!(
        "<p class=\"source\">Drives: {}{special}.</p>\n",
        profiles(&plan.request.drives)
    )
}

fn section(plan: &Plan, advice: &Advice) -> String {
    let take = &plan.rows[advice.take];
    let space = match &take.tried {
        Some(Tried::Measured(figures)) => space_line(figures),
        _ => String::new(),
    };
    let whole = match &take.confirmed {
        Some(tried) => format!("<p>{}</p>", escape(&confirmed(tried))),
        None => String::new(),
    };
    let reasons: String = advice
        .reasons
        .iter()
        .map(|reason| format!("<li>{}</li>\n", escape(reason)))
        .collect();
    let commands: String = advice
        .commands
        .iter()
        .map(|command| format!("{}\n", escape(command)))
        .collect();
    let mark = |place| if place == advice.take { "→ " } else { "" };
    let level = level(advice);
    let heading = level.get(..1).map_or(String::new(), str::to_uppercase)
        + level.get(1..).unwrap_or_default();
    format!(
        "<h3>{heading}</h3>\n<div class=\"advice\"><p>take <b>{}</b></p><p class=\"faint\">{space}</p>{whole}</div>\n\
         <ul>\n{reasons}</ul>\n<pre>{commands}</pre>\n{}",
        escape(&take.combination.to_string()),
        table(&plan.grid(&advice.front, &mark))
    )
}
