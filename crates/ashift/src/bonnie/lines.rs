//! `bon_csv2txt` and `bon_csv2html`: what is made of the lines that `bonnie++` prints.

use bonnie::{Era, csv_to_html, csv_to_text};

use super::request::era;
use crate::caller::caller;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};

pub(crate) const CSV2TXT: Command<Entry> = Command::explained(
    "bon_csv2txt",
    "tables of the lines that bonnie++ prints",
    "usage: bon_csv2txt [--era 1.96|2.00] < LINES\n",
    |args| convert(args, csv_to_text),
)
.more("\nThe lines are those of that version; default: 2.00.\n")
.apart()
.tool();

pub(crate) const CSV2HTML: Command<Entry> = Command::explained(
    "bon_csv2html",
    "a page of the lines that bonnie++ prints",
    "usage: bon_csv2html [--era 1.96|2.00] [FILE]\n",
    |args| convert(args, csv_to_html),
)
.more("\nThe lines are those of that version; default: 2.00.\n")
.misused_is_1()
.apart()
.tool();

fn convert(args: &[String], to: fn(&str, Era) -> (String, String)) -> Outcome {
    let (mut chosen, mut file) = (Era::default(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--era") {
            Some("") => chosen = era(args.next().map_or("", String::as_str))?,
            Some(value) => chosen = era(value.strip_prefix('=').unwrap_or(value))?,
            None if arg.starts_with('-') => {
                return Err(Fail::Usage(format!("invalid option '{arg}'")));
            }
            None => file = Some(arg),
        }
    }
    let bytes = match file {
        Some(file) => std::fs::read(file).map_err(|e| Fail::Failed(format!("{file}: {e}")))?,
        None => caller().read_all()?,
    };
    let (text, wrong) = to(&String::from_utf8_lossy(&bytes), chosen);
    print!("{text}");
    eprint!("{wrong}");
    Ok(())
}
