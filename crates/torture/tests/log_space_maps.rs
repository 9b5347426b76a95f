//! A pool that OpenZFS left with log space maps: it opens for writing and takes the logs over, and no power cut
//! meanwhile loses space or allocates it twice.

use std::sync::Arc;

use faulty::PowerCut;
use geom::Provider;
use phys::pool_names::LOG_SPACEMAP_ZAP;
use spa::Spa;
use torture::cuts;
use torture::golden::{self, golden};
use torture::pool;
use zap::directory;
use zpl::Create;
use zpl::mount::mount;

const NAME: &str = "openzfs-2.3.2-log";
/// Power cuts in the ordinary run; `CUTS=all` tries every one.
const CUTS: u64 = 15;
/// The files of the pool: object numbers and sizes in bytes.
const FILES: [(u64, usize); 2] = [(5, 1_000_000), (6, 1_200_000)];

fn logs(spa: &Spa) -> usize {
    let zap = directory::get(spa.parts().mos(), LOG_SPACEMAP_ZAP).unwrap();
    zap::iter(spa.parts().mos(), zap).unwrap().count()
}

fn assert_files(spa: &Spa) {
    let fs = mount(spa.parts().dsl(), "tank", true).unwrap();
    for (number, size) in FILES {
        let file = fs.resolve(format!("f{number}")).unwrap();
        let mut bytes = vec![0; size + 1];
        assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), size);
        let line = format!("line of file {number}\n");
        let expected = line.bytes().cycle().take(size);
        assert!(bytes[..size].iter().copied().eq(expected), "f{number}");
    }
}

/// Writes and removes files, and exports the pool.
fn work(spa: &Spa) {
    let fs = mount(spa.parts().dsl(), "tank", false).unwrap();
    for n in 0..3u8 {
        let name = format!("new{n}");
        let file = fs.create_file(fs.root(), name.as_bytes(), &Create::default());
        fs.write(file.unwrap().id, 0, &vec![n; 500_000]).unwrap();
        spa.sync().unwrap();
    }
    fs.unlink(fs.root(), b"new1").unwrap();
    drop(fs);
    spa.export().unwrap();
}

#[test]
fn logs_are_taken_over_by_the_first_writer() {
    let disk = golden(NAME);
    let devices = [disk];
    let spa = pool::open(&devices, true).unwrap();
    assert!(logs(&spa) > 2, "{} logs", logs(&spa));
    pool::assert_clean(&spa);
    assert_files(&spa);
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    assert!(!spa.is_readonly(), "{:?}", spa.obstacles());
    assert_eq!(logs(&spa), 0);
    pool::assert_clean(&spa);
    work(&spa);
    drop(spa);
    let spa = pool::open(&devices, false).unwrap();
    assert_eq!(logs(&spa), 0);
    pool::assert_clean(&spa);
    assert_files(&spa);
}

#[test]
fn sim_power_cuts_while_logs_are_taken_over() {
    rt::simulate(1, || {
        let bytes = golden::bytes(NAME);
        let disk = Arc::new(PowerCut::new("/disk", bytes.len() as u64));
        golden::fill(&*disk, &bytes);
        disk.flush().unwrap();
        disk.forget();
        let first = disk.supply().commands();
        let spa = pool::open(&[disk.clone() as Arc<dyn Provider>], false).unwrap();
        work(&spa);
        drop(spa);
        let last = disk.supply().commands();
        for n in cuts::sample(first..=last, CUTS) {
            let image: Arc<dyn Provider> = Arc::new(disk.image_after(n, n));
            let spa = pool::open(&[image], false).unwrap_or_else(|e| panic!("cut after {n}: {e}"));
            let report = pool::verify(&spa).unwrap();
            assert!(report.is_clean(), "cut after {n}: {:#?}", report.findings);
            assert_eq!(logs(&spa), 0);
            assert_files(&spa);
        }
    });
}
