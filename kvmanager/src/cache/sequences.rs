//! Operations on the rows of sequences, in every mode.
//!
//! *Units*: positions. Ranges are half-open. All refuse with a [`Reason`] where a cache cannot do them: one that keeps no
//! rows (AR == CL only), one whose heads hold different tokens (`KeyDiff`), and shifts without a
//! [`RopeSpec`](crate::RopeSpec).

use super::group_state::GroupState;
use super::positions::Positions;
use super::{HolePolicy, KvCache};
use crate::cells::{RowMove, SeqId};
use crate::error::{KvError, Reason};
use crate::tensor_buf::Op;
use crate::worker::Ops;
use std::ops::Range;

impl KvCache {
    /// Goes back to the first `n_past` positions of a sequence.
    ///
    /// # Errors
    /// [`KvError::Rewind`] forward, or when rows that the next token needs were evicted; [`KvError::Refused`] for an unknown
    /// sequence, [`KvError::Worker`].
    #[doc(alias = "UPDATE_OUTPUT")]
    pub fn rewind(&mut self, seq: SeqId, n_past: usize) -> Result<(), KvError> {
        let at = self.next_of("rewind", seq)?;
        let lacks = || self.settings.keeps_rows && self.groups.iter().any(|g| g.lacks_rows(seq, n_past));
        let why = if n_past > at {
            Some("; only backwards is possible")
        } else if n_past < at && n_past > 0 && lacks() {
            Some("; long context has evicted rows before that point")
        } else {
            None
        };
        if let Some(why) = why {
            let n_valid_kv = self.groups[0].cells.n_used();
            return Err(KvError::Rewind { to: n_past, n_past: at, n_valid_kv, why });
        }
        self.rewind_to(seq, n_past)
    }

    /// Forgets everything; all buffers hold the pad value again. Also recovers from a failed worker.
    ///
    /// # Errors
    /// [`KvError::Worker`] when a job of this very call fails.
    #[doc(alias = "CLEAR")]
    pub fn clear(&mut self) -> Result<(), KvError> {
        self.end_step();
        self.groups.iter_mut().for_each(GroupState::clear);
        self.settings.scorer.reset();
        self.positions = Positions::default();
        for at in 0..self.store.splits.len() {
            self.store.recv_shards(at);
            self.store.splits[at].shards.iter_mut().for_each(|s| s.failed = None);
            self.store.splits[at].extent = Default::default();
            self.store.start(at, Ops::one(Op::Clear))?;
        }
        Ok(())
    }

    /// Takes a range of positions away from a sequence. When the range reaches its end, the sequence goes on at
    /// `range.start`. Returns the rows that became free in the default group.
    ///
    /// # Errors
    /// [`KvError::Refused`], [`KvError::Worker`].
    #[doc(alias = "seq_rm")]
    pub fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, KvError> {
        self.ensure_supported("remove", seq)?;
        let next = self.next_pos(seq);
        if range.end < next && range.start < range.end {
            self.positions.mix();
        }
        let mut freed = 0;
        for (i, group) in self.groups.iter_mut().enumerate() {
            let n = group.cells.remove(seq, range.clone());
            freed = if i == 0 { n } else { freed };
        }
        if range.end >= next && range.start < next {
            self.positions.next[usize::from(seq.0)] = range.start;
        }
        self.compact_and_sync()?;
        Ok(freed)
    }

    /// Keeps one sequence and drops all others.
    ///
    /// # Errors
    /// [`KvError::Refused`], [`KvError::Worker`].
    #[doc(alias = "seq_keep")]
    pub fn keep(&mut self, seq: SeqId) -> Result<(), KvError> {
        self.ensure_supported("keep", seq)?;
        if !self.positions.is_alone(seq) {
            self.positions.mix();
        }
        self.groups.iter_mut().for_each(|g| g.cells.keep(seq));
        let next = self.next_pos(seq);
        self.positions.next = [0; SeqId::COUNT];
        self.positions.next[usize::from(seq.0)] = next;
        self.compact_and_sync()
    }

    /// Lets `dst` own what `src` has in a range, without moving a byte: a shared prefix is stored once.
    ///
    /// # Errors
    /// [`KvError::Refused`].
    #[doc(alias = "seq_cp")]
    pub fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), KvError> {
        self.ensure_supported("share", src)?;
        self.ensure_supported("share", dst)?;
        self.positions.mix();
        for group in &mut self.groups {
            group.cells.share(src, dst, range.clone());
        }
        self.extend_to(dst, range.end.min(self.next_pos(src)));
        Ok(())
    }

    /// Lets a sequence go on at a later position than behind its last row.
    ///
    /// # Errors
    /// [`KvError::Refused`].
    pub fn skip_to(&mut self, seq: SeqId, pos: usize) -> Result<(), KvError> {
        self.ensure_supported("skip", seq)?;
        self.positions.mix();
        self.extend_to(seq, pos);
        Ok(())
    }

    /// Gives `dst` rows of its own with what `src` has in a range.
    ///
    /// # Errors
    /// [`KvError::Refused`], also when there are too few free rows; [`KvError::Worker`].
    #[doc(alias = "seq_cp")]
    pub fn copy(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), KvError> {
        self.ensure_supported("copy", src)?;
        self.ensure_supported("copy", dst)?;
        if src == dst {
            return Ok(());
        }
        for (i, group) in self.groups.iter().enumerate() {
            let needed = group.cells.count(src, range.clone());
            self.ensure_free("copy", i, needed, group.capacity - group.cells.n_used())?;
        }
        self.positions.mix();
        for group in 0..self.groups.len() {
            let moves = self.groups[group].cells.copy(src, dst, range.clone()).unwrap_or_default();
            self.copy_rows(group, moves)?;
        }
        self.extend_to(dst, range.end.min(self.next_pos(src)));
        Ok(())
    }

    /// Moves a range of positions by `delta`; rows whose position would fall below 0 are dropped. Keys are rotated before
    /// the next step, all pending shifts at once. A range that reaches the sequence's end moves the end too, but never before a
    /// row that the sequence still has.
    /// Rows shared with other sequences are copied first.
    ///
    /// # Errors
    /// [`KvError::Refused`], [`KvError::Worker`].
    #[doc(alias = "seq_add")]
    pub fn shift(&mut self, seq: SeqId, range: Range<usize>, delta: isize) -> Result<(), KvError> {
        self.remap("shift", seq, range, |pos| pos.checked_add_signed(delta))
    }

    /// Divides a range of positions (context extension by grouping); otherwise as [`shift`](Self::shift).
    ///
    /// # Errors
    /// [`KvError::Refused`], also for a division by 0; [`KvError::Worker`].
    #[doc(alias = "seq_div")]
    pub fn divide(&mut self, seq: SeqId, range: Range<usize>, by: usize) -> Result<(), KvError> {
        if by == 0 {
            return Err(self.refused("divide", Reason::DivideByZero));
        }
        self.remap("divide", seq, range, |pos| Some(pos / by))
    }

    /// Drops `n` positions of a sequence after the first `sinks` and closes the gap: positions stay small, so that a
    /// sequence can go on without end (attention sinks with shifted positions). Returns the new `n_past`.
    ///
    /// # Errors
    /// [`KvError::Refused`], also when there are not that many; [`KvError::Worker`].
    pub fn shift_out(&mut self, seq: SeqId, sinks: usize, n: usize) -> Result<usize, KvError> {
        let op = "shift out";
        let n_past = self.next_of(op, seq)?;
        if sinks + n > n_past {
            return Err(self.refused(op, Reason::TooFewTokens { sinks, n, n_past }));
        }
        self.ensure_rope(op)?;
        // Both halves or neither: the rows behind the gap must be the sequence's own to be rotated.
        let (gap, rest) = (sinks..sinks + n, sinks + n..n_past);
        for (i, group) in self.groups.iter().enumerate() {
            let cells = &group.cells;
            let freed = cells.count(seq, gap.clone()) - cells.n_shared(seq, gap.clone());
            let free = group.capacity - cells.n_used() + freed;
            self.ensure_free(op, i, cells.n_shared(seq, rest.clone()), free)?;
        }
        self.remove(seq, gap)?;
        // With nothing behind the gap, `remove` has moved the end already.
        if self.next_pos(seq) == n_past {
            self.shift(seq, sinks + n..n_past, -(n as isize))?;
        }
        Ok(self.next_pos(seq))
    }

    /// From now on holes are left, as with [`HolePolicy::Keep`].
    pub fn keep_holes(&mut self) {
        self.settings.holes = HolePolicy::Keep;
    }

    /// Closes holes by at most `max_moves` row moves in each group; returns the rows moved.
    ///
    /// # Errors
    /// [`KvError::Refused`], [`KvError::Worker`].
    #[doc(alias = "defrag")]
    pub fn compact(&mut self, max_moves: usize) -> Result<usize, KvError> {
        self.ensure_supported("compact", SeqId(0))?;
        let mut n_moved = 0;
        for group in 0..self.groups.len() {
            let moves = self.groups[group].cells.compact(0, max_moves);
            n_moved += moves.iter().map(|m| m.len).sum::<usize>();
            self.move_rows(group, moves)?;
        }
        self.store.sync_extents(&self.groups)?;
        Ok(n_moved)
    }

    /// Rotates all keys to their positions now; [`begin`](Self::begin) does it by itself.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn apply_shifts(&mut self) -> Result<(), KvError> {
        let Some(rope) = self.settings.rope.clone().filter(|_| self.positions.shifted) else { return Ok(()) };
        self.positions.shifted = false;
        for group in 0..self.groups.len() {
            let rotations = self.groups[group].cells.take_rotations();
            if !rotations.is_empty() {
                self.store.start_all(&Op::Rotate { group, rotations: rotations.into(), rope: rope.clone() })?;
            }
        }
        Ok(())
    }

    pub(super) fn rewind_to(&mut self, seq: SeqId, n_past: usize) -> Result<(), KvError> {
        let others = self.positions.next.iter().enumerate().any(|(s, &next)| s != usize::from(seq.0) && next > 0);
        for group in &mut self.groups {
            if !group.per_head_rows {
                group.cells.remove(seq, n_past..usize::MAX);
                continue;
            }
            // All rows are this sequence's or none; where all are evicted, those of others may be missed too.
            let own = if group.cells.n_used() > 0 { group.cells.cell(0).has(seq) } else { !others };
            if n_past == 0 && own {
                group.clear();
                self.settings.scorer.reset();
            }
        }
        self.positions.next[usize::from(seq.0)] = n_past;
        self.compact_and_sync()
    }

    /// After rows went: closes holes where they are to be closed, and sends the splits their extents.
    fn compact_and_sync(&mut self) -> Result<(), KvError> {
        if self.groups.iter().all(|g| g.cells.n_used() == 0) {
            self.positions.emptied();
        }
        for group in 0..self.groups.len() {
            if self.is_dense(group) {
                let moves = self.groups[group].cells.compact(0, usize::MAX);
                self.move_rows(group, moves)?;
            }
        }
        self.store.sync_extents(&self.groups)
    }

    fn remap(
        &mut self,
        op: &'static str,
        seq: SeqId,
        range: Range<usize>,
        to: impl Fn(usize) -> Option<usize>,
    ) -> Result<(), KvError> {
        self.ensure_supported(op, seq)?;
        self.ensure_rope(op)?;
        let next = self.next_pos(seq);
        self.unshare(op, seq, range.clone())?;
        self.positions.mix();
        self.positions.shifted = true;
        for group in &mut self.groups {
            group.cells.map_positions(seq, range.clone(), &to);
        }
        let moved = next > 0 && range.contains(&(next - 1));
        let end = if moved { to(next - 1).map_or(0, |last| last + 1) } else { next };
        // Never behind a row of its own: the next token would be taken for one of the past.
        let rows = self.groups.iter().filter_map(|g| g.cells.pos_range(seq)).map(|(_, last)| last + 1);
        self.positions.next[usize::from(seq.0)] = rows.fold(end, usize::max);
        self.compact_and_sync()
    }

    /// Rows of its own for a sequence in a range.
    fn unshare(&mut self, op: &'static str, seq: SeqId, range: Range<usize>) -> Result<(), KvError> {
        for (i, group) in self.groups.iter().enumerate() {
            let needed = group.cells.n_shared(seq, range.clone());
            self.ensure_free(op, i, needed, group.capacity - group.cells.n_used())?;
        }
        for group in 0..self.groups.len() {
            let moves = self.groups[group].cells.unshare(seq, range.clone()).unwrap_or_default();
            self.copy_rows(group, moves)?;
        }
        Ok(())
    }

    /// Copies rows to slots that may lie beyond those in use.
    fn copy_rows(&mut self, group: usize, moves: Vec<RowMove>) -> Result<(), KvError> {
        if moves.is_empty() {
            return Ok(());
        }
        self.widen(group)?;
        self.move_rows(group, moves)
    }

    /// Makes the rows of a group addressable when they go beyond the variant's past.
    pub(super) fn widen(&mut self, group: usize) -> Result<(), KvError> {
        let (extent, capacity) = (self.groups[group].cells.extent(), self.groups[group].capacity);
        for at in 0..self.store.splits.len() {
            let split = &mut self.store.splits[at];
            let mut ops = Ops::default();
            if extent > split.past_len[group] {
                split.past_len[group] = capacity;
                ops.push(Op::Shape { group, past_len: capacity, ar: split.ar });
            }
            if std::mem::replace(&mut split.extent[group], extent) != extent {
                ops.push(Op::Extent { group, extent });
            }
            self.store.start(at, ops)?;
        }
        Ok(())
    }

    /// A sequence that reached no further than `end` goes on there.
    fn extend_to(&mut self, seq: SeqId, end: usize) {
        let next = &mut self.positions.next[usize::from(seq.0)];
        *next = (*next).max(end);
    }

    /// Next position of a sequence that is one.
    fn next_of(&self, op: &'static str, seq: SeqId) -> Result<usize, KvError> {
        let next = self.positions.next.get(usize::from(seq.0)).copied();
        next.ok_or_else(|| self.refused(op, Reason::UnknownSequence(seq)))
    }

    fn ensure_supported(&self, op: &'static str, seq: SeqId) -> Result<(), KvError> {
        self.next_of(op, seq)?;
        if !self.settings.keeps_rows {
            return Err(self.refused(op, Reason::NoRows));
        }
        if self.groups.iter().any(|g| g.per_head_rows) {
            return Err(self.refused(op, Reason::PerHeadRows));
        }
        Ok(())
    }

    fn ensure_rope(&self, op: &'static str) -> Result<(), KvError> {
        if self.settings.in_blocks {
            return Err(self.refused(op, Reason::KeysInBlocks));
        }
        let rope = self.settings.rope.as_ref().ok_or_else(|| self.refused(op, Reason::NoRope))?;
        let dims = rope.dims();
        match self.settings.min_head_dim.filter(|&head_dim| head_dim < dims) {
            Some(head_dim) => Err(self.refused(op, Reason::RopeTooWide { dims, head_dim })),
            None => Ok(()),
        }
    }

    fn ensure_free(&self, op: &'static str, group: usize, needed: usize, free: usize) -> Result<(), KvError> {
        if needed > free { Err(self.refused(op, Reason::TooFewRows { needed, group, free })) } else { Ok(()) }
    }

    pub(super) fn refused(&self, op: &'static str, why: Reason) -> KvError {
        KvError::Refused { mode: self.store.mode.name(), op, why }
    }
}
