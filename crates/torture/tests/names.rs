//! File systems that ignore case or normalise names: ones of OpenZFS are read and written, and ours are taken by it.

use spa::Spa;
use torture::golden;
use torture::pool;
use zpl::mount::{Mount, mount};
use zpl::{Create, RenameKind};

const NAME: &str = "openzfs-2.3.2-names";

/// What each file system has, and another spelling of it in each that ignores case, and in each that normalises names.
const FILES: [(&str, &str, Form, &str, &str); 10] = [
    (
        "Äpfel.txt",
        "ÄPFEL.TXT",
        Form::Canonical,
        "A\u{308}pfel.txt",
        "file 1\n",
    ),
    (
        "größe ﬁ",
        "GRÖßE ﬁ",
        Form::Compatible,
        "gro\u{308}ße fi",
        "file 2\n",
    ),
    (
        "e\u{301}te\u{301}",
        "E\u{301}Te\u{301}",
        Form::Canonical,
        "été",
        "file 3\n",
    ),
    (
        "한글",
        "한글",
        Form::Canonical,
        "\u{1112}\u{1161}\u{11ab}글",
        "file 4\n",
    ),
    (
        "ὠμέγα",
        "ὨΜΈΓΑ",
        Form::Canonical,
        "ω\u{313}μέγα",
        "file 5\n",
    ),
    ("ǅ", "Ǆ", Form::Compatible, "Dž", "file 6\n"),
    ("ᾳ", "ᾼ", Form::WithCase, "α\u{345}", "file 7\n"),
    (
        "\u{c5}ngström",
        "\u{c5}NGSTRÖM",
        Form::Canonical,
        "\u{212b}ngström",
        "file 8\n",
    ),
    ("1⁄2", "1⁄2", Form::Compatible, "½", "file 9\n"),
    (
        "File.TXT",
        "fILE.txt",
        Form::Compatible,
        "Ｆile.TXT",
        "file 10\n",
    ),
];

/// The forms in which two spellings are the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// All.
    Canonical,
    /// `formKC` and `formKD`.
    Compatible,
    /// Those where case counts: in upper case the iota below a letter is one beside it, if it is a mark of its own.
    WithCase,
}

const ALL: [&str; 7] = [
    "insensitive",
    "mixed",
    "formC",
    "formD",
    "formKC",
    "formKD",
    "mac",
];

fn ignores_case(fs: &str) -> bool {
    ["insensitive", "mac"].contains(&fs)
}

fn normalises(fs: &str, form: Form) -> bool {
    match form {
        Form::Canonical => fs.starts_with("form") || fs == "mac",
        Form::Compatible => fs.starts_with("formK"),
        Form::WithCase => fs.starts_with("form"),
    }
}

fn text(fs: &Mount, name: &str) -> Option<String> {
    let id = fs.lookup(fs.root(), name.as_bytes()).ok()?.id;
    let mut bytes = [0; 64];
    let length = fs.read(id, 0, &mut bytes).unwrap();
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn check_files(spa: &Spa, name: &str, snapshot: &str) {
    let fs = mount(spa.parts().dsl(), &format!("tank/{name}{snapshot}"), true).unwrap();
    for (own, upper, form, other, says) in FILES {
        let says = Some(says.to_owned());
        assert_eq!(text(&fs, own), says, "{name} {own}");
        let is_alike = upper == own || ignores_case(name);
        assert_eq!(text(&fs, upper) == says, is_alike, "{name} {upper}");
        assert_eq!(
            text(&fs, other) == says,
            normalises(name, form),
            "{name} {other}"
        );
    }
}

/// The large directory: names of which 2,100 are in a fat ZAP.
fn check_large(spa: &Spa, name: &str) {
    let fs = mount(spa.parts().dsl(), &format!("tank/{name}"), true).unwrap();
    let folder = fs.lookup(fs.root(), b"fAT").unwrap().id;
    let file = fs
        .resolve("sub/A LONG NAME OF A FILE THAT DOES NOT FIT INTO A MICRO ZAP ÄÖÜ")
        .unwrap();
    for n in 0..2100 {
        let found = fs.lookup(folder, format!("ñAME-{n}").as_bytes()).unwrap();
        assert_eq!(found.id, file, "{n}");
    }
}

fn work(spa: &Spa) {
    let dsl = spa.parts().dsl();
    for name in ALL {
        let fs = mount(dsl, &format!("tank/{name}"), false).unwrap();
        let root = fs.root();
        let made = fs
            .create_file(root, "Über.mich".as_bytes(), &Create::default())
            .unwrap();
        fs.write(made.id, 0, name.as_bytes()).unwrap();
        let (new, old) = ("KÄSE.dat".as_bytes(), "File.TXT".as_bytes());
        fs.rename(root, old, root, new, RenameKind::Replace)
            .unwrap();
        let again = fs.create_file(root, "käse.DAT".as_bytes(), &Create::default());
        assert_eq!(again.is_err(), ignores_case(name));
        fs.unlink(root, "ǅ".as_bytes()).unwrap();
        if ignores_case(name) {
            let folder = fs.lookup(root, b"Fat").unwrap().id;
            for n in 0..1000 {
                fs.unlink(folder, format!("ÑAME-{n}").as_bytes()).unwrap();
                let id = fs.lookup(root, "ÜBER.MICH".as_bytes()).unwrap().id;
                fs.link(id, folder, format!("ñew-{n}").as_bytes()).unwrap();
            }
        }
    }
    // Snapshots of a file system that ignores case are found in any.
    assert!(dsl.dataset("tank/mac@SNAP").is_ok());
    assert!(dsl.dataset("tank/formD@SNAP").is_err());
    dsl.rename_snapshot("tank/mac", "sNAP", "After", false)
        .unwrap();
    dsl.destroy_snapshots(&["tank/insensitive@SNAP"], false)
        .unwrap();
    spa.sync().unwrap();
}

#[test]
fn names_of_openzfs_are_found_and_changed() {
    let devices = [golden::golden(NAME)];
    let spa = pool::open_writable(&devices);
    for name in ALL {
        check_files(&spa, name, "");
        check_files(&spa, name, "@Snap");
    }
    check_large(&spa, "insensitive");
    check_large(&spa, "mac");
    let fs = mount(spa.parts().dsl(), "tank/mixed", true).unwrap();
    let twins = ["twin", "TWIN"].map(|name| text(&fs, name));
    assert_eq!(twins, [Some("low".to_owned()), Some("up".to_owned())]);
    assert_eq!(text(&fs, "Twin"), None);
    drop(fs);
    pool::assert_clean(&spa);
    work(&spa);
    pool::assert_clean(&spa);
    spa.export().unwrap();
    drop(spa);
    pool::verify_with_zdb(&devices, "tank");
    let spa = pool::open_writable(&devices);
    let fs = mount(spa.parts().dsl(), "tank/mac@after", true).unwrap();
    assert_eq!(text(&fs, "ÄPFEL.txt"), Some("file 1\n".to_owned()));
    let fs = mount(spa.parts().dsl(), "tank/mac", true).unwrap();
    assert_eq!(text(&fs, "u\u{308}BER.mich"), Some("mac".to_owned()));
}

const KERNEL: &str = r#"
set -e
cp /host/image /tmp/image; zpool import -d /tmp -R /mnt tank
for fs in insensitive mac; do
    cd /mnt/tank/$fs; test "$(cat ÜBER.MICH)" = $fs; test "$(cat käse.DAT)" = "file 10"
    for n in 0 500 999; do test "$(cat Fat/ÑEW-$n)" = $fs; done
    test ! -e "Fat/ñame-7"; test -e "Fat/ñame-1007"
    mv käse.dat Quark; rm üBER.mich
done
test -e "/mnt/tank/formD/$(printf 'α\315\205')"; test ! -e "/mnt/tank/mac/$(printf 'α\315\205')"
for fs in mixed formC formD formKC formKD; do
    cd /mnt/tank/$fs; test "$(cat Über.mich)" = $fs; test "$(cat KÄSE.dat)" = "file 10"; mv KÄSE.dat Quark; rm Über.mich
done
cd /; zfs destroy tank/mac@AFTER
zpool scrub -w tank; zpool status -v tank
zpool status tank | grep -q 'with 0 errors'
zpool export tank; cp /tmp/image /host/image
"#;

/// `NAMES=all`: two minutes.
#[test]
fn the_kernel_finds_names_of_ours() {
    let guest = std::env::var_os("NAMES").and_then(|_| oracle::vm::Guest::find());
    let Some(guest) = guest else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("image");
    std::fs::write(&path, golden::bytes(NAME)).unwrap();
    let spa = pool::open_writable(&golden::file(&path));
    work(&spa);
    spa.export().unwrap();
    drop(spa);
    guest.run(KERNEL, host.path(), &[]).assert_success();
    let spa = pool::open_writable(&golden::file(&path));
    for name in ALL {
        let fs = mount(spa.parts().dsl(), &format!("tank/{name}"), true).unwrap();
        assert_eq!(text(&fs, "Quark"), Some("file 10\n".to_owned()));
        assert_eq!(text(&fs, "Über.mich"), None);
    }
    pool::assert_clean(&spa);
}
