//! A toy decoder behind the executor seam, in whole numbers, and the same model without a cache.
//!
//! Each row carries a number `x`. A layer turns it into a key and a value (the key also by the row's cosine), adds up
//! key times value over the columns that the mask shows, and goes on with the sum. A wrong mask column, position, pad
//! value, stride or wire changes the logits. All numbers are small integers, exact in every element type.

use genie_types::{KvKind, Quant, TensorInfo};
use nsp_graph::{GraphLayout, InputRole, ModelLayout, OutputRole, Split};

use super::bundle::{HEAD_DIM, HIDDEN, N_LAYERS, VOCAB};
use crate::buffer::{Buffer, elements};
use crate::quant::{QuantParams, Rounding};
use crate::{Binding, ExecuteError, Executor};

/// What a graph was given.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) graph: String,
    pub(super) ids: Vec<u32>,
    pub(super) index: Option<u32>,
}

pub(super) struct Toy {
    pub(super) layout: ModelLayout,
    pub(super) calls: Vec<Call>,
    /// Fail at this call, counted from 1.
    pub(super) fail_at: Option<usize>,
    /// Fail from that call on.
    pub(super) fail_from: Option<usize>,
    /// In this call, counted from 1, set the flag.
    pub(super) stop_at: Option<(usize, crate::StopFlag)>,
    /// In those calls, counted from 1, return NaN for this entry and write NaN to the cache.
    pub(super) poison: Option<(std::ops::Range<usize>, usize)>,
    /// The cache's keys are turned to other positions: what they were is not checked.
    pub(super) keys_turn: bool,
}

impl Toy {
    pub(super) fn new(layout: ModelLayout) -> Self {
        Self {
            layout,
            calls: Vec::new(),
            fail_at: None,
            fail_from: None,
            stop_at: None,
            poison: None,
            keys_turn: false,
        }
    }
}

/// Bytes to whole numbers and back, through the tensor's own encoding.
fn encoding(t: &TensorInfo) -> QuantParams {
    QuantParams::of(t.dtype, &t.quant).unwrap_or(QuantParams { dtype: t.dtype, scale: 1.0, offset: 0 })
}

fn decode(t: &TensorInfo, bytes: &[u8]) -> Vec<f32> {
    assert_eq!(bytes.len(), t.size_bytes(), "{}", t.name);
    let mut aligned = Buffer::zeroed(bytes.len());
    aligned.bytes_mut().copy_from_slice(bytes);
    let mut out = vec![0.0; t.n_elems()];
    encoding(t).decode(aligned.bytes(), &mut out);
    out
}

fn encode(t: &TensorInfo, numbers: impl Iterator<Item = f64>, bytes: &mut [u8]) {
    let mut aligned = Buffer::zeroed(bytes.len());
    encoding(t).encode(numbers, Rounding::Nearest, aligned.bytes_mut());
    bytes.copy_from_slice(aligned.bytes());
}

fn key(x: i64, layer: usize, cos: f32) -> i64 {
    (x * 3 + layer as i64 * 7 + (f64::from(cos) * 40.0).round() as i64 + 40) % 64
}

fn value(x: i64, layer: usize) -> i64 {
    (x * 5 + layer as i64) % 61
}

fn mixed(x: i64, sum: i64) -> i64 {
    (x + sum + 1) % 509
}

fn logit(x: i64, entry: usize) -> i64 {
    (x * (entry as i64 + 1)) % 251
}

/// Logits of the last token, from the tokens alone: no cache, no mask, no padding. `window`: keys that layer 1 sees.
pub(super) fn reference(tokens: &[u32], rope: &Quant, dtype: genie_types::Dtype, window: usize) -> Vec<f32> {
    let encoding = QuantParams::of(dtype, rope).unwrap();
    let cos: Vec<f32> = (0..tokens.len())
        .map(|position| {
            let mut buffer = Buffer::zeroed(4);
            let mut back = [0.0];
            encoding.encode(std::iter::once((position as f64).cos()), Rounding::Down, buffer.bytes_mut());
            encoding.decode(buffer.bytes(), &mut back);
            back[0]
        })
        .collect();
    let mut x: Vec<i64> = tokens.iter().map(|&t| t.into()).collect();
    for layer in 0..N_LAYERS {
        let products: Vec<i64> = x.iter().zip(&cos).map(|(&x, &c)| key(x, layer, c) * value(x, layer)).collect();
        let keys = if layer == 1 { window } else { usize::MAX };
        for (p, x) in x.iter_mut().enumerate() {
            let sum = products[(p + 1).saturating_sub(keys)..=p].iter().sum();
            *x = mixed(*x, sum);
        }
    }
    let last = *x.last().expect("at least one token");
    (0..VOCAB).map(|entry| logit(last, entry) as f32).collect()
}

struct Lent<'a, 'io> {
    graph: &'a GraphLayout,
    inputs: Vec<Option<&'io [u8]>>,
    outputs: Vec<Option<&'io mut [u8]>>,
}

impl<'a, 'io> Lent<'a, 'io> {
    fn take(graph: &'a GraphLayout, io: &mut dyn Iterator<Item = Binding<'io>>) -> Self {
        let mut lent = Lent {
            graph,
            inputs: graph.inputs.iter().map(|_| None).collect(),
            outputs: graph.outputs.iter().map(|_| None).collect(),
        };
        for binding in io {
            match binding {
                Binding::Input(i, bytes) => assert!(lent.inputs[i].replace(bytes).is_none(), "input {i} twice"),
                Binding::Output(i, bytes) => assert!(lent.outputs[i].replace(bytes).is_none(), "output {i} twice"),
                Binding::InPlace(..) => unreachable!("plain graphs have no output in place of an input"),
            }
        }
        for (t, bytes) in graph.info.inputs.iter().zip(&lent.inputs) {
            assert_eq!(bytes.map(<[u8]>::len), Some(t.size_bytes()), "{}", t.name);
        }
        for (t, bytes) in graph.info.outputs.iter().zip(&lent.outputs) {
            assert_eq!(bytes.as_ref().map(|b| b.len()), Some(t.size_bytes()), "{}", t.name);
        }
        lent
    }

    fn numbers(&self, role: InputRole) -> Option<Vec<f32>> {
        let (i, t) = self.graph.input(role)?;
        Some(decode(t, self.inputs[i].expect("bound")))
    }

    fn words(&self, role: InputRole) -> Option<Vec<u32>> {
        let (i, _) = self.graph.input(role)?;
        Some(elements::<u32>(self.inputs[i].expect("bound")).to_vec())
    }

    fn write(&mut self, role: OutputRole, numbers: impl Iterator<Item = f64>) {
        let (i, t) = self.graph.output(role).expect("the graph has the output");
        encode(t, numbers, self.outputs[i].as_mut().expect("bound"));
    }

    /// Which columns of a cache group each row sees.
    fn visible(&self, ar: usize, group: usize) -> Vec<Vec<bool>> {
        let (i, t) = self.graph.input(InputRole::Mask(group)).expect("a decoder has a mask");
        let bytes = self.inputs[i].expect("bound");
        let shown = |element: &[u8]| match (t.dtype.is_float(), element.len()) {
            (true, 2) => match half::f16::from_le_bytes([element[0], element[1]]).to_f32() {
                0.0 => true,
                -1000.0 => false,
                x => panic!("mask value {x}"),
            },
            (true, _) => match f32::from_le_bytes([element[0], element[1], element[2], element[3]]) {
                0.0 => true,
                -1000.0 => false,
                x => panic!("mask value {x}"),
            },
            _ if element.iter().all(|&b| b == 255) => true,
            _ if element.iter().all(|&b| b == 0) => false,
            _ => panic!("mask value {element:?}"),
        };
        let all: Vec<bool> = bytes.chunks(t.dtype.size_bytes()).map(shown).collect();
        all.chunks(all.len() / ar).map(<[bool]>::to_vec).collect()
    }

    /// Runs the layers of a split; `poisoned` spoils the new rows; rows of the past are whole, unless `keys_turn`.
    fn layers(&mut self, split: &Split, x: &mut [i64], poisoned: bool, keys_turn: bool) {
        let ar = x.len();
        let cos = self.numbers(InputRole::Cos(0)).expect("a decoder has cosines");
        let sin = self.numbers(InputRole::Sin(0)).expect("a decoder has sines");
        let mut layers: Vec<(usize, usize)> = split.kv.iter().map(|t| (t.tensor.layer.0, t.tensor.group)).collect();
        layers.sort_unstable();
        layers.dedup();
        for (layer, group) in layers {
            let visible = self.visible(ar, group);
            let index = self.words(InputRole::CacheIndex(group)).map(|words| words[0] as usize);
            for (row, (c, s)) in cos.chunks(HEAD_DIM / 2).zip(sin.chunks(HEAD_DIM / 2)).enumerate() {
                assert!((c[0].powi(2) + s[0].powi(2) - 1.0).abs() < 0.01, "row {row}: cos {c:?} sin {s:?}");
                let padding = !visible[row].contains(&true);
                assert!(!padding || (c[0] > 0.999 && s[0].abs() < 0.001), "padding has position 0, not cos {c:?}");
            }
            let keys: Vec<i64> = (0..ar).map(|r| key(x[r], layer, cos[r * HEAD_DIM / 2])).collect();
            let values: Vec<i64> = x.iter().map(|&x| value(x, layer)).collect();
            let (mut past_keys, mut past_values) = (Vec::new(), Vec::new());
            for (k, tensor) in split.kv.iter().map(|t| t.tensor).enumerate().filter(|(_, t)| t.layer.0 == layer) {
                let role = nsp_graph::KvIdx(k);
                let (heads, dim) = (tensor.n_heads, tensor.head_dim);
                let is_key = tensor.kind == KvKind::Key;
                let new = if is_key { &keys } else { &values };
                let at = |seq: usize, row: usize, head: usize, d: usize| {
                    if is_key { (head * dim + d) * seq + row } else { (head * seq + row) * dim + d }
                };
                // Elements of a row differ by head and dimension, so that a wrong stride shows.
                let twist = |head: usize, d: usize| ((tensor.head.unwrap_or(head) * 5 + d) % 8) as f64;
                let mut out = vec![0.0; heads * dim * ar];
                for row in 0..ar {
                    (0..heads * dim)
                        .for_each(|e| out[at(ar, row, e / dim, e % dim)] = new[row] as f64 + twist(e / dim, e % dim));
                }
                self.write(OutputRole::New(role), out.into_iter().map(|x| if poisoned { f64::NAN } else { x }));
                if let Some(past) = self.numbers(InputRole::Past(role)) {
                    // Even where the mask hides it: zero times NaN is NaN.
                    assert!(poisoned || past.iter().all(|x| x.is_finite()), "nonsense was left in the cache");
                    let seq = past.len() / heads / dim;
                    let found: Vec<i64> = (0..seq)
                        .map(|row| {
                            let all: Vec<f64> = (0..heads * dim)
                                .map(|e| f64::from(past[at(seq, row, e / dim, e % dim)]) - twist(e / dim, e % dim))
                                .collect();
                            // What the mask hides may be anything, and so may the slots that are about to be written.
                            let written = index.is_some_and(|index| row >= index);
                            let hidden = written || visible.iter().all(|columns| !columns[row]);
                            let turned = is_key && keys_turn;
                            assert!(hidden || turned || all.iter().all(|x| *x == all[0]), "torn row {row}: {all:?}");
                            all[0] as i64
                        })
                        .collect();
                    if is_key { past_keys = found } else { past_values = found }
                }
            }
            let mut columns: Vec<i64> = past_keys.iter().zip(&past_values).map(|(k, v)| k * v).collect();
            let new = keys.iter().zip(&values).map(|(k, v)| k * v);
            match index {
                Some(index) => new.enumerate().for_each(|(i, product)| {
                    if let Some(column) = columns.get_mut(index + i) {
                        *column = product;
                    } else if columns.len() == index + i {
                        columns.push(product);
                    }
                }),
                None => columns.extend(new),
            }
            for (x, row) in x.iter_mut().zip(&visible) {
                assert_eq!(row.len(), columns.len(), "mask columns");
                let sum: i64 = row.iter().zip(&columns).filter(|(shown, _)| **shown).map(|(_, p)| p).sum();
                *x = mixed(*x, sum);
            }
        }
    }
}

impl Executor for Toy {
    fn execute<'io>(
        &mut self,
        split: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        let split = &self.layout.splits[split];
        let graph = &split.graphs[graph];
        let ar = graph.ar.get();
        let mut lent = Lent::take(graph, io);
        let ids = lent.words(InputRole::Ids).unwrap_or_default();
        let index = lent.words(InputRole::CacheIndex(0)).map(|words| words[0]);
        self.calls.push(Call { graph: graph.info.name.clone(), ids: ids.clone(), index });
        if let Some((_, stop)) = self.stop_at.as_ref().filter(|(at, _)| *at == self.calls.len()) {
            stop.set();
        }
        let fails = self.fail_from.is_some_and(|from| self.calls.len() >= from);
        if fails || self.fail_at == Some(self.calls.len()) {
            return Err("the toy was asked to fail".into());
        }
        let wire = graph.inputs.iter().find(|role| matches!(role, InputRole::Wire(_)));
        let rows = wire.map(|role| lent.numbers(*role).expect("wired"));
        let mut x: Vec<i64> = match rows {
            Some(rows) => rows.chunks(HIDDEN).map(|row| row[HIDDEN - 1] as i64).collect(),
            None => ids.iter().map(|&id| id.into()).collect(),
        };
        assert_eq!(x.len(), ar);
        let poison =
            self.poison.as_ref().filter(|(calls, _)| calls.contains(&self.calls.len())).map(|(_, entry)| *entry);
        if !split.kv.is_empty() {
            lent.layers(split, &mut x, poison.is_some(), self.keys_turn);
        }
        for role in &graph.outputs {
            match role {
                OutputRole::Wire(_) => {
                    lent.write(*role, x.iter().flat_map(|&x| std::iter::repeat_n(x as f64, HIDDEN)));
                }
                OutputRole::Logits => {
                    let row =
                        |x: i64| (0..VOCAB).map(move |e| if Some(e) == poison { f64::NAN } else { logit(x, e) as f64 });
                    lent.write(*role, x.iter().flat_map(|&x| row(x)));
                }
                OutputRole::New(_) | OutputRole::Anchor(_) | OutputRole::Features | OutputRole::Extra => {}
            }
        }
        Ok(())
    }
}
