//! Circles between the modules of a crate: A uses B, and B uses A, if only by way of others. Modules are those that the
//! crate's root declares; what lies below belongs to them.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;
use super::{Breach, paths};

/// What a module uses, and where first: `(from, to)` with path and line.
type Arrows = BTreeMap<(String, String), (String, usize)>;

/// The circles of crate `package`, each with the arrows that close it.
pub(super) fn check(tree: &Tree, package: &str) -> Vec<Breach> {
    let arrows = arrows(tree, package);
    let mut breaches = Vec::new();
    for circle in circles(&arrows) {
        for ((from, to), (path, line)) in &arrows {
            if circle.contains(from) && circle.contains(to) {
                let others: Vec<&str> = circle.iter().map(String::as_str).collect();
                let others = others.join(", ");
                let message = format!("{from} uses {to}: a circle of modules ({others})");
                breaches.push(Breach::new(path, *line, message));
            }
        }
    }
    breaches
}

fn arrows(tree: &Tree, package: &str) -> Arrows {
    let mut arrows = Arrows::new();
    let sources: Vec<_> = tree
        .sources
        .iter()
        .filter(|s| s.package == package && !s.is_test)
        .collect();
    let modules: BTreeSet<&String> = sources.iter().filter_map(|s| s.module.first()).collect();
    for source in &sources {
        let Some(from) = source.module.first() else {
            continue;
        };
        for named in paths::named(&source.module, &source.production()) {
            let [root, to, ..] = named.path.as_slice() else {
                continue;
            };
            if root == "crate" && to != from && modules.contains(to) {
                let place = (source.path.clone(), named.line);
                arrows.entry((from.clone(), to.clone())).or_insert(place);
            }
        }
    }
    arrows
}

/// The sets of modules that reach each other.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let names: BTreeSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> = names
        .iter()
        .map(|&name| {
            let mut reached = BTreeSet::new();
            let mut waiting = vec![name];
            while let Some(from) = waiting.pop() {
                let next = arrows.keys().filter(|(f, _)| f == from).map(|(_, to)| to);
                waiting.extend(next.filter(|&to| reached.insert(to)));
            }
            (name, reached)
        })
        .collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for &name in &names {
        if circles.iter().any(|c| c.contains(name)) {
            continue;
        }
        let circle: BTreeSet<String> = reached[name]
            .iter()
            .filter(|&&other| reached[other].contains(name))
            .map(|&other| other.clone())
            .collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let parse = |(module, text): &(&str, &str)| {
            let path = format!("crates/a/src/{module}.rs");
            let module: Vec<&str> = module.split('/').collect();
            Source::parse(&path, &module, false, text).unwrap()
        };
        let tree = Tree::of(sources.iter().map(parse).collect());
        let breaches = check(&tree, "a");
        breaches.into_iter().map(|b| b.message).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let circle = found(&[
            ("x", "use crate::y::f;"),
            ("y/inner", "fn f() { super::super::z::f(); }"),
            ("y", ""),
            ("z", "fn f() { assert!(crate::x::f()); }"),
            ("w", "use crate::x;"),
        ]);
        assert_eq!(
            circle,
            [
                "x uses y: a circle of modules (x, y, z)",
                "y uses z: a circle of modules (x, y, z)",
                "z uses x: a circle of modules (x, y, z)",
            ]
        );
    }

    #[test]
    fn modules_in_layers_are_none() {
        let layers = [
            ("x", "use crate::{y, z};\nuse super::y::f;"),
            ("y", "use super::z;\n#[cfg(test)]\nuse crate::x;"),
            ("z", "// crate::x\nuse self::inner::g;\nmod inner {}"),
        ];
        assert_eq!(found(&layers), [""; 0]);
    }
}
