//! Numbers that the kernel knows files by: the branch above, and the file's number in the branch
//! below. The root of the main branch is 1, as FUSE demands.
//!
//! The hidden directory `.manycore-fs` and its content belong to no branch. Their numbers have a
//! branch number of their own, which the library never gives out.

use fuser::INodeNo;
use manycore_fs::{BranchId, Ino};

/// Bits of a file's number in its branch.
const INO_BITS: u32 = 40;
/// The branch of the hidden files: the largest number of 24 bits.
const HIDDEN: u64 = 0xFF_FFFF;
/// Set in the number of a session, in which the rest is a count.
const SESSION: u64 = 1 << 39;
/// Bits below the branch in the number of a hidden directory.
const FOLDER_BITS: u32 = 8;
const FOLDER: u64 = 1;
const BRANCHES: u64 = 2;
const MAIN: u64 = 3;
const PLACE: u64 = 4;

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// A file of a branch.
    File(BranchId, Ino),
    /// The hidden directory in the root of this branch.
    Folder(BranchId),
    /// The directory of all branches, in the hidden directory of the main one.
    Branches,
    /// The name of the main branch there: a symbolic link, because the kernel knows the root of the
    /// mount by one name only.
    MainLink,
    /// An empty directory in the hidden one of another branch, for the directory of all branches.
    Place(BranchId),
    /// The control file as one opening of it sees it.
    Session(u64),
}

impl Node {
    /// The root directory of a branch.
    pub fn root(branch: BranchId) -> Node {
        Node::File(branch, Ino::ROOT)
    }

    /// What the kernel means by this number.
    pub fn of(number: INodeNo) -> Node {
        let (branch, ino) = (number.0 >> INO_BITS, number.0 & ((1 << INO_BITS) - 1));
        if branch != HIDDEN {
            return Node::File(BranchId(branch as u32), Ino(ino));
        }
        if ino & SESSION != 0 {
            return Node::Session(ino & !SESSION);
        }
        match ino & ((1 << FOLDER_BITS) - 1) {
            BRANCHES => Node::Branches,
            MAIN => Node::MainLink,
            PLACE => Node::Place(BranchId((ino >> FOLDER_BITS) as u32)),
            _ => Node::Folder(BranchId((ino >> FOLDER_BITS) as u32)),
        }
    }

    pub fn number(self) -> INodeNo {
        let (branch, ino) = match self {
            Node::File(branch, ino) => (u64::from(branch.0), ino.0),
            Node::Folder(branch) => (HIDDEN, u64::from(branch.0) << FOLDER_BITS | FOLDER),
            Node::Branches => (HIDDEN, BRANCHES),
            Node::MainLink => (HIDDEN, MAIN),
            Node::Place(branch) => (HIDDEN, u64::from(branch.0) << FOLDER_BITS | PLACE),
            Node::Session(count) => (HIDDEN, SESSION | count & (SESSION - 1)),
        };
        debug_assert!(ino < 1 << INO_BITS, "the library gives smaller numbers");
        INodeNo(branch << INO_BITS | ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_the_mount_is_the_number_that_fuse_demands() {
        assert_eq!(Node::root(BranchId::MAIN).number(), INodeNo::ROOT);
    }

    #[test]
    fn numbers_stand_for_what_they_were_made_of() {
        let largest = BranchId(0xFF_FFFE);
        let nodes = [
            Node::root(BranchId::MAIN),
            Node::File(BranchId(1), Ino((1 << 40) - 1)),
            Node::File(largest, Ino(7)),
            Node::Folder(BranchId::MAIN),
            Node::Folder(largest),
            Node::Branches,
            Node::MainLink,
            Node::Place(BranchId(1)),
            Node::Session(0),
            Node::Session(1 << 38),
        ];
        for (index, node) in nodes.iter().enumerate() {
            assert_eq!(Node::of(node.number()), *node);
            assert!(nodes[..index].iter().all(|other| other.number() != node.number()));
        }
    }
}
