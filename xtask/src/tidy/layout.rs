//! How long a file and its lines are, and that it opens with a sentence about itself. (How long a function is, clippy
//! checks: `too_many_lines`.)

use syn::{AttrStyle, Meta};

use super::{Breach, Source};

/// The most lines of a file, its tests not counted.
const FILE_LINES_MAX: usize = 1000;
/// The most columns of a line of a comment; `rustfmt` takes care of code.
const COLUMNS_MAX: usize = 120;

/// The places where the file is too long or too wide, or says nothing about itself.
pub(super) fn check(source: &Source) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut breach = |line, message| breaches.push(Breach::new(&source.path, line, message));
    let tests: usize = source.test_lines().iter().map(|(a, b)| b - a + 1).sum();
    let lines = source.text.lines().count() - tests;
    if lines > FILE_LINES_MAX && !source.is_test {
        breach(0, format!("{lines} lines, more than {FILE_LINES_MAX}"));
    }
    if !opens_with_docs(source) && !source.is_test {
        breach(1, "does not open with a //! sentence".to_owned());
    }
    for (at, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && line.trim_start().starts_with("//") {
            breach(
                at + 1,
                format!("{columns} columns, more than {COLUMNS_MAX}"),
            );
        }
    }
    breaches
}

fn opens_with_docs(source: &Source) -> bool {
    source.file.attrs.iter().any(|attribute| {
        matches!(attribute.style, AttrStyle::Inner(_))
            && matches!(&attribute.meta, Meta::NameValue(pair) if pair.path.is_ident("doc"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, expect: &[&str]) {
        let source = Source::parse("crates/a/src/lib.rs", &[], false, text).unwrap();
        let found: Vec<String> = check(&source).into_iter().map(|b| b.message).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_file_opens_with_a_sentence() {
        check_text("//! What it is.\nfn f() {}\n", &[]);
        check_text("#![allow(unused)]\n//! What it is.\nfn f() {}\n", &[]);
        check_text(
            "/// What f is.\nfn f() {}\n",
            &["does not open with a //! sentence"],
        );
    }

    #[test]
    fn files_are_measured_without_their_tests() {
        let functions = "fn f() {}\n".repeat(FILE_LINES_MAX - 1);
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// long\n".repeat(500)
        );
        check_text(&format!("//! F.\n{functions}{tests}"), &[]);
        check_text(
            &format!("//! F.\n{functions}fn g() {{}}\n{tests}"),
            &["1001 lines, more than 1000"],
        );
    }

    #[test]
    fn wide_comments_offend() {
        let words = "ä".repeat(COLUMNS_MAX - 3);
        check_text(&format!("//! F.\n// {words}\n"), &[]);
        check_text(
            &format!("//! F.\n// {words}x\n"),
            &["121 columns, more than 120"],
        );
        check_text(&format!("//! F.\nconst A: &str = \"{words}\";\n"), &[]);
    }
}
