//! Properties: inherited, shown, and in effect.

use oracle::{Zdb, have_zdb};

use crate::Place;

#[test]
fn values_come_from_above_until_set() {
    let place = Place::with_pool("");
    place.zfs("create -p tank/a/b");
    assert_eq!(place.get("compression", "tank/a/b"), "on default");
    place.zfs("set compression=zstd atime=off user:x=1 tank/a");
    assert_eq!(place.get("compression", "tank/a"), "zstd local");
    assert_eq!(
        place.get("compression", "tank/a/b"),
        "zstd inherited from tank/a"
    );
    assert_eq!(place.get("user:x", "tank/a/b"), "1 inherited from tank/a");
    place.zfs("set compression=off tank/a/b tank");
    place.zfs("inherit compression tank/a");
    assert_eq!(
        place.get("compression", "tank/a"),
        "off inherited from tank"
    );
    assert_eq!(place.get("compression", "tank/a/b"), "off local");
    place.zfs("inherit -r compression tank");
    assert_eq!(place.get("compression", "tank/a/b"), "on default");
    place.zfs("inherit user:x tank/a");
    assert_eq!(place.get("user:x", "tank/a/b"), "- -");
    // Limits are not inherited.
    place.zfs("set quota=50M tank/a");
    assert_eq!(place.get("quota", "tank/a/b"), "none default");
    place.verify();
}

#[test]
fn all_words_of_all_properties_are_kept_or_refused() {
    let place = Place::with_pool("");
    place.zfs("create tank/a");
    let mut kept = 0;
    for desc in admin::prop::DATASET {
        let admin::prop::Kind::Index(_, words) = desc.kind else {
            continue;
        };
        for (word, number) in words.iter().filter(|_| !desc.is_readonly()) {
            let said = place.run(&format!("zfs set {}={word} tank/a", desc.name));
            if said.code == 0 {
                let shown = desc.word(*number).unwrap();
                let value = place.get(desc.name, "tank/a");
                let fixed = desc.name == "version";
                assert!(
                    fixed || value == format!("{shown} local"),
                    "{}={word}: {value}",
                    desc.name
                );
                kept += 1;
            } else {
                let ours = [
                    "not kept up",
                    "must be upgraded",
                    "does not apply",
                    "Can not downgrade",
                ];
                assert!(
                    ours.iter().any(|why| said.err.contains(why)),
                    "{}",
                    said.err
                );
                assert_eq!(said.code, 255);
            }
        }
    }
    assert!(kept > 120, "only {kept}");
    place.verify();
}

/// `userused@…` and similar properties agree with the files.
#[test]
fn owners_are_told_what_they_use() {
    let place = Place::with_pool("");
    place.zfs("create -o compression=off tank/fs");
    let host = place.folder.path().join("file");
    std::fs::write(&host, vec![7; 3 << 20]).unwrap();
    let host = host.to_str().unwrap();
    for name in ["one", "two", "three"] {
        assert_eq!(place.run(&format!("cp {host} tank/fs:/{name}")).code, 0);
    }
    assert_eq!(place.run("chown 1000:0 tank/fs:/one").code, 0);
    assert_eq!(
        place.run("chown 4242:77 tank/fs:/two tank/fs:/three").code,
        0
    );
    let exact = |name: &str| -> u64 {
        let text = place.zfs(&format!("get -Hp -o value {name} tank/fs"));
        text.trim_end().parse().unwrap_or_else(|_| panic!("{text}"))
    };
    let three = 3 << 20;
    assert!((three..three + 4096).contains(&exact("userused@1000")));
    assert!((2 * three..2 * three + 8192).contains(&exact("userused@4242")));
    assert_eq!(exact("userobjused@4242"), 2);
    assert_eq!(exact("groupobjused@77"), 2);
    assert!(exact("groupused@77") >= 2 * three);
    assert_eq!(exact("userused@5"), 0);
    assert!(exact("userobjused@root") >= 1);
    assert_eq!(place.get("userused@1000", "tank/fs"), "3.00M local");
    assert_eq!(place.get("userused@5", "tank/fs"), "0B local");
    assert_eq!(place.get("userquota@root", "tank/fs"), "none local");
    assert_eq!(place.get("userused@nosuchuser", "tank/fs"), "- -");
    assert_eq!(
        place.zfs("list -H -o name,userobjused@4242 tank/fs"),
        "tank/fs\t2\n"
    );
    place.zfs("snapshot tank/fs@now");
    assert_eq!(place.get("userobjused@4242", "tank/fs@now"), "2 local");
}

/// Properties that would have no effect here are refused.
#[test]
fn caches_are_for_everything() {
    let place = Place::with_pool("");
    for name in ["primarycache", "prefetch"] {
        let said = place.run(&format!("zfs set {name}=metadata tank"));
        assert!(
            said.err
                .contains(&format!("'{name}=metadata' is not kept up by this program")),
            "{}",
            said.err
        );
        place.zfs(&format!("set {name}=all tank"));
    }
}

#[test]
fn snapshots_take_user_properties_only() {
    let place = Place::with_pool("");
    place.zfs("snapshot tank@s");
    place.zfs("set my:note=hi tank@s");
    assert_eq!(place.get("my:note", "tank@s"), "hi local");
    place.refused(
        "set atime=off tank@s",
        "cannot set property for 'tank@s': this property can not be modified for snapshots",
    );
    place.zfs("inherit my:note tank@s");
    assert_eq!(place.get("my:note", "tank@s"), "- -");
    place.verify();
}

/// `zdb` output about the blocks of the only file in a dataset.
fn blocks(place: &Place, dataset: &str) -> String {
    let images = place.images();
    let said = Zdb::run(&["-e", "-p", crate::path(&images), "-ddddddbbbbbb", dataset]);
    let from = said
        .stdout
        .find("ZFS plain file")
        .unwrap_or_else(|| panic!("{}", said.stdout));
    said.stdout[said.stdout[..from].rfind("Object  lvl").unwrap()..].to_owned()
}

#[test]
fn properties_decide_how_blocks_are_written() {
    if !have_zdb() {
        return;
    }
    let place = Place::with_pool("");
    let cases: [(&str, &[&str]); 16] = [
        ("compression=lz4", &[" fletcher4 lz4 "]),
        ("compression=lzjb", &[" lzjb "]),
        ("compression=gzip-9", &[" gzip-9 "]),
        ("compression=zle", &[" zle "]),
        ("compression=zstd-19", &[" zstd "]),
        ("compression=zstd-fast-100", &[" zstd "]),
        ("compression=off", &[" uncompressed "]),
        ("checksum=sha256", &[" sha256 "]),
        ("checksum=sha512", &[" sha512 "]),
        ("checksum=skein", &[" skein "]),
        ("checksum=edonr", &[" edonr "]),
        ("checksum=blake3", &[" blake3 "]),
        ("checksum=fletcher2", &[" fletcher2 "]),
        ("copies=3", &[" triple "]),
        ("recordsize=1M", &["size=100000L"]),
        ("dnodesize=2k", &["   2K "]),
    ];
    // Zeros, text, then noise: something for every algorithm.
    let mut bytes = vec![0_u8; 64 << 10];
    bytes.extend((0..1 << 20).map(|i: u32| {
        if i % 64 < 48 {
            b'a'
        } else {
            (i.wrapping_mul(i) >> 7) as u8
        }
    }));
    for (at, (property, _)) in cases.iter().enumerate() {
        place.zfs(&format!("create -o {property} tank/f{at}"));
        place.write(&format!("tank/f{at}"), "file", &bytes).unwrap();
    }
    place.verify();
    for (at, (property, words)) in cases.iter().enumerate() {
        let said = blocks(&place, &format!("tank/f{at}"));
        for word in *words {
            assert!(said.contains(word), "{property}: no {word:?} in\n{said}");
        }
    }
}

#[test]
fn changed_properties_count_for_what_is_written_next() {
    if !have_zdb() {
        return;
    }
    let place = Place::with_pool("-O compression=off");
    place.zfs("create tank/a");
    place.zfs("set compression=gzip recordsize=8K tank");
    place.write("tank/a", "file", &vec![b'x'; 1 << 20]).unwrap();
    place.verify();
    let said = blocks(&place, "tank/a");
    assert!(
        said.contains(" gzip-6 ") && said.contains("size=2000L"),
        "{said}"
    );
}

#[test]
fn readonly_datasets_are_not_written_to() {
    let place = Place::with_pool("");
    place.zfs("create -o readonly=on tank/a");
    let error = place.write("tank/a", "file", b"x").unwrap_err();
    assert_eq!(error.kind(), base::ErrorKind::ReadOnly, "{error}");
    place.zfs("set readonly=off tank/a");
    place.write("tank/a", "file", b"x").unwrap();
    place.verify();
}
