//! A page of lines of values, coloured from the worst to the best: `bon_csv2html`.
//!
//! # Source
//! `bon_csv2html.cpp` of bonnie++ 2.00a.

use crate::csv_text::{fields, leading_number};
use crate::options::Era;

const COLUMNS: usize = 50;
const NAME: usize = 2;
const CONCURRENCY: usize = 3;
const FILE_SIZE: usize = 5;
const CHUNK_SIZE: usize = 6;
const PUTC: usize = 9;
/// Rates that are shown in MiB: blocks written, rewritten, read.
const IN_MIB: [usize; 3] = [11, 13, 17];
const FILES: usize = 21;
const FILES_CHUNK_SIZE: usize = 25;
const FILES_VALUES_END: usize = 38;
const LATENCIES: usize = 38;
const FILES_LATENCIES: usize = 44;

/// What a column says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other,
    Rate,
    /// Share of the processor
    Share,
    Latency,
}

fn kind(column: usize) -> Kind {
    match column {
        PUTC..FILES if (column - PUTC).is_multiple_of(2) => Kind::Rate,
        PUTC..FILES => Kind::Share,
        26..FILES_VALUES_END if column.is_multiple_of(2) => Kind::Rate,
        26..FILES_VALUES_END => Kind::Share,
        LATENCIES.. => Kind::Latency,
        _ => Kind::Other,
    }
}

/// A page with these lines, and what is wrong with those that are of another format.
#[must_use]
pub fn csv_to_html(text: &str, era: Era) -> (String, String) {
    let (mut rows, mut wrong) = (Vec::new(), String::new());
    for line in text.lines() {
        let line = line.trim_end_matches('\r');
        match fields(line, era) {
            Ok(fields) => rows.push(fields),
            Err(format) if format.starts_with("format_version") => {}
            Err(_) => wrong += &format!("Can't process: {line}\n"),
        }
    }
    (Page::new(rows, era).html(), wrong)
}

struct Page {
    rows: Vec<Vec<String>>,
    /// Attributes of each cell.
    attributes: Vec<Vec<String>>,
    /// Columns that say something in one of the rows.
    used: [bool; COLUMNS],
    era: Era,
}

/// A colour between red and green, of a place between the worst and the best.
fn colour(place: f64, range: f64) -> String {
    let green = ((255.0 * place / range) as i64).clamp(0, 255);
    format!("bgcolor=\"#{:02X}{green:02X}00\"", 255 - green)
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

impl Page {
    fn new(rows: Vec<Vec<String>>, era: Era) -> Page {
        let plain = |column: usize| match column {
            NAME => "bgcolor=\"#FFFFFF\" class=\"rowheader\"><font size=+1",
            CONCURRENCY..=CHUNK_SIZE | FILES..=FILES_CHUNK_SIZE => {
                "class=\"size\" bgcolor=\"#FFFFFF\""
            }
            _ => "",
        };
        let attributes: Vec<String> = (0..COLUMNS).map(|c| plain(c).to_owned()).collect();
        let mut page = Page {
            attributes: vec![attributes; rows.len()],
            rows,
            used: [false; COLUMNS],
            era,
        };
        for column in 0..COLUMNS {
            match kind(column) {
                Kind::Other => {
                    let unsaid = if column == CONCURRENCY { "1" } else { "" };
                    let says = |row| {
                        let field = page.field(row, column);
                        !field.is_empty() && field != unsaid
                    };
                    page.used[column] = (0..page.rows.len()).any(says);
                }
                kind => page.colour(column, kind),
            }
        }
        page
    }

    fn field(&self, row: usize, column: usize) -> &str {
        self.rows[row].get(column).map_or("", String::as_str)
    }

    /// What a column says in a row, as a number; 0: nothing.
    fn value(&self, row: usize, column: usize, kind: Kind) -> f64 {
        let text = self.field(row, column);
        let number = leading_number(text);
        match kind {
            Kind::Share => {
                let work = leading_number(self.field(row, column - 1));
                number.zip(work).map_or(0.0, |(share, work)| share / work)
            }
            Kind::Latency if text.contains("ms") => number.unwrap_or(0.0) * 1e3,
            Kind::Latency if !text.contains("us") => number.unwrap_or(0.0) * 1e6,
            _ => number.unwrap_or(0.0),
        }
    }

    /// Gives the cells of a column their colours, if there are at least two values.
    fn colour(&mut self, column: usize, kind: Kind) {
        let rows = 0..self.rows.len();
        let values: Vec<f64> = rows.map(|row| self.value(row, column, kind)).collect();
        let said = || values.iter().copied().filter(|value| *value != 0.0);
        let mut least = said().fold(f64::INFINITY, f64::min);
        let mut most = said().fold(f64::NEG_INFINITY, f64::max);
        let is_wide = if kind == Kind::Latency {
            "colspan=\"2\""
        } else {
            ""
        };
        if least >= most {
            if kind == Kind::Latency {
                for attributes in &mut self.attributes {
                    is_wide.clone_into(&mut attributes[column]);
                }
            }
            return;
        }
        // Values that are close to each other do not get the extremes.
        if most / least < 2.0 {
            let stretch = (2.0 / (most / least)).sqrt();
            (least, most) = (least / stretch, most * stretch);
        }
        let range = most - least;
        for (attributes, value) in self.attributes.iter_mut().zip(values) {
            let place = match kind {
                Kind::Rate => value - least,
                _ => range - (value - least),
            };
            let cell = &mut attributes[column];
            match value == 0.0 {
                true if kind == Kind::Latency => is_wide.clone_into(cell),
                true => {}
                false => {
                    let space = if is_wide.is_empty() { "" } else { " " };
                    *cell = format!("{}{space}{is_wide}", colour(place, range));
                }
            }
        }
    }

    fn html(&self) -> String {
        let mut html = self.header();
        for row in 0..self.rows.len() {
            html += &self.rates(row);
            html += &self.latencies(row);
        }
        html + "</table>\n</body></html>\n"
    }

    fn is_used(&self, column: usize) -> usize {
        usize::from(self.used[column])
    }

    /// Columns between the two halves of the table.
    fn middle(&self) -> usize {
        1 + (FILES + 1..=FILES_CHUNK_SIZE)
            .map(|c| self.is_used(c))
            .sum::<usize>()
    }

    fn cell(&self, row: usize, column: usize, extra: &str) -> String {
        let field = self.field(row, column);
        let text = match IN_MIB.contains(&column) && column < self.rows[row].len() {
            true => {
                let kib = leading_number(field).unwrap_or(0.0) as i64;
                ((kib + 512) / 1024).to_string()
            }
            false => escaped(field),
        };
        let attributes: String = [extra, &self.attributes[row][column]]
            .into_iter()
            .filter(|attribute| !attribute.is_empty())
            .map(|attribute| format!(" {attribute}"))
            .collect();
        format!("<td{attributes}>{text}</td>")
    }

    fn cells(&self, row: usize, columns: std::ops::Range<usize>) -> String {
        columns.map(|column| self.cell(row, column, "")).collect()
    }

    fn rates(&self, row: usize) -> String {
        let mut html = format!("<tr>{}", self.cell(row, NAME, "rowspan=\"2\""));
        if self.used[CONCURRENCY] {
            html += &self.cell(row, CONCURRENCY, "");
        }
        html += &self.cell(row, FILE_SIZE, "");
        if self.used[CHUNK_SIZE] {
            html += &self.cell(row, CHUNK_SIZE, "");
        }
        html += &self.cells(row, PUTC..FILES + 1);
        for column in FILES + 1..=FILES_CHUNK_SIZE {
            if self.used[column] {
                html += &self.cell(row, column, "");
            }
        }
        html += &self.cells(row, FILES_CHUNK_SIZE + 1..FILES_VALUES_END);
        html + "</tr>\n"
    }

    fn latencies(&self, row: usize) -> String {
        let title = |width: usize| {
            format!("<td class=\"size\" bgcolor=\"#FFFFFF\" colspan=\"{width}\">Latency</td>")
        };
        let before = 1 + self.is_used(CHUNK_SIZE) + self.is_used(CONCURRENCY);
        let width = self.middle().min(2);
        let left = match self.middle() - width {
            0 => String::new(),
            left => format!("<td colspan=\"{left}\"></td>"),
        };
        format!(
            "<tr>{}{}{left}{}{}</tr>\n",
            title(before),
            self.cells(row, LATENCIES..FILES_LATENCIES),
            title(width),
            self.cells(row, FILES_LATENCIES..COLUMNS)
        )
    }

    fn header(&self) -> String {
        let heading = |text: &str| format!("<td colspan=\"2\">{text}</td>");
        let headings = |texts: &[&str]| texts.iter().map(|text| heading(text)).collect::<String>();
        let group = |attributes: &str, text: &str| {
            format!("<td {attributes} class=\"header\"><font size=+2><b>{text}</b></font></td>")
        };
        let width = 2 + self.is_used(CHUNK_SIZE) + self.is_used(CONCURRENCY);
        let middle = self.middle();
        let mut html = format!(
            "{START}<tr><td colspan=\"{width}\" class=\"header\"><font size=+1><b>Version {}</b></font></td>",
            self.era.version()
        );
        html += &group("colspan=\"6\"", "Sequential Output");
        html += &group("colspan=\"4\"", "Sequential Input");
        html += &group("colspan=\"2\" rowspan=\"2\"", "Random<br>Seeks");
        html += &format!("<td colspan=\"{middle}\" class=\"header\"></td>");
        html += &group("colspan=\"6\"", "Sequential Create");
        html += &group("colspan=\"6\"", "Random Create");
        html += "</tr>\n<tr>";
        html += match self.used[CONCURRENCY] {
            true => "<td colspan=\"2\">Concurrency</td>",
            false => "<td></td>",
        };
        html += "<td>Size</td>";
        if self.used[CHUNK_SIZE] {
            html += "<td>Chunk Size</td>";
        }
        html += &headings(&["Per Char", "Block", "Rewrite", "Per Char", "Block"]);
        html += "<td>Num Files</td>";
        let titles = ["Max Size", "Min Size", "Num Dirs", "Chunk Size"];
        for (column, title) in (FILES + 1..).zip(titles) {
            if self.used[column] {
                html += &format!("<td>{title}</td>");
            }
        }
        let files = headings(&["Create", "Read", "Delete"]);
        html += &format!("{files}{files}</tr><tr><td colspan=\"{width}\"></td>");
        let unit = |unit: &str| {
            format!(
                "<td class=\"ksec\"><font size=-2>{unit}/sec</font></td>\
                 <td class=\"ksec\"><font size=-2>% CPU</font></td>"
            )
        };
        html += &(unit("M").repeat(5) + &unit(""));
        html += &format!("<td colspan=\"{middle}\"></td>{}", unit("").repeat(6));
        html + "</tr>\n"
    }
}

const START: &str = "<!DOCTYPE html PUBLIC \"-//W3C//Dtd XHTML 1.0 Strict//EN\" \
\"http://www.w3.org/tr/xhtml1/Dtd/xhtml1-strict.dtd\"><html xmlns=\"http://www.w3.org/1999/xhtml\">\
<head><meta http-equiv=\"Content-Type\" content=\"text/html;charset=utf-8\" />\
<title>Bonnie++ Benchmark results</title><style type=\"text/css\">\
td.header {text-align: center; background-color: \"#CCFFFF\" }\
td.rowheader {text-align: center; background-color: \"#CCCFFF\" }\
td.size {text-align: center; background-color: \"#CCCFFF\" }\
td.ksec {text-align: center; fontstyle: italic }</style></head><body>\
<table border=\"3\" cellpadding=\"2\" cellspacing=\"1\">";
