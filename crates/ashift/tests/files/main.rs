//! `ashift cp` and similar commands: a tree with every kind of entry goes into a pool and comes back.

mod hostile;
mod keep;
mod reflink;
mod rewrite;
mod rsync;
mod tar;
mod tar_hostile;
mod words;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};

use oracle::{Zdb, have_zdb};

/// A process being started inherits this process's open devices, and their locks, until exec: none is
/// started while a test has a pool open.
static FORKS: RwLock<()> = RwLock::new(());

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            folder: tempfile::tempdir().unwrap(),
        };
        let image = bench.path("disk.img");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(512 << 20)
            .unwrap();
        bench.ok(&["zpool", "create", "tank", &image]);
        bench
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, b"")
    }

    /// Like `run`, with `input` on stdin.
    fn run_with(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashift"));
        command.args(args);
        self.start(&mut command, input)
    }

    fn start(&self, command: &mut Command, input: &[u8]) -> Output {
        command.env("ASHIFT_STATE", self.folder.path().join("state"));
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = {
            let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
            command.spawn().unwrap()
        };
        // A command that does not read stdin may have ended already.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input);
        child.wait_with_output().unwrap()
    }

    /// Opens the pool as the commands do, and calls `act`.
    fn with_spa<T>(&self, act: impl FnOnce(&spa::Spa) -> T) -> T {
        let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        let state = self.folder.path().join("state");
        let cache = spa::CacheFile::new(state.join("zpool.cache"));
        let config = cache.find("tank").unwrap().unwrap();
        let host = spa::Host::find(&state).unwrap();
        let settings = spa::Settings::default();
        let options = spa::ImportOptions::from_config(&config, false, host, settings).unwrap();
        let spa = spa::Spa::import(options).unwrap();
        let result = act(&spa);
        spa.close().unwrap();
        result
    }

    /// Runs a command that must end with exit code 1; returns stdout and stderr.
    fn fails(&self, args: &[&str]) -> (String, String) {
        let output = self.run(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{args:?}: {out}{err}");
        (out, err)
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn shell(script: &str, at: &Path) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(at)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every kind of entry that this user may create.
const MAKE: &str = r#"
mkdir -p tree/dir/sub tree/empty; cd tree
echo hello >dir/file; chmod 4751 dir/file
head -c 3000000 /dev/urandom >dir/large
truncate -s 1G dir/sparse; printf x | dd of=dir/sparse bs=1 seek=700000000 conv=notrunc status=none
: >zero; ln dir/file dir/sub/hard; ln -s ../nowhere link; mkfifo fifo
printf long >"$(printf 'n%.0s' $(seq 255))"
touch -d '2001-02-03 04:05:06.123456789' dir/file; touch -h -d '1999-01-01' link
if [ "$(id -u)" = 0 ]; then mknod null c 1 3; mknod disk b 259 70000; chown 1234:5678 zero; fi
touch -d '2010-10-10 10:10:10.101010101' dir empty
"#;

/// What is compared: names, types, modes, owners, link counts, times, devices, link targets, contents.
const LIST: &str = "find . -mindepth 1 -printf '%P %y %m %U %G %n %T@ %l\\n' | sort; \
     find . -type f -exec sha256sum {} + | sort; find . -type c -o -type b | sort | xargs -r stat -c '%n %t %T'";

#[test]
fn every_kind_of_entry_goes_there_and_back() {
    let bench = Bench::new();
    let host = bench.folder.path();
    shell(MAKE, host);
    bench.ok(&["cp", "-a", &bench.path("tree"), "tank:/"]);
    bench.ok(&["cp", "-a", "tank:/tree", &bench.path("back")]);
    let (there, back) = (
        shell(LIST, &host.join("tree")),
        shell(LIST, &host.join("back")),
    );
    assert_eq!(there, back);
    let used: u64 = shell("stat -c %b back/dir/sparse", host)
        .trim()
        .parse()
        .unwrap();
    assert!(used < 10_000, "the hole was filled: {used} sectors");
    bench.ok(&["zfs", "snapshot", "tank@s"]);
    bench.ok(&["rm", "-r", "tank:/tree/dir"]);
    assert_eq!(bench.ok(&["cat", "tank@s:/tree/dir/file"]), "hello\n");
    let missing = bench.run(&["ls", "tank:/tree/dir"]);
    assert_eq!(missing.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(
        complaint,
        "ashift ls: tank:/tree/dir: No such file or directory\n"
    );
    bench.ok(&["zpool", "export", "tank"]);
    if have_zdb() {
        Zdb::verify(host, "tank").assert_clean();
    }
}

/// A compressor that keeps state from a block that did not compress spoils the next one, and the checksum
/// matches the spoiled block.
#[test]
fn blocks_that_compress_and_blocks_that_do_not_take_turns() {
    const BLOCK: usize = 128 << 10;
    let bench = Bench::new();
    let text: Vec<u8> = (0..)
        .flat_map(|i: u32| format!("line {i}\n").into_bytes())
        .take(BLOCK)
        .collect();
    let mut noise = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::new();
    for _ in 0..40 {
        for _ in 0..BLOCK / 8 {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            bytes.extend_from_slice(&noise.to_le_bytes());
        }
        bytes.extend_from_slice(&text);
    }
    std::fs::write(bench.path("turns"), &bytes).unwrap();
    for word in ["gzip-1", "gzip-6", "zstd", "lz4"] {
        let dataset = format!("tank/{word}");
        bench.ok(&[
            "zfs",
            "create",
            "-o",
            &format!("compression={word}"),
            &dataset,
        ]);
        let there = format!("{dataset}:/turns");
        bench.ok(&["cp", &bench.path("turns"), &there]);
        bench.ok(&["cp", &there, &bench.path("back")]);
        assert!(
            std::fs::read(bench.path("back")).unwrap() == bytes,
            "{word}"
        );
    }
    bench.ok(&["zpool", "scrub", "-t", "tank"]);
    bench.ok(&["zdb", "-bccc", "tank"]);
}

/// Number of entries: `ENTRIES`; `ENTRIES=1000000` takes some minutes.
#[test]
fn directories_have_many_entries() {
    let count: usize = std::env::var("ENTRIES").map_or(20_000, |n| n.parse().unwrap());
    let bench = Bench::new();
    let host = bench.folder.path();
    std::fs::create_dir(host.join("many")).unwrap();
    for i in 0..count {
        let file = std::fs::File::create(host.join(format!("many/entry {i}")));
        drop(file.unwrap());
    }
    bench.ok(&["cp", "-a", &bench.path("many"), "tank:/"]);
    let list = bench.ok(&["ls", "tank:/many"]);
    let mut names: Vec<&str> = list.lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let last = format!("tank:/many/entry {}", count - 1);
    bench.ok(&["mv", &last, "tank:/many/renamed"]);
    assert!(!bench.run(&["stat", &last]).status.success());
    bench.ok(&["stat", "tank:/many/renamed"]);
    bench.ok(&["cp", "-a", "tank:/many", &bench.path("back")]);
    let back = std::fs::read_dir(host.join("back")).unwrap().count();
    assert_eq!(back, count);
    bench.ok(&["rm", "-r", "tank:/many"]);
    assert_eq!(bench.ok(&["ls", "tank:/"]), "");
    bench.ok(&["zpool", "export", "tank"]);
    if have_zdb() {
        Zdb::verify(host, "tank").assert_clean();
    }
}

const ACLS: &str = "mkdir -p acls/dir; touch acls/file
setfacl -m u:1234:rwx,g:77:r--,m::rwx acls/file
setfacl -m u:9:-wx acls/dir; setfacl -d -m u:5:r-x,m::rx acls/dir";

#[test]
fn posix_acls_go_there_and_back() {
    let bench = Bench::new();
    let host = bench.folder.path();
    let set = Command::new("sh")
        .args(["-ec", ACLS])
        .current_dir(host)
        .status();
    if !set.is_ok_and(|status| status.success()) {
        return oracle::skip("setfacl (package acl), or ACLs in the temporary folder, are missing");
    }
    bench.ok(&["zfs", "create", "-o", "acltype=posix", "tank/acl"]);
    bench.ok(&["cp", "-a", &bench.path("acls"), "tank/acl:/"]);
    bench.ok(&["cp", "-a", "tank/acl:/acls", &bench.path("back")]);
    let list = "getfacl -R -n .";
    let (there, back) = (
        shell(list, &host.join("acls")),
        shell(list, &host.join("back")),
    );
    assert!(there.contains("default:user:5:r-x"), "{there}");
    assert_eq!(there, back);
}

/// All files below a directory, in the order of their names or of the hashes of these.
#[test]
fn cat_goes_through_the_files_below_a_directory() {
    let bench = Bench::new();
    let script = "mkdir -p tree/b/c; for i in $(seq 40); do echo $i >tree/b/c/$i; done; echo a >tree/a; ln -s a tree/link";
    shell(script, bench.folder.path());
    bench.ok(&["cp", "-a", &bench.path("tree"), "tank:/"]);
    let by_name = "find tree -type f | LC_ALL=C sort | xargs cat";
    let expected = shell(by_name, bench.folder.path());
    assert_eq!(bench.ok(&["cat", "-r", "tank:/tree"]), expected);
    let unordered = bench.ok(&["cat", "-rU", "tank:/tree"]);
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_ne!(unordered, expected);
    assert_eq!(sorted(&unordered), sorted(&expected));
    let (_, err) = bench.fails(&["cat", "tank:/tree"]);
    assert_eq!(err.lines().count(), 1, "{err}");
}

/// Names of 255 bytes are accepted, those of 256 are refused.
#[test]
fn names_have_255_bytes() {
    let bench = Bench::new();
    for name in ["n".repeat(255), "ü".repeat(127) + "n"] {
        let path = format!("tank:/{name}");
        bench.ok(&["mkdir", &path]);
        bench.ok(&["touch", &format!("{path}/{name}")]);
        bench.ok(&["mv", &format!("{path}/{name}"), &format!("{path}/short")]);
        assert_eq!(bench.ok(&["ls", &path]), "short\n");
        let long = bench.run(&["mkdir", &format!("{path}n")]);
        assert_eq!(long.status.code(), Some(1));
        let complaint = String::from_utf8_lossy(&long.stderr).into_owned();
        assert_eq!(
            complaint,
            format!("ashift mkdir: {path}n: File name too long\n")
        );
        bench.ok(&["rm", "-r", &path]);
    }
}

/// A hole of 15 TiB, and a few bytes at the end.
#[test]
fn sparse_files_are_as_long_as_they_may_be() {
    const END: u64 = 15 << 40; // ext4 does not accept 16 TiB
    let bench = Bench::new();
    let host = bench.folder.path();
    let file = std::fs::File::create(host.join("sparse")).unwrap();
    if file.set_len(END).is_err() {
        eprintln!("SKIPPED: the temporary folder takes no files of 15 TiB");
        return;
    }
    file.write_all_at(b"the end", END - 7).unwrap();
    bench.ok(&["cp", &bench.path("sparse"), "tank:/"]);
    bench.ok(&["truncate", "-s", "16T", "tank:/sparse"]);
    let stat: serde_json::Value =
        serde_json::from_str(&bench.ok(&["stat", "-j", "tank:/sparse"])).unwrap();
    assert_eq!(stat[0]["size"], 16u64 << 40);
    bench.ok(&["truncate", "-s", &END.to_string(), "tank:/sparse"]);
    bench.ok(&["cp", "tank:/sparse", &bench.path("back")]);
    let back = std::fs::File::open(host.join("back")).unwrap();
    let facts = back.metadata().unwrap();
    assert_eq!(facts.len(), END);
    assert!(facts.blocks() < 10_000, "{} sectors", facts.blocks());
    let mut end = [0; 7];
    back.read_exact_at(&mut end, END - 7).unwrap();
    assert_eq!(&end, b"the end");
    bench.ok(&["zpool", "export", "tank"]);
    if have_zdb() {
        Zdb::verify(host, "tank").assert_clean();
    }
}

#[test]
fn names_are_made_changed_and_removed() {
    let bench = Bench::new();
    bench.ok(&["mkdir", "-p", "tank:/a/b/c"]);
    bench.ok(&["truncate", "-s", "16T", "tank:/a/sparse"]);
    bench.ok(&["mv", "tank:/a/sparse", "tank:/a/b"]);
    bench.ok(&["ln", "-s", "b/sparse", "tank:/a/link"]);
    let found = bench.ok(&["find", "tank:/a"]);
    assert_eq!(
        found,
        "tank:/a\ntank:/a/b\ntank:/a/b/c\ntank:/a/b/sparse\ntank:/a/link\n"
    );
    let stat: serde_json::Value =
        serde_json::from_str(&bench.ok(&["stat", "-j", "tank:/a/b/sparse"])).unwrap();
    assert_eq!(stat[0]["size"], 16u64 << 40);
    assert!(!bench.run(&["rmdir", "tank:/a/b"]).status.success());
    bench.ok(&["rm", "-r", "tank:/a"]);
    assert_eq!(bench.ok(&["ls", "tank:/"]), "");
}
