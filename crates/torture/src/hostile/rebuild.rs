//! Records of sequential resilvers that lie.

use std::sync::Arc;

use base::{ObjectId, Result};
use geom::Provider;
use phys::pool_names::VDEV_TOP_ZAP_VDEV_REBUILD_PHYS;

use super::Image;
use super::exercise::Outcome;
use super::seeds::{self, Kind};
use crate::pool;

/// Txgs that it is waited for; the first ones after an import rebuild nothing.
const TXGS_MAX: usize = 12;

/// Makes these words the record of the sequential resilver of the first vdev of a pool (`vdev_rebuild_phys_t`, if
/// there are as many as it has), and opens it: it goes on from there. What is shown of it is looked at.
///
/// # Panics
/// When the engine panics: finding that is the purpose.
pub fn rebuild(image: &Image, words: &[u64]) -> Outcome {
    let devices = image.edit().finish();
    rt::simulate(1, || {
        let mut outcome = Outcome::default();
        outcome.take(write(&devices, words));
        let settings = seeds::settings(Kind::Rebuilding);
        let Some(spa) = outcome.take(pool::open_with(&devices, false, settings)) else {
            return outcome;
        };
        outcome.is_writable = !spa.is_readonly();
        let mut txgs = 0;
        let mut goes_on = || {
            txgs += 1;
            txgs < TXGS_MAX
        };
        outcome.take(spa.wait_rebuild(&mut |_, _| {
            let _ = spa.rebuilds();
            goes_on()
        }));
        outcome.take(spa.export());
        outcome
    })
}

/// Nothing is rebuilt yet in the first txgs after an import.
fn write(devices: &[Arc<dyn Provider>], words: &[u64]) -> Result<()> {
    let spa = pool::open(devices, false)?;
    let top = ObjectId(spa.parts().tree().tops()[0].config().top_zap);
    let words = words.to_vec();
    pool::in_mos(&spa, move |mos, tx| {
        zap::update(mos, tx, top, VDEV_TOP_ZAP_VDEV_REBUILD_PHYS, &words[..])
    });
    spa.close()
}
