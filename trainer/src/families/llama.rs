//! Llama. Its linear layers are stored as `[outputs, inputs]`; rotary positions turn the two halves of a head against each other.

use candle_core::{D, Device, Tensor};
use serde_json::{Value, json};

use super::{DEVIATION, Extents, look_up};
use crate::error::Result;
use crate::parameters::{Begin, Parameters, Weight};
use crate::text::END_ID;

const EPSILON: f64 = 1e-5;
const THETA: f64 = 10_000.0;

impl Extents {
    /// Width of the feed-forward part: 8/3 of the hidden row's, in steps of 32.
    fn ffn(&self) -> usize {
        (8 * self.width).div_ceil(3).next_multiple_of(32)
    }
}

pub(super) fn weights(e: &Extents) -> Vec<Weight> {
    let (normal, residual) = (Begin::Normal(DEVIATION), Begin::Normal(e.residual_deviation()));
    let mut list = vec![
        ("model.embed_tokens.weight".to_owned(), vec![e.vocab, e.width], normal),
        ("model.norm.weight".to_owned(), vec![e.width], Begin::Ones),
    ];
    let kv = e.kv_heads * e.head_dim();
    for layer in 0..e.layers {
        for (name, dims, begin) in [
            ("input_layernorm", vec![e.width], Begin::Ones),
            ("self_attn.q_proj", vec![e.width, e.width], normal),
            ("self_attn.k_proj", vec![kv, e.width], normal),
            ("self_attn.v_proj", vec![kv, e.width], normal),
            ("self_attn.o_proj", vec![e.width, e.width], residual),
            ("post_attention_layernorm", vec![e.width], Begin::Ones),
            ("mlp.gate_proj", vec![e.ffn(), e.width], normal),
            ("mlp.up_proj", vec![e.ffn(), e.width], normal),
            ("mlp.down_proj", vec![e.width, e.ffn()], residual),
        ] {
            list.push((format!("model.layers.{layer}.{name}.weight"), dims, begin));
        }
    }
    list
}

pub(super) fn config(e: &Extents) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": e.width,
        "num_hidden_layers": e.layers, "num_attention_heads": e.heads, "num_key_value_heads": e.kv_heads,
        "head_dim": e.head_dim(), "intermediate_size": e.ffn(), "vocab_size": e.vocab,
        "max_position_embeddings": e.context, "rope_theta": THETA, "rms_norm_eps": EPSILON, "tie_word_embeddings": true,
        "attention_bias": false, "mlp_bias": false, "bos_token_id": END_ID, "eos_token_id": END_ID, "torch_dtype": "float32",
    })
}

pub(super) fn logits(e: &Extents, p: &Parameters, ids: &Tensor) -> Result<Tensor> {
    let (n, rows) = ids.dims2()?;
    let table = p.get("model.embed_tokens.weight")?;
    let mut x = look_up(table, ids)?;
    let turns = turns(rows, e.head_dim())?;
    for layer in 0..e.layers {
        let at = |name: &str| format!("model.layers.{layer}.{name}.weight");
        let linear = |name: &str, x: &Tensor| -> Result<Tensor> { Ok(x.matmul(&p.get(&at(name))?.t()?)?) };
        let h = norm(p.get(&at("input_layernorm"))?, &x)?;
        let heads = |name: &str, heads: usize| e.split_heads(&linear(name, &h)?, n, heads);
        let q = turn(&heads("self_attn.q_proj", e.heads)?, &turns)?;
        let k = repeat(&turn(&heads("self_attn.k_proj", e.kv_heads)?, &turns)?, e.heads / e.kv_heads)?;
        let v = repeat(&heads("self_attn.v_proj", e.kv_heads)?, e.heads / e.kv_heads)?;
        x = (x + linear("self_attn.o_proj", &e.join_heads(&e.attend(&q, &k, &v)?)?)?)?;
        let h = norm(p.get(&at("post_attention_layernorm"))?, &x)?;
        let gated = (linear("mlp.gate_proj", &h)?.silu()? * linear("mlp.up_proj", &h)?)?;
        x = (x + linear("mlp.down_proj", &gated)?)?;
    }
    Ok(norm(p.get("model.norm.weight")?, &x)?.matmul(&table.t()?)?)
}

fn norm(weight: &Tensor, x: &Tensor) -> Result<Tensor> {
    let size = (x.sqr()?.mean_keepdim(D::Minus1)? + EPSILON)?.sqrt()?;
    Ok(x.broadcast_div(&size)?.broadcast_mul(weight)?)
}

/// Cosines and sines `[rows, head_dim / 2]`.
fn turns(rows: usize, head_dim: usize) -> Result<[Tensor; 2]> {
    let half = head_dim / 2;
    let angle = |i: usize| (i / half) as f64 * THETA.powf(-((i % half) as f64) / half as f64);
    let table = |of: fn(f64) -> f64| {
        let values: Vec<f32> = (0..rows * half).map(|i| of(angle(i)) as f32).collect();
        Tensor::from_vec(values, (rows, half), &Device::Cpu)
    };
    Ok([table(f64::cos)?, table(f64::sin)?])
}

fn turn(x: &Tensor, [cos, sin]: &[Tensor; 2]) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let (low, high) = (x.narrow(3, 0, half)?.contiguous()?, x.narrow(3, half, half)?.contiguous()?);
    let first = (low.broadcast_mul(cos)? - high.broadcast_mul(sin)?)?;
    let second = (high.broadcast_mul(cos)? + low.broadcast_mul(sin)?)?;
    Ok(Tensor::cat(&[first, second], 3)?)
}

/// Each head of keys or values for the `times` heads that share it.
fn repeat(x: &Tensor, times: usize) -> Result<Tensor> {
    if times == 1 {
        return Ok(x.clone());
    }
    let (n, heads, rows, dim) = x.dims4()?;
    let wide = x.unsqueeze(2)?.expand((n, heads, times, rows, dim))?.contiguous()?;
    Ok(wide.reshape((n, heads * times, rows, dim))?)
}
