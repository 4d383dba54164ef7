//! Packed weights in and out of context binaries: packed once when a graph is composed, mapped from then on.
//!
//! A binary holds the packed form alone (those before format version 3: both, and what has an unknown tag or a wrong length is
//! packed again from the portable one).

use std::collections::HashSet;

use crate::container::{Image, Packed};
use crate::graph::typed::Constant;
use crate::graph::{Derived, SharedConstants};
use crate::ir::{Quant, Role, SourceGraph, Tensor, TensorId};
use crate::kernels::packed::Packing;

/// Packed forms of the static tensors of `graphs`, each once.
pub(super) fn collect(graphs: &[SourceGraph], shared: &SharedConstants) -> Vec<Packed> {
    let mut forms = Vec::new();
    let mut seen = HashSet::new();
    for (g, graph) in graphs.iter().enumerate() {
        for (t, tensor) in graph.tensors.iter().enumerate() {
            let Some((constant, shape)) = block_constant(tensor) else { continue };
            for packing in Packing::ALL {
                let Some(data) = shared.find(&constant, &shape, Derived::Packed(packing)) else { continue };
                if seen.insert(data.as_ptr().addr()) {
                    forms.push(Packed { of: (g, TensorId(t as u32)), tag: packing.tag(), data });
                }
            }
        }
    }
    forms
}

/// Makes the packed forms of a binary known, for the graphs that are about to be prepared.
pub(super) fn provide(image: &Image, shared: &SharedConstants) {
    for form in &image.packed {
        let (graph, tensor) = form.of;
        let Some((constant, shape)) = block_constant(image.graphs[graph].tensor(tensor)) else { continue };
        let fits = |p: &Packing| p.size_bytes(shape[0], shape[1]) == Some(form.data.len());
        if let Some(packing) = Packing::from_tag(form.tag).filter(fits) {
            shared.put(&constant, &shape, Derived::Packed(packing), form.data.clone());
        }
    }
}

/// A static matrix with a block encoding, as the passes see it.
fn block_constant(tensor: &Tensor) -> Option<(Constant, [usize; 2])> {
    let (Role::Static(bytes), Quant::Block { .. }) = (&tensor.role, &tensor.quant) else { return None };
    let &[rows, cols] = tensor.dims.as_slice() else { return None };
    Some((Constant::new(bytes.clone(), tensor.dtype, tensor.quant.clone()), [rows as usize, cols as usize]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bytes::Bytes;
    use crate::container::{Verify, decode, encode};
    use crate::exec::Executable;
    use crate::ir::{Dtype, Param};
    use crate::kernels::block_values::FLOATS;
    use crate::kernels::k_blocks::LEVELS;
    use crate::kernels::packed::Bits;
    use crate::pool::Pool;
    use crate::prepare::PrepareOptions;
    use crate::step::Arena;
    use crate::testing::Build;

    /// A layer of `[16, 64]` in blocks of 32, of 8 bits or 4.
    fn layer(dtype: Dtype, name: &str) -> SourceGraph {
        layer_of(dtype, name, |i| (i * 37 % 251) as u8, |i| 0.5 + i as f32 / 64.0)
    }

    /// The same with these values and scales.
    fn layer_of(dtype: Dtype, name: &str, value: impl Fn(usize) -> u8, scale: impl Fn(usize) -> f32) -> SourceGraph {
        let mut b = Build::new();
        let x = b.input("x", &[1, 64], Dtype::F32);
        let codes: Vec<u8> = (0..16 * 64).map(value).collect();
        let scales = (0..32).map(scale).collect();
        let quant = Quant::Block { block_dims: [1, 32].into(), scales, offsets: [].into() };
        let w = b.tensor("w", &[16, 64], dtype, quant, Role::Static(Bytes::copy_from(&codes)));
        let y = b.output("y", &[1, 16], Dtype::F32);
        b.node("FullyConnected", &[], &[x, w], &[y]);
        SourceGraph { name: name.to_owned(), ..b.graph }
    }

    /// A layer of `[16, 256]` in 4 bits with minima: two tensors.
    fn less_minima() -> SourceGraph {
        let mut b = Build::new();
        let x = b.input("x", &[1, 256], Dtype::F32);
        let codes: Vec<u8> = (0..16 * 128).map(|i| (i * 37 % 251) as u8).collect();
        let scales = (0..128).map(|i| (i % 64) as f32 / 512.0).collect();
        let quant = Quant::Block { block_dims: [1, 32].into(), scales, offsets: [].into() };
        let w = b.tensor("w", &[16, 256], Dtype::UFixed4, quant, Role::Static(Bytes::copy_from(&codes)));
        let codes: Vec<u8> = (0..128).map(|i| (i * 37 % 64) as u8).collect();
        let quant =
            Quant::Block { block_dims: [1, 8].into(), scales: (0..16).map(|i| i as f32).collect(), offsets: [].into() };
        let m = b.tensor("m", &[16, 8], Dtype::UFixed8, quant, Role::Static(Bytes::copy_from(&codes)));
        let (by_blocks, sums) = (b.native(&[1, 8, 32], Dtype::F32), b.native(&[1, 8], Dtype::F32));
        let [all, less] = [(); 2].map(|()| b.native(&[1, 16], Dtype::F32));
        let y = b.output("y", &[1, 16], Dtype::F32);
        b.node("Reshape", &[], &[x], &[by_blocks]);
        b.node("ReduceSum", &[("axes", Param::Ints(vec![1], vec![2]))], &[by_blocks], &[sums]);
        b.node("FullyConnected", &[], &[x, w], &[all]);
        b.node("FullyConnected", &[], &[sums, m], &[less]);
        b.node("ElementWiseSubtract", &[], &[all, less], &[y]);
        b.graph
    }

    fn run(graph: &SourceGraph, shared: &Arc<SharedConstants>) -> Vec<u8> {
        let options = PrepareOptions { shared: shared.clone(), ..PrepareOptions::default() };
        let executable = Executable::prepare(graph, &options).expect("prepares");
        let k = graph.tensors[0].n_elems();
        let x: Vec<u8> = (0..k).flat_map(|i| (i as f32 / 16.0 - 2.0).to_ne_bytes()).collect();
        let mut y = vec![0; 64];
        executable.run(&Pool::inline(), &mut Arena::new(), &[&x], &mut [&mut y], None).expect("runs");
        y
    }

    #[test]
    fn packed_weights_are_mapped_from_the_binary_and_mean_the_same() {
        for dtype in [Dtype::SFixed8, Dtype::SFixed4] {
            let graphs = vec![layer(dtype, "a"), layer(dtype, "b")];
            let shared = Arc::default();
            let before = run(&graphs[0], &shared);
            let packed = collect(&graphs, &shared);
            assert_eq!(packed.len(), 1, "the other graph's weights lie elsewhere and were never packed");
            let file = Bytes::copy_from(&encode(&Image { graphs, packed }).expect("encodes"));
            let image = decode(&file, Verify::All).expect("decodes");
            let shared = Arc::default();
            provide(&image, &shared);
            let form = collect(&image.graphs, &shared);
            let inside = file.as_ptr_range();
            assert!(form.len() == 1 && inside.contains(&form[0].data.as_ptr()), "read where it lies");
            assert_eq!(run(&image.graphs[0], &shared), before);
            assert_eq!(run(&image.graphs[1], &shared), before);
        }
    }

    #[test]
    fn a_file_holds_packed_weights_once_and_loading_it_unpacks_nothing() {
        let scale = |i: usize| 0.5 + i as f32 / 64.0;
        let five = layer_of(Dtype::SFixed8, "a", |i| ((i % 32) as i8 - 16).cast_unsigned(), scale);
        let levels = layer_of(Dtype::SFixed8, "a", |i| LEVELS[i * 7 % 16].cast_unsigned(), scale);
        let float = |i: usize| FLOATS[i * 7 % 16].cast_unsigned();
        // The scales of floats need to be powers of two, also such as float16 does not hold; else five bits hold the values.
        let floats = layer_of(Dtype::SFixed8, "a", float, |i| 2f32.powi(-(i as i32)));
        let odd_floats = layer_of(Dtype::SFixed8, "a", float, scale);
        let forms_of: [(SourceGraph, &[Bits]); 7] = [
            (layer(Dtype::SFixed8, "a"), &[Bits::Eight]),
            (layer(Dtype::SFixed4, "a"), &[Bits::Four]),
            (five, &[Bits::Five]),
            (levels, &[Bits::Nonlinear]),
            (floats, &[Bits::FloatFour]),
            (odd_floats, &[Bits::Five]),
            (less_minima(), &[Bits::UFour, Bits::Minima]),
        ];
        for (graph, expected) in forms_of {
            let graphs = vec![graph];
            let shared = Arc::default();
            let before = run(&graphs[0], &shared);
            let packed = collect(&graphs, &shared);
            let bits = packed.iter().filter_map(|form| Some(Packing::from_tag(form.tag)?.bits));
            assert_eq!(bits.collect::<Vec<_>>(), expected);
            // Forms begin at multiples of 64.
            let form = packed.iter().fold(0, |end: usize, form| end.next_multiple_of(64) + form.data.len());
            let file = encode(&Image { graphs, packed }).expect("encodes");
            assert_eq!(file.len(), crate::container::PAGE + form, "a page of metadata, and the form");

            let image = decode(&Bytes::copy_from(&file), Verify::All).expect("decodes");
            let shared = Arc::default();
            provide(&image, &shared);
            assert_eq!(run(&image.graphs[0], &shared), before);
            let are_made = |made: bool| {
                for tensor in &image.graphs[0].tensors {
                    if let (Role::Static(values), Quant::Block { scales, .. }) = (&tensor.role, &tensor.quant) {
                        assert_eq!([values.is_made(), scales.bytes().is_made()], [made; 2], "{}", tensor.name);
                    }
                }
            };
            // Loading made nothing portable without need.
            are_made(false);

            // Without the packed form's help the portable one is made of it, and packed again.
            assert_eq!(run(&image.graphs[0], &Arc::default()), before);
            are_made(true);
            // And the file is written again as it was.
            let packed = collect(&image.graphs, &shared);
            assert_eq!(encode(&Image { graphs: image.graphs.clone(), packed }).expect("encodes"), file);
        }
    }

    #[test]
    fn forms_that_do_not_fit_are_made_again() {
        let graphs = vec![layer(Dtype::SFixed8, "a")];
        let shared = Arc::default();
        let before = run(&graphs[0], &shared);
        let good = collect(&graphs, &shared).remove(0);
        let short = Packed { data: good.data.slice(0..64).expect("inside"), ..good.clone() };
        let unknown = Packed { tag: 0xFFFF_FFFF, ..good };
        for form in [short, unknown] {
            let image = Image { graphs: graphs.clone(), packed: vec![form] };
            let shared = Arc::default();
            provide(&image, &shared);
            assert!(collect(&graphs, &shared).is_empty());
            assert_eq!(run(&graphs[0], &shared), before);
        }
    }
}
