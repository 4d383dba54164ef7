//! A target that writes down what it is asked to compose, and refuses what no backend would take.

use crate::lower::{GraphSink, Kind, Param};
use crate::target::{Target, TargetContext};
use crate::{CompileError, Result};
use genie_bundle::BackendId;
use genie_types::TensorInfo;
use qnn_api::{SavePart, SaveReport, SaveWatch};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

/// Where a tensor's contents come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Held {
    Input,
    Output,
    Native,
    Constant(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) info: TensorInfo,
    pub(crate) held: Held,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) op: String,
    pub(crate) params: Vec<(String, Param)>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: usize,
}

/// One recorded graph; nodes refer to tensors by index.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) nodes: Vec<Node>,
    names: HashSet<String>,
    filled: HashSet<usize>,
}

impl Graph {
    fn push(&mut self, info: &TensorInfo, held: Held) -> usize {
        assert!(self.names.insert(format!("tensor {}", info.name)), "{}: tensor {} twice", self.name, info.name);
        assert!(!info.dims.contains(&0), "{}: {info:?} is empty", self.name);
        let index = self.tensors.len();
        if matches!(held, Held::Input | Held::Constant(_)) {
            self.filled.insert(index);
        }
        self.tensors.push(Tensor { info: info.clone(), held });
        index
    }

    /// The shape that the op gives from these inputs.
    fn inferred(&self, op: &str, params: &[(&str, Param)], inputs: &[usize]) -> Option<Vec<usize>> {
        let dims: Vec<&[usize]> = inputs.iter().map(|&i| self.tensors[i].info.dims.as_slice()).collect();
        let last = |i: usize| *dims[i].last().unwrap();
        let param = |name: &str| params.iter().find(|(n, _)| *n == name).map(|(_, p)| p);
        Some(match op {
            "Gather" => match param("axis") {
                Some(Param::I32(0)) => [dims[1], &dims[0][1..]].concat(),
                Some(Param::I32(axis)) => [&dims[0][..*axis as usize], dims[1]].concat(),
                other => panic!("axis {other:?}"),
            },
            "RmsNorm" => {
                assert_eq!(dims[1], [last(0)], "gamma");
                dims[0].to_vec()
            }
            "LayerNorm" => {
                assert_eq!((dims[1], dims[2]), (&[last(0)][..], &[last(0)][..]), "gamma and beta");
                dims[0].to_vec()
            }
            "FullyConnected" => {
                assert_eq!(last(0), dims[1][1], "inner width");
                assert!(dims.len() == 2 || dims[2] == [dims[1][0]], "bias");
                vec![dims[0].iter().product::<usize>() / last(0), dims[1][0]]
            }
            "Conv2d" => {
                assert_eq!((&dims[0][..2], &dims[1][..2]), (&[1, 1][..], &[1, 1][..]), "one by one");
                assert_eq!(last(0), dims[1][2], "inner width");
                assert!(dims.len() == 2 || dims[2] == [last(1)], "bias");
                assert_eq!(param("stride"), Some(&Param::U32Tensor { dims: vec![2], data: vec![1, 1] }));
                assert_eq!(param("pad_amount"), Some(&Param::U32Tensor { dims: vec![2, 2], data: vec![0; 4] }));
                vec![1, 1, dims[0][2], last(1)]
            }
            "Transpose" => match param("perm") {
                Some(Param::U32Tensor { data, .. }) => data.iter().map(|&axis| dims[0][axis as usize]).collect(),
                other => panic!("perm {other:?}"),
            },
            "RotaryEmbedding" => {
                let Some(Param::U32(rotated)) = param("rotary_embedding_dim") else { panic!("rotary_embedding_dim") };
                assert!(*rotated as usize <= last(0), "rotated part");
                assert_eq!(dims[1], [1, dims[0][2], *rotated as usize / 2], "tables");
                assert_eq!(dims[1], dims[2]);
                dims[0].to_vec()
            }
            "Concat" => match param("axis") {
                Some(Param::U32(axis)) => {
                    let mut joined = dims[0].to_vec();
                    joined[*axis as usize] += dims[1][*axis as usize];
                    joined
                }
                other => panic!("axis {other:?}"),
            },
            "MatMul" => {
                let turned = param("transpose_in1") == Some(&Param::Bool(true));
                let (inner, outer) = if turned { (dims[1][3], dims[1][2]) } else { (dims[1][2], dims[1][3]) };
                assert_eq!((dims[0][0], dims[0][3], dims[1][1]), (dims[1][0], inner, 1), "{dims:?}");
                vec![dims[0][0], dims[0][1], dims[0][2], outer]
            }
            "ElementWiseAdd" | "ElementWiseSubtract" | "ElementWiseMultiply" => {
                for (a, b) in dims[0].iter().zip(dims[1]) {
                    assert!(a == b || *b == 1, "{dims:?} do not broadcast");
                }
                dims[0].to_vec()
            }
            "ReduceSum" => {
                let last = vec![dims[0].len() as u32 - 1];
                assert_eq!(param("axes"), Some(&Param::U32Tensor { dims: vec![1], data: last }));
                dims[0][..dims[0].len() - 1].to_vec()
            }
            "Sigmoid" | "Softmax" | "Tanh" => dims[0].to_vec(),
            "Reshape" => return None,
            other => panic!("op {other} is not among those that backends run first"),
        })
    }
}

impl GraphSink for Graph {
    type Tensor = usize;

    fn tensor(&mut self, info: &TensorInfo, kind: Kind) -> Result<usize> {
        let held = match kind {
            Kind::Input => Held::Input,
            Kind::Output => Held::Output,
            Kind::Native => Held::Native,
        };
        Ok(self.push(info, held))
    }

    fn constant(&mut self, info: &TensorInfo, bytes: &[u8]) -> Result<usize> {
        assert_eq!(bytes.len(), info.size_bytes(), "{}", info.name);
        Ok(self.push(info, Held::Constant(bytes.to_vec())))
    }

    fn node(
        &mut self,
        name: &str,
        op: &str,
        params: &[(&str, Param)],
        inputs: &[usize],
        outputs: &[usize],
    ) -> Result<()> {
        assert!(self.names.insert(format!("node {name}")), "{}: node {name} twice", self.name);
        let [output] = *outputs else { panic!("{name}: one output") };
        assert!(inputs.iter().all(|i| self.filled.contains(i)), "{name} reads what nothing wrote");
        assert!(self.filled.insert(output), "{name} writes a tensor that is written already");
        let out = &self.tensors[output].info;
        match self.inferred(op, params, inputs) {
            Some(dims) => assert_eq!(out.dims, dims, "{name} ({op})"),
            None => assert_eq!(out.n_elems(), self.tensors[inputs[0]].info.n_elems(), "{name} ({op})"),
        }
        let params = params.iter().map(|(n, p)| (n.to_string(), p.clone())).collect();
        self.nodes.push(Node { op: op.into(), params, inputs: inputs.into(), output });
        Ok(())
    }
}

/// Keeps what was saved; can fail at a stage.
#[derive(Debug, Default)]
pub(crate) struct FakeTarget {
    pub(crate) saved: Rc<RefCell<Vec<Vec<Graph>>>>,
    /// Number of saves that succeed before one fails, if any is to fail.
    pub(crate) saves_left: Option<Cell<usize>>,
    /// It stands for another library than the embedded backend.
    pub(crate) is_other: bool,
}

#[derive(Debug)]
pub(crate) struct FakeContext {
    saved: Rc<RefCell<Vec<Vec<Graph>>>>,
    fails: bool,
    graphs: Vec<Graph>,
}

impl Target for FakeTarget {
    type Context = FakeContext;

    fn id(&self) -> BackendId {
        BackendId { name: "fake".into(), build_id: "recorder-1".into() }
    }

    fn is_embedded(&self) -> bool {
        !self.is_other
    }

    fn context(&mut self, _: &Path) -> Result<FakeContext> {
        let fails = self.saves_left.as_ref().is_some_and(|left| left.replace(left.get().saturating_sub(1)) == 0);
        Ok(FakeContext { saved: self.saved.clone(), fails, graphs: Vec::new() })
    }
}

impl TargetContext for FakeContext {
    type Graph = Graph;

    fn compose(&mut self, name: &str) -> Result<Graph> {
        Ok(Graph { name: name.into(), ..Graph::default() })
    }

    fn finalize(&mut self, graph: Graph) -> Result<()> {
        assert_eq!(graph.filled.len(), graph.tensors.len(), "{}: a tensor that nothing fills", graph.name);
        self.graphs.push(graph);
        Ok(())
    }

    fn save(self, path: &Path, watch: &mut SaveWatch<'_>) -> Result<()> {
        let n = self.graphs.len() as u64;
        for part in [SavePart::LayOut, SavePart::Write, SavePart::Flush] {
            for done_bytes in 1..=n {
                if watch(SaveReport { part, done_bytes, total_bytes: n }).is_break() {
                    return Err(CompileError::Cancelled);
                }
            }
        }
        if self.fails {
            let source = std::io::Error::other("the fake is set to fail");
            return Err(CompileError::Io { doing: "write", path: path.into(), source });
        }
        crate::fs::write(path, format!("{} graphs", self.graphs.len()).as_bytes())?;
        self.saved.borrow_mut().push(self.graphs);
        Ok(())
    }
}
