//! GPT-2. Its linear layers are stored as `[inputs, outputs]`.

use candle_core::{D, Tensor};
use serde_json::{Value, json};

use super::{DEVIATION, Extents, look_up};
use crate::error::Result;
use crate::parameters::{Begin, Parameters, Weight};
use crate::text::END_ID;

const EPSILON: f64 = 1e-5;

pub(super) fn weights(e: &Extents) -> Vec<Weight> {
    let (width, normal, residual) = (e.width, Begin::Normal(DEVIATION), Begin::Normal(e.residual_deviation()));
    let mut list = vec![
        ("transformer.wte.weight".to_owned(), vec![e.vocab, width], normal),
        ("transformer.wpe.weight".to_owned(), vec![e.context, width], normal),
        ("transformer.ln_f.weight".to_owned(), vec![width], Begin::Ones),
        ("transformer.ln_f.bias".to_owned(), vec![width], Begin::Zeros),
    ];
    for layer in 0..e.layers {
        let mut add = |name: &str, dims: Vec<usize>, begin| {
            list.push((format!("transformer.h.{layer}.{name}"), dims, begin));
        };
        for norm in ["ln_1", "ln_2"] {
            add(&format!("{norm}.weight"), vec![width], Begin::Ones);
            add(&format!("{norm}.bias"), vec![width], Begin::Zeros);
        }
        for (linear, inputs, outputs, begin) in [
            ("attn.c_attn", width, 3 * width, normal),
            ("attn.c_proj", width, width, residual),
            ("mlp.c_fc", width, 4 * width, normal),
            ("mlp.c_proj", 4 * width, width, residual),
        ] {
            add(&format!("{linear}.weight"), vec![inputs, outputs], begin);
            add(&format!("{linear}.bias"), vec![outputs], Begin::Zeros);
        }
    }
    list
}

pub(super) fn config(e: &Extents) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_layer": e.layers,
        "n_embd": e.width, "n_head": e.heads, "n_positions": e.context, "vocab_size": e.vocab,
        "layer_norm_epsilon": EPSILON, "tie_word_embeddings": true, "bos_token_id": END_ID, "eos_token_id": END_ID,
        "torch_dtype": "float32",
    })
}

pub(super) fn logits(e: &Extents, p: &Parameters, ids: &Tensor) -> Result<Tensor> {
    let (n, rows) = ids.dims2()?;
    let table = p.get("transformer.wte.weight")?;
    let positions = p.get("transformer.wpe.weight")?.narrow(0, 0, rows)?;
    let x = look_up(table, ids)?.reshape((n, rows, e.width))?.broadcast_add(&positions)?;
    let mut x = x.reshape((n * rows, e.width))?;
    for layer in 0..e.layers {
        let at = |name: &str| format!("transformer.h.{layer}.{name}");
        let qkv = linear(p, &at("attn.c_attn"), &norm(p, &at("ln_1"), &x)?)?;
        let part = |i: usize| e.split_heads(&qkv.narrow(1, i * e.width, e.width)?.contiguous()?, n, e.heads);
        let attended = e.join_heads(&e.attend(&part(0)?, &part(1)?, &part(2)?)?)?;
        x = (x + linear(p, &at("attn.c_proj"), &attended)?)?;
        let hidden = linear(p, &at("mlp.c_fc"), &norm(p, &at("ln_2"), &x)?)?.gelu()?;
        x = (x + linear(p, &at("mlp.c_proj"), &hidden)?)?;
    }
    Ok(norm(p, "transformer.ln_f", &x)?.matmul(&table.t()?)?)
}

fn linear(p: &Parameters, name: &str, x: &Tensor) -> Result<Tensor> {
    Ok(x.matmul(p.get(&format!("{name}.weight"))?)?.broadcast_add(p.get(&format!("{name}.bias"))?)?)
}

fn norm(p: &Parameters, name: &str, x: &Tensor) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = (centred.sqr()?.mean_keepdim(D::Minus1)? + EPSILON)?.sqrt()?;
    let scaled = centred.broadcast_div(&deviation)?.broadcast_mul(p.get(&format!("{name}.weight"))?)?;
    Ok(scaled.broadcast_add(p.get(&format!("{name}.bias"))?)?)
}
