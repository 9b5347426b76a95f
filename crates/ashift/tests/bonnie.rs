//! `ashift bonnie++` beside the real one: the same calls in the same order, and reports of the same layout.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regex::Regex;

/// A folder in memory, where syncing takes no time.
fn folder() -> tempfile::TempDir {
    match Path::new("/dev/shm").is_dir() {
        true => tempfile::tempdir_in("/dev/shm").unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

fn have(tools: &[&str]) -> bool {
    tools.iter().all(|tool| oracle::have_tool(tool))
}

fn ashift(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashift"));
    command
        .env("ASHIFT_STATE", folder.join("state"))
        .env_remove("ASHIFT_MACHINE")
        .stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a program prints, when it succeeds.
fn succeeds(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// A program of this name: the real one, or ours.
fn program(name: &str, is_real: bool, folder: &Path) -> Command {
    if is_real {
        return Command::new(oracle::find_tool(name).unwrap());
    }
    let mut command = ashift(folder);
    command.arg(name);
    command
}

/// What a program printed, and the calls that it made on the files of its folder.
struct Traced {
    output: Output,
    /// Of its first thread, in order.
    first: Vec<String>,
    /// Of all others, sorted.
    others: Vec<String>,
}

fn trace(is_real: bool, options: &str) -> Traced {
    let folder = folder();
    let (trace, at) = (folder.path().join("trace"), folder.path().join("at"));
    std::fs::create_dir(&at).unwrap();
    std::fs::set_permissions(&at, Permissions::from_mode(0o777)).unwrap();
    let program = program("bonnie++", is_real, folder.path());
    let mut command = Command::new(oracle::find_tool("strace").unwrap());
    command
        .args(["-f", "-qq", "-e", "signal=none", "-o"])
        .arg(&trace)
        .arg(program.get_program())
        .args(program.get_args())
        .arg("-d")
        .arg(&at)
        .args(options.split_whitespace())
        .env("ASHIFT_STATE", folder.path().join("state"));
    let output = succeeds(command);
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0);
    let (first, others) = calls(&text(&std::fs::read(&trace).unwrap()), &at);
    Traced {
        output,
        first,
        others,
    }
}

/// The calls on files in the current folder, from where the program has gone to it.
fn calls(trace: &str, at: &Path) -> (Vec<String>, Vec<String>) {
    let line_of = Regex::new(r"^(\d+)\s+(.*)$").unwrap();
    let begun = format!("chdir(\"{}\")", at.display());
    let (mut unfinished, mut is_there) = (HashMap::new(), false);
    let (mut calls, mut first, mut others) = (Calls::default(), Vec::new(), Vec::new());
    let mut first_thread = None;
    for line in trace.lines() {
        let Some(parts) = line_of.captures(line) else {
            continue;
        };
        let (thread, mut rest) = (parts[1].to_owned(), parts[2].to_owned());
        if let Some(start) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, start.to_owned());
            continue;
        }
        if let Some((_, end)) = rest.split_once(" resumed>") {
            rest = unfinished.remove(&thread).unwrap_or_default() + end;
        }
        if rest.starts_with(&begun) {
            (is_there, first_thread) = (true, Some(thread));
            calls.open.clear();
            continue;
        }
        if let Some(call) = calls.read(&rest).filter(|_| is_there) {
            match first_thread.as_ref() == Some(&thread) {
                true => first.push(call),
                false => others.push(call),
            }
        }
    }
    others.sort();
    (first, others)
}

/// Reads lines of strace.
struct Calls {
    call: Regex,
    path: Regex,
    number: Regex,
    /// The paths of open files.
    open: HashMap<String, String>,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls {
            call: Regex::new(r"^(\w+)\((.*)\)\s+= (-?\w+)").unwrap(),
            path: Regex::new("\"([^\"]*)\"").unwrap(),
            number: Regex::new(r"Bonnie\.\d+").unwrap(),
            open: HashMap::new(),
        }
    }
}

impl Calls {
    /// The call, without what the C library and ours do differently to the same effect.
    fn read(&mut self, line: &str) -> Option<String> {
        let parts = self.call.captures(line)?;
        let (name, args, value) = (&parts[1], &parts[2], &parts[3]);
        let paths = self.path.captures_iter(args).map(|path| path[1].to_owned());
        let paths: Vec<String> = paths.collect();
        let paths = self
            .number
            .replace_all(&paths.join(" "), "Bonnie")
            .into_owned();
        let last = args.rsplit(", ").next().unwrap_or_default();
        let name = name.strip_suffix("at").unwrap_or(name);
        let is_outside = paths.starts_with('/');
        match name {
            "open" if !is_outside && value != "-1" => {
                self.open.insert(value.to_owned(), paths.clone());
                let flags = args.split(", ").find(|arg| arg.starts_with("O_"))?;
                let told = |flag: &&str| !matches!(*flag, "O_CLOEXEC" | "O_LARGEFILE");
                let flags: Vec<&str> = flags.split('|').filter(told).collect();
                Some(format!("open {paths} {}", flags.join("|")))
            }
            "open" => {
                self.open.remove(value);
                None
            }
            "read" | "write" | "fsync" | "lseek" | "getdents64" => {
                let fd = args.split(", ").next().unwrap_or_default();
                let path = self.open.get(fd)?;
                Some(match name {
                    "fsync" => format!("fsync {path}"),
                    "lseek" => {
                        let (_, place) = args.split_once(", ")?;
                        format!("lseek {path} {place}")
                    }
                    // Names in a directory have the order that the file system gives them.
                    "getdents64" => format!("getdents64 {last}"),
                    _ => format!("{name} {path} {last} {value}"),
                })
            }
            "close" => {
                let path = self.open.remove(args)?;
                Some(format!("close {path}"))
            }
            "newfstat" | "stat" | "unlink" | "mkdir" | "rmdir" | "chdir" | "link" | "symlink"
                if !is_outside && !paths.is_empty() =>
            {
                let is_directory = name == "rmdir" || args.contains("AT_REMOVEDIR");
                let name = if is_directory { "rmdir" } else { name };
                let mode = if name == "mkdir" { last } else { "" };
                Some(format!("{name} {paths} {mode} {value}"))
            }
            "sync" => Some("sync".to_owned()),
            _ => None,
        }
    }
}

/// The text with numbers made alike, and the spaces before them.
fn without_numbers(text: &str) -> String {
    let number = Regex::new(r" *([0-9.]+([kmg]|us|ms|s)?|\+\+\+\+\+|\+\+\+)( |,|\n)").unwrap();
    // Twice, as a number ends where the next begins.
    let once = number.replace_all(text, " N$3").into_owned();
    number.replace_all(&once, " N$3").into_owned()
}

/// Runs both with the same options.
fn both(options: &'static str) -> [Traced; 2] {
    let ours = std::thread::spawn(move || trace(false, options));
    let real = trace(true, options);
    [real, ours.join().unwrap()]
}

fn check_calls(options: &'static str) {
    let [real, ours] = both(options);
    assert!(real.first.len() > 3000, "{}", real.first.len());
    for (real, ours) in real.first.iter().zip(&ours.first) {
        assert_eq!(ours, real, "{options}");
    }
    assert_eq!(ours.first.len(), real.first.len(), "{options}");
    assert_eq!(ours.others, real.others, "{options}");
    let said = |traced: &Traced| text(&traced.output.stderr);
    assert_eq!(said(&ours), said(&real), "{options}");
    let printed = |traced: &Traced| without_numbers(&text(&traced.output.stdout));
    assert_eq!(printed(&ours), printed(&real), "{options}");
}

#[test]
fn the_calls_are_those_of_the_original() {
    if !have(&["bonnie++", "strace"]) {
        return;
    }
    check_calls("-s 1:64k:70 -r 0 -n 1:3000:100:3 -f -u root -m box -z 5");
    check_calls("-s 0 -n 1 -b -u root -m box -z 4000000000");
    check_calls("-s 0 -n 1:-1:0:2 -u root -m a-name-that-is-too-long -z 1");
    check_calls("-s 0 -n 1:-2 -b -u 65534 -m box -z 7");
}

#[test]
fn what_is_said_and_printed_is_what_the_original_prints() {
    if !have(&["bonnie++"]) {
        return;
    }
    let variants = [
        "-s 0 -n 1 -x 2 -u root",
        "-s 0 -n 1:9k:1k:2 -y p -u nobody:bin",
        "-s 0 -n 1:5k:0:7 -c 3 -q -g 7",
        "-s 1:1k:10:11 -r 0 -f -c 4 -n 0 -u root",
    ];
    let run = |is_real, options: &'static str| {
        std::thread::spawn(move || {
            let folder = folder();
            let all = Permissions::from_mode(0o777);
            std::fs::set_permissions(folder.path(), all).unwrap();
            let mut command = program("bonnie++", is_real, folder.path());
            command.args("-m box -z 3 -d".split(' ')).arg(folder.path());
            command.args(options.split(' ')).stdin(Stdio::null());
            let output = succeeds(command);
            let said = if options.contains("-q") {
                ""
            } else {
                &text(&output.stderr)
            };
            (without_numbers(&text(&output.stdout)), said.to_owned())
        })
    };
    let runs = variants.map(|options| (options, run(true, options), run(false, options)));
    for (options, real, ours) in runs {
        assert_eq!(ours.join().unwrap(), real.join().unwrap(), "{options}");
    }
}

/// The real one and ours make, find and remove the semaphores of each other, and wait for each other before each test.
#[test]
fn runs_begin_each_test_together() {
    if !have(&["bonnie++"]) {
        return;
    }
    let folder = folder();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let answer = |is_real, options: &str| {
        let mut command = program("bonnie++", is_real, folder.path());
        command.args(["-u", "root", "-r", "0"]);
        command.args(options.split(' ')).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.success(), text(&output.stdout))
    };
    for is_real in [false, true] {
        let run = |is_real, files: &str| {
            let mut command = program("bonnie++", is_real, folder.path());
            command.args("-y s -q -m box -u root -s 0 -x 1 -d".split(' '));
            command.arg(folder.path()).args(["-n", files]);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let made = (true, "Creating semaphore for 2 procs.\n".to_owned());
        assert_eq!(answer(is_real, "-p 2"), made);
        let mut first = run(!is_real, "1:100:100:1");
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(
            first.try_wait().unwrap().is_none(),
            "it waits for the other"
        );
        let second = run(is_real, "1:100:100:1").wait_with_output().unwrap();
        let first = first.wait_with_output().unwrap();
        for output in [first, second] {
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert!(
                text(&output.stdout).contains(",box,1,"),
                "{}",
                text(&output.stdout)
            );
        }
        // All have gone by: a third run is one too many.
        let third = run(is_real, "1").wait_with_output().unwrap();
        assert!(!third.status.success());
        assert_eq!(
            answer(!is_real, "-p -1"),
            (true, "Semaphore removed.\n".to_owned())
        );
        assert!(!answer(is_real, "-p -1").0, "there are none any more");
        assert!(
            !run(is_real, "1")
                .wait_with_output()
                .unwrap()
                .status
                .success()
        );
        assert!(!answer(is_real, "-p 2 -y s").0);
    }
}

/// Lines of a real run, of ours, and such as neither prints.
fn lines() -> String {
    let run = |is_real| {
        let folder = folder();
        let mut command = program("bonnie++", is_real, folder.path());
        command
            .args("-s 1 -f1 -r 0 -n 1:100:0:3 -u root -q -m box -z 3 -d".split(' '))
            .arg(folder.path());
        text(&succeeds(command).stdout)
    };
    let ours = std::thread::spawn(move || run(false));
    let (real, ours) = (run(true), ours.join().unwrap());
    assert_eq!(without_numbers(&ours), without_numbers(&real));
    real + &ours
        + "format_version,bonnie_version,name\n\
           1.98,2.00a,one,1,5,16G,,8192,5,378,99,86104,25,34410,11,741,99,104384,13,169.2,6,64,102400,128,,8,\
           4096,10,10000,20,+++++,+++,5000,30,,,77,1,23421us,1246ms,1414ms,12410us,1225ms,1005ms,1us,2us,3ms,4s,,6us\n\
           1.98,2.00a,a very long name indeed,4,5,1000M,64k,100,7,379,98,1086104,25,20344100,11,742,99,94384,13,1169,6,\
           16,,,,,4097,10,9000,20,+++++,+++,5001,30,,,78,1,23422us,1346ms,1314ms,12411us,1226ms,1006ms,2us,2us,4ms,5s,,7us\r\n\
           1.98,2.00a,files,1,9,,,,,,,,,,,,,,,,,16,link,,,,1,2,3,4,5,6,7,8,9,10,11,12,,,,,,,1us,2us,3us,4us,5us,6us\n\
           1.98,2.00a,file,1,9,4G,,8192,5,,,1,2,3,4,,,5,6,7,8,,,,,,,,,,,,,,,,,,,1us,2us,,3us,4us,,,,,,\n\
           1.96,1.96,old,1,9,4G,,,,1,2\n"
}

#[test]
fn the_tables_of_lines_are_those_of_the_original() {
    if !have(&["bonnie++", "bon_csv2txt", "bon_csv2html"]) {
        return;
    }
    let (folder, lines) = (folder(), lines());
    for name in ["bon_csv2txt", "bon_csv2html"] {
        let run = |is_real| {
            let mut command = program(name, is_real, folder.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(lines.as_bytes()).unwrap();
            drop(input);
            let output = child.wait_with_output().unwrap();
            (text(&output.stdout), text(&output.stderr))
        };
        let (ours, real) = (run(false), run(true));
        for (ours, real) in ours.0.lines().zip(real.0.lines()) {
            assert_eq!(ours, real, "{name}");
        }
        assert_eq!(ours, real, "{name}");
    }
}

/// A machine with a pool of one drive, which is mounted at `/test`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        let create = "machine create m --host freebsd-9 ada0=wd20ears,size=4G";
        assert!(machine.run(create).status.success());
        let pool = "-m m zpool create -m /test test ada0";
        assert!(machine.run(pool).status.success());
        machine
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn run(&self, line: &str) -> Output {
        let mut command = ashift(&self.path());
        command
            .args(line.split_whitespace())
            .current_dir(self.path());
        command.output().unwrap()
    }
}

#[test]
fn in_a_machine_the_same_seed_gives_the_same_report() {
    let run = || {
        let machine = Machine::new();
        let line = "-m m bonnie++ -d /test -s 8 -n 1:2000:100:3 -f -z 1 -b --era 1.96";
        let output = machine.run(line);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let left = machine.run("-m m ls /test");
        assert_eq!(text(&left.stdout), "");
        text(&output.stdout)
    };
    let report = run();
    assert!(report.contains("Concurrency   1     -Per Chr-"), "{report}");
    let line = report.lines().last().unwrap();
    assert_eq!(line.split(',').count(), 48, "{line}");
    // A file and its directory are synced before the next one: half a turn of the drive at least.
    let rate: f64 = line.split(',').nth(24).unwrap().parse().unwrap();
    assert!((1.0..400.0).contains(&rate), "{line}");
    assert_eq!(run(), report);
}

/// Two runs in one simulation: what each takes is what it takes beside the other.
#[test]
fn in_a_machine_runs_begin_each_test_together() {
    let machine = Machine::new();
    let run = "bonnie++ -y s -d /test -s 0 -n 1:100:100:1 -q -x 1";
    let script = format!(
        "bonnie++ -p 2\n{run} -m one -z 1 &\nsleep 100\n{run} -m two -z 2 &\nwait\nbonnie++ -p -1\n"
    );
    std::fs::write(machine.path().join("script"), script).unwrap();
    let output = machine.run("-m m sh script");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        (lines.len(), lines[0], lines[3]),
        (4, "Creating semaphore for 2 procs.", "Semaphore removed."),
        "{said}"
    );
    let names = |name: &str| {
        lines[1..3]
            .iter()
            .filter(|line| line.contains(name))
            .count()
    };
    assert_eq!((names(",one,"), names(",two,")), (1, 1), "{said}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let machine = Machine::new();
    for setting in ["quota=20M", "compression=off"] {
        let line = format!("-m m zfs set {setting} test");
        assert!(machine.run(&line).status.success());
    }
    for (line, expected) in [
        (
            "bonnie++ -d /nowhere/at/all -s 1 -r 0",
            "Can't change to directory \"/nowhere/at/all\": No such file or directory",
        ),
        (
            "-m m bonnie++ -d /elsewhere -s 1",
            "Can't change to directory \"/elsewhere\"",
        ),
        (
            "bonnie++ -s 1 -r 100 -u root",
            "File size should be double RAM",
        ),
        (
            "bonnie++ -s 1 -r 0 -u no-such-user",
            "Can't find user no-such-user",
        ),
        ("bonnie++ -s 1:1000 -r 0", "usage: "),
        ("bonnie++ -s 1q", "-s: invalid size '1q'"),
        ("bonnie++ -k", "invalid option 'k'"),
        ("bonnie++ -p 0", "'0' is not a number of runs (1 to 32767)"),
        ("bonnie++ -y q", "'q' is neither s nor p"),
        (
            "-m m bonnie++ -y s -d /test -s 0 -n 1",
            "`ashift machine up` keeps it on",
        ),
        (
            "-m m bonnie++ -d /test -s 100 -n 0 -f",
            "Can't write block ",
        ),
    ] {
        let output = machine.run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let says = |said: &str| said.lines().any(|line| line.contains(expected));
        assert!(says(&said), "{line}: {said}");
    }
    let left = machine.run("-m m ls /test");
    assert_eq!(text(&left.stdout), "");
}

#[test]
fn zcav_prints_what_the_original_prints() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, vec![7; 5 << 20]).unwrap();
    if have(&["zcav"]) {
        let variants = ["-b 1", "-b 2 -s 2", "-b 1 -r 2:4", "-b 1 -c 3", "-b 9"];
        let compared: Vec<_> = variants
            .into_iter()
            .map(|options| {
                let (file, folder) = (file.clone(), folder.path().to_owned());
                std::thread::spawn(move || {
                    let run = |is_real| {
                        let mut command = program("zcav", is_real, &folder);
                        command.args(options.split(' ')).arg(&file);
                        let output = command.output().unwrap();
                        let said = [&output.stdout, &output.stderr].map(|t| text(t));
                        let said = said.map(|t| without_numbers(&t.replace(':', " ")));
                        (output.status.code(), said)
                    };
                    assert_eq!(run(false), run(true), "{options}");
                })
            })
            .collect();
        compared.into_iter().for_each(|one| one.join().unwrap());
    }
    let machine = Machine::new();
    let read = machine.run("-m m zcav -b 512 -l log -s 2 ada0");
    assert!(read.status.success(), "{}", text(&read.stderr));
    let log = text(&std::fs::read(machine.path().join("log")).unwrap());
    let rates = log.lines().filter(|line| !line.starts_with('#'));
    let rates: Vec<f64> = rates
        .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    // Every other one of eight blocks; outside it is faster than inside.
    assert_eq!(rates.len(), 4, "{log}");
    assert!(
        rates[0] > rates[3] && (20.0..200.0).contains(&rates[0]),
        "{log}"
    );
    let refused = machine.run("-m m zcav -w ada0");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).starts_with("Can't open ada0: "));
}
