//! Static tensors that a file holds in packed form alone: which they are when it is written, and their portable form when
//! it is read.

use std::collections::HashMap;

use crate::bytes::Bytes;
use crate::ir::{BlockScales, Dtype, Quant, Role, SourceGraph, Tensor};
use crate::kernels::packed::{Bits, Packing};
use crate::kernels::unpack::Portable;

use super::Packed;

/// A form that stands for a tensor.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) tag: u32,
    pub(super) halves: bool,
    pub(super) data: &'a Bytes,
}

/// Places of values and scales.
type Place = ((usize, usize), (usize, usize));

/// The packed forms of an image, by what they were made of.
pub(super) struct Forms<'a>(HashMap<Place, Vec<(&'a Tensor, &'a Packed)>>);

impl<'a> Forms<'a> {
    /// Those of an image's.
    pub(super) fn of(graphs: &'a [SourceGraph], packed: &'a [Packed]) -> Self {
        let mut forms: HashMap<_, Vec<_>> = HashMap::new();
        for form in packed {
            let (graph, tensor) = form.of;
            let tensor = graphs.get(graph).and_then(|g| g.tensors.get(tensor.0 as usize));
            if let Some((tensor, place)) = tensor.and_then(|tensor| Some((tensor, place(tensor)?))) {
                forms.entry(place).or_default().push((tensor, form));
            }
        }
        Self(forms)
    }

    /// The form that holds all of a tensor.
    pub(super) fn find(&self, tensor: &Tensor) -> Option<Form<'a>> {
        let same = |of: &Tensor| of.dims == tensor.dims && of.dtype == tensor.dtype && of.quant == tensor.quant;
        let (_, form) = self.0.get(&place(tensor)?)?.iter().find(|(of, _)| same(of))?;
        let (packing, portable) = (Packing::from_tag(form.tag)?, portable(tensor)?);
        portable.check(packing, &form.data).ok()?;
        Some(Form { tag: form.tag, halves: portable.halves, data: &form.data })
    }
}

fn place(tensor: &Tensor) -> Option<Place> {
    match (&tensor.role, &tensor.quant) {
        (Role::Static(data), Quant::Block { scales, .. }) => Some((data.id(), scales.bytes().id())),
        _ => None,
    }
}

/// How the client gave a matrix in blocks along its rows; `None` if it is none, or its blocks have offsets.
fn portable(tensor: &Tensor) -> Option<Portable> {
    let (Role::Static(data), Quant::Block { block_dims, offsets, .. }) = (&tensor.role, &tensor.quant) else {
        return None;
    };
    let (&[rows, cols], &[1, block]) = (tensor.dims.as_slice(), block_dims.as_ref()) else { return None };
    let (rows, cols, block) = (rows as usize, cols as usize, block as usize);
    let halves = data.len() < rows.checked_mul(cols)?;
    offsets.iter().all(|&o| o == 0).then_some(Portable { rows, cols, block, halves })
}

/// Values and scales of a tensor, made of its packed form when first read; `None` if the form cannot be the tensor's.
pub(crate) fn portable_of(form: &Bytes, packing: Packing, tensor: &Tensor) -> Option<(Bytes, BlockScales)> {
    let halves = portable(tensor)?.halves;
    Unpacked::default().of(form, packing.tag(), halves, tensor, false).ok()
}

/// Portable forms that are made when first read; tensors that share a form share them.
#[derive(Default)]
pub(super) struct Unpacked(HashMap<FormKey, (Bytes, BlockScales)>);

/// Where a packed form lies in its file, its type, and what it unpacks to.
type FormKey = ((usize, usize), u32, Portable);

impl Unpacked {
    /// Values and scales of a form, for a tensor of these dimensions.
    ///
    /// # Errors
    /// Why it has none, as (expected, found).
    pub(super) fn of(
        &mut self,
        form: &Bytes,
        tag: u32,
        halves: bool,
        tensor: &Tensor,
        check_scales: bool,
    ) -> Result<(Bytes, BlockScales), (String, String)> {
        let unknown = || ("a packed form that this build knows".to_owned(), format!("{tag:#010x}"));
        let packing = Packing::from_tag(tag).ok_or_else(unknown)?;
        let dtype = match packing.bits {
            Bits::Four => Dtype::SFixed4,
            Bits::UTwo | Bits::UFour => Dtype::UFixed4,
            Bits::UFive | Bits::Minima | Bits::HalfMinima => Dtype::UFixed8,
            Bits::Three | Bits::Five | Bits::Six | Bits::Eight => Dtype::SFixed8,
            Bits::Levels | Bits::Nonlinear | Bits::FloatFour => Dtype::SFixed8,
        };
        let Quant::Block { block_dims, .. } = &tensor.quant else {
            return Err(("an encoding in blocks".to_owned(), format!("{:?}", tensor.quant)));
        };
        let (&[rows, cols], &[1, block], true) = (tensor.dims.as_slice(), block_dims.as_ref(), tensor.dtype == dtype)
        else {
            let found = format!("{:?} of {:?} in blocks of {block_dims:?}", tensor.dtype, tensor.dims);
            return Err((format!("a matrix of {dtype:?} in blocks along its rows"), found));
        };
        let portable = Portable { rows: rows as usize, cols: cols as usize, block: block as usize, halves };
        portable.check(packing, form)?;
        if let Some(known) = self.0.get(&(form.id(), tag, portable)) {
            return Ok(known.clone());
        }
        if let Some((block, scale)) = check_scales.then(|| portable.first_odd_scale(packing, form)).flatten() {
            return Err(("finite scales".to_owned(), format!("{scale} for block {block}")));
        }
        let (of_values, of_scales) = (form.clone(), form.clone());
        let values = Bytes::later(portable.values_bytes(), move || portable.values(packing, &of_values));
        let scales = Bytes::later(portable.scales_bytes(), move || portable.scales(packing, &of_scales));
        let scales = BlockScales::new(scales).ok_or_else(unknown)?;
        self.0.insert((form.id(), tag, portable), (values.clone(), scales.clone()));
        Ok((values, scales))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::packed::Scales;

    fn tensor(dtype: Dtype, dims: &[u32], block: u32) -> Tensor {
        let quant = Quant::Block { block_dims: [1, block].into(), scales: [].into(), offsets: [].into() };
        Tensor { name: "w".into(), dims: dims.into(), dtype, quant, data_format: 0, role: Role::Native }
    }

    #[test]
    fn forms_that_cannot_be_the_tensors_are_refused_with_what_was_expected() {
        let packing = Packing { bits: Bits::Four, scales: Scales::Block };
        let (tag, size) = (packing.tag(), packing.size_bytes(3, 64).unwrap());
        let form = Bytes::copy_from(&vec![0; size]);
        let good = tensor(Dtype::SFixed4, &[3, 64], 32);
        let mut unpacked = Unpacked::default();
        let (values, scales) = unpacked.of(&form, tag, true, &good, true).unwrap();
        assert_eq!((values.len(), scales.len()), (96, 6));
        let again = unpacked.of(&form, tag, true, &good, true).unwrap();
        assert_eq!((again.0.id(), again.1.bytes().id()), (values.id(), scales.bytes().id()), "graphs share them");

        let plain = Tensor { quant: Quant::None, ..good.clone() };
        for (tensor, tag, data, halves, expected) in [
            (&good, 0xFFFF_0001, &form, true, "a packed form that this build knows"),
            (&plain, tag, &form, true, "an encoding in blocks"),
            (&tensor(Dtype::SFixed8, &[3, 64], 32), tag, &form, true, "a matrix of SFixed4 in blocks along its rows"),
            (&tensor(Dtype::SFixed4, &[1, 3, 64], 32), tag, &form, true, "a matrix of SFixed4"),
            (&tensor(Dtype::SFixed4, &[3, 64], 16), tag, &form, true, "blocks that"),
            (&tensor(Dtype::SFixed4, &[17, 64], 32), tag, &form, true, "of 17 x 64"),
            (&good, tag, &form.slice(0..size - 1).unwrap(), true, "of 3 x 64"),
        ] {
            let (found, _) = Unpacked::default().of(data, tag, halves, tensor, true).unwrap_err();
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let (packing, minima) = (Packing { bits: Bits::UFour, scales: Scales::Block }, Packing::MINIMA);
        let forms = [(packing, 256), (minima, 8)]
            .map(|(packing, cols)| Bytes::copy_from(&vec![0; packing.size_bytes(3, cols).unwrap()]));
        for (tensor, packing, data, fits) in [
            (tensor(Dtype::UFixed4, &[3, 256], 32), packing, &forms[0], true),
            (tensor(Dtype::SFixed4, &[3, 256], 32), packing, &forms[0], false),
            (tensor(Dtype::UFixed4, &[3, 256], 64), packing, &forms[0], false),
            (tensor(Dtype::UFixed4, &[3, 224], 32), packing, &forms[0], false),
            (tensor(Dtype::UFixed4, &[3, 256], 32), packing, &forms[1], false),
            (tensor(Dtype::UFixed8, &[3, 8], 8), minima, &forms[1], true),
            (tensor(Dtype::UFixed8, &[3, 8], 4), minima, &forms[1], false),
            (tensor(Dtype::UFixed8, &[3, 8], 0), minima, &forms[1], false),
            (tensor(Dtype::UFixed8, &[33, 8], 8), minima, &forms[1], false),
        ] {
            let found = Unpacked::default().of(data, packing.tag(), false, &tensor, true);
            assert_eq!(found.is_ok(), fits, "{packing:?} as {tensor:?}");
        }

        let mut nan = vec![0; size];
        nan[2..4].copy_from_slice(&0x7E00u16.to_le_bytes());
        let (nan, mut unpacked) = (Bytes::copy_from(&nan), Unpacked::default());
        let odd = unpacked.of(&nan, tag, true, &good, true).unwrap_err();
        assert_eq!(odd, ("finite scales".to_owned(), "NaN for block 2".to_owned()));
        unpacked.of(&nan, tag, true, &good, false).expect("large files are compared later, by checksum");
    }
}
