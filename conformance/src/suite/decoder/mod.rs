//! Whole tiny decoders as problems: a random checkpoint composed op by op, prefilled and stepped over its own cache.
//!
//! Each step is one [`Problem`]. Its past is what the backend itself answered before; its reference is the whole model in
//! double precision over all tokens so far, which knows no cache. So an error of one step shows in all that follow.
//!
//! *Shapes*, for AR = n, CL = m, past p (m - n columns in concat form, m in scatter form): docs/graph-contract.md.

mod codes;
mod compose;
mod reference;
mod weights;

use compiler::testmodel::TestModel;

use super::bounds::{Answers, Bound, Used, compare};
use super::codec::decode;
use super::problem::Problem;
use super::runtime::{Runtime, words};
use super::values::Values;
pub use weights::Weights;

/// Where new rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Behind the past, which the client extends afterwards.
    Concat,
    /// Into the past, at `cache_index`.
    Scatter,
}

/// What weights, activations and cache are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// All of it float16.
    Float16,
    /// Float16, but int8 weights of linear layers, a scale for each output.
    Int8Weights,
    /// 16-bit codes, int8 weights, an 8-bit cache.
    Codes,
}

/// A decoder under test.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// What to compose.
    pub model: TestModel,
    /// Where new rows go.
    pub form: Form,
    /// What its tensors are made of.
    pub numbers: Numbers,
    /// CL.
    pub ctx_size: usize,
}

/// Keys and values of each layer: `[kv, 1, d, columns]` and `[kv, 1, columns, d]`.
type Cache = Vec<(Values, Values)>;

impl Decoder {
    /// How messages call it.
    pub fn title(&self) -> String {
        let numbers = match self.numbers {
            Numbers::Float16 => "float16",
            Numbers::Int8Weights => "int8 weights",
            Numbers::Codes => "16-bit codes over an 8-bit cache",
        };
        format!("{}, {:?}, {numbers}", self.model.family, self.form)
    }

    /// Runs steps of those widths over made-up tokens, and holds all that comes out against the reference. With an
    /// emulator both run each step over the emulator's cache, and are held against each other too.
    ///
    /// # Errors
    /// The farthest element of the first step that is off, or what a backend refuses.
    ///
    /// # Panics
    /// The random checkpoint cannot be written.
    pub fn run(&self, host: &dyn Runtime, emulator: Option<&dyn Runtime>, widths: &[usize]) -> Result<Used, String> {
        let weights = Weights::random(&self.model, self.numbers != Numbers::Float16);
        let tokens = made_up(&self.model, widths.iter().sum());
        let whole = reference::run(&self.model, &weights, &tokens);
        let (mut cache, mut n_past, mut most) = (Cache::new(), 0, Used::default());
        for &width in widths {
            let step = compose::Step { tokens: &tokens[n_past..][..width], n_past, cache: &cache };
            let mut problem = compose::problem(self, &weights, &step, &whole);
            if self.numbers == Numbers::Codes {
                problem = codes::in_codes(&problem, &whole.cache_encodings());
                problem = problem.host_within(Bound::Largest(3e-2)).htp_within(Bound::Largest(3e-2));
            }
            if emulator.is_some() {
                // What it is given is no better.
                problem.bounds.host = problem.bounds.htp;
            }
            let run = |runtime: &dyn Runtime| {
                runtime.run(&problem).map_err(|e| format!("{}, {}: {}", runtime.name(), problem.title(), words(&e)))
            };
            let by_host = run(host)?;
            let by_emulator = emulator.map(run).transpose()?;
            let answers = Answers { host: Some(&by_host), emulator: by_emulator.as_deref() };
            let used = compare(&problem, answers).map_err(|m| m.to_string())?;
            most = Used { host: most.host.max(used.host), htp: most.htp.max(used.htp) };
            cache = self.carried(&problem, by_emulator.as_ref().unwrap_or(&by_host), &cache, n_past);
            n_past += width;
        }
        Ok(most)
    }

    /// The cache after a step, of the backend's own numbers: rows `0..n_past + width` in concat form, all columns in
    /// scatter form.
    fn carried(&self, problem: &Problem, outputs: &[Vec<u8>], before: &Cache, n_past: usize) -> Cache {
        let mut read = problem.output_infos().zip(outputs).map(|(t, b)| decode(b, &t.dims, t.dtype, &t.quant)).skip(1);
        let layers = (0..self.model.layers).map(|layer| {
            let keys = read.next().expect("an output of keys for each layer");
            let values = read.next().expect("an output of values for each layer");
            match (self.form, before.get(layer)) {
                (Form::Concat, Some((k, v))) => (joined(k, &keys, 3, n_past), joined(v, &values, 2, n_past)),
                _ => (keys, values),
            }
        });
        layers.collect()
    }
}

/// Tokens that look like none in particular.
fn made_up(model: &TestModel, n: usize) -> Vec<usize> {
    (0..n).map(|i| (i * 37 + 11) % model.vocab).collect()
}

/// Tokens, and the logits after each in double precision, with weights and positions rounded to float16.
pub fn expected(model: &TestModel, n_tokens: usize) -> (Vec<usize>, Vec<Vec<f64>>) {
    let tokens = made_up(model, n_tokens);
    let logits = reference::run(model, &Weights::random(model, false), &tokens).logits;
    (tokens, logits)
}

/// `n` columns of the past, then the new ones.
fn joined(past: &Values, new: &Values, axis: usize, n: usize) -> Values {
    let mut dims = new.dims.clone();
    dims[axis] += n;
    Values::from_fn(dims, |i| {
        if i[axis] < n {
            return past.at(i);
        }
        let mut index = i.to_vec();
        index[axis] -= n;
        new.at(&index)
    })
}
