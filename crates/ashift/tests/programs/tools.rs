//! Tools of every day, and those that measure file systems.

use std::path::Path;

use crate::mounted::{mounted, runs_all, sh};

/// The root of this repository.
fn repository() -> &'static Path {
    let ashift = Path::new(env!("CARGO_MANIFEST_DIR"));
    ashift.ancestors().nth(2).unwrap()
}

#[test]
fn git_keeps_a_repository() {
    let Some(mounted) = mounted(&["git"]) else {
        return;
    };
    let source = repository().join("crates");
    let said = mounted.sh(&format!(
        "export GIT_CONFIG_GLOBAL=/dev/null
        git init -q -b main one && cd one
        git config user.name T && git config user.email t@t.example
        cp -a {source}/zpl {source}/phys . && git add -A && git commit -qm first
        for n in 1 2 3; do
            echo $n >> zpl/Cargo.toml && git mv phys phys$n && git commit -qam $n && git mv phys$n phys && git commit -qam back
        done
        git checkout -q -b other HEAD~4 && git checkout -q main && git repack -qad && git fsck --strict
        cd .. && git clone -q one two && cd two && git fsck --strict && git log --oneline | wc -l
        git status --porcelain && diff -r phys {source}/phys",
        source = source.display()
    ));
    assert_eq!(said.trim(), "7");
    mounted.end();
}

#[test]
fn rsync_finds_nothing_left_to_do() {
    let Some(mounted) = mounted(&["rsync", "setfacl", "setfattr"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = repository().join("crates/zpl");
    let said = sh(
        folder.path(),
        &format!(
            "mkdir tree && cd tree && cp -a {source} zpl
            ln zpl/Cargo.toml hard && ln -s ../nowhere soft && mkfifo fifo && mknod node c 1 7
            truncate -s 1G sparse && printf x | dd of=sparse bs=1 seek=700M conv=notrunc status=none
            setfattr -n user.one -v 1 hard && setfattr -n user.two -v $(printf %03000d 0) zpl
            setfacl -m u:12345:rwx,m::rx hard && setfacl -d -m g:54321:r zpl
            chmod 6751 hard && chown 3:4 zpl/src && chmod 1777 zpl && touch -d 1969-12-31T23:00:00.123456789Z zpl/src/lib.rs
            cd ..
            rsync -aHAXS tree/ {at}/tree
            rsync -aHAXSi tree/ {at}/tree
            rsync -aHAXSi --checksum tree/ {at}/tree
            rsync -aHAXS {at}/tree/ back
            rsync -aHAXSi --checksum tree/ back
            du -k {at}/tree/sparse | cut -f 1",
            source = source.display(),
            at = mounted.path().display()
        ),
    );
    let used_kib: u64 = said.trim().parse().expect("rsync had nothing to do");
    assert!(used_kib < 1024, "{used_kib}");
    mounted.end();
}

#[test]
fn fio_reads_what_it_wrote() {
    let Some(mounted) = mounted(&["fio"]) else {
        return;
    };
    let seconds = if runs_all() { 30 } else { 2 };
    for (engine, sizes) in [
        ("psync", "--bsrange=512-128k --bs_unaligned"),
        ("libaio", "--bsrange=4k-128k --direct=1 --iodepth=8"),
        ("io_uring", "--bsrange=4k-128k --iodepth=8"),
        ("mmap", "--bsrange=4k-128k"),
    ] {
        mounted.sh(&format!(
            "fio --name={engine} --directory=. --numjobs=3 --ioengine={engine} {sizes} --rw=randrw --size=8m \
             --verify=crc32c --verify_fatal=1 --time_based --runtime={seconds} --fsync=64 --group_reporting"
        ));
    }
    mounted.end();
}

#[test]
#[ignore = "takes minutes: cargo test --test programs -- --ignored"]
fn dbench_runs() {
    let Some(mounted) = mounted(&["dbench"]) else {
        return;
    };
    mounted.sh("dbench -D . -t 60 4");
    mounted.end();
}

#[test]
#[ignore = "takes minutes: cargo test --test programs -- --ignored"]
fn bonnie_runs() {
    let Some(mounted) = mounted(&["bonnie++"]) else {
        return;
    };
    mounted.sh("bonnie++ -u root -d . -s 1g -r 512 -n 8:65536:16:8 -q");
    mounted.end();
}

/// A large program is unpacked, built and tested there.
#[test]
#[ignore = "takes minutes: cargo test --test programs -- --ignored"]
fn this_repository_is_built_and_tested() {
    let Some(mounted) = mounted(&["git"]) else {
        return;
    };
    mounted.sh(&format!(
        "git clone -q {} repository && cd repository && cargo test -q -p phys -p zpl -p dmu",
        repository().display()
    ));
    mounted.end();
}
