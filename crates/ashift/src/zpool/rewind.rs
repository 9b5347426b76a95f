//! What is said of a pool that is returned to an earlier state, or could be.
//!
//! # Source
//! OpenZFS lib/libzfs/libzfs_pool.c (`zpool_rewind_exclaim`, `zpool_explain_recover`).

use std::fmt::Write as _;

use admin::number::date_time;
use service::Rewound;

use super::zone;

/// Seconds above which minutes are shown.
const SECS_MAX: u64 = 120;

/// The time that is lost, as `38 seconds`; `None` if it is less than one.
fn lost(rewound: &Rewound) -> Option<String> {
    match rewound.lost_secs {
        0 => None,
        secs if secs > SECS_MAX => Some(format!("{} minutes", (secs + 30) / 60)),
        secs => Some(format!("{secs} seconds")),
    }
}

/// What was done, or would be.
#[doc(alias = "zpool_rewind_exclaim")]
pub(super) fn exclaim(pool: &str, is_dry_run: bool, rewound: &Rewound) -> String {
    let when = date_time(rewound.as_of_secs, zone());
    let (mut text, discarded) = match is_dry_run {
        true => (
            format!("Would be able to return {pool} to its state as of {when}.\n"),
            "Would discard",
        ),
        false => (
            format!("Pool {pool} returned to its state as of {when}.\n"),
            "Discarded",
        ),
    };
    if let Some(lost) = lost(rewound) {
        let _ = writeln!(text, "{discarded} approximately {lost} of transactions.");
    }
    text
}

/// What could be done for a pool that cannot be opened; `command` would do it.
#[doc(alias = "zpool_explain_recover")]
pub(super) fn explain(command: &str, pool: &str, recovery: Option<&Rewound>) -> String {
    let Some(rewound) = recovery else {
        return "Destroy and re-create the pool from\n\ta backup source.\n".to_owned();
    };
    let when = date_time(rewound.as_of_secs, zone());
    let mut text = format!(
        "Recovery is possible, but will result in some data loss.\n\tReturning the pool to its state \
         as of {when}\n\tshould correct the problem.  "
    );
    if let Some(lost) = lost(rewound) {
        let _ = write!(
            text,
            "Approximately {lost} of data\n\tmust be discarded, irreversibly.  "
        );
    }
    text.push_str(match rewound.data_errors {
        0 => "",
        1 => "After rewind, at least\n\tone persistent user-data error will remain.  ",
        _ => "After rewind, several\n\tpersistent user-data errors will remain.  ",
    });
    let _ = write!(
        text,
        "Recovery can be attempted\n\tby executing 'zpool {command} -F {pool}'.  A scrub of the pool\n\tis \
         strongly recommended after recovery.\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Txg;

    #[test]
    fn what_is_lost_is_said_in_seconds_or_minutes() {
        let rewound = |lost_secs| Rewound {
            txg: Txg(5),
            as_of_secs: 0,
            lost_secs,
            data_errors: 1,
        };
        assert_eq!(lost(&rewound(0)), None);
        assert_eq!(lost(&rewound(120)).unwrap(), "120 seconds");
        assert_eq!(lost(&rewound(149)).unwrap(), "2 minutes");
        assert_eq!(lost(&rewound(150)).unwrap(), "3 minutes");
        let text = explain("import", "tank", Some(&rewound(7)));
        assert!(text.contains("Approximately 7 seconds of data\n\tmust be discarded"));
        assert!(text.contains("one persistent user-data error will remain"));
        assert!(
            exclaim("tank", true, &rewound(7))
                .ends_with("Would discard approximately 7 seconds of transactions.\n")
        );
    }
}
