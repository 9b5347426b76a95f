//! How long small writes to one file take, on a pool in memory.

use std::io::Write;
use std::sync::Arc;

use geom::Provider;
use ram::Memory;
use torture::pool::{self, Layout};
use zpl::mount::{init, mount};
use zpl::{Create, NewFilesystem};

const BLOCK_BYTES: usize = 4096;
const FILE_BLOCKS: u64 = 4096;
const WRITES: u64 = 100_000;

fn main() {
    let disk: Arc<dyn Provider> = Arc::new(Memory::new("/disk0", 1 << 30));
    let root = init(NewFilesystem::default(), true);
    let settings = spa::Settings::default();
    let spa = pool::create_with("tank", Layout::Stripe, 12, &[disk], root, settings).unwrap();
    pool::create_fs(&spa, "tank/fs", &[("recordsize", BLOCK_BYTES as u64)]).unwrap();
    let fs = mount(spa.parts().dsl(), "tank/fs", false).unwrap();
    let file = fs
        .create_file(fs.root(), b"file", &Create::default())
        .unwrap();
    let mut data = [7; BLOCK_BYTES];
    for round in 0..5 {
        let start_ns = rt::now_ns();
        for at in 0..WRITES {
            data[..8].copy_from_slice(&at.to_le_bytes());
            let block = at.wrapping_mul(2_654_435_761) % FILE_BLOCKS;
            fs.write(file.id, block * BLOCK_BYTES as u64, &data)
                .unwrap();
        }
        let each_ns = (rt::now_ns() - start_ns) / WRITES;
        let line = format!("round {round}: {each_ns} ns a write\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
