//! A plan as text.

use super::figures::{Timed, Tried};
use super::front::space_line;
use super::run::DRIVE_BYTES_MIN;
use super::{Advice, Plan, PlannedDrive};
use crate::table::{Grid, bytes, number};

/// A drive's part of a sample is to be at least so many times what its cache keeps.
const CACHES_MIN: u64 = 8;

const COLUMNS: [&str; 8] = [
    "configuration",
    "space",
    "full",
    "copy",
    "list",
    "read",
    "scrub",
    "replace",
];

/// `12.5 s`, `3.2 h`
pub(super) fn time(timed: &Timed) -> String {
    match timed.seconds {
        s if s < 600.0 => format!("{} s", number(s)),
        s if s < 36_000.0 => format!("{} min", number(s / 60.0)),
        s => format!("{} h", number(s / 3600.0)),
    }
}

/// What a combination takes with all files, in a line.
pub(super) fn confirmed(tried: &Tried) -> String {
    let Tried::Measured(figures) = tried else {
        return "with all files: no room".to_owned();
    };
    let mut parts = vec![format!("with all files: {}", space_line(figures))];
    let times = [
        ("copy", Some(&figures.copy)),
        ("list", Some(&figures.walk)),
        ("read", Some(&figures.read)),
        ("scrub", Some(&figures.scrub)),
        ("replace", figures.replace.as_ref()),
    ];
    let times = times
        .into_iter()
        .filter_map(|(name, timed)| timed.map(|timed| format!("{name} {}", time(timed))));
    parts.extend(times);
    parts.join(", ")
}

/// `may lose 1 drive`
pub(super) fn level(advice: &Advice) -> String {
    match advice.redundancy {
        0 => "no drive may be lost".to_owned(),
        1 => "one drive may be lost".to_owned(),
        n => format!("any {n} drives may be lost"),
    }
}

impl Plan {
    /// What was planned with.
    #[must_use]
    pub fn about(&self) -> String {
        let found = &self.found;
        let mut text = format!(
            "{}: {} files, {} folders, {}",
            self.request.data.display(),
            found.files,
            found.folders,
            bytes(found.bytes as f64)
        );
        if self.sample.one_in > 1 {
            text.push_str(&format!(
                "; tried with one in {}: {} files, {}",
                self.sample.one_in,
                self.sample.files,
                bytes(self.sample.bytes as f64)
            ));
        }
        text
    }

    /// What to know about these figures.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.found.left_out > 0 {
            notes.push(format!(
                "{} entries are left out: other file systems, devices, sockets, further names of a file, and what \
                 cannot be read",
                self.found.left_out
            ));
        }
        if let Some(drive) = self.too_large() {
            notes.push(format!(
                "one in {} of {} is too small for a drive: it is filled less than it would be; --sample takes more",
                self.sample.one_in, drive.profile
            ));
        }
        if let Some(cache) = self.small_beside() {
            notes.push(format!(
                "the sample is small beside what the drives keep of what they have read ({} each): times to list and read \
                 come out too short; --sample takes more",
                bytes(cache as f64)
            ));
        }
        let missing = self.missing();
        if missing > 0 {
            notes.push(format!(
                "{missing} of {} combinations have not been tried yet",
                self.rows.len()
            ));
        }
        let small = |row: &&super::Row| matches!(row.tried, Some(Tried::DoesNotFit));
        let small = self.rows.iter().filter(small).count();
        if small > 0 {
            notes.push(format!(
                "{small} of {} combinations have no room for the files",
                self.rows.len()
            ));
        }
        notes
    }

    /// A drive that is larger than in proportion to the sample. One that is not is filled by the sample as the whole
    /// one would be by all files.
    fn too_large(&self) -> Option<&PlannedDrive> {
        let one_in = self.sample.one_in;
        let mut drives = self.request.drives.iter().chain(&self.request.special);
        drives.find(|drive| one_in > 1 && drive.bytes / one_in < DRIVE_BYTES_MIN)
    }

    /// The read cache of a drive beside whose contents the sample is small.
    fn small_beside(&self) -> Option<u64> {
        let drives = &self.request.drives;
        let largest = drives.iter().map(|drive| drive.read_cache_bytes).max()?;
        let each = self.sample.bytes / drives.len() as u64;
        (self.sample.one_in > 1 && each < largest * CACHES_MIN).then_some(largest)
    }

    /// A grid of the combinations at these places.
    pub(super) fn grid(&self, places: &[usize], marks: &dyn Fn(usize) -> &'static str) -> Grid {
        let row = |place: &usize| {
            let row = &self.rows[*place];
            let mut cells = vec![format!("{}{}", marks(*place), row.combination)];
            match &row.tried {
                Some(Tried::Measured(figures)) => {
                    let replace = figures.replace.as_ref().map_or("-".to_owned(), time);
                    cells.push(bytes(figures.used()));
                    cells.push(format!("{:.1} %", figures.space.full_percent));
                    let times = [&figures.copy, &figures.walk, &figures.read, &figures.scrub];
                    cells.extend(times.map(time));
                    cells.push(replace);
                }
                other => {
                    let text = if other.is_some() {
                        "no room"
                    } else {
                        "not tried"
                    };
                    cells.push(text.to_owned());
                    cells.resize(COLUMNS.len(), "-".to_owned());
                }
            }
            cells
        };
        Grid {
            heading: COLUMNS.map(str::to_owned).to_vec(),
            rows: places.iter().map(row).collect(),
        }
    }

    /// The plan as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.about());
        for advice in &self.advice {
            let mark = |place| if place == advice.take { "* " } else { "  " };
            text.push_str(&format!(
                "\n{}:\n{}",
                level(advice),
                self.grid(&advice.front, &mark).draw()
            ));
            let take = &self.rows[advice.take];
            text.push_str(&format!("\ntake {}", take.combination));
            if let Some(Tried::Measured(figures)) = &take.tried {
                text.push_str(&format!(": {}", space_line(figures)));
            }
            text.push('\n');
            if let Some(tried) = &take.confirmed {
                text.push_str(&format!("  {}\n", confirmed(tried)));
            }
            for reason in &advice.reasons {
                text.push_str(&format!("  {reason}\n"));
            }
            for command in &advice.commands {
                text.push_str(&format!("  # {command}\n"));
            }
        }
        let notes = self.notes();
        if !notes.is_empty() {
            text.push('\n');
        }
        for note in notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    }
}
