//! Names of providers as a tree of folders and files, by inode.

use std::collections::BTreeMap;

/// The root's inode.
pub(crate) const ROOT: u64 = 1;

/// The properties of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileShape {
    /// The provider's name.
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
}

/// An entry of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Inodes by name; the node of an inode may be [`Node::Gone`].
    Folder(BTreeMap<String, u64>),
    File(FileShape),
    /// A provider that no longer exists.
    Gone,
}

/// All names. The inode of a name never changes and is never reused.
#[derive(Debug)]
pub(crate) struct Tree {
    /// By inode number; the root is the first.
    nodes: Vec<Node>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree {
            nodes: vec![Node::Folder(BTreeMap::new())],
        }
    }

    /// Replaces the set of files.
    pub(crate) fn update(&mut self, files: impl IntoIterator<Item = FileShape>) {
        for node in &mut self.nodes {
            if matches!(node, Node::File(_)) {
                *node = Node::Gone;
            }
        }
        for file in files {
            let mut folder = ROOT;
            let parts: Vec<&str> = file.name.split('/').collect();
            let Some((last, folders)) = parts.split_last() else {
                continue;
            };
            // A path of the host begins with an empty part, which is skipped.
            for part in folders.iter().filter(|part| !part.is_empty()) {
                folder = self.child(folder, part, || Node::Folder(BTreeMap::new()));
            }
            let inode = self.child(folder, last, || Node::Gone);
            // A file with the name of a folder is left out; no partition has the name of a label folder.
            if let Some(node @ Node::Gone) = self.node_mut(inode) {
                *node = Node::File(file);
            }
        }
    }

    fn child(&mut self, folder: u64, name: &str, new: impl FnOnce() -> Node) -> u64 {
        let next = self.nodes.len() as u64 + ROOT;
        let Some(Node::Folder(entries)) = self.node_mut(folder) else {
            return folder;
        };
        let inode = *entries.entry(name.to_owned()).or_insert(next);
        if inode == next {
            self.nodes.push(new());
        }
        inode
    }

    fn node_mut(&mut self, inode: u64) -> Option<&mut Node> {
        let at = usize::try_from(inode.checked_sub(ROOT)?).ok()?;
        self.nodes.get_mut(at)
    }

    /// The node of an inode, unless it is gone.
    pub(crate) fn node(&self, inode: u64) -> Option<&Node> {
        let at = usize::try_from(inode.checked_sub(ROOT)?).ok()?;
        self.nodes.get(at).filter(|node| **node != Node::Gone)
    }

    /// The inode of a name in a folder.
    pub(crate) fn lookup(&self, folder: u64, name: &str) -> Option<u64> {
        let Some(Node::Folder(entries)) = self.node(folder) else {
            return None;
        };
        let inode = *entries.get(name)?;
        self.node(inode).map(|_| inode)
    }

    /// The names and inodes in a folder.
    pub(crate) fn list(&self, folder: u64) -> Vec<(String, u64)> {
        let Some(Node::Folder(entries)) = self.node(folder) else {
            return Vec::new();
        };
        let there = entries
            .iter()
            .filter(|(_, inode)| self.node(**inode).is_some());
        there.map(|(name, inode)| (name.clone(), *inode)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> FileShape {
        FileShape {
            name: name.to_owned(),
            size_bytes: 1 << 20,
            block_bytes: 4096,
        }
    }

    fn names(tree: &Tree, folder: u64) -> Vec<String> {
        tree.list(folder)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn slashes_make_folders_and_inodes_stay() {
        let mut tree = Tree::new();
        tree.update([
            file("ada0"),
            file("ada0p1"),
            file("gpt/d1"),
            file("gpt/d1.nop"),
        ]);
        assert_eq!(names(&tree, ROOT), ["ada0", "ada0p1", "gpt"]);
        let gpt = tree.lookup(ROOT, "gpt").unwrap();
        assert_eq!(names(&tree, gpt), ["d1", "d1.nop"]);
        let d1 = tree.lookup(gpt, "d1").unwrap();
        assert_eq!(tree.node(d1), Some(&Node::File(file("gpt/d1"))));

        tree.update([file("ada0")]);
        assert_eq!(tree.node(d1), None);
        assert_eq!(tree.lookup(gpt, "d1"), None);
        assert_eq!(names(&tree, ROOT), ["ada0", "gpt"]);

        tree.update([file("ada0"), file("gpt/d1")]);
        assert_eq!(tree.lookup(gpt, "d1"), Some(d1));
        assert_eq!(tree.lookup(ROOT, "nothing"), None);
        assert_eq!(tree.lookup(d1, "below"), None);
        assert_eq!(tree.node(0), None);
        assert_eq!(tree.node(u64::MAX), None);
    }
}
