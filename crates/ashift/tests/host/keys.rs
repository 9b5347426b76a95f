//! Encrypted data sets: created, and their keys loaded and unloaded, with and without a process that holds the pool.

use std::io::Write;
use std::process::Stdio;

use crate::bench::Bench;
use crate::holder::Holder;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A pool with one encryption root for each format, and a data set below the first.
fn bench() -> Bench {
    let bench = Bench::new(&["a"]);
    std::fs::write(bench.path("pass"), "correct horse\n").unwrap();
    std::fs::write(bench.path("hex"), HEX).unwrap();
    std::fs::write(bench.path("raw"), [7; 32]).unwrap();
    std::fs::write(bench.path("text"), "what is secret\n").unwrap();
    bench.ok("zpool create tank {a}");
    let create = "zfs create -o encryption=on -o keyformat";
    bench.ok(&format!(
        "{create}=passphrase -o pbkdf2iters=100000 -o keylocation=file://{{dir}}/pass tank/pass"
    ));
    bench.ok(&format!(
        "{create}=hex -o keylocation=file://{{dir}}/hex tank/hex"
    ));
    bench.ok("zfs create -o encryption=aes-128-ccm -o keyformat=raw -o keylocation=file://{dir}/raw tank/raw");
    bench
}

fn get(bench: &Bench, property: &str, name: &str) -> String {
    let value = bench.ok(&format!("zfs get -Hpo value {property} {name}"));
    value.trim().to_owned()
}

#[test]
fn a_command_gets_the_key_where_keylocation_says() {
    let bench = bench();
    for name in ["tank/pass", "tank/hex", "tank/raw"] {
        bench.ok(&format!("cp {{dir}}/text {name}:/text"));
        assert_eq!(bench.ok(&format!("cat {name}:/text")), "what is secret\n");
    }
    assert_eq!(get(&bench, "encryption", "tank/pass"), "aes-256-gcm");
    assert_eq!(get(&bench, "encryption", "tank/raw"), "aes-128-ccm");
    assert_eq!(get(&bench, "keyformat", "tank/hex"), "hex");
    assert_eq!(get(&bench, "pbkdf2iters", "tank/pass"), "100000");
    assert_eq!(get(&bench, "keystatus", "tank/pass"), "unavailable");
    assert_eq!(get(&bench, "keystatus", "tank"), "-");
    bench.assert_clean("tank");

    bench.ok("zfs set keylocation=prompt tank/pass");
    let key = b"correct horse\n";
    let mut piped = bench.command("cat tank/pass:/text");
    let mut child = piped
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key).unwrap();
    assert_eq!(
        child.wait_with_output().unwrap().stdout,
        b"what is secret\n"
    );
    bench.ok("zfs set keylocation=file:///nowhere tank/pass");
    let text = "ashift cat: tank/pass:/text: encryption key of 'tank/pass' not loaded: Failed to open key material \
                file: No such file or directory";
    bench.fails("cat tank/pass:/text", 1, text);
    let verified = bench.ok("zfs load-key -n -L file://{dir}/pass tank/pass");
    assert_eq!(verified, "1 / 1 key(s) successfully verified\n");
}

/// As recorded of OpenZFS 2.3.2.
#[test]
fn what_cannot_be_is_said_in_the_words_of_zfs() {
    let bench = bench();
    let load = |arguments: &str, text: &str| {
        let text = format!("Key load error: {text}");
        bench.fails(&format!("zfs load-key {arguments}"), 255, &text);
    };
    load("tank", "'tank' is not encrypted.");
    load(
        "-L file://{dir}/hex tank/pass",
        "Incorrect key provided for 'tank/pass'.",
    );
    load(
        "-L file://{dir}/raw tank/hex",
        "Hex key too short (expected 64).",
    );
    load(
        "-L file://{dir}/hex tank/raw",
        "Raw key too long (expected 32).",
    );
    load("-L nonsense tank/raw", "Invalid keylocation");
    let unload = "Key unload error: Key already unloaded for 'tank/hex'.";
    bench.fails("zfs unload-key tank/hex", 255, unload);
    let set = |property: &str, name: &str, text: &str| {
        let text = format!("cannot set property for '{name}': {text}");
        bench.fails(&format!("zfs set {property} {name}"), 255, &text);
    };
    set(
        "keylocation=none",
        "tank/hex",
        "keylocation must not be 'none' for encrypted datasets",
    );
    set(
        "keylocation=prompt",
        "tank",
        "keylocation must be 'none' for unencrypted datasets",
    );
    let create = |options: &str, text: &str| {
        let name = options.rsplit(' ').next().unwrap();
        let text = format!("cannot create '{name}': {text}");
        bench.fails(&format!("zfs create {options}"), 1, &text);
    };
    create(
        "-o encryption=on tank/x",
        "Keyformat required for new encryption root.",
    );
    create(
        "-o keyformat=raw tank/x",
        "Encryption must be turned on to set encryption properties.",
    );
    create(
        "-o encryption=on -o keyformat=raw -o keylocation=nonsense tank/x",
        "invalid keylocation",
    );
    std::fs::write(bench.path("pass"), "short").unwrap();
    create(
        "-o encryption=on -o keyformat=passphrase -o keylocation=file://{dir}/pass tank/x",
        "Passphrase too short (min 8).",
    );
    let (code, _, err) = bench.run("zfs load-key");
    assert_eq!(code, 2);
    assert!(
        err.starts_with("Missing dataset argument or -a option\nusage:\n"),
        "{err}"
    );
}

#[test]
fn keys_are_changed() {
    let bench = bench();
    bench.ok("cp {dir}/text tank/pass:/text");
    std::fs::write(bench.path("other"), "battery staple\n").unwrap();
    bench.ok("zfs change-key -o pbkdf2iters=100000 -o keylocation=file://{dir}/other tank/pass");
    assert_eq!(bench.ok("cat tank/pass:/text"), "what is secret\n");
    bench.fails(
        "zfs load-key -n -L file://{dir}/pass tank/pass",
        255,
        "Key load error: Incorrect key provided for 'tank/pass'.",
    );
    bench.ok("zfs change-key -o keyformat=raw -o keylocation=file://{dir}/raw tank/pass");
    assert_eq!(get(&bench, "keyformat", "tank/pass"), "raw");
    assert_eq!(bench.ok("cat tank/pass:/text"), "what is secret\n");
    let refused = |arguments: &str, text: &str| {
        let text = format!("Key change error: {text}");
        bench.fails(&format!("zfs change-key {arguments}"), 255, &text);
    };
    refused("tank", "Dataset not encrypted.");
    refused("-i tank/hex", "Parent must be encrypted.");
    refused(
        "-o compression=on tank/hex",
        "Only keyformat, keylocation and pbkdf2iters may be set with this command.",
    );
    bench.assert_clean("tank");
}

#[test]
fn a_holder_keeps_keys_until_they_are_unloaded() {
    let bench = bench();
    let holder = Holder::start(&bench);
    let locked = "cannot create 'tank/pass/below': encryption key not loaded";
    bench.fails("zfs create tank/pass/below", 1, locked);
    bench.fails(
        "cat tank/pass:/text",
        1,
        "ashift cat: tank/pass:/text: encryption key not loaded",
    );
    let all = bench.ok("zfs load-key -a");
    assert_eq!(all, "3 / 3 key(s) successfully loaded\n");
    bench.ok("zfs create tank/pass/below");
    bench.ok("cp {dir}/text tank/pass/below:/text");
    assert_eq!(get(&bench, "keystatus", "tank/pass/below"), "available");
    assert_eq!(
        get(&bench, "encryptionroot", "tank/pass/below"),
        "tank/pass"
    );
    bench.fails(
        "zfs unload-key tank/pass/below",
        255,
        "Key unload error: Keys must be unloaded for encryption root of 'tank/pass/below' (tank/pass).",
    );
    let own = "zfs change-key -o keyformat=hex -o keylocation=file://{dir}/hex tank/pass/below";
    bench.ok(own);
    assert_eq!(
        get(&bench, "encryptionroot", "tank/pass/below"),
        "tank/pass/below"
    );
    bench.ok("zfs change-key -i tank/pass/below");
    assert_eq!(
        get(&bench, "encryptionroot", "tank/pass/below"),
        "tank/pass"
    );
    assert_eq!(get(&bench, "keylocation", "tank/pass/below"), "none");
    bench.ok("zfs unmount -a");
    bench.ok("zfs unload-key -r tank/pass");
    assert_eq!(get(&bench, "keystatus", "tank/pass"), "unavailable");
    bench.fails(
        "cat tank/pass/below:/text",
        1,
        "ashift cat: tank/pass/below:/text: encryption key not loaded",
    );
    bench.ok("zfs load-key tank/pass");
    assert_eq!(bench.ok("cat tank/pass/below:/text"), "what is secret\n");
    drop(holder);
}

const ROOT: &str = "-O encryption=aes-192-ccm -O keyformat=passphrase -O pbkdf2iters=100000 -O \
                    keylocation=file://{dir}/pass";

/// A folder with keys and no pool.
fn keys_only() -> Bench {
    let bench = Bench::new(&["a", "b"]);
    std::fs::write(bench.path("pass"), "correct horse\n").unwrap();
    std::fs::write(bench.path("hex"), HEX).unwrap();
    std::fs::write(bench.path("text"), "what is secret\n").unwrap();
    bench
}

#[test]
fn the_root_of_a_pool_is_an_encryption_root_with_other_suites_below() {
    let bench = keys_only();
    let refused = |options: &str, text: &str| {
        let text = format!("cannot create 'tank': {text}");
        bench.fails(&format!("zpool create {options} tank {{a}}"), 1, &text);
    };
    let no_format = "Keyformat required for new encryption root.";
    refused("-O encryption=on", no_format);
    refused("-O encryption=on -O keylocation=prompt", no_format);
    refused(
        "-O keyformat=raw",
        "Encryption must be turned on to set encryption properties.",
    );
    let feature = "Encryption feature not enabled.";
    refused("-d -O encryption=on -O keyformat=raw", feature);
    refused(
        "-o feature@encryption=disabled -O encryption=on -O keyformat=raw",
        feature,
    );
    refused(
        "-O encryption=on -O keyformat=raw -O keylocation=nonsense",
        "invalid keylocation",
    );
    refused(
        "-O encryption=on -O keyformat=hex -O keylocation=file://{dir}/pass",
        "Hex key too short (expected 64).",
    );
    bench.ok(&format!("zpool create {ROOT} tank {{a}}"));
    // Nobody else could have loaded the key: it is asked for where keylocation says.
    bench.ok("zfs create -o encryption=aes-256-gcm tank/other");
    bench.ok("zfs create -p -o encryption=off tank/same/clear");
    for (name, suite, root) in [
        ("tank", "aes-192-ccm", "tank"),
        ("tank/other", "aes-256-gcm", "tank"),
        ("tank/same", "aes-192-ccm", "tank"),
        ("tank/same/clear", "off", "-"),
    ] {
        assert_eq!(get(&bench, "encryption", name), suite);
        assert_eq!(get(&bench, "encryptionroot", name), root);
        bench.ok(&format!("cp {{dir}}/text {name}:/text"));
        assert_eq!(bench.ok(&format!("cat {name}:/text")), "what is secret\n");
    }
    bench.fails(
        "zfs create -o encryption=aes-128-gcm tank/same/clear/below",
        1,
        "cannot create 'tank/same/clear/below': Keyformat required for new encryption root.",
    );
    bench.assert_clean("tank");
    bench.ok("zpool export tank");
    std::fs::rename(bench.path("pass"), bench.path("moved")).unwrap();
    let (code, out, err) = bench.run("zpool import -l -d {dir} tank");
    assert_eq!(
        (code, &*out),
        (1, "0 / 1 keys successfully loaded\n"),
        "{err}"
    );
    let text = "Key load error: Failed to open key material file: No such file or directory\n";
    assert_eq!(err, text);
    std::fs::rename(bench.path("moved"), bench.path("pass")).unwrap();
    bench.ok("zpool export tank");
    let loaded = bench.ok("zpool import -l -d {dir} tank");
    assert_eq!(loaded, "1 / 1 keys successfully loaded\n");
}

#[test]
fn keys_are_loaded_with_a_pool_and_unloaded_with_a_mount() {
    let bench = keys_only();
    let holder = Holder::start(&bench);
    bench.ok(&format!(
        "zpool create -R {{dir}}/r {ROOT} tank mirror {{a}} {{b}}"
    ));
    assert_eq!(
        get(&bench, "keystatus", "tank"),
        "available",
        "of a new pool"
    );
    bench.ok(
        "zfs create -o encryption=on -o keyformat=hex -o keylocation=file://{dir}/hex tank/own",
    );
    bench.ok("zfs create -o encryption=aes-128-gcm tank/other");
    bench.ok("cp {dir}/text tank/own:/text");
    let status = |name: &str| get(&bench, "keystatus", name);
    for (wrong, text) in [
        ("zpool import -l -N tank", "-l is incompatible with -N"),
        ("zpool import -l", "-l is only meaningful during an import"),
        (
            "zpool split -l tank t2",
            "loading keys is only valid when importing the pool",
        ),
    ] {
        let (code, _, err) = bench.run(wrong);
        assert_eq!((code, err.lines().next()), (2, Some(text)));
    }
    let split = bench.ok("zpool split -l -R {dir}/s tank t2");
    assert_eq!(split, "2 / 2 keys successfully loaded\n");
    assert_eq!(status("t2/own"), "available");
    assert_eq!(bench.ok("cat t2/own:/text"), "what is secret\n");
    bench.ok("zpool export t2");
    bench.ok("zpool export tank");
    let imported = bench.ok("zpool import -R {dir}/r -l -d {dir} tank");
    assert_eq!(imported, "2 / 2 keys successfully loaded\n");
    bench.ok("zpool export tank");
    bench.ok("zpool import -R {dir}/r -d {dir} tank");
    assert_eq!(status("tank"), "unavailable");
    if std::path::Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
        bench.ok("zfs mount -l tank");
        bench.ok("zfs mount -al");
        let text = bench.path("r/tank/own/text");
        assert_eq!(std::fs::read_to_string(&text).unwrap(), "what is secret\n");
        bench.ok("zfs unmount tank/own");
        assert_eq!(status("tank/own"), "available", "without -u it stays");
        bench.ok("zfs mount tank/own");
        bench.ok("zfs unmount -u tank/own");
        assert_eq!(
            (&*status("tank/own"), &*status("tank")),
            ("unavailable", "available")
        );
        bench.ok("zfs mount -l tank/own");
        // What is in use stays as it is, with its key.
        let open = std::fs::File::open(&text).unwrap();
        assert_eq!(bench.run("zfs unmount -u tank").0, 1);
        assert_eq!(
            (&*status("tank/own"), &*status("tank")),
            ("available", "available")
        );
        drop(open);
        bench.ok("zfs unmount -u tank");
        assert_eq!(
            (&*status("tank/own"), &*status("tank/other")),
            ("unavailable", "unavailable")
        );
        bench.ok("zfs mount -al");
        bench.ok("zfs unmount -au");
        assert_eq!(status("tank"), "unavailable");
    }
    bench.ok("zpool export tank");
    drop(holder);
}
