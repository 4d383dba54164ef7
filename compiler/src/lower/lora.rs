//! LoRA adapters in a graph: `y + B ((A x) * s)`, with the strengths of the adapters as inputs.
//!
//! The matrices of all adapters of a projection lie side by side, so that each projection has two more products whatever the number of
//! adapters. *Shapes*: A `[r1 + r2 + .., in]`, B `[out, r1 + r2 + ..]`, the row of strengths as wide as both; `alpha` `[1]`.
//! Constants rather than inputs: see docs/lora.md.

use std::collections::BTreeMap;
use std::ops::Range;

use genie_types::{Dtype, TensorInfo};
use half::f16;

use super::composer::{Composer, TensorValue};
use super::encode::EncodedWeight;
use super::sink::GraphSink;
use super::weight_format::{LinearForm, WeightSpec};
use super::weights::{LayerWeights, Linear};
use super::{LayerBuilder, Source};
use crate::checkpoint::FiniteCheck;
use crate::lora::{Adapter, Target};
use crate::{CompileError, Result, Silent};

/// The matrices of the adapters of one projection.
#[derive(Clone, Debug)]
pub(super) struct LowRank<W> {
    pub(super) down: W,
    pub(super) up: W,
    /// The rank of each adapter; 0 for one that leaves the projection as it is.
    pub(super) ranks: Vec<usize>,
}

/// Rows of strengths, by the ranks of the adapters.
#[derive(Debug)]
pub(super) struct Strengths<T>(BTreeMap<Vec<usize>, TensorValue<T>>);

impl<T: Copy + core::fmt::Debug> Strengths<T> {
    /// Declares the strengths of the adapters that these layers have as inputs, and makes the rows.
    pub(super) fn declare<S: GraphSink<Tensor = T>>(
        adapters: &[Adapter],
        layers: Range<usize>,
        form: LinearForm,
        graph: &mut Composer<S>,
    ) -> Result<Self> {
        let places = layers.flat_map(|layer| Target::ALL.map(|target| ranks_at(adapters, layer, target)));
        let combinations: Vec<Vec<usize>> = places.flatten().collect();
        let mut alphas = Vec::with_capacity(adapters.len());
        for (a, adapter) in adapters.iter().enumerate() {
            let is_read = combinations.iter().any(|ranks| ranks[a] > 0);
            let dtype = graph.dtype();
            alphas.push(if is_read { Some(graph.input(&adapter.alpha(), vec![1], dtype)?) } else { None });
        }
        let mut rows = BTreeMap::new();
        for ranks in combinations {
            if !rows.contains_key(&ranks) {
                let row = row(graph, form, rows.len(), &ranks, &alphas)?;
                rows.insert(ranks, row);
            }
        }
        Ok(Self(rows))
    }
}

/// The strengths side by side, each as often as the adapter's rank; of one adapter the number itself.
fn row<S: GraphSink>(
    graph: &mut Composer<S>,
    form: LinearForm,
    number: usize,
    ranks: &[usize],
    alphas: &[Option<TensorValue<S::Tensor>>],
) -> Result<TensorValue<S::Tensor>> {
    let used: Vec<(usize, &TensorValue<S::Tensor>)> = ranks
        .iter()
        .zip(alphas)
        .filter_map(|(&rank, alpha)| Some((rank, alpha.as_ref()?)))
        .filter(|(rank, _)| *rank > 0)
        .collect();
    if let [(_, only)] = used[..] {
        return Ok(only.clone());
    }
    let mut joined: Option<TensorValue<S::Tensor>> = None;
    for (i, (rank, alpha)) in used.into_iter().enumerate() {
        let mut dims = vec![1; if form == LinearForm::Conv2d { 4 } else { 2 }];
        *dims.last_mut().expect("two or four") = rank;
        let ones = constant(format!("lora_ones_{number}_{i}"), dims, &vec![1.0; rank], graph.dtype());
        let ones = graph.constant(&ones, &Silent)?;
        let part = graph.mul(&format!("lora_strength_{number}_{i}"), &ones, alpha, None)?;
        joined = Some(match joined {
            None => part,
            Some(before) => {
                let axis = before.dims.len() - 1;
                graph.concat(&format!("lora_strengths_{number}_{i}"), &before, &part, axis)?
            }
        });
    }
    Ok(joined.expect("a row is made where some adapter has a rank"))
}

/// A linear layer with what its adapters add.
pub(super) fn linear<S: GraphSink>(
    graph: &mut Composer<S>,
    node: &str,
    x: &TensorValue<S::Tensor>,
    linear: &Linear<TensorValue<S::Tensor>>,
    strengths: Option<&Strengths<S::Tensor>>,
) -> Result<TensorValue<S::Tensor>> {
    let y = graph.linear(node, x, &linear.weight, linear.bias.as_ref())?;
    let Some(LowRank { down, up, ranks }) = &linear.lora else { return Ok(y) };
    let strengths = strengths.expect("graphs with adapters have strengths");
    let row = &strengths.0[ranks];
    let inner = graph.linear(&format!("{node}_lora_down"), x, down, None)?;
    let scaled = graph.mul(&format!("{node}_lora_scaled"), &inner, row, None)?;
    let added = graph.linear(&format!("{node}_lora_up"), &scaled, up, None)?;
    graph.add(&format!("{node}_lora"), &y, &added, None)
}

/// Ranks of all adapters at a projection; `None` where none has any.
fn ranks_at(adapters: &[Adapter], layer: usize, target: Target) -> Option<Vec<usize>> {
    let ranks: Vec<usize> = adapters.iter().map(|a| a.rank_at(layer, target).unwrap_or(0)).collect();
    ranks.iter().any(|rank| *rank > 0).then_some(ranks)
}

impl Source<'_> {
    /// Puts the adapters of a layer into every graph. `specs`: its weights, whose folded factors are those of the adapters too.
    pub(super) fn load_adapters<S: GraphSink>(
        &mut self,
        layer: usize,
        specs: &LayerWeights<WeightSpec>,
        held: &mut LayerWeights<Vec<TensorValue<S::Tensor>>>,
        builders: &mut [LayerBuilder<S>],
    ) -> Result<()> {
        for target in Target::ALL {
            crate::progress::go_on(self.progress)?;
            let Some(ranks) = ranks_at(self.adapters, layer, target) else { continue };
            let Some(spec) = specs.linear(target) else { continue };
            let (down, up) = self.join(layer, target, &spec.weight, &ranks)?;
            let mut handles = (Vec::new(), Vec::new());
            for builder in builders.iter_mut() {
                handles.0.push(builder.graph.constant(&down, self.progress)?);
                handles.1.push(builder.graph.constant(&up, self.progress)?);
            }
            if let Some(held) = held.linear_mut(target) {
                held.lora = Some(LowRank { down: handles.0, up: handles.1, ranks });
            }
        }
        Ok(())
    }

    /// The matrices of all adapters of a projection, side by side.
    fn join(
        &self,
        layer: usize,
        target: Target,
        weight: &WeightSpec,
        ranks: &[usize],
    ) -> Result<(EncodedWeight, EncodedWeight)> {
        let (out, inner, total) = (weight.dims[0], weight.dims[1], ranks.iter().sum::<usize>());
        let (mut down, mut up) = (Vec::with_capacity(total * inner), vec![0.0_f32; out * total]);
        let mut first = 0;
        for adapter in self.adapters {
            let Some(matrices) = adapter.matrices(layer, target)? else { continue };
            let rank = matrices.rank;
            down.extend_from_slice(&matrices.down);
            for (row, from) in up.chunks_exact_mut(total).zip(matrices.up.chunks_exact(rank)) {
                let to = row[first..first + rank].iter_mut();
                to.zip(from).for_each(|(to, from)| *to = (f64::from(*from) * weight.scale) as f32);
            }
            first += rank;
        }
        let encode = |part: &str, rows: usize, columns: usize, values: &[f32]| {
            let name = format!("{}_{part}", weight.stored_as.trim_end_matches("_weight"));
            self.encode(name, rows, columns, values)
        };
        Ok((encode("lora_down", total, inner, &down)?, encode("lora_up", out, total, &up)?))
    }

    /// A matrix in the type and form of the graph's linear weights; adapters are not quantised.
    fn encode(&self, name: String, rows: usize, columns: usize, values: &[f32]) -> Result<EncodedWeight> {
        let dtype = self.format.precision.dtype();
        let limit = if dtype == Dtype::F16 { f16::MAX.to_f32() } else { f32::MAX };
        if let Some(at) = values.iter().position(|v| v.abs() > limit) {
            let index = FiniteCheck { name: &name, dims: &[rows, columns], done: 0 }.index(at);
            return Err(CompileError::F16Overflow { name, index, value: values[at] });
        }
        let form = self.format.form;
        let dims = form.dims(&[rows, columns]);
        Ok(match form {
            LinearForm::FullyConnected => constant(name, dims, values, dtype),
            LinearForm::Conv2d => {
                let transposed: Vec<f32> =
                    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect();
                constant(name, dims, &transposed, dtype)
            }
        })
    }
}

/// Numbers as a tensor of float32 or float16.
fn constant(name: String, dims: Vec<usize>, values: &[f32], dtype: Dtype) -> EncodedWeight {
    let bytes = match dtype {
        Dtype::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let source_bytes = 0;
    EncodedWeight {
        info: TensorInfo::new(name, dims, dtype),
        bytes,
        minima: None,
        source_bytes,
        loss: Default::default(),
        note: None,
    }
}
