//! The output of `list` and `status` for an attached provider.

use ::geli::{Attached, Cipher, Eli, KEPT_KEYS};
use base::Result;
use geom::disk::OpenMode;
use machine::LayerKind;
use serde_json::{Value, json};

use crate::geomclass::{Call, Geom, Shape, user_of};

pub(super) fn geoms(call: &Call<'_>) -> Result<Vec<Geom>> {
    let world = call.world;
    let mut geoms = Vec::new();
    for layer in world.layers() {
        let LayerKind::Eli(attached) = &layer.kind else {
            continue;
        };
        let below = world.open(&layer.on, OpenMode::Inspect);
        let eli = below.and_then(|below| Eli::open(below, layer.name.clone(), attached));
        let is_used = user_of(world, &layer.name)?.is_some();
        geoms.push(Geom {
            fields: fields(attached, eli.map_or(0, |eli| eli.keys_total())),
            status: "ACTIVE".to_owned(),
            provider: Shape::of(world, &layer.name, is_used),
            // An attached provider holds the one below it exclusively.
            consumer: Shape::of(world, &layer.on, true),
            name: layer.name,
            below: layer.on,
        });
    }
    Ok(geoms)
}

/// In the order in which geom(8) prints them: the reverse of that in which the kernel's class emits them.
fn fields(attached: &Attached, keys: u64) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("State", json!("ACTIVE")),
        ("EncryptionAlgorithm", json!(attached.ealgo.to_string())),
        ("KeyLength", json!(attached.keylen)),
    ];
    if let Some(auth) = attached.aalgo {
        fields.push(("AuthenticationAlgorithm", json!(auth.to_string())));
    }
    let crypto = match (attached.ealgo, has_aes()) {
        (Cipher::Null, _) | (_, false) => "software",
        (_, true) => "accelerated software",
    };
    fields.push(("Crypto", json!(crypto)));
    fields.push(("Version", json!(attached.version)));
    if let Some(slot) = attached.nkey {
        fields.push(("UsedKey", json!(slot)));
    }
    let flags = attached.flags.names(attached.version);
    fields.push(("Flags", json!(flags)));
    fields.push(("KeysAllocated", json!(keys.min(KEPT_KEYS))));
    fields.push(("KeysTotal", json!(keys)));
    fields
}

/// Whether the processor has instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
