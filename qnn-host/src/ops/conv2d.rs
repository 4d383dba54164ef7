//! `Conv2d`: activation `[B, H, W, C]`, weights `[kh, kw, C / groups, O]`; pads are [[top, bottom], [left, right]].

use super::linear::{emit_linear, transposed};
use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Conv2d",
    inputs: (2, 3),
    outputs: (1, 1),
    params: &[
        req("stride", Ints),
        req("pad_amount", Ints),
        opt("group", UInt),
        opt("dilation", Ints),
        opt("reuse_sparse_indices", Bool),
    ],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] [F16 SFIX8 F32] [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16] [UFIX8 SFIX32] => [UFIX16 SFIX16]),
        row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] [UFIX8 SFIX32] => [UFIX8 SFIX8]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let params = [("stride", ints(&[1, 1])), ("pad_amount", table(2, &[0; 4]))];
    vec![sample("Conv2d", &params, &[(F, &[1, 1, 5, 8]), (F, &[1, 1, 8, 3])], &[(F, &[1, 1, 5, 3])])]
}

/// The window and how it moves, rows then columns.
#[derive(Clone, Copy, Debug)]
struct Window {
    stride: [usize; 2],
    dilation: [usize; 2],
    /// Zeros before and after.
    pad: [[usize; 2]; 2],
    groups: usize,
}

impl Window {
    fn of(call: &Call<'_>) -> Result<Self, Violation> {
        let range = |least: i64| least..=i64::from(u32::MAX);
        let pair = |name: &str| match call.ints(name)? {
            None => Ok([1; 2]),
            Some((_, &[a, b])) if range(1).contains(&a) && range(1).contains(&b) => Ok([a as usize, b as usize]),
            Some((_, other)) => Err(call.bad_param(name, "two values of at least 1".into(), format!("{other:?}"))),
        };
        let (stride, dilation) = (pair("stride")?, pair("dilation")?);
        let pad = match call.ints("pad_amount")? {
            Some(([2, 2], &[t, b, l, r])) if [t, b, l, r].iter().all(|v| range(0).contains(v)) => {
                [[t as usize, b as usize], [l as usize, r as usize]]
            }
            other => {
                let found = format!("{:?}", other.map(|(d, _)| d));
                return Err(call.bad_param("pad_amount", "[2, 2] values of at least 0".into(), found));
            }
        };
        let groups = usize::try_from(call.uint("group", 1)?).unwrap_or(usize::MAX);
        Ok(Self { stride, dilation, pad, groups })
    }

    /// Extent of the result along an axis; `None` when the kernel does not fit.
    fn extent(&self, axis: usize, size: usize, kernel: usize) -> Option<usize> {
        let reach = kernel.checked_sub(1)?.checked_mul(self.dilation[axis])?.checked_add(1)?;
        let padded = size.checked_add(self.pad[axis][0])?.checked_add(self.pad[axis][1])?;
        Some(padded.checked_sub(reach)? / self.stride[axis] + 1)
    }
}

fn shapes(call: &Call<'_>) -> Shapes {
    let (x, w) = (call.dims(0)?, call.dims(1)?);
    let (&[n, h, wide, c], &[kh, kw, ci, co]) = (x, w) else {
        return Err(call.bad_input(1, "rank 4 input and rank 4 weights".into(), format!("{x:?} and {w:?}")));
    };
    let group = call.uint("group", 1)?;
    if group == 0 || u64::from(ci).checked_mul(group) != Some(u64::from(c)) || u64::from(co) % group != 0 {
        let expected = format!("weights [kh, kw, {c} / group, a multiple of group]");
        return Err(call.bad_input(1, expected, format!("{w:?} with group {group}")));
    }
    common::bias(call, co)?;
    let window = Window::of(call)?;
    let extent = |axis: usize, size: u32, kernel: u32| {
        let fits = window.extent(axis, size as usize, kernel as usize).and_then(|n| u32::try_from(n).ok());
        fits.ok_or_else(|| call.bad_input(1, format!("a kernel that fits {x:?} with its pads"), format!("{w:?}")))
    };
    Ok(vec![vec![n, extent(0, h, kh)?, extent(1, wide, kw)?, co]])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, w, bias, output) = (l.real(0)?, l.real(1)?, l.optional_real(2), l.output(0));
    let window = Window::of(l)?;
    let [kh, kw, c, n] = l.shape(w)[..] else { unreachable!("the shape rule saw four axes") };
    let pointwise =
        [kh, kw, window.groups] == [1, 1, 1] && window.stride == [1, 1] && window.pad == [[0; 2]; 2] && c > 0;
    if pointwise && l.typed().constant(w).is_some() {
        let flat = l.typed_mut().add_view(w, &[c, n]);
        let weights = transposed(l, flat);
        emit_linear(l, x, weights, bias, output);
        return Ok(());
    }
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
    l.emit_as(Op::leaf(Conv2dOp { window, bias: bias.is_some() }), &inputs, output, Storage::F32);
    Ok(())
}

/// `x, weights, [bias]`.
#[derive(Debug)]
struct Conv2dOp {
    window: Window,
    bias: bool,
}

impl LeafOp for Conv2dOp {
    fn label(&self) -> &'static str {
        "Conv2d"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let (x, w) = (b.input(node, 0)?, b.input(node, 1)?);
        let four = |id| <[usize; 4]>::try_from(b.shape(id)).map_err(|_| b.broken(node, "needs four axes"));
        let (input, weights) = (four(x)?, four(w)?);
        let Window { stride, dilation, pad, groups } = self.window;
        let extent = |axis: usize| {
            let extent = self.window.extent(axis, input[axis + 1], weights[axis]);
            extent.ok_or_else(|| b.broken(node, "has a kernel that does not fit"))
        };
        let conv = Conv2d {
            x: b.src(x),
            w: b.src(w),
            bias: if self.bias { Some(b.src(b.input(node, 2)?)) } else { None },
            input,
            weights,
            out: [extent(0)?, extent(1)?],
            stride,
            before: [pad[0][0], pad[1][0]],
            dilation,
            groups,
        };
        b.each(node, conv)
    }
}

/// `x [B, H, W, C], w [kh, kw, C / groups, O]` -> `[B, H', W', O]`, in double precision.
struct Conv2d {
    x: Src,
    w: Src,
    bias: Option<Src>,
    input: [usize; 4],
    weights: [usize; 4],
    /// Rows and columns of the result.
    out: [usize; 2],
    stride: [usize; 2],
    /// Rows and columns of zeros before the input.
    before: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
}

impl Fill for Conv2d {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let (x, w) = (cx.read::<f32>(&self.x), cx.read::<f32>(&self.w));
        let bias = self.bias.as_ref().map(|s| cx.read::<f32>(s));
        let [_, h, wd, c] = self.input;
        let [kh, kw, cg, n] = self.weights;
        for (i, out) in out.iter_mut().enumerate() {
            let at = first + i;
            let (o, at) = (at % n, at / n);
            let (col, at) = (at % self.out[1], at / self.out[1]);
            let (row, batch) = (at % self.out[0], at / self.out[0]);
            let group = o / (n / self.groups);
            let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
            for (r, s) in (0..kh).flat_map(|r| (0..kw).map(move |s| (r, s))) {
                let y = (row * self.stride[0] + r * self.dilation[0]).wrapping_sub(self.before[0]);
                let z = (col * self.stride[1] + s * self.dilation[1]).wrapping_sub(self.before[1]);
                if y >= h || z >= wd {
                    continue;
                }
                let pixel = ((batch * h + y) * wd + z) * c + group * cg;
                let kernel = (r * kw + s) * cg * n + o;
                for j in 0..cg {
                    sum += f64::from(x[pixel + j]) * f64::from(w[kernel + j * n]);
                }
            }
            *out = sum as f32;
        }
        Ok(())
    }
}
