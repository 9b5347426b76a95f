//! Plain English: comments, messages and documents do without the phrases that STYLE.md lists, and items without the
//! names.

use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use syn::Item;
use syn::visit::{self, Visit};

use super::{Breach, Source};

/// What STYLE.md bans.
pub(super) struct Banned {
    phrases: Vec<Phrase>,
    names: Vec<String>,
}

/// A phrase not to use.
struct Phrase {
    words: Vec<String>,
    /// Longer phrases that contain it and may be used.
    exceptions: Vec<Vec<String>>,
    instead: String,
}

/// A word of a text, in lower case, or one character that ends a phrase.
struct Word {
    text: String,
    line: usize,
}

impl Banned {
    /// Reads the section "Plain English": the rows ``| `phrase`, `phrase` (but `longer phrase`) | what to write |``,
    /// and the line that begins with "Not a name:".
    pub(super) fn parse(style: &str) -> Result<Banned, String> {
        let section = style.split("\n## Plain English\n").nth(1);
        let section = section.ok_or("STYLE.md has no section \"Plain English\"")?;
        let section = section.split("\n## ").next().unwrap_or(section);
        let mut phrases = Vec::new();
        let mut names = Vec::new();
        for line in section.lines() {
            if let Some(list) = line.strip_prefix("Not a name:") {
                names.extend(quoted(list));
            } else if let Some(row) = line.strip_prefix("| ")
                && let Some((what, instead)) = row.split_once(" | ")
            {
                phrases.extend(Phrase::parse_row(what, instead));
            }
        }
        if phrases.is_empty() || names.is_empty() {
            return Err("STYLE.md bans no words under \"Plain English\"".to_owned());
        }
        Ok(Banned { phrases, names })
    }

    /// The breaches in the lines of a text, which are numbered.
    fn find(&self, path: &str, lines: &[(usize, String)]) -> Vec<Breach> {
        let words = words(lines);
        let mut breaches = Vec::new();
        for at in 0..words.len() {
            for phrase in self.phrases.iter().filter(|p| p.is_at(&words, at)) {
                let message = format!("\"{}\": write {}", phrase.words.join(" "), phrase.instead);
                breaches.push(Breach::new(path, words[at].line, message));
            }
        }
        breaches
    }
}

impl Phrase {
    fn parse_row(what: &str, instead: &str) -> Vec<Phrase> {
        let split = |phrase: String| phrase.split(' ').map(str::to_lowercase).collect();
        let (phrases, exceptions) = what.split_once("(but ").unwrap_or((what, ""));
        let exceptions: Vec<Vec<String>> = quoted(exceptions).into_iter().map(split).collect();
        let instead = instead.trim_end_matches('|').trim();
        let phrase = |phrase| Phrase {
            words: split(phrase),
            exceptions: exceptions.clone(),
            instead: instead.to_owned(),
        };
        quoted(phrases).into_iter().map(phrase).collect()
    }

    /// Whether the words at `at` are the phrase, and not a part of an exception.
    fn is_at(&self, words: &[Word], at: usize) -> bool {
        let starts_with = |start: usize, phrase: &[String]| {
            let words = &words[start..];
            words.len() >= phrase.len() && words.iter().zip(phrase).all(|(w, p)| w.text == *p)
        };
        let is_exception = |exception: &Vec<String>| {
            let first = at.saturating_sub(exception.len() - 1);
            (first..=at).any(|start| starts_with(start, exception))
        };
        starts_with(at, &self.words) && !self.exceptions.iter().any(is_exception)
    }
}

/// The parts of a text in backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The words of a text, without the parts in backticks. A blank line or a gap between lines ends a phrase, too.
fn words(lines: &[(usize, String)]) -> Vec<Word> {
    let mut words = Vec::new();
    let mut last = 0;
    let mut is_code_block = false;
    for (line, text) in lines {
        let stop = |words: &mut Vec<Word>| {
            words.push(Word {
                text: ".".to_owned(),
                line: *line,
            });
        };
        if *line > last + 1 || text.trim().is_empty() {
            stop(&mut words);
        }
        last = *line;
        if text.trim_start().starts_with("```") {
            is_code_block = !is_code_block;
        }
        if is_code_block {
            continue;
        }
        for (at, part) in text.split('`').enumerate() {
            if at % 2 == 1 {
                stop(&mut words);
                continue;
            }
            let mut rest = part;
            while let Some(first) = rest.chars().next() {
                let is_word = |c: char| c.is_alphanumeric() || c == '\'' || c == '_';
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                let end = end.max(first.len_utf8());
                let (word, tail) = rest.split_at(end);
                if !word.trim().is_empty() {
                    let text = word.to_lowercase();
                    words.push(Word { text, line: *line });
                }
                rest = tail;
            }
        }
    }
    words
}

/// The breaches in the comments, the messages and the names of a source. Messages and names of tests may be what they
/// like.
pub(super) fn check(source: &Source, banned: &Banned) -> Vec<Breach> {
    let mut texts = Texts::default();
    texts.read(source.tokens(), &source.text);
    texts.comments.sort();
    let mut breaches = banned.find(&source.path, &texts.comments);
    let tests = source.test_lines();
    let is_test =
        |line: usize| source.is_test || tests.iter().any(|(a, b)| (*a..=*b).contains(&line));
    for (line, text) in texts
        .messages
        .into_iter()
        .filter(|(line, _)| !is_test(*line))
    {
        breaches.extend(banned.find(&source.path, &[(line, text)]));
    }
    let mut names = Names {
        banned: &banned.names,
        found: Vec::new(),
    };
    for item in source.production() {
        names.visit_item(&item);
    }
    let breach = |(line, name)| {
        Breach::new(
            &source.path,
            line,
            format!("`{name}` says nothing: name what it is"),
        )
    };
    breaches.extend(names.found.into_iter().map(breach));
    breaches
}

/// The breaches in a Markdown document.
pub(super) fn check_document(path: &str, text: &str, banned: &Banned) -> Vec<Breach> {
    let lines: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect();
    banned.find(path, &lines)
}

/// What a source says to people, by line.
#[derive(Default)]
struct Texts {
    comments: Vec<(usize, String)>,
    messages: Vec<(usize, String)>,
}

impl Texts {
    /// Comments are what lies between tokens, and what documentation says.
    fn read(&mut self, tokens: TokenStream, text: &str) {
        let mut end = 0;
        self.read_tokens(tokens, text, &mut end);
        self.read_gap(text, end, text.len());
    }

    fn read_tokens(&mut self, tokens: TokenStream, text: &str, end: &mut usize) {
        let mut is_doc = false;
        for token in tokens {
            let range = match &token {
                TokenTree::Group(group) => group.span_open().byte_range(),
                other => other.span().byte_range(),
            };
            self.read_gap(text, *end, range.start);
            *end = range.end.max(*end);
            match token {
                TokenTree::Group(group) => {
                    self.read_tokens(group.stream(), text, end);
                    let close = group.span_close().byte_range();
                    self.read_gap(text, *end, close.start);
                    *end = close.end.max(*end);
                }
                TokenTree::Ident(ident) => is_doc = ident == "doc",
                TokenTree::Literal(literal) => self.read_literal(&literal, is_doc),
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn read_literal(&mut self, literal: &Literal, is_doc: bool) {
        let written = literal.to_string();
        let line = literal.span().start().line;
        if is_doc {
            if let Ok(text) = syn::parse_str::<syn::LitStr>(&written) {
                let lines = text.value();
                let lines = lines.split('\n').enumerate();
                self.comments
                    .extend(lines.map(|(at, text)| (line + at, text.to_owned())));
            }
        } else if written.contains('"') {
            self.messages.push((line, written.replace("\\n", "\n.")));
        }
    }

    fn read_gap(&mut self, text: &str, start: usize, end: usize) {
        let gap = text.get(start..end).unwrap_or("");
        if !gap.contains("//") && !gap.contains("/*") {
            return;
        }
        let first = text[..start].matches('\n').count() + 1;
        for (at, line) in gap.split('\n').enumerate() {
            let line = line.trim_start();
            if !line.is_empty() {
                let words = line.trim_start_matches(['/', '*', '!']);
                self.comments.push((first + at, words.to_owned()));
            }
        }
    }
}

/// Items whose names are banned.
struct Names<'a> {
    banned: &'a [String],
    found: Vec<(usize, String)>,
}

impl Names<'_> {
    fn look(&mut self, ident: &Ident) {
        if self.banned.iter().any(|name| ident == name) {
            self.found
                .push((ident.span().start().line, ident.to_string()));
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(i) => self.look(&i.ident),
            Item::Enum(i) => self.look(&i.ident),
            Item::Trait(i) => self.look(&i.ident),
            Item::Type(i) => self.look(&i.ident),
            Item::Mod(i) => self.look(&i.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.look(&signature.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: &str = "# S\n\n## Plain English\n| instead of | write |\n|---|---|\n| `somebody`, `thought up` | who it is |\n\
                         | `is no` (but `there is no`, `is no longer`) | \"is not a\" |\n\nNot a name: `Inner`, `judge`.\n";

    fn breaches(text: &str) -> Vec<(usize, String)> {
        let source = Source::parse("crates/a/src/lib.rs", &[], false, text).unwrap();
        let found = check(&source, &Banned::parse(STYLE).unwrap());
        found.into_iter().map(|b| (b.line, b.message)).collect()
    }

    #[track_caller]
    fn offends(text: &str, lines: &[usize]) {
        let found: Vec<usize> = breaches(text).into_iter().map(|b| b.0).collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn comments_of_every_kind_are_read() {
        offends("//! Somebody\nfn f() {}", &[1]);
        offends("/// is\n/// no file\nfn f() {}", &[1]);
        offends("fn f() {\n    // x was thought\n    // up\n}", &[2]);
        offends(
            "fn f() {\n    g(); // somebody\n}\n/* somebody */\n",
            &[2, 4],
        );
        offends("fn f() {}\n// somebody", &[2]);
        offends("#[doc = \"somebody\"]\nfn f() {}", &[1]);
    }

    #[test]
    fn messages_are_read_except_those_of_tests() {
        offends("fn f() {\n    g(\"x is no file\");\n}", &[2]);
        offends("fn f() { assert!(a, \"somebody {a}\"); }", &[1]);
        offends(
            "#[cfg(test)]\nmod tests {\n    fn f() { g(\"somebody\"); }\n}",
            &[],
        );
    }

    #[test]
    fn exceptions_and_code_pass() {
        offends(
            "// There is no file, it is no longer there. What it is. No, is `no` file; `somebody`.\n",
            &[],
        );
        offends("/// ```\n/// somebody\n/// ```\nfn somebody() {}", &[]);
        offends("// is\n\n// no\n", &[]);
    }

    #[test]
    fn banned_names_offend() {
        offends(
            "struct Inner;\nfn judge() {}\nimpl S {\n    fn judge(&self) {}\n}\nmod Inner {}",
            &[1, 2, 4, 6],
        );
        offends(
            "struct InnerDnode;\nfn f() { let judge = Inner; }\n#[cfg(test)]\nstruct Inner;",
            &[],
        );
    }

    #[test]
    fn documents_are_read_without_their_code() {
        let banned = Banned::parse(STYLE).unwrap();
        let found = check_document(
            "a.md",
            "A\n```\nsomebody\n```\nsomebody `somebody`\n",
            &banned,
        );
        assert_eq!(found.iter().map(|b| b.line).collect::<Vec<_>>(), [5]);
        assert_eq!(check_document("STYLE.md", STYLE, &banned), []);
    }

    #[test]
    fn a_breach_says_what_to_write() {
        assert_eq!(
            breaches("// somebody\n"),
            [(1, "\"somebody\": write who it is".to_owned())]
        );
    }
}
