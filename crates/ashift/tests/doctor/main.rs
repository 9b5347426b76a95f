//! `ashift doctor` on prepared situations: each finding is right, and what is well made has none.

#[path = "../bench/mod.rs"]
mod bench;

mod data;
mod layouts;
mod machines;
mod tables;

use bench::Bench;

/// What the doctor said: its exit code, and each finding as `severity id subject`, in the order of words.
#[derive(Debug, PartialEq, Eq)]
struct Said(i32, Vec<String>);

/// Reads a report; paths of the folder are left out of subjects.
fn said((code, out, err): (i32, String, String), folder: &str) -> Said {
    let report: serde_json::Value =
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!(report["failures"], serde_json::json!([]), "{err}");
    let mut findings = Vec::new();
    for seen in report["seen"].as_array().unwrap() {
        for one in seen["findings"].as_array().unwrap() {
            let text = |key: &str| one[key].as_str().unwrap().to_owned();
            assert!(!text("what").is_empty() && !text("cost").is_empty());
            assert!(!one["do"].as_array().unwrap().is_empty(), "{one}");
            let subject = text("subject").replace(folder, "");
            findings.push(format!("{} {} {}", text("severity"), text("id"), subject));
        }
    }
    findings.sort();
    Said(code, findings)
}

/// Compares what the doctor says of `names` with `expect`, and its exit code with the worst of that.
#[track_caller]
fn expect(bench: &Bench, names: &str, expect: &[&str]) {
    let folder = format!("{}/", bench.folder().display());
    let is_there = |severity: &str| expect.iter().any(|finding| finding.starts_with(severity));
    let code = match (is_there("critical"), is_there("warning")) {
        (true, _) => 4,
        (_, true) => 3,
        _ => 0,
    };
    let mut findings: Vec<String> = expect.iter().map(|finding| (*finding).to_owned()).collect();
    findings.sort();
    let ran = bench.run(format!("doctor -j {names}").trim_end());
    assert_eq!(said(ran, &folder), Said(code, findings), "{names}");
}
