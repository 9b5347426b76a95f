//! The boot script of a machine.

use std::path::Path;
use std::sync::Arc;

use base::Result;
use machine::World;
use service::Keeper;

use super::SH;
use crate::caller::{self, Client, caller};
use crate::world::enter;

/// What a machine runs when it is switched on.
const BOOT: &str = "boot.sh";

/// Runs the boot script of a machine, if it has one. What it prints goes to stderr; that it fails is told, and the
/// machine starts nevertheless.
///
/// # Errors
/// When there are too many open files.
pub(crate) fn boot(folder: &Path, world: &Arc<World>, keeper: &Arc<Keeper>) -> Result<()> {
    let script = folder.join(BOOT);
    if !script.exists() {
        return Ok(());
    }
    let err = || caller().output_file(caller::Stream::Err);
    let client = Client {
        streams: [std::fs::File::open("/dev/null")?.into(), err()?, err()?],
        environment: caller::environment(),
        state: folder.join("state"),
        machine: Some(folder.to_owned()),
        keeper: Some(Arc::clone(keeper)),
    };
    let caller = caller().within(client)?;
    let words = [script.display().to_string()];
    let code = caller::run(&caller, || {
        enter(world, |_| crate::exit_code(SH.act(&words), "ashift sh: "))
    });
    if code != 0 {
        eprintln!("ashift machine: {} ended with {code}", script.display());
    }
    Ok(())
}
