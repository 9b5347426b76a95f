//! Accessors, text, hand-made bytes, limits, and random lists in both encodings.

use super::*;
use base::ErrorKind;
use proptest::prelude::*;
use serde_json::json;

fn sample() -> NvList {
    let leaf = NvList::new()
        .with("type", "file")
        .with("id", 0u64)
        .with("path", "/tmp/a");
    let root = NvList::new()
        .with("type", "root")
        .with("children", vec![leaf.clone(), leaf]);
    NvList::new()
        .with("version", 5000u64)
        .with("name", "tank")
        .with("vdev_tree", root)
        .with("hole_array", vec![3u64, 4])
        .with(
            "features_for_read",
            NvList::new().with("com.delphix:hole_birth", ()),
        )
        .with("online", true)
}

#[test]
fn values_are_found_by_name_and_type() {
    let list = sample();
    assert_eq!(list.get_u64("version"), Some(5000));
    assert_eq!(list.get_u64("name"), None);
    assert_eq!(list.expect_str("name").unwrap(), "tank");
    assert_eq!(list.get_bool("online"), Some(true));
    assert_eq!(list.expect_u64s("hole_array").unwrap(), [3, 4]);
    let tree = list.expect_list("vdev_tree").unwrap();
    assert_eq!(tree.expect_lists("children").unwrap().len(), 2);
    assert!(
        list.get_list("features_for_read")
            .unwrap()
            .contains("com.delphix:hole_birth")
    );
    let missing = list.expect_u64("guid").unwrap_err();
    assert_eq!(
        (missing.kind(), missing.context()),
        (ErrorKind::Corrupt, "nvlist has no 'guid'")
    );
    let wrong = list.expect_u64("name").unwrap_err();
    assert_eq!(
        wrong.context(),
        "'name' of nvlist is String, expected Uint64"
    );
}

#[test]
fn add_moves_to_the_end_and_set_stays() {
    let names = |list: &NvList| list.iter().map(|(n, _)| n.to_string()).collect::<String>();
    let mut list = NvList::new()
        .with("a", 1u64)
        .with("b", 2u64)
        .with("c", 3u64);
    list.set("a", 9u64);
    assert_eq!((names(&list).as_str(), list.get_u64("a")), ("abc", Some(9)));
    list.add("a", 8u64);
    assert_eq!((names(&list).as_str(), list.get_u64("a")), ("bca", Some(8)));
    assert_eq!(list.remove("c"), Some(NvValue::Uint64(3)));
    list.add_flag("d");
    assert_eq!(names(&list), "bad");
    let mut many = NvList::with_nvflag(0);
    many.add("x", 1u64).add("x", 2u64);
    assert_eq!(many.len(), 2);
}

#[test]
fn dump_looks_like_zdb() {
    let expect = "  version: 5000
  name: 'tank'
  vdev_tree:
      type: 'root'
      children[0]:
          type: 'file'
          id: 0
          path: '/tmp/a'
      children[1]:
          type: 'file'
          id: 0
          path: '/tmp/a'
  hole_array[0]: 3
  hole_array[1]: 4
  features_for_read:
      com.delphix:hole_birth
  online: true
";
    assert_eq!(sample().dump(2), expect);
}

#[test]
fn json_keeps_order() {
    let list = sample();
    assert_eq!(list.get("hole_array").unwrap().to_json(), json!([3, 4]));
    assert_eq!(
        list.get("features_for_read").unwrap().to_json(),
        json!({"com.delphix:hole_birth": true})
    );
    assert!(
        list.to_json()
            .to_string()
            .starts_with(r#"{"version":5000,"name":"tank","vdev_tree":{"#)
    );
}

#[test]
fn xdr_bytes_are_as_libnvpair_has_them() {
    let list = NvList::new().with("ab", 5u64);
    let words = [
        0x0101_0000u32, // XDR, little-endian writer
        0,
        1, // version, unique names
        32,
        32, // encoded, decoded size
        2,
        0x6162_0000, // name
        8,
        1, // uint64, one
        0,
        5, // value
        0,
        0, // end
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    assert_eq!(encode_xdr(&list), bytes);
    assert_eq!(xdr::encoded_size(&list), bytes.len());
}

#[test]
fn deep_nesting_is_refused() {
    let mut list = NvList::new();
    for _ in 0..DEPTH_MAX {
        list = NvList::new().with("x", list);
    }
    assert_eq!(decode(&encode_xdr(&list)).unwrap(), list);
    assert_eq!(decode(&encode_native(&list)).unwrap(), list);
    let deeper = NvList::new().with("x", list);
    for bytes in [encode_xdr(&deeper), encode_native(&deeper)] {
        let error = decode(&bytes).unwrap_err();
        assert!(
            error.context().ends_with("nvlists nest deeper than 100"),
            "{error}"
        );
    }
}

#[test]
fn huge_counts_take_no_memory() {
    let list = NvList::new().with("x", vec![7u64]);
    let mut bytes = encode_xdr(&list);
    // nelem and the array's own length
    bytes[32..36].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    bytes[36..40].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    let error = decode(&bytes).unwrap_err();
    assert_eq!(
        error.context(),
        "nvpair 'x': nvpair of 2147483647 elements in 16 bytes"
    );
}

#[test]
fn names_have_15_bits_of_length() {
    let named = |size: usize| NvList::new().with("n".repeat(size), true);
    let longest = named(NAME_MAX);
    assert_eq!(decode(&encode_native(&longest)).unwrap(), longest);
    assert_eq!(decode(&encode_xdr(&longest)).unwrap(), longest);
    let error = decode(&encode_xdr(&named(NAME_MAX + 1))).unwrap_err();
    assert_eq!(error.context(), "nvpair name of 32767 bytes");
}

#[test]
fn native_lists_of_a_big_endian_host_are_read() {
    let mut bytes = vec![ENCODE_NATIVE, BIG_ENDIAN, 0, 0];
    let put = |bytes: &mut Vec<u8>, words: &[u32]| {
        words
            .iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
    };
    // Version, flags; size, name size and 0, count, type (uint64).
    put(&mut bytes, &[0, 1, 32, 2 << 16, 1, 8]);
    bytes.extend_from_slice(b"x\0\0\0\0\0\0\0");
    put(&mut bytes, &[0, 0x1234]);
    // The same of a string, then the end.
    put(&mut bytes, &[32, 3 << 16, 1, 9]);
    bytes.extend_from_slice(b"ab\0\0\0\0\0\0text\0\0\0\0");
    put(&mut bytes, &[0]);
    let list = NvList::new().with("x", 0x1234u64).with("ab", "text");
    assert_eq!(decode(&bytes).unwrap(), list);
    assert_eq!(
        decode(&[0; 64]).unwrap_err().context(),
        "zeros, not an nvlist"
    );
}

#[test]
fn foreign_headers_are_refused() {
    let mut bytes = encode_native(&sample());
    bytes[1] = 2;
    assert_eq!(decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    bytes[0] = 9;
    assert_eq!(decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(decode(&[]).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut bytes = encode_xdr(&sample());
    bytes[7] = 1;
    assert_eq!(decode(&bytes).unwrap_err().context(), "nvlist version 1");
}

fn any_string() -> impl Strategy<Value = NvString> {
    prop_oneof![
        "[a-z:_]{0,12}".prop_map(NvString::from),
        prop::collection::vec(1u8.., 0..9).prop_map(|b| NvString::from_bytes(&b).unwrap()),
    ]
}

fn any_array<T: Arbitrary>() -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(any::<T>(), 0..6)
}

fn any_leaf() -> impl Strategy<Value = NvValue> {
    let single = prop_oneof![
        Just(NvValue::Boolean),
        any::<u8>().prop_map(NvValue::Byte),
        any::<i8>().prop_map(NvValue::Int8),
        any::<u8>().prop_map(NvValue::Uint8),
        any::<i16>().prop_map(NvValue::Int16),
        any::<u16>().prop_map(NvValue::Uint16),
        any::<i32>().prop_map(NvValue::Int32),
        any::<u32>().prop_map(NvValue::Uint32),
        any::<i64>().prop_map(NvValue::Int64),
        any::<u64>().prop_map(NvValue::Uint64),
    ];
    let more = prop_oneof![
        any::<i64>().prop_map(NvValue::Hrtime),
        any::<f64>().prop_map(NvValue::Double),
        any::<bool>().prop_map(NvValue::BooleanValue),
        any_string().prop_map(NvValue::String),
        prop::collection::vec(any_string(), 0..4).prop_map(NvValue::StringArray),
    ];
    let arrays = prop_oneof![
        any_array().prop_map(NvValue::ByteArray),
        any_array().prop_map(NvValue::Int8Array),
        any_array().prop_map(NvValue::Uint8Array),
        any_array().prop_map(NvValue::Int16Array),
        any_array().prop_map(NvValue::Uint16Array),
        any_array().prop_map(NvValue::Int32Array),
        any_array().prop_map(NvValue::Uint32Array),
        any_array().prop_map(NvValue::Int64Array),
        any_array().prop_map(NvValue::Uint64Array),
        any_array().prop_map(NvValue::BooleanArray),
    ];
    prop_oneof![single, more, arrays]
}

fn list_of(value: impl Strategy<Value = NvValue>) -> impl Strategy<Value = NvList> {
    let pairs = prop::collection::vec((any_string(), value), 0..5);
    (0u32..4, pairs).prop_map(|(nvflag, pairs)| {
        let mut list = NvList::with_nvflag(nvflag);
        for (name, value) in pairs {
            list.push(name, value);
        }
        list
    })
}

fn any_list() -> impl Strategy<Value = NvList> {
    let value = any_leaf().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            list_of(inner.clone()).prop_map(NvValue::List),
            prop::collection::vec(list_of(inner), 0..3).prop_map(NvValue::ListArray),
        ]
    });
    list_of(value)
}

proptest! {
    #[test]
    fn prop_both_encodings_round_trip(list in any_list(), tail in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = encode_xdr(&list);
        prop_assert_eq!(bytes.len(), xdr::encoded_size(&list));
        bytes.extend_from_slice(&tail);
        prop_assert_eq!(&decode(&bytes).unwrap(), &list);
        let mut bytes = encode_native(&list);
        bytes.extend_from_slice(&tail);
        prop_assert_eq!(&decode(&bytes).unwrap(), &list);
    }

    #[test]
    fn prop_damage_never_panics(list in any_list(), at: prop::sample::Index, bit in 0u8..8, cut: prop::sample::Index) {
        for mut bytes in [encode_xdr(&list), encode_native(&list)] {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            fuzzing::nvlist_xdr(&bytes);
            fuzzing::nvlist_native(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            fuzzing::nvlist_xdr(&bytes);
            fuzzing::nvlist_native(&bytes);
        }
    }

    #[test]
    fn prop_random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), encoding in 0u8..3) {
        if let [first, second, ..] = bytes.as_mut_slice() {
            (*first, *second) = (encoding, 1);
        }
        fuzzing::nvlist_xdr(&bytes);
        fuzzing::nvlist_native(&bytes);
    }
}
