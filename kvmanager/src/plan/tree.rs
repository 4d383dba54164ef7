//! A step whose columns form a tree: drafts that continue one token in several ways, all verified at once.
//!
//! A column sees the past of its sequence, its ancestors and itself, and stands one position behind its parent; columns
//! without a parent stand where the sequence goes on. Columns at the same position are alternatives: at most one of them
//! is kept. A column may also see all rows of one more sequence, whatever their positions: a prefix beside the dialog.
//!
//! Several sequences can have trees in one step, each with roots of its own: [`Tree::columns_by`].
//!
//! *Invariant*: a parent comes before its children.

use super::columns::{Column, Columns};
use crate::cells::SeqId;

/// A column of a tree, as far as attention goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeColumn {
    /// The column before it on its path; `None` where the path begins.
    pub parent: Option<usize>,
    /// Another sequence whose rows it sees too.
    pub also: Option<SeqId>,
}

/// Why columns are no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of the tree has parent {parent}, expected one of the columns before it")]
pub struct TreeFault {
    /// The column.
    pub column: usize,
    /// Its parent.
    pub parent: usize,
}

/// Columns whose parents come before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    columns: Vec<TreeColumn>,
    depths: Vec<usize>,
}

impl Tree {
    /// A tree of these columns.
    ///
    /// # Errors
    /// [`TreeFault`].
    pub fn new(columns: impl IntoIterator<Item = TreeColumn>) -> Result<Self, TreeFault> {
        let mut tree = Self::default();
        for (column, branch) in columns.into_iter().enumerate() {
            let depth = match branch.parent {
                None => 0,
                Some(parent) if parent < column => tree.depths[parent] + 1,
                Some(parent) => return Err(TreeFault { column, parent }),
            };
            tree.columns.push(branch);
            tree.depths.push(depth);
        }
        Ok(tree)
    }

    /// Columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are none: then a step's columns follow each other.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Positions of the deepest column and its ancestors.
    pub fn height(&self) -> usize {
        self.depths.iter().map(|depth| depth + 1).max().unwrap_or(0)
    }

    /// The columns of a sequence that goes on at `n_past`.
    pub fn columns(&self, seq: SeqId, n_past: usize) -> Columns {
        self.columns_by(|_| (seq, n_past))
    }

    /// The columns where trees of several sequences are beside each other. `start`: the sequence of a column, and where it goes on.
    pub fn columns_by(&self, start: impl Fn(usize) -> (SeqId, usize)) -> Columns {
        let columns = self.depths.iter().enumerate().map(|(column, depth)| {
            let (seq, n_past) = start(column);
            Column { seq, pos: n_past + depth }
        });
        columns.collect()
    }

    /// A column's ancestors, its parent first.
    pub fn ancestors(&self, column: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.parent(column), |&at| self.parent(at))
    }

    /// A column with its ancestors, the first of them first: what is kept if this column is the last accepted.
    pub fn path(&self, column: usize) -> Vec<usize> {
        let mut path: Vec<_> = std::iter::once(column).chain(self.ancestors(column)).collect();
        path.reverse();
        path
    }

    /// Whether columns lie on one path from its beginning: kept in that order, they have the positions that follow `n_past`.
    pub fn is_path(&self, columns: &[usize]) -> bool {
        let parents = std::iter::once(None).chain(columns.iter().copied().map(Some));
        columns.iter().zip(parents).all(|(&column, parent)| column < self.len() && self.parent(column) == parent)
    }

    /// The other sequence that a column sees.
    pub(crate) fn also(&self, column: usize) -> Option<SeqId> {
        self.columns.get(column).and_then(|column| column.also)
    }

    /// The column before it on its path.
    pub(crate) fn parent(&self, column: usize) -> Option<usize> {
        self.columns.get(column).and_then(|column| column.parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(parents: &[Option<usize>]) -> Result<Tree, TreeFault> {
        Tree::new(parents.iter().map(|&parent| TreeColumn { parent, also: None }))
    }

    #[test]
    fn positions_follow_the_parents() {
        // 0 - 1 - 3
        //   \ 2 - 4 - 5
        let t = tree(&[None, Some(0), Some(0), Some(1), Some(2), Some(4)]).unwrap();
        let positions: Vec<_> = t.columns(SeqId(3), 7).iter().map(|c| (c.seq.0, c.pos)).collect();
        assert_eq!(positions, [(3, 7), (3, 8), (3, 8), (3, 9), (3, 9), (3, 10)]);
        assert_eq!((t.len(), t.height()), (6, 4));
        assert_eq!(t.ancestors(5).collect::<Vec<_>>(), [4, 2, 0]);
        assert_eq!(t.path(3), [0, 1, 3]);
        for (columns, expected) in
            [(&[][..], true), (&[0], true), (&[0, 2, 4], true), (&[1], false), (&[0, 3], false), (&[0, 9], false)]
        {
            assert_eq!(t.is_path(columns), expected, "{columns:?}");
        }
    }

    #[test]
    fn trees_of_several_sequences_lie_beside_each_other() {
        let t = tree(&[None, Some(0), Some(0), None, Some(3)]).unwrap();
        let starts = |column| if column < 3 { (SeqId(2), 5) } else { (SeqId(0), 9) };
        let positions: Vec<_> = t.columns_by(starts).iter().map(|c| (c.seq.0, c.pos)).collect();
        assert_eq!(positions, [(2, 5), (2, 6), (2, 6), (0, 9), (0, 10)]);
    }

    #[test]
    fn a_parent_comes_first() {
        for (parents, column, parent) in [(&[Some(0)][..], 0, 0), (&[None, Some(2), Some(0)], 1, 2)] {
            assert_eq!(tree(parents), Err(TreeFault { column, parent }));
        }
        let said = tree(&[None, Some(1)]).unwrap_err().to_string();
        assert_eq!(said, "column 1 of the tree has parent 1, expected one of the columns before it");
        assert!(Tree::default().is_empty() && Tree::default().height() == 0);
    }
}
