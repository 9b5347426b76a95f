//! `ashift gnop` and `ashift geli`, on image files and in machines.

use std::process::{Command, Output, Stdio};

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            folder: tempfile::tempdir().unwrap(),
        };
        let image = std::fs::File::create(bench.path("disk.img")).unwrap();
        image.set_len(16 << 20).unwrap();
        std::fs::write(bench.path("pass"), "right\n").unwrap();
        std::fs::write(bench.path("wrong"), "wrong\n").unwrap();
        std::fs::write(bench.path("key"), [7; 100]).unwrap();
        bench
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        Command::new(env!("CARGO_BIN_EXE_ashift"))
            .args(words)
            .current_dir(self.folder.path())
            .env("ASHIFT_STATE", self.path("state"))
            .env_remove("ASHIFT_MACHINE")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The stderr of a command that must fail, without the folder.
    fn fails(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        complaint.replace(&format!("{}/", self.folder.path().display()), "")
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }
}

#[test]
fn a_nop_on_a_file_is_there_for_the_next_command() {
    let bench = Bench::new();
    bench.ok("gnop create -S 4k disk.img");
    bench.ok("dd if=/dev/zero of=disk.img.nop bs=4096 count=3");
    assert!(
        bench
            .fails("dd if=disk.img.nop of=/dev/null bs=512 count=1")
            .contains("Invalid argument")
    );
    let listed = bench.json("gnop list -j");
    assert_eq!(listed[0]["Writes"], 3);
    assert_eq!(listed[0]["Reads"], 0, "looking at it is no read");
    assert_eq!(listed[0]["Providers"][0]["Sectorsize"], 4096);
    assert_eq!(listed[0]["Consumers"][0]["Sectorsize"], 512);
    bench.ok("gnop reset disk.img.nop");
    assert_eq!(bench.json("gnop list -j")[0]["WroteBytes"], 0);
    bench.ok("gnop configure -c 2 -e 28 disk.img.nop");
    bench.fails("dd if=/dev/zero of=disk.img.nop bs=4096 count=3");
    let listed = bench.json("gnop list -j");
    assert_eq!(listed[0]["CountUntilFail"], 0);
    assert_eq!(listed[0]["WriteFailProb"], 100);
    bench.ok("gnop create disk.img.nop");
    assert!(
        bench
            .fails("gnop destroy disk.img.nop")
            .starts_with("gnop: Cannot destroy device disk.img.nop (error=16)")
    );
    bench.ok("gnop destroy -f disk.img.nop");
    assert_eq!(bench.ok("gnop status"), "");
}

#[test]
fn gnop_refuses_in_its_own_words() {
    let bench = Bench::new();
    for (line, says) in [
        (
            "gnop create -S 1000 disk.img",
            "gnop: Invalid secsize for provider disk.img.\n",
        ),
        (
            "gnop create -o 17m disk.img",
            "gnop: Invalid offset for provider disk.img.\n",
        ),
        (
            "gnop create -r 101 disk.img",
            "gnop: Invalid 'rfailprob' argument\n",
        ),
        (
            "gnop create nowhere",
            "gnop: Provider nowhere is invalid.\n",
        ),
        ("gnop destroy nowhere", "gnop: Device nowhere is invalid.\n"),
        (
            "gnop list nowhere",
            "gnop: Class 'NOP' does not have an instance named 'nowhere'.\n",
        ),
    ] {
        assert_eq!(bench.fails(line), says);
    }
    assert!(bench.ok("gnop create -h").contains("geom.toml"));
    assert!(bench.fails("gnop create -S").contains("usage: gnop create"));
}

#[test]
fn an_encrypted_file_opens_with_the_right_key_only() {
    let bench = Bench::new();
    bench.ok("geli init -s 4096 -i 100 -J pass -B backup disk.img");
    assert_eq!(
        bench.fails("geli attach -j wrong disk.img"),
        "geli: Wrong key for disk.img.\n\
         geli: There was an error with at least one provider.\n"
    );
    bench.ok("geli attach -j pass disk.img");
    std::fs::write(bench.path("data"), vec![0x5a; 1 << 20]).unwrap();
    bench.ok("dd if=data of=disk.img.eli bs=64k");
    assert_eq!(
        bench.ok("geli status -s").split_whitespace().nth(1),
        Some("ACTIVE")
    );
    assert!(
        bench
            .fails("geli init -J pass disk.img")
            .contains("attached")
    );
    bench.ok("geli setkey -n 1 -P -K key disk.img");
    bench.ok("geli detach disk.img");
    let raw = std::fs::read(bench.path("disk.img")).unwrap();
    assert!(!raw.windows(16).any(|window| window == [0x5a; 16]));
    bench.ok("geli attach -p -k key disk.img");
    bench.ok("dd if=disk.img.eli of=back bs=64k count=16");
    assert!(std::fs::read(bench.path("back")).unwrap() == vec![0x5a; 1 << 20]);
    let listed = bench.json("geli list -j");
    assert_eq!(listed[0]["UsedKey"], 1);
    assert_eq!(listed[0]["Providers"][0]["Sectorsize"], 4096);
    bench.ok("geli kill disk.img");
    assert!(
        bench
            .fails("geli attach -j pass disk.img")
            .starts_with("geli: Cannot read metadata from disk.img: Invalid argument.\n")
    );
    bench.ok("geli restore backup disk.img");
    bench.ok("geli attach -C -j pass disk.img");
    let dump = bench.ok("geli dump disk.img");
    assert_eq!(
        dump.replace("disk.img", "backup"),
        bench.ok("geli dump backup")
    );
    bench.ok("geli clear disk.img");
    bench.fails("geli dump disk.img");
}

#[test]
fn geli_refuses_in_its_own_words() {
    let bench = Bench::new();
    for (line, says) in [
        ("geli init -s 1000 -J pass disk.img", "Invalid sector size."),
        ("geli init -l 192 -J pass disk.img", "Invalid key length."),
        (
            "geli init -e camellia disk.img",
            "The CAMELLIA-CBC encryption algorithm is not supported.",
        ),
        ("geli init -P disk.img", "No key components given."),
        (
            "geli init -P -i 5 -K key disk.img",
            "Options -i and -P are mutually exclusive.",
        ),
        (
            "geli init -P -J pass disk.img",
            "Options -J and -P are mutually exclusive.",
        ),
        (
            "geli init -V 8 disk.img",
            "Invalid version specified should be between 0 and 7.",
        ),
        ("geli detach disk.img", "No such device: disk.img."),
        (
            "geli configure -bB disk.img",
            "Options -b and -B are mutually exclusive.",
        ),
        (
            "geli setkey disk.img",
            "Cannot read metadata from disk.img: Invalid argument.",
        ),
        ("geli attach -n 2 disk.img", "Invalid 'keyno' argument."),
    ] {
        let said = bench.fails(line);
        assert!(
            said.starts_with(&format!("geli: {says}\n")),
            "{line}: {said}"
        );
    }
    bench.ok("geli init -P -K key -B none disk.img");
    assert!(
        bench
            .fails("geli attach -k key disk.img")
            .contains("Missing -p flag.")
    );
}

#[test]
fn in_a_machine_layers_outlive_commands_and_some_a_power_cut() {
    let bench = Bench::new();
    bench.ok("machine create m ada0=wd20ears,size=32M ada1=wd20ears,size=32M");
    bench.ok("-m m gnop create -S 4096 ada0");
    bench.ok("-m m gnop create --transient -o 4096 ada1");
    bench.ok("-m m geli init -P -K key ada0.nop");
    bench.ok("-m m geli attach -p -k key ada0.nop");
    bench.ok("-m m dd if=/dev/zero of=ada0.nop.eli bs=64k count=4");
    assert!(
        bench
            .fails("-m m gnop destroy ada0.nop")
            .contains("ada0.nop.eli")
    );
    let text = std::fs::read_to_string(bench.path("m/machine.toml")).unwrap();
    assert!(
        text.contains("ada0.nop") && !text.contains("mkey"),
        "{text}"
    );
    bench.ok("machine power-cut m");
    let left = bench.json("-m m gnop status -j");
    assert_eq!(left.as_array().unwrap().len(), 1);
    assert_eq!(left[0]["Name"], "ada0.nop");
    assert_eq!(bench.ok("-m m geli status"), "");
    bench.ok("-m m geli attach -p -k key ada0.nop");
}
