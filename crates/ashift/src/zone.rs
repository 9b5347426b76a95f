//! The local time zone, for dates shown to users.

use admin::number::Zone;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::caller::{self, caller};

/// The time zone of this host, or of the caller's `$TZ`.
pub(crate) fn local() -> Zone {
    Zone(|secs| {
        let caller = caller();
        let zone = caller.zone.get_or_init(|| find(&caller));
        let time = i64::try_from(secs)
            .ok()
            .and_then(|secs| Timestamp::from_second(secs).ok());
        time.map_or(0, |time| i64::from(zone.to_offset(time).seconds()))
    })
}

fn find(caller: &caller::Caller) -> TimeZone {
    if caller.as_client().is_none() {
        return TimeZone::system();
    }
    let named = caller::var_os("TZ").and_then(|name| name.into_string().ok());
    let found = named.and_then(|name| {
        let name = name.trim_start_matches(':');
        TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok()
    });
    found.unwrap_or_else(TimeZone::system)
}
