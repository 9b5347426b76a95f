//! Pools that one process holds, while commands of others use them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;

/// A holder of the pools of a bench; killed when it is dropped.
pub(crate) struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Holder {
    /// Starts one, in the foreground, and waits until it answers.
    pub(crate) fn start(bench: &Bench) -> Holder {
        let child = bench.command("serve").stderr(Stdio::piped()).spawn();
        let holder = Holder(child.unwrap());
        // That of one that was killed is there, but nobody listens.
        let socket = bench.state().join("holder.sock");
        wait_until("the holder listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        // It answers when its pools are open.
        bench.ok("zpool list");
        holder
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end, and returns its exit code.
    fn end(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "waited for: {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn held() -> (Bench, Holder) {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create -O compression=off tank {a}");
    bench.ok("zfs create tank/x");
    let holder = Holder::start(&bench);
    (bench, holder)
}

fn piped(bench: &Bench, command: &str) -> Child {
    let mut command = bench.command(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Whether a pool's lock is taken by another process than a command: the pool is open.
fn is_open(bench: &Bench, pool: &str) -> bool {
    let lock = std::fs::File::open(bench.state().join(format!("locks/{pool}.lock"))).unwrap();
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&lock, operation).is_err()
}

#[test]
fn commands_of_one_pool_run_side_by_side() {
    let (bench, holder) = held();
    assert!(is_open(&bench, "tank"));
    // Two writers, neither of which ends before all the others have.
    let mut writers = ["cp - tank/x:/one", "dd of=tank/x:/two bs=64k status=none"].map(|command| {
        let mut writer = piped(&bench, command);
        writer
            .stdin
            .as_mut()
            .unwrap()
            .write_all(&[7; 100_000])
            .unwrap();
        writer
    });
    wait_until("both files are there", || {
        bench.ok("ls tank/x:/").lines().count() == 2
    });
    bench.ok("zfs snapshot tank/x@now");
    assert!(bench.ok("zpool status tank").contains("state: ONLINE"));
    assert!(
        bench
            .ok("zfs list -H -o name -t all")
            .contains("tank/x@now")
    );
    bench.ok("zfs set comment:x=1 tank/x");
    bench.ok("zpool scrub -w tank");
    let rounds = bench.ok("zpool iostat -H tank 0.2 2");
    assert_eq!(rounds.lines().count(), 2, "{rounds}");
    // What excludes each other in OpenZFS does here.
    bench.fails(
        "zfs destroy -r tank/x",
        1,
        "cannot destroy 'tank/x': dataset is busy",
    );
    let (code, _, said) = bench.run("zpool export tank");
    assert_eq!(code, 1);
    assert!(said.contains("pool is busy"), "{said}");
    for writer in &mut writers {
        drop(writer.stdin.take());
        assert!(writer.wait().unwrap().success());
    }
    assert_eq!(bench.ok("cat tank/x:/one"), bench.ok("cat tank/x:/two"));
    assert_eq!(bench.ok("cat tank/x:/one").len(), 100_000);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end(), Some(0));
    assert!(!is_open(&bench, "tank"));
    bench.assert_clean("tank");
    assert_eq!(bench.ok("cat tank/x:/two").len(), 100_000);
}

#[test]
fn a_command_has_the_folder_mask_streams_and_variables_of_its_client() {
    let (bench, _holder) = held();
    std::fs::write(bench.path("here"), "text\n").unwrap();
    let mut copy = bench.command("cp here tank/x:/there");
    assert_eq!(bench.finish(copy.current_dir(bench.folder())).0, 0);
    let script = "umask 077; ashift touch tank/x:/mine; ashift cp tank/x:/there out; umask 022; ashift touch tank/x:/ours";
    let mut shell = Command::new("sh");
    let ashift = env!("CARGO_BIN_EXE_ashift");
    shell.args(["-c", &script.replace("ashift", ashift)]);
    shell
        .env("ASHIFT_STATE", bench.state())
        .current_dir(bench.folder());
    assert_eq!(bench.finish(&mut shell), (0, String::new(), String::new()));
    assert_eq!(
        std::fs::read_to_string(bench.path("out")).unwrap(),
        "text\n"
    );
    assert_eq!(
        std::fs::metadata(bench.path("out")).unwrap().mode() & 0o777,
        0o600
    );
    assert_eq!(
        bench.ok("stat -j tank/x:/mine").matches("\"0600\"").count(),
        1,
        "{}",
        bench.ok("stat -j tank/x:/mine")
    );
    assert_eq!(
        bench.ok("stat -j tank/x:/ours").matches("\"0644\"").count(),
        1
    );
    // A pipe whose reader has ended.
    let mut list = bench.command("find tank/x:/");
    let mut list = list.stdout(Stdio::piped()).spawn().unwrap();
    drop(list.stdout.take());
    assert_eq!(list.wait().unwrap().code(), Some(141));
    let mut dates = bench.command("zpool history tank");
    let (_, there, _) = bench.finish(dates.env("TZ", "UTC0"));
    let mut dates = bench.command("zpool history tank");
    let (_, here, _) = bench.finish(dates.env("TZ", "XYZ-5"));
    assert_ne!(there, here, "each has its own time zone");
}

#[test]
fn a_command_ends_with_its_client() {
    let (bench, holder) = held();
    for command in [
        "zpool iostat tank 1",
        "cp - tank/x:/f",
        "dd of=tank/x:/g",
        "dd if=/dev/zero of=/dev/null bs=4k",
    ] {
        let mut child = piped(&bench, command);
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "{command} goes on");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Nothing uses the pool any more.
    wait_until("the pool is not busy", || {
        bench.run("zpool export tank").0 == 0
    });
    bench.assert_clean("tank");
    bench.ok("zpool import -N -d {dir} tank");
    let mut lasting = piped(&bench, "zpool iostat 1");
    let mut line = String::new();
    BufReader::new(lasting.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    bench.ok("serve --stop");
    assert_eq!(lasting.wait().unwrap().code(), Some(130));
    assert_eq!(holder.end(), Some(0));
    bench.fails(
        "serve --stop",
        1,
        &format!(
            "ashift serve: nothing holds the pools remembered in {}",
            bench.state().display()
        ),
    );
}

#[test]
fn what_takes_long_goes_on_after_the_command() {
    let (bench, _holder) = held();
    std::fs::write(bench.path("data"), vec![3; 30 << 20]).unwrap();
    bench.ok("cp {dir}/data tank/x:/data");
    bench.ok("zpool sync");
    bench.ok("zpool scrub tank");
    bench.ok("zpool wait tank");
    assert!(bench.ok("zpool status tank").contains("scrub repaired 0B"));
    bench.ok("zpool attach tank {a} {b}");
    bench.ok("zpool wait -t resilver tank");
    let status = bench.ok("zpool status tank");
    assert!(
        status.contains("mirror-0") && status.contains("resilvered"),
        "{status}"
    );
    bench.ok("zfs destroy tank/x");
    let sizes = || {
        let sizes = bench.ok("zpool get -Hpo value freeing,allocated tank");
        let sizes: Vec<u64> = sizes.lines().map(|n| n.parse().unwrap()).collect();
        (sizes[0], sizes[1])
    };
    wait_until("its blocks are freed", || sizes().0 == 0);
    // They can be allocated again, and count as free, two txgs later.
    bench.ok("zpool sync -f");
    bench.ok("zpool sync -f");
    assert!(sizes().1 < 5 << 20, "{:?}", sizes());
    bench.ok("zpool initialize -w tank");
    bench.ok("zpool export tank");
    bench.ok("zpool import -N -d {dir} tank");
    assert!(is_open(&bench, "tank"), "an imported pool is held as well");
    bench.ok("zpool export tank");
    bench.assert_clean("tank");
}

#[test]
fn a_killed_holder_leaves_what_a_power_cut_leaves() {
    let (bench, mut holder) = held();
    for round in 0..4 {
        std::fs::write(bench.path("data"), format!("round {round}\n").repeat(1000)).unwrap();
        bench.ok(&format!(
            "dd if={{dir}}/data of=tank/x:/kept{round} conv=fsync status=none"
        ));
        let mut writer = piped(&bench, "dd if=/dev/zero of=tank/x:/more bs=64k oflag=dsync");
        wait_until("it writes", || bench.ok("ls tank/x:/").contains("more"));
        std::thread::sleep(Duration::from_millis(30 + 70 * round));
        holder.0.kill().unwrap();
        let output = writer.wait_with_output_or_die();
        assert_eq!(output.0, Some(1), "{}", output.1);
        assert!(
            output
                .1
                .contains("the holder of the pools ended before the command did"),
            "{}",
            output.1
        );
        drop(holder);
        // The socket is there still, and nobody minds.
        assert!(bench.state().join("holder.sock").exists());
        for kept in 0..=round {
            let text = bench.ok(&format!("cat tank/x:/kept{kept}"));
            assert_eq!(text, format!("round {kept}\n").repeat(1000));
        }
        bench.ok("rm -f tank/x:/more");
        bench.assert_clean("tank");
        holder = Holder::start(&bench);
    }
}

/// The exit code and stderr of a child.
trait Ends {
    fn wait_with_output_or_die(&mut self) -> (Option<i32>, String);
}

impl Ends for Child {
    fn wait_with_output_or_die(&mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let mut said = String::new();
        self.stderr
            .as_mut()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (self.wait().unwrap().code(), said)
    }
}

#[test]
fn there_is_one_holder_and_it_serves_its_user_alone() {
    let (bench, holder) = held();
    let (code, _, said) = bench.run("serve --background");
    assert_eq!(code, 1);
    assert!(
        said.contains("the pools are held already: in use by"),
        "{said}"
    );
    let socket = bench.state().join("holder.sock");
    assert_eq!(
        std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    // Rubbish, and nothing at all.
    for bytes in [&b""[..], b"GET / HTTP/1.0\r\n\r\n"] {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(bytes).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // What was not read makes the end a reset.
        let _ = client.read_to_end(&mut answer);
        assert_eq!(answer, b"ra client gives four descriptors");
    }
    // Another user: neither by the socket's mode, nor when that is opened to all.
    if rustix::process::geteuid().is_root() {
        let open = |path: &std::path::Path| {
            let all = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(path, all).unwrap();
        };
        open(bench.state());
        let other = || {
            let mut other = bench.command("zpool list");
            other.uid(65534).gid(65534);
            bench.finish(&mut other)
        };
        let (code, out, said) = other();
        assert!(
            code == 1 && out.is_empty() && said.contains("Permission denied"),
            "{said}"
        );
        open(&socket);
        let (code, out, said) = other();
        assert!(
            code == 1 && out.is_empty() && said.contains("the pools are held by user 0"),
            "{said}"
        );
    }
    drop(holder);
    // A link in the place of the socket is not followed.
    let elsewhere = bench.path("elsewhere.sock");
    std::fs::rename(&socket, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &socket).unwrap();
    let (code, _, said) = bench.run("zpool list");
    assert_eq!(code, 1);
    assert!(
        said.contains("a symbolic link, which is not followed"),
        "{said}"
    );
}

#[test]
fn a_command_that_began_before_the_holder_does_not_wait_for_it() {
    let bench = Bench::new(&["a"]);
    bench.ok("zpool create tank {a}");
    let locked = |name: &str| {
        let patience = machine::Patience {
            wait_ns: 0,
            on_wait: &|_| {},
        };
        let path = bench.state().join(name);
        machine::FileLock::take(&path, machine::LockMode::Exclusive, "", &patience).unwrap()
    };
    let _locks = [locked("holder.lock"), locked("locks/tank.lock")];
    bench.fails(
        "zpool export tank",
        1,
        "cannot open 'tank': pool is held by 'ashift serve', which began meanwhile: run the command again",
    );
}

#[test]
fn a_holder_in_the_background_keeps_the_pools_it_is_told() {
    let bench = Bench::new(&["a", "b"]);
    bench.ok("zpool create one {a}");
    bench.ok("zpool create two {b}");
    bench.ok("serve --background one");
    assert!(is_open(&bench, "one") && !is_open(&bench, "two"));
    bench.ok("zfs list two");
    assert!(is_open(&bench, "two"), "used once, and held from then on");
    bench.ok("serve --stop");
    assert!(!is_open(&bench, "one") && !is_open(&bench, "two"));
    // Without names a pool whose devices are gone keeps none of the others from being held.
    std::fs::rename(bench.path("b"), bench.path("away")).unwrap();
    let (code, _, said) = bench.run("serve --background");
    assert!(
        code == 0 && said.starts_with("ashift serve: cannot open 'two'"),
        "{said}"
    );
    assert!(is_open(&bench, "one"));
    let (code, list, _) = bench.run("zpool list -H -o name,health");
    assert_eq!((code, list.as_str()), (0, "one\tONLINE\ntwo\tUNAVAIL\n"));
    bench.ok("serve --stop");
    let (code, _, said) = bench.run("serve --background three");
    assert_eq!(
        (code, said.as_str()),
        (1, "ashift serve: cannot open 'three': no such pool\n")
    );
}
