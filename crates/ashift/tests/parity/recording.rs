//! The normalised output of the real tools, as text: `$ COMMAND`, lines of stdout after `1 `, of stderr after
//! `2 ` (`1.`, `2.` if the line has no newline), and the exit code if it is not 0.

use std::collections::BTreeMap;

use oracle::parity::Said;

use crate::lists::Command;

/// What each command of a list printed.
pub(crate) type Recording = BTreeMap<String, Said>;

pub(crate) fn write<'a>(said: impl Iterator<Item = (&'a Command, &'a Said)>) -> String {
    said.map(|(command, said)| {
        let lines = said.lines().into_iter().map(|line| line + "\n");
        format!("$ {command}\n{}", lines.collect::<String>())
    })
    .collect()
}

pub(crate) fn read(text: &str) -> Recording {
    let mut recording = Recording::new();
    let mut last: Option<&mut Said> = None;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            last = Some(recording.entry(command.to_owned()).or_default());
            continue;
        }
        let said = last.as_mut().expect("a recording begins with a command");
        if let Some(code) = line.strip_prefix("exit ") {
            said.code = code.parse().unwrap();
            continue;
        }
        let (kind, text) = line.split_at(2);
        match kind {
            "1 " => said.out.extend([text, "\n"]),
            "2 " => said.err.extend([text, "\n"]),
            "1." => said.out += text,
            "2." => said.err += text,
            _ => panic!("{line:?}"),
        }
    }
    recording
}
