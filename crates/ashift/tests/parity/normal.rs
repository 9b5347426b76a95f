//! Output that differs from run to run, or between pools filled by different programs, is replaced by a
//! word: as little as necessary.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use oracle::parity::Said;

/// Paths that differ between the real tools and this program.
pub(crate) struct Places {
    pub(crate) images: String,
    pub(crate) state: String,
}

/// Lines and commands that match are compared with their exact sizes: these were set, not measured.
static EXACT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        "recordsize|recsize|quota|reserv|volsize|volblocksize|special_small_blocks|dnodesize|_limit",
    )
    .unwrap()
});
/// All numbers of these lines are replaced.
static NUMBERED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(createtxg|objsetid|guid|pool_guid|snapshots_changed|txg|last_scrubbed_txg|fragmentation)\b").unwrap()
});
static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[0-9]{1,20}\b").unwrap());
static BLANKS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\S) {2,}").unwrap());

const DAYS: &str = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)";

/// Replaced everywhere, in this order.
static EVERYWHERE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = [
        // Sun Nov 22  6:54 2026, Sun Nov 22 06:54:12 2026, Sun Nov 22 06:54:12 UTC 2026, and with N for
        // the year, where a command in a list has already replaced the number at the end of a line.
        (
            format!(
                r"\b{DAYS} [A-Z][a-z]{{2}} +[0-9]+ +[0-9]+:[0-9:]+ +([A-Z]+ )?(20[0-9]{{2}}|N)\b"
            ),
            "DATE",
        ),
        (
            r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}\.[0-9:]{8}".to_owned(),
            "DATE",
        ),
        (r"\b[0-9]{2}:[0-9]{2}:[0-9]{2}\b".to_owned(), "HH:MM:SS"),
        (r"on [A-Za-z0-9.-]+:linux".to_owned(), "on HOST:linux"),
        (r"\b[0-9]+\.[0-9]+x".to_owned(), "RATIOx"),
        (r"\b[0-9]+(\.[0-9]+)?%".to_owned(), "N%"),
        (r"\b[0-9]{15,20}\b".to_owned(), "GUID"),
        (r"\btxg:[0-9]+\b".to_owned(), "txg:N"),
        (r"<0x[0-9a-f]+>".to_owned(), "<0xN>"),
        (r"dva <([0-9]+):[0-9a-f]+:".to_owned(), "dva <$1:NUM:"),
        // `special_small_blocks` from OpenZFS 2.4 on, and before.
        (r"\b0 to 16M\b".to_owned(), "zero or 512 to 1M, power of 2"),
    ];
    rules
        .map(|(rule, word)| (Regex::new(&rule).unwrap(), word))
        .into()
});

/// Replaced where sizes are measured: `0B` and `0` stay.
static MEASURED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = [
        (r"\b([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]+)[BKMGTPE]\b", "SZ"),
        (r"\b[1-9][0-9]{4,}\b", "NUM"),
    ];
    rules
        .map(|(rule, word)| (Regex::new(rule).unwrap(), word))
        .into()
});

impl Places {
    /// The output of `command`, with everything that varies replaced.
    pub(crate) fn normalise(&self, command: &str, said: &Said) -> Said {
        let mut err = self.text(command, &said.err);
        if command.contains(" | zfs ") {
            // Both ends of the pipe may report an error, in any order.
            let mut lines: Vec<&str> = err.split_inclusive('\n').collect();
            lines.sort_unstable();
            err = lines.concat();
        }
        Said {
            code: said.code,
            out: self.text(command, &said.out),
            err,
        }
    }

    fn text(&self, command: &str, text: &str) -> String {
        let text = text
            .replace(&self.images, "/D")
            .replace(&self.state, "/STATE")
            .replace('\0', "\\0");
        let text = match serde_json::from_str::<Value>(&text) {
            Ok(value) if value.is_object() => spread(&value, 0) + "\n",
            _ => text,
        };
        let is_exact = EXACT.is_match(command) && !text.starts_with('{');
        text.split_inclusive('\n')
            .map(|line| normal_line(line, is_exact))
            .collect()
    }
}

fn normal_line(line: &str, is_exact: bool) -> String {
    let mut line = line.to_owned();
    let mut replace = |(rule, word): &(Regex, &str)| {
        line = rule.replace_all(&line, *word).into_owned();
    };
    EVERYWHERE.iter().for_each(&mut replace);
    if !is_exact && !EXACT.is_match(&line) {
        for (rule, word) in MEASURED.iter() {
            line = rule.replace_all(&line, *word).into_owned();
        }
    }
    if NUMBERED.is_match(&line) {
        line = NUMBER.replace_all(&line, "N").into_owned();
    }
    BLANKS.replace_all(&line, "$1 ").into_owned()
}

/// JSON with one property per line.
fn spread(value: &Value, depth: usize) -> String {
    let Value::Object(map) = value else {
        return value.to_string();
    };
    if map.contains_key("value") || map.values().all(|v| !v.is_object()) && map.len() < 3 {
        return value.to_string();
    }
    let pad = " ".repeat(depth);
    let lines = map
        .iter()
        .map(|(key, value)| format!("\n{pad} {key:?}: {}", spread(value, depth + 1)));
    format!("{{{}\n{pad}}}", lines.collect::<String>())
}
