//! `quantised_bits write FILE`: a random Llama as a GGUF file in float32, for `cargo xtask quantised-bits`, which quantises it with llama.cpp;
//! `quantised_bits compare QUANTISED WIDENED`: the weights in the bundle of a file against those of the same file widened by ggml.
//!
//! *How*: both are compiled for this machine, the first in its own types, the second as float32. Rows of Q and K are then in the same order in
//! both. What is packed, or bfloat16, is read back from the file as the kernels read it. Numbers are compared by their bits.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use half::bf16;

use compiler::testmodel::{Matrices, TestModel};
use compiler::{CompileOptions, Family, ModelSummary, Precision, QkNorm, Silent, Splits, Weights, compile};
use qnn_api::{Backend, BackendOptions, Library};
use qnn_host::bytes::Bytes;
use qnn_host::container::{Image, Verify, decode};
use qnn_host::ir::{Dtype, Role, Tensor};
use qnn_host::kernels::packed::{Bits, Packed, Packing};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match args.as_slice() {
        [task, file] if task == "write" => Ok(std::fs::write(file, model().gguf(Matrices::F32)?.bytes())?),
        [task, quantised, widened] if task == "compare" => compare(Path::new(quantised), Path::new(widened)),
        _ => Err("usage: quantised_bits write FILE, or quantised_bits compare QUANTISED WIDENED".into()),
    }
}

/// Rows are whole blocks of 256, and four layers are enough for `llama-quantize` to give some of them more bits.
fn model() -> TestModel {
    let (hidden, head_dim) = (256, 64);
    TestModel { layers: 4, hidden, head_dim, ffn: 512, tied: false, ..TestModel::tiny(Family::Llama) }
}

fn compare(quantised: &Path, widened: &Path) -> Result<()> {
    let spec = ModelSummary::read(widened)?.spec;
    let head_dim = spec.head_dim;
    // The float bundle alone has the factor of the scores in Q's weights, or in a norm behind them.
    let root = if spec.qk_norm == QkNorm::None { (head_dim as f32).sqrt() } else { 1.0 };
    if !head_dim.is_power_of_two() || root.fract() != 0.0 {
        return Err(format!("heads of {head_dim}: expected 16, 64 or 256, whose root is a power of two").into());
    }
    let factors = spec.factors;
    if factors.residual != 1.0 || factors.scores_cap.is_some() || factors.scores != 1.0 / (head_dim as f64).sqrt() {
        let what = "with factors or caps of its own in float weights";
        return Err(format!("a {} model, {what}: expected one of another family", spec.family).into());
    }
    let folder = tempfile::tempdir()?;
    let own = bundled(quantised, None, &folder.path().join("own"))?;
    let floats = bundled(widened, Some(Weights::Float), &folder.path().join("floats"))?;
    let mut expected: BTreeMap<&str, &Tensor> =
        tensors(&floats).filter(|t| is_matrix(t)).map(|t| (&*t.name, t)).collect();
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for matrix in matrices(&own)? {
        let Some(tensor) = expected.remove(matrix.name) else {
            return Err(format!("`{}`: expected a tensor of the widened file's bundle, found none", matrix.name).into());
        };
        let n = matrix.compare(tensor, if matrix.name.ends_with("q_proj_weight") { root } else { 1.0 })?;
        let (n_matrices, n_numbers) = counts.entry(matrix.format()).or_default();
        (*n_matrices, *n_numbers) = (*n_matrices + 1, *n_numbers + n);
    }
    if let Some(name) = expected.keys().next() {
        return Err(format!("`{name}`: expected in packed form or bfloat16, found neither in the bundle").into());
    }
    let counts =
        counts.iter().map(|(format, (matrices, numbers))| format!("{numbers} numbers of {matrices} in {format}"));
    println!("{}: {}", quantised.file_stem().unwrap_or_default().display(), counts.collect::<Vec<_>>().join(", "));
    Ok(())
}

/// The context binary of a file's bundle.
fn bundled(file: &Path, weights: Option<Weights>, to: &Path) -> Result<Image> {
    let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
    let (ars, cls, splits, precision) = (vec![1], vec![64], Splits::Mono, Precision::F32);
    let options = CompileOptions { ars, cls, splits, precision, weights, ..CompileOptions::new(file, to) };
    let manifest = compile(&options, &backend, &mut Silent)?;
    let binary = std::fs::read(to.join(&manifest.graphs[0].file))?;
    Ok(decode(&Bytes::copy_from(&binary), Verify::All)?)
}

fn tensors(image: &Image) -> impl Iterator<Item = &Tensor> {
    image.graphs.iter().flat_map(|graph| &graph.tensors)
}

/// Whether a tensor of a bundle in float32 is a linear layer or the table.
fn is_matrix(tensor: &Tensor) -> bool {
    matches!((&tensor.role, tensor.dtype), (Role::Static(_), Dtype::F32))
        && tensor.dims.len() == 2
        && tensor.name.ends_with("_weight")
}

/// A matrix in packed form or bfloat16.
struct Matrix<'a> {
    name: &'a str,
    stored: Stored<'a>,
}

enum Stored<'a> {
    Packed(Packed<'a>),
    /// `[rows, cols]`, two bytes each.
    Bfloats(&'a [u8], [usize; 2]),
}

/// Those of a bundle, packed ones with their minima.
fn matrices(image: &Image) -> Result<Vec<Matrix<'_>>> {
    let mut forms: BTreeMap<&str, (&Tensor, &[u8], Packing)> = BTreeMap::new();
    for form in &image.packed {
        let (graph, tensor) = form.of;
        let tensor = &image.graphs[graph].tensors[tensor.0 as usize];
        let packing = Packing::from_tag(form.tag);
        let packing = packing.ok_or_else(|| format!("`{}`: unknown packed form {:#x}", tensor.name, form.tag))?;
        forms.insert(&tensor.name, (tensor, &form.data[..], packing));
    }
    let mut found = Vec::new();
    for (&name, &(tensor, data, packing)) in &forms {
        // Minima are a form of their own beside that of the weights.
        if packing.is_minima() {
            continue;
        }
        let packed = Packed::new(data, packing, tensor.dims[0] as usize, tensor.dims[1] as usize);
        let minima = forms.get(format!("{name}_minima").as_str());
        let packed = minima.map_or(packed, |&(_, minima, _)| packed.with_minima(minima));
        found.push(Matrix { name, stored: Stored::Packed(packed) });
    }
    for tensor in tensors(image).filter(|tensor| tensor.dtype == Dtype::Bf16) {
        let (Role::Static(bytes), &[rows, cols]) = (&tensor.role, tensor.dims.as_slice()) else { continue };
        found.push(Matrix { name: &tensor.name, stored: Stored::Bfloats(bytes, [rows as usize, cols as usize]) });
    }
    Ok(found)
}

impl Matrix<'_> {
    /// The type that this form holds unchanged.
    fn format(&self) -> &'static str {
        let Stored::Packed(packed) = &self.stored else { return "BF16" };
        match packed.packing().bits {
            Bits::UTwo => "Q2_K",
            Bits::Three => "Q3_K",
            Bits::Four => "Q4_0",
            Bits::Five => "Q5_0",
            Bits::Six => "Q6_K",
            Bits::Eight => "Q8_0",
            Bits::UFour => "Q4_K",
            Bits::UFive => "Q5_K",
            Bits::Levels => "IQ4_XS",
            Bits::Nonlinear => "IQ4_NL",
            Bits::FloatFour => "MXFP4",
            Bits::Minima | Bits::HalfMinima => "minima",
        }
    }

    /// Compares with the same tensor in float32 times a power of two; returns how many numbers there are.
    fn compare(&self, expected: &Tensor, factor: f32) -> Result<usize> {
        let [rows, cols] = match &self.stored {
            Stored::Packed(packed) => [packed.rows(), packed.cols()],
            Stored::Bfloats(_, extents) => *extents,
        };
        let Role::Static(bytes) = &expected.role else { return Err(format!("`{}`: no constant", self.name).into()) };
        if bytes.len() != rows * cols * size_of::<f32>() {
            return Err(format!("`{}`: expected {:?}, found {rows} x {cols}", self.name, expected.dims).into());
        }
        let mut row = vec![0.0; cols];
        for (r, expected) in bytes.chunks_exact(cols * size_of::<f32>()).enumerate() {
            match &self.stored {
                Stored::Packed(packed) => packed.row(r, &mut row),
                Stored::Bfloats(bytes, _) => {
                    let bytes = bytes[2 * r * cols..2 * (r + 1) * cols].as_chunks().0;
                    row.iter_mut().zip(bytes).for_each(|(w, b)| *w = bf16::from_le_bytes(*b).to_f32());
                }
            }
            for (c, (found, expected)) in row.iter().zip(expected.as_chunks().0).enumerate() {
                let expected = f32::from_le_bytes(*expected) * factor;
                if found.to_bits() != expected.to_bits() {
                    let (name, format) = (self.name, self.format());
                    let bits = format!("{:08x} and {:08x}", expected.to_bits(), found.to_bits());
                    return Err(format!("`{name}` [{r}, {c}] in {format}: expected {expected:e} as ggml has it, found {found:e} ({bits})").into());
                }
            }
        }
        Ok(rows * cols)
    }
}
