//! The pool's error log with `head_errlog`, as data sets come and go: what OpenZFS logged about them follows.

use std::sync::Arc;

use base::ObjectId;
use geom::Provider;
use geom::mem::Memory;
use phys::ObjectType;
use phys::pool_names::ERRLOG_LAST;
use spa::Spa;
use torture::pool::{self, Layout};
use zap::directory;

fn object(spa: &Spa, name: &str) -> u64 {
    spa.dsl().dataset(name).unwrap().object().0
}

/// The names of what is logged about a head; nothing if there is no log of it.
fn logged(spa: &Spa, head: u64) -> Option<Vec<String>> {
    let log = directory::get(spa.mos(), ERRLOG_LAST).unwrap();
    let errors = zap::lookup_u64(spa.mos(), log, &*format!("{head:x}")).unwrap()?;
    let entries = zap::iter(spa.mos(), ObjectId(errors)).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().name_str().into_owned())
        .collect();
    names.sort();
    Some(names)
}

#[test]
fn errors_follow_a_promotion_and_go_with_their_head() {
    let disk: Arc<dyn Provider> = Arc::new(Memory::new("/disk0", 64 << 20));
    let root = zpl::mount::init(zpl::NewFilesystem::default(), true);
    let spa = pool::create("tank", Layout::Stripe, 9, &[disk], root).unwrap();
    pool::create_fs(&spa, "tank/a", &[]).unwrap();
    spa.sync().unwrap();
    spa.dsl().snapshot(&["tank/a@s"], Vec::new()).unwrap();
    let branch = spa.dsl().dataset("tank/a@s").unwrap().fields().creation_txg;
    spa.dsl()
        .clone_dataset("tank/b", "tank/a@s", Vec::new())
        .unwrap();
    let (a, b) = (object(&spa, "tank/a"), object(&spa, "tank/b"));
    let (old, new) = (
        format!("2:0:5:{:x}", branch - 1),
        format!("2:0:5:{branch:x}"),
    );
    let names = [old.clone(), new.clone()];
    pool::in_mos(&spa, move |mos, tx| {
        let log = directory::create_link(mos, ObjectType::ERROR_LOG, ERRLOG_LAST, tx)?;
        let errors = zap::create(mos, tx, ObjectType::ERROR_LOG)?;
        zap::update(mos, tx, log, &*format!("{a:x}"), &[errors.0])?;
        for name in names {
            zap::update(mos, tx, errors, &*name, b"\0")?;
        }
        Ok(())
    });
    spa.dsl().promote("tank/b").unwrap();
    assert_eq!(logged(&spa, a), Some(vec![new]));
    assert_eq!(logged(&spa, b), Some(vec![old]));
    spa.dsl().destroy_head("tank/a").unwrap();
    assert_eq!(logged(&spa, a), None);
    assert_eq!(logged(&spa, b).unwrap().len(), 1);
    pool::assert_clean(&spa);
}
