//! Tensors of each step as files, laid out as libGenie's `debug` block lays them out.
//!
//! ```text
//! FOLDER/text_primary/spec.GRAPH.json                the graph's tensors             (specs)
//!                     position_ids_cos.f16.dat       the rotary table, and its sin   (tensors)
//!                     GRAPH/007_in_TENSOR            as bound in step 7              (tensors, steps first to last)
//!                     GRAPH/007_out_TENSOR
//!                     logits/007                     rows of real tokens             (outputs)
//! ```
//!
//! Steps are counted from 0 over the engine's life; a reset does not begin them again. `logits` has a file for each step
//! whose logits are wanted, whatever `first` and `last` say. Bytes are those of the tensors, in their own types. A file
//! that cannot be written ends the dump with a warning; the model runs on.
//!
//! *Source*: folders that libGenie 1.21 wrote for recorded bundles.
//! *Trap*: names come out of context binaries; what could leave the folder is replaced.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use genie_types::{DataFormat, Dtype, GraphInfo, Quant, TensorInfo};

use crate::Binding;

/// What is written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpOptions {
    /// The folder; made if it is not there.
    pub folder: PathBuf,
    /// Inputs and outputs of every graph that runs.
    pub tensors: bool,
    /// A description of each graph, when the model is opened.
    pub specs: bool,
    /// The logits.
    pub outputs: bool,
    /// First step whose tensors are written.
    pub first: u32,
    /// Last step whose tensors are written.
    pub last: u32,
}

impl DumpOptions {
    /// libGenie's last step where a config names none.
    pub const LAST: u32 = 20;

    /// Nothing yet, in that folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), tensors: false, specs: false, outputs: false, first: 0, last: Self::LAST }
    }
}

/// The writer of one engine.
#[derive(Debug)]
pub(crate) struct Dump {
    options: DumpOptions,
    /// The engine's own folder in that of the options.
    folder: PathBuf,
    /// The step that runs; `None` before the first.
    step: Option<u32>,
    /// A file could not be written.
    failed: bool,
}

impl Dump {
    /// Makes the folder, and writes what is known before the first step.
    pub(crate) fn new<'a>(
        options: &DumpOptions,
        graphs: impl Iterator<Item = &'a GraphInfo>,
        tables: impl Iterator<Item = (&'a str, Dtype, &'a [u8])>,
    ) -> Self {
        let folder = options.folder.join("text_primary");
        let mut dump = Self { options: options.clone(), folder, step: None, failed: false };
        for graph in graphs.filter(|_| options.specs) {
            let name = format!("spec.{}.json", file_name(&graph.name));
            dump.write(Path::new(""), &name, spec(graph).as_bytes());
        }
        for (name, dtype, bytes) in tables.filter(|_| options.tensors) {
            dump.write(Path::new(""), &format!("{}.{}.dat", file_name(name), suffix(dtype)), bytes);
        }
        dump
    }

    /// A step begins.
    pub(crate) fn begin(&mut self) {
        self.step = Some(self.step.map_or(0, |step| step.saturating_add(1)));
    }

    /// True if the tensors of this step are written.
    pub(crate) fn wants_tensors(&self) -> bool {
        let wanted = self.options.first..=self.options.last;
        !self.failed && self.options.tensors && self.step.is_some_and(|step| wanted.contains(&step))
    }

    /// True if logits are written.
    pub(crate) const fn wants_logits(&self) -> bool {
        !self.failed && self.options.outputs
    }

    /// Writes what was bound to a graph, after it has run.
    pub(crate) fn tensors(&mut self, graph: &GraphInfo, bound: &[Binding<'_>]) {
        let folder = PathBuf::from(file_name(&graph.name));
        for binding in bound {
            let (way, tensor, bytes) = match binding {
                Binding::Input(i, bytes) => ("in", &graph.inputs[*i], *bytes),
                Binding::Output(i, bytes) | Binding::InPlace(_, i, bytes) => ("out", &graph.outputs[*i], &**bytes),
            };
            let name = format!("{:03}_{way}_{}", self.number(), file_name(&tensor.name));
            self.write(&folder, &name, bytes);
        }
    }

    /// Writes rows of logits.
    pub(crate) fn logits(&mut self, rows: &[u8]) {
        let name = format!("{:03}", self.number());
        self.write(Path::new("logits"), &name, rows);
    }

    fn number(&self) -> u32 {
        self.step.unwrap_or(0)
    }

    fn write(&mut self, folder: &Path, name: &str, bytes: &[u8]) {
        if self.failed {
            return;
        }
        let folder = self.folder.join(folder);
        let path = folder.join(name);
        let made = fs::create_dir_all(&folder).map_err(|error| error.to_string());
        let written = made.and_then(|()| file_io::write_bytes(&path, bytes).map_err(|error| error.to_string()));
        if let Err(why) = written {
            tracing::warn!("cannot write `{}`: {why}; no more tensors are dumped", path.display());
            self.failed = true;
        }
    }
}

/// A name as the name of one file.
pub(crate) fn file_name(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(200).map(kept).collect();
    if name.chars().all(|c| c == '.') { name.replace('.', "_") + "_" } else { name }
}

/// The description of a graph, in libGenie's text.
fn spec(graph: &GraphInfo) -> String {
    let list = |tensors: &[TensorInfo]| tensors.iter().map(tensor_spec).collect::<Vec<_>>().join(",\n");
    format!(
        "{{\n\t\"graph_name\" : \"{}\",\n\t\"inputs\" : [\n{}\n\t],\n\t\"outputs\" : [\n{}\n\t]\n}}",
        escaped(&graph.name),
        list(&graph.inputs),
        list(&graph.outputs)
    )
}

fn tensor_spec(tensor: &TensorInfo) -> String {
    let (scales, offsets) = encoding(&tensor.quant);
    let join = |words: Vec<String>| words.join(", ");
    format!(
        "\t\t{{ \"name\": \"{}\", \"dims\": [{}], \"bitwidth\": {}, \"dtype\": \"{}\", \"dataFormat\": {}, \
         \"scale\": [{}], \"offset\": [{}] }}",
        escaped(&tensor.name),
        join(four(&tensor.dims).iter().map(usize::to_string).collect()),
        tensor.dtype.size_bytes(),
        qnn_name(tensor.dtype),
        match tensor.format {
            DataFormat::Flat => 0,
            DataFormat::HmxWeight => 8,
            DataFormat::Other(number) => number,
        },
        join(scales.iter().map(|scale| format!("{:.20}", f64::from(*scale))).collect()),
        join(offsets.iter().map(i32::to_string).collect()),
    )
}

/// Four extents: the last two as they are, the others multiplied.
fn four(dims: &[usize]) -> [usize; 4] {
    let from_end = |back: usize| dims.len().checked_sub(back).map_or(1, |i| dims[i]);
    let outer = dims.len().saturating_sub(2);
    [1, dims[..outer].iter().product(), from_end(2), from_end(1)]
}

/// Scales and offsets: one each for the whole tensor, zeros where it has none.
fn encoding(quant: &Quant) -> (Vec<f32>, Vec<i32>) {
    match quant.per_tensor() {
        Some((scale, offset)) => (vec![scale], vec![offset]),
        None => (vec![0.0], vec![0]),
    }
}

fn escaped(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, c| {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => write!(text, "\\u{:04x}", u32::from(c)).expect("a String takes all text"),
            c => text.push(c),
        }
        text
    })
}

const fn qnn_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "QNN_DATATYPE_FLOAT_16",
        Dtype::F32 => "QNN_DATATYPE_FLOAT_32",
        Dtype::F64 => "QNN_DATATYPE_FLOAT_64",
        Dtype::Bf16 => "QNN_DATATYPE_BFLOAT_16",
        Dtype::I8 => "QNN_DATATYPE_INT_8",
        Dtype::I16 => "QNN_DATATYPE_INT_16",
        Dtype::I32 => "QNN_DATATYPE_INT_32",
        Dtype::I64 => "QNN_DATATYPE_INT_64",
        Dtype::U8 => "QNN_DATATYPE_UINT_8",
        Dtype::U16 => "QNN_DATATYPE_UINT_16",
        Dtype::U32 => "QNN_DATATYPE_UINT_32",
        Dtype::U64 => "QNN_DATATYPE_UINT_64",
        Dtype::Bool8 => "QNN_DATATYPE_BOOL_8",
        Dtype::UFixed4 => "QNN_DATATYPE_UFIXED_POINT_4",
        Dtype::UFixed8 => "QNN_DATATYPE_UFIXED_POINT_8",
        Dtype::UFixed16 => "QNN_DATATYPE_UFIXED_POINT_16",
        Dtype::UFixed32 => "QNN_DATATYPE_UFIXED_POINT_32",
        Dtype::SFixed4 => "QNN_DATATYPE_SFIXED_POINT_4",
        Dtype::SFixed8 => "QNN_DATATYPE_SFIXED_POINT_8",
        Dtype::SFixed16 => "QNN_DATATYPE_SFIXED_POINT_16",
        Dtype::SFixed32 => "QNN_DATATYPE_SFIXED_POINT_32",
    }
}

/// What a table's file is named after.
const fn suffix(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "f16",
        Dtype::F32 => "f32",
        Dtype::UFixed8 => "u8",
        _ => "u16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_libgenies() {
        let quant = Quant::PerTensor { scale: 0.062_465_776, offset: -128 };
        let graph = GraphInfo {
            name: "ar1_cl128_1_of_1".into(),
            inputs: vec![
                TensorInfo::new("input_ids", [1, 1], Dtype::I32),
                TensorInfo::new("past_key_0_in", [2, 1, 32, 127], Dtype::UFixed8).with_quant(quant),
            ],
            outputs: vec![TensorInfo::new("hidden", [1, 1, 128], Dtype::F16)],
        };
        // Lines of files that libGenie 1.21 wrote.
        let want = concat!(
            "{\n\t\"graph_name\" : \"ar1_cl128_1_of_1\",\n\t\"inputs\" : [\n",
            "\t\t{ \"name\": \"input_ids\", \"dims\": [1, 1, 1, 1], \"bitwidth\": 4, \"dtype\": \"QNN_DATATYPE_INT_32\", ",
            "\"dataFormat\": 0, \"scale\": [0.00000000000000000000], \"offset\": [0] },\n",
            "\t\t{ \"name\": \"past_key_0_in\", \"dims\": [1, 2, 32, 127], \"bitwidth\": 1, ",
            "\"dtype\": \"QNN_DATATYPE_UFIXED_POINT_8\", ",
            "\"dataFormat\": 0, \"scale\": [0.06246577575802803040], \"offset\": [-128] }\n",
            "\t],\n\t\"outputs\" : [\n",
            "\t\t{ \"name\": \"hidden\", \"dims\": [1, 1, 1, 128], \"bitwidth\": 2, \"dtype\": \"QNN_DATATYPE_FLOAT_16\", ",
            "\"dataFormat\": 0, \"scale\": [0.00000000000000000000], \"offset\": [0] }\n\t]\n}",
        );
        assert_eq!(spec(&graph), want);
    }

    #[test]
    fn names_stay_in_the_folder() {
        for (name, want) in [
            ("past_key_0_in", "past_key_0_in"),
            ("../../etc/passwd", ".._.._etc_passwd"),
            ("/model/Gather:0", "_model_Gather_0"),
            ("..", "___"),
            ("", "_"),
        ] {
            assert_eq!(file_name(name), want);
        }
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\u000a");
    }
}
