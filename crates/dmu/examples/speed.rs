//! How long the common operations take, on a store in memory.

#[path = "../tests/rig/mod.rs"]
mod rig;

use std::io::Write;

use base::{BlkId, Buf, ObjectId, ObjsetId};
use dmu::{NewObject, ObjsetProps, TxgSettings};
use phys::ObjectType;

fn timed<R>(what: &str, count: u64, f: impl FnOnce() -> R) -> R {
    let start_ns = rt::now_ns();
    let result = f();
    let took_ns = rt::now_ns() - start_ns;
    let each = took_ns as f64 / count as f64 / 1000.0;
    let line = format!(
        "{what:16} {:>10.3} ms {each:>10.3} us each\n",
        took_ns as f64 / 1e6
    );
    std::io::stdout()
        .write_all(line.as_bytes())
        .expect("standard output");
    result
}

fn main() {
    let settings = TxgSettings {
        dirty_data_max: 8 << 30,
        ..TxgSettings::default()
    };
    let pool = rig::Pool::new(ObjsetId(54), ObjsetProps::default(), settings);
    let objset = pool.objset();
    let new = NewObject::new(ObjectType::PLAIN_FILE_CONTENTS).bonus(ObjectType::SA, 0);
    let count = 50_000;
    let ids: Vec<ObjectId> = timed("create", count, || {
        (0..count)
            .map(|_| {
                let tx = pool.hold();
                let dnode = objset.object_alloc(&tx, &new).unwrap();
                dnode.set_bonus(&tx, &[1; 168]).unwrap();
                dnode.id()
            })
            .collect()
    });
    timed("sync", count, || pool.sync());
    timed("hold", count, || {
        ids.iter().for_each(|id| drop(objset.hold(*id).unwrap()));
    });
    timed("next_object", count, || {
        let mut at = ObjectId(0);
        while let Some(next) = objset.next_object(at).unwrap() {
            at = next;
        }
    });
    timed("free", count, || {
        ids.iter()
            .for_each(|id| objset.object_free(&pool.hold(), *id).unwrap());
    });
    timed("sync", count, || pool.sync());
    let dnode = objset
        .object_alloc(&pool.hold(), &new.clone().blksz(131_072))
        .unwrap();
    let data = vec![7u8; 131_072];
    let blocks = 4096;
    timed("write 128 KiB", blocks, || {
        for blk in 0..blocks {
            dnode.write(&pool.hold(), blk << 17, &data).unwrap();
        }
    });
    timed("sync", blocks, || pool.sync());
    timed("write_block", blocks, || {
        let buf = Buf::copy_of(&data);
        for blk in 0..blocks {
            dnode
                .write_block(&pool.hold(), BlkId(blk), buf.clone())
                .unwrap();
        }
    });
    timed("sync", blocks, || pool.sync());
    let mut out = vec![0; 1 << 20];
    timed("read 1 MiB", blocks / 8, || {
        for at in 0..blocks / 8 {
            dnode.read(at << 20, &mut out).unwrap();
        }
    });
    timed("read 4 KiB", blocks * 32, || {
        for at in 0..blocks * 32 {
            dnode.read(at << 12, &mut out[..4096]).unwrap();
        }
    });
    timed("write 4 KiB", blocks * 32, || {
        for at in 0..blocks * 32 {
            dnode.write(&pool.hold(), at << 12, &data[..4096]).unwrap();
        }
    });
    pool.stop();
}
