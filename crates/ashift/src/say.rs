//! Messages on stderr.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::{FailMode, SuspendEvent};

pub(crate) use crate::progress::progress;

/// Exit code that a shell reports for a program that called `abort`.
const SIGABRT_CODE: i32 = 128 + 6;

/// Says what the command is waiting for.
pub(crate) fn waiting(what: &str) {
    eprintln!("waiting for {what}");
}

/// Reports that a pool is suspended, or has resumed. With `failmode=panic` this ends the program.
pub(crate) fn suspended(pool: &str, event: &SuspendEvent<'_>) {
    match event {
        SuspendEvent::Suspended {
            cause,
            failmode: FailMode::Panic,
            ..
        } => {
            eprintln!("ashift: pool '{pool}' has failmode=panic, and I/O to it failed: {cause}");
            std::process::exit(SIGABRT_CODE);
        }
        SuspendEvent::Suspended {
            cause,
            failmode: FailMode::Wait,
            patience_ns: patience_ns @ 1..,
        } => {
            let secs = *patience_ns as f64 / 1e9;
            eprintln!(
                "pool '{pool}' is suspended: {cause}\nwaiting {secs:.0} s for its devices; bring them \
                 back, or press ^C (ASHIFT_WAIT sets how long)"
            );
        }
        // The command gets an error immediately, and reports that.
        SuspendEvent::Suspended { .. } => {}
        SuspendEvent::Resumed => eprintln!("pool '{pool}' goes on"),
    }
}

/// Ends the program at the first panic of any thread: other threads may be waiting for the panicked one,
/// and would wait forever.
pub(crate) fn end_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or("(no message)");
        static IS_ENDING: AtomicBool = AtomicBool::new(false);
        if IS_ENDING.swap(true, Ordering::SeqCst) {
            // Another thread has reported why the program ends, and is ending it.
            loop {
                std::thread::park();
            }
        }
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            report(panic);
        }
        let at = panic
            .location()
            .map_or_else(String::new, |at| format!(" at {at}"));
        // Not `eprintln`, which panics if stderr is closed.
        let _ = writeln!(
            std::io::stderr(),
            "ashift: internal error{at}: {text}; this is a bug, please report it with the command"
        );
        std::process::exit(SIGABRT_CODE);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const IS_CHILD: &str = "ASHIFT_TEST_PANICS";

    /// Runs only in the child of the test below.
    #[test]
    fn a_thread_panics_while_the_first_one_waits_for_it() {
        if std::env::var_os(IS_CHILD).is_none() {
            return;
        }
        end_at_a_panic();
        // Before the threads start: the first that panics ends the program.
        print!("half a line");
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        for _ in 0..4 {
            let sender = sender.clone();
            let _detached = rt::spawn("worker", move || {
                assert!(sender.send(()).is_err(), "three is not two");
            });
        }
        loop {
            let _ = receiver.recv();
        }
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_program_with_134_and_one_sentence() {
        let this = std::env::current_exe().unwrap();
        let child = Command::new(this)
            .args(["--exact", "--nocapture"])
            .arg("say::tests::a_thread_panics_while_the_first_one_waits_for_it")
            .env(IS_CHILD, "1")
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(134), "{said}");
        assert!(String::from_utf8_lossy(&child.stdout).contains("half a line"));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].starts_with("ashift: internal error at crates/ashift/src/say.rs:"));
        assert!(lines[0].contains(": three is not two; this is a bug, please report it"));
    }
}
