//! Small pools, whose intent logs could take all space.

use std::sync::Arc;

use geom::Provider;
use ram::Memory;
use torture::pool::{self, Layout};
use torture::{Dice, seed};
use zpl::mount::{init, mount};
use zpl::{Create, NewFilesystem};

const DISK_BYTES: u64 = 64 << 20;
const FILE_BYTES: usize = 256 << 10;
const ROUNDS: usize = 700;

fn overwrite(layout: Layout, devices: usize, ashift: u32) {
    let disk = |n| Arc::new(Memory::new(format!("/disk{n}"), DISK_BYTES)) as Arc<dyn Provider>;
    let disks: Vec<_> = (0..devices).map(disk).collect();
    let root = init(NewFilesystem::default(), true);
    let settings = pool::settings();
    let spa = pool::create_with("tank", layout, ashift, &disks, root, settings).unwrap();
    pool::create_fs(&spa, "tank/fs", &[("compression", 2)]).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let file = fs.create_file(fs.root(), b"f", &Create::default()).unwrap();
    let mut dice = Dice::new(seed(5));
    for round in 0..ROUNDS {
        // The log blocks after a large record are large, too, whatever they then hold.
        let most = [512, 512, 512, FILE_BYTES as u64][dice.below(4) as usize];
        let len = 1 + dice.below(most - 1) as usize;
        let at = dice.below((FILE_BYTES - len) as u64 + 1);
        let written = fs.write(file.id, at, &dice.bytes(len));
        written.unwrap_or_else(|e| panic!("write {round}: {e}"));
        let logged = fs.fsync(file.id);
        logged.unwrap_or_else(|e| panic!("fsync {round}: {e}"));
    }
    drop(fs);
    spa.close().unwrap();
    pool::verify_with_zdb(&disks, "tank");
}

#[test]
fn sim_overwriting_with_fsync_finds_space() {
    rt::simulate(seed(5), || overwrite(Layout::Stripe, 1, 9));
    rt::simulate(seed(6), || overwrite(Layout::Mirror, 2, 12));
    rt::simulate(seed(7), || overwrite(Layout::Raidz(1), 3, 12));
}
