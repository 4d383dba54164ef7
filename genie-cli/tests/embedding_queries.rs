//! Prompts of embeddings: rows of the model's own table give what its tokens give, from a file, in every type, and with a program's
//! function in place of the table.

use std::path::Path;

use open_genie::{EmbeddingCallback, Options, Prompt, Session, TokenId};
use serde_json::{Value, json};
use testkit::{Decoder, Form, Size};

use crate::program::genie;

const TOKENS: [usize; 5] = [3, 5, 7, 40, 21];

fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn row(decoder: &Decoder, token: usize) -> &[f32] {
    let hidden = decoder.size.hidden;
    &decoder.embed.data[token * hidden..(token + 1) * hidden]
}

/// A bundle that takes embeddings, with its table in float32; `edit` changes the dialog's config.
fn bundle(edit: impl FnOnce(&mut Value)) -> (tempfile::TempDir, Decoder) {
    let folder = tempfile::tempdir().unwrap();
    let decoder = Decoder::random(Size::TINY, 1, |x| x);
    let form = Form { embeds: true, ..Form::new(&[(1, 32), (8, 32)]) };
    form.save(&decoder, &testkit::linked_backend(), folder.path());
    std::fs::write(folder.path().join("lut.raw"), bytes(decoder.embed.data.iter().copied())).unwrap();
    let vocab: serde_json::Map<String, Value> = (0..Size::TINY.vocab).map(|id| (format!("t{id}"), json!(id))).collect();
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"}});
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let mut config = json!({"dialog": {
        "version": 1, "type": "basic",
        "context": {"version": 1, "size": 32, "n-vocab": 56, "bos-token": -1, "eos-token": -1},
        "sampler": {"version": 1, "top-k": 1},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {"version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {"version": 1, "use-mmap": true,
                "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false, "cpu-mask": "0xe0", "kv-dim": 8}},
            "model": {"version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": ["part1.bin"]},
                "positional-encoding": {"type": "rope", "rope-dim": 4, "rope-theta": 10000}}},
        "embedding": {"version": 1, "type": "lut", "size": 32, "lut-path": "lut.raw", "datatype": "float32"},
    }});
    edit(&mut config["dialog"]);
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    (folder, decoder)
}

fn run(folder: &Path, more: &[&str]) -> Value {
    let output = genie(folder, &[&["run", "-c", ".", "--json", "-n", "9"], more].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{more:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn by_tokens(folder: &Path) -> Value {
    let list = TOKENS.map(|token| token.to_string()).join(",");
    run(folder, &["--prompt-tokens", &list])["tokens"].clone()
}

#[test]
fn rows_of_the_table_are_its_tokens() {
    let (folder, decoder) = bundle(|_| ());
    let expected = by_tokens(folder.path());
    assert_eq!(expected.as_array().unwrap().len(), 9);
    let rows = TOKENS.iter().flat_map(|token| row(&decoder, *token).to_vec());
    std::fs::write(folder.path().join("rows, of 5.raw"), bytes(rows)).unwrap();
    for file in ["rows, of 5.raw", "rows, of 5.raw,float32", "rows, of 5.raw,native"] {
        assert_eq!(run(folder.path(), &["--embedding-file", file])["tokens"], expected, "{file}");
    }
    // A draft model has no rows of them, and offers nothing before tokens follow.
    let drafted = run(folder.path(), &["--embedding-file", "rows, of 5.raw", "--spec", "draft:."]);
    assert_eq!(drafted["tokens"], expected);
    // Restored, their ids stand for nothing that could be looked ahead from.
    run(folder.path(), &["--embedding-file", "rows, of 5.raw", "-n", "2", "--save", "saved"]);
    let go_on = |more: &[&str]| run(folder.path(), &[&["--restore", "saved", "--prompt-tokens", "3,4"], more].concat());
    assert_eq!(go_on(&["--spec", "lade:3,3,3"])["tokens"], go_on(&[])["tokens"]);
    // Steps of 16 bits: the rows differ from the table by less than 2^-13.
    let codes = TOKENS.iter().flat_map(|token| row(&decoder, *token).to_vec());
    let codes: Vec<u8> = codes.flat_map(|x| ((x * 8192.0).round() as i16).to_le_bytes()).collect();
    std::fs::write(folder.path().join("codes.raw"), codes).unwrap();
    let found = run(folder.path(), &["--embedding-file", "codes.raw,sfixed16,0.0001220703125,0"]);
    assert_eq!(found["tokens"], expected);
}

#[test]
fn a_program_gives_rows_and_the_function_behind_them() {
    let (folder, decoder) = bundle(|dialog| {
        dialog["embedding"] = json!({"version": 1, "type": "callback", "size": 32});
    });
    let (with_table, _) = bundle(|_| ());
    let expected = by_tokens(with_table.path());
    let rows: Vec<f32> = TOKENS.iter().flat_map(|token| row(&decoder, *token).to_vec()).collect();
    let table = decoder.clone();
    let callback = EmbeddingCallback::new(move |token, to| to.copy_from_slice(row(&table, token.0 as usize)));
    let mut session = Session::open(folder.path(), &Options::new().token_embedding(callback)).unwrap();
    assert_eq!(session.embedding_row_width(), Some(32));
    session.set_max_tokens(Some(9));
    let reply = session.generate(Prompt::Embeddings(&rows)).into_reply().unwrap();
    assert_eq!(json!(reply.tokens.iter().map(|t| t.0).collect::<Vec<_>>()), expected);
    // A second turn: the last token goes in by the function, then the rows.
    let again = session.generate(Prompt::Embeddings(&rows[..32])).into_reply().unwrap();
    assert_eq!(again.input.len(), 2);
    let mut by_token = Session::open(with_table.path(), &Options::new()).unwrap();
    by_token.set_max_tokens(Some(9));
    for turn in [&TOKENS[..], &TOKENS[..1]] {
        let tokens: Vec<TokenId> = turn.iter().map(|token| TokenId(*token as u32)).collect();
        let reply = by_token.generate(&tokens[..]).into_reply().unwrap();
        if turn.len() == 1 {
            assert_eq!(reply.tokens, again.tokens);
        }
    }
    let refused = genie(folder.path(), &["run", "-c", ".", "--prompt-tokens", "3"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("takes `inputs_embeds` of width 32, but no embedding table is configured"), "{said}");
}

#[test]
fn tables_of_few_bits_are_their_numbers() {
    // The same table twice: codes of 4 bits with a scale for each column, and the numbers that they stand for.
    let (folder, decoder) = bundle(|dialog| {
        dialog["embedding"] = json!({"version": 1, "size": 32, "lut-path": "codes.raw", "datatype": "ufixed4",
            "quant-param": {"type": "pcq", "scale": {"path": "scales.raw"}, "offset": -8}});
    });
    let hidden = decoder.size.hidden;
    let largest =
        |column: usize| decoder.embed.data.iter().skip(column).step_by(hidden).fold(0f32, |m, x| m.max(x.abs()));
    let scales: Vec<f32> = (0..hidden).map(|column| largest(column).max(1e-3) / 7.0).collect();
    let code = |i: usize| ((decoder.embed.data[i] / scales[i % hidden]).round() as i32 + 8).clamp(0, 15) as u8;
    let n = decoder.embed.data.len();
    let packed: Vec<u8> = (0..n / 2).map(|i| code(2 * i) | code(2 * i + 1) << 4).collect();
    std::fs::write(folder.path().join("codes.raw"), packed).unwrap();
    std::fs::write(folder.path().join("scales.raw"), bytes(scales.iter().copied())).unwrap();
    let found = by_tokens(folder.path());
    let numbers = (0..n).map(|i| f32::from(code(i)) * scales[i % hidden] - 8.0 * scales[i % hidden]);
    let (plain, _) = bundle(|_| ());
    std::fs::write(plain.path().join("lut.raw"), bytes(numbers)).unwrap();
    assert_eq!(found, by_tokens(plain.path()));
}

#[test]
fn what_is_no_prompt_of_embeddings_is_refused() {
    let (folder, _) = bundle(|_| ());
    std::fs::write(folder.path().join("short.raw"), bytes([1.0; 31])).unwrap();
    let cases = [
        (&["--embedding-file", "short.raw"][..], "rows of embeddings: expected whole rows of 32 numbers, at least one"),
        (&["--embedding-file", "gone.raw"], "cannot read the embeddings `gone.raw`"),
        (&["--embedding-file", "short.raw,ufixed8"], "`ufixed8` needs a scale and an offset"),
    ];
    for (args, expected) in cases {
        let output = genie(folder.path(), &[&["run", "-c", "."], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}
