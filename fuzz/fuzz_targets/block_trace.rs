//! Block traces: the input as text, as it is or as one of fio's logs, issued to a small disk if it fits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use measure::replay::{Pace, parse, run};
use ram::Memory;

fuzz_target!(|input: &[u8]| {
    let Some((&pick, rest)) = input.split_first() else {
        return;
    };
    let lead = match pick % 3 {
        0 => "",
        1 => "fio version 2 iolog\n",
        _ => "fio version 3 iolog\n",
    };
    let text = format!("{lead}{}", String::from_utf8_lossy(rest));
    let Ok(trace) = parse(&text, None) else {
        return;
    };
    let disk = Memory::new("disk", 1 << 20);
    let pace = Pace {
        keeps_time: false,
        depth: 1 + usize::from(pick / 3),
    };
    if let Ok(replayed) = run(&disk, &trace, pace, |_| {}) {
        assert_eq!(replayed.count(), trace.len());
        let _ = (replayed.table(), replayed.histogram());
    }
});
