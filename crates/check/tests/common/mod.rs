//! Pools written by the real OpenZFS in a guest, and opening them for the checker.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use base::{ObjectId, ObjsetId, Result, Txg, VdevId};
use check::{Pool, TopVdev};
use dmu::{FreeAtOnce, Objset, ObjsetProps};
use geom::Provider;
use geom::disk::OpenMode;
use nvpair::NvList;
use oracle::vm::Guest;
use phys::{DvaPhys, pool_names};
use vdev::VdevTree;
use zio::{AllocClass, Allocator, BlockStore, DvaSet, Hint, Pipeline, PipelineSettings};

/// Bumped when a script below changes.
const VERSION: u32 = 2;

/// The image files of one pool.
pub(crate) struct Image {
    pub(crate) pool: String,
    pub(crate) folder: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Image {
    fn cached(pool: &str, sizes_mib: &[u64], scripts: &[&str]) -> Option<Image> {
        if !oracle::have_zdb() {
            return None;
        }
        let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = home.join(format!(".cache/ashift/pools-{VERSION}/{pool}"));
        let image = Image {
            pool: pool.to_owned(),
            folder,
            _temporary: None,
        };
        if image.folder.exists() {
            return Some(image);
        }
        let guest = Guest::find()?;
        // As files of the share: `zpool create` would put partitions on a whole disk.
        let host = tempfile::tempdir().expect("a temporary folder");
        for (i, mib) in sizes_mib.iter().enumerate() {
            let file = std::fs::File::create(host.path().join(format!("d{i}.img")));
            file.expect("an image").set_len(mib << 20).expect("sized");
        }
        for script in scripts {
            let outcome = guest.run(&format!("set -ex\n{script}"), host.path(), &[]);
            outcome.assert_success();
        }
        let own = image
            .folder
            .with_extension(format!("{}", std::process::id()));
        std::fs::create_dir_all(&own).expect("the cache folder");
        copy_sparse(host.path(), &own);
        let _ = std::fs::rename(&own, &image.folder);
        Some(image)
    }

    /// The same bytes in a folder of their own.
    pub(crate) fn copy(&self) -> Image {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy_sparse(&self.folder, folder.path());
        Image {
            pool: self.pool.clone(),
            folder: folder.path().to_owned(),
            _temporary: Some(folder),
        }
    }

    /// One disk with the on-disk state of most features.
    pub(crate) fn lived_in() -> Option<Image> {
        Image::cached("lived", &[512], &[LIVED_IN])
    }

    /// One disk on which large blocks are ganged, with an intent log that was not replayed and a
    /// dataset that is being destroyed.
    pub(crate) fn gangs_and_log() -> Option<Image> {
        Image::cached("gangs", &[512], &[GANGS_AND_LOG, CLAIM])
    }

    /// A mirror of two.
    pub(crate) fn mirror() -> Option<Image> {
        Image::cached("twosides", &[256, 256], &[MIRROR])
    }
}

fn copy_sparse(from: &Path, to: &Path) {
    let images = from.join("*.img");
    let command = format!("cp --sparse=always {} {}/", images.display(), to.display());
    let status = Command::new("sh")
        .args(["-c", &command])
        .status()
        .expect("cp");
    assert!(status.success(), "{command}");
}

const LIVED_IN: &str = r"
zpool create -O compression=lz4 lived /host/d0.img
mkdir -p /lived; zfs list
write() { i=0; while [ $i -lt $2 ]; do head -c $3 /dev/urandom >$1/f$i; i=$((i+1)); done; }
zfs create lived/a; zfs create -o recordsize=1M lived/big; zfs create -o recordsize=4k lived/small
zfs create -o compression=zstd lived/zstd; zfs create -o compression=gzip-9 -o copies=2 lived/gzip
zfs create -o dnodesize=auto -o xattr=sa lived/dn
write /lived/a 60 70000; write /lived/big 3 5000000; write /lived/small 10 300000
zfs snapshot -r lived@one
i=0; while [ $i -lt 2000 ]; do echo file $i >/lived/a/s$i; i=$((i+1)); done
dd if=/dev/zero of=/lived/a/sparse bs=1 count=1 seek=100000000 2>/dev/null
yes compressible text | head -c 9000000 >/lived/zstd/text; cp /lived/zstd/text /lived/gzip/text
head -c 3000000 /dev/urandom >/lived/dn/x; sync
zfs snapshot -r lived@two
rm /lived/a/f1* /lived/big/f1; write /lived/a 5 999
zfs clone lived/a@one lived/clone; rm /lived/clone/f2; write /lived/clone 3 200000
zfs create -V 32M lived/vol; sleep 1
[ -e /dev/zd0 ] && dd if=/dev/urandom of=/dev/zd0 bs=64k count=100 2>/dev/null
zfs create -o dedup=on lived/dd; cp /lived/a/f20 /lived/dd/1; cp /lived/a/f20 /lived/dd/2
cp /lived/a/f20 /lived/dd/3; sync
echo passphrase | zfs create -o encryption=on -o keyformat=passphrase lived/secret
write /lived/secret 10 50000; zfs snapshot lived/secret@s
zfs destroy lived/big@one; zfs snapshot lived/a@three; zfs destroy lived/a@two
zfs promote lived/clone; rm -r /lived/small/f3; zpool sync
zpool export lived
";

const GANGS_AND_LOG: &str = r"
p=/sys/module/zfs/parameters
zpool create -O compression=off gangs /host/d0.img
zfs create gangs/a; zfs create gangs/b
head -c 6000000 /dev/urandom >/gangs/a/plain; zpool sync
echo 20000 >$p/metaslab_force_ganging
[ -e $p/metaslab_force_ganging_pct ] && echo 100 >$p/metaslab_force_ganging_pct
head -c 6000000 /dev/urandom >/gangs/a/ganged
dd if=/dev/urandom of=/gangs/b/x bs=128k count=100 2>/dev/null; zpool sync
zfs snapshot gangs/a@s; head -c 2000000 /dev/urandom >/gangs/a/more; zpool sync
echo 16777217 >$p/metaslab_force_ganging
dd if=/dev/urandom of=/gangs/b/first bs=10000 count=1 conv=fsync; zpool sync
zpool freeze gangs
i=0; while [ $i -lt 20 ]; do dd if=/dev/urandom of=/gangs/b/log$i bs=10000 count=5 conv=fsync 2>/dev/null
  i=$((i+1)); done
dd if=/dev/urandom of=/gangs/b/large bs=128k count=8 conv=fsync 2>/dev/null
";

/// After the crash: claims the log, and exits without replaying it.
const CLAIM: &str = r"
zpool import -f -N -d /host gangs
zpool export gangs
";

const MIRROR: &str = r"
zpool create -O compression=lz4 twosides mirror /host/d0.img /host/d1.img
head -c 90000000 /dev/urandom >/twosides/data
zfs create twosides/fs; i=0; while [ $i -lt 3000 ]; do echo $i >/twosides/fs/$i; i=$((i+1)); done
zfs snapshot twosides/fs@s
zpool export twosides
";

/// An allocator without any space, for a pool that is only read.
struct NoSpace;

impl Allocator for NoSpace {
    fn allocate(&self, _: Txg, _: AllocClass, _: u64, _: usize, _: &Hint) -> Result<DvaSet> {
        panic!("nothing is written")
    }
    fn free(&self, _: Txg, _: Txg, _: &DvaPhys) {}
    fn unallocate(&self, _: Txg, _: &DvaPhys) {}
    fn claim(&self, _: Txg, _: &DvaPhys) -> Result<()> {
        Ok(())
    }
    fn min_alloc(&self) -> u64 {
        512
    }
}

/// Opens the pool on the images of a folder, read-only, whatever features it uses: the checker can
/// walk pools that an import refuses (encrypted datasets, dedup).
pub(crate) fn open_pool(folder: &Path) -> Pool {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|e| e.expect("an entry").path())
        .collect();
    files.sort();
    let open = |path: &PathBuf| -> Arc<dyn Provider> {
        geom::disk::open(path, OpenMode::ReadOnly).expect("an image")
    };
    let providers: Vec<Arc<dyn Provider>> = files.iter().map(open).collect();
    let found = vdev::import::discover(&providers);
    let found = found.pools.first().expect("a pool");
    let uberblock = found.uberblock.expect("an uberblock");
    let tree = found.open(&found.config, false).expect("a tree");
    let pipeline = pipeline(&tree, [0; 32]);
    let mos = open_mos(&pipeline, &uberblock.rootbp);
    let directory = zap::Zap::open(&mos, ObjectId(pool_names::POOL_DIRECTORY_OBJECT));
    let directory = directory.expect("the pool directory");
    let salt = directory
        .lookup::<u8>(pool_names::CHECKSUM_SALT)
        .expect("readable");
    let salt = salt.and_then(|s| s.try_into().ok()).unwrap_or([0; 32]);
    let config = mos_config(&mos, &directory);
    let tree = found.open(&config, false).expect("a tree");
    let tops = tree
        .tops()
        .iter()
        .enumerate()
        .map(|(i, top)| TopVdev::of(VdevId(i as u64), top))
        .collect();
    Pool::new(pipeline_of(&tree, salt), &uberblock, tops)
}

fn pipeline(tree: &Arc<VdevTree>, salt: [u8; 32]) -> Arc<Pipeline> {
    pipeline_of(tree, salt)
}

fn pipeline_of(tree: &Arc<VdevTree>, salt: [u8; 32]) -> Arc<Pipeline> {
    let settings = PipelineSettings {
        salt,
        heal: false,
        ..PipelineSettings::default()
    };
    Arc::new(Pipeline::new(tree.clone(), Arc::new(NoSpace), settings))
}

fn open_mos(pipeline: &Arc<Pipeline>, root: &phys::BlkPtrPhys) -> Arc<Objset> {
    let store: Arc<dyn BlockStore> = pipeline.clone();
    let accounting = Arc::new(FreeAtOnce(store.clone()));
    Objset::open(store, ObjsetId(0), root, ObjsetProps::mos(), accounting).expect("the MOS")
}

fn mos_config(mos: &Arc<Objset>, directory: &zap::Zap) -> NvList {
    let object = directory
        .lookup_u64(pool_names::CONFIG)
        .expect("readable")
        .expect("config");
    let dnode = mos.hold(ObjectId(object)).expect("the config object");
    let size = dnode
        .bonus()
        .first_chunk::<8>()
        .map(|b| u64::from_le_bytes(*b));
    let mut bytes = vec![0; size.expect("a size") as usize];
    dnode.read(0, &mut bytes).expect("the config");
    nvpair::decode(&bytes).expect("an nvlist")
}
