//! The pools to look at: an exported mirror with something of everything; an imported single device; and
//! one with an intent log left behind by a crash.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use oracle::Zdb;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;

const MIRROR: &str = "\
zpool create -O compression=lz4 -O acltype=posix -o comment=parity tank mirror {a} {b}
zfs create -o xattr=sa tank/home
zfs create -o compression=zstd-5 tank/zstd
zfs create -o compression=gzip-9 -o checksum=sha512 tank/gzip
zfs create -o compression=off -o recordsize=1M tank/large
zfs create -o copies=2 -o xattr=dir tank/copies
zfs create -o dnodesize=auto -o compression=zle tank/dnodes
zfs create -o quota=64M -o checksum=skein tank/dnodes/below
cp -a {dir}/tree/. tank/home:/
cp -a {dir}/tree/. tank/zstd:/
cp -a {dir}/tree/big.bin tank/large:/
cp -a {dir}/tree/text.txt tank/gzip:/
cp -a {dir}/tree/. tank/copies:/
cp -a {dir}/tree/. tank/dnodes:/
cp {dir}/tree/small tank/dnodes/below:/
zfs snapshot tank/home@one
zfs hold keep tank/home@one
zfs bookmark tank/home@one tank/home#mark
zfs bookmark tank/home@one tank/home#other
zfs clone tank/home@one tank/clone
rm tank/home:/big.bin
cp {dir}/tree/text.txt tank/home:/again.txt
zfs snapshot tank/home@two
rm tank/home:/text.txt
truncate -s 300000 tank/home:/again.txt
zfs snapshot -r tank@all
cp {dir}/tree/big.bin tank/clone:/more.bin
zfs set compression=zstd tank/clone
rm tank/home:/again.txt
zpool export tank";

const SINGLE: &str = "\
zpool create solo {c}
zfs create solo/a
cp {dir}/tree/text.txt solo/a:/
zfs snapshot solo/a@s";

/// Tables of `fast_dedup` with entries of each kind, some in a log and some in the ZAPs; and one of before.
const DEDUPED: &str = "\
zpool create -O recordsize=4k -O compression=off fast {dir}/e
zfs create -o dedup=on fast/a
zfs create -o dedup=on -o copies=2 fast/b
cp {dir}/tree/text.txt fast/a:/
cp {dir}/tree/text.txt fast/a:/again
cp {dir}/tree/small fast/a:/
cp {dir}/tree/small fast/b:/
zpool export fast
zpool create -o feature@fast_dedup=disabled -O recordsize=4k -O compression=off classic {dir}/f
zfs create -o dedup=skein,verify classic/a
zfs create -o dedup=on -o copies=2 classic/b
cp {dir}/tree/text.txt classic/a:/
cp {dir}/tree/text.txt classic/a:/again
cp {dir}/tree/text.txt classic/b:/
cp {dir}/tree/small classic/b:/
zpool export classic";

/// The pools, and the values of placeholders for them.
pub(crate) struct Pools {
    bench: Bench,
    names: BTreeMap<&'static str, String>,
}

impl Pools {
    pub(crate) fn make() -> Pools {
        let bench = Bench::new(&["a", "b", "c", "d", "e", "f"]);
        make_tree(&bench.path("tree"));
        for commands in [MIRROR, SINGLE, DEDUPED] {
            commands.lines().for_each(|command| {
                bench.ok(command);
            });
        }
        fs::write(bench.path("blank"), vec![0; 4 << 20]).unwrap();
        fs::write(bench.path("short"), b"no label").unwrap();
        leave_a_log(&bench);
        let mut pools = Pools {
            bench,
            names: BTreeMap::new(),
        };
        pools.find_places();
        pools
    }

    /// The folder of our cachefile.
    pub(crate) fn state(&self) -> String {
        self.bench.state().display().to_string()
    }

    /// The folder of a host without pools.
    pub(crate) fn empty_state(&self) -> String {
        self.bench.path("empty").display().to_string()
    }

    /// The destination of a copied file.
    pub(crate) fn destination(&self, side: &str) -> String {
        self.bench
            .path(&format!("copy-{side}"))
            .display()
            .to_string()
    }

    /// A word of a command line with its placeholders filled in.
    pub(crate) fn filled(&self, word: &str) -> String {
        let folder = self.bench.folder().display().to_string();
        let mut word = word.replace("{dir}", &folder);
        for image in ["a", "b", "c", "d"] {
            let path = self.bench.path(image).display().to_string();
            word = word.replace(&format!("{{{image}}}"), &path);
        }
        word = word.replace("{cache}", &format!("{}/zpool.cache", self.state()));
        for (name, value) in &self.names {
            word = word.replace(&format!("{{{name}}}"), value);
        }
        assert!(!word.contains('{'), "nothing stands for {word}");
        word
    }

    fn real(&self, args: &[&str]) -> String {
        let folder = self.bench.folder().display().to_string();
        let mut all = vec!["-e", "-p", &folder];
        all.extend_from_slice(args);
        Zdb::run(&all).stdout
    }

    /// Objects by their paths, and blocks of them, as found by the real zdb.
    fn find_places(&mut self) {
        for (name, dataset, path) in [
            ("big", "tank/clone", "big.bin"),
            ("text", "tank/clone", "text.txt"),
            ("holes", "tank/clone", "holes"),
            ("many", "tank/clone", "many"),
            ("small", "tank/clone", "small"),
            ("zst", "tank/zstd", "text.txt"),
            ("nodir", "tank/clone", "sub"),
        ] {
            let shown = self.real(&["-O", dataset, path]);
            let line = shown
                .lines()
                .find(|line| line.ends_with("directory") || line.contains("file"));
            let line = line.unwrap_or_else(|| panic!("{dataset} {path}: {shown}"));
            let object = line.split_whitespace().next().unwrap().to_owned();
            self.names.insert(name, object);
        }
        let blocks = [
            ("data", "tank/clone", "big", "L0"),
            ("indirect", "tank/clone", "big", "L1"),
            ("lz4", "tank/clone", "text", "L0"),
            ("zstd", "tank/zstd", "zst", "L0"),
        ];
        for (name, dataset, file, level) in blocks {
            let object = self.names[file].clone();
            let shown = self.real(&["-ddddd", dataset, &object]);
            let line = shown
                .lines()
                .find(|line| line.split_whitespace().nth(1) == Some(level));
            let line = line.unwrap_or_else(|| panic!("{dataset} {file}: {shown}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            let (place, _) = words[2].rsplit_once(':').unwrap();
            let (lsize, psize) = words[3].split_once('/').unwrap();
            let (lsize, psize) = (lsize.trim_end_matches('L'), psize.trim_end_matches('P'));
            self.names.insert(name, format!("{place}:{lsize}/{psize}"));
        }
        let (place, sizes) = self.names["data"].rsplit_once(':').unwrap();
        let (vdev, offset) = place.split_once(':').unwrap();
        assert_eq!(vdev, "0");
        let offset = offset.to_owned();
        let _ = sizes;
        self.names.insert("offset", offset);
    }
}

/// Bytes that do not compress, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Files of all kinds.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("many")).unwrap();
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("big.bin"), noise(3_000_000)).unwrap();
    let text: String = (0..20_000)
        .map(|i| format!("line {i} of the text\n"))
        .collect();
    fs::write(root.join("text.txt"), &text).unwrap();
    fs::write(root.join("small"), "a few bytes").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    let mut holes = noise(600_000);
    holes[150_000..450_000].fill(0);
    fs::write(root.join("holes"), holes).unwrap();
    fs::write(root.join("sub/deep/file"), noise(5000)).unwrap();
    for i in 0..300 {
        fs::write(root.join(format!("many/file{i}")), format!("{i}")).unwrap();
    }
    // A name of more than 50 bytes turns the directory into a fat ZAP.
    fs::write(root.join(format!("many/{}", "long".repeat(20))), "x").unwrap();
    symlink("small", root.join("link")).unwrap();
    fs::hard_link(root.join("small"), root.join("second")).unwrap();
    let attributes: [(&str, &[u8]); 2] = [("user.note", b"a note"), ("user.raw", &[0, 1, 255])];
    for (name, value) in attributes {
        let flags = rustix::fs::XattrFlags::empty();
        // If the host has none, the pools have none.
        let _ = rustix::fs::setxattr(root.join("small"), name, value, flags);
    }
    // u::rw-, u:7:rwx, g::r--, m::rwx, o::r--
    let acl: Vec<u8> = [2u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(
            [
                (1u16, 6u16, u32::MAX),
                (2, 7, 7),
                (4, 4, u32::MAX),
                (16, 7, u32::MAX),
                (32, 4, u32::MAX),
            ]
            .map(|(tag, perm, id)| {
                [
                    &tag.to_le_bytes()[..],
                    &perm.to_le_bytes(),
                    &id.to_le_bytes(),
                ]
                .concat()
            }),
        )
        .flatten()
        .collect();
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::setxattr(root.join("sub"), "system.posix_acl_access", &acl, flags);
}

/// Creates a pool and kills a program that writes to it synchronously. It is stopped every few milliseconds, until
/// there is a log.
fn leave_a_log(bench: &Bench) {
    let folder = bench.folder().display().to_string();
    bench.ok(&format!(
        "zpool create -O acltype=posix cut {}",
        bench.path("d").display()
    ));
    bench.ok("zfs create -o sync=always cut/log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ashift"))
        .args(["cp", "-a", &format!("{folder}/tree"), "cut/log:/"])
        .env("ASHIFT_STATE", bench.state())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let log = Zdb::run(&["-e", "-p", &folder, "-ii", "cut/log"]).stdout;
        if log.contains("TX_CREATE") {
            break;
        }
        kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "no intent log was seen");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
