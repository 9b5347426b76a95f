//! Parameters, substituted for `{name}` in commands; and sweeps over their values.

use std::collections::BTreeMap;
use std::fmt;

use base::{Error, Result};
use serde::Deserialize;

/// A value in an experiment file: text or a number.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub(crate) enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Integer(value) => value.fmt(f),
            Scalar::Float(value) => value.fmt(f),
            Scalar::Text(value) => value.fmt(f),
        }
    }
}

/// Names and their values.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parameters {
    values: BTreeMap<String, String>,
}

impl Parameters {
    pub(crate) fn new(values: BTreeMap<String, Scalar>) -> Parameters {
        let values = values.into_iter().map(|(k, v)| (k, v.to_string()));
        Parameters {
            values: values.collect(),
        }
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value of a parameter, if it is a number.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
    }

    /// Gives a parameter a value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// Names and values in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The names in braces in a text. `{{` is not a name.
    #[must_use]
    pub fn used_in(text: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            rest = &rest[open + 1..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
            match end {
                Some(end)
                    if end > 0
                        && (rest[end..].starts_with('}') || rest[end..].starts_with("*}")) =>
                {
                    names.push(rest[..end].to_owned());
                    rest = &rest[end + 1..];
                }
                _ => {}
            }
        }
        names
    }

    /// Substitutes parameters in one word of a command. A word that is just `{name*}` expands to as
    /// many words as the value has; any other stays one word.
    ///
    /// # Errors
    /// `InvalidInput` for a name without a value.
    pub fn fill_words(&self, word: &str) -> Result<Vec<String>> {
        let alone = word
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix("*}"));
        match alone {
            Some(name) => {
                let value = self.fill(&format!("{{{name}}}"))?;
                Ok(value.split_whitespace().map(str::to_owned).collect())
            }
            None => Ok(vec![self.fill(word)?]),
        }
    }

    /// The text with every `{name}` replaced by its value.
    ///
    /// # Errors
    /// `InvalidInput` for a name without a value.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut filled = text.to_owned();
        for name in Parameters::used_in(text) {
            let value = self
                .get(&name)
                .ok_or_else(|| Error::invalid(format!("no parameter '{name}'")))?;
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        Ok(filled)
    }
}

/// Parameters with several values each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    axes: BTreeMap<String, Vec<String>>,
}

impl Sweep {
    pub(crate) fn new(axes: BTreeMap<String, Vec<Scalar>>) -> Sweep {
        let text = |values: Vec<Scalar>| values.iter().map(Scalar::to_string).collect();
        let axes = axes.into_iter().map(|(name, values)| (name, text(values)));
        Sweep {
            axes: axes.collect(),
        }
    }

    /// Sweeps a parameter over these values.
    pub fn set(&mut self, name: &str, values: Vec<String>) {
        self.axes.insert(name.to_owned(), values);
    }

    /// Stops sweeping a parameter.
    pub fn forget(&mut self, name: &str) {
        self.axes.remove(name);
    }

    /// Whether a parameter is swept.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.axes.contains_key(name)
    }

    /// The names that are swept.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.axes.keys().map(String::as_str)
    }

    /// The names with their values.
    pub(crate) fn axes(&self) -> impl Iterator<Item = (&str, &[String])> {
        let axes = self.axes.iter();
        axes.map(|(name, values)| (name.as_str(), &values[..]))
    }

    /// Every combination of values; the last name varies fastest.
    #[must_use]
    pub fn combinations(&self) -> Vec<Vec<(String, String)>> {
        let mut all = vec![Vec::new()];
        for (name, values) in &self.axes {
            let extended = |so_far: &Vec<(String, String)>| {
                let with = |value: &String| {
                    let mut next = so_far.clone();
                    next.push((name.clone(), value.clone()));
                    next
                };
                values.iter().map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(extended).collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_braces_are_filled_in() {
        let mut parameters = Parameters::default();
        parameters.set("a", "1");
        parameters.set("b-c", "x y");
        assert_eq!(parameters.fill("{a}-{b-c}-{a}").unwrap(), "1-x y-1");
        assert_eq!(parameters.fill("{} {a {a}").unwrap(), "{} {a 1");
        assert!(parameters.fill("{nothing}").is_err());
        assert_eq!(parameters.fill_words("{b-c*}").unwrap(), ["x", "y"]);
        assert_eq!(parameters.fill_words("{b-c}").unwrap(), ["x y"]);
        assert_eq!(Parameters::used_in("{b-c*}"), ["b-c"]);
    }

    #[test]
    fn a_sweep_has_every_combination_once() {
        let mut sweep = Sweep::default();
        sweep.set("a", vec!["1".into(), "2".into()]);
        sweep.set("b", vec!["x".into(), "y".into(), "z".into()]);
        let all = sweep.combinations();
        assert_eq!(all.len(), 6);
        assert_eq!(all[1], [("a".into(), "1".into()), ("b".into(), "y".into())]);
        assert_eq!(Sweep::default().combinations(), [Vec::new()]);
    }
}
