//! `RotaryEmbedding`: pairs of each row turned by the angles of its position.
//!
//! *Shapes*: x [B, H, S, D]; cos and sin [1 or B, S, R/2], or tables [positions, R/2] with position ids [B, S].

use super::prelude::*;
use crate::kernels::{self, Floats};

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "RotaryEmbedding",
    inputs: (3, 4),
    outputs: (1, 1),
    params: &[opt("interleaved", Bool), opt("rotary_embedding_dim", UInt)],
    same_in: 0b111,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] [FLOAT] [FLOAT] [INDEX] => [FLOAT]),
        row!(Fixed: [UFIX16] [UFIX16] [UFIX16] [INDEX] => [UFIX16]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let part = [("interleaved", Param::Bool(true)), ("rotary_embedding_dim", Param::UInt(4))];
    let tables = [(F, &[2, 4, 3, 8][..]), (F, &[9, 2]), (F, &[9, 2]), (I, &[2, 3])];
    vec![
        sample("RotaryEmbedding", &[], &[(F, &[1, 4, 3, 8]), (F, &[1, 3, 4]), (F, &[1, 3, 4])], &[(F, &[1, 4, 3, 8])]),
        sample("RotaryEmbedding", &part, &tables, &[(F, &[2, 4, 3, 8])]),
    ]
}

/// How many of the last axis' elements turn.
fn rotated(call: &Call<'_>) -> Result<u32, Violation> {
    let d = call.dims(0)?.last().copied().unwrap_or(0);
    let rotated = match call.uint("rotary_embedding_dim", 0)? {
        0 => u64::from(d),
        r => r,
    };
    if rotated % 2 != 0 || rotated > u64::from(d) {
        return Err(call.bad_param("rotary_embedding_dim", format!("an even number up to {d}"), rotated.to_string()));
    }
    Ok(rotated as u32)
}

fn shapes(call: &Call<'_>) -> Shapes {
    let x = call.dims(0)?;
    let &[b, _, s, _] = x else {
        return Err(call.bad_input(0, "rank 4 [batch, heads, rows, head_dim]".into(), format!("{x:?}")));
    };
    let half = rotated(call)? / 2;
    let by_ids = call.optional_tensor(3);
    for i in [1, 2] {
        let t = call.dims(i)?;
        let fits = match (t, by_ids) {
            (&[n, rows, h], None) => (n == 1 || n == b) && rows == s && h == half,
            (&[_, h], Some(_)) => h == half,
            _ => false,
        };
        if !fits {
            let expected = match by_ids {
                None if b == 1 => format!("[1, {s}, {half}]"),
                None => format!("[1 or {b}, {s}, {half}]"),
                Some(_) => format!("a table [positions, {half}]"),
            };
            return Err(call.bad_input(i, expected, format!("{t:?}")));
        }
    }
    if call.dims(1)? != call.dims(2)? {
        return Err(call.bad_input(2, format!("{:?} as input 1", call.dims(1)?), format!("{:?}", call.dims(2)?)));
    }
    if let Some(ids) = by_ids
        && ids.dims != [b, s]
    {
        return Err(call.bad_input(3, format!("position ids [{b}, {s}]"), format!("{:?}", ids.dims)));
    }
    common::same(call)
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, mut cos, mut sin) = (l.real(0)?, l.real(1)?, l.real(2)?);
    let rotated = rotated(l)? as usize;
    if l.optional(3).is_some() {
        let positions = l.int(3)?;
        cos = looked_up(l, cos, positions);
        sin = looked_up(l, sin, positions);
    }
    let interleaved = l.flag("interleaved", false)?;
    l.emit_as(Op::Rope { interleaved, rotated, by_row: false }, &[x, cos, sin], l.output(0), Storage::F32);
    Ok(())
}

/// Rows of a table `[n, half]` for each position.
fn looked_up(l: &mut Lowering<'_, '_>, table: ValueId, positions: ValueId) -> ValueId {
    let mut gathered = l.shape(positions);
    gathered.extend(l.shape(table).last());
    let temp = l.temp(&gathered, Storage::F32);
    l.emit_to(Op::Gather { axis: 0 }, &[table, positions], temp);
    temp
}

pub(super) fn step(
    b: &StepBuilder<'_>,
    node: &Node,
    interleaved: bool,
    rotated: usize,
    by_row: bool,
) -> Result<Box<dyn Step>, ExecError> {
    let &[x, cos, sin] = node.inputs.as_slice() else { return Err(b.broken(node, "needs three inputs")) };
    let (shape, x, cos, sin) = (b.shape(x), b.src(x), b.src(cos), b.src(sin));
    let &[ref batch @ .., outer, dim] = shape else { return Err(b.broken(node, "rotates no rows")) };
    let (rows, heads) = match batch {
        [.., rows] if by_row => (*rows, outer),
        _ => (outer, 1),
    };
    let tables = if rows * rotated == 0 { 1 } else { cos.n / (rows * rotated / 2) };
    if b.fast && tables == 1 && rotated > 0 {
        return b.each(node, FastRotate { x, cos, sin, rows, heads, dim, rotated, interleaved });
    }
    if by_row {
        return Err(b.broken(node, "rotates by row with several tables"));
    }
    let rows_per_table = (batch.iter().product::<usize>() / tables.max(1) * rows).max(1);
    b.each(node, Rotate { x, cos, sin, rows, rows_per_table, dim, rotated, interleaved })
}

/// Turns pairs of each row of `dim` by the angles of its position.
struct Rotate {
    x: Src,
    cos: Src,
    sin: Src,
    /// Positions: row `r` of `x` has the tables' row `r % rows`, of table `r / rows_per_table`.
    rows: usize,
    rows_per_table: usize,
    dim: usize,
    rotated: usize,
    interleaved: bool,
}

impl Fill for Rotate {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        let (cos, sin) = (cx.read::<f32>(&self.cos), cx.read::<f32>(&self.sin));
        let half = self.rotated / 2;
        for (r, (x, out)) in x.chunks_exact(self.dim).zip(out.chunks_exact_mut(self.dim)).enumerate() {
            let row = first / self.dim + r;
            let at = (row / self.rows_per_table * self.rows + row % self.rows) * half;
            for j in 0..half {
                let (p, q) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
                let (c, s) = (cos[at + j], sin[at + j]);
                out[p] = x[p] * c - x[q] * s;
                out[q] = x[q] * c + x[p] * s;
            }
            out[self.rotated..].copy_from_slice(&x[self.rotated..]);
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.dim
    }
}

/// Rotation of `[.., rows, heads, dim]` by one table for all; `heads` is 1 where they are an outer axis.
struct FastRotate {
    x: Src,
    cos: Src,
    sin: Src,
    /// Positions.
    rows: usize,
    /// Vectors of a position that lie together.
    heads: usize,
    dim: usize,
    rotated: usize,
    interleaved: bool,
}

impl FastRotate {
    /// How many positions and heads of each the next kernel call takes, from vector `at` on, of `left`: whole tables, whole
    /// positions, or what is left of one; and the strides between them.
    fn block(&self, at: usize, left: usize) -> (usize, usize, usize, usize) {
        let (position, head) = (at / self.heads % self.rows, at % self.heads);
        if self.heads == 1 {
            match left / self.rows {
                whole if position == 0 && whole > 0 => (self.rows, whole, self.dim, self.rows * self.dim),
                _ => (left.min(self.rows - position), 1, self.dim, self.dim),
            }
        } else {
            match (left / self.heads).min(self.rows - position) {
                whole if head == 0 && whole > 0 => (whole, self.heads, self.heads * self.dim, self.dim),
                _ => (1, left.min(self.heads - head), self.heads * self.dim, self.dim),
            }
        }
    }
}

impl Fill for FastRotate {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        out.copy_from_slice(&cx.read::<f32>(&self.x)[first..first + out.len()]);
        let (cos, sin) = (Floats::f32(cx.read(&self.cos)), Floats::f32(cx.read(&self.sin)));
        let half = self.rotated / 2;
        let (mut at, mut rest) = (first / self.dim, out);
        while !rest.is_empty() {
            let (rows, heads, row_stride, head_stride) = self.block(at, rest.len() / self.dim);
            let (part, later) = rest.split_at_mut(rows * heads * self.dim);
            let position = at / self.heads % self.rows;
            let tables = position * half..(position + rows) * half;
            let shape = kernels::Rope {
                rows,
                heads,
                dim: self.dim,
                rotary: self.rotated,
                row_stride,
                head_stride,
                interleaved: self.interleaved,
                cos: cos.slice(tables.clone()),
                sin: sin.slice(tables),
            };
            kernels::rope(cx.isa, &shape, part);
            at += rows * heads;
            rest = later;
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.dim
    }
}
