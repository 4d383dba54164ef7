//! What can be known of integer tensors before a run: each element as an expression over constants and inputs.
//!
//! Elements that have the same number here are equal in every run. So a fusion can find that an index tensor holds the
//! same numbers for every head, though its numbers depend on an input.

use std::collections::HashMap;
use std::rc::Rc;

use crate::graph::codec;
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::typed::{TypedGraph, Uses, ValueId};
use crate::graph::walk::{MAX_RANK, Walk, broadcast_shape};
use crate::kernels::Isa;
use crate::storage::Storage;

/// Number of an expression; equal numbers mean equal values.
pub(crate) type Sym = u32;

/// Most elements of a tensor that is looked into.
const MAX_ELEMS: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Expr {
    Number(i32),
    /// An element of a value of which nothing is known.
    Element(ValueId, u32),
    /// `Add` and `Multiply` have their operands in ascending order.
    Pair(BinaryOp, Sym, Sym),
}

/// Expressions met so far, each with its number; tensors are remembered.
#[derive(Default)]
pub(crate) struct Symbols {
    exprs: Vec<Expr>,
    numbers: HashMap<Expr, Sym>,
    known: HashMap<ValueId, Option<Rc<[Sym]>>>,
}

impl Symbols {
    /// The elements of an integer tensor; `None` if there are too many.
    pub(crate) fn of(&mut self, net: &TypedGraph, uses: &Uses, id: ValueId) -> Option<Rc<[Sym]>> {
        let root = net.root(id);
        if let Some(known) = self.known.get(&root) {
            return known.clone();
        }
        let value = net.value(root);
        let symbols = (value.storage() == Storage::I32 && value.n_elems() <= MAX_ELEMS).then(|| {
            let made = self.computed(net, uses, root);
            made.unwrap_or_else(|| (0..value.n_elems() as u32).map(|i| self.number(Expr::Element(root, i))).collect())
        });
        self.known.insert(root, symbols.clone());
        symbols
    }

    /// Whether it is that number in every run.
    pub(crate) fn is_number(&self, symbol: Sym, number: usize) -> bool {
        matches!(self.exprs.get(symbol as usize), Some(&Expr::Number(n)) if usize::try_from(n) == Ok(number))
    }

    fn number(&mut self, expr: Expr) -> Sym {
        *self.numbers.entry(expr).or_insert_with(|| {
            self.exprs.push(expr);
            self.exprs.len() as Sym - 1
        })
    }

    fn pair(&mut self, op: BinaryOp, a: Sym, b: Sym) -> Sym {
        let numbers = match (self.exprs[a as usize], self.exprs[b as usize]) {
            (Expr::Number(a), Expr::Number(b)) => Some((a, b)),
            _ => None,
        };
        let known = numbers.and_then(|(a, b)| match op {
            BinaryOp::Add => Some(a.wrapping_add(b)),
            BinaryOp::Subtract => Some(a.wrapping_sub(b)),
            BinaryOp::Multiply => Some(a.wrapping_mul(b)),
            _ => None,
        });
        if let Some(known) = known {
            return self.number(Expr::Number(known));
        }
        let zero = |s: Sym| matches!(self.exprs[s as usize], Expr::Number(0));
        match op {
            BinaryOp::Add if zero(a) => b,
            BinaryOp::Add | BinaryOp::Subtract if zero(b) => a,
            BinaryOp::Multiply if zero(a) => a,
            BinaryOp::Multiply if zero(b) => b,
            BinaryOp::Add | BinaryOp::Multiply => self.number(Expr::Pair(op, a.min(b), a.max(b))),
            _ => self.number(Expr::Pair(op, a, b)),
        }
    }

    /// Constants, and what a few operations make of known operands.
    fn computed(&mut self, net: &TypedGraph, uses: &Uses, root: ValueId) -> Option<Rc<[Sym]>> {
        if let Some(constant) = net.constant(root) {
            let bytes = codec::decode_constant(Isa::PLAIN, constant, net.shape(root));
            let numbers = bytes.as_chunks().0.iter().map(|&b| Expr::Number(i32::from_ne_bytes(b)));
            return Some(numbers.map(|number| self.number(number)).collect());
        }
        let node = &net.nodes[uses.producer(net, root)?];
        let n = net.value(root).n_elems();
        let deep = node.inputs.iter().any(|&id| net.shape(id).len() > MAX_RANK);
        let first = *node.inputs.first().filter(|_| !deep)?;
        let shape = net.shape(first);
        let walk = match &node.op {
            Op::Transpose { perm } => Walk::transpose(shape, perm),
            Op::Tile { multiples } => Walk::tile(shape, multiples),
            Op::Slice { begin, stride, counts } => Walk::slice(shape, begin, stride, counts),
            Op::Copy => return self.of(net, uses, first),
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply)) => {
                let other = node.inputs[1];
                let to = broadcast_shape(shape, net.shape(other))?;
                let (a, b) = (self.of(net, uses, first)?, self.of(net, uses, other)?);
                let mut made = vec![0; n];
                Walk::broadcast(&to, [shape, net.shape(other)]).runs(0, n, |run| {
                    for (i, made) in made[run.at..run.at + run.len].iter_mut().enumerate() {
                        let at = |o: usize| (run.start[o] + i as isize * run.step[o]) as usize;
                        *made = self.pair(*op, a[at(0)], b[at(1)]);
                    }
                });
                return Some(made.into());
            }
            Op::Concat { axis } => return self.joined(net, uses, &node.inputs, *axis, n),
            _ => return None,
        };
        let from = self.of(net, uses, first)?;
        let mut made = vec![0; n];
        walk.runs(0, n, |run| {
            for (i, made) in made[run.at..run.at + run.len].iter_mut().enumerate() {
                *made = from[(run.start[0] + i as isize * run.step[0]) as usize];
            }
        });
        Some(made.into())
    }

    fn joined(&mut self, net: &TypedGraph, uses: &Uses, parts: &[ValueId], axis: usize, n: usize) -> Option<Rc<[Sym]>> {
        let row = |id: ValueId| net.shape(id)[axis..].iter().product::<usize>();
        let parts: Option<Vec<_>> = parts.iter().map(|&id| Some((self.of(net, uses, id)?, row(id)))).collect();
        let parts = parts?;
        let rows = n.checked_div(parts.iter().map(|(_, row)| row).sum())?;
        Some(
            (0..rows).flat_map(|r| parts.iter().flat_map(move |(p, row)| p[r * row..(r + 1) * row].to_vec())).collect(),
        )
    }
}
