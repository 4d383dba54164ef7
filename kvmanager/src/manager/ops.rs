//! Operations on rows and sequences, in every mode.
//!
//! *Units*: positions. Ranges are half-open. All refuse while a step is under way, and with a reason where a cache
//! cannot do them: one that keeps no rows (AR == CL only), one whose heads hold different tokens (`KeyDiff`), and
//! shifts without a [`RopeSpec`](crate::RopeSpec).

use super::{GroupState, KvCache};
use crate::KvError;
use crate::cells::{RowMove, SeqId};
use crate::group::LongContext;
use crate::tensor_buf::Op;
use crate::worker::Ops;
use std::ops::Range;

impl KvCache {
    /// Goes back to the first `n_past` tokens of the dialog. Also abandons a step under way.
    ///
    /// # Errors
    /// [`KvError::Rewind`] forward, or when rows that the next token needs were evicted; [`KvError::Worker`].
    #[doc(alias = "UPDATE_OUTPUT")]
    pub fn rewind(&mut self, n_past: usize) -> Result<(), KvError> {
        let at = self.next[0];
        let why = if n_past > at {
            Some("; only backwards is possible")
        } else if n_past < at && n_past > 0 && self.groups.iter().any(|_| self.keeps_rows && self.lacks_rows(n_past)) {
            Some("; long context has evicted rows before that point")
        } else {
            None
        };
        if let Some(why) = why {
            let n_valid_kv = self.groups[0].cells.n_used();
            return Err(KvError::Rewind { to: n_past, n_past: at, n_valid_kv, why });
        }
        self.abandon()?;
        self.rewind_to(n_past)
    }

    /// Abandons a step under way: rows that some splits have kept already are dropped, all others stay, also those that a
    /// shift has moved ahead of where their sequence goes on.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn cancel(&mut self) -> Result<(), KvError> {
        self.abandon()
    }

    /// Forgets everything; all buffers hold the pad value again. Also recovers from a failed worker.
    ///
    /// # Errors
    /// [`KvError::Worker`] when a job of this very call fails.
    #[doc(alias = "CLEAR")]
    pub fn clear(&mut self) -> Result<(), KvError> {
        self.end_step();
        self.groups.iter_mut().for_each(GroupState::clear);
        self.scorer.reset();
        self.next = [0; SeqId::COUNT];
        for at in 0..self.splits.len() {
            self.gather(at);
            self.splits[at].shards.iter_mut().for_each(|s| s.failed = None);
            self.splits[at].extent = Default::default();
            self.start(at, Ops::one(Op::Clear))?;
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
        self.can("remove", seq)?;
        let mut freed = 0;
        for (i, group) in self.groups.iter_mut().enumerate() {
            let n = group.cells.remove(seq, range.clone());
            freed = if i == 0 { n } else { freed };
        }
        let next = &mut self.next[usize::from(seq.0)];
        if range.end >= *next && range.start < *next {
            *next = range.start;
        }
        self.tidy()?;
        Ok(freed)
    }

    /// Keeps one sequence and drops all others.
    ///
    /// # Errors
    /// [`KvError::Refused`], [`KvError::Worker`].
    #[doc(alias = "seq_keep")]
    pub fn keep(&mut self, seq: SeqId) -> Result<(), KvError> {
        self.can("keep", seq)?;
        self.groups.iter_mut().for_each(|g| g.cells.keep(seq));
        let next = self.next[usize::from(seq.0)];
        self.next = [0; SeqId::COUNT];
        self.next[usize::from(seq.0)] = next;
        self.tidy()
    }

    /// Lets `dst` own what `src` has in a range, without moving a byte: a shared prefix is stored once.
    ///
    /// # Errors
    /// [`KvError::Refused`].
    #[doc(alias = "seq_cp")]
    pub fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), KvError> {
        self.can("share", src)?;
        self.can("share", dst)?;
        for group in &mut self.groups {
            group.cells.share(src, dst, range.clone());
        }
        let end = range.end.min(self.next[usize::from(src.0)]);
        let next = &mut self.next[usize::from(dst.0)];
        *next = (*next).max(end);
        Ok(())
    }

    /// Gives `dst` rows of its own with what `src` has in a range.
    ///
    /// # Errors
    /// [`KvError::Refused`], also when there are too few free rows; [`KvError::Worker`].
    #[doc(alias = "seq_cp")]
    pub fn copy(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), KvError> {
        self.can("copy", src)?;
        self.can("copy", dst)?;
        if src == dst {
            return Ok(());
        }
        for (i, group) in self.groups.iter().enumerate() {
            let (n, free) = (group.cells.count(src, range.clone()), group.capacity - group.cells.n_used());
            if n > free {
                return Err(self.refused("copy", format!("{n} rows wanted in group {i}, {free} free")));
            }
        }
        for group in 0..self.groups.len() {
            let moves = self.groups[group].cells.copy(src, dst, range.clone()).unwrap_or_default();
            self.copy_rows(group, moves)?;
        }
        let end = range.end.min(self.next[usize::from(src.0)]);
        let next = &mut self.next[usize::from(dst.0)];
        *next = (*next).max(end);
        Ok(())
    }

    /// Moves a range of positions by `delta`; rows whose position would fall below 0 are dropped. Keys turn before the
    /// next step, all pending shifts at once. A range that reaches the sequence's end moves the end too, but never before a
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
            return Err(self.refused("divide", "by 0".to_owned()));
        }
        self.remap("divide", seq, range, |pos| Some(pos / by))
    }

    /// Drops `n` positions after the first `sinks` and closes the gap: positions stay small and the dialog can go on
    /// for ever (an attention sink with shifted positions). Returns the new `n_past`.
    ///
    /// # Errors
    /// [`KvError::Refused`], also when there are not that many; [`KvError::Worker`].
    pub fn shift_out(&mut self, sinks: usize, n: usize) -> Result<usize, KvError> {
        let n_past = self.next[0];
        if sinks + n > n_past {
            return Err(self.refused("shift out", format!("{sinks} sinks and {n} to drop, but {n_past} tokens")));
        }
        self.can_turn("shift out")?;
        // Both halves or neither: the rows behind the gap must be the dialog's own to be turned.
        let (gap, rest) = (sinks..sinks + n, sinks + n..n_past);
        for (i, group) in self.groups.iter().enumerate() {
            let cells = &group.cells;
            let freed = cells.count(SeqId(0), gap.clone()) - cells.n_shared(SeqId(0), gap.clone());
            let (parting, free) = (cells.n_shared(SeqId(0), rest.clone()), group.capacity - cells.n_used() + freed);
            if parting > free {
                let why = format!("{parting} shared rows to part in group {i}, {free} free");
                return Err(self.refused("shift out", why));
            }
        }
        self.remove(SeqId(0), gap)?;
        // With nothing behind the gap, `remove` has moved the end already.
        if self.next[0] == n_past {
            self.shift(SeqId(0), sinks + n..n_past, -(n as isize))?;
        }
        Ok(self.next[0])
    }

    /// Closes holes by at most `max_moves` row moves in each group; returns the rows moved.
    ///
    /// # Errors
    /// [`KvError::Refused`], [`KvError::Worker`].
    #[doc(alias = "defrag")]
    pub fn compact(&mut self, max_moves: usize) -> Result<usize, KvError> {
        self.can("compact", SeqId(0))?;
        let mut n_moved = 0;
        for group in 0..self.groups.len() {
            let moves = self.groups[group].cells.compact(0, max_moves);
            n_moved += moves.iter().map(|m| m.len).sum::<usize>();
            self.move_rows(group, moves)?;
        }
        self.sync_extents()?;
        Ok(n_moved)
    }

    /// Turns all keys to their positions now; [`prepare`](Self::prepare) does it by itself.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn apply_shifts(&mut self) -> Result<(), KvError> {
        let Some(rope) = self.rope.clone() else { return Ok(()) };
        for group in 0..self.groups.len() {
            let turns = self.groups[group].cells.take_turns();
            if !turns.is_empty() {
                self.start_all(&Op::Rotate { group, turns: turns.into(), rope: rope.clone() })?;
            }
        }
        Ok(())
    }

    pub(super) fn rewind_to(&mut self, n_past: usize) -> Result<(), KvError> {
        for group in &mut self.groups {
            if group.mixed {
                group.clear(); // only ever to 0
            }
            group.cells.remove(SeqId(0), n_past..usize::MAX);
        }
        self.next[0] = n_past;
        self.tidy()
    }

    /// Whether a token at `n_past` would miss rows that some group has dropped.
    fn lacks_rows(&self, n_past: usize) -> bool {
        self.groups.iter().any(|group| match group.rule.long {
            LongContext::None => false,
            LongContext::Window { size, sinks } => {
                let from = (n_past + 1).saturating_sub(size);
                let early = sinks.min(from);
                group.cells.count(SeqId(0), from..n_past) < n_past - from
                    || group.cells.count(SeqId(0), 0..early) < early
            }
            LongContext::Ring { .. } => group.cells.count(SeqId(0), 0..n_past) < n_past,
            LongContext::KeyDiff { .. } => group.mixed,
        })
    }

    /// After rows went: close holes where they are to be closed, and tell the splits.
    fn tidy(&mut self) -> Result<(), KvError> {
        for group in 0..self.groups.len() {
            if self.is_dense(group) {
                let moves = self.groups[group].cells.compact(0, usize::MAX);
                self.move_rows(group, moves)?;
            }
        }
        self.sync_extents()
    }

    fn remap(
        &mut self,
        op: &'static str,
        seq: SeqId,
        range: Range<usize>,
        to: impl Fn(usize) -> Option<usize>,
    ) -> Result<(), KvError> {
        self.can(op, seq)?;
        self.can_turn(op)?;
        let next = self.next[usize::from(seq.0)];
        self.unshare(op, seq, range.clone())?;
        for group in &mut self.groups {
            group.cells.map_positions(seq, range.clone(), &to);
        }
        let moved = next > 0 && range.contains(&(next - 1));
        let end = if moved { to(next - 1).map_or(0, |last| last + 1) } else { next };
        // Never behind a row of its own: the next token would be taken for one of the past.
        let rows = self.groups.iter().filter_map(|g| g.cells.pos_range(seq)).map(|(_, last)| last + 1);
        self.next[usize::from(seq.0)] = rows.fold(end, usize::max);
        self.tidy()
    }

    /// Rows of its own for a sequence in a range.
    fn unshare(&mut self, op: &'static str, seq: SeqId, range: Range<usize>) -> Result<(), KvError> {
        for (i, group) in self.groups.iter().enumerate() {
            let (n, free) = (group.cells.n_shared(seq, range.clone()), group.capacity - group.cells.n_used());
            if n > free {
                return Err(self.refused(op, format!("{n} shared rows to part in group {i}, {free} free")));
            }
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

    /// Makes the rows of a group addressable when they go beyond the shape's past.
    pub(super) fn widen(&mut self, group: usize) -> Result<(), KvError> {
        let (extent, capacity) = (self.groups[group].cells.extent(), self.groups[group].capacity);
        for at in 0..self.splits.len() {
            let split = &mut self.splits[at];
            let mut ops = Ops::default();
            if extent > split.past_len[group] {
                split.past_len[group] = capacity;
                ops.push(Op::Shape { group, past_len: capacity, ar: split.ar });
            }
            if std::mem::replace(&mut split.extent[group], extent) != extent {
                ops.push(Op::Extent { group, extent });
            }
            self.start(at, ops)?;
        }
        Ok(())
    }

    fn can(&self, op: &'static str, seq: SeqId) -> Result<(), KvError> {
        self.idle(op)?;
        if usize::from(seq.0) >= SeqId::COUNT {
            return Err(self.refused(op, format!("sequence {} of {}", seq.0, SeqId::COUNT)));
        }
        if !self.keeps_rows {
            return Err(self.refused(op, "every graph has AR == CL, so there are no rows".to_owned()));
        }
        if self.groups.iter().any(|g| g.mixed) {
            return Err(self.refused(op, "KeyDiff has evicted, so each head holds other tokens".to_owned()));
        }
        Ok(())
    }

    fn can_turn(&self, op: &'static str) -> Result<(), KvError> {
        match &self.rope {
            Some(rope) => match self.dims_short_of(rope.dims()) {
                Some(dim) => {
                    Err(self.refused(op, format!("the rope turns {} dimensions, keys have {dim}", rope.dims())))
                }
                None => Ok(()),
            },
            None => Err(self.refused(op, "keys must turn: tell how they were embedded with `set_rope`".to_owned())),
        }
    }

    fn dims_short_of(&self, dims: usize) -> Option<usize> {
        self.min_head_dim.filter(|&dim| dim < dims)
    }

    pub(super) fn refused(&self, op: &'static str, why: String) -> KvError {
        KvError::Refused { mode: self.options.mode.name(), op, why }
    }
}
