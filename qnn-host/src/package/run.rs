//! Nodes of packages as steps: one that calls the package, and one for each result that other nodes read.
//!
//! *Units and dtype*: a package sees every tensor in its declared type and encoding. Buffers of the client and constants are
//! handed over where they lie; what the host keeps as `f32` or `i32` is converted into buffers of the step before and after.
//! *In place*: only an op of which that is known, `PDKVCacheUpdate`, may be given one buffer as input and output.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Package;
use super::node::MadeOp;
use crate::graph::codec::{decode, encode};
use crate::graph::op::{LeafOp, Op, Update};
use crate::graph::step_builder::StepBuilder;
use crate::graph::typed::{Node, Source};
use crate::graph::{ExecError, Violation};
use crate::ir::{Dtype, Quant, Tensor};
use crate::ops::Lowering;
use crate::pool::Worker;
use crate::step::{Fault, Fill, Place, RunContext, Src, Step};
use crate::storage::{QuantGrid, Storage};

/// A type and its grid.
type Form = (Dtype, Option<QuantGrid>);

fn form(tensor: &Tensor) -> Form {
    (tensor.dtype, QuantGrid::of(tensor.dtype, &tensor.quant))
}

/// Lowers a node of a package, and has the package make its op. Whoever took the node has asked the package whether it accepts it.
///
/// # Errors
/// What the package refuses.
pub(crate) fn lower(l: &mut Lowering<'_, '_>, package: &Arc<Package>) -> Result<(), ExecError> {
    super::node::check(l.source(), l.node)?;
    let made = MadeOp::new(package, l.source(), l.node)?;
    let none = |n| vec![Vec::new(); n];
    let (from, to) = (Vec::with_capacity(l.inputs.len()), Vec::with_capacity(l.outputs.len()));
    let buffers = Buffers { inputs: none(l.inputs.len()), outputs: none(l.outputs.len()), from, to };
    let call = Arc::new(Call { made: Mutex::new((made, buffers)) });
    let n = l.outputs.len();
    let inputs = (0..l.inputs.len()).map(|i| l.input(i)).collect::<Result<Vec<_>, Violation>>()?;
    let ports: Vec<Option<usize>> = (0..n).map(|i| l.port(l.output(i))).collect();
    let is_read: Vec<bool> = (0..n).map(|i| l.n_readers(l.output(i)) > 0).collect();
    let mut updates = Vec::new();
    if l.node.op.ends_with("::PDKVCacheUpdate") && inputs.len() == 9 && n == 2 && !is_read.contains(&true) {
        for (operand, out) in [(1, 0), (2, 1)] {
            let (tensor, to) = (l.tensor(operand)?, l.outputs[out]);
            let alike = (tensor.dtype, &tensor.quant, &tensor.dims) == (to.dtype, &to.quant, &to.dims);
            if let (Source::Input(input), Some(output), true) =
                (&l.typed().value(inputs[operand]).source, ports[out], alike)
            {
                updates.push(Update { operand, input: *input, output });
            }
        }
    }
    let op = CallOp {
        call: call.clone(),
        inputs: l.inputs.iter().flatten().map(|t| (form(t), t.quant.clone(), t.n_elems())).collect(),
        outputs: l.outputs.iter().zip(&ports).map(|(t, port)| (t.size_bytes(), t.dtype.size_bytes(), *port)).collect(),
        updates,
    };
    if !is_read.contains(&true) {
        l.push(Op::leaf(op), &inputs, None);
    } else {
        // Those who read a result run after the call because they read this.
        let token = l.temp(&[1], Storage::I32);
        l.push(Op::leaf(op), &inputs, Some(token));
        for i in (0..n).filter(|&i| is_read[i]) {
            let take = TakeOp { call: call.clone(), index: i, port: ports[i], form: form(l.outputs[i]) };
            let output = l.output(i);
            l.push(Op::leaf(take), &[token], Some(output));
        }
        if ports.iter().any(Option::is_some) {
            l.push(Op::leaf(Keep), &[token], None);
        }
    }
    (0..n).for_each(|i| l.mark_written(l.output(i)));
    Ok(())
}

/// Buffers in declared types for what the client did not lend.
struct Buffers {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    /// Where the running call's operands are; the lists keep their capacity.
    from: Vec<*const u8>,
    to: Vec<*mut u8>,
}

// SAFETY: the addresses are used by the run that put them there and by no other.
unsafe impl Send for Buffers {}

/// An op of a package. Its lock is taken by one thread at a time: that which calls, or those which read in turn.
struct Call {
    made: Mutex<(MadeOp, Buffers)>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// Calls the package.
#[derive(Debug)]
struct CallOp {
    call: Arc<Call>,
    /// Type, encoding and elements of each input.
    inputs: Vec<(Form, Quant, usize)>,
    /// Bytes of each output and of an element of it, and which of the graph's outputs it is.
    outputs: Vec<(usize, usize, Option<usize>)>,
    updates: Vec<Update>,
}

impl LeafOp for CallOp {
    fn label(&self) -> &'static str {
        "OpPackage"
    }

    fn is_pure(&self) -> bool {
        false
    }

    fn reads_raw(&self, slot: usize, dtype: Dtype, quant: &Quant) -> bool {
        self.inputs.get(slot).is_some_and(|((own, _), own_quant, _)| *own == dtype && own_quant == quant)
    }

    fn updates(&self) -> &[Update] {
        &self.updates
    }

    fn is_team(&self) -> bool {
        true
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let inputs = node.inputs.iter().zip(&self.inputs).map(|(&id, (form, _, n))| (b.src(id), *form, *n)).collect();
        Ok(Box::new(CallStep { call: self.call.clone(), inputs, outputs: self.outputs.clone() }))
    }
}

struct CallStep {
    call: Arc<Call>,
    inputs: Vec<(Src, Form, usize)>,
    outputs: Vec<(usize, usize, Option<usize>)>,
}

impl Step for CallStep {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        if worker.index() != 0 {
            return Ok(());
        }
        let mut made = self.call.made.lock();
        let (op, Buffers { inputs, outputs, from, to }) = &mut *made;
        from.clear();
        to.clear();
        for ((src, (dtype, grid), n), buffer) in self.inputs.iter().zip(inputs) {
            let lent = match src.place {
                // By address alone: the client may have bound an output to it.
                Place::Input(index) if src.dtype == *dtype => Some(cx.input_address(index)),
                Place::Const(ref bytes) if src.dtype == *dtype => Some(bytes.as_ptr()),
                _ => None,
            };
            match lent {
                Some(address) if address.addr() % dtype.size_bytes() == 0 => from.push(address),
                Some(_) => {
                    buffer.clear();
                    buffer.extend_from_slice(cx.bytes(src));
                    from.push(buffer.as_ptr());
                }
                None => {
                    buffer.resize(n * dtype.size_bytes(), 0);
                    encode(cx.isa, cx.read::<u32>(src), *dtype, *grid, buffer);
                    from.push(buffer.as_ptr());
                }
            }
        }
        for (&(bytes, elem, port), buffer) in self.outputs.iter().zip(outputs) {
            let lent = port.map(|port| cx.output(port).ptr()).filter(|p| p.addr() % elem == 0);
            to.push(lent.unwrap_or_else(|| {
                buffer.resize(bytes, 0);
                buffer.as_mut_ptr()
            }));
        }
        // SAFETY: sizes as declared: the executor measured the client's buffers, the others were resized above. No other step
        // uses the outputs meanwhile; an output is an input's buffer only where the op is known to update in place.
        let code = unsafe { op.run(from, to) };
        if code != qnn_sys::QNN_SUCCESS {
            return Err(Fault::Package { code });
        }
        for (&(bytes, _, port), &at) in self.outputs.iter().zip(&*to) {
            let Some(out) = port.map(|port| cx.output(port)).filter(|out| out.ptr() != at) else { continue };
            // SAFETY: this op's own buffer of that size, and the client's, which this step alone writes.
            unsafe { std::ptr::copy_nonoverlapping(at.cast_const(), out.ptr(), bytes) };
        }
        Ok(())
    }
}

/// A result of a package for other nodes.
#[derive(Debug)]
struct TakeOp {
    call: Arc<Call>,
    index: usize,
    /// Which of the graph's outputs holds it, if one does.
    port: Option<usize>,
    form: Form,
}

impl LeafOp for TakeOp {
    fn label(&self) -> &'static str {
        "OpPackage result"
    }

    fn is_pure(&self) -> bool {
        false
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        b.each(node, Take { call: self.call.clone(), index: self.index, port: self.port, form: self.form })
    }
}

struct Take {
    call: Arc<Call>,
    index: usize,
    port: Option<usize>,
    form: Form,
}

impl Fill for Take {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let (dtype, grid) = self.form;
        let range = first * dtype.size_bytes()..(first + out.len()) * dtype.size_bytes();
        match self.port {
            Some(port) => {
                // SAFETY: the call that wrote it is over, no other step writes it, and threads have shares of their own.
                let bytes = unsafe { cx.output(port).part(range) };
                decode(cx.isa, bytes, dtype, grid, out);
            }
            None => decode(cx.isa, &self.call.made.lock().1.outputs[self.index][range], dtype, grid, out),
        }
        Ok(())
    }
}

/// Keeps a call whose results go to the client from being left out.
#[derive(Debug)]
struct Keep;

impl LeafOp for Keep {
    fn label(&self) -> &'static str {
        "OpPackage end"
    }

    fn is_pure(&self) -> bool {
        false
    }

    fn step(&self, _: &StepBuilder<'_>, _: &Node) -> Result<Box<dyn Step>, ExecError> {
        Ok(Box::new(Nothing))
    }
}

struct Nothing;

impl Step for Nothing {
    fn run(&self, _: &RunContext<'_>, _: Worker<'_>) -> Result<(), Fault> {
        Ok(())
    }
}
