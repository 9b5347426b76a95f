//! Tables of lines of values: `bon_csv2txt`.
//!
//! # Source
//! `bon_csv2txt.in` of bonnie++ 2.00a, a script that looks at the columns of format 1.98.

use crate::options::{DEFAULT_SEEKERS, DEFAULT_SEEKS, Era};
use crate::report::kib_with_unit;

/// Columns of a name and a size, with the space between them.
const NAME_COLUMNS: usize = 19;

/// The columns that a line of values is read from.
const SIZE: usize = 5;
const SEEKERS: usize = 8;
const FILE_VALUES: std::ops::Range<usize> = 9..21;
const FILES: usize = 21;
const FILES_CHUNK: usize = 25;
const FILES_VALUES: std::ops::Range<usize> = 26..38;
const LATENCIES: usize = 38;

const FILE_HEADER: &str = "------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Name:Size etc        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
";
const FILES_HEADER: &str =
    "                    ------Sequential Create------ --------Random Create--------
                    -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--
      files:max:min  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
";

/// The fields of a line of values, in the columns of format 1.98; a line of 1.96 has two fewer.
///
/// # Errors
/// The format that it has instead.
pub(crate) fn fields(line: &str, era: Era) -> Result<Vec<String>, String> {
    let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
    if fields[0] != era.format() && !(era == Era::V1_96 && fields[0] == "1.97") {
        return Err(fields.swap_remove(0));
    }
    if era == Era::V1_96 && fields.len() > SIZE + 2 {
        // It had these seeks, by so many threads; without a file it says nothing of them.
        let numbers = match fields[SIZE].as_str() {
            "" => [String::new(), String::new()],
            _ => [DEFAULT_SEEKS.to_string(), DEFAULT_SEEKERS.to_string()],
        };
        fields.splice(SIZE + 2..SIZE + 2, numbers);
    }
    Ok(fields)
}

/// The number that a text begins with, if it does.
pub(crate) fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    (1..=end).rev().find_map(|end| text[..end].parse().ok())
}

/// Tables of these lines, which must be of the era's format; and what is wrong with the others.
#[must_use]
pub fn csv_to_text(text: &str, era: Era) -> (String, String) {
    let (mut file_rows, mut files_rows, mut wrong) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        let line = line.replacen('\r', "", 1);
        if line.starts_with("name,") {
            continue;
        }
        let fields = match fields(&line, era) {
            Ok(fields) => fields,
            Err(format) => {
                let expected = era.format();
                wrong += &format!("Expected {expected}, got {format} from {line}\n");
                continue;
            }
        };
        let row = Row(&fields);
        file_rows += &row.file();
        files_rows += &row.files();
    }
    let mut tables = String::new();
    if !file_rows.is_empty() {
        tables = format!("Version {:>9}   {FILE_HEADER}{file_rows}", era.version());
    }
    if !files_rows.is_empty() {
        tables += FILES_HEADER;
        tables += &files_rows;
    }
    (tables, wrong)
}

/// The fields of one line.
struct Row<'a>(&'a [String]);

impl Row<'_> {
    fn at(&self, column: usize) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// How many columns there are up to the last that says something.
    fn len(&self) -> usize {
        let last = self.0.iter().rposition(|field| !field.is_empty());
        last.map_or(0, |last| last + 1)
    }

    fn file(&self) -> String {
        let sizes: Vec<&str> = (SIZE..=SEEKERS).map(|column| self.at(column)).collect();
        let sizes = sizes.join(":");
        let size = sizes.trim_end_matches(':');
        let values: Vec<&str> = FILE_VALUES.map(|column| self.at(column)).collect();
        if size.is_empty() && values.concat().is_empty() {
            return String::new();
        }
        let values = values
            .iter()
            .enumerate()
            .map(|(n, value)| match (n, *value) {
                // Rates, but those of the seeks; `+++++` counts as nothing.
                (0 | 2 | 4 | 6 | 8, rate) if !rate.is_empty() => {
                    kib_with_unit(leading_number(rate).unwrap_or(0.0))
                }
                (_, value) => value.to_owned(),
            });
        let has_latencies = self.len() > LATENCIES + 2;
        self.row(size, &values.collect::<Vec<_>>(), has_latencies, LATENCIES)
    }

    fn files(&self) -> String {
        let mut what = self.at(FILES).to_owned();
        for (column, separator) in [(22, ':'), (23, ':'), (24, '/'), (FILES_CHUNK, ':')] {
            if !self.at(column).is_empty() {
                what.push(separator);
                what += self.at(column);
            }
        }
        let values: Vec<String> = FILES_VALUES.map(|c| self.at(c).to_owned()).collect();
        if what.is_empty() && values.concat().is_empty() {
            return String::new();
        }
        let has_latencies = self.len() > LATENCIES + 6;
        self.row(&what, &values, has_latencies, LATENCIES + 6)
    }

    /// Name and size, the values, and latencies if one of the six is there.
    fn row(&self, size: &str, values: &[String], has_latencies: bool, latencies: usize) -> String {
        let name = match (NAME_COLUMNS - 1).checked_sub(size.chars().count()) {
            Some(columns) if columns > 0 => {
                let name: String = self.at(2).chars().take(columns).collect();
                format!("{name:columns$} {size}")
            }
            _ => size.to_owned(),
        };
        let mut row = format!("{name:>NAME_COLUMNS$}");
        for pair in values.chunks(2) {
            row += &format!(" {:>5} {:>3}", pair[0], pair[1]);
        }
        row.push('\n');
        let latencies: Vec<&str> = (latencies..latencies + 6).map(|c| self.at(c)).collect();
        if has_latencies && !latencies.concat().is_empty() {
            let latencies: Vec<String> = latencies.iter().map(|l| format!("{l:>9}")).collect();
            row += &format!("Latency           {}\n", latencies.join(" "));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        let cases = [
            ("12.5k", Some(12.5)),
            (" 7", Some(7.0)),
            ("1e3x", Some(1000.0)),
            ("1e", Some(1.0)),
            ("+++++", None),
            ("", None),
            ("ms", None),
        ];
        for (text, expected) in cases {
            assert_eq!(leading_number(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_of_1_96_are_read_if_they_are_asked_for() {
        let line = "1.96,1.96,box,1,1,16G,,378,99,86104,25,34410,11,741,99,104384,13,169.2,6,64,102400,128,,8,\
                    1,2,3,4,5,6,7,8,9,10,11,12,23421us,1s,2s,3s,4s,5s,6s,7s,8s,9s,10s,11s\n";
        let (tables, wrong) = csv_to_text(line, Era::V1_96);
        assert_eq!(wrong, "");
        let rows: Vec<&str> = tables.lines().collect();
        assert_eq!(
            rows[3],
            "box     16G::8192:5  378k  99 84.1m  25 33.6m  11  741k  99  102m  13 169.2   6"
        );
        assert_eq!(
            rows[8],
            "box 64:102400:128:8     1   2     3   4     5   6     7   8     9  10    11  12"
        );
        let (tables, wrong) = csv_to_text(line, Era::V2_00);
        assert_eq!(tables, "");
        assert!(wrong.starts_with("Expected 1.98, got 1.96 from 1.96,1.96,box,"));
    }
}
