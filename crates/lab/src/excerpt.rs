//! What of a command's output is shown: its beginning and its end.

use std::borrow::Cow;

/// Output of more lines is cut.
const LINES_MAX: usize = 60;
/// Lines shown before and after a cut.
const HEAD: usize = 40;
const TAIL: usize = 8;
/// Longer lines are cut, too; in characters.
const LINE_MAX: usize = 400;

/// The output of a command, without the middle if it is long: a listing of all files, say. The figures are read from
/// the whole.
#[must_use]
pub fn excerpt(output: &str) -> Cow<'_, str> {
    let lines: Vec<&str> = output.lines().collect();
    let is_long = |line: &&str| line.len() > LINE_MAX;
    if lines.len() <= LINES_MAX && !lines.iter().any(is_long) {
        return Cow::Borrowed(output);
    }
    let cut = |line: &&str| match line.char_indices().nth(LINE_MAX) {
        Some((end, _)) => format!("{} …\n", &line[..end]),
        None => format!("{line}\n"),
    };
    let (head, tail) = match lines.len() {
        0..=LINES_MAX => (lines.as_slice(), &[][..]),
        all => (&lines[..HEAD], &lines[all - TAIL..]),
    };
    let mut text: String = head.iter().map(cut).collect();
    let left_out = lines.len() - head.len() - tail.len();
    if left_out > 0 {
        text.push_str(&format!("… {left_out} lines are not shown …\n"));
    }
    text.extend(tail.iter().map(cut));
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_is_cut_in_its_middle() {
        let numbers = |count: usize| (0..count).map(|n| format!("{n}\n")).collect::<String>();
        assert_eq!(excerpt(&numbers(LINES_MAX)), numbers(LINES_MAX));
        assert_eq!(excerpt("no newline"), "no newline");
        let long = numbers(1000);
        let shown = excerpt(&long);
        assert!(shown.starts_with("0\n1\n"), "{shown}");
        assert!(
            shown.contains("39\n… 952 lines are not shown …\n992\n"),
            "{shown}"
        );
        assert!(shown.ends_with("998\n999\n"), "{shown}");
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        let line = "é".repeat(LINE_MAX + 1);
        let shown = "é".repeat(LINE_MAX) + " …\n";
        assert_eq!(excerpt(&line), shown);
    }
}
