//! Tokenizers: without one, with too few or equal entries, and with lists that would take too long.

use super::*;
use GgufValue::{Bool, F32s, I32s, Texts, U32};

fn tokens(change: impl FnOnce(&mut Vec<String>)) -> GgufDraft {
    changed(|draft| {
        let list = draft.values.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens");
        let Some((_, Texts(tokens))) = list else { panic!("a list of tokens") };
        change(tokens);
    })
}

/// A SentencePiece tokenizer: entries of one letter, then as given.
fn sentence_piece(pieces: &[String]) -> GgufDraft {
    changed(|draft| {
        let mut tokens: Vec<String> = (0..320).map(|i| format!("{}", char::from_u32(0x4e00 + i).unwrap())).collect();
        let first = tokens.len() - pieces.len();
        tokens[first..].clone_from_slice(pieces);
        let scores = (0..320).map(|i| -(i as f32)).collect();
        draft
            .set("tokenizer.ggml.model", text("llama"))
            .set("tokenizer.ggml.tokens", Texts(tokens))
            .set("tokenizer.ggml.token_type", I32s(vec![1; 320]))
            .set("tokenizer.ggml.scores", F32s(scores))
            .remove("tokenizer.ggml.merges");
    })
}

/// Section 4: "is not a Hugging Face tokenizer" for a file that has none.
#[test]
fn a_file_without_a_tokenizer_says_so() {
    let without = changed(|d| d.values.retain(|(key, _)| !key.starts_with("tokenizer.")));
    let none = with("tokenizer.ggml.model", text("no_vocab"));
    for draft in [without, none] {
        assert_eq!(refused(&draft), ("`FILE` has no tokenizer".into(), Some(Hint::ConvertWithTokenizer)));
    }
    let found = message(&with("tokenizer.ggml.model", text("bert")));
    assert_eq!(found, "`tokenizer.ggml.model` in `FILE` is the string `bert`, expected `gpt2`, `llama` or `gemma4`");
    let found = message(&with("tokenizer.ggml.pre", text("gpt-9")));
    assert!(found.starts_with("`tokenizer.ggml.pre` in `FILE` is the string `gpt-9`, expected `llama-bpe`"), "{found}");
}

/// Names of the pre-tokenizers that the families' files have.
#[test]
fn pre_tokenizers_are_known_by_name() {
    for name in [
        "llama-bpe",
        "dbrx",
        "smaug-bpe",
        "qwen2",
        "stablelm2",
        "gpt-4o",
        "smollm",
        "refact",
        "olmo",
        "gpt-2",
        "default",
        "qwen35",
        "starcoder",
        "command-r",
        "deepseek-llm",
        "deepseek-coder",
        "falcon",
        "mpt",
    ] {
        assert_eq!(refusal_of(&with("tokenizer.ggml.pre", text(name)).bytes()), Ok(()), "{name}");
    }
}

/// A file that names Llama 3's pre-tokenizer by another of its names had no BOS.
#[test]
fn llama_3_begins_with_bos_by_any_of_its_names() {
    let bos = |name: &str| {
        let draft = changed(|d| {
            d.remove("tokenizer.ggml.add_bos_token").set("tokenizer.ggml.pre", text(name));
        });
        let model = model(&draft).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&model.files.read("tokenizer.json").unwrap()).unwrap();
        (model.spec.tokens.bos.is_some(), file["model"]["ignore_merges"] == true)
    };
    for name in ["llama-bpe", "llama3", "llama-v3"] {
        assert_eq!(bos(name), (true, true), "{name}");
    }
    for name in ["gpt-2", "dbrx", "smaug-bpe", "default"] {
        assert_eq!(bos(name), (false, false), "{name}");
    }
}

/// Files without a name, and those of the name `default`, were cut as GPT-2's are, without a word. llama.cpp cuts digits in threes, and
/// punctuation from what is around it.
#[test]
fn a_tokenizer_without_a_pre_tokenizer_is_cut_as_llama_cpp_cuts_it() {
    let entries = ["34", "\u{120}$", "'s", "12"].map(String::from);
    let merges = ["3 4", "\u{120} $", "' s", "1 2"].map(String::from);
    let draft = |name: Option<&str>| {
        let mut draft = tokens(|all| {
            let first = all.len() - entries.len();
            all[first..].clone_from_slice(&entries);
        });
        draft.set("tokenizer.ggml.merges", Texts(merges.to_vec()));
        match name {
            Some(name) => draft.set("tokenizer.ggml.pre", text(name)),
            None => draft.remove("tokenizer.ggml.pre"),
        };
        draft
    };
    let cut = |name: Option<&str>| {
        let model = model(&draft(name)).unwrap();
        let file = model.files.read("tokenizer.json").unwrap();
        let ids = genie_tokenizer::Tokenizer::from_bytes(&file).unwrap().encode_plain("it's $1234").unwrap();
        let notes = model.notes.iter().filter(|note| note.contains("`tokenizer.ggml.pre`")).count();
        let merged: Vec<u32> = ids.iter().map(|id| id.0).filter(|&id| id >= 316).collect();
        (merged, notes)
    };
    assert_eq!(cut(Some("gpt-2")), (vec![318, 317, 319, 316], 0));
    assert_eq!(cut(Some("default")), (vec![319], 0), "1 2 is in the first three digits");
    assert_eq!(cut(None), (vec![319], 1));
}

/// Keys that this kind of tokenizer does not look at were not looked at in any way.
#[test]
fn keys_without_effect_are_of_the_right_type_all_the_same() {
    let cases = [
        ("add_space_prefix", text("yes"), "is the string `yes`, expected true or false"),
        ("add_sep_token", U32(1), "is 1, expected true or false"),
        ("mask_token_id", text("5"), "is the string `5`, expected a whole number from 0 to 4294967295"),
        ("token_type_count", Bool(true), "is true, expected a whole number from 0 to 4294967295"),
        ("scores", text("none"), "is the string `none`, expected a list of numbers"),
    ];
    for (name, value, expected) in cases {
        let key = format!("tokenizer.ggml.{name}");
        assert_eq!(message(&with(&key, value)), format!("`{key}` in `FILE` {expected}"));
    }
    let mut sentences = sentence_piece(&[]);
    sentences.set("tokenizer.ggml.add_space_prefix", U32(0)).set("tokenizer.ggml.merges", U32(0));
    let found = message(&sentences);
    assert!(found.starts_with("`tokenizer.ggml.add_space_prefix` in `FILE` is "), "{found}");
    sentences.set("tokenizer.ggml.add_space_prefix", Bool(false));
    assert!(message(&sentences).starts_with("`tokenizer.ggml.merges` in `FILE` is "), "{}", message(&sentences));
    for (name, value) in [("add_space_prefix", Bool(false)), ("mask_token_id", GgufValue::I32(-1))] {
        model(&with(&format!("tokenizer.ggml.{name}"), value)).unwrap();
    }
}

/// Row 13: 1,000 tokens for 2,048 rows, or all tokens equal, compiled and did not run.
#[test]
fn entries_have_a_row_and_a_text_of_their_own() {
    for n in [0, 100, 319] {
        let found = message(&tokens(|t| t.truncate(n)));
        let expected =
            format!("is a list of {n} strings, expected one for each of the 320 rows of `token_embd.weight`");
        assert!(found.contains(&expected), "{found}");
    }
    let found = message(&tokens(|t| t.push("more".into())));
    assert!(found.contains("is a list of 321 strings, expected one for each of the 320 rows"), "{found}");
    let (found, hint) = refused(&tokens(|t| t.fill("same".into())));
    assert_eq!(found, "the tokenizer in `FILE` cannot be used: tokens 0 and 1 are both `same`");
    assert_eq!(hint, Some(Hint::ConvertWithTokenizer));
    let found = message(&tokens(|t| t[300] = t[290].clone()));
    assert!(found.contains("tokens 290 and 300 are both"), "{found}");
    let found = message(&tokens(|t| (t[318], t[319]) = ("<empty 319>".into(), String::new())));
    assert!(found.contains("token 319 is empty, and token 318 is `<empty 319>`"), "{found}");
    // Empty entries are given a name, as in llama.cpp. The last two are in no merge.
    let empty = tokens(|t| t[319].clear());
    assert!(message(&empty).contains("needs the token"), "its merge cannot be made");
    let empty = changed(|d| {
        let Some((_, Texts(t))) = d.values.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens") else { return };
        (t[318], t[319]) = (String::new(), String::new());
        d.set("tokenizer.ggml.merges", Texts(vec![]));
    });
    assert_eq!(refusal_of(&empty.bytes()), Ok(()));
}

#[test]
fn lists_that_contradict_each_other_are_refused() {
    let cases = [
        (
            with("tokenizer.ggml.token_type", I32s(vec![1; 5])),
            "is a list of 5 numbers, expected one for each of the 320 tokens",
        ),
        (with("tokenizer.ggml.token_type", I32s(vec![9; 320])), "token 0 is of type 9, expected 0 to 6"),
        (with("tokenizer.ggml.merges", Texts(vec!["a".into()])), "merge 0, `a`, has no second part"),
        (with("tokenizer.ggml.merges", Texts(vec!["a zzzz".into()])), "merge 0, `a zzzz`, needs the token `zzzz`"),
        (with("tokenizer.ggml.merges", Texts(vec!["0 1".into()])), "merge 0, `0 1`, needs the token `01`"),
        (
            with("tokenizer.ggml.eos_token_id", U32(320)),
            "`tokenizer.ggml.eos_token_id` in `FILE` is 320, expected an id below 320",
        ),
        (
            with("tokenizer.ggml.bos_token_id", U32(999)),
            "`tokenizer.ggml.bos_token_id` in `FILE` is 999, expected an id below 320",
        ),
        (with("tokenizer.ggml.padding_token_id", U32(999)), "`tokenizer.ggml.padding_token_id` in `FILE` is 999"),
    ];
    for (draft, expected) in cases {
        let found = message(&draft);
        assert!(found.contains(expected), "{found}");
    }
    // All ones stand for none.
    assert_eq!(refusal_of(&with("tokenizer.ggml.padding_token_id", U32(u32::MAX)).bytes()), Ok(()));
}

#[test]
fn sentence_piece_lists_are_checked() {
    assert_eq!(refusal_of(&sentence_piece(&[]).bytes()), Ok(()));
    type Change = fn(&mut GgufDraft);
    let cases: [(Change, &str); 4] = [
        (|d| drop(d.remove("tokenizer.ggml.scores").bytes()), "`FILE` has no key `tokenizer.ggml.scores`"),
        (
            |d| drop(d.set("tokenizer.ggml.scores", F32s(vec![0.0; 3])).bytes()),
            "`tokenizer.ggml.scores` in `FILE` is a list of 3 numbers, expected one for each of the 320 tokens",
        ),
        (|d| drop(d.set("tokenizer.ggml.scores", F32s(vec![f32::NAN; 320])).bytes()), "the score of token 0 is NaN"),
        (
            |d| drop(d.set("tokenizer.ggml.unknown_token_id", U32(320)).bytes()),
            "`tokenizer.ggml.unknown_token_id` in `FILE` is 320, expected an id below 320",
        ),
    ];
    for (change, expected) in cases {
        let mut draft = sentence_piece(&[]);
        change(&mut draft);
        let found = message(&draft);
        assert!(found.contains(expected), "{found}");
    }
}

/// Section 3: the work of a piece grew with the square of its length (200 kB: 7.7 s, 2 MB: about 13 min). A piece of text has a
/// bound; an entry that is found whole is not merged, and has the wider bound of all tokenizers.
#[test]
fn long_pieces_are_refused_or_left_whole() {
    let long = "a".repeat(8 << 20);
    let (found, _) = refused(&sentence_piece(std::slice::from_ref(&long)));
    assert!(found.contains("has 8388608 bytes, expected at most 512") && found.len() < 300, "{found}");
    let control = |piece: String| {
        let mut whole = sentence_piece(&[piece]);
        let mut kinds = vec![1; 320];
        kinds[319] = 3;
        whole.set("tokenizer.ggml.token_type", I32s(kinds));
        whole
    };
    assert_eq!(refusal_of(&control("a".repeat(1000)).bytes()), Ok(()));
    let found = message(&control(long));
    assert!(found.contains("8388608 bytes") && found.len() < 300, "{found}");
}

#[test]
fn a_begin_token_that_is_asked_for_must_be_there() {
    let mut draft = changed(|d| {
        d.remove("tokenizer.ggml.bos_token_id").set("tokenizer.ggml.add_bos_token", Bool(false));
    });
    assert_eq!(refusal_of(&draft.bytes()), Ok(()));
    draft.set("tokenizer.ggml.add_bos_token", Bool(true));
    assert_eq!(message(&draft), "`FILE` has no key `tokenizer.ggml.bos_token_id`");
}
