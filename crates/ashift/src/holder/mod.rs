//! A process that holds pools open, and runs the commands of others in itself: `ashift serve` for those of this host,
//! `ashift machine up` for a machine of emulated drives.
//!
//! # What it is
//! Without a holder each command opens its pools and closes them. With one, a command that works on pools (in a
//! machine: every command) finds the holder by its socket in the state folder, hands over its words, environment,
//! current folder and standard streams, and ends with the code that comes back ([`client`]). The holder runs it in a
//! thread of its own ([`server`]), with that [`Caller`](crate::caller::Caller), on pools that stay open
//! ([`service::Keeper`]): each command is written once and does not know where it runs.
//!
//! Host and machine are two [scenes](scene::Scene) of the same holder: a thread of this process, or one of the
//! machine's simulation, which a command enters by its door ([`rt::Door`]). A machine also begins anew ([`machine`]).
//!
//! # On disk
//! Below the state folder of the host or of the machine: `holder.lock`, locked as long as a holder lives, and
//! `holder.sock`, which it replaces when it starts. A killed one leaves both; what it had on disk is what a power cut
//! leaves.
//!
//! # Invariants
//! 1. A state folder has one holder at most: it has the lock before it touches the socket.
//! 2. Only the user that started the holder, and root, are served: the socket's mode is 0600, and the peer is asked
//!    of the kernel besides. A client gives its streams only to a holder of its own user or root.
//! 3. A command whose client is gone ends at the next word it prints, or step that it shows.
//! 4. While no command runs in a machine, none of its time passes.
//!
//! # Protocol
//! The client sends one byte with four descriptors (stdin, stdout, stderr, the current folder), then a request
//! (`request.rs`). The answer is `c` and the exit code, or `r` and why it was refused, up to the end of the stream. An
//! end of the client's stream before that means that it was interrupted.

mod client;
mod machine;
mod request;
mod scene;
mod server;

use std::path::{Path, PathBuf};

use admin::getopt::{Flag, Parsed};

use crate::background;
use crate::command::{Command, Entry};
use crate::failure::{Fail, Outcome};
use crate::state::state_folder;

pub(crate) use client::{forward, process, restart, stop};
pub(crate) use machine::serve as serve_machine;
pub(crate) use request::Restart;

const USAGE: &str = "\
usage: ashift serve [--background] [POOL…]
       ashift serve --stop
";

const MORE: &str = "
Holds pools open: those named, or all that are imported, and any other from when a command first uses it. Commands
then run in this process, side by side, and what takes long (a scrub, a resilver, a removal) goes on after them.
  --background   return when the pools are open
  --stop         end the commands that run, close the pools, and end the holder; so do SIGTERM and SIGINT
";

/// `ashift serve`.
pub(crate) const SERVE: Command<Entry> = Command::parsed(
    "serve",
    "hold pools open for other commands",
    USAGE,
    ("bsh", 0),
    run,
)
.long(&[("background", Flag::Short('b')), ("stop", Flag::Short('s'))])
.more(MORE)
.apart();

fn run(parsed: &Parsed) -> Outcome {
    let state = state_folder();
    if parsed.has('s') {
        if !parsed.operands.is_empty() || parsed.has('b') {
            return Err(Fail::Usage("--stop stands alone".to_owned()));
        }
        let nothing = || format!("nothing holds the pools remembered in {}", state.display());
        return stop(&state).unwrap_or_else(|| Err(Fail::Failed(nothing())));
    }
    if crate::world::chosen().is_some() {
        let text =
            "a machine is held by 'ashift machine up': run this without -m and ASHIFT_MACHINE";
        return Err(Fail::Failed(text.to_owned()));
    }
    if parsed.has('b') && !background::is_background() {
        let words = [
            &["serve", "--background"].map(str::to_owned),
            &parsed.operands[..],
        ]
        .concat();
        return Ok(background::start(&words, "ashift serve: ")?);
    }
    server::serve(&state, &parsed.operands)
}

fn socket(state: &Path) -> PathBuf {
    state.join("holder.sock")
}
