//! What all layers of a PD graph share: positions as rows of static tables, one mask for both branches, the words of `fusion_ctrl`.
//!
//! *Units and dtype*: the mask is uint16, 65535 sees and 0 does not; its encoding makes that 0 and -1000, which is added to the scores.

use super::super::attention::{SharedInputs, Tables};
use super::super::cache_types::CacheTypes;
use super::super::composer::{Composer, TensorValue};
use super::super::sink::GraphSink;
use super::super::weight_format::Format;
use super::PdForm;
use super::update::{self, Rows};
use crate::Result;
use crate::family::{LocalRope, ModelSpec};
use genie_bundle::manifest::PdUpdate;
use genie_types::{Dtype, Quant, RopeConfig, TensorInfo, Variant};
use half::f16;
use nsp_graph::{names, pd};

/// Largest code of the mask.
const SEEN: i32 = 65535;
/// What a hidden column adds to its score.
const HIDDEN: f32 = 1000.0;

/// See the module's text.
pub(super) struct PdInputs<T> {
    pub(super) form: PdForm,
    /// `[1, 1, N - 1, CL]`; none in a graph for a decode row alone.
    pub(super) prefill_mask: Option<TensorValue<T>>,
    /// `[1, 1, 1, CL]`.
    pub(super) decode_mask: TensorValue<T>,
    /// `[N]`, int32.
    pub(super) positions: TensorValue<T>,
    /// Where the graph writes new rows, if it does.
    pub(super) rows: Rows<T>,
}

impl<T: Copy + core::fmt::Debug> PdInputs<T> {
    /// Declares the inputs; also gives what layers take from the plain graphs' lowering.
    pub(super) fn declare<S: GraphSink<Tensor = T>>(
        spec: &ModelSpec,
        form: PdForm,
        variant: Variant,
        (update, format, cache): (PdUpdate, Format, CacheTypes),
        graph: &mut Composer<S>,
    ) -> Result<(Self, SharedInputs<T>)> {
        let (n, cl) = (variant.ar().get(), variant.cl().get());
        let positions = graph.input(names::POSITION_IDS, vec![n], Dtype::I32)?;
        let encoding = Quant::PerTensor { scale: HIDDEN / SEEN as f32, offset: -SEEN };
        let info = TensorInfo::new(names::ATTENTION_MASK, vec![1, 1, n, cl], Dtype::UFixed16).with_quant(encoding);
        let mask = graph.encoded_input(&info)?;
        let mask = graph.dequantise("attention_mask_numbers", &mask)?;
        let (prefill_mask, decode_mask) = match form {
            PdForm::Single => (None, mask),
            PdForm::Pair(_) => (
                Some(graph.slice("attention_mask_prefill", &mask, &[(0, 1), (0, 1), (0, n - 1), (0, cl)])?),
                graph.slice("attention_mask_decode", &mask, &[(0, 1), (0, 1), (n - 1, n), (0, cl)])?,
            ),
        };
        let ctrl = match form {
            PdForm::Single => None,
            PdForm::Pair(_) => Some(graph.input(pd::FUSION_CTRL, vec![pd::CTRL_WORDS], Dtype::I32)?),
        };
        let rows = update::declare(spec, variant, update, (ctrl.as_ref(), &positions), graph)?;
        let tables = tables(spec, variant, &positions, graph)?;
        let shared = SharedInputs::with_tables(spec, (format, cache), tables, graph)?;
        Ok((Self { form, prefill_mask, decode_mask, positions, rows }, shared))
    }
}

/// Cosines and sines of the rows, `[1, n, r/2]`, for the layers that rotate; those of layers with a base of their own apart.
type BothTables<T> = (Option<Tables<T>>, Option<Tables<T>>);

fn tables<S: GraphSink>(
    spec: &ModelSpec,
    variant: Variant,
    positions: &TensorValue<S::Tensor>,
    graph: &mut Composer<S>,
) -> Result<BothTables<S::Tensor>> {
    let turns = |local: Option<bool>| {
        let mut layers = (0..spec.n_layers).filter(|&layer| spec.rotated_layers[layer]);
        layers.any(|layer| local.is_none_or(|local| spec.is_local(layer) == local))
    };
    let width = spec.rope_dim();
    let global = RopeConfig::new(width, spec.rope.theta).with_scaling(spec.rope.scaling.clone());
    let mut of = |config: &RopeConfig, name: &str| gathered(config, variant, name, positions, graph);
    match &spec.local_rope {
        None => Ok((turns(None).then(|| of(&global, "rope")).transpose()?, None)),
        Some(LocalRope::Table { theta, scaling }) => {
            let local = RopeConfig::new(width, *theta).with_scaling(scaling.clone());
            Ok((
                turns(Some(false)).then(|| of(&global, "rope")).transpose()?,
                turns(Some(true)).then(|| of(&local, "local_rope")).transpose()?,
            ))
        }
        Some(LocalRope::Columns { global_step, local_step }) => {
            if !turns(None) {
                return Ok((None, None));
            }
            let (cos, sin) = of(&global, "rope")?;
            let pairs = spec.rotary_dim / 2;
            let mut of_step = |name: &str, step: usize| {
                let cos = graph.columns(&format!("rope_cos_{name}"), &cos, step, pairs)?;
                let sin = graph.columns(&format!("rope_sin_{name}"), &sin, step, pairs)?;
                Ok::<_, crate::CompileError>((cos, sin))
            };
            let tables = turns(Some(false)).then(|| of_step("global", *global_step)).transpose()?;
            Ok((tables, turns(Some(true)).then(|| of_step("local", *local_step)).transpose()?))
        }
    }
}

/// Rows of a pair of static tables by position.
fn gathered<S: GraphSink>(
    config: &RopeConfig,
    variant: Variant,
    name: &str,
    positions: &TensorValue<S::Tensor>,
    graph: &mut Composer<S>,
) -> Result<Tables<S::Tensor>> {
    let (n, cl) = (variant.ar().get(), variant.cl().get());
    let angles = config.angles(cl);
    let (width, dtype) = (angles.frequencies.len(), graph.dtype());
    let mut table = |part: &str, f: fn(f64) -> f64| {
        let numbers = (0..cl).flat_map(|position| {
            let row = angles.frequencies.iter().map(move |frequency| f(position as f64 * frequency));
            row.map(|number| number * angles.amplitude)
        });
        let bytes: Vec<u8> = match dtype {
            Dtype::F16 => numbers.flat_map(|x| f16::from_f64(x).to_le_bytes()).collect(),
            _ => numbers.flat_map(|x| (x as f32).to_le_bytes()).collect(),
        };
        let table = graph.table(&TensorInfo::new(format!("{name}_{part}_table"), vec![cl, width], dtype), &bytes)?;
        let rows = graph.gather(&format!("{name}_{part}_rows"), &table, positions, None)?;
        graph.reshape(&format!("{name}_{part}"), &rows, vec![1, n, width], None)
    };
    Ok((table("cos", f64::cos)?, table("sin", f64::sin)?))
}
