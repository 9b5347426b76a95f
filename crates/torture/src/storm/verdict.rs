//! What the real `zdb` says about the pools that a run leaves.

use geom::Provider;
use oracle::{Zdb, have_zdb};

use super::run::{Failure, Report, run};
use super::script::Script;

/// Runs a script, and then `zdb -e -p DIR -bcc POOL` on each pool, if `zdb` is installed.
///
/// # Errors
/// What was wrong; a complaint of `zdb` counts as coming after the last step.
pub fn run_and_verify(script: &Script) -> Result<Report, Failure> {
    let report = run(script)?;
    let verified = if have_zdb() {
        verify_by_zdb(&report)
    } else {
        Ok(())
    };
    let step = script.steps.len();
    verified.map_err(|message| Failure { step, message })?;
    Ok(report)
}

fn verify_by_zdb(report: &Report) -> Result<(), String> {
    for (name, images) in &report.pools {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        for (n, image) in images.iter().enumerate() {
            let saved = image.save(&folder.path().join(format!("disk{n}")));
            saved.map_err(|e| format!("{}: {e}", image.name()))?;
        }
        let zdb = Zdb::verify(folder.path(), name);
        if !zdb.is_clean() {
            let Zdb { stdout, stderr, .. } = zdb;
            return Err(format!("zdb complains of {name}:\n{stdout}\n{stderr}"));
        }
    }
    Ok(())
}
