//! The arrows between crates: `Cargo.toml`, the code, and the two drawings in ARCHITECTURE.md say the same.
//!
//! The picture of floors is the first block of the document: every crate is in it once, and depends only on crates
//! of lines further down. The block below "Arrows" says for each crate which others it depends on, and which ones its
//! tests use besides.

use std::collections::{BTreeMap, BTreeSet};

use super::paths;
use super::tree::Tree;
use super::{Breach, Source};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// What a crate depends on, of the crates of this workspace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Arrows {
    normal: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// The places where the drawings, the manifests and the code differ.
pub(super) fn check(
    document: &str,
    metadata: &serde_json::Value,
    tree: &Tree,
) -> Result<Vec<Breach>, String> {
    let real = real(metadata)?;
    let mut breaches = Vec::new();
    compare(&drawn(document)?, &real, &mut breaches);
    levels(&picture(document)?, &real, &mut breaches);
    unused(&real, tree, &mut breaches);
    Ok(breaches)
}

/// The arrows of the manifests.
fn real(metadata: &serde_json::Value) -> Result<BTreeMap<String, Arrows>, String> {
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?;
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap_or("?").to_owned();
    let names: BTreeSet<String> = packages.iter().map(name).collect();
    let mut real = BTreeMap::new();
    for package in packages {
        let mut arrows = Arrows::default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let below = name(dependency);
            if !names.contains(&below) {
                continue;
            }
            if dependency["kind"].as_str() == Some("dev") {
                arrows.tests.insert(below);
            } else {
                arrows.normal.insert(below);
            }
        }
        real.insert(name(package), arrows);
    }
    Ok(real)
}

/// The text between the fences of the first block at or after `from`.
fn block(document: &str, from: usize) -> Option<&str> {
    let (_, rest) = document[from..].split_once("\n```\n")?;
    Some(rest.split_once("\n```").map_or(rest, |(block, _)| block))
}

/// The arrows as they are drawn: `crate: others | tests: others`.
fn drawn(document: &str) -> Result<BTreeMap<String, Arrows>, String> {
    let heading = document.find("\n## Arrows\n");
    let block = heading.and_then(|at| block(document, at));
    let block = block.ok_or(format!("{DOCUMENT}: no block under \"## Arrows\""))?;
    let set = |names: &str| names.split_whitespace().map(str::to_owned).collect();
    let mut drawn = BTreeMap::new();
    for line in block.lines() {
        let bad =
            || format!("{DOCUMENT}: an arrow reads \"crate: others | tests: others\": {line}");
        let (name, others) = line.split_once(':').ok_or_else(bad)?;
        let (normal, tests) = others.split_once("| tests:").unwrap_or((others, ""));
        let arrows = Arrows {
            normal: set(normal),
            tests: set(tests),
        };
        if drawn.insert(name.trim().to_owned(), arrows).is_some() {
            return Err(format!("{DOCUMENT}: {name} has two lines of arrows"));
        }
    }
    Ok(drawn)
}

fn compare(
    drawn: &BTreeMap<String, Arrows>,
    real: &BTreeMap<String, Arrows>,
    breaches: &mut Vec<Breach>,
) {
    let mut breach = |message| breaches.push(Breach::new(DOCUMENT, 0, message));
    for name in real.keys().filter(|n| !drawn.contains_key(*n)) {
        breach(format!("no arrows are drawn for {name}"));
    }
    for (name, drawn) in drawn {
        let Some(real) = real.get(name) else {
            breach(format!("arrows are drawn for {name}, which is not a crate"));
            continue;
        };
        for (what, drawn, real) in [
            ("", &drawn.normal, &real.normal),
            (" in tests", &drawn.tests, &real.tests),
        ] {
            for other in real.difference(drawn) {
                breach(format!(
                    "{name} depends on {other}{what}, which is not drawn"
                ));
            }
            for other in drawn.difference(real) {
                breach(format!(
                    "{name} is drawn above {other}{what}, but does not depend on it"
                ));
            }
        }
    }
}

/// The crates of the picture with the number of their line. Text in brackets is not read.
fn picture(document: &str) -> Result<BTreeMap<String, usize>, String> {
    let block = block(document, 0).ok_or(format!("{DOCUMENT}: no picture"))?;
    let mut lines = BTreeMap::new();
    for (at, line) in block.lines().enumerate() {
        let mut depth = 0;
        let outside = line.chars().filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => return depth == 0,
            }
            false
        });
        let outside: String = outside.collect();
        let words = outside.split_whitespace();
        for name in words.filter(|w| !w.chars().all(|c| "-|".contains(c))) {
            if lines.insert(name.to_owned(), at).is_some() {
                return Err(format!("{DOCUMENT}: {name} is in the picture twice"));
            }
        }
    }
    Ok(lines)
}

fn levels(
    picture: &BTreeMap<String, usize>,
    real: &BTreeMap<String, Arrows>,
    breaches: &mut Vec<Breach>,
) {
    let mut breach = |message| breaches.push(Breach::new(DOCUMENT, 0, message));
    for name in picture.keys().filter(|n| !real.contains_key(*n)) {
        breach(format!("the picture shows {name}, which is not a crate"));
    }
    for (name, arrows) in real {
        let Some(own) = picture.get(name) else {
            breach(format!("the picture does not show {name}"));
            continue;
        };
        for other in &arrows.normal {
            if picture.get(other).is_some_and(|line| line <= own) {
                breach(format!(
                    "{name} depends on {other}, which the picture does not show below it"
                ));
            }
        }
    }
}

/// Dependencies that no code names.
fn unused(real: &BTreeMap<String, Arrows>, tree: &Tree, breaches: &mut Vec<Breach>) {
    let mut named: BTreeMap<&str, [BTreeSet<String>; 2]> = BTreeMap::new();
    for source in &tree.sources {
        let firsts = |items: &[syn::Item], source: &Source| -> BTreeSet<String> {
            let named = paths::named(&source.module, items);
            named
                .into_iter()
                .filter_map(|n| n.path.into_iter().next())
                .collect()
        };
        let [normal, all] = named.entry(&source.package).or_default();
        normal.extend(firsts(&source.production(), source));
        all.extend(firsts(&source.file.items, source));
    }
    for (name, arrows) in real {
        let Some([normal, all]) = named.get(name.as_str()) else {
            continue;
        };
        let manifest = format!("{name}/Cargo.toml");
        let mut breach = |message| breaches.push(Breach::new(&manifest, 0, message));
        for other in arrows.normal.difference(normal) {
            breach(format!(
                "{name} depends on {other}, but names it in tests at most"
            ));
        }
        for other in arrows.tests.difference(all) {
            breach(format!(
                "the tests of {name} depend on {other}, but do not name it"
            ));
        }
        for other in arrows.tests.intersection(&arrows.normal) {
            breach(format!("{name} depends on {other} twice"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = "# A\n```\n c (the top: a b)\n ----- b (x)\n a\n```\n## Arrows\nText.\n```\n\
                           a:\nb: a\nc: a | tests: b\n```\n";

    fn metadata(arrows: &[(&str, &[&str], &[&str])]) -> serde_json::Value {
        let packages: Vec<serde_json::Value> = arrows
            .iter()
            .map(|(name, normal, tests)| {
                let normal = normal
                    .iter()
                    .map(|d| serde_json::json!({"name": d, "kind": null}));
                let tests = tests
                    .iter()
                    .map(|d| serde_json::json!({"name": d, "kind": "dev"}));
                let all: Vec<_> = normal.chain(tests).collect();
                serde_json::json!({"name": name, "dependencies": all})
            })
            .collect();
        serde_json::json!({ "packages": packages })
    }

    #[track_caller]
    fn check_arrows(document: &str, arrows: &[(&str, &[&str], &[&str])], expect: &[&str]) {
        let found = check(document, &metadata(arrows), &Tree::of(Vec::new())).unwrap();
        let found: Vec<String> = found.into_iter().map(|b| b.message).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn drawings_that_say_what_is_pass() {
        let serde: &[&str] = &["a", "serde"];
        check_arrows(
            DRAWING,
            &[("a", &[], &[]), ("b", serde, &[]), ("c", &["a"], &["b"])],
            &[],
        );
    }

    #[test]
    fn each_arrow_too_many_or_too_few_offends() {
        check_arrows(
            DRAWING,
            &[("a", &[], &["c"]), ("b", &[], &[]), ("c", &["a", "b"], &[])],
            &[
                "a depends on c in tests, which is not drawn",
                "b is drawn above a, but does not depend on it",
                "c depends on b, which is not drawn",
                "c is drawn above b in tests, but does not depend on it",
            ],
        );
    }

    #[test]
    fn crates_that_are_not_there_or_not_drawn_offend() {
        check_arrows(
            DRAWING,
            &[("a", &[], &[]), ("b", &["a"], &[]), ("d", &[], &[])],
            &[
                "no arrows are drawn for d",
                "arrows are drawn for c, which is not a crate",
                "the picture shows c, which is not a crate",
                "the picture does not show d",
            ],
        );
    }

    #[test]
    fn an_arrow_that_does_not_lead_down_in_the_picture_offends() {
        let beside = DRAWING
            .replace(" a\n```", "```")
            .replace("b (x)", "b (x) a");
        check_arrows(
            &beside,
            &[("a", &[], &[]), ("b", &["a"], &[]), ("c", &["a"], &["b"])],
            &["b depends on a, which the picture does not show below it"],
        );
    }

    #[test]
    fn a_dependency_that_no_code_names_offends() {
        let sources = [
            ("b", "#[cfg(test)]\nmod tests { use a::f; }"),
            ("c", "use a::f;\n#[cfg(test)]\nfn g() { b::h(); }"),
        ];
        let parse = |(name, text): (&str, &str)| {
            Source::parse(&format!("crates/{name}/src/lib.rs"), &[], false, text).unwrap()
        };
        let tree = Tree::of(sources.into_iter().map(parse).collect());
        let metadata = metadata(&[("a", &[], &[]), ("b", &["a"], &[]), ("c", &["a"], &["b"])]);
        let found = check(DRAWING, &metadata, &tree).unwrap();
        let found: Vec<String> = found.into_iter().map(|b| b.message).collect();
        assert_eq!(found, ["b depends on a, but names it in tests at most"]);
    }
}
