//! Experiment files: their contents, and checking them before anything runs.
//!
//! # What it is
//! ```toml
//! title = "What it shows"
//! about = "Why one would care."
//! seed = 1
//! host = "freebsd-9"                # host profile whose processor time is charged; `none`: free; at
//!                                   # another clock: "freebsd-9@{ghz}GHz"
//! memory = "8G"                     # of the machines, if caches are to be as large as theirs were
//! answers = true                    # what the commands say is a result: it is shown without being opened
//! trace = "bonnie-on-ext4"          # a block trace that comes along: beside the machines as bonnie-on-ext4.log.gz
//!
//! [source]                          # left out for predictions
//! title = "A write-up"
//! about = "its author, system and drives"
//!
//! [parameters]                      # values that --set and --sweep replace
//! drive = "wd30ezrx"
//!
//! [[assumption]]                    # what is not physics of the drives, for the report
//! about = "the clock of the cores"
//! parameter = "ghz"                 # `--sensitivity` runs all again at half and at twice its value
//!
//! [files]                           # made in a folder `files` beside the machines, of random bytes
//! one_in = "{one_in}"               # so much fewer of each kind
//! per_folder = 100
//! kinds = [{ count = 725, bytes = [8192, 32768] }]
//!
//! [required]                        # values that must be given, and what they are
//! data = "a directory of your own: --data DIR"
//!
//! [sweep]                           # every combination of these
//! ashift = [9, 12]
//!
//! [drives]                          # of the machine that each case starts with
//! ada0 = "{drive}"
//!
//! [[case]]
//! name = "plain"
//! title = "As it comes"
//! commands = '''
//! zpool create -o ashift={ashift} tank ada0
//! dd if=/dev/zero of=/tank/test bs=1m count=1000
//! '''
//! published = { rate = 11.36 }      # by the names of readings
//!
//! [[reading]]
//! name = "rate"                     # may contain named groups of the pattern: "{size}@{offset}"
//! title = "dd"
//! unit = "MB/s"
//! command = "dd"                    # the last command of a case that begins with these words
//! pattern = '\((?<value>\d+) bytes/sec\)'
//! scale = 1e-6
//! tolerance_percent = 20            # of the published figure
//!
//! [[histogram]]                     # for the report: a bar for each line that matches
//! title = "how long commands took"
//! command = "replay"
//! pattern = '^less than (?<label>\S+ \S+) *(?<value>\d+)'
//!
//! [[ratio]]
//! reading = "rate"
//! of = "tuned"                      # cases
//! to = "plain"
//! published = 5.51
//! tolerance_percent = 15
//! ```
//! `combine = "harmonic_mean"` (or `least`, `largest`) makes one figure of all lines that match, of all commands that
//! begin with these words; else the last counts. `per = "cp"` divides by the seconds of that command.
//! `busy = "processor"` (or `drive`) instead of a pattern reads how much of the command's time, in percent, the
//! host's cores, or the arm of the busiest disk, were busy. `seconds = true` instead of a pattern reads the simulated
//! time of the command;
//! `drives = "partial_writes"` (or `writes`, `written_bytes`, `reads`, `read_bytes`) instead of a
//! command reads the sum of that counter over all drives. With a `-` before a command the case
//! continues if it fails, and with `> /dev/null` behind it nobody reads what it prints. `{name*}` expands to as many
//! words as the value has.

use std::collections::{BTreeMap, BTreeSet};

use base::{Error, Result};
use serde::Deserialize;
use toml::Spanned;

use crate::parameters::{Parameters, Scalar, Sweep};
use crate::place::line_and_column;
use crate::recommend::Recommend;

/// The source of the published figures.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its title, as a reader would look it up.
    pub title: String,
    /// Author, year, system.
    pub about: String,
}

/// One command of a case, as written, before parameters are substituted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Its words, with `{parameters}`.
    pub words: Vec<String>,
    /// Its line in the file, from 1.
    pub line: usize,
    /// It is written with a `-` before it: the case continues if it fails.
    pub may_fail: bool,
}

/// A sequence of commands on a fresh machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name in ratios and `--case`.
    pub name: String,
    /// The title to show.
    pub title: String,
    /// Its commands.
    pub commands: Vec<CommandLine>,
    /// Published figures by the name of the reading.
    pub published: BTreeMap<String, f64>,
}

/// A counter of the drives.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Writes.
    Writes,
    /// Bytes written.
    WrittenBytes,
    /// Writes that begin or end inside a physical sector.
    PartialWrites,
    /// Reads.
    Reads,
    /// Bytes read.
    ReadBytes,
}

/// How one figure is made of several lines.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// The rate over all parts, of the rates of parts of one size.
    HarmonicMean,
    /// The least.
    Least,
    /// The largest.
    Largest,
}

/// What may be busy while a command runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// All cores of the host.
    Processor,
    /// The mechanics of the busiest disk.
    Drive,
}

/// What is assumed, and not physics of a drive.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// What it is, and why.
    pub about: String,
    /// The parameter that has its value.
    #[serde(default)]
    pub parameter: Option<String>,
}

/// Files made for an experiment.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// A number, or a parameter: of so many files of each kind one is made.
    pub one_in: String,
    /// So many are in a folder.
    pub per_folder: usize,
    /// Their kinds.
    pub kinds: Vec<FileKind>,
}

/// Files of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct FileKind {
    /// How many there are.
    pub count: usize,
    /// The least and the largest size of one; all sizes between are as likely.
    pub bytes: [u64; 2],
}

/// How a figure is read.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Its name in `published`; may contain groups of the pattern in braces.
    pub name: String,
    /// The title to show.
    #[serde(default)]
    pub title: String,
    /// Its unit.
    #[serde(default)]
    pub unit: String,
    /// The first words of the command; the last such command of a case is read.
    #[serde(default)]
    pub command: String,
    /// A regular expression with a group `value`, matched line by line; a group `minus` is
    /// subtracted from it.
    #[serde(default)]
    pub pattern: Option<String>,
    /// The simulated time of the command, in seconds, is the figure.
    #[serde(default)]
    pub seconds: bool,
    /// How busy this was while the command ran, in percent, is the figure.
    #[serde(default)]
    pub busy: Option<Part>,
    /// How one figure is made of several lines; the last counts if it is not said.
    #[serde(default)]
    pub combine: Option<Combine>,
    /// What is read is divided by the seconds of the last command that begins with these words.
    #[serde(default)]
    pub per: Option<String>,
    /// The sum of this counter over all drives is the figure.
    #[serde(default)]
    pub drives: Option<Count>,
    /// A factor for the figure.
    #[serde(default = "one")]
    pub scale: f64,
    /// The largest deviation from a published figure, in percent of that.
    #[serde(default)]
    pub tolerance_percent: Option<f64>,
    /// The largest root mean square of all its deviations, in percent.
    #[serde(default)]
    pub rms_tolerance_percent: Option<f64>,
    /// Whether the report has a bar chart of it.
    #[serde(default = "yes")]
    pub chart: bool,
    /// The cases that it is read in; all if empty.
    #[serde(default)]
    pub cases: Vec<String>,
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

impl Reading {
    /// The title to show.
    #[must_use]
    pub fn heading(&self) -> &str {
        if self.title.is_empty() {
            &self.name
        } else {
            &self.title
        }
    }

    /// Whether a case has it.
    #[must_use]
    pub fn is_of(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|name| name == case)
    }
}

/// A histogram, read from the output of a command.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// The title to show.
    pub title: String,
    /// The first words of the command; the last such command of a case is read.
    pub command: String,
    /// A regular expression with groups `label` and `value`, a whole number, matched line by line.
    pub pattern: String,
}

/// A figure of one case divided by that of another.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Which reading.
    pub reading: String,
    /// The case of the numerator.
    pub of: String,
    /// The case of the denominator; with `to_reading` it may be the same case.
    pub to: String,
    /// The reading of the denominator, if it is another one.
    #[serde(default)]
    pub to_reading: Option<String>,
    /// The published ratio.
    #[serde(default)]
    pub published: Option<f64>,
    /// The largest deviation from that, in percent of it.
    #[serde(default)]
    pub tolerance_percent: Option<f64>,
}

/// A published or measured figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The reading's name.
    pub name: String,
    /// In the reading's unit.
    pub value: f64,
}

/// An experiment, parsed and checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: String,
    /// Where it was read from, for errors.
    pub path: String,
    /// What it shows.
    pub title: String,
    /// Why it matters.
    pub about: String,
    /// Where the published figures come from; predictions have none.
    pub source: Option<Source>,
    /// Seeds all randomness.
    pub seed: u64,
    /// The profile of the host whose processor time is charged; may have parameters.
    pub host: String,
    /// Files that are made for it.
    pub files: Option<Files>,
    /// A block trace that comes along, which its commands use.
    pub trace: Option<String>,
    /// What is assumed.
    pub assumptions: Vec<Assumption>,
    /// The memory of the machines, if that is a figure of them.
    pub memory: Option<String>,
    /// Whether what the commands say is a result, besides figures.
    pub answers: bool,
    /// Values that can be set, with their defaults.
    pub parameters: Parameters,
    /// Values that must be given, and what they are.
    pub required: BTreeMap<String, String>,
    /// What is swept by default.
    pub sweep: Sweep,
    /// Drives of each machine: name and profile.
    pub drives: BTreeMap<String, String>,
    /// The cases to run.
    pub cases: Vec<Case>,
    /// The figures to read.
    pub readings: Vec<Reading>,
    /// The histograms to draw.
    pub histograms: Vec<Histogram>,
    /// The ratios to compute.
    pub ratios: Vec<Ratio>,
    /// How the best configuration is chosen.
    pub recommend: Option<Recommend>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    source: Option<Source>,
    #[serde(default = "default_seed")]
    seed: u64,
    #[serde(default = "no_host")]
    host: String,
    #[serde(default)]
    memory: Option<String>,
    #[serde(default)]
    answers: bool,
    #[serde(default)]
    parameters: BTreeMap<String, Scalar>,
    #[serde(default)]
    assumption: Vec<Assumption>,
    #[serde(default)]
    files: Option<Files>,
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    required: BTreeMap<String, String>,
    #[serde(default)]
    sweep: BTreeMap<String, Vec<Scalar>>,
    drives: BTreeMap<String, String>,
    case: Vec<CaseEntry>,
    #[serde(default)]
    reading: Vec<Reading>,
    #[serde(default)]
    histogram: Vec<Histogram>,
    #[serde(default)]
    ratio: Vec<Ratio>,
    #[serde(default)]
    recommend: Option<Recommend>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseEntry {
    name: String,
    #[serde(default)]
    title: String,
    commands: Spanned<String>,
    #[serde(default)]
    published: BTreeMap<String, f64>,
}

fn default_seed() -> u64 {
    1
}

fn no_host() -> String {
    "none".into()
}

/// The built-in experiments: name and text.
const BUILTIN: &[(&str, &str)] = &[
    (
        "zfs-on-512e-mirror",
        include_str!("../experiments/zfs-on-512e-mirror.toml"),
    ),
    ("phybs-512e", include_str!("../experiments/phybs-512e.toml")),
    ("alignment", include_str!("../experiments/alignment.toml")),
    (
        "alignment-on-ext4",
        include_str!("../experiments/alignment-on-ext4.toml"),
    ),
    (
        "bonnie-on-512e",
        include_str!("../experiments/bonnie-on-512e.toml"),
    ),
    (
        "diskmark-wd160edgz",
        include_str!("../experiments/diskmark-wd160edgz.toml"),
    ),
    (
        "zero-fill-wd160edgz",
        include_str!("../experiments/zero-fill-wd160edgz.toml"),
    ),
    ("usb-bridge", include_str!("../experiments/usb-bridge.toml")),
    (
        "compression",
        include_str!("../experiments/compression.toml"),
    ),
    (
        "special-vdev",
        include_str!("../experiments/special-vdev.toml"),
    ),
    (
        "special-vdev-removal",
        include_str!("../experiments/special-vdev-removal.toml"),
    ),
    (
        "lost-special",
        include_str!("../experiments/lost-special.toml"),
    ),
    (
        "raidz2-replace",
        include_str!("../experiments/raidz2-replace.toml"),
    ),
    (
        "sector-size-sweep",
        include_str!("../experiments/sector-size-sweep.toml"),
    ),
];

/// The names and texts of the built-in experiments.
#[must_use]
pub fn builtin() -> &'static [(&'static str, &'static str)] {
    BUILTIN
}

impl Experiment {
    /// The built-in experiment of this name.
    ///
    /// # Errors
    /// `NotFound`, with the names that exist.
    pub fn find(name: &str, is_command: &dyn Fn(&str) -> bool) -> Result<Experiment> {
        let Some((name, text)) = BUILTIN.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
            let text = format!(
                "no experiment '{name}'; there are {}, or give the path of a file",
                names.join(", ")
            );
            return Err(Error::not_found(text));
        };
        Experiment::parse(name, &format!("{name}.toml"), text, is_command)
    }

    /// Parses and checks a file. `path` is for errors; `is_command` returns whether a command exists.
    ///
    /// # Errors
    /// `InvalidInput` with the line of the first mistake.
    pub fn parse(
        name: &str,
        path: &str,
        text: &str,
        is_command: &dyn Fn(&str) -> bool,
    ) -> Result<Experiment> {
        let file: File = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let (line, column) = line_and_column(text, at);
            Error::invalid(format!("{path}:{line}:{column}: {}", e.message()))
        })?;
        let mut cases = Vec::new();
        for entry in file.case {
            cases.push(understand_case(path, text, entry, is_command)?);
        }
        let experiment = Experiment {
            name: name.to_owned(),
            path: path.to_owned(),
            title: file.title,
            about: file.about.trim().to_owned(),
            source: file.source,
            seed: file.seed,
            host: file.host,
            assumptions: file.assumption,
            files: file.files,
            trace: file.trace,
            memory: file.memory,
            answers: file.answers,
            parameters: Parameters::new(file.parameters),
            required: file.required,
            sweep: Sweep::new(file.sweep),
            drives: file.drives,
            cases,
            readings: file.reading,
            histograms: file.histogram,
            ratios: file.ratio,
            recommend: file.recommend,
        };
        experiment.check()?;
        Ok(experiment)
    }

    /// A required value that was not given: its name, and what it is.
    #[must_use]
    pub fn missing(&self) -> Option<(&str, &str)> {
        let mut required = self.required.iter();
        let missing =
            required.find(|(name, _)| self.parameters.get(name).is_none() && !self.sweep.has(name));
        missing.map(|(name, what)| (name.as_str(), what.as_str()))
    }

    /// Keeps only these cases, or all if `names` is empty; drops ratios whose cases are dropped.
    ///
    /// # Errors
    /// `InvalidInput` for a name that no case has.
    pub fn keep_cases(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        if let Some(name) = names
            .iter()
            .find(|name| self.cases.iter().all(|c| c.name != **name))
        {
            let known: Vec<&str> = self.cases.iter().map(|case| &*case.name).collect();
            let text = format!(
                "{} has no case '{name}'; there are {}",
                self.name,
                known.join(", ")
            );
            return Err(Error::invalid(text));
        }
        self.cases.retain(|case| names.contains(&case.name));
        self.ratios
            .retain(|r| names.contains(&r.of) && names.contains(&r.to));
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let fail = |text: String| Err(Error::invalid(format!("{}: {text}", self.path)));
        if self.cases.is_empty() {
            return fail("no case".into());
        }
        if self.drives.is_empty() {
            return fail("no drive".into());
        }
        if let Some(trace) = &self.trace {
            crate::traces::find(trace).map_err(|e| e.within(self.path.clone()))?;
        }
        let mut names = BTreeSet::new();
        for case in &self.cases {
            if !names.insert(&*case.name) {
                return fail(format!("two cases are called '{}'", case.name));
            }
        }
        for reading in &self.readings {
            if let Some(case) = reading.cases.iter().find(|case| !names.contains(&***case)) {
                return fail(format!("reading '{}': no case '{case}'", reading.name));
            }
            crate::reading::compile(reading)
                .map_err(|e| Error::invalid(format!("{}: {e}", self.path)))?;
            if reading.drives.is_some() {
                continue;
            }
            let mut of = self.cases.iter().filter(|case| reading.is_of(&case.name));
            let mut missing = of.find_map(|case| {
                let mut needed = std::iter::once(&reading.command).chain(&reading.per);
                let command =
                    needed.find(|words| crate::reading::commands_of(words, case).is_empty())?;
                Some((case, command))
            });
            if let Some((case, command)) = missing.take() {
                return fail(format!(
                    "reading '{}': case '{}' has no command '{command}'",
                    reading.name, case.name
                ));
            }
        }
        for histogram in &self.histograms {
            crate::tally::check(histogram, &self.cases)
                .map_err(|e| Error::invalid(format!("{}: {e}", self.path)))?;
        }
        for ratio in &self.ratios {
            self.check_ratio(ratio, &names)?;
        }
        for name in self
            .assumptions
            .iter()
            .filter_map(|assumed| assumed.parameter.as_ref())
        {
            if self.parameters.number(name).is_none() {
                return fail(format!("assumption: no parameter '{name}' with a number"));
            }
        }
        self.check_parameters()
    }

    fn check_ratio(&self, ratio: &Ratio, cases: &BTreeSet<&str>) -> Result<()> {
        let fail = |text: String| Err(Error::invalid(format!("{}: ratio: {text}", self.path)));
        for case in [&ratio.of, &ratio.to] {
            if !cases.contains(&**case) {
                return fail(format!("no case '{case}'"));
            }
        }
        let names = [Some(&ratio.reading), ratio.to_reading.as_ref()];
        for name in names.into_iter().flatten() {
            let mut readings = self.readings.iter();
            if !readings.any(|r| r.name == *name || r.name.contains('{')) {
                return fail(format!("no reading '{name}'"));
            }
        }
        Ok(())
    }

    /// Checks that every `{parameter}` has a value, is swept or is required.
    fn check_parameters(&self) -> Result<()> {
        let known = |name: &str| {
            self.parameters.get(name).is_some()
                || self.required.contains_key(name)
                || self.sweep.has(name)
        };
        if let Some(name) = Parameters::used_in(&self.host)
            .iter()
            .find(|name| !known(name))
        {
            return Err(Error::invalid(format!(
                "{}: host: no parameter '{name}'",
                self.path
            )));
        }
        for (drive, profile) in &self.drives {
            for name in Parameters::used_in(profile) {
                if !known(&name) {
                    let text = format!("{}: drive {drive}: no parameter '{name}'", self.path);
                    return Err(Error::invalid(text));
                }
            }
        }
        for case in &self.cases {
            for command in &case.commands {
                for name in command.words.iter().flat_map(|w| Parameters::used_in(w)) {
                    if !known(&name) {
                        return Err(Error::invalid(format!(
                            "{}:{}: no parameter '{name}' for: {}",
                            self.path,
                            command.line,
                            command.words.join(" ")
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

fn understand_case(
    path: &str,
    text: &str,
    entry: CaseEntry,
    is_command: &dyn Fn(&str) -> bool,
) -> Result<Case> {
    let span = entry.commands.span();
    let commands = split_commands(path, text, span, entry.commands.get_ref())?;
    for command in &commands {
        if !is_command(&command.words[0]) {
            return Err(Error::invalid(format!(
                "{path}:{}: unknown command '{}'",
                command.line, command.words[0]
            )));
        }
    }
    if commands.is_empty() {
        let text = format!("{path}: case '{}' has no commands", entry.name);
        return Err(Error::invalid(text));
    }
    Ok(Case {
        title: if entry.title.is_empty() {
            entry.name.clone()
        } else {
            entry.title
        },
        name: entry.name,
        commands,
        published: entry.published,
    })
}

/// One command a line; a `#` begins a comment.
fn split_commands(
    path: &str,
    text: &str,
    span: std::ops::Range<usize>,
    block: &str,
) -> Result<Vec<CommandLine>> {
    let (mut line, _) = line_and_column(text, span.start);
    let raw = &text[span];
    let opens_with_newline = ["'''\n", "\"\"\"\n", "'''\r\n", "\"\"\"\r\n"];
    line += usize::from(opens_with_newline.iter().any(|open| raw.starts_with(open)));
    let mut commands = Vec::new();
    for (index, written) in block.lines().enumerate() {
        let written = written.trim();
        if written.is_empty() || written.starts_with('#') {
            continue;
        }
        let may_fail = written.starts_with('-');
        let written = written.trim_start_matches('-').trim_start();
        let words = shell_words::split(written).map_err(|_| {
            let line = line + index;
            Error::invalid(format!("{path}:{line}: a quote is not closed: {written}"))
        })?;
        if !words.is_empty() {
            commands.push(CommandLine {
                words,
                line: line + index,
                may_fail,
            });
        }
    }
    Ok(commands)
}
