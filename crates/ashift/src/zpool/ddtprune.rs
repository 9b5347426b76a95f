//! `zpool ddtprune`: forgets old entries of the dedup tables.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_ddt_prune`), lib/libzfs/libzfs_pool.c (`zpool_ddt_prune`).

use admin::getopt::{Flag, Parsed};
use admin::number::number_prefix;
use service::{Access, Session};
use spa::Prune;

use super::{Fail, Outcome, change_error};

const DAY_SECS: u64 = 86400;

/// `zpool ddtprune`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let prune = prune_of(args)?;
    let name = match &args.operands[..] {
        [] => return Err(Fail::Usage("missing pool argument".into())),
        [name] => name,
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    let what = format!("cannot prune dedup table on '{name}'");
    let pool = session.open(name, Access::Write);
    let pool = pool.map_err(|error| change_error(name, &what, &error))?;
    let pruned = pool.prune_dedup(prune, rt::wall_clock().secs);
    pruned.map_err(|error| Fail::Failed(format!("{what}: {error}")))?;
    session.log(&pool)?;
    pool.close()?;
    Ok(())
}

fn prune_of(args: &Parsed) -> Result<Prune, Fail> {
    let usage = |text: &str| Err(Fail::Usage(text.into()));
    let mut prune = None;
    for (flag, value) in &args.options {
        let Flag::Short(option) = *flag else { continue };
        let number = value.as_deref().and_then(whole_number);
        let number = number.filter(|number| *number > 0);
        prune = match (option, prune, number) {
            ('d', Some(Prune::Percent(_)), _) => {
                return usage("-d cannot be combined with -p option");
            }
            ('p', Some(Prune::Age(_)), _) => return usage("-p cannot be combined with -d option"),
            ('d', _, Some(days)) => Some(Prune::Age(days.saturating_mul(DAY_SECS))),
            ('p', _, Some(percent)) if percent <= 100 => Some(Prune::Percent(percent)),
            ('d', ..) => return usage("invalid days value"),
            _ => return usage("invalid percentage value"),
        };
    }
    prune.map_or_else(|| usage("missing amount option (-d|-p <value>)"), Ok)
}

/// As `strtoull` with base 0 reads it, with nothing behind it.
fn whole_number(text: &str) -> Option<u64> {
    let (number, rest) = number_prefix(text);
    rest.is_empty().then_some(number)
}
