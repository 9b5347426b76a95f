//! A command waits for a pool that another command uses.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

use machine::{FileLock, LockMode, Patience};

use crate::bench::Bench;

/// The lock on a pool that a writing command holds, held by this process.
fn held(bench: &Bench) -> FileLock {
    let path = bench.state().join("locks/tank.lock");
    let patience = Patience {
        wait_ns: 0,
        on_wait: &|_| {},
    };
    FileLock::take(&path, LockMode::Exclusive, "", &patience).unwrap()
}

fn pool() -> Bench {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    bench
}

fn start(bench: &Bench, command: &str) -> Child {
    let mut command = bench.command(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Exit code, stdout, stderr.
fn end(child: Child) -> (i32, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    (code, text(&output.stdout), text(&output.stderr))
}

#[test]
fn without_patience_every_command_says_once_who_has_the_pool() {
    let bench = pool();
    let _held = held(&bench);
    let commands = [
        "zpool list",
        "zpool list tank",
        "zpool status",
        "zpool get size tank",
        "zpool history",
        "zpool set comment=x tank",
        "zpool export tank",
        "zpool export -f tank",
        "zpool scrub tank",
        "zfs list",
        "zfs list -r tank",
        "zfs snapshot tank@x",
        "zfs create tank/a",
        "zfs get all tank",
        "zfs destroy -r tank",
        "zdb -d tank",
        "ls tank:/",
        "cp -a {dir} tank:/",
        "mkdir tank:/d",
    ];
    let pid = std::process::id();
    for command in commands {
        let mut ready = bench.command(command);
        let (code, out, err) = bench.finish(ready.env("ASHIFT_WAIT", "0"));
        assert_eq!((code, out.as_str()), (1, ""), "{command}: {err}");
        assert_eq!(err.lines().count(), 1, "{command}: {err}");
        assert!(err.contains("pool is in use by `host"), "{command}: {err}");
        assert!(err.contains(&format!("(pid {pid})")), "{command}: {err}");
    }
    let (code, _, err) = bench.finish(bench.command("zpool list").env("ASHIFT_WAIT", "soon"));
    assert_eq!(code, 2);
    assert!(
        err.contains("ASHIFT_WAIT is not a number of seconds"),
        "{err}"
    );
}

/// Reads the line that a command prints before it goes on waiting.
fn first_words(child: &mut Child) -> String {
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::with_capacity(1, stderr)
        .read_line(&mut line)
        .unwrap();
    line
}

#[test]
fn a_command_waits_its_turn_and_says_for_whom() {
    let bench = pool();
    let held = held(&bench);
    let mut list = start(&bench, "zpool list -Ho name");
    let mut create = start(&bench, "zfs create tank/a");
    for child in [&mut list, &mut create] {
        let said = first_words(child);
        let pid = format!("(pid {})\n", std::process::id());
        assert!(
            said.starts_with("waiting for pool 'tank': in use by `host"),
            "{said}"
        );
        assert!(said.ends_with(&pid), "{said}");
    }
    drop(held);
    assert_eq!(end(list), (0, "tank\n".to_owned(), String::new()));
    assert_eq!(end(create), (0, String::new(), String::new()));
    assert_eq!(bench.ok("zfs list -Ho name"), "tank\ntank/a\n");
}

#[test]
fn readers_go_side_by_side_and_a_writer_waits_for_them() {
    let bench = pool();
    std::fs::write(bench.path("big"), vec![1; 4 << 20]).unwrap();
    bench.ok("cp {dir}/big tank:/");
    // It blocks when the pipe is full.
    let mut reader = start(&bench, "cat tank:/big");
    let mut first = [0];
    let mut content = reader.stdout.take().unwrap();
    content.read_exact(&mut first).unwrap();
    let (code, out, err) = bench.run("zpool list -Ho name");
    assert_eq!((code, out.as_str(), err.as_str()), (0, "tank\n", ""));
    let mut writer = start(&bench, "zfs create tank/a");
    let said = first_words(&mut writer);
    assert!(
        said.starts_with("waiting for pool 'tank': in use by"),
        "{said}"
    );
    let mut rest = Vec::new();
    content.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len() + 1, 4 << 20);
    assert!(reader.wait().unwrap().success());
    assert_eq!(end(writer), (0, String::new(), String::new()));
}

#[test]
fn what_was_waited_for_may_be_gone() {
    let bench = pool();
    let held = held(&bench);
    let list = start(&bench, "zpool list -Ho name");
    let named = start(&bench, "zpool list -Ho name tank");
    std::thread::sleep(Duration::from_millis(200));
    std::fs::remove_file(bench.state().join("zpool.cache")).unwrap();
    drop(held);
    let (code, out, err) = end(list);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let (code, _, err) = end(named);
    assert_eq!(
        (code, err.as_str()),
        (1, "cannot open 'tank': no such pool\n")
    );
}

#[test]
fn a_device_that_another_host_uses_is_waited_for() {
    let bench = pool();
    let other = Bench::beside(&bench);
    bench.ok("zpool export tank");
    other.ok("zpool import -d {dir} tank");
    std::fs::create_dir_all(bench.state()).unwrap();
    // Both hosts believe that the pool is theirs.
    let cache = "zpool.cache";
    std::fs::copy(other.state().join(cache), bench.state().join(cache)).unwrap();
    let id = std::fs::read(other.state().join("hostid"));
    if let Ok(id) = id {
        std::fs::write(bench.state().join("hostid"), id).unwrap();
    }
    let device = geom::disk::open(&bench.path("a"), geom::disk::OpenMode::ReadWrite).unwrap();
    let (code, _, err) = bench.finish(bench.command("zpool list").env("ASHIFT_WAIT", "0"));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("device in use by another program"), "{err}");
    let list = start(&bench, "zpool list -Ho name");
    std::thread::sleep(Duration::from_millis(300));
    drop(device);
    assert_eq!(end(list), (0, "tank\n".to_owned(), String::new()));
}
