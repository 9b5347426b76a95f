//! What a script says, as far as it can be run.

use std::sync::Arc;

use base::{Error, Result};
use conch_parser::ast;
use conch_parser::lexer::Lexer;
use conch_parser::parse::DefaultParser;

/// Words of a shell's grammar that begin no command, which the parser takes for names of commands.
const MISPLACED: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];
/// What a shell does itself and this one does not: taken for the name of a command it would change what a script does.
const MISSING: [&str; 12] = [
    ".", "break", "cd", "continue", "eval", "exec", "local", "read", "return", "shift", "source",
    "trap",
];

/// What bash measures with `time` before it, and this parser takes for words.
const NOT_TIMED: [&str; 9] = ["{", "(", "!", "[[", "case", "for", "if", "until", "while"];

type ParsedWord = ast::TopLevelWord<String>;
type ParsedCommand = ast::TopLevelCommand<String>;
type ParsedRedirect = ast::Redirect<ParsedWord>;
type ParsedCompound = ast::CompoundCommandKind<String, ParsedWord, ParsedCommand>;
type ParsedSimple = ast::SimpleCommand<String, ParsedWord, ParsedRedirect>;

/// Commands in order.
pub(super) type List = Vec<Step>;

/// Commands that `&&` and `||` connect.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The line on which the outermost command begins that this is part of.
    pub(super) line: usize,
    pub(super) first: Node,
    /// Whether each runs if the last one succeeded, or if it failed.
    pub(super) rest: Vec<(bool, Node)>,
    /// `&`
    pub(super) is_job: bool,
}

/// A command.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// `!`
    Not(Box<Node>),
    /// `time`, and whether it has `-p`.
    Timed(bool, Box<Node>),
    Simple(Arc<Simple>),
    Compound(Arc<Compound>, Vec<Redirect>),
}

/// A name with arguments.
#[derive(Debug)]
pub(super) struct Simple {
    pub(super) assignments: Vec<(String, Word)>,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
}

impl Simple {
    /// Its first word, if that is plain text.
    fn name(&self) -> Option<&str> {
        match self.words.first().map(Vec::as_slice) {
            Some([Piece::Text(name)]) => Some(name),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Compound {
    Group(List),
    Subshell(List),
    Loop {
        /// The exit code of the guard with which it goes on: success, or failure.
        while_success: bool,
        guard: List,
        body: List,
    },
    If {
        branches: Vec<(List, List)>,
        otherwise: List,
    },
    For {
        name: String,
        words: Vec<Word>,
        body: List,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Redirect {
    pub(super) stream: usize,
    pub(super) how: How,
    pub(super) target: Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Read,
    Write,
    Append,
    /// The target is the number of a stream.
    Duplicate,
    /// The target is what is read.
    Here,
}

pub(super) type Word = Vec<Piece>;

/// A piece of a word.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(String),
    /// Text that makes a word even if it is empty.
    Quoted(String),
    /// The value is split into words unless it is quoted.
    Parameter {
        which: Parameter,
        is_quoted: bool,
    },
    /// `~`
    Home,
}

#[derive(Debug, Clone)]
pub(super) enum Parameter {
    Variable(String),
    Argument(usize),
    /// `$#`
    Arguments,
    /// `$?`
    Status,
    /// `$!`
    LastJob,
}

/// Reads a script.
///
/// # Errors
/// With its line, for what is not a script and for what cannot be run.
pub(super) fn parse(text: &str) -> Result<List> {
    let mut parser = DefaultParser::new(Lexer::new(text.chars()));
    let mut list = Vec::new();
    loop {
        parser.linebreak();
        let line = parser.pos().line;
        match parser.complete_command() {
            Ok(None) => return Ok(list),
            Ok(Some(command)) => list.push(step(&command, line)?),
            Err(error) => {
                let text = error.to_string();
                let text = match text.contains("line ") {
                    true => text,
                    false => format!("line {line}: {text}"),
                };
                return Err(Error::invalid(text));
            }
        }
    }
}

fn refused<T>(line: usize, what: &str) -> Result<T> {
    let text = format!("line {line}: {what} cannot be used here");
    Err(Error::invalid(text))
}

fn list(commands: &[ParsedCommand], line: usize) -> Result<List> {
    commands.iter().map(|command| step(command, line)).collect()
}

fn step(command: &ParsedCommand, line: usize) -> Result<Step> {
    let (list, is_job) = match &command.0 {
        ast::Command::Job(list) => (list, true),
        ast::Command::List(list) => (list, false),
    };
    let rest = list.rest.iter().map(|next| match next {
        ast::AndOr::And(next) => Ok((true, listable(next, line)?)),
        ast::AndOr::Or(next) => Ok((false, listable(next, line)?)),
    });
    Ok(Step {
        line,
        first: listable(&list.first, line)?,
        rest: rest.collect::<Result<_>>()?,
        is_job,
    })
}

fn listable(command: &ast::DefaultListableCommand, line: usize) -> Result<Node> {
    match command {
        ast::ListableCommand::Single(command) => node(command, line),
        ast::ListableCommand::Pipe(is_negated, commands) => {
            let [command] = &commands[..] else {
                return refused(line, "a pipe");
            };
            let node = node(command, line)?;
            Ok(match is_negated {
                true => Node::Not(Box::new(node)),
                false => node,
            })
        }
    }
}

fn node(command: &ast::DefaultPipeableCommand, line: usize) -> Result<Node> {
    match command {
        ast::PipeableCommand::Simple(command) => timed(simple(command, line)?, line),
        ast::PipeableCommand::Compound(command) => Ok(Node::Compound(
            Arc::new(compound(&command.kind, line)?),
            redirects(&command.io, line)?,
        )),
        ast::PipeableCommand::FunctionDef(..) => refused(line, "a function"),
    }
}

fn simple(command: &ParsedSimple, line: usize) -> Result<Simple> {
    let mut simple = Simple {
        assignments: Vec::new(),
        words: Vec::new(),
        redirects: Vec::new(),
    };
    for item in &command.redirects_or_env_vars {
        match item {
            ast::RedirectOrEnvVar::Redirect(item) => simple.redirects.push(redirect(item, line)?),
            ast::RedirectOrEnvVar::EnvVar(name, value) => {
                let value = value.as_ref().map(|value| word(value, line));
                let value = value.transpose()?.unwrap_or_default();
                simple.assignments.push((name.clone(), value));
            }
        }
    }
    for item in &command.redirects_or_cmd_words {
        match item {
            ast::RedirectOrCmdWord::Redirect(item) => simple.redirects.push(redirect(item, line)?),
            ast::RedirectOrCmdWord::CmdWord(item) => simple.words.push(word(item, line)?),
        }
    }
    Ok(simple)
}

/// A name with arguments, or that with `time` before it.
fn timed(mut simple: Simple, line: usize) -> Result<Node> {
    let name = simple.name().unwrap_or_default();
    if MISPLACED.contains(&name) || MISSING.contains(&name) {
        return refused(line, &format!("'{name}'"));
    }
    if name != "time" || !simple.assignments.is_empty() {
        return Ok(Node::Simple(Arc::new(simple)));
    }
    simple.words.remove(0);
    let mut is_posix = false;
    while let Some(option @ ("-p" | "--")) = simple.name() {
        is_posix |= option == "-p";
        let is_end = option == "--";
        simple.words.remove(0);
        if is_end {
            break;
        }
    }
    match simple.name() {
        None if simple.words.is_empty() => return refused(line, "'time' without a command"),
        Some(name) if NOT_TIMED.contains(&name) => {
            return refused(line, &format!("'time' before '{name}'"));
        }
        Some(name) if name.contains('=') => return refused(line, "'time' before an assignment"),
        _ => {}
    }
    Ok(Node::Timed(is_posix, Box::new(timed(simple, line)?)))
}

fn compound(kind: &ParsedCompound, line: usize) -> Result<Compound> {
    use ast::CompoundCommandKind as Kind;
    let looped = |pair: &ast::GuardBodyPair<ParsedCommand>, while_success| {
        Ok(Compound::Loop {
            while_success,
            guard: list(&pair.guard, line)?,
            body: list(&pair.body, line)?,
        })
    };
    match kind {
        Kind::Brace(commands) => Ok(Compound::Group(list(commands, line)?)),
        Kind::Subshell(commands) => Ok(Compound::Subshell(list(commands, line)?)),
        Kind::While(pair) => looped(pair, true),
        Kind::Until(pair) => looped(pair, false),
        Kind::If {
            conditionals,
            else_branch,
        } => {
            let branch = |pair: &ast::GuardBodyPair<ParsedCommand>| {
                Ok((list(&pair.guard, line)?, list(&pair.body, line)?))
            };
            Ok(Compound::If {
                branches: conditionals.iter().map(branch).collect::<Result<_>>()?,
                otherwise: list(else_branch.as_deref().unwrap_or_default(), line)?,
            })
        }
        Kind::For { words: None, .. } => refused(line, "'for' without 'in'"),
        Kind::For {
            var,
            words: Some(words),
            body,
        } => Ok(Compound::For {
            name: var.clone(),
            words: words
                .iter()
                .map(|each| word(each, line))
                .collect::<Result<_>>()?,
            body: list(body, line)?,
        }),
        Kind::Case { .. } => refused(line, "'case'"),
    }
}

fn redirects(parsed: &[ParsedRedirect], line: usize) -> Result<Vec<Redirect>> {
    parsed.iter().map(|each| redirect(each, line)).collect()
}

fn redirect(parsed: &ParsedRedirect, line: usize) -> Result<Redirect> {
    let (stream, how, target) = match parsed {
        ast::Redirect::Read(stream, target) => (stream.unwrap_or(0), How::Read, target),
        ast::Redirect::Write(stream, target) | ast::Redirect::Clobber(stream, target) => {
            (stream.unwrap_or(1), How::Write, target)
        }
        ast::Redirect::Append(stream, target) => (stream.unwrap_or(1), How::Append, target),
        ast::Redirect::DupRead(stream, target) => (stream.unwrap_or(0), How::Duplicate, target),
        ast::Redirect::DupWrite(stream, target) => (stream.unwrap_or(1), How::Duplicate, target),
        ast::Redirect::Heredoc(stream, target) => (stream.unwrap_or(0), How::Here, target),
        ast::Redirect::ReadWrite(..) => return refused(line, "'<>'"),
    };
    if stream > 2 {
        return refused(line, &format!("stream {stream}"));
    }
    Ok(Redirect {
        stream: stream.into(),
        how,
        target: word(target, line)?,
    })
}

fn word(parsed: &ParsedWord, line: usize) -> Result<Word> {
    let mut pieces = Vec::new();
    let parts = match &parsed.0 {
        ast::ComplexWord::Concat(parts) => &parts[..],
        ast::ComplexWord::Single(part) => std::slice::from_ref(part),
    };
    for part in parts {
        match part {
            ast::Word::Simple(part) => pieces.push(piece(part, false, line)?),
            ast::Word::SingleQuoted(text) => pieces.push(Piece::Quoted(text.clone())),
            ast::Word::DoubleQuoted(parts) => {
                pieces.push(Piece::Quoted(String::new()));
                for part in parts {
                    pieces.push(piece(part, true, line)?);
                }
            }
        }
    }
    Ok(pieces)
}

fn piece(part: &ast::DefaultSimpleWord, is_quoted: bool, line: usize) -> Result<Piece> {
    use ast::Parameter as Parsed;
    let text = |text: &str| match is_quoted {
        true => Piece::Quoted(text.to_owned()),
        false => Piece::Text(text.to_owned()),
    };
    let which = match part {
        ast::SimpleWord::Literal(literal) => return Ok(text(literal)),
        ast::SimpleWord::Escaped(escaped) => return Ok(Piece::Quoted(escaped.clone())),
        ast::SimpleWord::Star => return Ok(text("*")),
        ast::SimpleWord::Question => return Ok(text("?")),
        ast::SimpleWord::SquareOpen => return Ok(text("[")),
        ast::SimpleWord::SquareClose => return Ok(text("]")),
        ast::SimpleWord::Colon => return Ok(text(":")),
        ast::SimpleWord::Tilde if is_quoted => return Ok(text("~")),
        ast::SimpleWord::Tilde => return Ok(Piece::Home),
        ast::SimpleWord::Subst(_) => return refused(line, "'$(…)' or '${…}' with an operator"),
        ast::SimpleWord::Param(which) => which,
    };
    let which = match which {
        Parsed::Var(name) => Parameter::Variable(name.clone()),
        Parsed::Positional(number) => Parameter::Argument(*number as usize),
        Parsed::Pound => Parameter::Arguments,
        Parsed::Question => Parameter::Status,
        Parsed::Bang => Parameter::LastJob,
        Parsed::At | Parsed::Star | Parsed::Dash | Parsed::Dollar => {
            return refused(line, "'$@', '$*', '$-' and '$$'");
        }
    };
    Ok(Piece::Parameter { which, is_quoted })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn what_cannot_be_run_is_refused_with_its_line() {
        let cases = [
            (
                "true\n\n# a | b\nls | cat\n",
                "line 4: a pipe cannot be used here",
            ),
            ("f() { true; }", "line 1: a function cannot be used here"),
            (
                "\ncase x in y) ;; esac",
                "line 2: 'case' cannot be used here",
            ),
            (
                "echo $(ls)",
                "line 1: '$(…)' or '${…}' with an operator cannot be used here",
            ),
            (
                "echo ${x:-y}",
                "line 1: '$(…)' or '${…}' with an operator cannot be used here",
            ),
            (
                "echo \"$@\"",
                "line 1: '$@', '$*', '$-' and '$$' cannot be used here",
            ),
            (
                "for x; do true; done",
                "line 1: 'for' without 'in' cannot be used here",
            ),
            ("true; fi", "line 1: 'fi' cannot be used here"),
            (
                "while true; do\nbreak; done",
                "line 1: 'break' cannot be used here",
            ),
            ("true 3> x", "line 1: stream 3 cannot be used here"),
            (
                "true\ntime { ls; }",
                "line 2: 'time' before '{' cannot be used here",
            ),
            (
                "time -p if true; then ls; fi",
                "line 1: 'time' before 'if' cannot be used here",
            ),
            (
                "time A=1 ls",
                "line 1: 'time' before an assignment cannot be used here",
            ),
            ("time cd x", "line 1: 'cd' cannot be used here"),
            (
                "time",
                "line 1: 'time' without a command cannot be used here",
            ),
        ];
        for (script, expected) in cases {
            assert_eq!(parse(script).unwrap_err().to_string(), expected, "{script}");
        }
        for script in ["echo 'a", "if true; then", "a && || b", "true\n) x", "done"] {
            let error = parse(script).unwrap_err().to_string();
            assert!(error.contains("line "), "{script}: {error}");
        }
    }
}
