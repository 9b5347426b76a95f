//! Bodies of fuzz targets: each takes arbitrary bytes and must return.

use crate::{
    BlkPtrPhys, BootEnvPhys, BpobjPhys, BptreeEntryPhys, BptreePhys, BrtVdevPhys, DeadlistPhys,
    DnodePhys, DnodeView, DslBookmarkPhys, DslDatasetPhys, DslDirPhys, ErrorScrubPhys,
    GangHeaderPhys, HistoryPhys, MzapEntPhys, MzapPhys, ObjectType, ObjsetPhys, Phys, ScanPhys,
    SpaceMapPhys, UberblockPhys, ZapLeafPhys, ZapPhys, ZilChainPhys, ZilHeaderPhys, ZnodePhys,
    byteswap, sa, space_map, zil, znode,
};

/// Reads `bytes` as every structure and iterates over every list of entries.
pub fn phys_all(bytes: &[u8]) {
    byteswap_all(bytes);
    same::<BootEnvPhys>(bytes);
    same::<BpobjPhys>(bytes);
    same::<BptreeEntryPhys>(bytes);
    same::<BptreePhys>(bytes);
    same::<BrtVdevPhys>(bytes);
    same::<DeadlistPhys>(bytes);
    same::<DnodePhys>(bytes);
    same::<DslBookmarkPhys>(bytes);
    same::<DslDatasetPhys>(bytes);
    same::<DslDirPhys>(bytes);
    same::<ErrorScrubPhys>(bytes);
    same::<GangHeaderPhys>(bytes);
    same::<HistoryPhys>(bytes);
    same::<MzapEntPhys>(bytes);
    same::<MzapPhys>(bytes);
    same::<ScanPhys>(bytes);
    same::<SpaceMapPhys>(bytes);
    same::<ZapLeafPhys>(bytes);
    same::<ZapPhys>(bytes);
    same::<ZilChainPhys>(bytes);
    same::<ZilHeaderPhys>(bytes);
    same::<ZnodePhys>(bytes);
    for bp in BlkPtrPhys::array(bytes) {
        blkptr(bp);
    }
    if let Ok(dnode) = DnodeView::new(bytes) {
        assert_eq!(
            dnode.blkptrs().len(),
            usize::from(dnode.core().whole_blkptrs())
        );
        let _ = (dnode.bonus(), dnode.spill(), format!("{dnode:?}"));
    }
    if let Ok(objset) = ObjsetPhys::parse(bytes) {
        assert_eq!(objset.form(bytes.len()), bytes);
    }
    if let Ok(ub) = UberblockPhys::parse(bytes) {
        let _ = (
            ub.rank(),
            ub.mmp_interval_ms(),
            ub.mmp_fail_intervals(),
            ub.reflow_offset(),
        );
    }
    if let Ok(view) = sa::SaView::new(bytes) {
        let _ = (
            view.layout(),
            view.length(0),
            view.length(1000),
            view.values(),
        );
    }
    space_map::entries(bytes).for_each(drop);
    zil::records(bytes).for_each(drop);
    znode::aces(bytes).for_each(drop);
}

/// Checks that a structure reads and writes all its bytes.
fn same<T: Phys>(bytes: &[u8]) {
    match T::read(bytes) {
        Ok(value) => assert_eq!(Some(value.as_bytes()), bytes.get(..T::SIZE)),
        Err(_) => assert!(bytes.len() < T::SIZE),
    }
}

fn blkptr(bp: &BlkPtrPhys) {
    let _ = bp.to_string();
    let _ = (
        bp.lsize(),
        bp.psize(),
        bp.asize(),
        bp.fill(),
        bp.iv2(),
        bp.ndvas(),
    );
    let _ = (
        bp.is_metadata(),
        bp.is_redacted(),
        bp.is_gang(),
        bp.allocation_birth(),
    );
    let _ = (
        bp.embedded_payload(),
        bp.checksum(),
        bp.compress(),
        bp.cksum_words(),
    );
}

/// Converts `bytes` as the block of each type of object, and as attributes.
fn byteswap_all(bytes: &[u8]) {
    let mut swapped = bytes.to_vec();
    for type_ in (0..=u8::MAX).filter_map(|raw| ObjectType::try_from(raw).ok()) {
        byteswap::swap_block(type_, 0, &mut swapped);
    }
    byteswap::swap_block(ObjectType::DNODE, 1, &mut swapped);
    byteswap::swap_log_block(true, &mut swapped);
    byteswap::swap_log_block(false, &mut swapped);
    byteswap::swap_sa_header(&mut swapped);
    byteswap::swap_attribute(sa::SaBswap::Acl, &mut swapped);
    assert_eq!(swapped.len(), bytes.len());
}
