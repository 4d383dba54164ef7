//! An image encoder: pixels in, rows of embeddings out. A graph of its own, run once before the prompt that has the image.
//!
//! A binary is known as an image encoder's by graphs with an input `pixel_values`. It may have several, for images of several
//! sizes; the one that takes as many pixels as are given runs. Its other inputs (positions, masks) are given by name.

use std::path::Path;
use std::sync::Arc;

use genie_types::{Dtype, GraphInfo, TensorInfo};
use nsp_graph::names::PIXEL_VALUES;
use qnn_api::{Backend, Graph};

use crate::buffer::{Buffer, elements_mut};
use crate::number_file::NumberFile;
use crate::quant::{QuantParams, Rounding};
use crate::{EngineError, Grid, Reading};

/// Names of the output that holds the rows, where there are several.
const FEATURES: [&str; 3] = ["vision_embedding", "image_features", "image_embeds"];

/// The graphs of a binary that take pixels.
#[derive(Debug)]
pub struct ImageEncoder {
    graphs: Vec<Graph>,
}

/// Rows of embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingRows {
    /// Numbers of a row.
    pub width: usize,
    /// How the rows lie in the image, where the extents of what they came from say it.
    pub grid: Option<Grid>,
    /// Row after row.
    pub numbers: Vec<f32>,
}

impl ImageEncoder {
    /// Loads a binary; other graphs in it are left alone.
    ///
    /// # Errors
    ///
    /// As [`Engine::open`](crate::Engine::open); [`EngineError::NoImageEncoder`] if no graph takes pixels.
    pub fn open(backend: &Arc<Backend>, path: &Path, reading: Reading) -> Result<Self, EngineError> {
        crate::load::must_exist("context binary", path)?;
        let (context, _) = reading.context(backend, path, None)?;
        let takes_pixels = |graph: &&GraphInfo| graph.input(PIXEL_VALUES).is_some();
        let names: Vec<String> = context.graphs().filter(takes_pixels).map(|graph| graph.name.clone()).collect();
        if names.is_empty() {
            let found = context.graphs().map(|graph| format!("`{}`", graph.name)).collect::<Vec<_>>().join(", ");
            return Err(EngineError::NoImageEncoder { path: path.to_owned(), found });
        }
        let find = |name: String| {
            let found = context.graph(&name);
            found.map_err(|source| EngineError::FindGraph { graph: name, source })
        };
        Ok(Self { graphs: names.into_iter().map(find).collect::<Result<_, _>>()? })
    }

    /// The graphs, to look at their inputs.
    pub fn graphs(&self) -> impl Iterator<Item = &GraphInfo> {
        self.graphs.iter().map(Graph::info)
    }

    /// Runs the graph that takes the pixels. `inputs`: a file for each of its inputs, by name.
    ///
    /// # Errors
    ///
    /// [`EngineError::NumberFile`] for a file of another size, [`EngineError::ImageInput`] for inputs that are missing or unknown;
    /// [`EngineError::Execute`].
    pub fn encode(&mut self, inputs: &[(&str, &NumberFile)]) -> Result<EmbeddingRows, EngineError> {
        let graph = self.choose(inputs)?;
        let info = graph.info().clone();
        let named = |name: &str| inputs.iter().find(|(given, _)| *given == name).map(|(_, file)| *file);
        let wrong =
            |tensor: &str, what| EngineError::ImageInput { graph: info.name.clone(), tensor: tensor.into(), what };
        if let Some((name, _)) = inputs.iter().find(|(name, _)| info.input(name).is_none()) {
            return Err(wrong(name, "a file was given, but the graph has no such input"));
        }
        let mut given = Vec::with_capacity(info.inputs.len());
        for tensor in &info.inputs {
            let file = named(&tensor.name).ok_or_else(|| wrong(&tensor.name, "no file was given for it"))?;
            given.push(encoded(tensor, file, &info.name)?);
        }
        let mut made: Vec<Buffer> = info.outputs.iter().map(|tensor| Buffer::zeroed(tensor.size_bytes())).collect();
        let failed = |source: qnn_api::Error| EngineError::Execute { graph: info.name.clone(), source: source.into() };
        let mut session = graph.session();
        for (i, buffer) in given.iter().enumerate() {
            session.input(i, buffer.bytes()).map_err(failed)?;
        }
        for (i, buffer) in made.iter_mut().enumerate() {
            session.output(i, buffer.bytes_mut()).map_err(failed)?;
        }
        session.run().map_err(failed)?;
        let output = features(&info)?;
        let tensor = &info.outputs[output];
        let width = tensor.dims.last().copied().unwrap_or(1);
        let quant = QuantParams::of(tensor.dtype, &tensor.quant).ok_or_else(|| unreadable(&info.name, tensor))?;
        let mut numbers = vec![0.0; tensor.n_elems()];
        quant.decode(made[output].bytes(), &mut numbers);
        Ok(EmbeddingRows { width, grid: Grid::of_extents(&tensor.dims), numbers })
    }

    /// The graph that takes as many pixels as there are.
    fn choose(&mut self, inputs: &[(&str, &NumberFile)]) -> Result<&mut Graph, EngineError> {
        let pixels = inputs.iter().find(|(name, _)| *name == PIXEL_VALUES).map(|(_, file)| *file);
        let takes = |graph: &Graph| graph.info().input(PIXEL_VALUES).map(TensorInfo::n_elems);
        let wanted = pixels.map(|file| file.numbers.len());
        match (self.graphs.iter().position(|graph| takes(graph) == wanted), pixels) {
            (Some(found), _) => Ok(&mut self.graphs[found]),
            (None, Some(file)) => {
                let shapes: Vec<String> = self
                    .graphs()
                    .filter_map(|graph| graph.input(PIXEL_VALUES))
                    .map(|tensor| format!("{:?}", tensor.dims))
                    .collect();
                Err(file.refused(format!("numbers for `{PIXEL_VALUES}` {}", shapes.join(" or ")), file.shape()))
            }
            (None, None) => {
                let graph = self.graphs[0].info().name.clone();
                Err(EngineError::ImageInput { graph, tensor: PIXEL_VALUES.into(), what: "no file was given for it" })
            }
        }
    }
}

/// The output that holds the rows: the only one, or the one with such a name.
fn features(graph: &GraphInfo) -> Result<usize, EngineError> {
    let named = || graph.outputs.iter().position(|tensor| FEATURES.contains(&tensor.name.as_str()));
    match graph.outputs.len() {
        1 => Ok(0),
        _ => named().ok_or_else(|| EngineError::ImageOutput {
            graph: graph.name.clone(),
            expected: FEATURES.map(|name| format!("`{name}`")).join(", "),
            found: graph.outputs.iter().map(|t| format!("`{}`", t.name)).collect::<Vec<_>>().join(", "),
        }),
    }
}

fn unreadable(graph: &str, tensor: &TensorInfo) -> EngineError {
    let (from, to) = (format!("{} of tensor `{}`", tensor.dtype, tensor.name), Dtype::F32);
    EngineError::NoConversion { graph: graph.into(), tensor: tensor.name.clone(), from, to }
}

/// A file's numbers in the tensor's type.
fn encoded(tensor: &TensorInfo, file: &NumberFile, graph: &str) -> Result<Buffer, EngineError> {
    let plain = |dims: &[usize]| dims.iter().copied().filter(|&n| n != 1).collect::<Vec<_>>();
    let same = file.dims.as_ref().is_none_or(|dims| plain(dims) == plain(&tensor.dims));
    if !same || file.numbers.len() != tensor.n_elems() {
        return Err(file.refused(format!("numbers for `{}` {:?}", tensor.name, tensor.dims), file.shape()));
    }
    let mut buffer = Buffer::zeroed(tensor.size_bytes());
    match (tensor.dtype, QuantParams::of(tensor.dtype, &tensor.quant)) {
        (_, Some(quant)) => {
            let numbers = file.numbers.iter().map(|&x| f64::from(x));
            quant.encode(numbers, Rounding::Nearest, buffer.bytes_mut());
        }
        (Dtype::I32 | Dtype::U32, None) => {
            let words = elements_mut::<i32>(buffer.bytes_mut());
            words.iter_mut().zip(&file.numbers).for_each(|(to, x)| *to = *x as i32);
        }
        _ => {
            let (from, to) = ("numbers".into(), tensor.dtype);
            return Err(EngineError::NoConversion { graph: graph.into(), tensor: tensor.name.clone(), from, to });
        }
    }
    Ok(buffer)
}
