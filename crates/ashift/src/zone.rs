//! The local time zone, for dates shown to users.

use std::sync::OnceLock;

use admin::number::Zone;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time zone of this host, or of `$TZ`.
pub(crate) fn local() -> Zone {
    Zone(|secs| {
        static ZONE: OnceLock<TimeZone> = OnceLock::new();
        let zone = ZONE.get_or_init(TimeZone::system);
        let time = i64::try_from(secs)
            .ok()
            .and_then(|secs| Timestamp::from_second(secs).ok());
        time.map_or(0, |time| i64::from(zone.to_offset(time).seconds()))
    })
}
