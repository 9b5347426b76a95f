//! What is said on stderr, and the progress bar.

use std::io::IsTerminal;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Says what went wrong and gives the exit code.
pub(crate) fn fail(program: &str, code: u8, text: &str) -> ExitCode {
    eprintln!("{program}: {text}");
    ExitCode::from(code)
}

/// Lets a closed pipe end the program as it ends others (`ashift … | head`), not with a panic.
pub(crate) fn end_with_the_pipe() {
    /// What a shell reports of a program that SIGPIPE ended.
    const SIGPIPE_CODE: i32 = 128 + 13;
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(SIGPIPE_CODE);
        }
        report(panic);
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
