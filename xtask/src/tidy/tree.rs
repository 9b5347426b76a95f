//! The sources of the repository, parsed. Files are found as the compiler finds them, from each crate's roots along
//! `mod`, so that each one is known by its module, and by whether it is compiled for tests only.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::TokenStream;
use syn::spanned::Spanned;
use syn::{Attribute, ImplItem, Item, Meta};

use super::Breach;

/// A parsed file.
pub(super) struct Source {
    /// From the root of the repository.
    pub(super) path: String,
    /// The crate's name: the folder in `crates/`, or `xtask` or `fuzz`.
    pub(super) package: String,
    /// The module in its crate, the crate's root being empty.
    pub(super) module: Vec<String>,
    /// Tests, benches, examples, fuzz targets, and modules below `#[cfg(test)]`.
    pub(super) is_test: bool,
    pub(super) text: String,
    pub(super) file: syn::File,
}

impl Source {
    /// Parses `text` as the file `path`.
    pub(super) fn parse(
        path: &str,
        module: &[&str],
        is_test: bool,
        text: &str,
    ) -> Result<Source, String> {
        let file = syn::parse_file(text).map_err(|e| {
            let at = e.span().start();
            format!("{path}:{}:{}: {e}", at.line, at.column)
        })?;
        Ok(Source {
            path: path.to_owned(),
            package: package_of(path).to_owned(),
            module: module.iter().map(|&m| m.to_owned()).collect(),
            is_test,
            text: text.to_owned(),
            file,
        })
    }

    /// The items, without those that are compiled for tests only.
    pub(super) fn production(&self) -> Vec<Item> {
        if self.is_test {
            Vec::new()
        } else {
            without_tests(&self.file.items)
        }
    }

    /// The tokens of the file.
    pub(super) fn tokens(&self) -> TokenStream {
        self.text.parse().expect("syn parsed it")
    }

    /// The lines that are compiled for tests only, as ranges from..=to.
    pub(super) fn test_lines(&self) -> Vec<(usize, usize)> {
        fn collect(items: &[Item], lines: &mut Vec<(usize, usize)>) {
            for item in items {
                if is_for_tests(attributes(item)) {
                    let span = item.span();
                    lines.push((span.start().line, span.end().line));
                } else if let Item::Mod(module) = item
                    && let Some((_, items)) = &module.content
                {
                    collect(items, lines);
                }
            }
        }
        let mut lines = Vec::new();
        collect(&self.file.items, &mut lines);
        lines
    }
}

fn without_tests(items: &[Item]) -> Vec<Item> {
    let kept = items.iter().filter(|i| !is_for_tests(attributes(i)));
    kept.cloned()
        .map(|mut item| {
            match &mut item {
                Item::Mod(module) => {
                    if let Some((_, items)) = &mut module.content {
                        *items = without_tests(items);
                    }
                }
                Item::Impl(block) => block
                    .items
                    .retain(|i| !matches!(i, ImplItem::Fn(f) if is_for_tests(&f.attrs))),
                _ => {}
            }
            item
        })
        .collect()
}

/// Whether the attributes say `#[cfg(test)]` or `#[test]`.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all (test")
        }
        _ => false,
    })
}

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

fn package_of(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}

/// Every source of the repository.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
    /// Files that no `mod` leads to.
    orphans: Vec<String>,
}

impl Tree {
    /// Parses what lies at `root`, as far as git knows it.
    pub(super) fn load(root: &Path) -> Result<Tree, String> {
        let paths = tracked(root, "*.rs")?;
        let mut tree = Tree::default();
        let mut seen = BTreeSet::new();
        for path in paths.iter().filter(|p| is_root(p)) {
            let is_test = !path.contains("/src/");
            tree.walk(root, Path::new(path), &[], is_test, &mut seen)?;
        }
        let orphans = paths.into_iter().filter(|p| !seen.contains(p));
        tree.orphans.extend(orphans);
        Ok(tree)
    }

    /// Parses the file of module `module` and what it declares.
    fn walk(
        &mut self,
        root: &Path,
        path: &Path,
        module: &[String],
        is_test: bool,
        seen: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let name = path.display().to_string();
        if !seen.insert(name.clone()) {
            return Ok(());
        }
        let text = fs::read_to_string(root.join(path)).map_err(|e| format!("{name}: {e}"))?;
        let names: Vec<&str> = module.iter().map(String::as_str).collect();
        let source = Source::parse(&name, &names, is_test, &text)?;
        let folder = folder_of(path, module.is_empty());
        for child in children(root, &source.file.items, path, &folder, is_test)? {
            let inner: Vec<String> = module.iter().cloned().chain(child.module).collect();
            self.walk(root, &child.path, &inner, child.is_test, seen)?;
        }
        self.sources.push(source);
        Ok(())
    }

    /// A tree of these sources.
    #[cfg(test)]
    pub(super) fn of(sources: Vec<Source>) -> Tree {
        Tree {
            sources,
            orphans: Vec::new(),
        }
    }

    /// The files that no `mod` leads to: nothing compiles them.
    pub(super) fn orphans(&self) -> Vec<Breach> {
        let message = "no `mod` leads here, so nothing compiles it";
        let breach = |path: &String| Breach::new(path, 0, message);
        self.orphans.iter().map(breach).collect()
    }
}

/// Whether the file is the root of a crate: a library, a binary, a test, a bench, an example, a fuzz target.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        [.., "src", "lib.rs" | "main.rs"]
            | [.., "src", "bin", _]
            | ["crates", _, "tests" | "benches" | "examples", _]
            | ["crates", _, "tests" | "benches" | "examples", _, "main.rs"]
            | ["fuzz", "fuzz_targets", _]
    )
}

/// Where the children of the file's module lie.
fn folder_of(path: &Path, is_root: bool) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    if is_root || path.file_name().is_some_and(|n| n == "mod.rs") {
        folder
    } else {
        folder.join(path.file_stem().unwrap_or_default())
    }
}

/// A module that has a file of its own.
struct Child {
    module: Vec<String>,
    path: PathBuf,
    is_test: bool,
}

fn children(
    root: &Path,
    items: &[Item],
    path: &Path,
    folder: &Path,
    is_test: bool,
) -> Result<Vec<Child>, String> {
    let mut found = Vec::new();
    for item in items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let is_test = is_test || is_for_tests(&module.attrs);
        if let Some((_, items)) = &module.content {
            for mut child in children(root, items, path, &folder.join(&name), is_test)? {
                child.module.insert(0, name.clone());
                found.push(child);
            }
            continue;
        }
        let candidates = match path_attribute(&module.attrs) {
            Some(other) => vec![plain(&path.parent().unwrap_or(Path::new("")).join(other))],
            None => vec![
                folder.join(format!("{name}.rs")),
                folder.join(&name).join("mod.rs"),
            ],
        };
        let file = candidates.into_iter().find(|p| root.join(p).exists());
        let at = path.display();
        found.push(Child {
            path: file.ok_or_else(|| format!("{at}: module {name} has no file"))?,
            module: vec![name],
            is_test,
        });
    }
    Ok(found)
}

/// What `#[path = "…"]` says.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|a| match &a.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part.as_os_str() == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The Markdown files of the repository, with their text.
pub(super) fn documents(root: &Path) -> Result<Vec<(String, String)>, String> {
    let read = |path: String| match fs::read_to_string(root.join(&path)) {
        Ok(text) => Ok((path, text)),
        Err(e) => Err(format!("{path}: {e}")),
    };
    tracked(root, "*.md")?.into_iter().map(read).collect()
}

/// The files that git knows, and those that it would add.
fn tracked(root: &Path, pattern: &str) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .arg(pattern)
        .current_dir(root)
        .output()
        .map_err(|e| format!("git ls-files: {e}"))?;
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = listing.lines().filter(|p| root.join(p).exists());
    let paths: BTreeSet<String> = paths.map(str::to_owned).collect();
    if paths.is_empty() {
        return Err(format!("git ls-files {pattern} lists nothing"));
    }
    Ok(paths.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_for_tests_are_left_out_wherever_they_are() {
        let text = "fn kept() {}\n#[cfg(test)]\nfn left_out() {}\nmod m {\n    #[cfg(test)]\n    mod tests {}\n}\n\
                    impl S {\n    #[cfg(test)]\n    fn f() {}\n}\n#[cfg(not(test))]\nfn kept_too() {}\n";
        let source = Source::parse("crates/a/src/lib.rs", &[], false, text).unwrap();
        let kept = source.production();
        assert_eq!(kept.len(), 4);
        assert!(matches!(&kept[1], Item::Mod(m) if m.content.as_ref().unwrap().1.is_empty()));
        assert!(matches!(&kept[2], Item::Impl(i) if i.items.is_empty()));
        assert_eq!(source.test_lines(), [(2, 3), (5, 6)]);
    }

    #[test]
    fn modules_are_found_as_the_compiler_finds_them() {
        let tree = Tree::load(&crate::root()).unwrap();
        let find = |path: &str| tree.sources.iter().find(|s| s.path == path).unwrap();
        let here = find("xtask/src/tidy/tree.rs");
        assert_eq!(here.module, ["tidy", "tree"]);
        assert!(!here.is_test);
        assert!(find("crates/dmu/tests/objects.rs").is_test);
        assert!(find("crates/zio/src/tests.rs").is_test);
        assert!(!find("crates/oracle/src/lib.rs").is_test);
    }
}
