//! Output of the real tools (tests/golden), split into cases.

/// One command with its output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    /// Its name in the file.
    pub(crate) name: String,
    /// The command line, arguments separated by blanks.
    pub(crate) command: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit: i32,
}

impl Case {
    /// The arguments after the program's name.
    pub(crate) fn args(&self) -> Vec<&str> {
        self.command.split(' ').skip(1).collect()
    }
}

/// Splits `text` at its `# name` lines, each followed by a `$ command` line; lines of stderr begin
/// with `2> `.
pub(crate) fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            cases.push(Case {
                name: name.to_owned(),
                ..Case::default()
            });
            continue;
        }
        let case = cases.last_mut().expect("a name comes first");
        if let Some(command) = line.strip_prefix("$ ") {
            case.command = command.to_owned();
        } else if let Some(status) = line.strip_prefix("exit ") {
            case.exit = status.parse().expect("an exit status");
        } else if let Some(error) = line.strip_prefix("2> ") {
            case.stderr += error;
            case.stderr.push('\n');
        } else {
            case.stdout += line;
            case.stdout.push('\n');
        }
    }
    cases
}

/// The first case whose command line is `command`.
pub(crate) fn case(text: &str, command: &str) -> Case {
    let found = cases(text).into_iter().find(|case| case.command == command);
    found.unwrap_or_else(|| panic!("no golden output of {command:?}"))
}

/// The case called `name`.
pub(crate) fn case_named(text: &str, name: &str) -> Case {
    let found = cases(text).into_iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("no golden output called {name:?}"))
}
