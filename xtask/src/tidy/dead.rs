//! Public items that nothing needs: no other crate names them and no test.
//!
//! It goes by names: an item counts as used if any item of that name is. Names in macros count, and those in format
//! strings. What only its own crate uses need not be public; a type, though, must be if a public function returns it.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Ident, ImplItem, Item, Type, Visibility};

use super::tree::{self, Tree};
use super::{Breach, Source};

/// How often a crate mentions a name.
#[derive(Debug, Default, Clone, Copy)]
struct Mentions {
    production: usize,
    tests: usize,
    /// In a `pub use`.
    reexports: usize,
}

/// Mentions by name, then by crate.
type Index = BTreeMap<String, BTreeMap<String, Mentions>>;

/// A public item of a library.
struct Public {
    name: String,
    package: String,
    path: String,
    line: usize,
    /// Functions and constants: nothing but a mention needs them to be public.
    can_be_private: bool,
    /// How often the item names itself, its definition included.
    own_mentions: usize,
}

/// The public items that nobody uses.
pub(super) fn check(tree: &Tree) -> Vec<Breach> {
    let mut index = Index::new();
    let mut public = Vec::new();
    let is_library = |s: &&Source| s.path.ends_with("/src/lib.rs");
    let libraries = tree.sources.iter().filter(is_library);
    let libraries: Vec<&str> = libraries.map(|s| s.package.as_str()).collect();
    for source in &tree.sources {
        count(
            &source.file.items,
            source.is_test,
            &source.package,
            &mut index,
        );
        if libraries.contains(&source.package.as_str()) {
            let start = public.len();
            collect(&source.production(), &mut public);
            for item in &mut public[start..] {
                item.package.clone_from(&source.package);
                item.path.clone_from(&source.path);
            }
        }
    }
    public
        .iter()
        .filter_map(|item| breach_of(item, &index))
        .collect()
}

fn breach_of(item: &Public, index: &Index) -> Option<Breach> {
    let by_crate = &index[&item.name];
    let is_named_elsewhere = by_crate.keys().any(|package| *package != item.package);
    let own = by_crate[&item.package];
    if is_named_elsewhere || own.tests > 0 {
        return None;
    }
    let name = &item.name;
    let message = if own.production <= item.own_mentions {
        format!("nothing uses {name}")
    } else if item.can_be_private {
        format!("only its own crate uses {name}: pub(crate)")
    } else {
        return None;
    };
    Some(Breach::new(&item.path, item.line, message))
}

/// Adds the public items; their package and path are left empty.
fn collect(items: &[Item], public: &mut Vec<Public>) {
    let mut add = |vis: &Visibility, name: &Ident, can_be_private: bool, tokens: TokenStream| {
        if matches!(vis, Visibility::Public(_)) {
            let line = name.span().start().line;
            let name = name.to_string();
            let mut own_mentions = 0;
            names(tokens, &mut |other| {
                own_mentions += usize::from(other == name);
            });
            public.push(Public {
                name,
                package: String::new(),
                path: String::new(),
                line,
                can_be_private,
                own_mentions,
            });
        }
    };
    for item in items {
        match item {
            Item::Const(i) => add(&i.vis, &i.ident, true, i.to_token_stream()),
            Item::Static(i) => add(&i.vis, &i.ident, true, i.to_token_stream()),
            Item::Fn(i) => add(&i.vis, &i.sig.ident, true, i.to_token_stream()),
            Item::Enum(i) => add(&i.vis, &i.ident, false, i.to_token_stream()),
            Item::Struct(i) => add(&i.vis, &i.ident, false, i.to_token_stream()),
            Item::Trait(i) => add(&i.vis, &i.ident, false, i.to_token_stream()),
            Item::Type(i) => add(&i.vis, &i.ident, false, i.to_token_stream()),
            Item::Impl(block) if block.trait_.is_none() => {
                for item in &block.items {
                    match item {
                        ImplItem::Const(i) => add(&i.vis, &i.ident, true, i.to_token_stream()),
                        ImplItem::Fn(i) => add(&i.vis, &i.sig.ident, true, i.to_token_stream()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    for item in items {
        if let Item::Mod(module) = item
            && let Some((_, items)) = &module.content
        {
            collect(items, public);
        }
    }
}

/// Counts the names in `items`.
fn count(items: &[Item], is_test: bool, package: &str, index: &mut Index) {
    for item in items {
        let is_test = is_test || tree::is_for_tests(tree::attributes(item));
        let mut add = |name: &str, reexport: bool| {
            let by_crate = index.entry(name.to_owned()).or_default();
            let mentions = by_crate.entry(package.to_owned()).or_default();
            match (reexport, is_test) {
                (true, _) => mentions.reexports += 1,
                (false, true) => mentions.tests += 1,
                (false, false) => mentions.production += 1,
            }
        };
        match item {
            Item::Mod(module) if module.content.is_some() => {
                let (_, items) = module.content.as_ref().expect("looked at");
                count(items, is_test, package, index);
            }
            Item::Use(item) => {
                let is_public = matches!(item.vis, Visibility::Public(_));
                names(item.tree.to_token_stream(), &mut |name| {
                    add(name, is_public);
                });
            }
            Item::Impl(block) => {
                // `impl X` does not use X.
                let mut block = block.clone();
                if let Type::Path(path) = &mut *block.self_ty
                    && let Some(last) = path.path.segments.last_mut()
                {
                    last.ident = Ident::new("Self", last.ident.span());
                }
                names(block.to_token_stream(), &mut |name| add(name, false));
            }
            item => names(item.to_token_stream(), &mut |name| add(name, false)),
        }
    }
}

/// Every name in the tokens, and those in format strings; not what documentation says.
fn names(tokens: TokenStream, each: &mut impl FnMut(&str)) {
    let mut is_doc = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                is_doc = name == "doc";
                each(&name);
            }
            TokenTree::Group(group) => names(group.stream(), each),
            TokenTree::Literal(literal) if !is_doc => in_format(&literal.to_string(), each),
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// The names that a literal captures as a format string: `x` of `"{x:?}"`.
fn in_format(literal: &str, each: &mut impl FnMut(&str)) {
    if !literal.contains('"') {
        return;
    }
    for part in literal.split('{').skip(1) {
        let end = part.find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &part[..end.unwrap_or(part.len())];
        if name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            each(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, elsewhere: &str, tests: &str, expect: &[&str]) {
        let sources = [
            ("crates/a/src/lib.rs", false, text),
            ("crates/b/src/lib.rs", false, elsewhere),
            ("crates/a/tests/t.rs", true, tests),
        ];
        let parse = |(path, is_test, text)| Source::parse(path, &[], is_test, text).unwrap();
        let breaches = check(&Tree::of(sources.into_iter().map(parse).collect()));
        let found: Vec<String> = breaches.into_iter().map(|b| b.message).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn what_nothing_names_is_dead() {
        check_text("pub fn f() { f(); }", "", "", &["nothing uses f"]);
        check_text(
            "/// f\n/// f\npub fn f() {}\nconst DOC: &str = \"f\";",
            "",
            "",
            &["nothing uses f"],
        );
        check_text(
            "mod m { pub const C: u8 = 1; }\npub use m::C;",
            "",
            "",
            &["nothing uses C"],
        );
        check_text(
            "pub struct S;\nimpl S { pub fn f(&self) {} }",
            "",
            "",
            &["nothing uses S", "nothing uses f"],
        );
        check_text(
            "pub fn f() {}",
            "// f()\nconst S: &str = \"f\";",
            "",
            &["nothing uses f"],
        );
    }

    #[test]
    fn what_another_crate_or_a_test_names_lives() {
        check_text("pub fn f() {}", "use a::f;", "", &[]);
        check_text("pub fn f() {}", "", "fn t() { assert!(a::f()); }", &[]);
        check_text(
            "pub const C: u8 = 1;",
            "fn g() { format!(\"{C:?}\"); }",
            "",
            &[],
        );
        check_text(
            "pub fn f() {}\n#[cfg(test)]\nmod tests { fn t() { super::f(); } }",
            "",
            "",
            &[],
        );
        check_text(
            "impl T for S { fn f(&self) {} }\npub(crate) fn g() {}",
            "",
            "",
            &[],
        );
    }

    #[test]
    fn what_only_its_crate_names_need_not_be_public() {
        let own = &["only its own crate uses f: pub(crate)"];
        check_text("pub fn f() -> u8 {}\nfn g() { f(); }", "", "", own);
        check_text("pub struct S;\nfn g() -> S {}", "", "", &[]);
    }
}
