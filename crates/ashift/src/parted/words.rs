//! Words: splitting lines, recognising what was cut short, and folding texts to the width of a terminal.

/// Words of a line; quotes keep blanks.
pub(super) fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_word = false;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), '\\') => word.push(chars.next().unwrap_or('\\')),
            (None, '"' | '\'') => {
                quote = Some(c);
                is_word = true;
            }
            (None, c) if c.is_ascii_whitespace() => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// A line as one word: the blanks around it are dropped, and quotes.
pub(super) fn split_line(text: &str) -> String {
    text.trim().replace(['"', '\''], "")
}

/// The choice of that name, in any case, or the only one that begins so.
pub(super) fn choose<'a>(choices: &[&'a str], word: &str) -> Option<&'a str> {
    let exact = choices.iter().find(|c| c.eq_ignore_ascii_case(word));
    if exact.is_some() || word.is_empty() {
        return exact.copied();
    }
    let mut all = choices.iter().filter(|c| begins(c, word));
    let first = all.next()?;
    all.next().is_none().then_some(*first)
}

/// The choices that begin so.
pub(super) fn choices_for(choices: &[String], word: &str) -> Vec<String> {
    let begin = choices.iter().filter(|c| begins(c, word));
    begin.cloned().collect()
}

fn begins(choice: &str, word: &str) -> bool {
    let head = choice.get(..word.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(word))
}

/// Breaks lines at blanks. `offset`: columns used of the first line; `indent`: of each further one.
pub(super) fn fold(text: &str, columns: usize, offset: usize, indent: usize) -> String {
    let mut folded = String::new();
    let mut used = offset;
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            used = indent;
        }
        let mut rest = line;
        loop {
            let room = columns.saturating_sub(used);
            let Some(cut) = cut(rest, room) else { break };
            folded.push_str(rest[..cut].trim_end_matches(' '));
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            rest = rest[cut..].trim_start_matches(' ');
            used = indent;
        }
        folded.push_str(rest);
    }
    folded
}

/// Where a line that is longer than there is room breaks: at the last blank that fits, or else the first one.
fn cut(line: &str, room: usize) -> Option<usize> {
    if line.chars().count() <= room {
        return None;
    }
    let head = line.len() - line.trim_start_matches(' ').len();
    let blanks = line.char_indices().enumerate();
    let blanks = blanks.filter(|(_, (at, c))| *c == ' ' && *at > head);
    let mut blanks = blanks.map(|(column, (at, _))| (column, at));
    let first = blanks.next()?;
    let last = blanks.take_while(|(column, _)| *column <= room).last();
    last.or(Some(first)).map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_by_parted() {
        let check = |text: &str, expect: &[&str]| assert_eq!(split_words(text), expect, "{text}");
        check("mkpart x 0% 50%", &["mkpart", "x", "0%", "50%"]);
        check("'a b' c", &["a b", "c"]);
        check("\"hello world\"", &["hello world"]);
        check("  ", &[]);
        check("''", &[""]);
        check("a'b c'd", &["ab cd"]);
        check("it's", &["its"]);
        check(r#""a \" b""#, &["a \" b"]);
        assert_eq!(split_line("  hello  world "), "hello  world");
    }

    #[test]
    fn names_may_be_cut_short_while_one_is_meant() {
        let choices = ["mklabel", "mkpart", "set", "select", "resize", "resizepart"];
        let check = |word: &str, expect| assert_eq!(choose(&choices, word), expect, "{word}");
        check("mkp", Some("mkpart"));
        check("MKL", Some("mklabel"));
        check("mk", None);
        check("set", Some("set"));
        check("resize", Some("resize"));
        check("resizep", Some("resizepart"));
        check("", None);
        check("größe", None);
    }

    #[test]
    fn long_texts_are_folded_at_blanks() {
        let text = "one two three\nfour five";
        assert_eq!(fold(text, 8, 0, 0), "one two\nthree\nfour\nfive");
        assert_eq!(fold(text, 13, 0, 0), "one two three\nfour five");
        assert_eq!(fold("one two", 7, 2, 3), "one\n   two");
        assert_eq!(fold("unbreakable", 4, 0, 0), "unbreakable");
        assert_eq!(fold("", 4, 0, 0), "");
    }
}
