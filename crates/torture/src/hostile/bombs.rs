//! Bombs in the pool of files: see [`Edit::bomb`].

use phys::{BlkPtrPhys, ObjectType};

use super::image::{Edit, Image, Role};

/// Makes the file "sparse" a bomb: of data, or (`is_hollow`) of holes where the fill counts claim blocks.
/// Returns the block with its dnode, and the dnode's offset in it.
///
/// # Panics
/// When there is no such file.
pub fn sparse(edit: &mut Edit<'_>, is_hollow: bool) -> (usize, usize) {
    let lowest = lowest_of_sparse(edit.image());
    let dnode = edit.bomb(lowest);
    let content = edit.content(lowest);
    let pointers = || content.chunks_exact(size_of::<BlkPtrPhys>());
    let is_used = |bp: &&[u8]| bp.iter().any(|byte| *byte != 0);
    let first = pointers().find(is_used).expect("a pointer").to_vec();
    for place in content.chunks_exact_mut(first.len()) {
        if is_hollow {
            place.fill(0);
        } else {
            place.copy_from_slice(&first);
        }
    }
    dnode
}

/// Makes the dnodes of the dataset "fs", the last one in the image, a bomb.
///
/// # Panics
/// When there is no such dataset.
pub fn dnodes(edit: &mut Edit<'_>) {
    let blocks = &edit.image().blocks;
    let is_below_indirect = |index: &usize| {
        let parent = blocks[*index].parent.map(|(parent, _)| blocks[parent].role);
        blocks[*index].role == Role::Dnodes && matches!(parent, Some(Role::Indirect(_)))
    };
    let found = (0..blocks.len()).rfind(is_below_indirect);
    edit.bomb(found.expect("a dataset"));
}

/// A level-1 block of "sparse", recognised by having the most levels above it of all files.
fn lowest_of_sparse(image: &Image) -> usize {
    let depth = |index: &usize| {
        let (mut block, mut depth) = (*index, 0);
        while let Some((parent, _)) = image.blocks[block].parent
            && matches!(image.blocks[parent].role, Role::Indirect(_))
        {
            (block, depth) = (parent, depth + 1);
        }
        depth
    };
    let of_file = |index: &usize| {
        let block = &image.blocks[*index];
        let type_ = ObjectType::PLAIN_FILE_CONTENTS.raw();
        block.bp.level() == 1 && block.role == Role::Indirect(type_)
    };
    let all = (0..image.blocks.len()).filter(of_file);
    all.max_by_key(depth).expect("the file is there")
}
