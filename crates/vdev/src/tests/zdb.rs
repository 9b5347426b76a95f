//! What the real `zdb` reports about our labels.

use super::*;
use ram::Memory;
use std::process::Command;

#[test]
fn zdb_prints_our_label_with_four_good_copies() {
    let zdb = [
        "/usr/sbin/zdb",
        "/sbin/zdb",
        "/usr/bin/zdb",
        "/usr/local/sbin/zdb",
    ]
    .into_iter()
    .find(|path| std::path::Path::new(path).exists());
    let Some(zdb) = zdb else {
        eprintln!("SKIPPED: no zdb on this machine, labels were not checked against it");
        return;
    };
    let disks: Vec<_> = (0..2)
        .map(|n| Arc::new(Memory::new(format!("/md{n}"), DISK_BYTES)))
        .collect();
    let providers: Vec<_> = disks
        .iter()
        .map(|disk| disk.clone() as Arc<dyn Provider>)
        .collect();
    let tree = mirror_tree(&providers);
    tree.prepare_devices().unwrap();
    for txg in 10..15 {
        sync(&tree, txg).unwrap();
    }
    let path = std::env::temp_dir().join(format!("ashift-zdb-{}.img", std::process::id()));
    disks[1].save(&path).unwrap();
    let run = |flags: &str| {
        let output = Command::new(zdb).arg(flags).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "zdb {flags}: {text}");
        text
    };
    let label = run("-l");
    let uberblocks = run("-lu");
    std::fs::remove_file(&path).unwrap();
    for line in [
        "LABEL 0 ",
        "version: 5000",
        "name: 'tank'",
        "state: 0",
        "txg: 14",
        "pool_guid: 2054029313",
        "errata: 0",
        "hostid: 42405",
        "hostname: 'here'",
        "top_guid: 100",
        "guid: 102",
        "vdev_children: 1",
        "vdev_tree:",
        "type: 'mirror'",
        "metaslab_array: 256",
        "metaslab_shift: 24",
        "ashift: 12",
        "asize: 62390272",
        "is_log: 0",
        "create_txg: 4",
        "children[0]:",
        "children[1]:",
        "path: '/md1'",
        "features_for_read:",
        "labels = 0 1 2 3",
    ] {
        assert!(label.contains(line), "zdb -l lacks {line:?}:\n{label}");
    }
    assert!(!label.contains("Bad"), "{label}");
    assert_eq!(
        uberblocks.matches("magic = 0000000000bab10c").count(),
        5,
        "{uberblocks}"
    );
    assert!(uberblocks.contains("Uberblock[14]"), "{uberblocks}");
}
