//! The paths that code names, made absolute by the `use` items in scope: `Mutex` after `use std::sync::Mutex` is
//! `std::sync::Mutex`, and `super::list` in module `files::copy` is `crate::files::list`.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// A path that is named in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// Absolute where a `use` or the language says so; a glob import ends in `*`.
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// The name of a macro that is called.
    pub(super) is_macro: bool,
}

impl Named {
    pub(super) fn joined(&self) -> String {
        self.path.join("::")
    }
}

/// Every path that the items name, which are those of module `module`.
pub(super) fn named(module: &[String], items: &[Item]) -> Vec<Named> {
    let mut finder = Finder {
        module: module.to_vec(),
        scopes: vec![imports(module, items)],
        named: Vec::new(),
    };
    for item in items {
        finder.visit_item(item);
    }
    finder.named
}

type Scope = HashMap<String, Vec<String>>;

struct Finder {
    module: Vec<String>,
    /// What `use` items and modules make of names; the innermost scope is last.
    scopes: Vec<Scope>,
    named: Vec<Named>,
}

/// What the `use` items and the modules among `items` make of names.
fn imports<'a>(module: &[String], items: impl IntoIterator<Item = &'a Item>) -> Scope {
    let mut scope = Scope::new();
    for item in items {
        match item {
            Item::Use(item) => {
                for (name, path, _) in leaves(&item.tree) {
                    scope.insert(name, absolute(module, path));
                }
            }
            Item::Mod(inner) => {
                let name = inner.ident.to_string();
                let path = absolute(module, vec!["self".to_owned(), name.clone()]);
                scope.insert(name, path);
            }
            _ => {}
        }
    }
    scope
}

/// `crate`, `self` and `super` replaced by what they mean in `module`.
fn absolute(module: &[String], path: Vec<String>) -> Vec<String> {
    let mut base = module;
    let mut rest = path.as_slice();
    let mut is_relative = false;
    while let Some((first, tail)) = rest.split_first() {
        match first.as_str() {
            "self" => {}
            "super" => base = &base[..base.len().saturating_sub(1)],
            _ => break,
        }
        is_relative = true;
        rest = tail;
    }
    if !is_relative {
        return path;
    }
    let root = std::iter::once("crate".to_owned());
    root.chain(base.iter().cloned())
        .chain(rest.iter().cloned())
        .collect()
}

/// The names that a `use` brings in: the name, the path, where it stands.
fn leaves(tree: &UseTree) -> Vec<(String, Vec<String>, Span)> {
    fn collect(prefix: &[String], tree: &UseTree, found: &mut Vec<(String, Vec<String>, Span)>) {
        let with = |name: String| {
            let mut path = prefix.to_vec();
            path.push(name);
            path
        };
        match tree {
            UseTree::Path(path) => collect(&with(path.ident.to_string()), &path.tree, found),
            UseTree::Group(group) => {
                for tree in &group.items {
                    collect(prefix, tree, found);
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = prefix.last().cloned().unwrap_or_default();
                found.push((last, prefix.to_vec(), name.ident.span()));
            }
            UseTree::Name(name) => {
                let text = name.ident.to_string();
                found.push((text.clone(), with(text), name.ident.span()));
            }
            UseTree::Rename(name) if name.ident == "self" => {
                found.push((name.rename.to_string(), prefix.to_vec(), name.ident.span()));
            }
            UseTree::Rename(name) => {
                let path = with(name.ident.to_string());
                found.push((name.rename.to_string(), path, name.ident.span()));
            }
            UseTree::Glob(glob) => {
                let path = with("*".to_owned());
                found.push(("*".to_owned(), path, glob.star_token.spans[0]));
            }
        }
    }
    let mut found = Vec::new();
    collect(&[], tree, &mut found);
    found
}

impl Finder {
    fn name(&mut self, path: Vec<String>, span: Span, is_macro: bool) {
        let first = path.first().cloned().unwrap_or_default();
        let known = self.scopes.iter().rev().find_map(|s| s.get(&first));
        let path = match known {
            Some(meant) if !is_macro => {
                let mut whole = meant.clone();
                whole.extend(path.into_iter().skip(1));
                whole
            }
            _ => absolute(&self.module, path),
        };
        self.named.push(Named {
            path,
            line: span.start().line,
            is_macro,
        });
    }

    /// The tokens of a macro's call or definition are not parsed: every run of names joined by `::` counts as a path.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let mut run: Vec<String> = Vec::new();
        let mut start = None;
        let mut colons = 0;
        let mut dot = false;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 || run.is_empty() {
                        self.finish(&mut run, &mut start);
                        start = (!dot).then(|| ident.span());
                    }
                    run.push(ident.to_string());
                    (colons, dot) = (0, false);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Punct(punct) => {
                    let is_call = punct.as_char() == '!'
                        && matches!(tokens.peek(), Some(TokenTree::Group(_)));
                    if let (true, Some(span)) = (is_call && !run.is_empty(), start) {
                        self.name(std::mem::take(&mut run), span, true);
                    }
                    self.finish(&mut run, &mut start);
                    (colons, dot) = (0, punct.as_char() == '.');
                }
                TokenTree::Group(group) => {
                    self.finish(&mut run, &mut start);
                    (colons, dot) = (0, false);
                    self.visit_tokens(group.stream());
                }
                TokenTree::Literal(_) => {
                    self.finish(&mut run, &mut start);
                    (colons, dot) = (0, false);
                }
            }
        }
        self.finish(&mut run, &mut start);
    }

    fn finish(&mut self, run: &mut Vec<String>, start: &mut Option<Span>) {
        let path = std::mem::take(run);
        if let (false, Some(span)) = (path.is_empty(), start.take()) {
            self.name(path, span, false);
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for (_, path, span) in leaves(&item.tree) {
            // A local module may be named without `self::`.
            self.name(path, span, false);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let Some((_, items)) = &item.content else {
            return;
        };
        self.module.push(item.ident.to_string());
        let scope = imports(&self.module, items);
        // Names do not reach into modules, unless they are imported from above.
        let inherits = scope
            .get("*")
            .is_some_and(|p| p.len() == self.module.len() + 1);
        let outer = if inherits {
            self.scopes.clone()
        } else {
            std::mem::take(&mut self.scopes)
        };
        self.scopes.push(scope);
        for item in items {
            self.visit_item(item);
        }
        self.scopes = outer;
        self.module.pop();
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let items = block.stmts.iter().filter_map(|s| match s {
            syn::Stmt::Item(item) => Some(item),
            _ => None,
        });
        let scope = imports(&self.module, items);
        self.scopes.push(scope);
        visit::visit_block(self, block);
        self.scopes.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.name(names, first.ident.span(), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let path = &call.path;
        let names = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.name(names, first.ident.span(), true);
        }
        self.visit_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let file = syn::parse_file(text).unwrap();
        let module = ["a".to_owned(), "b".to_owned()];
        let found = named(&module, &file.items);
        found.iter().map(Named::joined).collect()
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = names(text);
        assert!(found.contains(&expect.to_owned()), "{expect} in {found:?}");
    }

    #[test]
    fn a_use_says_what_a_name_is() {
        check(
            "use std::sync::Mutex as M;\nfn f(x: M<u8>) {}",
            "std::sync::Mutex",
        );
        check(
            "use std::{time, fs};\nfn f() { time::Instant::now(); }",
            "std::time::Instant::now",
        );
        check(
            "use std::time::{self};\nfn f() { time::sleep(); }",
            "std::time::sleep",
        );
        check(
            "fn f() { use std::thread; thread::spawn(g); }",
            "std::thread::spawn",
        );
        check("use std::sync::*;", "std::sync::*");
    }

    #[test]
    fn a_use_reaches_as_far_as_its_block_or_module() {
        let found = names("fn f() { use std::thread; }\nfn g() { thread::spawn(h); }");
        assert!(!found.contains(&"std::thread::spawn".to_owned()));
        let found = names("use std::thread;\nmod m { fn g() { thread::spawn(h); } }");
        assert!(!found.contains(&"std::thread::spawn".to_owned()));
        check(
            "use std::thread;\nmod m { use super::*; fn g() { thread::spawn(h); } }",
            "std::thread::spawn",
        );
    }

    #[test]
    fn macros_are_looked_into() {
        check(
            "use std::time::Instant;\nfn f() { assert!(g(Instant::now())); }",
            "std::time::Instant::now",
        );
        let found = names("use x::thread;\nfn f() { assert!(self.thread); }");
        assert_eq!(found.iter().filter(|n| *n == "x::thread").count(), 1);
    }

    #[test]
    fn relative_paths_are_made_absolute() {
        check("use super::c::d;", "crate::a::c::d");
        check("fn f() { self::g(); }", "crate::a::b::g");
        check("mod inner { fn f() { super::g(); } }", "crate::a::b::g");
        check(
            "mod inner;\nfn f() { inner::g(); }",
            "crate::a::b::inner::g",
        );
    }
}
