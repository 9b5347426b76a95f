//! Lies about vdevs.
//!
//! # What it is
//! The config of a vdev is in the MOS, and in the labels of the devices of its top-level vdev. Where they differ, a
//! pool is soon refused: mostly the same lie is told in all of them.

use nvpair::{NvList, NvString, NvValue};
use phys::ObjectType;

use super::image::{Edit, Image, Role};
use super::mutate::{Choices, limit};

/// Values that not every vdev has.
const NUMBERS: [&str; 22] = [
    "asize",
    "ashift",
    "com.delphix:indirect_births",
    "com.delphix:indirect_object",
    "com.delphix:prev_indirect_vdev",
    "com.delphix:vdev_zap_leaf",
    "com.delphix:vdev_zap_top",
    "create_txg",
    "draid_ndata",
    "draid_ngroups",
    "draid_nspares",
    "DTL",
    "is_log",
    "metaslab_array",
    "metaslab_shift",
    "non_allocating",
    "nparity",
    "offline",
    "raidz_expanding",
    "rebuild_txg",
    "removing",
    "resilver_txg",
];
/// Types of vdevs.
const TYPES: [&str; 12] = [
    "disk",
    "draid",
    "dspare",
    "file",
    "hole",
    "indirect",
    "mirror",
    "missing",
    "raidz",
    "replacing",
    "root",
    "spare",
];
/// `raidz_expand_txgs`: when a RAID-Z was expanded.
const EXPAND_TXGS: &str = "raidz_expand_txgs";

/// A lie about the vdev of a guid.
#[derive(Clone)]
struct Lie {
    guid: u64,
    what: What,
}

#[derive(Clone)]
enum What {
    Number(NvString, u64),
    Numbers(Vec<u64>),
    Type(&'static str),
    Removed(NvString),
    /// The last child is there once more, under another guid.
    Child(u64),
    NoChild,
    /// Two children are in each other's place.
    Swapped(u64, u64),
}

/// Tells a lie about a vdev.
pub(super) fn lie(edit: &mut Edit<'_>, choices: &mut dyn Choices) {
    let image = edit.image();
    let Some(root) = image.config().get_list("vdev_tree") else {
        return;
    };
    let mut vdevs = Vec::new();
    collect(root, &mut vdevs);
    // Top-level vdevs have the most to lie about.
    let tops = root.get_lists("children").unwrap_or_default();
    let vdev = match choices.below(2) {
        0 => vdevs[choices.below(vdevs.len() as u64) as usize],
        _ => &tops[choices.below(tops.len() as u64) as usize],
    };
    let Some(guid) = vdev.get_u64("guid") else {
        return;
    };
    let what = pick(vdev, choices);
    let lie = Lie { guid, what };
    let (in_mos, in_labels) = match choices.below(8) {
        0 => (true, false),
        1 => (false, true),
        _ => (true, true),
    };
    if in_mos {
        change_mos(edit, &lie);
    }
    if in_labels {
        edit.config(move |config| {
            if let Some(tree) = config.get_list_mut("vdev_tree") {
                lie.tell(tree);
            }
        });
    }
}

fn collect<'l>(vdev: &'l NvList, into: &mut Vec<&'l NvList>) {
    into.push(vdev);
    let children = vdev.get_lists("children").unwrap_or_default();
    children.iter().for_each(|child| collect(child, into));
}

fn pick(vdev: &NvList, choices: &mut dyn Choices) -> What {
    let count = vdev.get_lists("children").map_or(0, <[_]>::len) as u64;
    match choices.below(16) {
        0 => What::Type(TYPES[choices.below(TYPES.len() as u64) as usize]),
        1 => What::Child(choices.below(1 << 40)),
        2 => What::NoChild,
        3 => What::Swapped(choices.below(count.max(1)), choices.below(count.max(1))),
        4 => {
            let txgs = (0..choices.below(4)).map(|_| choices.below(64));
            What::Numbers(txgs.collect())
        }
        5 => {
            let names: Vec<&NvString> = vdev.iter().map(|(name, _)| name).collect();
            What::Removed(names[choices.below(names.len() as u64) as usize].clone())
        }
        6..9 => {
            let name = NUMBERS[choices.below(NUMBERS.len() as u64) as usize];
            What::Number(
                name.into(),
                number(vdev.get_u64(name).unwrap_or(0), choices),
            )
        }
        _ => {
            let numbers = vdev.iter().filter_map(|(name, value)| match value {
                NvValue::Uint64(number) => Some((name, *number)),
                _ => None,
            });
            let numbers: Vec<(&NvString, u64)> = numbers.collect();
            let (name, old) = numbers[choices.below(numbers.len() as u64) as usize];
            What::Number(name.clone(), number(old, choices))
        }
    }
}

fn number(old: u64, choices: &mut dyn Choices) -> u64 {
    match choices.below(6) {
        0 => limit(choices),
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => choices.below(300),
        4 => choices.below(20),
        _ => old ^ 1 << choices.below(40),
    }
}

/// Changes what the MOS has.
fn change_mos(edit: &mut Edit<'_>, lie: &Lie) {
    let image: &Image = edit.image();
    let packed = Role::Data(ObjectType::PACKED_NVLIST.raw());
    for index in 0..image.blocks.len() {
        if image.blocks[index].role != packed {
            continue;
        }
        let content = edit.content(index);
        let Ok(mut list) = nvpair::decode(content) else {
            continue;
        };
        let Some(tree) = list.get_list_mut("vdev_tree") else {
            continue;
        };
        lie.tell(tree);
        let packed = nvpair::encode_xdr(&list);
        if packed.len() <= content.len() {
            content[..packed.len()].copy_from_slice(&packed);
        }
    }
}

impl Lie {
    /// Tells it of the vdev, if it is in this tree.
    fn tell(&self, vdev: &mut NvList) {
        if vdev.get_u64("guid") == Some(self.guid) {
            self.what.change(vdev);
            return;
        }
        let children = vdev.get_lists_mut("children");
        for child in children.into_iter().flatten() {
            self.tell(child);
        }
    }
}

impl What {
    fn change(&self, vdev: &mut NvList) {
        match self {
            What::Number(name, number) => {
                vdev.set(name.clone(), *number);
            }
            What::Numbers(txgs) => {
                vdev.set(EXPAND_TXGS, txgs.clone());
            }
            What::Type(word) => {
                vdev.set("type", *word);
            }
            What::Removed(name) => {
                vdev.remove(name.as_bytes());
            }
            What::Child(..) | What::NoChild | What::Swapped(..) => {
                if let Some(children) = vdev.get_lists_mut("children") {
                    self.change_children(children);
                }
            }
        }
    }

    fn change_children(&self, children: &mut Vec<NvList>) {
        match self {
            What::Child(guid) => {
                let Some(mut last) = children.last().cloned() else {
                    return;
                };
                last.set("id", children.len() as u64).set("guid", *guid);
                children.push(last);
            }
            What::NoChild => _ = children.pop(),
            What::Swapped(a, b) => {
                let (a, b) = (*a as usize, *b as usize);
                if a.max(b) >= children.len() {
                    return;
                }
                children.swap(a, b);
                children[a].set("id", a as u64);
                children[b].set("id", b as u64);
            }
            _ => {}
        }
    }
}
