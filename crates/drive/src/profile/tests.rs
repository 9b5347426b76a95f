use super::*;

#[test]
fn built_in_profiles_are_possible_and_survive_being_written_and_read() {
    for profile in profiles() {
        let again = Profile::parse(&profile.name, &profile.to_toml());
        assert_eq!(**profile, again.expect("what it wrote itself"));
        assert!(std::ptr::eq(
            &**profile,
            &*Profile::find(&profile.name).unwrap()
        ));
    }
}

#[test]
fn a_misspelt_key_is_named_with_its_line_and_column() {
    let text = include_str!("../../profiles/wd20ears.toml").replace("\nrpm = ", "\nrmp = ");
    let error = Profile::parse("x.toml", &text).unwrap_err();
    let line = text.lines().position(|l| l.starts_with("rmp")).unwrap() + 1;
    let start = format!("x.toml: line {line}, column 1: unknown field `rmp`, expected");
    assert!(error.to_string().starts_with(&start), "{error}");
}

#[test]
fn every_figure_says_where_it_comes_from() {
    for profile in profiles() {
        let value: toml::Table = toml::from_str(&profile.to_toml()).unwrap();
        let told = |key: &str| profile.source.iter().any(|s| s.of == key);
        for table in [
            "identify",
            "bridge",
            "medium",
            "interface",
            "disk",
            "flash",
            "cache",
        ] {
            let Some(figures) = value.get(table).and_then(|t| t.as_table()) else {
                continue;
            };
            for key in figures.keys() {
                let full = format!("{table}.{key}");
                assert!(told(table) || told(&full), "{}: {full}", profile.name);
            }
        }
        for source in &profile.source {
            let (table, key) = source.of.split_once('.').unwrap_or((&source.of, ""));
            let figures = value.get(table).and_then(|t| t.as_table());
            let known = figures.is_some_and(|t| key.is_empty() || t.contains_key(key));
            assert!(known, "{}: there is no {}", profile.name, source.of);
        }
    }
}
