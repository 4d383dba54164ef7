//! References in double precision: tensors by index, and a check of one operation against them.

use crate::ir::{Dtype, Param, TensorId};
use crate::testing::{Build, Noise, bytes_of, numbers_of, run};

/// A tensor of numbers.
#[derive(Clone, Debug)]
pub(super) struct T {
    pub(super) dims: Vec<usize>,
    pub(super) data: Vec<f64>,
}

impl T {
    /// Each element from its index.
    pub(super) fn of(dims: &[usize], f: impl Fn(&[usize]) -> f64) -> Self {
        let n: usize = dims.iter().product();
        let mut index = vec![0; dims.len()];
        let data = (0..n)
            .map(|i| {
                let mut rest = i;
                for axis in (0..dims.len()).rev() {
                    index[axis] = rest % dims[axis];
                    rest /= dims[axis];
                }
                f(&index)
            })
            .collect();
        Self { dims: dims.to_vec(), data }
    }

    pub(super) fn noise(dims: &[usize], seed: u64) -> Self {
        let n = dims.iter().product();
        let data = Noise(seed).floats(n).into_iter().map(|x| f64::from(x) * 3.0).map(|x| f64::from(x as f32)).collect();
        Self { dims: dims.to_vec(), data }
    }

    pub(super) fn list(dims: &[usize], data: &[f64]) -> Self {
        assert_eq!(dims.iter().product::<usize>(), data.len());
        Self { dims: dims.to_vec(), data: data.to_vec() }
    }

    /// The element there; axes of one element take any index, missing leading axes are skipped: broadcasting.
    pub(super) fn at(&self, index: &[usize]) -> f64 {
        let index = &index[index.len() - self.dims.len()..];
        let place = index.iter().zip(&self.dims).fold(0, |at, (&i, &d)| at * d + if d == 1 { 0 } else { i });
        self.data[place]
    }

    fn dims_u32(&self) -> Vec<u32> {
        self.dims.iter().map(|&d| d as u32).collect()
    }

    fn floats(&self) -> Vec<f32> {
        self.data.iter().map(|&x| x as f32).collect()
    }
}

/// One operation with what it must yield.
pub(super) struct Case {
    op: &'static str,
    params: Vec<(&'static str, Param)>,
    inputs: Vec<(T, Dtype)>,
    outputs: Vec<(T, Dtype)>,
    tolerance: f64,
}

impl Case {
    pub(super) fn new(op: &'static str) -> Self {
        Self { op, params: Vec::new(), inputs: Vec::new(), outputs: Vec::new(), tolerance: 2e-6 }
    }

    pub(super) fn param(mut self, name: &'static str, param: Param) -> Self {
        self.params.push((name, param));
        self
    }

    pub(super) fn input(self, t: &T) -> Self {
        self.typed(t, Dtype::F32)
    }

    pub(super) fn typed(mut self, t: &T, dtype: Dtype) -> Self {
        self.inputs.push((t.clone(), dtype));
        self
    }

    pub(super) fn within(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    pub(super) fn output_typed(mut self, t: T, dtype: Dtype) -> Self {
        self.outputs.push((t, dtype));
        self
    }

    pub(super) fn output(self, t: T) -> Self {
        self.output_typed(t, Dtype::F32)
    }

    /// One more output, then the check.
    pub(super) fn yields(self, t: T) {
        self.output(t).check();
    }

    /// Runs it on client inputs and on constants (which folds it), fused and not, on one thread and on three.
    pub(super) fn check(&self) {
        for constants in [false, true] {
            let mut b = Build::new();
            let ids: Vec<TensorId> = (self.inputs.iter().enumerate())
                .map(|(i, (t, dtype))| match constants {
                    false => b.input(&format!("in{i}"), &t.dims_u32(), *dtype),
                    true => b.constant(&t.dims_u32(), *dtype, &t.floats()),
                })
                .collect();
            let outputs: Vec<TensorId> = (self.outputs.iter().enumerate())
                .map(|(i, (t, dtype))| b.output(&format!("out{i}"), &t.dims_u32(), *dtype))
                .collect();
            b.node(self.op, &self.params, &ids, &outputs);
            let bytes: Vec<Vec<u8>> = match constants {
                false => self.inputs.iter().map(|(t, dtype)| bytes_of(*dtype, &t.floats())).collect(),
                true => Vec::new(),
            };
            for (fuse, threads) in [(false, 1), (true, 3)] {
                let what = format!("{} {:?} (constants {constants}, fused {fuse})", self.op, self.params);
                let found = run(&b.graph, fuse, threads, &bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
                for (i, ((wanted, dtype), found)) in self.outputs.iter().zip(&found).enumerate() {
                    self.compare(&what, i, wanted, &numbers_of(*dtype, found));
                }
            }
        }
    }

    fn compare(&self, what: &str, output: usize, wanted: &T, found: &[f32]) {
        assert_eq!(wanted.data.len(), found.len());
        for (i, (wanted, found)) in wanted.data.iter().zip(found).enumerate() {
            let close = (wanted - f64::from(*found)).abs() <= self.tolerance * wanted.abs().max(1.0);
            let same = wanted.is_nan() && found.is_nan() || *wanted as f32 == *found;
            assert!(close || same, "{what}: output {output}[{i}]: {found}, expected {wanted}");
        }
    }
}
