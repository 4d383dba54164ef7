//! The rows of one cache for the tensors of another: other element types and scales, tensors by head or by layer, another CL.
//!
//! *Shapes*: those of an image, so a layout (transposed values, a mode) plays no part.
//! *Units and dtype*: where type, scale and offset are equal bytes are copied; else each element is read as a number, and
//! rounded to the other type.
//! *Invariant*: the layers, heads and dimensions of both are the same, and groups of layers hold the same tokens.

use super::image::{GroupImage, KvImage};
use crate::cells::Cell;
use crate::codec::{decode, encode};
use crate::error::KvError;
use crate::geometry::{KvKind, KvLayout, KvTensor};

/// Rows of the other cache that it keeps: its image, and the position before which both hold the same tokens.
pub type OwnRows<'a> = (&'a KvImage, usize);

impl KvImage {
    /// These rows as a cache with `tensors` holds them. Rows that it has already are taken from `own`, so that converting there
    /// and back loses nothing of them.
    ///
    /// # Errors
    /// [`KvError::OtherShape`] for another number of layers, heads or dimensions, or for layers that no longer hold the same
    /// tokens; [`KvError::BadImage`].
    pub fn converted(&self, tensors: &[KvTensor], own: Option<OwnRows<'_>>) -> Result<Self, KvError> {
        self.check()?;
        check_shapes(&self.tensors, tensors)?;
        if self.groups.iter().any(|group| group.per_head_rows) {
            let (what, expected) = ("what `KeyDiff` has left".to_owned(), "the same tokens in each head".to_owned());
            return Err(KvError::OtherShape { what, expected, found: "others in each".to_owned() });
        }
        let groups = self.groups_for(tensors)?;
        let data = tensors.iter().map(|tensor| {
            let cells = &groups[tensor.group].cells;
            let mut rows = vec![0; tensor.rows_bytes(cells.len())];
            for head in 0..tensor.n_heads {
                let absolute = tensor.head.unwrap_or(head);
                let from = HeadRows::of(self, tensor, absolute);
                let own = own.and_then(|(image, before)| Some((HeadRows::of(image, tensor, absolute)?, before)));
                for (row, cell) in cells.iter().enumerate() {
                    let kept = own.as_ref().filter(|(_, before)| cell.pos < *before);
                    let kept = kept.and_then(|(own, _)| Some((own, own.row_at(cell.pos)?)));
                    let Some((from, at)) = kept.or(from.as_ref().map(|from| (from, row))) else { continue };
                    from.copy_row(at, (tensor, head, row, cells.len()), &mut rows);
                }
            }
            rows
        });
        let data = data.collect();
        Ok(Self { groups, next: self.next.clone(), tensors: tensors.to_vec(), data, scorer: Vec::new() })
    }

    /// The groups that tensors of another cache belong to, with the cells that their layers have here.
    fn groups_for(&self, tensors: &[KvTensor]) -> Result<Vec<GroupImage>, KvError> {
        let n_groups = tensors.iter().map(|t| t.group + 1).max().unwrap_or(0);
        let mut groups: Vec<Option<&[Cell]>> = vec![None; n_groups];
        for tensor in tensors {
            let here = self.tensors.iter().find(|t| (t.layer, t.kind) == (tensor.layer, tensor.kind));
            let Some(cells) = here.and_then(|t| self.groups.get(t.group)).map(|group| group.cells.as_slice()) else {
                continue;
            };
            if groups[tensor.group].replace(cells).is_some_and(|other| other != cells) {
                return Err(KvError::OtherShape {
                    what: format!("`{}`", tensor.name()),
                    expected: format!("the tokens that the other layers of group {} hold", tensor.group),
                    found: format!("{} rows of others", cells.len()),
                });
            }
        }
        Ok(groups.into_iter().map(|cells| GroupImage::of_cells(cells.unwrap_or_default().to_vec())).collect())
    }
}

/// Whether rows of a cache with the first tensors can become rows of one with the others.
///
/// # Errors
/// [`KvError::OtherShape`] with the first difference.
pub fn check_shapes(from: &[KvTensor], to: &[KvTensor]) -> Result<(), KvError> {
    let differs = |what: &str, expected: String, found: String| {
        Err(KvError::OtherShape { what: what.to_owned(), expected, found })
    };
    if let Some(t) = from.iter().chain(to).find(|t| t.head.is_some() && t.n_heads != 1) {
        return differs(
            &format!("`{}`", t.name()),
            "the rows of one head".into(),
            format!("those of a batch of {}", t.n_heads),
        );
    }
    let in_blocks = |tensors: &[KvTensor]| tensors.iter().any(|t| t.kind.is_scale());
    if in_blocks(from) != in_blocks(to) {
        let words = |tensors| if in_blocks(tensors) { "in blocks with scales" } else { "one by one" };
        return differs("numbers of the rows", words(to).into(), words(from).into());
    }
    let (shapes, wanted) = (layers(from), layers(to));
    if shapes.len() != wanted.len() {
        let n_layers = |shapes: &[LayerShape]| shapes.chunk_by(|a, b| a.layer == b.layer).count().to_string();
        return differs("layers with a cache", n_layers(&wanted), n_layers(&shapes));
    }
    for (shape, wanted) in shapes.iter().zip(&wanted) {
        if shape != wanted {
            let word = |s: &LayerShape| {
                format!("{} heads of {} {}s in layer {}", s.n_heads, s.head_dim, s.kind.name(), s.layer)
            };
            return differs("rows", word(wanted), word(shape));
        }
    }
    Ok(())
}

/// What a layer keeps for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LayerShape {
    layer: usize,
    kind: KvKind,
    n_heads: usize,
    head_dim: usize,
}

fn layers(tensors: &[KvTensor]) -> Vec<LayerShape> {
    let mut shapes: Vec<LayerShape> = Vec::new();
    for t in tensors {
        match shapes.iter_mut().find(|s| (s.layer, s.kind) == (t.layer.0, t.kind)) {
            Some(shape) => shape.n_heads += t.n_heads,
            None => {
                let (layer, kind, n_heads, head_dim) = (t.layer.0, t.kind, t.n_heads, t.head_dim);
                shapes.push(LayerShape { layer, kind, n_heads, head_dim });
            }
        }
    }
    shapes.sort_unstable();
    shapes
}

/// The rows of one head in an image.
struct HeadRows<'i> {
    tensor: &'i KvTensor,
    data: &'i [u8],
    cells: &'i [Cell],
    /// The head's number within the tensor.
    head: usize,
}

impl<'i> HeadRows<'i> {
    /// Those of the layer and kind of `like`; `head` is counted over the whole layer.
    fn of(image: &'i KvImage, like: &KvTensor, head: usize) -> Option<Self> {
        let holds = |t: &KvTensor| {
            (t.layer, t.kind) == (like.layer, like.kind) && t.head.map_or(head < t.n_heads, |own| own == head)
        };
        let at = image.tensors.iter().position(holds)?;
        let tensor = &image.tensors[at];
        let head = if tensor.head.is_some() { 0 } else { head };
        Some(Self { tensor, data: &image.data[at], cells: &image.groups.get(tensor.group)?.cells, head })
    }

    /// The row of a position.
    fn row_at(&self, pos: usize) -> Option<usize> {
        self.cells.iter().position(|cell| cell.pos == pos)
    }

    /// Copies row `at` to a place in another tensor: the tensor, a head of it, a row and how many rows it has.
    fn copy_row(&self, at: usize, (to, head, row, n_rows): (&KvTensor, usize, usize, usize), out: &mut [u8]) {
        let n = self.cells.len();
        let same = (self.tensor.dtype, self.tensor.scale, self.tensor.offset) == (to.dtype, to.scale, to.offset);
        let (size, to_size) = (self.tensor.dtype.size_bytes(), to.dtype.size_bytes());
        // Images have the layout of the kind.
        let by_dim = KvLayout::of(to.kind) == KvLayout::HeadDimSeq;
        let element = |tensor: &KvTensor, head: usize, row: usize, n: usize, dim: usize| match by_dim {
            true => (head * tensor.head_dim + dim) * n + row,
            false => (head * n + row) * tensor.head_dim + dim,
        };
        for dim in 0..to.head_dim {
            let from = element(self.tensor, self.head, at, n, dim) * size;
            let place = element(to, head, row, n_rows, dim) * to_size;
            let (from, place) = (&self.data[from..from + size], &mut out[place..place + to_size]);
            match same {
                true => place.copy_from_slice(from),
                false => encode(to, decode(self.tensor, from), place),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::KvDtype;
    use crate::seq_id::SeqId;

    /// Two heads of two dimensions, keys and values of one layer, in tensors of this kind; element `100 h + 10 d + row`.
    fn image(tensors: Vec<KvTensor>, n: usize, value: impl Fn(usize, usize, usize) -> f32) -> KvImage {
        let data = tensors.iter().map(|t| {
            let mut bytes = vec![0; t.rows_bytes(n)];
            let size = t.dtype.size_bytes();
            for head in 0..t.n_heads {
                for dim in 0..t.head_dim {
                    for row in 0..n {
                        let (line, unit, within) = t.line_of(head, dim);
                        let at = (line * n + row) * unit + within;
                        encode(t, value(t.head.unwrap_or(head), dim, row), &mut bytes[at * size..(at + 1) * size]);
                    }
                }
            }
            bytes
        });
        let data = data.collect();
        let cells = (0..n).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
        let groups = vec![GroupImage::of_cells(cells)];
        KvImage { groups, next: vec![(SeqId(0), n)], tensors, data, scorer: Vec::new() }
    }

    fn whole(dtype: KvDtype) -> Vec<KvTensor> {
        [KvKind::Key, KvKind::Value].map(|kind| KvTensor::new(kind, 0, 2, 2, dtype)).to_vec()
    }

    fn by_head(dtype: KvDtype) -> Vec<KvTensor> {
        let tensors = whole(dtype);
        tensors.iter().flat_map(|t| [t.for_head(0), t.for_head(1)]).collect()
    }

    #[test]
    fn every_form_becomes_every_other() {
        let value = |head: usize, dim: usize, row: usize| (100 * head + 10 * dim + row) as f32 * 0.25 - 20.0;
        let u8s = |tensors: Vec<KvTensor>| tensors.into_iter().map(|t| t.with_quant(0.25, -80)).collect::<Vec<_>>();
        let u16s = |tensors: Vec<KvTensor>| tensors.into_iter().map(|t| t.with_quant(0.125, -900)).collect::<Vec<_>>();
        let forms = [
            whole(KvDtype::F32),
            whole(KvDtype::F16),
            by_head(KvDtype::F16),
            u8s(by_head(KvDtype::U8)),
            u8s(whole(KvDtype::U8)),
            u16s(whole(KvDtype::U16)),
        ];
        for from in &forms {
            for to in &forms {
                let (a, b) = (image(from.clone(), 3, value), image(to.clone(), 3, value));
                assert_eq!(a.converted(to, None).unwrap(), b, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn rows_that_the_other_has_stay_its_own() {
        let fine = image(whole(KvDtype::F32), 2, |head, dim, row| (head + dim + row) as f32 + 0.3);
        let coarse: Vec<_> = whole(KvDtype::U8).into_iter().map(|t| t.with_quant(1.0, 0)).collect();
        let sent = fine.converted(&coarse, None).unwrap();
        assert_ne!(sent.converted(&fine.tensors, None).unwrap(), fine, "rounded");
        assert_eq!(sent.converted(&fine.tensors, Some((&fine, 2))).unwrap(), fine);
        let half = sent.converted(&fine.tensors, Some((&fine, 1))).unwrap();
        let first = |image: &KvImage| image.data[1][..8].to_vec();
        assert_eq!(first(&half), first(&fine));
        assert_ne!(half, fine, "row 1 is a new one");
    }

    #[test]
    fn other_models_are_named() {
        let three = [KvKind::Key, KvKind::Value].map(|kind| KvTensor::new(kind, 0, 3, 2, KvDtype::F16));
        let wide = [KvKind::Key, KvKind::Value].map(|kind| KvTensor::new(kind, 0, 2, 4, KvDtype::F16));
        let deep: Vec<_> =
            whole(KvDtype::F16).into_iter().chain([KvTensor::new(KvKind::Key, 1, 2, 2, KvDtype::F16)]).collect();
        for (to, said) in [
            (
                three.to_vec(),
                "caches differ: rows: expected 3 heads of 2 keys in layer 0, found 2 heads of 2 keys in layer 0",
            ),
            (
                wide.to_vec(),
                "caches differ: rows: expected 2 heads of 4 keys in layer 0, found 2 heads of 2 keys in layer 0",
            ),
            (deep, "caches differ: layers with a cache: expected 2, found 1"),
        ] {
            let error = image(whole(KvDtype::F16), 1, |_, _, _| 0.0).converted(&to, None).unwrap_err();
            assert_eq!(error.to_string(), said);
        }
    }
}
