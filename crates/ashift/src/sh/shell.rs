//! Runs a script.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::{Context, Error, Result};
use service::Keeper;

use super::builtin;
use super::jobs::Jobs;
use super::script::{Compound, How, List, Node, Parameter, Piece, Redirect, Simple, Step, Word};
use crate::caller::{self, Caller, Client, STACK_BYTES, caller};
use crate::state::state_folder;
use crate::stopwatch::{Layout, Stopwatch};
use crate::world::{enter, entered};

/// Exit code for a command that there is not.
const NOT_FOUND: u8 = 127;

/// stdin, stdout, stderr
pub(super) type Streams = [Arc<OwnedFd>; 3];

/// Whether the script goes on, or ends with that exit code.
pub(super) type Flow = ControlFlow<u8>;

/// What a script has at some point of it.
#[derive(Clone)]
pub(super) struct Shell {
    /// `$0`, `$1`, …
    arguments: Vec<String>,
    variables: BTreeMap<String, OsString>,
    /// What commands get.
    environment: BTreeMap<OsString, OsString>,
    pub(super) status: u8,
    last_job: Option<u64>,
    /// `set -e`
    pub(super) ends_at_failure: bool,
    pub(super) line: usize,
    keeper: Option<Arc<Keeper>>,
    pub(super) jobs: Arc<Jobs>,
}

impl Shell {
    pub(super) fn new(
        arguments: Vec<String>,
        keeper: Option<Arc<Keeper>>,
        jobs: Arc<Jobs>,
    ) -> Shell {
        Shell {
            arguments,
            variables: BTreeMap::new(),
            environment: caller::environment(),
            status: 0,
            last_job: None,
            ends_at_failure: false,
            line: 1,
            keeper,
            jobs,
        }
    }

    /// Runs a script, and returns its exit code.
    pub(super) fn run(&mut self, script: &List, streams: &Streams) -> u8 {
        match self.run_list(script, streams, false) {
            Flow::Break(code) => code,
            Flow::Continue(()) => self.status,
        }
    }

    /// `is_asked`: whether it failed is asked for by what contains it, so that `set -e` does not count.
    fn run_list(&mut self, list: &List, streams: &Streams, is_asked: bool) -> Flow {
        for step in list {
            self.line = step.line;
            match step.is_job {
                true => self.start_job(step, streams),
                false => self.run_step(step, streams, is_asked)?,
            }
        }
        Flow::Continue(())
    }

    fn run_step(&mut self, step: &Step, streams: &Streams, is_asked: bool) -> Flow {
        let is_last = |at: usize| at == step.rest.len();
        self.run_node(&step.first, streams, is_asked || !is_last(0))?;
        for (at, (if_success, node)) in (1..).zip(&step.rest) {
            if *if_success == (self.status == 0) {
                self.run_node(node, streams, is_asked || !is_last(at))?;
            }
        }
        Flow::Continue(())
    }

    fn run_node(&mut self, node: &Node, streams: &Streams, is_asked: bool) -> Flow {
        caller::check();
        match node {
            Node::Not(node) => {
                self.run_node(node, streams, true)?;
                self.status = (self.status == 0).into();
                return Flow::Continue(());
            }
            Node::Timed(is_posix, node) => {
                let stopwatch = Stopwatch::start();
                let flow = self.run_node(node, streams, is_asked);
                let layout = Layout::of_host(*is_posix);
                print(&streams[2], &stopwatch.read().text(layout));
                return flow;
            }
            Node::Simple(simple) => self.run_simple(simple, streams)?,
            Node::Compound(compound, redirects) => {
                let Some(streams) = self.redirect(redirects, streams) else {
                    return self.after(is_asked);
                };
                return self.run_compound(compound, &streams, is_asked);
            }
        }
        self.after(is_asked)
    }

    /// Ends the script if its last command has failed, and that is to end it.
    fn after(&self, is_asked: bool) -> Flow {
        match self.status != 0 && self.ends_at_failure && !is_asked {
            true => Flow::Break(self.status),
            false => Flow::Continue(()),
        }
    }

    fn run_compound(&mut self, compound: &Compound, streams: &Streams, is_asked: bool) -> Flow {
        match compound {
            Compound::Group(list) => self.run_list(list, streams, is_asked),
            Compound::Subshell(list) => {
                let mut inner = self.clone();
                self.status = match inner.run_list(list, streams, is_asked) {
                    Flow::Break(code) => code,
                    Flow::Continue(()) => inner.status,
                };
                self.after(is_asked)
            }
            Compound::If {
                branches,
                otherwise,
            } => {
                for (guard, body) in branches {
                    self.run_list(guard, streams, true)?;
                    if self.status == 0 {
                        return self.run_list(body, streams, is_asked);
                    }
                }
                self.status = 0;
                self.run_list(otherwise, streams, is_asked)
            }
            Compound::Loop {
                while_success,
                guard,
                body,
            } => {
                let mut status = 0;
                loop {
                    self.run_list(guard, streams, true)?;
                    if *while_success != (self.status == 0) {
                        break;
                    }
                    self.run_list(body, streams, is_asked)?;
                    status = self.status;
                    // Others run meanwhile, also if this one never waits.
                    rt::yield_now();
                }
                self.status = status;
                Flow::Continue(())
            }
            Compound::For { name, words, body } => {
                let mut status = 0;
                for value in self.expand_all(words) {
                    self.set(name, value.into());
                    self.run_list(body, streams, is_asked)?;
                    status = self.status;
                }
                self.status = status;
                Flow::Continue(())
            }
        }
    }

    fn run_simple(&mut self, simple: &Simple, streams: &Streams) -> Flow {
        let words = self.expand_all(&simple.words);
        let assigned: Vec<(String, OsString)> = (simple.assignments.iter())
            .map(|(name, value)| (name.clone(), self.expand(value).into()))
            .collect();
        let Some(streams) = self.redirect(&simple.redirects, streams) else {
            return Flow::Continue(());
        };
        let words = match words.split_first() {
            Some((program, rest)) if program == "ashift" && !rest.is_empty() => rest,
            _ => &words[..],
        };
        let Some(name) = words.first() else {
            self.status = 0;
            for (name, value) in assigned {
                self.set(&name, value);
            }
            return Flow::Continue(());
        };
        if let Some(builtin) = builtin::find(name) {
            self.status = builtin(self, &words[1..], &streams)?;
        } else if crate::is_command(name) {
            self.run_command(words, assigned, &streams);
        } else {
            self.complain(&streams, &format!("{name}: not found"));
            self.status = NOT_FOUND;
        }
        Flow::Continue(())
    }

    fn run_command(
        &mut self,
        words: &[String],
        assigned: Vec<(String, OsString)>,
        streams: &Streams,
    ) {
        let mut environment = self.environment.clone();
        environment.extend(
            assigned
                .into_iter()
                .map(|(name, value)| (name.into(), value)),
        );
        self.status = match self.caller(streams, environment) {
            Ok(caller) => caller::run(&caller, || crate::run_for_client(words)),
            Err(error) => {
                self.complain(streams, &error.to_string());
                1
            }
        };
        // What ended the command may be the end of the whole script.
        caller::check();
    }

    /// The caller of a part of the script.
    fn caller(
        &self,
        streams: &Streams,
        environment: BTreeMap<OsString, OsString>,
    ) -> Result<Arc<Caller>> {
        let [input, out, err] = streams;
        let outer = caller();
        Ok(outer.within(Client {
            streams: [input.try_clone()?, out.try_clone()?, err.try_clone()?],
            environment,
            state: state_folder(),
            machine: outer.machine(),
            keeper: self.keeper.clone(),
        })?)
    }

    /// Starts what is run beside the script.
    fn start_job(&mut self, step: &Step, streams: &Streams) {
        let null = File::open("/dev/null").map(OwnedFd::from);
        let caller = null.map_err(Error::from).and_then(|null| {
            let streams = [
                Arc::new(null),
                Arc::clone(&streams[1]),
                Arc::clone(&streams[2]),
            ];
            Ok((self.caller(&streams, self.environment.clone())?, streams))
        });
        let (caller, own) = match caller {
            Ok(started) => started,
            Err(error) => {
                self.complain(streams, &error.to_string());
                self.status = 1;
                return;
            }
        };
        let (mut inner, step, world) = (self.clone(), step.clone(), entered());
        let run = move || {
            caller::run(&caller, || {
                enter(&world, |_| match inner.run_step(&step, &own, false) {
                    Flow::Break(code) => code,
                    Flow::Continue(()) => inner.status,
                })
            })
        };
        let job = rt::spawn_with_stack("job", STACK_BYTES, run);
        self.last_job = Some(self.jobs.add(job));
        self.status = 0;
    }

    /// The streams with redirections; `None`, with the status 1, if one of them is not possible.
    fn redirect(&mut self, redirects: &[Redirect], streams: &Streams) -> Option<Streams> {
        let mut streams = streams.clone();
        for redirect in redirects {
            let target = self.expand(&redirect.target);
            match open(redirect.how, &target, &streams) {
                Ok(stream) => streams[redirect.stream] = stream,
                Err(error) => {
                    self.complain(&streams, &error.to_string());
                    self.status = 1;
                    return None;
                }
            }
        }
        Some(streams)
    }

    /// Says on stderr what is wrong.
    pub(super) fn complain(&self, streams: &Streams, what: &str) {
        let text = format!("{}: line {}: {what}\n", self.arguments[0], self.line);
        print(&streams[2], &text);
    }

    pub(super) fn set(&mut self, name: &str, value: OsString) {
        match self.environment.get_mut(OsStr::new(name)) {
            Some(exported) => *exported = value,
            None => drop(self.variables.insert(name.to_owned(), value)),
        }
    }

    pub(super) fn unset(&mut self, name: &str) {
        self.environment.remove(OsStr::new(name));
        self.variables.remove(name);
    }

    /// From now on commands get it.
    pub(super) fn export(&mut self, name: &str, value: Option<OsString>) {
        let known = self.variables.remove(name);
        if let Some(value) = value.or(known) {
            self.environment.insert(name.into(), value);
        }
    }

    fn expand_all(&self, words: &[Word]) -> Vec<String> {
        words.iter().flat_map(|word| self.fields(word)).collect()
    }

    /// A word as it is.
    fn expand(&self, word: &Word) -> String {
        word.iter().map(|piece| self.text(piece)).collect()
    }

    /// The words that a word makes: values that are not quoted are split at blanks, and may be nothing.
    fn fields(&self, word: &Word) -> Vec<String> {
        let mut fields = Vec::new();
        let mut field: Option<String> = None;
        for piece in word {
            let text = self.text(piece);
            if !matches!(
                piece,
                Piece::Parameter {
                    is_quoted: false,
                    ..
                }
            ) {
                field.get_or_insert_default().push_str(&text);
                continue;
            }
            let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n');
            for (at, part) in text.split(is_blank).enumerate() {
                if at > 0 {
                    fields.extend(field.take());
                }
                if !part.is_empty() {
                    field.get_or_insert_default().push_str(part);
                }
            }
        }
        fields.extend(field);
        fields
    }

    fn text(&self, piece: &Piece) -> String {
        let which = match piece {
            Piece::Text(text) | Piece::Quoted(text) => return text.clone(),
            Piece::Home => return self.variable("HOME").unwrap_or_else(|| "~".to_owned()),
            Piece::Parameter { which, .. } => which,
        };
        match which {
            Parameter::Variable(name) => self.variable(name).unwrap_or_default(),
            Parameter::Argument(number) => self.arguments.get(*number).cloned().unwrap_or_default(),
            Parameter::Arguments => (self.arguments.len() - 1).to_string(),
            Parameter::Status => self.status.to_string(),
            Parameter::LastJob => self
                .last_job
                .map_or_else(String::new, |job| job.to_string()),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        let exported = self.environment.get(OsStr::new(name));
        let value = exported.or_else(|| self.variables.get(name))?;
        Some(value.to_string_lossy().into_owned())
    }
}

/// Opens what a stream is redirected to.
fn open(how: How, target: &str, streams: &Streams) -> Result<Arc<OwnedFd>> {
    let opened = match how {
        How::Duplicate => {
            let stream: Option<usize> = target.parse().ok();
            let stream = stream.and_then(|stream| streams.get(stream));
            let bad = || Error::invalid(format!("{target}: bad file descriptor"));
            return stream.cloned().ok_or_else(bad);
        }
        How::Here => tempfile::tempfile().and_then(|mut file| {
            file.write_all(target.as_bytes())?;
            file.rewind()?;
            Ok(file)
        }),
        How::Read => File::open(target),
        How::Write => File::create(target),
        How::Append => File::options().append(true).create(true).open(target),
    };
    let opened = opened.map_err(Error::from);
    let opened = opened.within(|| match how {
        How::Here => "a text in the script".to_owned(),
        _ => target.to_owned(),
    });
    Ok(Arc::new(opened?.into()))
}

/// Prints to a stream; returns whether it could.
pub(super) fn print(stream: &Arc<OwnedFd>, text: &str) -> bool {
    let file = stream.try_clone().map(File::from);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .is_ok()
}
