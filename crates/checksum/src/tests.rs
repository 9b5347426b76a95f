mod openzfs;

use super::*;
use phys::ChecksumType as C;

const SALT: Salt = [0x5a; 32];

#[test]
fn off_is_zeros_and_property_words_never_match() {
    assert_eq!(digest(C::Off, &SALT, b"data"), [0; 4]);
    assert_eq!(digest(C::NoParity, &SALT, b"data"), [0; 4]);
    for kind in [C::Inherit, C::On] {
        let words = digest(kind, &SALT, b"data");
        assert!(!verify(kind, &SALT, b"data", &words));
    }
}

#[test]
fn templates_give_the_same_words() {
    let templates = Templates::new(&SALT);
    let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    for &kind in C::ALL {
        let words = digest(kind, &SALT, &bytes);
        assert_eq!(templates.digest(kind, &bytes), words, "{kind}");
        assert_eq!(templates.verify(kind, &bytes, &words), is_computable(kind));
        assert!(!templates.verify(kind, &bytes, &[1, 2, 3, 4]));
    }
}

#[test]
fn only_the_salted_kinds_look_at_the_salt() {
    for &kind in C::ALL {
        let differs = digest(kind, &SALT, b"data") != digest(kind, &[1; 32], b"data");
        assert_eq!(differs, kind.is_salted(), "{kind}");
    }
}
