#!/usr/bin/env python3
"""Train the demo model: a small Llama on Shakespeare, from one text file to a Hugging Face folder.

    python3 -m venv venv && venv/bin/pip install jax==0.4.38 optax tokenizers safetensors numpy
    venv/bin/python train.py --text tinyshakespeare.txt --out .

Writes tokenizer.json, config.json, generation_config.json, model.safetensors (float16) and
train_log.json (losses, times, machine). CPU only; about half an hour on two cores.
"""
import argparse
import json
import math
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

jax.config.update("jax_default_prng_impl", "rbg")  # dropout masks cost a third of the step otherwise

CONFIG = dict(
    architectures=["LlamaForCausalLM"],
    model_type="llama",
    vocab_size=2048,
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=6,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_scaling=None,
    hidden_act="silu",
    attention_bias=False,
    mlp_bias=False,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=1,
    torch_dtype="float16",
)
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"


def train_tokenizer(text, path):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"],
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(text.splitlines(keepends=True), trainer)
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.save(str(path))
    return tok


def init_params(rng):
    c = CONFIG
    d, ff, hd = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    out_scale = 1.0 / math.sqrt(2 * c["num_hidden_layers"])

    def mat(rows, cols, scale=1.0):  # [out, in], as Hugging Face stores it
        return (rng.standard_normal((rows, cols)) * 0.02 * scale * math.sqrt(768 / cols) ** 0.5).astype(np.float32)

    params = {"model.embed_tokens.weight": mat(c["vocab_size"], d), "model.norm.weight": np.ones(d, np.float32)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        params |= {
            p + "input_layernorm.weight": np.ones(d, np.float32),
            p + "post_attention_layernorm.weight": np.ones(d, np.float32),
            p + "self_attn.q_proj.weight": mat(q, d),
            p + "self_attn.k_proj.weight": mat(kv, d),
            p + "self_attn.v_proj.weight": mat(kv, d),
            p + "self_attn.o_proj.weight": mat(d, q, out_scale),
            p + "mlp.gate_proj.weight": mat(ff, d),
            p + "mlp.up_proj.weight": mat(ff, d),
            p + "mlp.down_proj.weight": mat(d, ff, out_scale),
        }
    return params


def rms_norm(x, w):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + CONFIG["rms_norm_eps"]) * w


def rope(x, cos, sin):  # x [B, S, H, D], half-split form
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def forward(params, ids, key=None, dropout=0.0):
    c = CONFIG
    hd, heads, kvh = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    b, s = ids.shape
    angle = jnp.arange(s)[:, None] * c["rope_theta"] ** (-jnp.arange(hd // 2) / (hd // 2))
    cos, sin = jnp.cos(angle)[None, :, None, :], jnp.sin(angle)[None, :, None, :]
    mask = jnp.where(jnp.tril(jnp.ones((s, s), bool)), 0.0, -1e9)

    def drop(x, n):
        if key is None or dropout == 0.0:
            return x
        keep = jax.random.bernoulli(jax.random.fold_in(key, n), 1 - dropout, x.shape)
        return jnp.where(keep, x / (1 - dropout), 0.0)

    x = drop(params["model.embed_tokens.weight"][ids], 0)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms_norm(x, params[p + "input_layernorm.weight"])
        q = rope((h @ params[p + "self_attn.q_proj.weight"].T).reshape(b, s, heads, hd), cos, sin)
        k = rope((h @ params[p + "self_attn.k_proj.weight"].T).reshape(b, s, kvh, hd), cos, sin)
        v = (h @ params[p + "self_attn.v_proj.weight"].T).reshape(b, s, kvh, hd)
        k, v = jnp.repeat(k, heads // kvh, 2), jnp.repeat(v, heads // kvh, 2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(hd) + mask
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(b, s, heads * hd)
        x = x + drop(mixed @ params[p + "self_attn.o_proj.weight"].T, 2 * i + 1)
        h = rms_norm(x, params[p + "post_attention_layernorm.weight"])
        gated = jax.nn.silu(h @ params[p + "mlp.gate_proj.weight"].T) * (h @ params[p + "mlp.up_proj.weight"].T)
        x = x + drop(gated @ params[p + "mlp.down_proj.weight"].T, 2 * i + 2)
    return rms_norm(x, params["model.norm.weight"]) @ params["model.embed_tokens.weight"].T


def loss_fn(params, ids, key=None, dropout=0.0):
    logits = forward(params, ids[:, :-1], key, dropout)
    return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--text", type=Path, required=True)
    ap.add_argument("--out", type=Path, default=Path("."))
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--seq", type=int, default=512)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()

    text = args.text.read_text()
    cut = text.index("\n\n", int(len(text) * 0.95)) + 2  # the last 5 % is held out
    tok = train_tokenizer(text[:cut], args.out / "tokenizer.json")
    train, held = (np.array(tok.encode(t).ids, np.int32) for t in (text[:cut], text[cut:]))
    blank = set(tok.encode("\n\n").ids)
    newline = tok.encode("\n").ids[0]
    starts = [i + 2 for i in range(len(train) - args.seq - 2) if (train[i] == newline and train[i + 1] == newline)]
    starts = np.array(starts or [i + 1 for i in range(len(train) - args.seq - 2) if train[i] in blank], np.int32)
    print(f"train {len(train)} tokens, held out {len(held)}, {len(text) / (len(train) + len(held)):.2f} characters a token, {len(starts)} speech starts")

    rng = np.random.default_rng(args.seed)
    params = init_params(rng)
    print(f"{sum(p.size for p in params.values()) / 1e6:.2f} M parameters")
    schedule = optax.warmup_cosine_decay_schedule(0.0, args.lr, 60, args.steps, args.lr * 0.02)
    decay = {k: v.ndim == 2 and "embed" not in k for k, v in params.items()}
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.1, mask=decay))
    state = opt.init(params)

    @jax.jit
    def step(params, state, ids, key):
        loss, grads = jax.value_and_grad(loss_fn)(params, ids, key, args.dropout)
        updates, state = opt.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    held_loss = jax.jit(loss_fn)
    n = len(held) // args.seq
    held_ids = np.concatenate([np.zeros((n, 1), np.int32), held[: n * args.seq].reshape(n, args.seq)], 1)

    def evaluate():
        return float(np.mean([held_loss(params, held_ids[i : i + 4]) for i in range(0, n - n % 4, 4)]))

    def save_weights():
        save_file({k: np.asarray(v, np.float16) for k, v in params.items()}, str(args.out / "model.safetensors"), {"format": "pt"})

    def save_log(log):
        (args.out / "train_log.json").write_text(json.dumps(log, indent=1) + "\n")

    (args.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (args.out / "generation_config.json").write_text(json.dumps({"bos_token_id": 0, "eos_token_id": 1, "temperature": 0.8, "top_k": 40, "top_p": 0.95}, indent=2) + "\n")
    log, running, begin, best = [], None, time.time(), math.inf
    key = jax.random.PRNGKey(args.seed)
    for it in range(1, args.steps + 1):
        at = rng.choice(starts, args.batch)
        ids = np.stack([np.concatenate([[0], train[a : a + args.seq]]) for a in at]).astype(np.int32)
        params, state, loss = step(params, state, ids, jax.random.fold_in(key, it))
        running = float(loss) if running is None else 0.97 * running + 0.03 * float(loss)
        if it % 20 == 0:
            print(f"step {it} train {running:.4f} {time.time() - begin:.0f} s", flush=True)
        if it % 150 == 0 or it == args.steps:
            held_now = evaluate()
            log.append(dict(step=it, tokens=it * args.batch * args.seq, train_loss=round(running, 4), held_out_loss=round(held_now, 4), seconds=round(time.time() - begin)))
            print(json.dumps(log[-1]), flush=True)
            if held_now < best:
                best = held_now
                save_weights()
            save_log(dict(machine=f"{platform.machine()} {platform.system()}", command=vars(args) | {"text": args.text.name, "out": "."}, jax=jax.__version__, log=log, kept="the step with the lowest held-out loss"))


if __name__ == "__main__":
    main()
