//! Things other than feature flags that make a pool read-only, and scans that other hosts left unfinished.

use std::sync::Arc;

use base::ObjectId;
use geom::Provider;
use phys::ScanPhys;
use phys::scan::{DSS_FINISHED, DSS_SCANNING, POOL_SCAN_SCRUB};
use ram::Memory;
use spa::Spa;
use torture::pool::{self, Layout};
use zap::directory;

fn new_pool() -> (Vec<Arc<dyn Provider>>, Spa) {
    let disk: Arc<dyn Provider> = Arc::new(Memory::new("/disk0", 64 << 20));
    let devices = vec![disk];
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &devices, root).unwrap();
    (devices, spa)
}

/// Another host's scan is resumed, even if its state names objects that do not exist.
#[test]
fn a_scan_that_another_host_left_unfinished_goes_on() {
    let (devices, spa) = new_pool();
    pool::in_mos(&spa, |mos, tx| {
        let queue = zap::create(mos, tx, phys::ObjectType::SCAN_QUEUE)?;
        zap::update(mos, tx, queue, "3600", &[7u64])?;
        let mut scan = ScanPhys::default();
        scan.func.set(POOL_SCAN_SCRUB);
        scan.state.set(DSS_SCANNING);
        scan.queue_obj.set(queue.0);
        scan.max_txg.set(tx.txg().0);
        let bytes = zerocopy::IntoBytes::as_bytes(&scan);
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        zap::update(mos, tx, directory::OBJECT, "scan", &words[..])
    });
    spa.export().unwrap();
    drop(spa);
    let looked = pool::open(&devices, true).unwrap();
    assert_eq!(looked.scan().unwrap().state.get(), DSS_SCANNING);
    let queue = ObjectId(looked.scan().unwrap().queue_obj.get());
    assert!(looked.parts().mos().hold(queue).is_ok());
    drop(looked);
    let spa = pool::open(&devices, false).unwrap();
    spa.wait_scan(&mut |_| true).unwrap();
    let scan = spa.scan().unwrap();
    assert_eq!((scan.state.get(), scan.queue_obj.get()), (DSS_FINISHED, 0));
    assert_eq!(scan.errors.get(), 1, "the dataset that is not there");
    assert!(spa.parts().mos().hold(queue).is_err());
    pool::assert_clean(&spa);
}
