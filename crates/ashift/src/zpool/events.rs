//! `zpool events`.
//!
//! # Source
//! OpenZFS cmd/zpool/zpool_main.c (`zpool_do_events`, `zpool_do_events_short`, `zpool_do_events_nvprint`).

use std::fmt::Write as _;
use std::io::Write as _;

use admin::getopt::Parsed;
use admin::number::date_time;
use admin::prop::vdev_state_word;
use nvpair::{NvList, NvValue};
use service::Session;

use super::{Fail, Outcome, zone};

/// How often `-f` looks for new events, in ns.
const LOOK_NS: u64 = 200_000_000;
/// By how much what belongs to an event is indented, in columns.
const DEPTH: usize = 8;

/// `zpool events`.
pub(super) fn run(session: &Session, args: &Parsed) -> Outcome {
    let pool = match args.operands.as_slice() {
        [] => None,
        [pool] => Some(pool.as_str()),
        _ => return Err(Fail::Usage("too many arguments".into())),
    };
    if args.has('c') {
        if args.has('v') || args.has('f') || pool.is_some() {
            return Err(Fail::Usage("invalid options combined with -c".into()));
        }
        println!("cleared {} events", session.pools().clear_events()?);
        return Ok(());
    }
    if !args.has('H') {
        println!("{:<30} CLASS", "TIME");
    }
    // In a machine nothing else runs that could be followed.
    let follows = args.has('f') && !crate::world::is_machine();
    let mut last = None;
    loop {
        let mut out = String::new();
        for (eid, event) in session.pools().events() {
            if last.is_some_and(|last| eid <= last) {
                continue;
            }
            last = Some(eid);
            if pool.is_none_or(|pool| event.get_str("pool").is_none_or(|of| of == pool)) {
                push_event(&mut out, &event, args.has('H'), args.has('v'));
            }
        }
        print!("{out}");
        std::io::stdout().flush()?;
        if !follows {
            return Ok(());
        }
        rt::sleep_ns(LOOK_NS);
    }
}

fn push_event(out: &mut String, event: &NvList, is_scripted: bool, is_verbose: bool) {
    let gap = if is_scripted { '\t' } else { ' ' };
    let class = event.get_str("class").unwrap_or_default();
    let _ = writeln!(out, "{}{gap}{class}", time_of(event));
    if is_verbose {
        push_list(out, event, DEPTH);
        out.push('\n');
    }
}

/// `Jun 30 1993 21:49:08.123456789`
fn time_of(event: &NvList) -> String {
    let time = match event.get("time") {
        Some(NvValue::Int64Array(time)) => time.as_slice(),
        _ => &[],
    };
    let at = |i: usize| time.get(i).copied().unwrap_or(0);
    let secs = u64::try_from(at(0)).unwrap_or(0);
    // `Wed Jun 30 21:49:08 1993`
    let text = date_time(secs, zone());
    let part = |range: std::ops::Range<usize>| text.get(range).unwrap_or_default();
    let end = text.len();
    let (day, clock, year) = (part(4..10), part(11..19), part(20..end));
    format!("{day} {year} {clock}.{:09}", at(1))
}

fn push_list(out: &mut String, list: &NvList, depth: usize) {
    for (name, value) in list.iter() {
        let name = String::from_utf8_lossy(name.as_bytes());
        let _ = write!(out, "{:depth$}{name} = ", "");
        push_value(out, &name, value, depth);
        out.push('\n');
    }
}

/// A value as the real tool prints it; those of types that no event has are left out.
fn push_value(out: &mut String, name: &str, value: &NvValue, depth: usize) {
    let _ = match value {
        NvValue::Boolean => write!(out, "1"),
        NvValue::BooleanValue(is_set) => write!(out, "{}", u8::from(*is_set)),
        NvValue::Uint8(n) => write!(out, "{n:#x}"),
        NvValue::Int32(n) => write!(out, "{n:#x}"),
        NvValue::Uint32(n) => write!(out, "{n:#x}"),
        NvValue::Int64(n) => write!(out, "{n:#x}"),
        NvValue::Uint64(n) if matches!(name, "vdev_state" | "vdev_laststate") => {
            write!(out, "\"{}\" ({n:#x})", vdev_state_word(*n))
        }
        NvValue::Uint64(n) => write!(out, "{n:#x}"),
        NvValue::String(text) => {
            write!(out, "\"{}\"", String::from_utf8_lossy(text.as_bytes()))
        }
        NvValue::List(list) => {
            out.push_str("(embedded nvlist)\n");
            push_list(out, list, depth + DEPTH);
            write!(out, "{:depth$}(end {name})", "")
        }
        NvValue::Int64Array(all) => all.iter().try_for_each(|n| write!(out, "{n:#x} ")),
        NvValue::Uint64Array(all) => all.iter().try_for_each(|n| write!(out, "{n:#x} ")),
        NvValue::StringArray(all) => all
            .iter()
            .try_for_each(|text| write!(out, "\"{}\" ", String::from_utf8_lossy(text.as_bytes()))),
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_as_the_real_tool_does() {
        let detector = NvList::new().with("version", 0u8).with("scheme", "zfs");
        let event = NvList::new()
            .with("class", "ereport.fs.zfs.checksum")
            .with("detector", detector)
            .with("pool_context", 6i32)
            .with("vdev_state", 7u64)
            .with("vdev_spare_paths", vec!["/a", "/b"])
            .with("vdev_spare_guids", Vec::<u64>::new())
            .with("time", vec![0x6b05_6acai64, 0x247a_6100]);
        let mut out = String::new();
        push_event(&mut out, &event, false, true);
        let (first, rest) = out.split_once('\n').unwrap();
        assert!(
            first.ends_with(".612000000 ereport.fs.zfs.checksum"),
            "{first}"
        );
        assert_eq!(
            rest,
            "        class = \"ereport.fs.zfs.checksum\"
        detector = (embedded nvlist)
                version = 0x0
                scheme = \"zfs\"
        (end detector)
        pool_context = 0x6
        vdev_state = \"ONLINE\" (0x7)
        vdev_spare_paths = \"/a\" \"/b\"\u{20}
        vdev_spare_guids =\u{20}
        time = 0x6b056aca 0x247a6100\u{20}

"
        );
    }
}
