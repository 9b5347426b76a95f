//! Blocks of a pool made by ztest 2.3, extracted with `zdb -R`, compared with `zdb`'s output on them.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use base::{Txg, VdevId};
use phys::label::{EckPhys, ZEC_MAGIC};
use phys::space_map::{MapType, SpaceMapEntry, SpaceMapRange, entries};
use phys::zap::{
    CHAIN_END, ZAP_CHUNK_ARRAY, ZAP_CHUNK_ENTRY, ZAP_LEAF_MAGIC, ZAP_MAGIC, ZBT_HEADER, ZBT_LEAF,
    ZapLeafArrayPhys, ZapLeafEntryPhys, ZapLeafLayout,
};
use phys::{
    BlkPtrPhys, DnodePhys, DnodeView, ObjectType, ObjsetPhys, ObjsetType, Phys, SpaceMapPhys,
    UberblockPhys, ZapLeafPhys, ZapPhys, pool_names,
};

const UBERBLOCK: &[u8] = include_bytes!("real/uberblock");
const MOS_OBJSET: &[u8] = include_bytes!("real/mos_objset");
const MOS_DNODES: &[u8] = include_bytes!("real/mos_dnodes");
const DIRECTORY: [&[u8]; 2] = [
    include_bytes!("real/directory_0"),
    include_bytes!("real/directory_1"),
];
const SPACE_MAP_DNODE: &[u8] = include_bytes!("real/space_map_dnode");
const SPACE_MAP: &[u8] = include_bytes!("real/space_map");

/// `zdb -lu`
const ROOTBP: &str = "DVA[0]=<2:1800e400:400> DVA[1]=<2:1c00e400:400> DVA[2]=<2:2000e400:400> \
    [L0 DMU objset] fletcher4 lz4 unencrypted LE contiguous unique triple size=1000L/200P \
    birth=213L/213P fill=200 \
    cksum=00000009f60a1d8a:00000406ef2bbf4f:0000d3f7c5a4c4c2:001d908faf8d9ee3";

#[test]
fn uberblock_says_what_zdb_says() {
    let ub = UberblockPhys::parse(UBERBLOCK).unwrap();
    assert_eq!((ub.version.get(), ub.txg()), (5000, Txg(213)));
    assert_eq!(ub.guid_sum.get(), 15_607_623_094_633_138_635);
    assert_eq!(ub.timestamp.get(), 1_795_247_785);
    assert_eq!(ub.rootbp.to_string(), ROOTBP);
    assert_eq!((ub.mmp_interval_ms(), ub.reflow_state()), (None, 0));
    let eck = EckPhys::read(&UBERBLOCK[UBERBLOCK.len() - 40..]).unwrap();
    assert_eq!(eck.magic.get(), ZEC_MAGIC);
}

#[test]
fn objset_has_a_meta_dnode() {
    let objset = ObjsetPhys::parse(MOS_OBJSET).unwrap();
    assert_eq!(objset.objset_type().unwrap(), ObjsetType::Meta);
    assert_eq!(objset.form(4096), MOS_OBJSET);
    let bytes = &MOS_OBJSET[..512];
    let meta = DnodeView::new(bytes).unwrap();
    assert_eq!(meta.core().type_, ObjectType::DNODE.raw());
    assert_eq!((meta.core().nlevels, meta.core().indblkshift), (2, 17));
    assert_eq!(
        (meta.core().datablksz(), meta.core().maxblkid.get()),
        (16384, 9)
    );
    assert!(meta.blkptrs()[1].is_hole());
    assert_eq!(
        (meta.blkptrs()[0].fill(), meta.blkptrs()[0].level()),
        (200, 1)
    );
    // Accounting objects are not in the MOS.
    assert!(!objset.userused_dnode.core.is_allocated());
}

#[test]
fn dnodes_are_what_zdb_lists() {
    // object, levels, block size, used, type
    let expect = [
        (1, 1, 16384, 15_872, "object directory"),
        (2, 2, 16384, 18_432, "zap"),
        (3, 1, 512, 0, "DSL props"),
        (7, 1, 512, 0, "DSL deadlist map"),
        (8, 1, 131_072, 0, "bpobj"),
        (9, 1, 16384, 15_872, "zap"),
        (10, 1, 131_072, 4608, "SPA space map"),
        (27, 1, 131_072, 0, "SPA space map"),
    ];
    for (object, levels, block_size, used, name) in expect {
        let dnode = DnodeView::new(&MOS_DNODES[object * 512..]).unwrap();
        let core = dnode.core();
        assert_eq!(
            (core.nlevels, core.datablksz()),
            (levels, block_size),
            "object {object}"
        );
        // zdb rounds to sectors: dmu_object_info_from_dnode
        assert_eq!(
            (core.used_bytes() + 256) / 512 * 512,
            used,
            "object {object}"
        );
        assert_eq!(ObjectType::try_from(core.type_).unwrap().name(), name);
    }
    // Object 0 is in the objset, so its slot here is empty. All others can be viewed.
    let mut object = 0;
    while object < 32 {
        let bytes = &MOS_DNODES[object * 512..];
        let core = DnodePhys::view(bytes).unwrap();
        assert_eq!(core.is_allocated(), object != 0);
        if core.is_allocated() {
            DnodeView::new(bytes).unwrap();
        }
        object += core.slots();
    }
}

#[test]
fn small_objects_are_embedded_in_their_pointers() {
    let props = DnodeView::new(&MOS_DNODES[3 * 512..]).unwrap();
    let bp: &BlkPtrPhys = &props.blkptrs()[0];
    assert!(bp.is_embedded());
    assert_eq!(
        (bp.lsize(), bp.psize(), bp.asize(), bp.fill()),
        (512, 0, 0, 1)
    );
    assert_eq!(
        bp.embedded_payload().unwrap().len() as u64,
        bp.embedded_psize()
    );
}

#[test]
fn pool_directory_is_a_fat_zap() {
    let header = ZapPhys::view(DIRECTORY[0]).unwrap();
    assert_eq!(
        (header.block_type.get(), header.magic.get()),
        (ZBT_HEADER, ZAP_MAGIC)
    );
    assert_eq!((header.num_entries.get(), header.num_leafs.get()), (22, 1));
    assert_eq!(
        (header.salt.get(), header.ptrtbl.shift.get()),
        (0x1afa3, 10)
    );
    let layout = ZapLeafLayout::new(14);
    let pointer = layout.embedded_ptrtbl_offset(1023);
    assert_eq!(DIRECTORY[0][pointer..pointer + 8], [1, 0, 0, 0, 0, 0, 0, 0]);

    let leaf = ZapLeafPhys::view(DIRECTORY[1]).unwrap();
    assert_eq!(
        (leaf.block_type.get(), leaf.magic.get()),
        (ZBT_LEAF, ZAP_LEAF_MAGIC)
    );
    let names = leaf_names(DIRECTORY[1], layout);
    assert_eq!(names.len(), usize::from(leaf.nentries.get()));
    assert_eq!(names.len(), 22);
    for name in [
        pool_names::CONFIG,
        pool_names::ROOT_DATASET,
        pool_names::CHECKSUM_SALT,
    ] {
        assert!(names.iter().any(|n| n == name), "{name}");
    }
}

fn leaf_names(leaf: &[u8], layout: ZapLeafLayout) -> Vec<String> {
    let chunk = |index: usize| &leaf[layout.chunk_offset(index).unwrap()..];
    let entries = (0..layout.chunks()).filter(|&i| chunk(i)[0] == ZAP_CHUNK_ENTRY);
    let mut names = Vec::new();
    for index in entries {
        let entry = ZapLeafEntryPhys::view(chunk(index)).unwrap();
        let mut name = Vec::new();
        let mut next = entry.name_chunk.get();
        while next != CHAIN_END {
            let array = ZapLeafArrayPhys::view(chunk(usize::from(next))).unwrap();
            assert_eq!(array.type_, ZAP_CHUNK_ARRAY);
            name.extend_from_slice(&array.array);
            next = array.next.get();
        }
        name.truncate(usize::from(entry.name_numints.get()));
        assert_eq!(name.pop(), Some(0), "names end with NUL");
        names.push(String::from_utf8(name).unwrap());
    }
    names
}

#[test]
fn space_map_entries_are_what_zdb_lists() {
    let dnode = DnodeView::new(SPACE_MAP_DNODE).unwrap();
    let bonus = SpaceMapPhys::read(dnode.bonus()).unwrap();
    assert_eq!((bonus.length.get(), bonus.alloc.get()), (0x60, 0x3000));
    assert_eq!([1, 2, 16].map(|i| bonus.histogram[i].get()), [2, 1, 1]);
    let debug = |action, txg| SpaceMapEntry::Debug {
        action,
        sync_pass: 1,
        txg: Txg(txg),
    };
    let range = |map_type, start: u64, end: u64| {
        let (offset, run) = (start / 512, (end - start) / 512);
        SpaceMapEntry::Range(SpaceMapRange {
            map_type,
            vdev: None::<VdevId>,
            offset,
            run,
        })
    };
    let expect = [
        debug(MapType::Alloc, 6),
        range(MapType::Alloc, 0, 0x1800),
        range(MapType::Alloc, 0x1c00, 0x6400),
        range(MapType::Alloc, 0x6800, 0xa400),
        debug(MapType::Free, 9),
        range(MapType::Free, 0x400, 0xc00),
        range(MapType::Free, 0x4800, 0x6400),
        range(MapType::Free, 0x6800, 0xa400),
        debug(MapType::Free, 76),
        range(MapType::Free, 0x4000, 0x4800),
        debug(MapType::Free, 126),
        range(MapType::Free, 0xc00, 0x1000),
    ];
    let decoded: Vec<_> = entries(SPACE_MAP).map(Result::unwrap).collect();
    assert_eq!(decoded, expect);
}
