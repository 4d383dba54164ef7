//! Cells: which slot of the cache holds which position of which sequences.
//!
//! A slot is a row of all cache tensors of a group. Several sequences may own one cell, so that a shared prefix is
//! stored once. The table knows numbers only; the byte moves that follow are the cache's.
//!
//! *Invariants*: a cell without owners is free; `extent` is one past the last used slot; `n_used <= extent <=
//! capacity`. *Lazy shift*: a cell's position may run ahead of the position its key was turned to (`rotated_pos`); the
//! difference is applied once, before the next step.

use crate::rope::Rotation;
pub use crate::seq_id::SeqId;
use std::ops::Range;

/// Slots that one sequence fills by itself where there is space: twice the columns that attention kernels look at together, so that
/// they skip those of other sequences. Keys of a page are 128 bytes of each row in float16: rows seldom begin with a cache line, so
/// half as many would lie on nearly as many lines.
pub const PAGE: usize = 64;

/// One slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Position of its token.
    pub pos: usize,
    /// Position its key is turned to.
    pub rotated_pos: usize,
    /// Bit set of the sequences that own it; 0 is a free cell.
    pub seqs: u64,
}

impl Cell {
    /// Whether a sequence owns it.
    pub const fn has(&self, seq: SeqId) -> bool {
        self.seqs & seq.bit() != 0
    }

    /// Whether no sequence owns it.
    pub const fn is_free(&self) -> bool {
        self.seqs == 0
    }
}

/// Whether each position below `n` of a sequence has its row among the cells, with its key turned for that position.
pub(crate) fn have_each<'a>(cells: impl Iterator<Item = &'a Cell>, seq: SeqId, n: usize) -> bool {
    let mut rows = cells.filter(|cell| cell.has(seq) && cell.pos < n);
    rows.try_fold(0, |n, cell| (cell.rotated_pos == cell.pos).then_some(n + 1)) == Some(n)
}

/// Rows to be moved or copied: `len` rows from `src` to `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMove {
    /// First row to read.
    pub src: usize,
    /// First row to write.
    pub dst: usize,
    /// Rows.
    pub len: usize,
}

/// The cells of one cache group.
#[derive(Clone, Debug)]
pub struct CellTable {
    cells: Vec<Cell>,
    n_used: usize,
    extent: usize,
    head: usize,
}

impl CellTable {
    /// A table of free cells.
    pub fn new(capacity: usize) -> Self {
        Self { cells: vec![Cell::default(); capacity], n_used: 0, extent: 0, head: 0 }
    }

    /// Slots.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Cells in use.
    pub fn n_used(&self) -> usize {
        self.n_used
    }

    /// Cells that would stay in use without a sequence.
    pub fn n_used_without(&self, seq: SeqId) -> usize {
        self.used().filter(|(_, c)| c.seqs & !seq.bit() != 0).count()
    }

    /// One past the last cell in use.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// The cell of a slot; free beyond the capacity.
    pub fn cell(&self, slot: usize) -> Cell {
        self.cells.get(slot).copied().unwrap_or_default()
    }

    /// The cells in use with their slots, ascending.
    pub fn used(&self) -> impl Iterator<Item = (usize, &Cell)> {
        self.cells[..self.extent].iter().enumerate().filter(|(_, c)| !c.is_free())
    }

    /// Whether each position below `n` of a sequence has its row, with its key turned for that position.
    pub fn has_each(&self, seq: SeqId, n: usize) -> bool {
        have_each(self.used().map(|(_, cell)| cell), seq, n)
    }

    /// The smallest and largest position of a sequence.
    pub fn pos_range(&self, seq: SeqId) -> Option<(usize, usize)> {
        let positions = self.used().filter(|(_, c)| c.has(seq)).map(|(_, c)| c.pos);
        positions
            .fold(None, |range, p| range.map_or(Some((p, p)), |(lo, hi): (usize, usize)| Some((lo.min(p), hi.max(p)))))
    }

    /// Cells of a sequence within a range of positions.
    pub fn count(&self, seq: SeqId, range: Range<usize>) -> usize {
        self.used().filter(|(_, c)| c.has(seq) && range.contains(&c.pos)).count()
    }

    /// Fills a free cell with a token of some sequences, its key turned to that position.
    pub(crate) fn put(&mut self, slot: usize, pos: usize, seqs: u64) {
        debug_assert!(self.cells[slot].is_free() && seqs != 0, "slot {slot} is taken or has no owner");
        self.cells[slot] = Cell { pos, rotated_pos: pos, seqs };
        self.n_used += 1;
        self.extent = self.extent.max(slot + 1);
        self.head = slot + 1;
    }

    /// As [`put`](Self::put) for one sequence.
    pub(crate) fn put_one(&mut self, slot: usize, pos: usize, seq: SeqId) {
        self.put(slot, pos, seq.bit());
    }

    /// Exchanges two cells that are in use.
    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        debug_assert!(!self.cells[a].is_free() && !self.cells[b].is_free(), "slots {a} and {b} are in use");
        self.cells.swap(a, b);
    }

    /// Frees a cell.
    pub(crate) fn free(&mut self, slot: usize) {
        self.own(slot, 0);
        self.trim();
    }

    /// Frees all cells.
    pub(crate) fn clear(&mut self) {
        self.cells.fill(Cell::default());
        (self.n_used, self.extent, self.head) = (0, 0, 0);
    }

    fn own(&mut self, slot: usize, seqs: u64) {
        let cell = &mut self.cells[slot];
        if !cell.is_free() && seqs == 0 {
            self.n_used -= 1;
        }
        cell.seqs = seqs;
    }

    fn trim(&mut self) {
        while self.extent > 0 && self.cells[self.extent - 1].is_free() {
            self.extent -= 1;
        }
    }

    /// Takes a range of positions away from a sequence; cells without owners become free. Returns how many did.
    pub fn remove(&mut self, seq: SeqId, range: Range<usize>) -> usize {
        let before = self.n_used;
        for slot in 0..self.extent {
            let cell = self.cells[slot];
            if cell.has(seq) && range.contains(&cell.pos) {
                self.own(slot, cell.seqs & !seq.bit());
            }
        }
        self.trim();
        before - self.n_used
    }

    /// Keeps the cells of one sequence, which then owns them alone.
    pub fn keep(&mut self, seq: SeqId) {
        for slot in 0..self.extent {
            let seqs = self.cells[slot].seqs & seq.bit();
            self.own(slot, seqs);
        }
        self.trim();
    }

    /// Lets `dst` own what `src` owns in a range of positions. No bytes move.
    pub fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) {
        for cell in &mut self.cells[..self.extent] {
            if cell.has(src) && range.contains(&cell.pos) {
                cell.seqs |= dst.bit();
            }
        }
    }

    /// Cells of a sequence within a range that others own too.
    pub(crate) fn n_shared(&self, seq: SeqId, range: Range<usize>) -> usize {
        self.used().filter(|(_, c)| c.has(seq) && c.seqs != seq.bit() && range.contains(&c.pos)).count()
    }

    /// Gives a sequence cells of its own where it shares them within a range: the copies to make. `None` if there are
    /// too few free cells; nothing has changed then.
    pub(crate) fn unshare(&mut self, seq: SeqId, range: Range<usize>) -> Option<Vec<RowMove>> {
        self.duplicate(seq, |c| c.has(seq) && c.seqs != seq.bit() && range.contains(&c.pos))
    }

    /// Gives `dst` cells of its own for all that `src` has in a range; otherwise as [`unshare`](Self::unshare).
    pub(crate) fn copy(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Option<Vec<RowMove>> {
        self.duplicate(dst, |c| c.has(src) && range.contains(&c.pos))
    }

    fn duplicate(&mut self, owner: SeqId, wanted: impl Fn(&Cell) -> bool) -> Option<Vec<RowMove>> {
        let sources: Vec<usize> = self.used().filter(|(_, c)| wanted(c)).map(|(slot, _)| slot).collect();
        let free = (0..self.capacity()).filter(|&s| self.cells[s].is_free());
        let free: Vec<usize> = free.take(sources.len()).collect();
        if free.len() < sources.len() {
            return None;
        }
        let mut moves = Vec::new();
        for (&src, &dst) in sources.iter().zip(&free) {
            let cell = self.cells[src];
            self.put(dst, cell.pos, owner.bit());
            self.cells[dst].rotated_pos = cell.rotated_pos;
            self.own(src, cell.seqs & !owner.bit());
            push_move(&mut moves, src, dst);
        }
        Some(moves)
    }

    /// Moves the positions of a sequence's own cells in a range; those that would fall below 0 are dropped.
    /// The caller unshares first.
    pub(crate) fn map_positions(&mut self, seq: SeqId, range: Range<usize>, to: impl Fn(usize) -> Option<usize>) {
        for slot in 0..self.extent {
            let cell = self.cells[slot];
            if cell.has(seq) && range.contains(&cell.pos) {
                match to(cell.pos) {
                    Some(pos) => self.cells[slot].pos = pos,
                    None => self.own(slot, cell.seqs & !seq.bit()),
                }
            }
        }
        self.trim();
    }

    /// Finds `n` free slots below `limit` into `slots`, searching from where the last search ended and around.
    /// `contiguous` asks for one block. False if there are none such; `slots` is then unspecified.
    pub(crate) fn find_slots(&mut self, n: usize, limit: usize, contiguous: bool, slots: &mut Vec<usize>) -> bool {
        slots.clear();
        let limit = limit.min(self.capacity());
        if n > limit {
            return false;
        }
        if self.head >= limit {
            self.head = 0;
        }
        let head = self.head;
        for slot in (head..limit).chain(0..head) {
            if slots.len() == n {
                break;
            }
            let broken = slots.last().is_some_and(|&last| last + 1 != slot);
            if contiguous && (broken || !self.cells[slot].is_free()) {
                slots.clear();
            }
            if self.cells[slot].is_free() {
                slots.push(slot);
            }
        }
        // A block that starts before the head and crosses it was cut in two by the search's start.
        if slots.len() < n && contiguous && head != 0 {
            self.head = 0;
            return self.find_slots(n, limit, contiguous, slots);
        }
        slots.len() == n
    }

    /// Finds a free slot below `limit` for a token of each of `seqs` into `slots`: behind the sequence's last row in its page, else
    /// the first free page's first, else the first free one; of pages and slots, those behind the row come first, so that columns
    /// keep the order of positions, in which attention adds them up. False if there are too few; `slots` is then unspecified.
    pub(crate) fn find_pages(&self, seqs: impl Iterator<Item = SeqId>, limit: usize, slots: &mut Vec<usize>) -> bool {
        slots.clear();
        let limit = limit.min(self.capacity());
        let mut last: Option<(SeqId, usize)> = None;
        for seq in seqs {
            let is_free = |slot: usize| slot < limit && self.cells[slot].is_free() && !slots.contains(&slot);
            let before = match last {
                Some((own, slot)) if own == seq => Some(slot),
                // The step's rows of a sequence follow each other.
                _ => self.used().filter(|(_, c)| c.has(seq)).max_by_key(|(_, c)| c.pos).map(|(slot, _)| slot),
            };
            let next = before.map(|slot| slot + 1).filter(|&slot| !slot.is_multiple_of(PAGE) && is_free(slot));
            let behind = before.map_or(0, |slot| slot + 1);
            let page_from = |first: usize| {
                let pages = first.div_ceil(PAGE)..limit / PAGE;
                pages.map(|page| page * PAGE).find(|&at| (at..at + PAGE).all(is_free))
            };
            let slot_from = |first: usize| (first..limit).find(|&slot| is_free(slot));
            let page = || page_from(behind).or_else(|| page_from(0));
            let Some(slot) = next.or_else(page).or_else(|| slot_from(behind)).or_else(|| slot_from(0)) else {
                return false;
            };
            slots.push(slot);
            last = Some((seq, slot));
        }
        true
    }

    /// Moves cells from the end into holes until `limit` covers all or `max_moves` rows have moved: the fewest rows
    /// that can move. The table is as after the moves.
    pub(crate) fn compact(&mut self, limit: usize, max_moves: usize) -> Vec<RowMove> {
        let mut moves = Vec::new();
        let (mut hole, mut n_moved) = (0, 0);
        while self.extent > limit.max(self.n_used) && n_moved < max_moves {
            while !self.cells[hole].is_free() {
                hole += 1;
            }
            // The block at the end, as far as it is one, into the hole, as far as that goes.
            let most = (self.extent - limit.max(self.n_used)).min(max_moves - n_moved);
            let room = self.cells[hole..self.extent].iter().take(most).take_while(|c| c.is_free()).count();
            let len = self.cells[..self.extent].iter().rev().take(room).take_while(|c| !c.is_free()).count();
            let src = self.extent - len;
            for i in 0..len {
                self.cells[hole + i] = std::mem::take(&mut self.cells[src + i]);
            }
            moves.push(RowMove { src, dst: hole, len });
            self.trim();
            n_moved += len;
        }
        if self.head > self.extent {
            self.head = self.extent;
        }
        moves
    }

    /// The rotations that bring all keys to their positions; the table counts them as done.
    pub(crate) fn take_rotations(&mut self) -> Vec<Rotation> {
        let mut rotations: Vec<Rotation> = Vec::new();
        for (slot, cell) in self.cells[..self.extent].iter_mut().enumerate() {
            let delta = cell.pos as i64 - cell.rotated_pos as i64;
            if cell.is_free() || delta == 0 {
                continue;
            }
            cell.rotated_pos = cell.pos;
            match rotations.last_mut() {
                Some(rotation) if rotation.rows.end == slot && rotation.delta == delta => rotation.rows.end += 1,
                _ => rotations.push(Rotation { rows: slot..slot + 1, delta }),
            }
        }
        rotations
    }
}

/// Adds a row to the last move if it continues it upwards, else begins another.
fn push_move(moves: &mut Vec<RowMove>, src: usize, dst: usize) {
    match moves.last_mut() {
        Some(last) if last.src + last.len == src && last.dst + last.len == dst => last.len += 1,
        _ => moves.push(RowMove { src, dst, len: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SeqId = SeqId(0);
    const B: SeqId = SeqId(5);

    fn table(n: usize, capacity: usize) -> CellTable {
        let mut table = CellTable::new(capacity);
        (0..n).for_each(|i| table.put_one(i, i, A));
        table
    }

    fn shape(table: &CellTable) -> Vec<(usize, usize, u64)> {
        table.used().map(|(slot, c)| (slot, c.pos, c.seqs)).collect()
    }

    #[test]
    fn removal_leaves_holes_and_compaction_fills_them_from_the_end() {
        let mut t = table(10, 16);
        assert_eq!(t.remove(A, 2..5), 3);
        assert_eq!((t.n_used(), t.extent()), (7, 10));
        let moves = t.compact(0, usize::MAX);
        assert_eq!(moves, [RowMove { src: 7, dst: 2, len: 3 }]);
        assert_eq!((t.n_used(), t.extent()), (7, 7));
        assert_eq!(t.pos_range(A), Some((0, 9)));
        let mut t = table(10, 16);
        t.remove(A, 2..5);
        assert_eq!(t.compact(0, 1), [RowMove { src: 9, dst: 2, len: 1 }], "bounded");
        assert_eq!(t.remove(A, 0..usize::MAX), 7);
        assert_eq!((t.n_used(), t.extent(), t.pos_range(A)), (0, 0, None));
    }

    #[test]
    fn a_shared_prefix_is_stored_once_until_it_must_part() {
        let mut t = table(4, 8);
        t.share(A, B, 0..3);
        assert_eq!(shape(&t), [(0, 0, 33), (1, 1, 33), (2, 2, 33), (3, 3, 1)]);
        assert_eq!(t.remove(A, 0..usize::MAX), 1, "B still owns the prefix");
        t.share(B, A, 0..2);
        // A's two rows are B's as well: to move them, A needs its own.
        let moves = t.unshare(A, 0..8).unwrap();
        assert_eq!(moves, [RowMove { src: 0, dst: 3, len: 2 }]);
        t.map_positions(A, 0..8, |p| p.checked_sub(1));
        assert_eq!(shape(&t), [(0, 0, 32), (1, 1, 32), (2, 2, 32), (4, 0, 1)]);
        assert_eq!(t.take_rotations(), [Rotation { rows: 4..5, delta: -1 }]);
        assert_eq!(t.take_rotations(), []);
        t.keep(B);
        assert_eq!(shape(&t), [(0, 0, 32), (1, 1, 32), (2, 2, 32)]);
        t.share(B, A, 0..9);
        assert_eq!(t.n_shared(A, 0..9), 3);
        (3..7).for_each(|slot| t.put_one(slot, 9, B));
        assert_eq!(t.unshare(A, 0..9), None, "one free slot for three rows");
    }

    #[test]
    fn sequences_fill_pages_of_their_own() {
        let mut t = CellTable::new(3 * PAGE + 8);
        let mut slots = Vec::new();
        let mut put = |t: &mut CellTable, seqs: &[SeqId], limit: usize| {
            let found = t.find_pages(seqs.iter().copied(), limit, &mut slots);
            if found {
                for (&seq, &slot) in seqs.iter().zip(&slots) {
                    let pos = t.pos_range(seq).map_or(0, |(_, last)| last + 1);
                    t.put_one(slot, pos, seq);
                }
            }
            found.then(|| slots.clone())
        };
        assert_eq!(put(&mut t, &[A, A, B, B, B], usize::MAX), Some(vec![0, 1, PAGE, PAGE + 1, PAGE + 2]));
        assert_eq!(put(&mut t, &[B, A], usize::MAX), Some(vec![PAGE + 3, 2]), "each behind its own");
        let longer: Vec<SeqId> = std::iter::repeat_n(A, PAGE).collect();
        let expected: Vec<usize> = (3..PAGE).chain(2 * PAGE..2 * PAGE + 3).collect();
        assert_eq!(put(&mut t, &longer, usize::MAX), Some(expected), "its page, then another");
        // No page is free below the limit: any slot, and none beyond it.
        assert_eq!(put(&mut t, &[SeqId(1)], 2 * PAGE), Some(vec![PAGE + 4]));
        assert_eq!(put(&mut t, &[SeqId(2)], PAGE), None);
        assert_eq!(put(&mut t, &[SeqId(2)], usize::MAX), Some(vec![PAGE + 5]), "eight slots are no page");
        assert_eq!(t.n_used(), 2 + 3 + 2 + PAGE + 2);
        // A page behind the sequence's rows comes before one in front of them, which is taken where there is no other.
        let mut t = CellTable::new(3 * PAGE);
        let page = |seq: SeqId| vec![seq; PAGE];
        assert_eq!(put(&mut t, &page(A), usize::MAX), Some((0..PAGE).collect()));
        assert_eq!(put(&mut t, &page(B), usize::MAX), Some((PAGE..2 * PAGE).collect()));
        (0..PAGE).for_each(|slot| t.free(slot));
        assert_eq!(put(&mut t, &page(B), usize::MAX), Some((2 * PAGE..3 * PAGE).collect()));
        assert_eq!(put(&mut t, &[B], usize::MAX), Some(vec![0]));
    }

    #[test]
    fn slots_are_searched_around_the_ring() {
        let mut t = table(6, 8);
        t.remove(A, 1..3);
        let mut slots = Vec::new();
        assert!(t.find_slots(3, 8, false, &mut slots));
        assert_eq!(slots, [6, 7, 1], "from the head, then around");
        assert!(t.find_slots(2, 8, true, &mut slots));
        assert_eq!(slots, [6, 7]);
        assert!(!t.find_slots(3, 8, true, &mut slots), "no block of three");
        assert!(!t.find_slots(5, 8, false, &mut slots));
        t.remove(A, 5..6);
        assert!(t.find_slots(3, 8, true, &mut slots));
        assert_eq!(slots, [5, 6, 7], "a block across the head");
    }
}
