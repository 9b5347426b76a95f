//! Encrypted blocks that have no room in one piece: their gang headers are sealed beside the words of a MAC.

use std::sync::Arc;

use crypt::{KeyFormat, Suite, WrappingKey};
use dsl::{Encrypted, NewRoot};
use geom::Provider;
use phys::PropValue;
use ram::Memory;
use spa::Spa;
use torture::crumbs::crumble;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::mount::mount;

const KEY: &[u8; 32] = b"0123456789abcdef0123456789ABCDEF";
const SECRET_BYTES: usize = 10 << 20;

fn key() -> WrappingKey {
    WrappingKey::new(KeyFormat::Raw, KEY, 0, 0).unwrap()
}

/// A pool in pieces, with a file `secret` of this content in an encrypted file system, in gang blocks.
fn pool_with_gangs(layout: Layout, devices: &[Arc<dyn Provider>], secret: &[u8]) {
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", layout, 12, devices, root).unwrap();
    let root = NewRoot {
        suite: Suite::Aes256Gcm,
        format: KeyFormat::Raw,
        salt: 0,
        iterations: 0,
        key: key(),
    };
    let location = PropValue::Text("prompt".to_owned());
    let new = dsl::NewDataset {
        name: "tank/secret".to_owned(),
        type_: phys::ObjsetType::Zfs,
        flags: 0,
        props: vec![
            ("keylocation".to_owned(), location),
            ("compression".to_owned(), PropValue::Number(2)),
        ],
        init: zpl::mount::init(zpl::NewFilesystem::default(), true),
    };
    let created = spa
        .parts()
        .dsl()
        .create_encrypted(new, Encrypted::Root(root));
    created.unwrap();
    crumble(&spa, 4096, &mut Dice::new(seed(2)));
    let gangs = || spa.parts().pipeline().stats().gangs;
    let before = gangs();
    pool::write_file(&spa, "tank/secret", "secret", secret);
    spa.sync().unwrap();
    assert!(gangs() - before > 10, "{} gang blocks", gangs() - before);
    pool::assert_clean(&spa);
    spa.export().unwrap();
}

fn read_secret(spa: &Spa) -> Vec<u8> {
    let dsl = spa.parts().dsl();
    dsl.load_key("tank/secret", key(), false).unwrap();
    let fs = mount(dsl, "tank/secret", true).unwrap();
    let file = fs.resolve("secret").unwrap();
    let mut found = vec![0; SECRET_BYTES];
    fs.read(file, 0, &mut found).unwrap();
    found
}

#[test]
fn encrypted_blocks_in_pieces_are_read_and_scrubbed() {
    let secret = Dice::new(seed(1)).bytes(SECRET_BYTES);
    for (layout, count) in [(Layout::Stripe, 1), (Layout::Raidz(1), 3)] {
        let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), 96 << 20)) as Arc<dyn Provider>;
        let devices: Vec<_> = (0..count).map(disk).collect();
        pool_with_gangs(layout, &devices, &secret);
        pool::verify_with_zdb(&devices, "tank");
        let spa = pool::open(&devices, false).unwrap();
        assert!(read_secret(&spa) == secret, "{layout:?}");
        spa.scrub().unwrap();
        spa.wait_scan(&mut |_| true).unwrap();
        assert_eq!(spa.scan().unwrap().errors.get(), 0, "{layout:?}");
        pool::assert_clean(&spa);
    }
}

const KERNEL: &str = r#"
set -e
printf '0123456789abcdef0123456789ABCDEF' >/tmp/raw
zpool import -d /dev -R /mnt -N tank
zfs load-key -L file:///tmp/raw tank/secret
zfs mount tank/secret
[ "$(sha256sum </mnt/tank/secret/secret)" = "$(sha256sum </host/secret)" ]
zpool scrub -w tank
zpool status -v tank
zpool status tank | grep -q 'No known data errors'
zpool status tank | grep -q 'repaired 0B in .* with 0 errors'
cd /; zpool export tank
"#;

/// `ENCRYPTION=all`: a minute.
#[test]
fn the_kernel_reads_encrypted_blocks_in_pieces() {
    if std::env::var_os("ENCRYPTION").is_none() {
        return;
    }
    let Some(guest) = oracle::vm::Guest::find() else {
        return;
    };
    let host = tempfile::tempdir().unwrap();
    let secret = Dice::new(seed(1)).bytes(SECRET_BYTES);
    std::fs::write(host.path().join("secret"), &secret).unwrap();
    let devices = pool::images(host.path(), 1, 96 << 20);
    pool_with_gangs(Layout::Stripe, &devices, &secret);
    drop(devices);
    let disk = host.path().join("disk0");
    guest.run(KERNEL, host.path(), &[&disk]).assert_success();
}
