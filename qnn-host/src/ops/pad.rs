//! `Pad`: a border around a tensor, of a constant or of what is inside.

use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Pad",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[req("scheme", UInt), req("pad_amount", Ints), opt("pad_constant_value", Scalar)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16] => [UFIX16]),
        row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let params = [("scheme", Param::UInt(0)), ("pad_amount", table(2, &[1, 2]))];
    vec![sample("Pad", &params, &[(F, &[3])], &[(F, &[6])])]
}

/// What fills the border.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PadScheme {
    /// A number (for integers: its value).
    Constant(f64),
    /// The border mirrored, repeating the edge.
    Symmetric,
    /// The border mirrored, without repeating the edge.
    Reflect,
    /// The edge.
    Edge,
}

impl PadScheme {
    fn of(call: &Call<'_>) -> Result<Self, Violation> {
        use crate::ir::Param;
        let value = match call.node.param("pad_constant_value") {
            Some(&Param::F32(value)) => f64::from(value),
            Some(&Param::Int(value)) => value as f64,
            Some(&Param::UInt(value)) => value as f64,
            Some(&Param::Bool(value)) => f64::from(value),
            _ => 0.0,
        };
        match call.uint("scheme", 0)? {
            0 => Ok(Self::Constant(value)),
            1 => Ok(Self::Symmetric),
            2 => Ok(Self::Reflect),
            3 => Ok(Self::Edge),
            other => Err(call.bad_param("scheme", "0 to 3".into(), other.to_string())),
        }
    }
}

/// `pad_amount` is [rank, 2]: before, after.
fn shapes(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let (shape, amounts) = call.ints("pad_amount")?.unwrap_or_default();
    if shape != [dims.len() as u32, 2] || amounts.len() != dims.len() * 2 {
        return Err(call.bad_param("pad_amount", format!("dims [{}, 2]", dims.len()), format!("{shape:?}")));
    }
    let scheme = PadScheme::of(call)?;
    let mut out = Vec::with_capacity(dims.len());
    for (&extent, pair) in dims.iter().zip(amounts.chunks_exact(2)) {
        // Mirrors have only so much to show.
        let most = match scheme {
            PadScheme::Symmetric => i64::from(extent),
            PadScheme::Reflect => i64::from(extent) - 1,
            PadScheme::Edge if extent == 0 => 0,
            PadScheme::Constant(_) | PadScheme::Edge => i64::from(u32::MAX),
        };
        let sum = pair.iter().all(|&v| (0..=most).contains(&v)).then(|| i64::from(extent) + pair[0] + pair[1]);
        let Some(padded) = sum.and_then(|n| u32::try_from(n).ok()) else {
            let expected = format!("0 to {most} on an axis of {extent}");
            return Err(call.bad_param("pad_amount", expected, format!("{pair:?}")));
        };
        out.push(padded);
    }
    Ok(vec![out])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, scheme) = (l.input(0)?, PadScheme::of(l)?);
    let before = l.sizes("pad_amount")?.into_iter().step_by(2).collect();
    let storage = l.storage(input);
    l.emit_as(Op::leaf(PadOp { before, scheme }), &[input], l.output(0), storage);
    Ok(())
}

#[derive(Debug)]
struct PadOp {
    before: Vec<usize>,
    scheme: PadScheme,
}

impl LeafOp for PadOp {
    fn label(&self) -> &'static str {
        "Pad"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let id = b.input(node, 0)?;
        let fill = match self.scheme {
            PadScheme::Constant(value) if b.is_real(id) => (value as f32).to_bits(),
            PadScheme::Constant(value) => (value as i32).cast_unsigned(),
            _ => 0,
        };
        let (shape, padded) = (b.shape(id).to_vec(), b.shape(b.output(node)?).to_vec());
        let (before, scheme) = (self.before.clone(), self.scheme);
        b.each(node, Pad { x: b.src(id), shape, padded, before, scheme, fill })
    }
}

/// A border around a tensor.
struct Pad {
    x: Src,
    shape: Vec<usize>,
    padded: Vec<usize>,
    before: Vec<usize>,
    scheme: PadScheme,
    /// The constant, as the storage type's bits.
    fill: u32,
}

impl Fill for Pad {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = cx.read::<u32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let (mut rest, mut from, mut stride, mut inside) = (first + i, 0, 1, true);
            for axis in (0..self.shape.len()).rev() {
                let place = (rest % self.padded[axis]) as isize - self.before[axis] as isize;
                rest /= self.padded[axis];
                match mirrored(place, self.shape[axis] as isize, self.scheme) {
                    Some(place) => from += place * stride,
                    None => inside = false,
                }
                stride *= self.shape[axis];
            }
            *out = if inside { x[from] } else { self.fill };
        }
        Ok(())
    }
}

/// The element that a place along an axis of `n` shows, if any.
fn mirrored(place: isize, n: isize, scheme: PadScheme) -> Option<usize> {
    let place = match scheme {
        PadScheme::Constant(_) => place,
        PadScheme::Edge => place.clamp(0, n - 1),
        PadScheme::Reflect if place < 0 => -place,
        PadScheme::Reflect if place >= n => 2 * (n - 1) - place,
        PadScheme::Symmetric if place < 0 => -place - 1,
        PadScheme::Symmetric if place >= n => 2 * n - 1 - place,
        _ => place,
    };
    (0..n).contains(&place).then_some(place as usize)
}
