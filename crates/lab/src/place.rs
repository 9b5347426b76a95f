//! Positions in a file, for error messages.

/// The 1-based line and column of a byte offset.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = 1 + before.iter().filter(|b| **b == b'\n').count();
    let start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    (line, 1 + before.len() - start)
}

#[cfg(test)]
mod tests {
    use super::line_and_column;

    #[test]
    fn lines_and_columns_count_from_one() {
        let text = "ab\nc\n";
        let places: Vec<_> = (0..6).map(|at| line_and_column(text, at)).collect();
        assert_eq!(places, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]);
    }
}
