//! Running an experiment: machines, commands, figures.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::{Error, ErrorKind, Result};

use crate::at_once::AtOnce;
use crate::experiment::{Case, Experiment, Figure, Ratio, Reading};
use crate::files;
use crate::outcome::{CaseOutcome, DriveTrace, Measured, Outcome, Ran, RatioOutcome};
use crate::parameters::Parameters;
use crate::reading;
use crate::sensitivity;
use crate::shell::{Answer, MachinePlan, Shell, TO_NOWHERE, without_redirection};
use crate::tally;
use crate::traces;
use crate::verdict::{self, Verdict};

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machines are created in folders below this one, which must exist.
    pub folder: PathBuf,
    /// How many cases run at the same time, here and in other experiments that share it.
    pub at_once: Arc<AtOnce>,
    /// The command line to run it again, for the report.
    pub again: String,
    /// Everything is run again at half and at twice the value of each assumption that is a parameter.
    pub sensitivity: bool,
    /// A description of the host profile whose time is charged, for the report.
    pub host: String,
}

/// A progress event of an experiment. Cases that run at the same time are distinguished by label.
#[derive(Debug)]
pub enum Event<'a> {
    /// A command ended.
    Ran {
        /// Which case.
        case: &'a str,
        /// As one would type it.
        command: &'a str,
        /// Its result.
        answer: &'a Answer,
    },
    /// A case ended well.
    CaseDone {
        /// Which case.
        case: &'a str,
        /// Its machine, which is not needed any more.
        machine: &'a Path,
    },
}

/// A case with the values of its parameters.
#[derive(Clone)]
struct Job<'a> {
    case: &'a Case,
    shown: Vec<(String, String)>,
    parameters: Parameters,
    /// What is other than in the experiment, for its label.
    other: Option<String>,
}

impl Job<'_> {
    /// The same with another value of a parameter.
    fn with(mut self, (name, value): &(String, String)) -> Self {
        self.parameters.set(name, value);
        self.other = Some(format!("{name}={value}"));
        self
    }
}

/// How many cases [`run`] runs.
///
/// # Errors
/// As of [`run`], before the first case.
pub fn count(experiment: &Experiment, sensitivity: bool) -> Result<usize> {
    let others = match sensitivity {
        true => sensitivity::variants(experiment).len(),
        false => 0,
    };
    Ok(jobs(experiment)?.len() * (1 + others))
}

/// Runs all cases and judges their figures.
///
/// # Errors
/// `InvalidInput` when a required parameter was not given; the first failure of a command or a
/// figure that could not be read, with file, line and command, and where its machine is.
pub fn run(
    experiment: &Experiment,
    shell: &dyn Shell,
    options: &Options,
    progress: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome> {
    let mut jobs = jobs(experiment)?;
    if let Some(files) = &experiment.files {
        let one_in = experiment.parameters.fill(&files.one_in)?;
        files::make(
            &options.folder.join("files"),
            files,
            &one_in,
            experiment.seed,
        )?;
    }
    if let Some(trace) = &experiment.trace {
        traces::put(&options.folder, trace)?;
    }
    let cases = jobs.len();
    if options.sensitivity {
        for parameters in sensitivity::variants(experiment) {
            let again = jobs[..cases].to_vec();
            jobs.extend(again.into_iter().map(|job| job.with(&parameters)));
        }
    }
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Mutex<Vec<Option<Result<CaseOutcome>>>> =
        Mutex::new((0..jobs.len()).map(|_| None).collect());
    let several = experiment.cases.len() > 1;
    std::thread::scope(|scope| {
        for _ in 0..options.at_once.most().min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { break };
                    let _place = options.at_once.take();
                    if failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let machine = options.folder.join(folder_name(index, job.case));
                    let label = label(job, several);
                    let result = run_case(experiment, job, &label, shell, &machine, progress);
                    let is_good = result.is_ok();
                    failed.fetch_or(!is_good, Ordering::Relaxed);
                    results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
                    if is_good {
                        progress(Event::CaseDone {
                            case: &label,
                            machine: &machine,
                        });
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut all = results.into_iter().flatten().collect::<Result<Vec<_>>>()?;
    let others = all.split_off(cases);
    judge_all(experiment, all, &others, options)
}

fn folder_name(index: usize, case: &Case) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    let name: String = case.name.chars().map(plain).collect();
    format!("{:02}-{name}", index + 1)
}

fn label(job: &Job<'_>, several: bool) -> String {
    let values = job.shown.iter().map(|(k, v)| format!("{k}={v}"));
    let values = values.chain(job.other.clone());
    let values = values.collect::<Vec<_>>().join(" ");
    match (several || values.is_empty(), values.is_empty()) {
        (true, true) => job.case.name.clone(),
        (true, false) => format!("{} {values}", job.case.name),
        (false, _) => values,
    }
}

fn jobs(experiment: &Experiment) -> Result<Vec<Job<'_>>> {
    if let Some((name, what)) = experiment.missing() {
        let text = format!("{} needs '{name}': {what}", experiment.name);
        return Err(Error::invalid(text));
    }
    let mut jobs = Vec::new();
    for case in &experiment.cases {
        let names = names_of(experiment, case);
        let mut combinations = experiment.sweep.combinations();
        for combination in &mut combinations {
            combination.retain(|(name, _)| names.contains(name));
        }
        // Without the others, several may be the same.
        let mut seen = BTreeSet::new();
        combinations.retain(|combination| seen.insert(combination.clone()));
        for combination in combinations {
            let mut parameters = experiment.parameters.clone();
            for (name, value) in &combination {
                parameters.set(name, value);
            }
            jobs.push(Job {
                case,
                shown: combination,
                parameters,
                other: None,
            });
        }
    }
    Ok(jobs)
}

/// The parameters that anything depends on in a case.
fn names_of(experiment: &Experiment, case: &Case) -> BTreeSet<String> {
    let words = case.commands.iter().flat_map(|line| &line.words);
    let texts = words.chain(experiment.drives.values());
    let texts = texts.chain([&experiment.host]);
    texts.flat_map(|text| Parameters::used_in(text)).collect()
}

fn run_case(
    experiment: &Experiment,
    job: &Job<'_>,
    label: &str,
    shell: &dyn Shell,
    machine: &Path,
    progress: &(dyn Fn(Event<'_>) + Sync),
) -> Result<CaseOutcome> {
    let at_case = |e: Error| e.within(format!("{}: case {label}", experiment.path));
    let drive =
        |(name, profile): (&String, &String)| Ok((name.clone(), job.parameters.fill(profile)?));
    let drives = experiment.drives.iter().map(drive).collect::<Result<_>>();
    let plan = MachinePlan {
        drives: drives.map_err(at_case)?,
        seed: experiment.seed,
        host: job.parameters.fill(&experiment.host).map_err(at_case)?,
        memory: experiment.memory.clone(),
    };
    shell.create(machine, &plan).map_err(at_case)?;
    let mut ran = Vec::new();
    for line in &job.case.commands {
        let filled = line
            .words
            .iter()
            .map(|word| job.parameters.fill_words(word));
        let words = filled
            .collect::<Result<Vec<_>>>()
            .map_err(at_case)?
            .concat();
        let may_fail = line.may_fail;
        let command = as_typed(&words);
        let place = || format!("{}:{}: {command}", experiment.path, line.line);
        let answer = shell.run(machine, &words).map_err(|e| e.within(place()))?;
        progress(Event::Ran {
            case: label,
            command: &command,
            answer: &answer,
        });
        if answer.code != 0 && !may_fail {
            let complaints = match answer.complaints.trim() {
                "" => answer.output.trim(),
                complaints => complaints,
            };
            let text = format!(
                "{}: exit code {}: {complaints}\nthe machine is kept in {}",
                place(),
                answer.code,
                machine.display()
            );
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        ran.push(Ran {
            command,
            output: answer.output + &answer.complaints,
            seconds: answer.took_ns as f64 / 1e9,
            processor_percent: answer.processor_percent,
            drive_percent: answer.drive_percent,
        });
    }
    let drives = shell.traces(machine).map_err(at_case)?;
    let figures = read_figures(experiment, job.case, &ran, &drives).map_err(|e| {
        let kept = format!("{e}\nthe machine is kept in {}", machine.display());
        Error::new(ErrorKind::InvalidInput, kept)
    })?;
    let tallies = experiment.histograms.iter();
    let tallies = tallies.filter_map(|one| tally::tally(one, job.case, &ran).transpose());
    let tallies = tallies
        .collect::<Result<_, String>>()
        .map_err(|text| at_case(Error::invalid(text)))?;
    Ok(CaseOutcome {
        name: job.case.name.clone(),
        title: job.case.title.clone(),
        parameters: job.shown.clone(),
        seconds: ran.iter().map(|ran| ran.seconds).sum(),
        ran,
        figures,
        tallies,
        drives,
    })
}

/// A command as one would type it: quotes only where the shell needs them.
#[must_use]
pub fn as_typed(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=+:,.@%/{}^".contains(c);
    let (command, is_read) = without_redirection(words);
    let typed = command.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            shell_words::quote(word).into_owned()
        }
    });
    let mut typed: Vec<String> = typed.collect();
    if !is_read {
        typed.extend(TO_NOWHERE.map(str::to_owned));
    }
    typed.join(" ")
}

fn read_figures(
    experiment: &Experiment,
    case: &Case,
    ran: &[Ran],
    drives: &[DriveTrace],
) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    let readings = experiment.readings.iter();
    for reading in readings.filter(|reading| reading.is_of(&case.name)) {
        let figures = read_one(experiment, case, ran, drives, reading)?;
        for figure in figures {
            let published = case.published.get(&figure.name).copied();
            let (deviation_percent, verdict) =
                verdict::compare(figure.value, published, reading.tolerance_percent);
            measured.push(Measured {
                title: if figure.name == reading.name {
                    reading.heading().to_owned()
                } else {
                    figure.name.clone()
                },
                name: figure.name,
                reading: reading.heading().to_owned(),
                chart: reading.chart,
                unit: reading.unit.clone(),
                value: figure.value,
                published,
                deviation_percent,
                tolerance_percent: reading.tolerance_percent,
                verdict,
            });
        }
    }
    let has = |name: &String| measured.iter().any(|figure| figure.name == *name);
    if let Some(name) = case.published.keys().find(|name| !has(name)) {
        let text = format!(
            "{}: case '{}': a figure '{name}' was published, and none was read",
            experiment.path, case.name
        );
        return Err(Error::invalid(text));
    }
    Ok(measured)
}

fn read_one(
    experiment: &Experiment,
    case: &Case,
    ran: &[Ran],
    drives: &[DriveTrace],
    reading: &Reading,
) -> Result<Vec<Figure>> {
    if let Some(count) = reading.drives {
        return Ok(vec![Figure {
            name: reading.name.clone(),
            value: reading::counted(count, drives) * reading.scale,
        }]);
    }
    let mut indexes = reading::commands_of(&reading.command, case);
    if reading.combine.is_none() {
        indexes = indexes.split_off(indexes.len() - 1);
    }
    let mut figures = Vec::new();
    for index in indexes {
        let (line, ran) = (&case.commands[index], &ran[index]);
        let found = reading::figures(reading, ran).map_err(|text| {
            let at = format!("{}:{}: {}", experiment.path, line.line, ran.command);
            Error::invalid(format!("{at}: {text}"))
        })?;
        figures.extend(found);
    }
    if let Some(combine) = reading.combine {
        figures = vec![reading::combined(reading, combine, &figures)];
    }
    if let Some(words) = &reading.per {
        let seconds = reading::commands_of(words, case)
            .last()
            .map_or(f64::NAN, |at| ran[*at].seconds);
        figures
            .iter_mut()
            .for_each(|figure| figure.value /= seconds);
    }
    Ok(figures)
}

fn judge_all(
    experiment: &Experiment,
    cases: Vec<CaseOutcome>,
    others: &[CaseOutcome],
    options: &Options,
) -> Result<Outcome> {
    let mut ratios = Vec::new();
    for ratio in &experiment.ratios {
        ratios.extend(ratio_outcomes(experiment, ratio, &cases)?);
    }
    let recommendation = experiment
        .recommend
        .as_ref()
        .and_then(|rule| rule.choose(&cases));
    let source = experiment.source.as_ref();
    Ok(Outcome {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        about: about(experiment)?,
        source: source.map(|source| (source.title.clone(), source.about.clone())),
        seed: experiment.seed,
        host: options.host.clone(),
        answers: experiment.answers,
        assumed: sensitivity::assumed(experiment, &cases, others),
        assumed_of_drives: sensitivity::assumed_of_drives(&cases),
        again: options.again.clone(),
        ratios,
        rms: rms_of_readings(experiment, &cases),
        recommendation,
        cases,
    })
}

/// What it is about, with the values of its parameters; of those that are swept, all.
fn about(experiment: &Experiment) -> Result<String> {
    let mut parameters = experiment.parameters.clone();
    for (name, values) in experiment.sweep.axes() {
        parameters.set(name, &values.join(", "));
    }
    parameters.fill(&experiment.about)
}

/// Whether two cases have the same value of each parameter that both have.
fn agree(a: &CaseOutcome, b: &CaseOutcome) -> bool {
    let mut values = a.parameters.iter();
    values.all(|(name, value)| {
        let other = b.parameters.iter().find(|(other, _)| other == name);
        other.is_none_or(|(_, other)| other == value)
    })
}

/// The ratio for every combination of swept values.
fn ratio_outcomes(
    experiment: &Experiment,
    ratio: &Ratio,
    cases: &[CaseOutcome],
) -> Result<Vec<RatioOutcome>> {
    let below = ratio.to_reading.as_ref().unwrap_or(&ratio.reading);
    let mut readings = experiment.readings.iter();
    let reading = readings
        .find(|reading| reading.name == ratio.reading)
        .map_or(&*ratio.reading, Reading::heading);
    let mut outcomes = Vec::new();
    let figure = |case: &CaseOutcome, name: &str| {
        let found = case.figure(name).map(|figure| figure.value);
        found.ok_or_else(|| {
            Error::invalid(format!("{}: ratio: no figure '{name}'", experiment.path))
        })
    };
    let pairs = cases.iter().flat_map(|upper| {
        let lower = cases.iter().map(move |lower| (upper, lower));
        lower.filter(|(upper, lower)| upper.name == ratio.of && lower.name == ratio.to)
    });
    for (upper, lower) in pairs.filter(|(upper, lower)| agree(upper, lower)) {
        let value = figure(upper, &ratio.reading)? / figure(lower, below)?;
        let (deviation_percent, verdict) =
            verdict::compare(value, ratio.published, ratio.tolerance_percent);
        let title = if ratio.of == ratio.to {
            format!("{}: {} / {below}", upper.label(true), ratio.reading)
        } else if upper.parameters.len() < lower.parameters.len() {
            format!("{} / {}", upper.title, lower.label(true))
        } else {
            format!("{} / {}", upper.label(true), lower.title)
        };
        outcomes.push(RatioOutcome {
            title,
            reading: reading.to_owned(),
            value,
            published: ratio.published,
            deviation_percent,
            tolerance_percent: ratio.tolerance_percent,
            verdict,
        });
    }
    Ok(outcomes)
}

fn rms_of_readings(
    experiment: &Experiment,
    cases: &[CaseOutcome],
) -> Vec<(String, f64, f64, Verdict)> {
    let mut all = Vec::new();
    for reading in &experiment.readings {
        let Some(tolerance) = reading.rms_tolerance_percent else {
            continue;
        };
        let figures = cases.iter().flat_map(|case| &case.figures);
        let of = figures.filter(|f| f.name == reading.name || reading.name.contains('{'));
        let deviations: Vec<f64> = of.filter_map(|f| f.deviation_percent).collect();
        if let Some(rms) = verdict::rms(&deviations) {
            let within = rms <= tolerance;
            let verdict = if within {
                Verdict::Within
            } else {
                Verdict::Missed
            };
            all.push((reading.heading().to_owned(), rms, tolerance, verdict));
        }
    }
    all
}
