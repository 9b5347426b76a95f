//! Pools made here are whole in the eyes of the real zdb.

use std::path::Path;
use std::sync::Arc;

use geom::disk::{OpenMode, open};
use oracle::{Zdb, have_zdb};
use spa::{CreateOptions, Host, ImportOptions, Settings, Spa, VdevSpec, feature};
use vdev::{AllocBias, VdevKind};

fn leaf(path: &Path) -> VdevSpec {
    let provider = open(path, OpenMode::ReadWrite).unwrap();
    let device = Some((path.display().to_string(), provider));
    VdevSpec {
        kind: VdevKind::File,
        device,
        children: Vec::new(),
        bias: AllocBias::None,
    }
}

fn options(name: &str, vdevs: Vec<VdevSpec>, ashift: u32) -> CreateOptions {
    CreateOptions {
        name: name.into(),
        vdevs,
        ashift,
        features: feature::kept().collect(),
        props: Vec::new(),
        comment: None,
        compatibility: None,
        fs_props: Vec::new(),
        init_root: Box::new(|_, _| Ok(())),
        command: format!("zpool create {name}"),
        host: host(),
        settings: Settings::default(),
    }
}

fn host() -> Host {
    Host {
        id: 0x1234_5678,
        name: "testhost".into(),
    }
}

fn image(folder: &Path, name: &str, bytes: u64) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::File::create(&path)
        .unwrap()
        .set_len(bytes)
        .unwrap();
    path
}

fn reopen(folder: &Path, names: &[&str]) -> Spa {
    let providers: Vec<Arc<dyn geom::Provider>> = names
        .iter()
        .map(|n| open(&folder.join(n), OpenMode::ReadWrite).unwrap())
        .collect();
    let found = vdev::import::discover(&providers).pools.remove(0);
    Spa::import(ImportOptions {
        found,
        new_name: None,
        readonly: false,
        max_txg: None,
        force: false,
        host: host(),
        settings: Settings::default(),
    })
    .unwrap()
}

#[test]
fn new_pools_pass_zdb() {
    if !have_zdb() {
        return;
    }
    for ashift in [9, 12, 13] {
        let folder = tempfile::tempdir().unwrap();
        let a = image(folder.path(), "a", 256 << 20);
        let b = image(folder.path(), "b", 256 << 20);
        let mirror = VdevSpec {
            kind: VdevKind::Mirror,
            device: None,
            children: vec![leaf(&a), leaf(&b)],
            bias: AllocBias::None,
        };
        let spa = Spa::create(options("tank", vec![mirror], ashift)).unwrap();
        spa.export().unwrap();
        drop(spa);
        Zdb::verify(folder.path(), "tank").assert_clean();
        let spa = reopen(folder.path(), &["a", "b"]);
        assert_eq!(spa.name(), "tank");
        spa.log_command("zpool import tank").unwrap();
        spa.export().unwrap();
        drop(spa);
        Zdb::verify(folder.path(), "tank").assert_clean();
    }
}
