//! Runs every fuzz target for a while.

use std::fs;

/// Builds and runs each target of `fuzz/fuzz_targets` for `seconds` (default 60).
pub(crate) fn run(seconds: Option<&str>) -> Result<(), String> {
    let seconds: u32 = seconds
        .unwrap_or("60")
        .parse()
        .map_err(|_| "SECONDS is a number")?;
    let folder = crate::root().join("fuzz/fuzz_targets");
    let mut targets: Vec<String> = fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|e| e.ok()?.path().file_stem()?.to_str().map(String::from))
        .collect();
    targets.sort();
    if targets.is_empty() {
        return Err("there is no fuzz target".into());
    }
    let limit = format!("-max_total_time={seconds}");
    for target in &targets {
        crate::run(
            "cargo",
            &["fuzz", "run", target, "--", &limit, "-rss_limit_mb=2048"],
        )?;
    }
    println!("{} fuzz targets, {seconds} s each: no panic", targets.len());
    Ok(())
}
