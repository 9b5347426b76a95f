//! What is said on stderr, and the progress bar.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What a shell reports of a program that SIGPIPE ended.
const SIGPIPE_CODE: i32 = 128 + 13;
/// What a shell reports of a program that called `abort`.
const SIGABRT_CODE: i32 = 128 + 6;

/// Says what went wrong and gives the exit code.
pub(crate) fn fail(program: &str, code: u8, text: &str) -> ExitCode {
    eprintln!("{program}: {text}");
    ExitCode::from(code)
}

/// Ends the program at the first panic of any thread: other threads may wait for the one that is gone,
/// and would do so for ever. A closed pipe ends it as it ends other programs (`ashift … | head`).
pub(crate) fn end_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or("(no message)");
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(SIGPIPE_CODE);
        }
        static IS_ENDING: AtomicBool = AtomicBool::new(false);
        if IS_ENDING.swap(true, Ordering::SeqCst) {
            // Another thread has said why the program ends, and is ending it.
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
        // Not `eprintln`, which panics when stderr is gone.
        let _ = writeln!(
            std::io::stderr(),
            "ashift: internal error{at}: {text}; this is a bug, please report it with the command"
        );
        std::process::exit(SIGABRT_CODE);
    }));
}

/// A bar on stderr for work that may take longer than a second; silent when stderr is no terminal.
/// `unit_bytes`: the position counts bytes, not things.
pub(crate) fn progress(total: Option<u64>, unit_bytes: bool) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    let style = match (total.is_some(), unit_bytes) {
        (true, true) => "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {wide_msg}",
        (true, false) => "{bar:30} {pos}/{len} {eta} {wide_msg}",
        (false, true) => "{spinner} {bytes} {bytes_per_sec} {wide_msg}",
        (false, false) => "{spinner} {pos} {wide_msg}",
    };
    bar.set_style(ProgressStyle::with_template(style).expect("the template is right"));
    bar
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
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        for _ in 0..4 {
            let sender = sender.clone();
            rt::spawn("worker", move || {
                assert!(sender.send(()).is_err(), "three is not two");
            });
        }
        print!("half a line");
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
