//! One sequence of a cache's image: taken out, and put beside others.
//!
//! *Units*: rows. A row that several sequences own is in each one's part; put back, a part may share those that are there again.

use std::borrow::Cow;

use super::image::{GroupImage, KvImage};
use crate::cells::{Cell, SeqId};
use crate::error::KvError;
use crate::geometry::KvTensor;

impl KvImage {
    /// The rows of one sequence. What a rule of eviction has scored is left out: it is of all rows together.
    pub fn of_sequence(&self, seq: SeqId) -> Self {
        let mut part = self.of_rows(|cell| cell.has(seq));
        part.groups.iter_mut().flat_map(|group| &mut group.cells).for_each(|cell| cell.seqs = seq.bit());
        part.next.retain(|(of, _)| *of == seq);
        part
    }

    /// Some of the rows, without what a rule of eviction has scored.
    fn of_rows(&self, keep: impl Fn(&Cell) -> bool) -> Self {
        let kept = |group: &GroupImage| -> Vec<usize> {
            group.cells.iter().enumerate().filter(|(_, cell)| keep(cell)).map(|(row, _)| row).collect()
        };
        let rows: Vec<Vec<usize>> = self.groups.iter().map(kept).collect();
        let groups = self.groups.iter().zip(&rows).map(|(group, rows)| GroupImage {
            cells: rows.iter().map(|&row| group.cells[row]).collect(),
            per_head_rows: group.per_head_rows,
            scored: None,
        });
        let parts = self.tensors.iter().zip(&self.data);
        let data = parts.map(|(tensor, bytes)| {
            let mut out = Vec::with_capacity(tensor.rows_bytes(rows[tensor.group].len()));
            lines(tensor, bytes, self.groups[tensor.group].cells.len(), |line| {
                let unit = tensor.unit_bytes();
                rows[tensor.group].iter().for_each(|row| out.extend_from_slice(&line[row * unit..][..unit]));
            });
            out
        });
        Self {
            groups: groups.collect(),
            next: self.next.clone(),
            data: data.collect(),
            tensors: self.tensors.clone(),
            scorer: Vec::new(),
        }
    }

    /// Gives the rows of a sequence to another, which had none.
    pub fn rename_sequence(&mut self, from: SeqId, to: SeqId) {
        for cell in self.groups.iter_mut().flat_map(|group| &mut group.cells).filter(|cell| cell.has(from)) {
            cell.seqs = (cell.seqs & !from.bit()) | to.bit();
        }
        self.next.iter_mut().filter(|(seq, _)| *seq == from).for_each(|(seq, _)| *seq = to);
        self.next.sort_unstable();
    }

    /// The same rows and those of another image, which is of one sequence; they become the rows of `seq` here.
    ///
    /// # Errors
    /// [`KvError::Foreign`] for an image of other tensors, whose order may be another one; [`KvError::BadImage`] for one that contradicts
    /// itself or where `seq` has rows already.
    pub fn with_sequence(self, other: &Self, seq: SeqId) -> Result<Self, KvError> {
        self.with_sequence_like(other, seq, seq, 0)
    }

    /// The same where positions below `n` are of the same tokens as those of sequence `src` here: it gets the rows of `src` there, where both have
    /// [each of them](GroupImage::has_each).
    ///
    /// # Errors
    /// As [`with_sequence`](Self::with_sequence).
    pub fn with_sequence_like(mut self, other: &Self, seq: SeqId, src: SeqId, n: usize) -> Result<Self, KvError> {
        other.check()?;
        let places = other.places_of(&self.tensors, self.groups.len())?;
        if self.groups.iter().any(|group| group.cells.iter().any(|cell| cell.has(seq))) {
            return Err(KvError::BadImage { why: format!("sequence {} has rows already", seq.0) });
        }
        let have_each = |image: &Self, seq| image.groups.iter().all(|group| group.has_each(seq, n));
        let shares =
            n > 0 && have_each(&self, src) && other.next.first().is_some_and(|&(seq, _)| have_each(other, seq));
        let other = if shares { Cow::Owned(other.of_rows(|cell| cell.pos >= n)) } else { Cow::Borrowed(other) };
        if shares {
            let cells = self.groups.iter_mut().flat_map(|group| &mut group.cells);
            cells.filter(|cell| cell.has(src) && cell.pos < n).for_each(|cell| cell.seqs |= seq.bit());
        }
        for (i, (tensor, place)) in self.tensors.iter().zip(places).enumerate() {
            let (own, new) = (&self.groups[tensor.group].cells, &other.groups[tensor.group].cells);
            let mut bytes = Vec::with_capacity(tensor.rows_bytes(own.len() + new.len()));
            let unit = tensor.unit_bytes();
            for line in 0..tensor.n_lines() {
                bytes.extend_from_slice(&self.data[i][line * unit * own.len()..][..unit * own.len()]);
                bytes.extend_from_slice(&other.data[place][line * unit * new.len()..][..unit * new.len()]);
            }
            self.data[i] = bytes;
        }
        for (group, new) in self.groups.iter_mut().zip(&other.groups) {
            group.cells.extend(new.cells.iter().map(|cell| Cell { seqs: seq.bit(), ..*cell }));
            group.per_head_rows |= new.per_head_rows;
            group.scored = None;
        }
        self.next.retain(|(of, _)| *of != seq);
        self.next.extend(other.next.first().map(|&(_, next)| (seq, next)));
        self.next.sort_unstable();
        Ok(self)
    }
}

/// Calls `each` with the lines of a tensor of `n` rows.
fn lines(tensor: &KvTensor, bytes: &[u8], n: usize, mut each: impl FnMut(&[u8])) {
    let len = tensor.unit_bytes() * n;
    (0..tensor.n_lines()).for_each(|line| each(&bytes[line * len..][..len]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind};

    fn image() -> KvImage {
        // Rows 0 and 1 are shared, 2 is of sequence 0, 3 of sequence 1; a byte says row and line.
        let cells = [(0, 0b11), (1, 0b11), (2, 0b01), (2, 0b10)];
        let cells: Vec<Cell> = cells.iter().map(|&(pos, seqs)| Cell { pos, rotated_pos: pos, seqs }).collect();
        let tensors: Vec<KvTensor> =
            [KvKind::Key, KvKind::Value].map(|kind| KvTensor::new(kind, 0, 2, 3, KvDtype::U8)).into();
        let bytes = |tensor: &KvTensor| {
            let (unit, lines) = (tensor.unit_bytes(), tensor.n_lines());
            let all =
                (0..lines).flat_map(|line| (0..4).flat_map(move |row| (0..unit).map(move |_| (line * 10 + row) as u8)));
            all.collect()
        };
        let data = tensors.iter().map(bytes).collect();
        let next = vec![(SeqId(0), 3), (SeqId(1), 3)];
        KvImage { groups: vec![GroupImage::of_cells(cells)], next, tensors, data, scorer: Vec::new() }
    }

    #[test]
    fn a_sequence_taken_out_has_its_rows_alone() {
        let one = image().of_sequence(SeqId(1));
        one.check().expect("it is whole");
        let cells: Vec<_> = one.groups[0].cells.iter().map(|c| (c.pos, c.seqs)).collect();
        assert_eq!(cells, [(0, 2), (1, 2), (2, 2)]);
        assert_eq!(one.next, [(SeqId(1), 3)]);
        assert_eq!(one.data[0][..6], [0, 1, 3, 10, 11, 13]);
        assert_eq!(one.data[1][..9], [0, 0, 0, 1, 1, 1, 3, 3, 3]);
    }

    #[test]
    fn a_sequence_put_back_is_what_it_was() {
        let (whole, parked) = (image(), image().of_sequence(SeqId(1)));
        let alone = whole.of_sequence(SeqId(0));
        let both = alone.clone().with_sequence(&parked, SeqId(5)).expect("it fits");
        both.check().expect("it is whole");
        assert_eq!(both.groups[0].cells.len(), 6);
        assert_eq!(both.of_sequence(SeqId(0)), alone);
        let again = both.of_sequence(SeqId(5));
        assert_eq!((again.data, again.next), (parked.data.clone(), vec![(SeqId(5), 3)]));
        assert!(matches!(both_twice(whole, &parked), Err(KvError::BadImage { .. })));
        let mut foreign = parked;
        foreign.tensors[0] = foreign.tensors[0].with_quant(2.0, 0);
        assert!(matches!(alone.with_sequence(&foreign, SeqId(5)), Err(KvError::Foreign { .. })));
    }

    #[test]
    fn the_order_of_the_tensors_does_not_matter() {
        let (whole, parked) = (image(), image().of_sequence(SeqId(1)));
        let alone = whole.of_sequence(SeqId(0));
        let mut turned = parked.clone();
        turned.tensors.reverse();
        turned.data.reverse();
        for n in [0, 2] {
            let like = |parked| alone.clone().with_sequence_like(parked, SeqId(1), SeqId(0), n).expect("it fits");
            assert_eq!(like(&turned), like(&parked), "{n} rows in common");
        }
        let refused = |change: &dyn Fn(&mut KvImage)| {
            let mut image = parked.clone();
            change(&mut image);
            alone.clone().with_sequence(&image, SeqId(1)).expect_err("it is of another model").to_string()
        };
        let missing = refused(&|image| image.tensors[0].layer = genie_types::LayerIdx(3));
        assert_eq!(missing, "saved rows do not fit this cache: `past_key_0` is not in it");
        let fewer = refused(&|image| {
            image.tensors.truncate(1);
            image.data.truncate(1);
        });
        assert_eq!(fewer, "saved rows do not fit this cache: 1 groups and 1 tensors saved, this model has 1 and 2");
    }

    #[test]
    fn a_sequence_put_back_shares_the_rows_that_are_there() {
        let (whole, parked) = (image(), image().of_sequence(SeqId(1)));
        let alone = whole.of_sequence(SeqId(0));
        let both = |n: usize| alone.clone().with_sequence_like(&parked, SeqId(1), SeqId(0), n).expect("it fits");
        let shared = both(2);
        shared.check().expect("it is whole");
        assert_eq!(shared, whole);
        assert_eq!((both(1).groups[0].cells.len(), both(0).groups[0].cells.len()), (5, 6));
        // Not where one lacks a row of the other, as where rows were dropped.
        let mut gap = alone.clone();
        gap.groups[0].cells[1].pos = 7;
        let apart = gap.with_sequence_like(&parked, SeqId(1), SeqId(0), 2).expect("it fits");
        assert_eq!(apart.groups[0].cells.len(), 6);
        assert_eq!(apart.of_sequence(SeqId(1)).data, parked.data);
    }

    fn both_twice(whole: KvImage, parked: &KvImage) -> Result<KvImage, KvError> {
        whole.with_sequence(parked, SeqId(1))
    }
}
