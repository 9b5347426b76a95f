//! Pools on any providers, created and opened in one line.

use std::cmp::Reverse;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::{BlkId, Result, Txg};
use geom::Provider;
use geom::disk::OpenMode;
use phys::feature;
use phys::label::LABEL_START_SIZE;
use spa::{CreateOptions, Host, ImportOptions, NewPool, Settings, Spa};
use vdev::import::discover;
use vdev::{Grouping, NewDevice, TopSpec, VdevKind};
use zio::AllocClass;
use zpl::mount::mount;
use zpl::{Create, Filesystem};

/// How the devices make up a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Each device is a vdev of its own.
    Stripe,
    /// All devices are one mirror.
    Mirror,
    /// All devices are one RAID-Z with so many columns of parity, 1 to 3.
    Raidz(u64),
    /// All devices are one dRAID with so many columns of parity and of data, and so many distributed spares.
    Draid(u64, u64, u64),
    /// Each device is a vdev of its own: a normal one, then one each of [`CLASSES`].
    Classes,
}

/// What the vdevs of [`Layout::Classes`] are for, after the first.
const CLASSES: [AllocClass; 3] = [AllocClass::Special, AllocClass::Dedup, AllocClass::Log];

/// The host of these tests.
#[must_use]
pub fn host() -> Host {
    Host {
        id: 0x00ba_b10c,
        name: "torture".into(),
    }
}

/// Makes a pool with all features of [`feature::kept`].
///
/// # Errors
/// Those of [`Spa::create`].
pub fn create(
    name: &str,
    layout: Layout,
    ashift: u32,
    devices: &[Arc<dyn Provider>],
    init_root: dsl::ObjsetInit,
) -> Result<Spa> {
    create_with(name, layout, ashift, devices, init_root, settings())
}

/// Like [`create`], with the features of a release of OpenZFS.
///
/// # Errors
/// Those of [`Spa::create`].
pub fn create_for(
    release: feature::Release,
    name: &str,
    layout: Layout,
    ashift: u32,
    devices: &[Arc<dyn Provider>],
    init_root: dsl::ObjsetInit,
) -> Result<Spa> {
    let features = feature::kept_of(release).collect();
    create_of(
        name,
        layout,
        ashift,
        devices,
        init_root,
        settings(),
        features,
    )
}

/// How these pools are run: a full uncompressed record is written before its txg syncs, even if it is the only
/// one. This makes frequent here what is rare elsewhere.
#[must_use]
pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.txg.write_behind_bytes = 1;
    // Bounds the space that write-behind may waste: the pools are small.
    settings.txg.dirty_data_max = 16 << 20;
    settings
}

/// Like [`create`], with other settings.
///
/// # Errors
/// Those of [`Spa::create`].
pub fn create_with(
    name: &str,
    layout: Layout,
    ashift: u32,
    devices: &[Arc<dyn Provider>],
    init_root: dsl::ObjsetInit,
    settings: Settings,
) -> Result<Spa> {
    let features = feature::kept().collect();
    create_of(name, layout, ashift, devices, init_root, settings, features)
}

/// A pool of version 0 of dedup tables; see [`create`].
///
/// # Errors
/// Those of [`Spa::create`].
pub fn create_without_fast_dedup(
    name: &str,
    layout: Layout,
    ashift: u32,
    devices: &[Arc<dyn Provider>],
    init_root: dsl::ObjsetInit,
) -> Result<Spa> {
    let features = feature::kept().filter(|feature| feature.guid != feature::FAST_DEDUP);
    let features = features.collect();
    create_of(
        name,
        layout,
        ashift,
        devices,
        init_root,
        settings(),
        features,
    )
}

/// Makes a pool with these features.
///
/// # Errors
/// Those of [`Spa::create`].
pub(crate) fn create_of(
    name: &str,
    layout: Layout,
    ashift: u32,
    devices: &[Arc<dyn Provider>],
    init_root: dsl::ObjsetInit,
    settings: Settings,
    features: Vec<&'static feature::Feature>,
) -> Result<Spa> {
    let devices = devices.iter().map(|provider| NewDevice {
        kind: VdevKind::Disk, // so that a kernel takes the images as disks
        path: provider.name().to_owned(),
        provider: provider.clone(),
    });
    let alone = |device| TopSpec::new(Grouping::Single, vec![device]);
    let vdevs = match layout {
        Layout::Stripe => devices.map(alone).collect(),
        Layout::Classes => {
            let classes = [AllocClass::Normal].into_iter().chain(CLASSES);
            let of_class = |(device, class)| TopSpec {
                class,
                ..alone(device)
            };
            devices.zip(classes).map(of_class).collect()
        }
        Layout::Mirror => vec![TopSpec::new(Grouping::Mirror, devices.collect())],
        Layout::Raidz(parity) => {
            vec![TopSpec::new(Grouping::Raidz { parity }, devices.collect())]
        }
        Layout::Draid(parity, data, spares) => {
            let devices: Vec<_> = devices.collect();
            let grouping = Grouping::Draid {
                parity,
                data,
                children: devices.len() as u64,
                spares,
            };
            vec![TopSpec::new(grouping, devices)]
        }
    };
    Spa::create(CreateOptions {
        name: name.into(),
        aux: vdev::AuxSpec::default(),
        vdevs,
        new: NewPool {
            ashift,
            features,
            ..NewPool::default()
        },
        init_root,
        command: format!("zpool create {name}"),
        host: host(),
        settings,
    })
}

/// Image files `disk0`, `disk1`… in a folder; missing ones are created as sparse files of `bytes`.
///
/// # Panics
/// When the host cannot create or open them.
#[must_use]
pub fn images(folder: &Path, count: usize, bytes: u64) -> Vec<Arc<dyn Provider>> {
    let image = |i| {
        let path = folder.join(format!("disk{i}"));
        if !path.exists() {
            let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
            made.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        geom::disk::open(&path, OpenMode::ReadWrite).unwrap_or_else(|e| panic!("{e}"))
    };
    (0..count).map(image).collect()
}

/// Makes a file system with these properties, given as the numbers used on disk.
///
/// # Errors
/// Those of [`dsl::DslPool::create_dataset`].
pub fn create_fs(spa: &Spa, name: &str, props: &[(&str, u64)]) -> Result<()> {
    spa.parts().dsl().create_dataset(new_fs(name, props))
}

/// A file system with these properties, to be created.
pub(crate) fn new_fs(name: &str, props: &[(&str, u64)]) -> dsl::NewDataset {
    let props = props
        .iter()
        .map(|(n, v)| ((*n).to_owned(), phys::PropValue::Number(*v)));
    dsl::NewDataset {
        name: name.into(),
        type_: phys::ObjsetType::Zfs,
        flags: 0,
        props: props.collect(),
        init: zpl::mount::init(zpl::NewFilesystem::default(), true),
    }
}

/// Opens the pool on these devices: the one with the most, if there are several.
///
/// # Errors
/// Those of [`Spa::import`]; `NotFound` when there is no pool.
pub fn open(devices: &[Arc<dyn Provider>], readonly: bool) -> Result<Spa> {
    open_with(devices, readonly, settings())
}

/// Opens the only pool on these devices to write to it.
///
/// # Panics
/// When it does not open, or only for reading.
#[must_use]
pub fn open_writable(devices: &[Arc<dyn Provider>]) -> Spa {
    let spa = open(devices, false).unwrap_or_else(|e| panic!("{e}"));
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    spa
}

/// Like [`open`], with other settings.
///
/// # Errors
/// Those of [`open`].
pub fn open_with(devices: &[Arc<dyn Provider>], readonly: bool, settings: Settings) -> Result<Spa> {
    Spa::import(options(devices, readonly, settings)?)
}

/// Opens the only pool on these devices, which is of an old version, and brings it up to version 5000.
///
/// # Errors
/// Those of [`Spa::upgrade`]; `NotFound` when there is no pool.
pub fn upgrade(devices: &[Arc<dyn Provider>]) -> Result<Spa> {
    Spa::upgrade(options(devices, false, settings())?)
}

/// Opens the only pool on these devices as it was when its checkpoint was taken.
///
/// # Errors
/// Those of [`open`]; `NotFound` when there is no checkpoint.
pub fn rewind(devices: &[Arc<dyn Provider>], readonly: bool) -> Result<Spa> {
    rewind_with(devices, readonly, settings())
}

/// Like [`rewind`], with other settings.
///
/// # Errors
/// Those of [`rewind`].
pub(crate) fn rewind_with(
    devices: &[Arc<dyn Provider>],
    readonly: bool,
    settings: Settings,
) -> Result<Spa> {
    let options = options(devices, readonly, settings)?;
    Spa::import(ImportOptions {
        rewinds: true,
        ..options
    })
}

fn options(
    devices: &[Arc<dyn Provider>],
    readonly: bool,
    settings: Settings,
) -> Result<ImportOptions> {
    let mut pools = discover(devices).pools;
    // A device that was away while the pool got another guid is a pool of its own.
    pools.sort_by_key(|pool| Reverse(pool.devices.len()));
    let found = pools.into_iter().next();
    Ok(ImportOptions {
        found: found.ok_or_else(|| base::Error::not_found("no pool on these devices"))?,
        new_name: None,
        readonly,
        max_txg: None,
        force: false,
        gives_up_logs: false,
        tolerates_missing: false,
        rewinds: false,
        host: host(),
        settings,
    })
}

/// Changes the meta-objset directly.
///
/// # Panics
/// When it cannot be synced.
pub fn in_mos(
    spa: &Spa,
    change: impl FnOnce(&Arc<dmu::Objset>, &dmu::Tx) -> Result<()> + Send + 'static,
) {
    let mos = spa.parts().mos().clone();
    let tx = spa.parts().groups().hold_open(0).unwrap();
    spa.parts()
        .dsl()
        .queue_task(&tx, move |_, tx| change(&mos, tx));
    drop(tx);
    spa.sync().unwrap();
}

/// How often a pool is looked at that does not stand still.
const LOOKS_MAX: u32 = 5;

/// What the checker finds in the last synced state of an open pool. If txgs were synced meanwhile, whose blocks may be
/// where freed ones were, it looks again.
///
/// # Errors
/// Those of [`check::verify`].
pub fn verify(spa: &Spa) -> Result<check::Report> {
    let mut looks = 1;
    loop {
        let pool = check::Pool::of(spa);
        let report = check::verify(&pool, &check::Options::default())?;
        let synced = spa.parts().groups().synced_txg();
        if report.is_clean() || synced == pool.txg || looks == LOOKS_MAX {
            return Ok(report);
        }
        looks += 1;
        eprintln!(
            "checked txg {}, and {synced} was synced meanwhile",
            pool.txg
        );
    }
}

/// Asserts that the checker finds nothing but damaged copies of blocks that have other, good copies (one device
/// is faulty).
///
/// # Panics
/// With the findings.
#[track_caller]
pub(crate) fn assert_nothing_lost(spa: &Spa) {
    let mut report = verify(spa).expect("the MOS can be opened");
    let is_spare_copy =
        |finding: &check::Finding| matches!(finding, check::Finding::DamagedCopies { .. });
    report.findings.retain(|finding| !is_spare_copy(finding));
    assert_report(&report);
}

/// Asserts that the checker finds nothing wrong.
///
/// # Panics
/// With the findings.
#[track_caller]
pub fn assert_clean(spa: &Spa) {
    assert_report(&verify(spa).expect("the MOS can be opened"));
}

#[track_caller]
fn assert_report(report: &check::Report) {
    assert!(report.is_clean(), "findings: {:#?}", report.findings);
    assert_eq!(
        report.allocated_bytes(),
        report.found_bytes(),
        "leaked or doubly used"
    );
}

/// Writes a new file into the root of a file system, and syncs.
///
/// # Panics
/// When that fails.
pub fn write_file(spa: &Spa, dataset: &str, name: &str, bytes: &[u8]) {
    let fs = mount(spa.parts().dsl(), dataset, false).unwrap();
    let create = Create {
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let made = fs.create_file(fs.root(), name.as_bytes(), &create);
    fs.write(made.unwrap().id, 0, bytes).unwrap();
    drop(fs);
    spa.sync().unwrap();
}

/// Has the real zdb check an exported pool, if it is installed.
///
/// # Panics
/// When it finds anything wrong.
pub fn verify_with_zdb(devices: &[Arc<dyn Provider>], pool: &str) {
    if !oracle::have_zdb() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (n, device) in devices.iter().enumerate() {
        let mut image = vec![0; device.mediasize() as usize];
        device.read(0, &mut image).unwrap();
        std::fs::write(folder.path().join(format!("disk{n}")), image).unwrap();
    }
    oracle::Zdb::verify(folder.path(), pool).assert_clean();
}

/// Has the zdb of OpenZFS 2.4 that `ZDB_2_4` names, if it names one, check an exported pool.
///
/// # Panics
/// When it finds anything wrong.
pub fn verify_with_zdb_2_4(devices: &[Arc<dyn Provider>], pool: &str) {
    if oracle::have_zdb_2_4() {
        verify_with_zdb(devices, pool);
    }
}

/// The byte range of each block of a file, on each device of its vdev (single device or mirror).
///
/// # Panics
/// When there is no such file, or one of its blocks is a hole, embedded or a gang block.
#[must_use]
pub fn places(fs: &Filesystem, name: &str) -> Vec<Range<u64>> {
    let dnode = fs.objset().hold(fs.resolve(name).unwrap()).unwrap();
    let place = |blkid| {
        let bp = dnode.block_pointer(0, BlkId(blkid)).unwrap();
        assert!(!bp.is_hole() && !bp.is_embedded() && !bp.is_gang());
        let start = bp.dva[0].offset() + LABEL_START_SIZE;
        start..start + bp.psize()
    };
    (0..=dnode.maxblkid().0).map(place).collect()
}

/// Opens the pool on these devices as it was in a txg, to read it.
///
/// # Errors
/// As [`Spa::import`].
///
/// # Panics
/// When there is no pool.
pub fn open_at(disks: &[Arc<dyn Provider>], txg: Txg) -> Result<Spa> {
    let found = discover(disks).pools.into_iter().next();
    Spa::import(ImportOptions {
        found: found.expect("a pool is on these devices"),
        new_name: None,
        readonly: true,
        rewinds: false,
        max_txg: Some(txg),
        force: true,
        gives_up_logs: false,
        tolerates_missing: false,
        host: host(),
        settings: settings(),
    })
}
