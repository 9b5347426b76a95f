//! `rescue`: what is left of pools that cannot be imported.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::ObjectId;
use crypt::{KeyFormat, WrappingKey};
use phys::label::LABEL_START_SIZE;
use phys::znode::ZVOL_OBJ;

use crate::bench::Bench;

/// Bytes that do not compress, others for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(&mut byte).take(len).collect()
}

/// The files of the journal: their words, and what is lost.
fn journal(bench: &Bench) -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(bench.path("out/rescue.tsv")).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [word, path, lost] = fields[..] else {
            panic!("{line}");
        };
        (path.to_owned(), (word.to_owned(), lost.to_owned()))
    };
    text.lines().map(line).collect()
}

/// A copy has all but what the journal calls lost, and nothing there.
fn assert_saved(copy: &Path, expected: &[u8], word: &str, lost: &str) {
    let mut got = fs::read(copy).unwrap();
    assert_eq!(got.len(), expected.len(), "{copy:?}");
    let range = |range: &str| -> (usize, usize) {
        let (first, last) = range.split_once('-').unwrap();
        (first.parse().unwrap(), last.parse().unwrap())
    };
    let ranges = match word {
        "whole" => Vec::new(),
        "gone" => vec![(0, expected.len() - 1)],
        _ => lost.split(',').map(range).collect(),
    };
    for (first, last) in ranges {
        let is_hole = got[first..=last].iter().all(|byte| *byte == 0);
        assert!(is_hole, "{copy:?} {first}-{last}");
        got[first..=last].copy_from_slice(&expected[first..=last]);
    }
    assert_eq!(got, expected, "{copy:?}: {word} {lost}");
}

#[test]
fn a_lost_disk_of_a_stripe_costs_what_was_on_it() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank {a} {b}");
    bench.ok("zfs create -o recordsize=16K tank/docs");
    fs::create_dir_all(bench.path("tree/sub")).unwrap();
    let names: Vec<String> = (0..30)
        .map(|i| format!("sub/file{i}"))
        .chain(["big".to_owned()])
        .collect();
    let length = |i: usize| if i == 30 { 8_000_000 } else { 3000 + i * 100 };
    for (i, name) in names.iter().enumerate() {
        fs::write(
            bench.path("tree").join(name),
            noise(i as u64 + 1, length(i)),
        )
        .unwrap();
    }
    fs::hard_link(bench.path("tree/sub/file0"), bench.path("tree/again")).unwrap();
    std::os::unix::fs::symlink("sub/file1", bench.path("tree/link")).unwrap();
    bench.ok("cp -a {dir}/tree tank/docs:/");
    bench.ok("zpool export tank");
    bench.ok("rescue -d {dir} tank {dir}/all");
    let (whole, before) = (
        bench.path("all/tank/docs/tree"),
        fs::read(bench.path("a")).unwrap(),
    );
    for (i, name) in names.iter().enumerate() {
        assert_eq!(
            fs::read(whole.join(name)).unwrap(),
            noise(i as u64 + 1, length(i)),
            "{name}"
        );
    }
    assert_eq!(fs::metadata(whole.join("again")).unwrap().nlink(), 2);
    assert_eq!(
        fs::read_link(whole.join("link")).unwrap().to_str(),
        Some("sub/file1")
    );
    fs::rename(bench.path("b"), bench.state().join("b")).unwrap();
    let (code, out, error) = bench.run("rescue -d {dir} tank {dir}/out");
    assert_eq!(code, 1, "{out}{error}");
    assert!(error.contains("cannot be read"), "{error}");
    let found = journal(&bench);
    assert_eq!(found.len(), names.len() + 2, "each name once: {found:?}");
    let words: Vec<&str> = found.values().map(|(word, _)| &**word).collect();
    assert!(
        words.contains(&"whole") && words.contains(&"partly"),
        "{found:?}"
    );
    assert!(out.ends_with("0 directories with lost names\n"), "{out}");
    for (i, name) in names.iter().enumerate() {
        let (word, lost) = &found[&format!("tank/docs:/tree/{name}")];
        let got = bench.path("out/tank/docs/tree").join(name);
        assert_saved(&got, &noise(i as u64 + 1, length(i)), word, lost);
    }
    assert_eq!(
        fs::read(bench.path("a")).unwrap(),
        before,
        "nothing is changed"
    );
    // Once more: what is there stays, also if it was changed meanwhile.
    let one = names
        .iter()
        .find(|name| found[&format!("tank/docs:/tree/{name}")].0 == "whole");
    let one = bench.path("out/tank/docs/tree").join(one.unwrap());
    fs::write(&one, "changed").unwrap();
    assert_eq!(bench.run("rescue -d {dir} tank {dir}/out").0, 1);
    assert_eq!(fs::read(&one).unwrap(), b"changed");
    assert_eq!(journal(&bench), found);
    // With the disk back, what was gone or partly there is whole in a new folder.
    fs::rename(bench.state().join("b"), bench.path("b")).unwrap();
    bench.ok("rescue -d {dir} tank {dir}/new");
}

/// The places of the blocks of an object, by `zdb`.
fn places(bench: &Bench, dataset: &str, object: &str) -> Vec<u64> {
    let out = bench.ok(&format!("zdb -e -p {{dir}} -dddddd {dataset} {object}"));
    let blocks = out.lines().filter(|line| line.contains(" L0 "));
    let places = blocks.flat_map(|line| line.split_whitespace());
    let place = |word: &str| {
        let offset = word.strip_prefix("0:")?.split(':').next()?;
        u64::from_str_radix(offset, 16).ok()
    };
    places.filter_map(place).collect()
}

#[test]
fn files_of_a_lost_directory_are_found() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench.ok("zfs create tank/x");
    fs::create_dir_all(bench.path("tree/lost/below")).unwrap();
    for i in 0..40 {
        let name = format!("tree/lost/a-name-that-is-not-short-{i}");
        fs::write(bench.path(&name), noise(i + 1, 2000)).unwrap();
    }
    fs::write(bench.path("tree/lost/below/deep"), noise(99, 2000)).unwrap();
    fs::write(bench.path("tree/kept"), noise(98, 2000)).unwrap();
    bench.ok("cp -a {dir}/tree tank/x:/");
    let object = bench.ok("ls -id tank/x:/tree/lost");
    let object = object.split_whitespace().next().unwrap().to_owned();
    bench.ok("zfs snapshot tank/x@then");
    bench.ok("rm tank/x:/tree/kept");
    bench.ok("zpool export tank");
    let damaged = places(&bench, "tank/x", &object);
    assert_eq!(damaged.len(), 2, "both copies");
    for offset in damaged {
        bench.scribble(
            "a",
            offset + LABEL_START_SIZE..offset + LABEL_START_SIZE + 512,
        );
    }
    let (code, out, error) = bench.run("rescue -d {dir} -s tank {dir}/out");
    assert_eq!(code, 1, "{out}{error}");
    let found = journal(&bench);
    assert_eq!(found["tank/x:/tree/lost"].0, "names", "{found:?}");
    assert_eq!(found["tank/x@then:/tree/kept"].0, "whole");
    assert!(!found.contains_key("tank/x:/tree/kept"));
    let read = |path: &Path| fs::read(path).unwrap();
    assert_eq!(
        read(&bench.path("out/tank/x@then/tree/kept")),
        noise(98, 2000)
    );
    let (mut contents, mut deep) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(bench.path("out/tank/x/lost+found")).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => deep.push(read(&path.join("deep"))),
            false => contents.push(read(&path)),
        }
    }
    let mut expected: Vec<_> = (0..40).map(|i| noise(i + 1, 2000)).collect();
    contents.sort();
    expected.sort();
    assert_eq!(contents, expected);
    assert_eq!(deep, [noise(99, 2000)]);
    assert!(out.contains("2 directories with lost names"), "{out}");
}

/// Writes to the volume of the pool with every suite, as nothing here does with a command.
fn write_to_volume(image: &Path, contents: &[(u64, Vec<u8>)]) {
    let device = geom::disk::open(image, geom::disk::OpenMode::ReadWrite).unwrap();
    let spa = torture::pool::open(&[device], false).unwrap();
    let dsl = spa.parts().dsl();
    let root = "tank/aes-256-gcm";
    let encryption = dsl.encryption(&dsl.dir(root).unwrap()).unwrap().unwrap();
    let (salt, iterations) = (encryption.salt, encryption.iterations);
    let key = WrappingKey::new(KeyFormat::Passphrase, b"correct horse", salt, iterations);
    dsl.load_key(root, key.unwrap(), false).unwrap();
    let volume = dsl.dataset("tank/aes-256-gcm/vol").unwrap();
    let data = volume.objset().unwrap().hold(ObjectId(ZVOL_OBJ)).unwrap();
    for (offset, bytes) in contents {
        let tx = spa.parts().groups().hold_open(1 << 20).unwrap();
        data.write(&tx, *offset, bytes).unwrap();
    }
    spa.sync().unwrap();
    drop((data, volume));
    spa.export().unwrap();
}

#[test]
fn what_is_encrypted_is_copied_with_its_key_and_volumes_are_images() {
    let bench = Bench::new(&["a"]);
    let image = bench.path("a");
    fs::write(&image, torture::golden::bytes("openzfs-2.3.2-encrypted")).unwrap();
    let written = [(0, noise(1, 8192)), (2 << 20, noise(2, 100_000))];
    write_to_volume(&image, &written);
    let hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    fs::write(bench.path("pass"), "correct horse").unwrap();
    fs::write(bench.path("hex"), hex).unwrap();
    fs::write(bench.path("raw"), "0123456789abcdef0123456789ABCDEF").unwrap();
    // What has no key is said, once for each root, and the rest is copied.
    let (code, out, error) = bench.run("rescue -d {dir} tank {dir}/out");
    assert_eq!(code, 1, "{out}{error}");
    let found = journal(&bench);
    assert_eq!(found["tank/plain:/small"].0, "whole");
    for name in [
        "tank/aes-128-ccm",
        "tank/aes-256-gcm/vol",
        "tank/aes-128-gcm/large",
    ] {
        let (word, why) = &found[name];
        assert_eq!(word, "gone", "{name}");
        assert!(why.contains("give it with --key tank/aes-"), "{why}");
    }
    assert!(!bench.path("out/tank/aes-256-gcm/small").exists());
    // With the keys the same folder gets the rest.
    let roots = [
        ("aes-128-ccm", "pass"),
        ("aes-192-ccm", "hex"),
        ("aes-256-ccm", "raw"),
        ("aes-128-gcm", "hex"),
        ("aes-192-gcm", "raw"),
    ];
    let key = |(root, file): &(&str, &str)| format!("--key tank/{root}={{dir}}/{file}");
    let keys: Vec<String> = roots.iter().map(key).collect();
    let again = format!("rescue {} -d {{dir}} tank {{dir}}/out", keys.join(" "));
    let wrong = format!("--key tank/aes-256-gcm={{dir}}/hex {}", &again[7..]);
    let (code, out, _) = bench.run(&format!("rescue {wrong}"));
    assert_eq!(code, 1);
    assert!(
        out.contains("the key of 'tank/aes-256-gcm' is not loaded"),
        "{out}"
    );
    bench.ok(&format!(
        "rescue --key tank/aes-256-gcm={{dir}}/pass {}",
        &again[7..]
    ));
    let numbers =
        |first: u64, last: u64| -> String { (first..=last).map(|n| format!("{n}\n")).collect() };
    let read = |name: &str| fs::read_to_string(bench.path("out/tank").join(name)).unwrap();
    for (at, root) in roots.iter().map(|(root, _)| *root).enumerate() {
        let n = at as u64 + 2;
        assert_eq!(read(&format!("{root}/small")), numbers(1, n));
        assert_eq!(
            read(&format!("{root}/big")),
            numbers(n * 1000, n * 1000 + 40_000)
        );
    }
    assert_eq!(read("aes-256-gcm/child/small"), numbers(1, 20));
    assert_eq!(read("aes-256-gcm/clone/small"), "changed\n");
    let volume = bench.path("out/tank/aes-256-gcm/vol");
    let mut expected = vec![0; 4 << 20];
    for (offset, bytes) in &written {
        expected[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    assert!(fs::read(&volume).unwrap() == expected, "the volume");
    let blocks = fs::metadata(&volume).unwrap().blocks();
    assert!(
        blocks * 512 < 1 << 20,
        "what was not written is a hole: {blocks}"
    );
    assert!(journal(&bench).values().any(|(word, _)| word == "opened"));
}

/// A disk with another partition table over the beginning of a pool's device, whose partition began anywhere.
#[test]
fn a_device_is_found_where_no_partition_table_says_that_it_is() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    fs::write(bench.path("file"), noise(5, 3_000_000)).unwrap();
    bench.ok("cp {dir}/file tank:/");
    bench.ok("zpool export tank");
    let device = fs::read(bench.path("a")).unwrap();
    let start = 2051 * 512;
    let mut disk = noise(6, start);
    disk.extend(&device);
    disk.extend(noise(7, 3 << 20));
    // Both labels at the beginning are gone.
    disk[..start + (1 << 20)].fill(0);
    fs::create_dir(bench.path("disks")).unwrap();
    fs::write(bench.path("disks/disk"), &disk).unwrap();
    let (code, _, error) = bench.run("rescue -d {dir}/disks tank {dir}/out");
    assert_eq!(code, 1);
    assert!(
        error.contains("'-S' where a partition table is lost"),
        "{error}"
    );
    let (code, out, error) = bench.run("rescue -S -d {dir}/disks tank {dir}/out");
    assert_eq!(code, 0, "{out}{error}");
    let sectors = device.len() / 512;
    let place = format!(
        "{}: a device of pool 'tank' begins at sector 2051, {sectors} sectors long\n",
        bench.path("disks/disk").display()
    );
    assert!(error.contains(&place), "{error}");
    assert_eq!(
        fs::read(bench.path("out/tank/file")).unwrap(),
        noise(5, 3_000_000)
    );
    let states = bench.ok("rewind -S -n 1 -d {dir}/disks tank");
    assert!(states.contains("whole"), "{states}");
    assert!(
        fs::read(bench.path("disks/disk")).unwrap() == disk,
        "nothing is changed"
    );
}

/// The copies of a file that were made of earlier states, by the txg of the state.
fn of_earlier_states(bench: &Bench, path: &str) -> BTreeMap<u64, Vec<u8>> {
    let entries = fs::read_dir(bench.path("out")).unwrap().flatten();
    let states = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let copy = |txg: u64| {
        Some((
            txg,
            fs::read(bench.path("out").join(txg.to_string()).join(path)).ok()?,
        ))
    };
    states.filter_map(copy).collect()
}

#[test]
fn deleted_files_and_earlier_versions_are_found() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create tank mirror {a} {b}");
    // A pool that stays open does not begin again and again with the space that was freed.
    bench.ok("serve --background tank");
    bench.ok("zfs create tank/x");
    bench.ok("zfs create tank/gone");
    fs::create_dir_all(bench.path("tree/below")).unwrap();
    for (name, seed) in [("below/deleted", 1), ("changed", 2), ("kept", 3)] {
        fs::write(bench.path("tree").join(name), noise(seed, 300_000)).unwrap();
    }
    std::os::unix::fs::symlink("kept", bench.path("tree/link")).unwrap();
    bench.ok("cp -a {dir}/tree tank/x:/");
    bench.ok("cp -a {dir}/tree/kept tank/gone:/");
    bench.ok("zpool sync tank");
    bench.ok("rm -r tank/x:/tree/below");
    bench.ok("rm tank/x:/tree/link");
    fs::write(bench.path("new"), noise(4, 100_000)).unwrap();
    bench.ok("cp {dir}/new tank/x:/tree/changed");
    bench.ok("chmod 600 tank/x:/tree/kept");
    bench.ok("zfs destroy tank/gone");
    bench.ok("zpool export tank");
    bench.ok("serve --stop");
    let out = bench.ok("rescue --deleted -d {dir} tank {dir}/out");
    assert!(out.contains("of earlier states: "), "{out}");
    let only = |path: &str| {
        let copies = of_earlier_states(&bench, path);
        assert_eq!(copies.len(), 1, "{path}: {:?}", copies.keys());
        copies.into_values().next().unwrap()
    };
    assert!(only("tank/x/tree/below/deleted") == noise(1, 300_000));
    assert!(only("tank/x/tree/changed") == noise(2, 300_000));
    assert!(
        only("tank/gone/kept") == noise(3, 300_000),
        "of a destroyed data set"
    );
    let links = fs::read_dir(bench.path("out")).unwrap().flatten();
    let links = links.filter_map(|entry| fs::read_link(entry.path().join("tank/x/tree/link")).ok());
    assert_eq!(links.collect::<Vec<_>>(), [Path::new("kept")]);
    // With another mode it has the same content.
    assert!(of_earlier_states(&bench, "tank/x/tree/kept").is_empty());
    let newest = fs::read(bench.path("out/tank/x/tree/changed")).unwrap();
    assert!(newest == noise(4, 100_000));
    assert!(!bench.path("out/tank/x/tree/below").exists());
    // Once more: all is there.
    let again = bench.ok("rescue -D -d {dir} tank {dir}/out");
    assert_eq!(again, out);
}
