//! `list` and `status` as geom(8) prints them.

use std::fmt::Write;

use base::{Error, Result};
use geom::Provider;
use geom::disk::OpenMode;
use gpart::listing::human;
use machine::World;
use serde_json::{Map, Value, json};

use super::Call;

/// Sizes of a provider.
pub(crate) struct Shape {
    mediasize: u64,
    sectorsize: u32,
    stripesize: u32,
    stripeoffset: u32,
    /// `r1w1e1` while it is in use.
    mode: &'static str,
}

/// An instance of a class: a layer.
pub(crate) struct Geom {
    pub name: String,
    pub below: String,
    /// The fields that the class defines, in order.
    pub fields: Vec<(&'static str, Value)>,
    /// The column of `status`.
    pub status: String,
    pub provider: Option<Shape>,
    pub consumer: Option<Shape>,
}

impl Shape {
    /// The sizes of a provider; `None` if it cannot be opened now.
    pub(crate) fn of(world: &World, name: &str, is_used: bool) -> Option<Shape> {
        let provider = world.open(name, OpenMode::Inspect).ok()?;
        Some(Shape::read(&*provider, is_used))
    }

    fn read(provider: &dyn Provider, is_used: bool) -> Shape {
        Shape {
            mediasize: provider.mediasize(),
            sectorsize: provider.sectorsize(),
            stripesize: provider.stripesize(),
            stripeoffset: provider.stripeoffset(),
            mode: if is_used { "r1w1e1" } else { "r0w0e0" },
        }
    }

    /// GEOM has no stripe if the physical sector is the logical one.
    fn has_stripe(&self) -> bool {
        self.stripesize > self.sectorsize || self.stripeoffset > 0
    }

    fn write(&self, text: &mut String) {
        let size = self.mediasize;
        let _ = writeln!(text, "   Mediasize: {size} ({})", human(size));
        let _ = writeln!(text, "   Sectorsize: {}", self.sectorsize);
        if self.has_stripe() {
            let _ = writeln!(text, "   Stripesize: {}", self.stripesize);
            let _ = writeln!(text, "   Stripeoffset: {}", self.stripeoffset);
        }
        let _ = writeln!(text, "   Mode: {}", self.mode);
    }

    fn json(&self, name: &str) -> Value {
        json!({
            "Name": name,
            "Mediasize": self.mediasize,
            "Sectorsize": self.sectorsize,
            "Stripesize": if self.has_stripe() { self.stripesize } else { 0 },
            "Stripeoffset": self.stripeoffset,
            "Mode": self.mode,
        })
    }
}

impl Geom {
    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "Geom name: {}", self.name);
        for (key, value) in &self.fields {
            match value {
                Value::String(value) => _ = writeln!(text, "{key}: {value}"),
                value => _ = writeln!(text, "{key}: {value}"),
            }
        }
        let ends = [
            ("Providers:", &self.name, &self.provider),
            ("Consumers:", &self.below, &self.consumer),
        ];
        for (title, name, shape) in ends {
            let _ = writeln!(text, "{title}\n1. Name: {name}");
            match shape {
                Some(shape) => shape.write(text),
                None => text.push_str("   Mode: r0w0e0\n"),
            }
        }
        text.push('\n');
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("Name".to_owned(), json!(self.name));
        for (key, value) in &self.fields {
            object.insert((*key).to_owned(), value.clone());
        }
        let end = |shape: &Option<Shape>, name: &str| match shape {
            Some(shape) => shape.json(name),
            None => json!({ "Name": name }),
        };
        let provider = end(&self.provider, &self.name);
        let consumer = end(&self.consumer, &self.below);
        object.insert("Providers".to_owned(), json!([provider]));
        object.insert("Consumers".to_owned(), json!([consumer]));
        Value::Object(object)
    }
}

/// The geoms given by name, or all.
fn chosen(call: &Call<'_>, class: &str, geoms: Vec<Geom>) -> Result<Vec<Geom>> {
    let names = &call.options.args;
    if names.is_empty() {
        return Ok(geoms);
    }
    let names: Vec<String> = names.iter().map(|n| call.world.canonical(n)).collect();
    for (name, given) in names.iter().zip(&call.options.args) {
        if !geoms.iter().any(|geom| geom.name == *name) {
            return Err(Error::not_found(format!(
                "Class '{class}' does not have an instance named '{given}'."
            )));
        }
    }
    let is_named = |geom: &Geom| names.contains(&geom.name);
    Ok(geoms.into_iter().filter(is_named).collect())
}

/// Prints `list`; with `-j` as JSON.
pub(crate) fn list(call: &Call<'_>, class: &str, geoms: Vec<Geom>) -> Result<()> {
    let geoms = chosen(call, class, geoms)?;
    if call.options.has('j') {
        let all: Vec<Value> = geoms.iter().map(Geom::json).collect();
        println!("{:#}", json!(all));
        return Ok(());
    }
    let mut text = String::new();
    for geom in &geoms {
        geom.write(&mut text);
    }
    print!("{text}");
    Ok(())
}

/// Prints `status`; with `-s` without its heading, with `-j` as JSON.
pub(crate) fn status(call: &Call<'_>, class: &str, geoms: Vec<Geom>) -> Result<()> {
    let geoms = chosen(call, class, geoms)?;
    if call.options.has('j') {
        let row = |geom: &Geom| json!({ "Name": geom.name, "Status": geom.status, "Components": [geom.below] });
        let all: Vec<Value> = geoms.iter().map(row).collect();
        println!("{:#}", json!(all));
        return Ok(());
    }
    print!("{}", status_table(&geoms, !call.options.has('s')));
    Ok(())
}

fn status_table(geoms: &[Geom], has_heading: bool) -> String {
    if geoms.is_empty() {
        return String::new();
    }
    let rows = geoms.iter().map(|g| [&*g.name, &*g.status, &*g.below]);
    let heading = has_heading.then_some(["Name", "Status", "Components"]);
    let rows: Vec<[&str; 3]> = heading.into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|r| r[column].len()).max().unwrap_or(0);
    let (name, status) = (width(0), width(1));
    let line = |row: &[&str; 3]| format!("{:>name$}  {:>status$}  {}\n", row[0], row[1], row[2]);
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geom() -> Geom {
        let shape = |sectorsize, stripesize| {
            Some(Shape {
                mediasize: 3_000_592_982_016,
                sectorsize,
                stripesize,
                stripeoffset: 0,
                mode: "r0w0e0",
            })
        };
        Geom {
            name: "gpt/d1.nop".to_owned(),
            below: "gpt/d1".to_owned(),
            fields: vec![("Reads", json!(3)), ("State", json!("ACTIVE"))],
            status: "N/A".to_owned(),
            provider: shape(4096, 4096),
            consumer: shape(512, 4096),
        }
    }

    #[test]
    fn lists_as_geom_does() {
        let mut text = String::new();
        geom().write(&mut text);
        let expected = "Geom name: gpt/d1.nop\nReads: 3\nState: ACTIVE\n\
             Providers:\n1. Name: gpt/d1.nop\n   Mediasize: 3000592982016 (2.7T)\n   \
             Sectorsize: 4096\n   Mode: r0w0e0\n\
             Consumers:\n1. Name: gpt/d1\n   Mediasize: 3000592982016 (2.7T)\n   \
             Sectorsize: 512\n   Stripesize: 4096\n   Stripeoffset: 0\n   Mode: r0w0e0\n\n";
        assert_eq!(text, expected);
        assert_eq!(geom().json()["Providers"][0]["Sectorsize"], 4096);
    }

    #[test]
    fn status_is_a_table() {
        assert_eq!(
            status_table(&[geom()], true),
            "      Name  Status  Components\ngpt/d1.nop     N/A  gpt/d1\n"
        );
        assert_eq!(status_table(&[], true), "");
    }
}
