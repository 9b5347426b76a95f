//! What `cp -a` preserves on file systems of the host: as root and as an ordinary user, on ext4, btrfs and
//! tmpfs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use zpl::mount::mount;
use zpl::{SetXattr, Time};

use super::{Bench, shell};

/// A user who is not root.
const USER: &str = "4711";

/// A file system on a loop device or in memory.
struct Mounted(PathBuf);

impl Mounted {
    fn new(bench: &Bench, kind: &str) -> Option<Mounted> {
        let folder = bench.folder.path();
        let script = match kind {
            "tmpfs" => "mkdir tmpfs; mount -t tmpfs -o size=100m none tmpfs".to_owned(),
            _ => format!(
                "truncate -s 200M {kind}.img; mkfs.{kind} -q {kind}.img; mkdir {kind}; \
                 mount -o loop {kind}.img {kind}"
            ),
        };
        let status = Command::new("sh")
            .args(["-ec", &script])
            .current_dir(folder)
            .output();
        if !status.is_ok_and(|output| output.status.success()) {
            oracle::skip(&format!("mounting {kind} (mkfs.{kind}, loop devices)"));
            return None;
        }
        shell(&format!("chmod 1777 {kind}"), folder);
        Some(Mounted(folder.join(kind)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        oracle::skip("root, to mount file systems");
    }
    is_root
}

impl Bench {
    /// Runs a command as a user who is not root.
    fn as_user(&self, args: &[&str]) -> Output {
        shell(
            "chmod -R a+rwX state disk.img; chmod 755 .",
            self.folder.path(),
        );
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_ashift"))
            .args(args);
        self.start(&mut command, b"")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const TREE: &str = "mkdir -p tree/dir tree/empty; cd tree; echo a >file; echo b >dir/other
setfacl -m u:1234:rwx,g:77:r--,m::rwx file
setfacl -m u:9:-wx dir; setfacl -d -m u:5:r-x,m::rx dir
ln -s file link; chmod 640 dir/other
touch -h -d '1999-01-01 01:02:03.123456789' link; touch -d '2001-02-03 04:05:06.987654321' file
touch -d '1965-05-05 05:05:05.5' dir/other; touch -d '2030-10-10 10:10:10.101010101' dir empty";

/// ACLs, times and modes.
const LIST: &str = "find . ! -type l | sort | xargs getfacl -n | grep -v '^# \\(owner\\|group\\)'; \
     find . -mindepth 1 -printf '%P %y %m %T@\\n' | sort; \
     find . -type f -printf '%P %A@\\n' | sort";

/// The ACLs, times and modes that a copy must have.
fn list(at: &std::path::Path) -> String {
    shell(LIST, at)
}

#[test]
fn acls_and_times_arrive_on_all_file_systems() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let Some(ext4) = Mounted::new(&bench, "ext4") else {
        return;
    };
    bench.ok(&["zfs", "create", "-o", "acltype=posix", "tank/acl"]);
    shell(TREE, &ext4.0);
    let tree = ext4.0.join("tree").display().to_string();
    let wanted = list(&ext4.0.join("tree"));
    assert!(wanted.contains("default:user:5:r-x"), "{wanted}");
    bench.ok(&["cp", "-a", &tree, "tank/acl:/"]);
    for kind in ["ext4", "btrfs", "tmpfs"] {
        let other = if kind == "ext4" {
            None
        } else {
            match Mounted::new(&bench, kind) {
                Some(mounted) => Some(mounted),
                None => continue,
            }
        };
        let place = &other.as_ref().unwrap_or(&ext4).0;
        let root = place.join("by-root");
        bench.ok(&["cp", "-a", "tank/acl:/tree", &root.display().to_string()]);
        assert_eq!(list(&root), wanted, "{kind}, as root");
        let user = place.join("by-user");
        let output = bench.as_user(&["cp", "-a", "tank/acl:/tree", &user.display().to_string()]);
        let said = stderr(&output);
        assert!(output.status.success(), "{kind}: {said}");
        assert_eq!(list(&user), wanted, "{kind}, as a user");
        // Reported once, not for each file.
        let owners = said
            .matches("owner not kept: Operation not permitted")
            .count();
        assert_eq!((said.lines().count(), owners), (2, 2), "{said}");
        assert!(said.contains("more files: owner not kept"), "{said}");
    }
}

#[test]
fn what_cannot_be_kept_is_said_and_the_copy_goes_on() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let Some(ext4) = Mounted::new(&bench, "ext4") else {
        return;
    };
    bench.with_spa(|spa| {
        let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
        for name in ["big1", "big2", "big3", "last"] {
            let create = zpl::Create {
                mode: 0o4755,
                uid: 0,
                gid: 0,
            };
            let id = fs
                .create_file(fs.root(), name.as_bytes(), &create)
                .unwrap()
                .id;
            fs.write(id, 0, name.as_bytes()).unwrap();
            let set = |name: &str, value: &[u8]| {
                let expect = SetXattr::default();
                fs.setxattr(id, name.as_bytes(), value, expect).unwrap();
            };
            set("user.small", b"kept");
            if name != "last" {
                set("user.big", &[b'x'; 60_000]);
            }
            let time = Some(Time {
                secs: 1 << 40,
                nanos: 0,
            });
            let far = zpl::SetAttr {
                mtime: time.filter(|_| name == "last"),
                ..zpl::SetAttr::default()
            };
            fs.setattr(id, &far).unwrap();
        }
    });
    let out = ext4.0.join("out");
    let (_, err) = bench.fails(&["cp", "-a", "tank:/", &out.display().to_string()]);
    let line =
        "ashift cp: tank:/big1: extended attribute user.big not kept: No space left on device";
    assert_eq!(err.lines().next(), Some(line), "{err}");
    let more = "2 more files: extended attributes user.* not kept: No space left on device";
    assert!(err.contains(more), "{err}");
    assert!(err.contains("tank:/last: times not kept"), "{err}");
    assert_eq!(err.lines().count(), 3, "{err}");
    let kept = shell("cat *; getfattr -n user.small --only-values *", &out);
    assert_eq!(kept, "big1big2big3lastkeptkeptkeptkept");
    // Not root: setuid would apply to the owner, which has changed.
    let user = ext4.0.join("user");
    let output = bench.as_user(&["cp", "-a", "tank:/last", &user.display().to_string()]);
    assert!(stderr(&output).contains("owner not kept"), "{output:?}");
    let mode = std::fs::metadata(&user).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}
