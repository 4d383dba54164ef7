//! One case of the suite: a graph, its inputs, the answer in double precision, and how far a backend may be from it.
//!
//! Operands are encoded when they are declared, and the reference sees the dequantised values: the rounding of inputs is
//! not an error. Extents and encodings of outputs follow from the reference.

use std::sync::Arc;

use genie_types::{Dtype, Quant, TensorInfo};
use qnn_api::{Param, TensorKind};

use super::bounds::{Bound, Bounds};
use super::codec::{Fit, Ty, decode, encode, label};
use super::values::Values;

/// What a tensor of a problem is.
#[derive(Clone, Debug)]
pub enum Role {
    /// The client gives these bytes.
    Input(Vec<u8>),
    /// The graph holds these bytes.
    Constant(Vec<u8>),
    /// Between nodes.
    Native,
    /// The client takes it.
    Output,
}

impl Role {
    /// What the builder calls it; `None` for constants.
    pub const fn kind(&self) -> Option<TensorKind> {
        match self {
            Self::Input(_) => Some(TensorKind::Input),
            Self::Constant(_) => None,
            Self::Native => Some(TensorKind::Native),
            Self::Output => Some(TensorKind::Output),
        }
    }
}

/// A tensor of a problem.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name, extents, type, encoding.
    pub info: TensorInfo,
    /// Whose it is.
    pub role: Role,
}

/// A node of a problem; tensors by name.
#[derive(Clone, Debug)]
pub struct Node {
    /// QNN's op.
    pub op: &'static str,
    /// Parameters.
    pub params: Vec<(&'static str, Param)>,
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
}

/// What a backend does with a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Runs it, within the bounds.
    Runs,
    /// Refuses it with an error, for that reason.
    Refuses(&'static str),
    /// Answers something else, for that reason: it is run, and must still be off.
    Deviates(&'static str),
    /// Answers this one time and that another, for that reason: it is run, and not compared.
    Unsteady(&'static str),
}

type Reference = dyn Fn(&[Values]) -> Vec<Values> + Send + Sync;

/// A case.
#[derive(Clone)]
pub struct Problem {
    /// QNN's op, or what the graph as a whole is.
    pub op: &'static str,
    /// What is special about the case.
    pub case: String,
    /// All tensors; operands `x0`, `x1`, ..., outputs `y0`, `y1`, ....
    pub tensors: Vec<Tensor>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// How far outputs may be off.
    pub bounds: Bounds,
    /// What the host does.
    pub host: Support,
    /// What the emulator does.
    pub htp: Support,
    outputs: Vec<Ty>,
    reference: Option<Arc<Reference>>,
}

impl Problem {
    /// A graph of one node of that op. The node comes last: see [`Problem::answers`].
    pub fn of(op: &'static str, case: impl Into<String>) -> Self {
        Self {
            op,
            case: case.into(),
            tensors: Vec::new(),
            nodes: vec![Node { op, params: Vec::new(), inputs: Vec::new(), outputs: Vec::new() }],
            bounds: Bounds::EXACT,
            host: Support::Runs,
            htp: Support::Runs,
            outputs: Vec::new(),
            reference: None,
        }
    }

    /// A graph of several nodes: declare operands and natives, then [`Problem::node`] by node.
    pub fn graph(what: &'static str, case: impl Into<String>) -> Self {
        Self { nodes: Vec::new(), ..Self::of(what, case) }
    }

    /// An operand that the client gives.
    #[must_use]
    pub fn input(self, ty: Ty, values: Values) -> Self {
        self.operand(ty, values, Role::Input)
    }

    /// An operand that the graph holds.
    #[must_use]
    pub fn constant(self, ty: Ty, values: Values) -> Self {
        self.operand(ty, values, Role::Constant)
    }

    fn operand(mut self, ty: Ty, values: Values, role: fn(Vec<u8>) -> Role) -> Self {
        let quant = ty.encoding(&values, &self.encodings());
        let bytes = encode(&values, ty.dtype, &quant);
        let name = format!("x{}", self.tensors.len());
        let info = TensorInfo::new(name, values.dims, ty.dtype).with_quant(quant);
        self.tensors.push(Tensor { info, role: role(bytes) });
        self
    }

    /// A parameter of the one node.
    #[must_use]
    pub fn param(mut self, name: &'static str, value: Param) -> Self {
        self.nodes[0].params.push((name, value));
        self
    }

    /// A scalar parameter of the one node.
    #[must_use]
    pub fn count(self, name: &'static str, value: usize) -> Self {
        self.param(name, Param::U32(value as u32))
    }

    /// A list parameter of the one node.
    #[must_use]
    pub fn list(self, name: &'static str, values: &[usize]) -> Self {
        let data: Vec<u32> = values.iter().map(|&v| v as u32).collect();
        self.param(name, Param::U32Tensor { dims: vec![data.len()], data })
    }

    /// A tensor between nodes; of codes if the type has a given encoding.
    #[must_use]
    pub fn native(mut self, name: &str, ty: &Ty, dims: impl Into<Vec<usize>>) -> Self {
        let quant = if let Fit::Given(quant) = &ty.fit { quant.clone() } else { Quant::None };
        let info = TensorInfo::new(name, dims, ty.dtype).with_quant(quant);
        self.tensors.push(Tensor { info, role: Role::Native });
        self
    }

    /// The next node of a graph.
    #[must_use]
    pub fn node(
        mut self,
        op: &'static str,
        params: Vec<(&'static str, Param)>,
        inputs: &[&str],
        outputs: &[&str],
    ) -> Self {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        self.nodes.push(Node { op, params, inputs: names(inputs), outputs: names(outputs) });
        self
    }

    /// An output; extents and encoding follow from the reference.
    #[must_use]
    pub fn output(mut self, ty: Ty) -> Self {
        self.outputs.push(ty);
        self
    }

    /// The reference: all outputs from all operands, in the order they were declared. Declares the outputs.
    ///
    /// # Panics
    /// Not as many answers as outputs: a mistake in the table.
    #[must_use]
    pub fn answers(mut self, f: impl Fn(&[Values]) -> Vec<Values> + Send + Sync + 'static) -> Self {
        self.reference = Some(Arc::new(f));
        let operands: Vec<String> = self.operands().map(|t| t.info.name.clone()).collect();
        let (answers, encodings) = (self.reference(), self.encodings());
        assert_eq!(answers.len(), self.outputs.len(), "{}: an answer for each output", self.title());
        for (i, (ty, values)) in self.outputs.clone().iter().zip(&answers).enumerate() {
            let quant = ty.encoding(values, &encodings);
            let info = TensorInfo::new(format!("y{i}"), values.dims.clone(), ty.dtype).with_quant(quant);
            self.tensors.push(Tensor { info, role: Role::Output });
        }
        if let [node] = &mut self.nodes[..]
            && node.inputs.is_empty()
        {
            node.inputs = operands;
            node.outputs = (0..answers.len()).map(|i| format!("y{i}")).collect();
        }
        self.bounds = Bounds::usual(self.outputs.first().map(|ty| ty.dtype));
        self
    }

    /// For one output.
    #[must_use]
    pub fn answer(self, f: impl Fn(&[Values]) -> Values + Send + Sync + 'static) -> Self {
        self.answers(move |x| vec![f(x)])
    }

    /// Nothing may be off; but the emulator keeps no float32: what passes through it is rounded to float16.
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.bounds = Bounds::EXACT;
        if self.outputs.first().is_some_and(|ty| ty.dtype == Dtype::F32) {
            self.bounds.htp = Bound::HALF_ULP;
        }
        self
    }

    /// How far the emulator may be off; the host keeps its own bound.
    #[must_use]
    pub fn htp_within(mut self, bound: Bound) -> Self {
        self.bounds.htp = bound;
        self
    }

    /// How far the host may be off.
    #[must_use]
    pub fn host_within(mut self, bound: Bound) -> Self {
        self.bounds.host = bound;
        self
    }

    /// The emulator refuses it.
    #[must_use]
    pub fn htp_refuses(mut self, why: &'static str) -> Self {
        self.htp = Support::Refuses(why);
        self
    }

    /// The emulator answers something else.
    #[must_use]
    pub fn htp_deviates(mut self, why: &'static str) -> Self {
        self.htp = Support::Deviates(why);
        self
    }

    /// The emulator does not answer the same each time.
    #[must_use]
    pub fn htp_unsteady(mut self, why: &'static str) -> Self {
        self.htp = Support::Unsteady(why);
        self
    }

    /// The host refuses it.
    #[must_use]
    pub fn host_refuses(mut self, why: &'static str) -> Self {
        self.host = Support::Refuses(why);
        self
    }

    /// Inputs and constants.
    pub fn operands(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|t| matches!(t.role, Role::Input(_) | Role::Constant(_)))
    }

    /// The client's inputs, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &[u8]> {
        self.tensors.iter().filter_map(|t| if let Role::Input(bytes) = &t.role { Some(&bytes[..]) } else { None })
    }

    /// The outputs, in order.
    pub fn output_infos(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter().filter(|t| matches!(t.role, Role::Output)).map(|t| &t.info)
    }

    fn encodings(&self) -> Vec<Quant> {
        self.operands().map(|t| t.info.quant.clone()).collect()
    }

    /// The outputs in double precision.
    ///
    /// # Panics
    /// The problem was given no reference.
    pub fn reference(&self) -> Vec<Values> {
        let operands: Vec<Values> = self
            .operands()
            .map(|t| match &t.role {
                Role::Input(bytes) | Role::Constant(bytes) => decode(bytes, &t.info.dims, t.info.dtype, &t.info.quant),
                _ => unreachable!("operands have bytes"),
            })
            .collect();
        (self.reference.as_ref().expect("a problem ends with its answer"))(&operands)
    }

    /// The types of operands and outputs, as the table shows them: `u16 x s8 by axis 0 -> u16` is `u16 x s8 by axis 0`.
    pub fn types(&self) -> String {
        let of = |t: &TensorInfo| label(t.dtype, &t.quant);
        let mut operands: Vec<String> = self.operands().map(|t| of(&t.info)).collect();
        let mut outputs: Vec<String> = self.output_infos().map(of).collect();
        let same = operands.first() == outputs.first() && outputs.len() == 1;
        operands.dedup();
        outputs.dedup();
        if same { operands.join(" x ") } else { format!("{} -> {}", operands.join(" x "), outputs.join(", ")) }
    }

    /// Op, case and types: how messages call it.
    pub fn title(&self) -> String {
        format!("`{}`, {} ({})", self.op, self.case, self.types())
    }
}

impl core::fmt::Debug for Problem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.title())
    }
}
