//! The lists of command lines: plain text, one command a line.
//!
//! `# …` is a comment, `== NAME` begins a section with fresh image files and no pools, and
//! `each v in A B '': COMMAND` expands to one command for each value of `$v` (`''` is the empty one).

use std::fmt;
use std::path::Path;

/// A file of command lines.
pub(crate) struct List {
    pub(crate) name: String,
    pub(crate) sections: Vec<Section>,
}

/// Commands that run one after the other on the same image files.
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) commands: Vec<Command>,
}

/// One command line of a section.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Command {
    pub(crate) section: String,
    pub(crate) line: String,
    /// 1 for the first command with this text in its section, 2 for the second, …
    pub(crate) repetition: usize,
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.section, self.line)?;
        match self.repetition {
            1 => Ok(()),
            n => write!(f, "  # ({n})"),
        }
    }
}

impl List {
    pub(crate) fn commands(&self) -> impl Iterator<Item = &Command> {
        self.sections.iter().flat_map(|section| &section.commands)
    }

    fn parse(name: &str, text: &str) -> List {
        let mut sections: Vec<Section> = Vec::new();
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix("== ") {
                sections.push(Section {
                    name: name.to_owned(),
                    commands: Vec::new(),
                });
                continue;
            }
            let section = sections.last_mut().expect("a list begins with a section");
            for line in expand(line) {
                let same = section.commands.iter().filter(|c| c.line == line).count();
                section.commands.push(Command {
                    section: section.name.clone(),
                    line,
                    repetition: same + 1,
                });
            }
        }
        List {
            name: name.to_owned(),
            sections,
        }
    }
}

/// Expands `each` in a line to its commands.
fn expand(line: &str) -> Vec<String> {
    let Some(rest) = line.strip_prefix("each v in ") else {
        return vec![line.to_owned()];
    };
    let (values, template) = rest.split_once(": ").expect("each v in VALUES: COMMAND");
    let value = |word: &str| {
        if word == "''" {
            String::new()
        } else {
            word.to_owned()
        }
    };
    values
        .split(' ')
        .map(|word| template.replace("$v", &value(word)))
        .collect()
}

/// All lists in a folder, by name.
pub(crate) fn read_all(folder: &Path) -> Vec<List> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder of lists")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            List::parse(file.strip_suffix(".txt").expect("LIST.txt"), &text)
        })
        .collect()
}
