//! Clocks, threads, locks and randomness come from `rt` in every crate of the engine, and nothing is printed there.

use super::paths::{self, Named};
use super::{Breach, Source};

/// Crates that may name what they like: `rt` itself, `base`, which knows no `rt` and whose lock of freed buffers is
/// held for no more than a few instructions, the binary and what serves it, and what is for tests.
const NOT_ENGINE: &[&str] = &[
    "rt", "base", "ashift", "drivefs", "lab", "oracle", "torture", "xtask", "fuzz",
];

/// What only `rt` may name, with everything below it.
const OUTSIDE_RT: &[&str] = &[
    "std::sync::Mutex",
    "std::sync::MutexGuard",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::Barrier",
    "std::sync::mpsc",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::UNIX_EPOCH",
    "std::thread",
    "std::hash::RandomState",
    "std::collections::hash_map::RandomState",
    "parking_lot",
    "crossbeam",
    "rayon",
    "rand",
    "getrandom",
    "rustix::time",
    "rustix::thread",
    "rustix::rand",
    "libc::clock_gettime",
    "libc::time",
    "libc::nanosleep",
    "libc::getrandom",
];

/// What lies below [`OUTSIDE_RT`] and is harmless.
const HARMLESS: &[&str] = &["std::thread::panicking"];

const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// The places of an engine crate that name what only `rt` may, or print.
pub(super) fn check(source: &Source) -> Vec<Breach> {
    if source.is_test || NOT_ENGINE.contains(&source.package.as_str()) {
        return Vec::new();
    }
    let named = paths::named(&source.module, &source.production());
    let breach = |named: &Named| {
        let message = if prints(named) {
            format!("{}! prints, which no engine crate does", named.joined())
        } else if is_outside_rt(named) {
            format!("{} is for `rt` to name", named.joined())
        } else {
            return None;
        };
        Some(Breach::new(&source.path, named.line, message))
    };
    named.iter().filter_map(breach).collect()
}

fn prints(named: &Named) -> bool {
    let last = named.path.last().map_or("", String::as_str);
    named.is_macro && PRINTING.contains(&last)
}

fn is_outside_rt(named: &Named) -> bool {
    let path = named.joined();
    let is_in = |list: &[&str]| list.iter().any(|p| is_below(&path, p));
    // A glob import of a module brings in what is forbidden in it.
    let glob = path.strip_suffix("::*").unwrap_or("\0");
    is_in(OUTSIDE_RT) && !is_in(HARMLESS) || OUTSIDE_RT.iter().any(|p| is_below(p, glob))
}

/// Whether `path` is `above` or names something in it.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, &[], false, text).unwrap();
        check(&source).iter().map(|b| b.line).collect()
    }

    #[track_caller]
    fn offends(text: &str) {
        assert_eq!(
            lines("crates/zio/src/lib.rs", text).first(),
            Some(&1),
            "{text}"
        );
    }

    #[track_caller]
    fn passes(text: &str) {
        assert_eq!(lines("crates/zio/src/lib.rs", text), [0; 0], "{text}");
    }

    #[test]
    fn locks_clocks_and_threads_of_std_offend() {
        offends("use std::sync::Mutex;");
        offends("use std::sync::{Arc, Condvar as C};");
        offends("use std::sync::*;");
        offends("static LOCK: std::sync::RwLock<u8> = todo;");
        offends("fn f() { use std::time; let now = time::Instant::now(); }");
        offends("fn f() { assert!(std::time::SystemTime::now() > x); }");
        offends("fn f() { std::thread::sleep(x); }");
        offends("use parking_lot::Mutex;");
    }

    #[test]
    fn what_rt_gives_and_what_only_sounds_alike_passes() {
        passes("use rt::{Mutex, thread};\nfn f() { thread::spawn(g); }");
        passes("use std::sync::{Arc, OnceLock, atomic};\nuse std::time::Duration;");
        passes("enum Mutant { Instant }\nfn f() { self.thread.spawn(); \"std::sync::Mutex\"; }");
        passes("// std::sync::Mutex is not for us\nfn f() { if std::thread::panicking() {} }");
    }

    #[test]
    fn printing_offends_and_formatting_passes() {
        offends("fn f() { println!(\"x\"); }");
        offends("fn f() { g(vec![std::eprint!(\"x\")]); }");
        passes("fn f() { writeln!(out, \"println!(x)\"); let print = 1; }");
    }

    #[test]
    fn tests_and_front_ends_may() {
        passes("#[cfg(test)]\nmod tests { use std::sync::Mutex; }");
        assert_eq!(
            lines("crates/ashift/src/main.rs", "use std::thread;"),
            [0; 0]
        );
        assert_eq!(lines("crates/rt/src/lib.rs", "use std::thread;"), [0; 0]);
        let test = Source::parse("crates/zio/tests/a.rs", &[], true, "use std::thread;").unwrap();
        assert_eq!(check(&test), []);
    }
}
