//! The pool's error log, as far as it is about data sets that come and go.
//!
//! # On disk
//! There are two logs, of the scrub that runs and of the last one. With `head_errlog` each is a ZAP: by head a
//! ZAP of that head's damaged blocks, whose entries are named `object:level:block:birth`, in hexadecimal.
//!
//! # Source
//! OpenZFS `module/zfs/spa_errlog.c` (`spa_delete_dataset_errlog`, `spa_swap_errlog`).

use base::{ObjectId, Result, Txg};
use dmu::Tx;
use phys::ObjectType;
use phys::pool_names::{ERRLOG_LAST, ERRLOG_SCRUB};
use zap::directory;

use crate::DslPool;
use phys::feature::HEAD_ERRLOG;

impl DslPool {
    /// A head is destroyed: nobody asks for its damaged blocks any more.
    #[doc(alias = "spa_delete_dataset_errlog")]
    pub(crate) fn forget_errors(&self, head: ObjectId, tx: &Tx) -> Result<()> {
        let mos = self.mos();
        for log in self.error_logs()? {
            let key = key(head);
            if let Some(errors) = mos.zap_get(log, &key)? {
                mos.zap_remove(log, &key, tx)?;
                mos.zap_destroy(ObjectId(errors), tx)?;
            }
        }
        Ok(())
    }

    /// What is older than the branch is now the promoted clone's: its damaged blocks go with it.
    #[doc(alias = "spa_swap_errlog")]
    pub(crate) fn move_errors(
        &self,
        from: ObjectId,
        to: ObjectId,
        branch_txg: Txg,
        tx: &Tx,
    ) -> Result<()> {
        let mos = self.mos();
        for log in self.error_logs()? {
            let Some(old) = mos.zap_get(log, &key(from))?.map(ObjectId) else {
                continue;
            };
            let new = match mos.zap_get(log, &key(to))? {
                Some(new) => ObjectId(new),
                None => {
                    let new = mos.zap_create(ObjectType::ERROR_LOG, tx)?;
                    mos.zap_add(log, &key(to), new.0, tx)?;
                    new
                }
            };
            let mut moving = Vec::new();
            for entry in zap::iter(mos.objset(), old)? {
                let name = entry?.name_str().into_owned();
                if birth(&name).is_some_and(|birth| birth < branch_txg) {
                    moving.push(name);
                }
            }
            for name in moving {
                let text = zap::lookup::<u8>(mos.objset(), old, &*name)?.unwrap_or_default();
                zap::update(mos.objset(), tx, new, &*name, &text)?;
                mos.zap_remove(old, &name, tx)?;
            }
        }
        Ok(())
    }

    fn error_logs(&self) -> Result<Vec<ObjectId>> {
        let mos = self.mos();
        let mut logs = Vec::new();
        if mos.env().feature_is_active(HEAD_ERRLOG) {
            for name in [ERRLOG_SCRUB, ERRLOG_LAST] {
                logs.extend(directory::find(mos.objset(), name)?.filter(|log| log.0 != 0));
            }
        }
        Ok(logs)
    }
}

fn key(head: ObjectId) -> String {
    format!("{:x}", head.0)
}

/// `name_to_errphys`: the last of its numbers.
fn birth(name: &str) -> Option<Txg> {
    let (_, birth) = name.rsplit_once(':')?;
    u64::from_str_radix(birth, 16).ok().map(Txg)
}
