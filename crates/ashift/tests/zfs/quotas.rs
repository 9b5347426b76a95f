//! Limits of users, groups and projects: set by commands, obeyed by commands, and the same for the kernel's OpenZFS.
//! What commands say is beside the real ones in `parity`, list `quotas`; mounts are in `mount/quotas.rs`.

use base::{ErrorKind, Result};
use oracle::vm::Guest;
use oracle::{Zdb, have_zdb};
use zpl::{Create, Filesystem, SetAttr, pflags};

use crate::Place;
use crate::errors::noise;

/// The user to which files belong here.
fn me() -> u32 {
    rustix::process::getuid().as_raw()
}

impl Place {
    pub(crate) fn with_files<T>(&self, dataset: &str, act: impl FnOnce(&Filesystem) -> T) -> T {
        self.with_spa(|spa| {
            let mount = zpl::mount::mount(spa.parts().dsl(), dataset, false).unwrap();
            act(&mount)
        })
    }

    /// Makes a directory that passes on a project.
    fn project(&self, dataset: &str, name: &str, id: u64) {
        self.with_files(dataset, |fs| {
            let made = fs.mkdir(fs.root(), name.as_bytes(), &by(0)).unwrap();
            let set = SetAttr {
                pflags: Some(made.pflags | pflags::PROJINHERIT),
                projid: Some(id),
                ..SetAttr::default()
            };
            fs.setattr(made.id, &set).unwrap();
        });
    }
}

fn by(uid: u64) -> Create {
    Create {
        mode: 0o644,
        uid,
        gid: uid,
    }
}

fn is_refused<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Quota, "{error}");
            true
        }
    }
}

#[test]
fn a_copy_that_goes_beyond_a_limit_says_whose() {
    let place = Place::with_pool("-O compression=off");
    place.zfs(&format!("create -o userquota@{}=1M tank/a", me()));
    let large = place.folder.path().join("large");
    std::fs::write(&large, noise(2 << 20)).unwrap();
    let copy = |to: &str| place.run(&format!("cp {} tank/a:/{to}", large.display()));
    let first = copy("first");
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    let second = copy("second");
    assert_eq!(second.code, 1);
    let says = format!("user {} has ", me());
    assert!(second.err.contains(&says), "{}", second.err);
    assert!(
        second.err.contains(" bytes, and may have 1048576"),
        "{}",
        second.err
    );
    place.zfs(&format!("set userquota@{}=none tank/a", me()));
    assert_eq!(copy("second").code, 0);
    // One more file would be one too many.
    place.zfs(&format!("set userobjquota@{}=3 tank/a", me()));
    let third = copy("third");
    assert!(
        third.err.contains(" 3 files, and may have 3"),
        "{}",
        third.err
    );
    place.zfs(&format!("set userobjquota@{}=4 tank/a", me()));
    assert_eq!(copy("third").code, 0);
    let reflink = place.run("cp --reflink=always tank/a:/first tank/a:/fourth");
    assert_eq!(reflink.code, 1, "{}", reflink.err);
    place.verify();
}

#[test]
fn a_limit_is_no_property_of_the_dataset() {
    let place = Place::with_pool("-O compression=off -O userquota@5=7M");
    assert_eq!(place.get("userquota@5", "tank"), "7M local");
    place.zfs("create tank/a");
    assert_eq!(place.get("userquota@5", "tank/a"), "none local");
    place.zfs("set userquota@5=1M groupobjquota@6=7 tank/a");
    place.zfs("snapshot tank/a@1");
    place.zfs("set userquota@5=2M tank/a");
    assert_eq!(place.get("userquota@5", "tank/a@1"), "1M local");
    place.zfs("clone tank/a@1 tank/c");
    assert_eq!(place.get("userquota@5", "tank/c"), "1M local");
    place.zfs("rollback tank/a@1");
    assert_eq!(place.get("userquota@5", "tank/a"), "1M local");
    let history = place.run("zpool history tank").out;
    assert!(
        history.contains(" zfs set userquota@5=1M groupobjquota@6=7 tank/a\n"),
        "{history}"
    );
    assert_eq!(history.matches("zpool create").count(), 1, "{history}");
    place.verify();
}

const OBEY: &str = r#"set -e
no() { if sh -c "$*" 2>/dev/null; then echo "not refused: $*"; exit 1; fi; }
zpool import -d /host -R /mnt tank
zfs get -Hp -o property,value userquota@1000,userobjquota@1001,groupquota@100,groupobjquota@101,projectquota@4,projectobjquota@5,userquota@7 tank/a
zfs userspace -Hp tank/a >/host/userspace
zfs groupspace -Hnp tank/a >/host/groupspace
zfs projectspace -Hp tank/a >/host/projectspace
cd /mnt/tank/a
no 'echo more >>full'
no 'touch one; chown 1000 one'
no 'touch one; chown 1001 one'
no 'touch one; chgrp 100 one'
no 'touch one; chgrp 101 one'
no 'touch 4/one'
no 'touch 5/two'
echo more >>5/one
rm full one; zpool sync
touch one; chown 1000 one; chgrp 100 one
echo more >>one
cd /
zfs create -o compression=off tank/b
zfs set userquota@2000=1M userobjquota@3000=1 groupquota@2001=512K projectquota@6=1M tank/b
mkdir /mnt/tank/b/p
zfs project -p 6 -s /mnt/tank/b/p
dd if=/dev/urandom of=/mnt/tank/b/user bs=128k count=16 2>/dev/null
dd if=/dev/urandom of=/mnt/tank/b/group bs=128k count=16 2>/dev/null
dd if=/dev/urandom of=/mnt/tank/b/p/file bs=128k count=16 2>/dev/null
touch /mnt/tank/b/one
chown 2000 /mnt/tank/b/user; chgrp 2001 /mnt/tank/b/group; chown 3000 /mnt/tank/b/one
zfs set userquota@7=none tank/a
zpool sync tank
zpool export tank
"#;

const LIMITS: &str = "userquota@1000\t1048576
userobjquota@1001\t1
groupquota@100\t1048576
groupobjquota@101\t1
projectquota@4\t1
projectobjquota@5\t2
userquota@7\t12345678
";

/// The lines of a listing that name numbers alone, as the guest knows no users, without projects of no limit.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn slow_the_kernel_obeys_limits_that_are_set_here_and_the_other_way_round() {
    let Some(guest) = Guest::find() else { return };
    let place = Place::with_pool("-O mountpoint=/tank -O compression=off");
    place.zfs("create tank/a");
    place.write("tank/a", "full", &noise(1 << 20)).unwrap();
    place.write("tank/a", "other", b"text").unwrap();
    assert_eq!(place.run("chown 1000:100 tank/a:/full").code, 0);
    assert_eq!(place.run("chown 1001:101 tank/a:/other").code, 0);
    place.project("tank/a", "4", 4);
    place.project("tank/a", "5", 5);
    assert_eq!(place.run("touch tank/a:/5/one").code, 0);
    place.zfs("set userquota@1000=1M userobjquota@1001=1 userquota@7=12345678 tank/a");
    place.zfs("set groupquota@100=1M groupobjquota@101=1 projectquota@4=1 tank/a");
    place.zfs("set projectobjquota@5=2 tank/a");
    let ours = ["userspace -Hnp", "groupspace -Hnp", "projectspace -Hp"]
        .map(|command| lines(&place.zfs(&format!("{command} tank/a"))));
    assert_eq!(place.run("zpool export tank").code, 0);
    let share = place.images();
    if have_zdb() {
        Zdb::verify(&share, "tank").assert_clean();
    }
    let obeyed = guest.run(OBEY, &share, &[]);
    obeyed.assert_success();
    assert_eq!(obeyed.output, LIMITS);
    for (name, ours) in ["userspace", "groupspace", "projectspace"].iter().zip(ours) {
        let theirs = std::fs::read_to_string(share.join(name)).unwrap();
        assert_eq!(lines(&theirs), ours, "{name}");
        std::fs::remove_file(share.join(name)).unwrap();
    }
    for rest in ["script", "output", "status", "console"] {
        std::fs::remove_file(share.join(rest)).unwrap();
    }
    if have_zdb() {
        Zdb::verify(&share, "tank").assert_clean();
    }
    let import = place.run(&format!("zpool import -d {} tank", crate::path(&share)));
    assert_eq!((import.code, import.err.as_str()), (0, ""));
    for (property, value) in [
        ("userquota@2000", "1M local"),
        ("userobjquota@3000", "1 local"),
        ("groupquota@2001", "512K local"),
        ("projectquota@6", "1M local"),
    ] {
        assert_eq!(place.get(property, "tank/b"), value);
    }
    assert_eq!(place.get("userquota@7", "tank/a"), "none local");
    place.with_files("tank/b", |fs| {
        let find = |name: &[u8]| fs.lookup(fs.root(), name).unwrap().id;
        assert!(is_refused(fs.append(find(b"user"), b"x")));
        assert!(is_refused(fs.append(find(b"group"), b"x")));
        assert!(is_refused(fs.create_file(fs.root(), b"new", &by(3000))));
        assert!(is_refused(fs.mkdir(find(b"p"), b"new", &by(0))));
        // Objects alone are limited.
        fs.append(find(b"one"), b"x").unwrap();
        fs.symlink(find(b"p"), b"link", b"to", &by(0)).unwrap();
        let given = SetAttr {
            uid: Some(2000),
            ..SetAttr::default()
        };
        assert!(is_refused(fs.setattr(find(b"one"), &given)));
    });
    place.zfs("set userquota@2000=none projectquota@6=1G tank/b");
    place.with_files("tank/b", |fs| {
        let user = fs.lookup(fs.root(), b"user").unwrap().id;
        fs.append(user, b"x").unwrap();
        let p = fs.lookup(fs.root(), b"p").unwrap().id;
        fs.mkdir(p, b"new", &by(0)).unwrap();
    });
    place.verify();
}
