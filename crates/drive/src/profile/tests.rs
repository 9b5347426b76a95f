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
