//! The command line of `lab run`.

use std::path::PathBuf;

use base::{Error, Result};
use lab::Experiment;

/// Where a report goes if nothing else was said.
pub(super) const REPORT: &str = "ashift-report.html";

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
                "--report" => {
                    let file = value().unwrap_or_else(|_| REPORT.into());
                    options.report = Some(PathBuf::from(file));
                }
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
        if let Some(name) = self.changed().find(|name| !has(experiment, name)) {
            let text = format!(
                "{} has no parameter '{name}'; there are {}",
                experiment.name,
                parameters(experiment).join(", ")
            );
            return Err(Error::invalid(text));
        }
        self.change(experiment);
        experiment.keep_cases(&self.cases)
    }

    /// Changes in each experiment what it has.
    ///
    /// # Errors
    /// `InvalidInput` for a parameter that none has, and for cases, whose names mean something in one only.
    pub(crate) fn apply_to_all(&self, experiments: &mut [Experiment]) -> Result<()> {
        if !self.cases.is_empty() {
            return Err(Error::invalid("--case is for one experiment, not for all"));
        }
        let is_unknown = |name: &&str| !experiments.iter().any(|one| has(one, name));
        if let Some(name) = self.changed().find(is_unknown) {
            return Err(Error::invalid(format!(
                "no experiment has a parameter '{name}'"
            )));
        }
        experiments.iter_mut().for_each(|one| self.change(one));
        Ok(())
    }

    /// The names of parameters that get other values.
    fn changed(&self) -> impl Iterator<Item = &str> {
        let set = self.set.iter().map(|(name, _)| name.as_str());
        set.chain(self.sweep.iter().map(|(name, _)| name.as_str()))
    }

    fn change(&self, experiment: &mut Experiment) {
        for (name, value) in &self.set {
            if has(experiment, name) {
                experiment.sweep.forget(name);
                experiment.parameters.set(name, value);
            }
        }
        for (name, values) in &self.sweep {
            if has(experiment, name) {
                experiment.sweep.set(name, values.clone());
            }
        }
        if let Some(seed) = self.seed {
            experiment.seed = seed;
        }
        if let Some(host) = &self.host {
            experiment.host.clone_from(host);
        }
    }

    /// A command line that repeats the run of an experiment.
    pub(crate) fn again(&self, experiment: &Experiment) -> String {
        let mut words = vec!["ashift".to_owned(), "lab".to_owned(), "run".to_owned()];
        if self.name != "all" {
            words.extend(self.args.iter().cloned());
            return lab::run::as_typed(&words);
        }
        let swept = |values: &[String]| values.join(",");
        let set = self.set.iter().map(|(n, v)| ("--set", n, v.clone()));
        let sweep = self.sweep.iter().map(|(n, v)| ("--sweep", n, swept(v)));
        for (flag, name, value) in set.chain(sweep) {
            if has(experiment, name) {
                words.extend([flag.to_owned(), format!("{name}={value}")]);
            }
        }
        if let Some(seed) = self.seed {
            words.push(format!("--seed={seed}"));
        }
        if let Some(host) = &self.host {
            words.push(format!("--host={host}"));
        }
        if self.sensitivity {
            words.push("--sensitivity".to_owned());
        }
        words.push(experiment.name.clone());
        lab::run::as_typed(&words)
    }
}

/// The names of an experiment's parameters.
fn parameters(experiment: &Experiment) -> Vec<&str> {
    let mut names: Vec<&str> = experiment.parameters.iter().map(|(name, _)| name).collect();
    names.extend(experiment.sweep.names());
    names.extend(experiment.required.keys().map(String::as_str));
    names
}

fn has(experiment: &Experiment, name: &str) -> bool {
    parameters(experiment).contains(&name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_name_unless_it_is_given_one() {
        let report = |args: &str| {
            let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
            RunOptions::parse(&args).unwrap().report.unwrap()
        };
        assert_eq!(report("all --report"), PathBuf::from(REPORT));
        assert_eq!(report("--report=x.html all"), PathBuf::from("x.html"));
        assert_eq!(report("--report x.html all"), PathBuf::from("x.html"));
    }

    #[test]
    fn of_all_experiments_each_is_run_again_alone_with_the_options_that_it_has() {
        let args = "--set gb=3 --set size=1g --seed 7 --report page.html all";
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        let options = RunOptions::parse(&args).unwrap();
        let find = |name| Experiment::find(name, &crate::is_command).unwrap();
        let bonnie = options.again(&find("bonnie-on-512e"));
        let words = "ashift lab run --set size=1g --seed=7 bonnie-on-512e";
        assert_eq!(bonnie, words);
        let phybs = options.again(&find("phybs-512e"));
        assert_eq!(phybs, "ashift lab run --seed=7 phybs-512e");
    }
}
