//! The command line of `lab run`.

use std::path::PathBuf;

use base::{Error, Result};
use lab::Experiment;

/// The parsed options.
#[derive(Debug, Default)]
pub(crate) struct RunOptions {
    pub name: String,
    pub is_quiet: bool,
    pub is_json: bool,
    pub sensitivity: bool,
    pub jobs: usize,
    pub keep: Option<PathBuf>,
    pub report: Option<PathBuf>,
    set: Vec<(String, String)>,
    sweep: Vec<(String, Vec<String>)>,
    cases: Vec<String>,
    seed: Option<u64>,
    host: Option<String>,
    args: Vec<String>,
}

impl RunOptions {
    /// # Errors
    /// `InvalidInput` with what to write instead.
    pub(crate) fn parse(args: &[String]) -> Result<RunOptions> {
        let mut options = RunOptions {
            jobs: std::thread::available_parallelism().map_or(1, Into::into),
            args: args.to_vec(),
            ..RunOptions::default()
        };
        let mut names = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (flag, inline) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let mut value = || {
                inline
                    .clone()
                    .or_else(|| args.next().cloned())
                    .ok_or_else(|| Error::invalid(format!("{flag} needs a value")))
            };
            match flag {
                "-q" | "--quiet" => options.is_quiet = true,
                "-j" | "--json" => (options.is_json, options.is_quiet) = (true, true),
                "-qj" | "-jq" => (options.is_json, options.is_quiet) = (true, true),
                "--sensitivity" => options.sensitivity = true,
                "--set" => options.set.push(pair(flag, &value()?)?),
                "--sweep" => {
                    let (name, values) = pair(flag, &value()?)?;
                    let values = values.split(',').map(str::to_owned).collect();
                    options.sweep.push((name, values));
                }
                "--data" => {
                    let value = value()?;
                    let found = std::fs::canonicalize(&value)
                        .map_err(|e| Error::from(e).within(value.clone()))?;
                    let text = found.to_str().ok_or_else(|| Error::invalid("not UTF-8"))?;
                    options.set.push(("data".into(), text.to_owned()));
                }
                "--case" => options.cases.push(value()?),
                "--host" => options.host = Some(value()?),
                "--seed" => options.seed = Some(number(flag, &value()?)?),
                "--jobs" => options.jobs = number(flag, &value()?)?.clamp(1, 64) as usize,
                "--keep" => options.keep = Some(PathBuf::from(value()?)),
                "--report" => options.report = Some(PathBuf::from(value()?)),
                flag if flag.starts_with('-') => {
                    let text = format!("invalid option '{flag}'; `ashift lab -h` lists them");
                    return Err(Error::invalid(text));
                }
                name => names.push(name.to_owned()),
            }
        }
        match <[String; 1]>::try_from(names) {
            Ok([name]) => options.name = name,
            Err(_) => {
                let text = "which experiment? `ashift lab list` shows them";
                return Err(Error::invalid(text));
            }
        }
        Ok(options)
    }

    /// Changes the experiment as requested.
    ///
    /// # Errors
    /// `InvalidInput` for a parameter or case that it does not have.
    pub(crate) fn apply(&self, experiment: &mut Experiment) -> Result<()> {
        let known = |experiment: &Experiment, name: &str| {
            let parameters = &experiment.parameters;
            if parameters.get(name).is_some()
                || experiment.sweep.has(name)
                || experiment.required.contains_key(name)
            {
                return Ok(());
            }
            let mut names: Vec<&str> = parameters.iter().map(|(name, _)| name).collect();
            names.extend(experiment.sweep.names());
            names.extend(experiment.required.keys().map(String::as_str));
            let text = format!(
                "{} has no parameter '{name}'; there are {}",
                experiment.name,
                names.join(", ")
            );
            Err(Error::invalid(text))
        };
        for (name, value) in &self.set {
            known(experiment, name)?;
            experiment.sweep.forget(name);
            experiment.parameters.set(name, value);
        }
        for (name, values) in &self.sweep {
            known(experiment, name)?;
            experiment.sweep.set(name, values.clone());
        }
        if let Some(seed) = self.seed {
            experiment.seed = seed;
        }
        if let Some(host) = &self.host {
            experiment.host.clone_from(host);
        }
        experiment.keep_cases(&self.cases)
    }

    /// A command line that repeats the run.
    pub(crate) fn again(&self) -> String {
        let mut words = vec!["ashift".to_owned(), "lab".to_owned(), "run".to_owned()];
        words.extend(self.args.iter().cloned());
        lab::run::as_typed(&words)
    }
}

fn pair(flag: &str, text: &str) -> Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| Error::invalid(format!("{flag} takes NAME=VALUE, not '{text}'")))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn number(flag: &str, text: &str) -> Result<u64> {
    text.parse()
        .map_err(|_| Error::invalid(format!("{flag} takes a number, not '{text}'")))
}
