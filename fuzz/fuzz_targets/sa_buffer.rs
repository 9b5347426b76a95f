//! Reads a file's attributes out of a bonus, and a spill block, that are the input; as SA or, as
//! the first byte picks, as an old znode.
#![no_main]

use base::{Buf, ObjectId};
use dmu::NewObject;
use libfuzzer_sys::fuzz_target;
use phys::ObjectType;
use zpl::{Filesystem, NewFilesystem, OpenOptions};

#[path = "../common/objset.rs"]
mod objset;

const SPILL_BYTES: usize = 512;

fuzz_target!(|input: &[u8]| {
    let Some((&[pick, split], bytes)) = input.split_first_chunk() else {
        return;
    };
    let (objset, tx) = objset::new();
    Filesystem::create(&objset, &tx, &NewFilesystem::default()).expect("memory");
    let bonus_type = if pick & 1 == 0 {
        ObjectType::SA
    } else {
        ObjectType::ZNODE
    };
    let content = if pick & 2 == 0 {
        ObjectType::PLAIN_FILE_CONTENTS
    } else {
        ObjectType::DIRECTORY_CONTENTS
    };
    let new = NewObject::new(content).bonus(bonus_type, 320);
    let id: ObjectId = {
        let dnode = objset.object_alloc(&tx, &new).expect("memory");
        let has_spill = pick & 4 != 0 && bonus_type == ObjectType::SA;
        let room = if has_spill { 192 } else { 320 };
        let (bonus, spill) = bytes.split_at(usize::from(split).min(bytes.len()).min(room));
        dnode.set_bonus(&tx, bonus).expect("it fits");
        if has_spill {
            let mut block = vec![0; SPILL_BYTES];
            let len = spill.len().min(SPILL_BYTES);
            block[..len].copy_from_slice(&spill[..len]);
            dnode
                .set_spill(&tx, Buf::copy_of(&block))
                .expect("it has room for one");
        }
        dnode.id()
    };
    let fs = Filesystem::open(objset, OpenOptions::default()).expect("a good file system");
    let _ = fs.getattr(id);
    let _ = fs.listxattr(id);
    let _ = fs.getxattr(id, b"user.note");
    let _ = fs.readlink(id);
});
