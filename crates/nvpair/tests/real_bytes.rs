//! Lists that the real libnvpair packed, in both encodings: read, compared, packed again.
//!
//! `every_type.*` was made with libnvpair 2.3 and has every type, empty and nested arrays;
//! `zpool.cache.native` and `label.xdr` are from a pool of ztest 2.3, `label.txt` is `zdb -l` of it.
//! `NVPAIR_DIR` names a directory with more `name.xdr`, `name.native` to check in the same way.

use nvpair::{NvList, decode, decode_native, decode_xdr, encode_native, encode_xdr};
use std::path::Path;

const EVERY_TYPE_XDR: &[u8] = include_bytes!("libnvpair/every_type.xdr");
const EVERY_TYPE_NATIVE: &[u8] = include_bytes!("libnvpair/every_type.native");
const CACHE: &[u8] = include_bytes!("libnvpair/zpool.cache.native");
const LABEL: &[u8] = include_bytes!("libnvpair/label.xdr");
const LABEL_TEXT: &str = include_str!("libnvpair/label.txt");

#[test]
fn every_type_is_read_and_packed_the_same() {
    let list = decode_xdr(EVERY_TYPE_XDR).unwrap();
    assert_eq!(decode_native(EVERY_TYPE_NATIVE).unwrap(), list);
    assert!(encode_xdr(&list) == EVERY_TYPE_XDR);
    assert!(encode_native(&list) == EVERY_TYPE_NATIVE);
    assert_eq!(list.get_u64("last"), Some(5));
    assert_eq!(
        list.get_string(b"latin \xe4").unwrap().as_bytes(),
        b"\xff\xfe"
    );
    assert_eq!(list.get_lists("3 lists").unwrap().len(), 3);
}

#[test]
fn cache_file_of_a_pool_is_packed_the_same() {
    let list = decode(CACHE).unwrap();
    assert!(encode_native(&list) == CACHE);
    assert!(
        list.iter()
            .all(|(_, pool)| pool.as_list().unwrap().get_u64("pool_guid").is_some())
    );
}

#[test]
fn label_of_a_pool_is_packed_and_printed_the_same() {
    let list = decode(LABEL).unwrap();
    let packed = encode_xdr(&list);
    assert!(packed == LABEL[..packed.len()]);
    assert!(LABEL[packed.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(list.dump(4), LABEL_TEXT);
}

#[test]
fn more_lists_are_read_and_packed_the_same() {
    let Ok(directory) = std::env::var("NVPAIR_DIR") else {
        return;
    };
    let mut count = 0;
    for entry in Path::new(&directory).read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "xdr") {
            check_pair(&path);
            count += 1;
        }
    }
    assert!(count > 0, "no *.xdr in {directory}");
}

fn check_pair(path: &Path) {
    let xdr = std::fs::read(path).unwrap();
    let native = std::fs::read(path.with_extension("native")).unwrap();
    let list: NvList = decode(&native).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(encode_native(&list) == native, "{}", path.display());
    assert_eq!(decode(&xdr).unwrap(), list, "{}", path.display());
    let packed = encode_xdr(&list);
    // libtirpc sign-extends 8 and 16 bits; the kernel and this crate zero-extend them.
    let is_same = |(ours, theirs): (&[u8], &[u8])| {
        ours == theirs || matches!(ours, [0, 0, ..]) && matches!(theirs, [0xff, 0xff, ..])
    };
    assert_eq!(packed.len(), xdr.len(), "{}", path.display());
    assert!(
        packed.chunks(4).zip(xdr.chunks(4)).all(is_same),
        "{}",
        path.display()
    );
}
