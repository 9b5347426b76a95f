//! Machines that stay switched on.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use oracle::{Zdb, have_zdb};

use super::{Bench, text};

/// The process that keeps the machine of a bench up; killed when it is dropped.
pub(super) struct Up(Child);

impl Up {
    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

pub(super) fn up(bench: &Bench) -> Up {
    let child = bench.command("machine up").stderr(Stdio::null()).spawn();
    let up = Up(child.unwrap());
    let socket = bench.path("m/state/holder.sock");
    wait_until("the machine is up", || UnixStream::connect(&socket).is_ok());
    up
}

/// The machine's clock, in ns.
#[track_caller]
pub(super) fn clock_ns(bench: &Bench) -> u64 {
    let status = bench.ok("machine status -j");
    let (_, clock) = status.split_once("\"clock_ns\": ").unwrap();
    let digits = clock.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

/// How long a command takes, in ns of the machine.
#[track_caller]
fn took_ns(bench: &Bench, line: &str) -> u64 {
    let began_ns = clock_ns(bench);
    bench.ok(line);
    clock_ns(bench) - began_ns
}

fn piped(bench: &Bench, line: &str) -> Child {
    let mut command = bench.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// A machine with a pool of one drive, in which there is a file of some megabytes.
pub(super) fn with_pool() -> Bench {
    let bench = Bench::new(1);
    bench.ok("zpool create -O compression=off tank gpt/d0");
    let bytes: Vec<u8> = (0..8 << 20)
        .map(|n: u32| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect();
    fs::write(bench.path("data"), bytes).unwrap();
    bench.ok("cp data /tank/");
    bench
}

pub(super) fn assert_clean(bench: &Bench) {
    bench.ok("zpool scrub tank");
    bench.ok("zpool export tank");
    if have_zdb() {
        Zdb::verify(&bench.copy_out("d0"), "tank").assert_clean();
    }
}

#[test]
fn a_machine_that_is_up_keeps_its_caches_warm_and_its_clock() {
    let bench = with_pool();
    assert!(bench.ok("machine status").starts_with("down, clock at "));
    assert!(
        bench
            .fails("zfs mount tank")
            .contains("'ashift ls tank:/path'")
    );
    let holder = up(&bench);
    assert!(bench.ok("machine status").starts_with("up (process "));
    assert!(
        bench
            .fails("zfs mount tank")
            .contains("'ashift ls tank:/path'")
    );
    assert_eq!(
        bench.fails("machine up"),
        format!(
            "ashift machine: machine '{}' is up already",
            bench.path("m").display()
        )
    );
    let read = "dd if=/tank/data of=/dev/null bs=1m status=none";
    let (cold_ns, warm_ns) = (took_ns(&bench, read), took_ns(&bench, read));
    assert!(
        cold_ns > 50_000_000 && warm_ns < cold_ns / 10,
        "{cold_ns} {warm_ns}"
    );
    // Nobody's real time counts.
    let before_ns = clock_ns(&bench);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(clock_ns(&bench), before_ns);
    bench.ok("machine reboot");
    let again_ns = took_ns(&bench, read);
    assert!(again_ns > warm_ns + cold_ns / 2, "{again_ns}");
    // A scrub goes on while time passes, and only then.
    bench.ok("zpool scrub tank");
    let status = bench.ok("zpool status");
    assert!(status.contains("scrub in progress"), "{status}");
    let slept_ns = took_ns(&bench, "sleep 1m");
    assert_eq!(slept_ns, 60_000_000_000);
    let status = bench.ok("zpool status");
    assert!(status.contains("scrub repaired 0B"), "{status}");
    bench.ok("machine down");
    let mut holder = holder;
    assert_eq!(holder.0.wait().unwrap().code(), Some(0));
    assert!(clock_ns(&bench) >= before_ns + again_ns + slept_ns);
    assert!(bench.fails("machine down").ends_with("is not up"));
    assert!(bench.fails("machine reboot").ends_with("is not up"));
    assert_clean(&bench);
}

#[test]
fn commands_of_a_machine_run_side_by_side_and_end_with_their_clients() {
    let bench = with_pool();
    let mut holder = up(&bench);
    // One that waits for its client, who has not said all yet.
    let mut writer = piped(&bench, "cp - tank:/slow");
    let mut input = writer.stdin.take().unwrap();
    input.write_all(&[7; 100_000]).unwrap();
    let mut killed = piped(&bench, "cp - tank:/killed");
    // Its input does not end with it.
    let _open = killed.stdin.take();
    wait_until("both files are there", || {
        bench.ok("ls tank:/").lines().count() == 3
    });
    let before_ns = clock_ns(&bench);
    bench.ok("zfs snapshot tank@now");
    let (first, second) = (
        piped(&bench, "sleep 20"),
        piped(&bench, "cp data tank:/more"),
    );
    for command in [first, second] {
        assert!(command.wait_with_output().unwrap().status.success());
    }
    let took_ns = clock_ns(&bench) - before_ns;
    assert!(
        (20_000_000_000..60_000_000_000).contains(&took_ns),
        "{took_ns}"
    );
    killed.kill().unwrap();
    killed.wait().unwrap();
    // A pipe that is closed ends its command.
    let mut rounds = piped(&bench, "zpool iostat -H tank 1");
    let mut line = String::new();
    let mut reader = BufReader::new(rounds.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(reader);
    assert_eq!(rounds.wait().unwrap().code(), Some(141));
    input.write_all(&[7; 100]).unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success());
    assert_eq!(bench.ok("cat tank:/slow").len(), 100_100);
    // The pool is busy until the command of the client that was killed has ended, which that finds out in real time.
    wait_until("the command has ended", || {
        bench.run("zpool export tank").status.success()
    });
    bench.ok("zpool import tank");
    // What is done to a machine by hand is done to the one that is up.
    bench.ok("machine add ada1=wd20ears,size=100MB");
    assert!(bench.ok("machine show").contains("ada1  "));
    assert!(bench.fails("machine destroy m").contains("is up: "));
    let signal = rustix::process::Signal::TERM;
    rustix::process::kill_process(rustix::process::Pid::from_child(&holder.0), signal).unwrap();
    assert_eq!(holder.0.wait().unwrap().code(), Some(0));
    assert_clean(&bench);
}

#[test]
fn what_a_reboot_forgets_is_made_again_by_the_boot_script() {
    let bench = with_pool();
    let _holder = up(&bench);
    bench.ok("gnop create --transient -S 4096 ada0");
    assert!(bench.ok("gnop list").contains("ada0.nop"));
    bench.ok("machine reboot");
    assert_eq!(bench.ok("gnop list"), "");
    let script = "gnop create --transient -S 4096 ada0 && echo made $? >> boots\n";
    let script = script.replace("boots", &bench.path("boots").display().to_string());
    fs::write(bench.path("m/boot.sh"), script).unwrap();
    bench.ok("machine reboot");
    assert!(bench.ok("gnop list").contains("ada0.nop"));
    // After a power cut what was synced is there; the machine boots again.
    bench.ok("cp data /tank/synced");
    bench.ok("zpool sync");
    bench.ok("cp data /tank/lost");
    bench.ok("machine reboot --power-cut --seed 3");
    assert_eq!(
        fs::read_to_string(bench.path("boots")).unwrap(),
        "made 0\nmade 0\n"
    );
    let files = bench.ok("ls /tank");
    assert!(files.contains("synced"), "{files}");
    let status = bench.ok("zpool status");
    assert!(status.contains("errors: No known data errors"), "{status}");
    bench.ok("machine down");
    assert_eq!(bench.ok("gnop list"), "", "it was switched off");
    assert_clean(&bench);
}

#[test]
fn a_machine_whose_process_is_killed_has_lost_its_power() {
    let bench = with_pool();
    let mut holder = up(&bench);
    bench.ok("cp data /tank/synced");
    bench.ok("zpool sync");
    bench.ok("sleep 100");
    let before_ns = clock_ns(&bench);
    bench.ok("cp data /tank/perhaps");
    let mut writing = piped(&bench, "cp - tank:/never");
    writing
        .stdin
        .as_mut()
        .unwrap()
        .write_all(&[1; 70_000])
        .unwrap();
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    drop(writing.stdin.take());
    let mut said = String::new();
    writing
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(
        (writing.wait().unwrap().code(), said.as_str()),
        (Some(1), "")
    );
    // The socket and the lock that it left are in nobody's way.
    assert!(clock_ns(&bench) + 2_000_000_000 > before_ns);
    assert_eq!(
        bench.ok("cat tank:/synced").len(),
        bench.ok("cat tank:/data").len()
    );
    drop(up(&bench));
    assert_clean(&bench);
}

#[test]
fn another_user_cannot_speak_to_a_machine() {
    let bench = Bench::new(1);
    let _holder = up(&bench);
    let socket = bench.path("m/state/holder.sock");
    assert_eq!(
        fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
        0o600
    );
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    for name in [".", "m", "m/state"] {
        open(&bench.path(name));
    }
    let other = || {
        let mut other = bench.command("zpool list");
        let output = other.uid(65534).gid(65534).output().unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, out, said) = other();
    assert!(
        code == Some(1) && out.is_empty() && said.contains("Permission denied"),
        "{said}"
    );
    open(&socket);
    let (code, out, said) = other();
    assert!(
        code == Some(1) && out.is_empty() && said.contains("is held by user 0"),
        "{said}"
    );
}

#[test]
fn the_memory_of_a_machine_is_a_figure_of_it_and_a_reboot_empties_it() {
    let bench = Bench::new(1);
    let shown = bench.ok("machine show");
    assert!(!shown.contains("memory"), "{shown}");
    let toml = bench.path("m/machine.toml");
    let described = fs::read_to_string(&toml).unwrap();
    fs::write(&toml, format!("memory = \"2G\"\n{described}")).unwrap();
    let shown = bench.ok("machine show");
    let memory =
        "memory 2G: 1.25G of cache for each pool, 205M of dirty data, a txg at least every 5 s\n";
    assert!(shown.contains(memory), "{shown}");
    bench.ok("machine add ada1=wd30ezrx,size=1GB");
    bench.ok("zpool create -O compression=off tank ada1");
    let _up = up(&bench);
    // More than the cache of a pool without such a figure holds.
    bench.ok("dd if=/dev/random of=/tank/big bs=1m count=300");
    bench.ok("machine reboot");
    let read = "dd if=/tank/big of=/dev/null bs=1m";
    let cold_ns = took_ns(&bench, read);
    let warm_ns = took_ns(&bench, read);
    assert!(
        warm_ns < cold_ns / 20,
        "warm {warm_ns} ns, cold {cold_ns} ns"
    );
    bench.ok("machine reboot");
    let again_ns = took_ns(&bench, read);
    assert!(again_ns > cold_ns / 2, "{again_ns} ns after a reboot");
    let said = text(&bench.run("bonnie++ -d /tank -s 1g -n 0").stderr);
    let small = "File size should be double RAM for good results, RAM is 2048M.";
    assert!(said.contains(small), "{said}");
    bench.ok("machine down");
}

#[test]
fn what_no_memory_can_be_is_refused() {
    let bench = Bench::new(1);
    bench.ok("machine create other --memory 64GiB --host freebsd-13 ada0=wd30ezrx");
    let shown = bench.ok("machine show other");
    let memory = "memory 64G: 63G of cache for each pool, 1G of dirty data (its ZFS: 4G), a txg";
    assert!(shown.contains(memory), "{shown}");
    for (size, complaint) in [
        (
            "100M",
            "a memory of 104857600 bytes cannot be: 256 MiB is the least",
        ),
        ("much", "'much' is not a size"),
    ] {
        let said = bench.fails(&format!("machine create bad --memory {size} ada0=wd30ezrx"));
        assert!(said.contains(complaint), "{said}");
        assert!(!bench.path("bad").exists());
    }
}
