//! Pools of memory providers, and what the tests of this crate have in common.

mod draid;
mod expansion;
mod given_up;
mod import;
mod indirect;
mod io_counts;
mod labels;
mod mirror;
mod parity;
mod queue;
mod raidz;
mod shape;
mod striped;
mod survey;
mod zdb;

use std::sync::Arc;

use base::{Guid, Result, Txg, VdevId};
use geom::Provider;
use nvpair::NvList;
use phys::label::allocatable_size;
use phys::uberblock::{SPA_VERSION_FEATURES, UBERBLOCK_MAGIC, UberblockPhys};
use zio::{Io, Placement, Priority, Purpose, RunBlock, ScrubReport, VdevOps};

use crate::*;

/// The birth of the tests' blocks: the syncing txg.
const BIRTH: Txg = Txg(10);
/// A write of one block.
const IO: Io = Io {
    birth: BIRTH,
    priority: Priority::AsyncWrite,
    purpose: Purpose::Normal,
};

/// I/O of one block each.
trait BlockIo {
    fn write_block(&self, vdev: VdevId, offset: u64, data: &[u8]) -> Result<()>;
    fn read_block(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()>;
    fn probe_block(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()>;
    fn repair_block(&self, vdev: VdevId, offset: u64, data: &[u8]) -> Result<()>;
    fn scrub_block(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<ScrubReport>;
}

impl BlockIo for VdevTree {
    fn write_block(&self, vdev: VdevId, offset: u64, data: &[u8]) -> Result<()> {
        self.write(&IO, vdev, offset, &[data])
    }

    fn read_block(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.read(&Io::read(BIRTH), vdev, offset, buf, verify)
    }

    fn probe_block(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.read(&Io::speculative(BIRTH), vdev, offset, buf, verify)
    }

    fn repair_block(&self, vdev: VdevId, offset: u64, data: &[u8]) -> Result<()> {
        self.write(&Io::repair(BIRTH), vdev, offset, &[data])
    }

    fn scrub_block(
        &self,
        vdev: VdevId,
        offset: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<ScrubReport> {
        let range = 0..buf.len();
        let block = RunBlock {
            offset,
            range,
            birth: BIRTH,
        };
        let verify = |_: usize, bytes: &[u8]| verify(bytes);
        let mut reports = self.scrub(vdev, buf, &[block], &verify)?;
        reports.pop().unwrap()
    }
}

/// A queued provider: every command takes a simulated millisecond, many at the same time.
struct Queued(ram::Memory);

impl Provider for Queued {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn shape(&self) -> geom::Shape {
        geom::Shape {
            is_queued: true,
            ..self.0.shape()
        }
    }
    fn submit(&self, bio: geom::Bio) {
        let geom::Bio { op, offset, done } = bio;
        let inner = match op {
            geom::BioOp::Write(bytes) => self.0.write(offset, &bytes).map(|()| geom::BioData::None),
            geom::BioOp::Read { len } => {
                let mut bytes = base::BlockBuf::scratch(len);
                self.0
                    .read(offset, &mut bytes)
                    .map(|()| geom::BioData::Read(bytes))
            }
            _ => Ok(geom::BioData::None),
        };
        drop(rt::spawn("queued", move || {
            rt::sleep_ns(1_000_000);
            done(inner);
        }));
    }
}

/// The smallest device.
const DISK_BYTES: u64 = 64 << 20;

fn pool() -> PoolConfig {
    PoolConfig {
        version: 5000,
        name: "tank".into(),
        state: PoolState::Active,
        guid: Guid(0x7a6e_0001),
        errata: 0,
        comment: None,
        compatibility: None,
        hostid: 0xa5a5,
        hostname: "here".into(),
        features_for_read: NvList::new(),
        split_list: Vec::new(),
        split_from: None,
    }
}

fn uberblock(txg: u64) -> UberblockPhys {
    let mut ub = UberblockPhys::default();
    ub.magic.set(UBERBLOCK_MAGIC);
    ub.version.set(SPA_VERSION_FEATURES);
    ub.txg.set(txg);
    ub.timestamp.set(1_767_225_600 + txg);
    ub.software_version.set(SPA_VERSION_FEATURES);
    ub
}

fn leaf(guid: u64, provider: Arc<dyn Provider>) -> Arc<Vdev> {
    let config = VdevConfig {
        path: Some(provider.name().into()),
        ..VdevConfig::default()
    };
    let vdev = Vdev::new(VdevKind::File, Guid(guid), config, Vec::new());
    vdev.leaf().open(provider).unwrap();
    vdev
}

/// Sets what the config of a top-level vdev needs.
fn as_top(vdev: Arc<Vdev>, ashift: u32) -> Arc<Vdev> {
    let sizes = vdev
        .devices()
        .into_iter()
        .map(|device| device.leaf().psize());
    let asize = allocatable_size(sizes.min().unwrap());
    vdev.update(|config| {
        config.asize = asize;
        config.ashift = ashift;
        config.ms_shift = metaslab_shift(asize);
        config.ms_array = 256;
        config.create_txg = 4;
    });
    vdev
}

fn mirror(guid: u64, leaves: Vec<Arc<Vdev>>) -> Arc<Vdev> {
    as_top(
        Vdev::new(VdevKind::Mirror, Guid(guid), VdevConfig::default(), leaves),
        12,
    )
}

fn tree(tops: Vec<Arc<Vdev>>) -> Arc<VdevTree> {
    let tree = VdevTree::new(Vdev::new(
        VdevKind::Root,
        pool().guid,
        VdevConfig::default(),
        tops,
    ));
    tree.set_syncing_txg(Txg(10));
    tree
}

/// A mirror of providers as the only top-level vdev; leaves have the guids 101, 102, ...
fn mirror_tree(providers: &[Arc<dyn Provider>]) -> Arc<VdevTree> {
    let leaves = providers
        .iter()
        .zip(101..)
        .map(|(p, guid)| leaf(guid, p.clone()))
        .collect();
    tree(vec![mirror(100, leaves)])
}

fn all_tops(tree: &VdevTree) -> Vec<VdevId> {
    (0..tree.tops().len() as u64).map(VdevId).collect()
}

/// The DTL of a leaf.
fn gaps(vdev: &Vdev) -> Vec<(u64, u64)> {
    vdev.leaf()
        .dtl()
        .ranges()
        .iter()
        .map(|range| (range.start, range.end))
        .collect()
}

/// Syncs labels and uberblock of a txg.
fn sync(tree: &VdevTree, txg: u64) -> base::Result<()> {
    let mut ub = uberblock(txg);
    ub.guid_sum.set(tree.guid_sum());
    tree.sync_labels(&LabelSync {
        pool: &pool(),
        txg: Txg(txg),
        uberblock: &ub,
        dirty: &all_tops(tree),
        multihost: false,
    })
}

#[test]
fn configs_survive_a_round_trip() {
    let disks: Vec<_> = (0..3)
        .map(|n| Arc::new(ram::Memory::new(format!("/md{n}"), DISK_BYTES)) as Arc<dyn Provider>)
        .collect();
    let pair = Vdev::new(
        VdevKind::Replacing,
        Guid(7),
        VdevConfig::default(),
        vec![leaf(1, disks[0].clone()), leaf(2, disks[1].clone())],
    );
    let top = mirror(8, vec![pair, leaf(3, disks[2].clone())]);
    top.update(|config| {
        config.top_zap = 129;
        config.is_log = true;
        config.removing = true;
    });
    let device = top.find(Guid(2)).unwrap();
    device.update(|config| {
        config.whole_disk = Some(true);
        config.leaf_zap = 130;
        config.dtl_object = 5;
        config.devid = Some("ata-x".into());
    });
    let hole = Vdev::new(VdevKind::Hole, Guid(0), VdevConfig::default(), Vec::new());
    let tree = tree(vec![hole, top]);
    device.leaf().set_state(VdevState::Offline, VdevAux::None);
    device.update(|config| config.offline = true);
    for target in [Target::Mos, Target::Label] {
        let nv = tree.root().generate_config(0, 0, target);
        let packed = nvpair::encode_xdr(&nv);
        let parsed = Vdev::from_config(&nvpair::decode(&packed).unwrap()).unwrap();
        assert_eq!(parsed.generate_config(0, 0, target), nv);
        assert_eq!(parsed.find(Guid(2)).unwrap().state().0, VdevState::Offline);
        assert_eq!(parsed.guid_sum(), tree.guid_sum());
    }
    let config = tree.pool_config(&pool(), 11);
    assert_eq!(config.get_u64s("hole_array"), Some(&[0][..]));
    assert_eq!(config.get_u64("vdev_children"), Some(2));
}

#[test]
fn senseless_configs_are_refused() {
    let good = NvList::new()
        .with("type", "disk")
        .with("id", 0u64)
        .with("guid", 5u64);
    assert!(Vdev::from_config(&good).is_ok());
    let parent = |child: NvList| {
        NvList::new()
            .with("type", "mirror")
            .with("guid", 1u64)
            .with("children", vec![child])
    };
    let cases = [
        (NvList::new(), "without type"),
        (NvList::new().with("type", "disk"), "without guid"),
        (good.clone().with("type", "tape"), "\"tape\""),
        (good.clone().with("ashift", 64u64), "ashift is 64"),
        (
            good.clone().with("metaslab_shift", 1u64 << 40),
            "metaslab_shift",
        ),
        (
            good.clone().with("children", vec![good.clone()]),
            "with children",
        ),
        (
            good.clone().with("type", "raidz").with("nparity", 4u64),
            "nparity 4",
        ),
        (
            parent(good.clone().with("id", 3u64)),
            "child 0 has id Some(3)",
        ),
        (
            (0..9).fold(good, |child, _| parent(child).with("id", 0u64)),
            "deeper",
        ),
    ];
    for (nv, expect) in cases {
        let error = Vdev::from_config(&nv).unwrap_err();
        assert!(error.to_string().contains(expect), "{error} lacks {expect}");
    }
}
