//! Who uses a provider: layers on it, and imported pools.

use base::Result;
use machine::{Layer, World};
use nvpair::NvList;

use crate::host::Host;

/// Layers that stand on a provider, on its partitions or on each other; the topmost first.
pub(crate) fn layers_above(world: &World, name: &str) -> Result<Vec<Layer>> {
    let infos = world.providers()?;
    let below = |name: &str| {
        let info = infos.iter().find(|info| info.name == name)?;
        info.below.clone()
    };
    let stands_on = |layer: &Layer| {
        let mut at = Some(layer.on.clone());
        while let Some(here) = at {
            if here == name {
                return true;
            }
            at = below(&here);
        }
        false
    };
    let mut above: Vec<Layer> = world.layers().into_iter().filter(stands_on).collect();
    above.reverse();
    Ok(above)
}

/// Who uses a provider, so that it cannot go away: a layer or an imported pool.
pub(crate) fn user_of(world: &World, name: &str) -> Result<Option<String>> {
    if let Some(layer) = layers_above(world, name)?.pop() {
        return Ok(Some(layer.name));
    }
    let infos = world.providers()?;
    let pools = Host::here().pools()?;
    let on_it = |path: &str| {
        let mut at = Some(world.canonical(path));
        while let Some(here) = at {
            if here == name {
                return true;
            }
            let info = infos.iter().find(|info| info.name == here);
            at = info.and_then(|info| info.below.clone());
        }
        false
    };
    let user = pools.into_iter().find(|(_, config)| {
        let tree = config.get_list("vdev_tree");
        tree.is_some_and(|tree| has_path(tree, &on_it))
    });
    Ok(user.map(|(pool, _)| format!("pool '{pool}'")))
}

fn has_path(tree: &NvList, matches: &dyn Fn(&str) -> bool) -> bool {
    let own = tree.get_str("path").is_some_and(matches);
    own || ["children", "l2cache", "spares"].iter().any(|key| {
        let children = tree.get_lists(key).unwrap_or_default();
        children.iter().any(|child| has_path(child, matches))
    })
}
