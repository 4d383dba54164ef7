//! Every way in which a `tokenizer.json` can harm, one case each: what is refused, and in which words.
//! Rows 12 and 13 of the list of failures.

mod forms;

use forms::{added, byte_fallback, byte_level_bpe, unigram, word_level, word_piece};
use genie_tokenizer::{Oddity, Tokenizer, TokenizerError};
use serde_json::{Value, json};

struct Case {
    name: &'static str,
    form: fn() -> Value,
    damage: fn(&mut Value),
    /// What the error says after the file's name.
    says: &'static str,
}

const CASES: &[Case] = &[
    // Row 12: panic, abort, a panic's text on stderr.
    Case {
        name: "row 12: pieces of no characters",
        form: word_level,
        damage: |t| t["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0}),
        says: "`/pre_tokenizer/length`: found 0, expected a whole number, 1 to 16777216",
    },
    Case {
        name: "row 12: a character map of 12 bytes that promises 8 GB",
        form: unigram,
        damage: |t| {
            t["normalizer"]["normalizers"][0]["precompiled_charsmap"] =
                json!(base64::encode([0, 0, 0, 0xff, 1, 2, 3, 4, 5, 6, 7, 8]));
        },
        says: "`/normalizer/normalizers/0/precompiled_charsmap`: found a trie of 4278190080 bytes in a map of 12, \
               expected a trie that lies inside the map",
    },
    Case {
        name: "row 12: a character map that leads outside",
        form: unigram,
        damage: |t| {
            let mut map = vec![8, 0, 0, 0];
            map.extend_from_slice(&[0xff; 8]);
            t["normalizer"]["normalizers"][0]["precompiled_charsmap"] = json!(base64::encode(map));
        },
        says: "precompiled_charsmap`: found a trie that goes to unit",
    },
    Case {
        name: "row 12: no base64",
        form: unigram,
        damage: |t| t["normalizer"]["normalizers"][0]["precompiled_charsmap"] = json!("%%%"),
        says: "precompiled_charsmap`: found no base64",
    },
    Case {
        name: "row 12: a prefix that ends inside a character",
        form: byte_fallback,
        damage: |t| {
            t["model"]["continuing_subword_prefix"] = json!("#");
            t["model"]["vocab"]["\u{e9}x"] = json!(266);
            t["model"]["merges"] = json!([["a", "\u{e9}x"]]);
        },
        says: "`/model/merges/0`: found `a` and `\u{e9}x`, expected a second part that begins with the prefix `#`",
    },
    Case {
        name: "row 12: the prefix \u{e9}",
        form: byte_fallback,
        damage: |t| t["model"]["continuing_subword_prefix"] = json!("\u{e9}"),
        says: "`/model/merges/0`: found `a` and `b`, expected a second part that begins with the prefix `\u{e9}`",
    },
    // Row 13: what `compile` took and `run` refused, or both took.
    Case {
        name: "row 13: an unknown normalizer",
        form: word_piece,
        damage: |t| t["normalizer"]["type"] = json!("Spellcheck"),
        says: "`/normalizer/type`: found Spellcheck, expected Sequence, BertNormalizer, Strip",
    },
    Case {
        name: "row 13: an unknown pre-tokenizer",
        form: word_level,
        damage: |t| t["pre_tokenizer"]["pretokenizers"][2]["type"] = json!("Jieba"),
        says: "`/pre_tokenizer/pretokenizers/2/type`: found Jieba, expected Sequence, BertPreTokenizer",
    },
    Case {
        name: "row 13: an unknown model",
        form: word_level,
        damage: |t| t["model"]["type"] = json!("Tiktoken"),
        says: "`/model/type`: found Tiktoken, expected one of BPE, WordPiece, WordLevel, Unigram",
    },
    Case {
        name: "row 13: an unknown decoder",
        form: word_piece,
        damage: |t| t["decoder"]["type"] = json!("Whisper"),
        says: "`/decoder/type`: found Whisper, expected Sequence, ByteLevel",
    },
    Case {
        name: "row 13: an unknown post-processor",
        form: word_piece,
        damage: |t| t["post_processor"] = json!({"type": "Chat"}),
        says: "`/post_processor/type`: found Chat, expected Sequence, ByteLevel, BertProcessing",
    },
    Case {
        name: "row 13: a part without a type",
        form: word_piece,
        damage: |t| t["normalizer"] = json!({"lowercase": true}),
        says: "`/normalizer`: found no `type`, expected the `type` of a normalizer",
    },
    Case {
        name: "row 13: a bad regular expression",
        form: word_level,
        damage: |t| t["pre_tokenizer"]["pretokenizers"][1]["pattern"] = json!({"Regex": "(a"}),
        says: "`/pre_tokenizer`: Parsing error",
    },
    Case {
        name: "row 13: merges with unknown parts",
        form: byte_fallback,
        damage: |t| t["model"]["merges"] = json!([["a", "b"], ["a", "zz"]]),
        says: "`/model/merges/1`: found `a` and `zz`, of which `zz` is no entry, expected two entries that make an entry",
    },
    Case {
        name: "row 13: a merge that makes no entry",
        form: byte_fallback,
        damage: |t| t["model"]["merges"] = json!(["b a"]),
        says: "`/model/merges/0`: found `b` and `a`, of which `ba` is no entry",
    },
    Case {
        name: "row 13: a merge of three",
        form: byte_fallback,
        damage: |t| t["model"]["merges"] = json!(["a b c"]),
        says: "merge `a b c`: expected two parts with a space between",
    },
    Case {
        name: "row 13: a negative id",
        form: word_level,
        damage: |t| t["model"]["vocab"]["be"] = json!(-1),
        says: "the id of `be`: found -1, expected a whole number below 16777216",
    },
    Case {
        name: "row 13: an id with a fraction",
        form: word_level,
        damage: |t| t["model"]["vocab"]["be"] = json!(1.5),
        says: "the id of `be`: found 1.5, expected a whole number below 16777216",
    },
    Case {
        name: "row 13: an id beyond all vocabularies",
        form: word_level,
        damage: |t| t["model"]["vocab"]["be"] = json!(4_294_967_295_u32),
        says: "the id of `be`: found 4294967295, expected a whole number below 16777216",
    },
    Case {
        name: "row 13: an id twice",
        form: word_level,
        damage: |t| t["model"]["vocab"]["be"] = json!(3),
        says: "`/model/vocab`: found id 3 for `be` and for `not`, expected an id of its own for each entry",
    },
    Case {
        name: "row 13: the unknown entry is none (BPE)",
        form: byte_fallback,
        damage: |t| t["model"]["unk_token"] = json!("<none>"),
        says: "`/model/unk_token`: found `<none>`, expected an entry of the vocabulary",
    },
    Case {
        name: "row 13: the unknown entry is none (WordPiece)",
        form: word_piece,
        damage: |t| t["model"]["unk_token"] = json!("[NONE]"),
        says: "`/model/unk_token`: found `[NONE]`, expected an entry of the vocabulary",
    },
    Case {
        name: "row 13: the unknown entry is none (WordLevel)",
        form: word_level,
        damage: |t| t["model"]["unk_token"] = json!("<unk>"),
        says: "`/model/unk_token`: found `<unk>`, expected an entry of the vocabulary",
    },
    Case {
        name: "row 13: no unknown piece",
        form: unigram,
        damage: |t| t["model"]["unk_id"] = Value::Null,
        says: "`/model/unk_id`: found none, expected an entry's place, 0 to 10",
    },
    Case {
        name: "row 13: an unknown piece outside",
        form: unigram,
        damage: |t| t["model"]["unk_id"] = json!(11),
        says: "`/model/unk_id`: found 11, expected an entry's place, 0 to 10",
    },
    Case {
        name: "row 13: an added token that gets another id",
        form: byte_level_bpe,
        damage: |t| t["added_tokens"].as_array_mut().unwrap().push(added(2100, "<|extra|>", true)),
        says: "`/added_tokens/2/id`: found id 2100 for `<|extra|>`, expected 2048: its id in the vocabulary, or the next free one",
    },
    Case {
        name: "row 13: an added token with the id of another entry",
        form: byte_level_bpe,
        damage: |t| t["added_tokens"][1]["id"] = json!(0),
        says: "`/added_tokens/1/id`: found id 0 for `<|end_of_text|>`, expected 1",
    },
    Case {
        name: "row 13: no vocabulary",
        form: word_level,
        damage: |t| t["model"]["vocab"] = json!({}),
        says: "`/model/vocab`: found no entries, expected a vocabulary",
    },
    Case {
        name: "row 13: a piece twice",
        form: unigram,
        damage: |t| t["model"]["vocab"][6] = json!(["a", -1.0]),
        says: "`/model/vocab`: found `a` twice, expected each entry once",
    },
    Case {
        name: "row 13: a list where ids should be",
        form: word_level,
        damage: |t| t["model"]["vocab"] = json!([["to", 0.0]]),
        says: "`/model/vocab`: found a list, expected texts with ids",
    },
    Case {
        name: "row 13: a decoder that cuts the end",
        form: byte_fallback,
        damage: |t| t["decoder"]["decoders"][3]["stop"] = json!(3),
        says: "its decoder strips 3 character(s) from the end of the text, which cannot be streamed",
    },
    // What else makes the library panic, hang, ask for gigabytes or give other tokens in silence.
    Case {
        name: "words of any length in WordPiece, whose work grows with the square",
        form: word_piece,
        damage: |t| t["model"]["max_input_chars_per_word"] = json!(u64::MAX),
        says: "`/model/max_input_chars_per_word`: found 18446744073709551615, expected 1 to 1000",
    },
    Case {
        name: "tokens by chance",
        form: byte_fallback,
        damage: |t| t["model"]["dropout"] = json!(0.1),
        says: "`/model/dropout`: found 0.1, expected null",
    },
    Case {
        name: "replacements that multiply",
        form: byte_fallback,
        damage: |t| {
            let grow = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"});
            t["normalizer"] = json!({"type": "Sequence", "normalizers": vec![grow; 12]});
        },
        says: "content`: found replacements that make text grow without end, expected at most 4096 bytes for each byte",
    },
    Case {
        name: "a piece as long as the stack is deep",
        form: unigram,
        damage: |t| t["model"]["vocab"][5][0] = json!("x".repeat(2_000_000)),
        says: "`/model/vocab`: found an entry of 2000000 bytes",
    },
    Case {
        name: "sequences in sequences",
        form: word_level,
        damage: |t| {
            let inner = json!({"type": "Whitespace"});
            t["pre_tokenizer"] = (0..30).fold(inner, |inner, _| json!({"type": "Sequence", "pretokenizers": [inner]}));
        },
        says: "`/pre_tokenizer`: found sequences in sequences, expected at most 8 levels",
    },
    Case {
        name: "deeper than JSON may be",
        form: word_level,
        damage: |t| t["truncation"] = (0..200).fold(json!(1), |inner, _| json!([inner])),
        says: "recursion limit exceeded",
    },
    Case {
        name: "more parts than any tokenizer has",
        form: word_level,
        damage: |t| {
            t["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "Whitespace"}); 300]})
        },
        says: "`/pre_tokenizer`: found more parts than that, expected at most 256",
    },
    Case {
        name: "a pattern of a megabyte",
        form: word_level,
        damage: |t| t["pre_tokenizer"]["pretokenizers"][1]["pattern"] = json!({"Regex": "a".repeat(1 << 20)}),
        says: "pattern`: found a pattern of 1048576 bytes",
    },
    Case {
        name: "a pattern that compiles to gigabytes",
        form: word_level,
        damage: |t| {
            t["pre_tokenizer"]["pretokenizers"][1]["pattern"] = json!({"Regex": "((\\p{L}{1000}){1000}){1000}"})
        },
        says: "`/pre_tokenizer`: ",
    },
    Case {
        name: "a pattern that is neither text nor expression",
        form: word_level,
        damage: |t| t["pre_tokenizer"]["pretokenizers"][1]["pattern"] = json!({"Glob": "*"}),
        says: "pattern`: found {\"Glob\":\"*\"}, expected {\"String\": text} or {\"Regex\": pattern}",
    },
    Case {
        name: "an unknown behavior",
        form: word_level,
        damage: |t| t["pre_tokenizer"]["pretokenizers"][1]["behavior"] = json!("Shredded"),
        says: "behavior`: found \"Shredded\", expected one of Removed, Isolated",
    },
    Case {
        name: "a character of two",
        form: unigram,
        damage: |t| t["decoder"]["replacement"] = json!("__"),
        says: "`/decoder/replacement`: found \"__\", expected one character",
    },
    Case {
        name: "a key that nothing reads",
        form: word_piece,
        damage: |t| t["normalizer"]["lower_case"] = json!(true),
        says: "`/normalizer/lower_case`: found a key that is not known, expected clean_text, handle_chinese_chars",
    },
    Case {
        name: "a key that the file has not",
        form: word_piece,
        damage: |t| t["vocabulary"] = json!({}),
        says: "`/vocabulary`: unknown key `vocabulary`",
    },
    Case {
        name: "a key of another model",
        form: word_level,
        damage: |t| t["model"]["merges"] = json!([]),
        says: "`/model/merges`: found a key that a WordLevel model has not, expected BPE",
    },
    Case {
        name: "a value of another type",
        form: word_level,
        damage: |t| t["pre_tokenizer"]["pretokenizers"][4]["individual_digits"] = json!("yes"),
        says: "individual_digits`: found \"yes\", expected true or false",
    },
    Case {
        name: "an added token of which the normalizer leaves nothing",
        form: word_piece,
        damage: |t| {
            t["added_tokens"].as_array_mut().unwrap().push(added(13, "\u{7}", false));
            t["added_tokens"][3]["normalized"] = json!(true);
        },
        says: "`/added_tokens/3`: found `\\u{7}`, of which the normalizer leaves nothing",
    },
    Case {
        name: "an added token as long as a book",
        form: word_piece,
        damage: |t| t["added_tokens"].as_array_mut().unwrap().push(added(13, &"x".repeat(1 << 20), false)),
        says: "`/added_tokens/3`: found a text of 1048576 bytes, expected at most 1024",
    },
    Case {
        name: "another version",
        form: word_piece,
        damage: |t| t["version"] = json!("2.0"),
        says: "`/version`: found 2.0, expected 1.0",
    },
];

#[test]
fn what_harms_is_refused_by_name() {
    let mut wrong = Vec::new();
    for case in CASES {
        let mut json = (case.form)();
        (case.damage)(&mut json);
        let said = match Tokenizer::parse(json.to_string().as_bytes(), "t.json") {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        let expected = format!("`t.json` is not a tokenizer that can be used: {}", case.says);
        let tail = said.strip_prefix("`t.json` is not a tokenizer that can be used: ");
        if !tail.is_some_and(|tail| tail.contains(case.says)) {
            wrong.push(format!("{}\n  said     {said}\n  expected {expected}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn every_form_is_taken_and_proved() {
    for form in forms::all() {
        let tokenizer =
            Tokenizer::from_bytes(form.json.to_string().as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", form.name));
        assert_eq!(tokenizer.prove(form.rows).unwrap(), [], "{}", form.name);
    }
}

#[test]
fn a_vocabulary_must_fit_the_rows() {
    let tokenizer = Tokenizer::from_bytes(byte_level_bpe().to_string().as_bytes()).unwrap();
    let fails = |rows: usize| tokenizer.prove(rows).unwrap_err().to_string();
    assert!(fails(2047).contains("has id 2047, but the model's vocabulary has 2047 entries"), "{}", fails(2047));
    // Row 13: 1,000 tokens for 2,048 rows, four entries.
    assert!(fails(4097).contains("it has 2048 entries for a model of 4097 rows, expected at least half as many"));
    assert_eq!(tokenizer.prove(2100).unwrap(), []);
    assert_eq!(tokenizer.prove(4000).unwrap(), [Oddity::UnusedRows { entries: 2048, rows: 4000 }]);
    let four = Tokenizer::from_bytes(word_level().to_string().as_bytes()).unwrap();
    assert!(four.prove(320).unwrap_err().to_string().contains("4 entries for a model of 320 rows"));
}

#[test]
fn text_that_does_not_come_back_is_found() {
    let mut json = byte_level_bpe();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    vocab.shift_remove("\u{120}");
    json["model"]["merges"] = json!([]);
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.prove(2048).unwrap(), [Oddity::LeavesOut { bytes: 1 }]);
    // A model that has no entry for anything in the line.
    let mut json = byte_fallback();
    json["model"]["vocab"] = json!({"q": 0});
    json["model"]["merges"] = json!([]);
    json["model"]["unk_token"] = Value::Null;
    json["model"]["byte_fallback"] = json!(false);
    json["added_tokens"] = json!([]);
    let error = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap().prove(1).unwrap_err().to_string();
    assert!(error.contains("becomes 0 tokens, which read \"\""), "{error}");
}

#[test]
fn patterns_that_go_over_a_line_again_and_again_are_found() {
    for slow in ["(?=(a+)+$)b|(?:(?!b)(a|aa))+$", "(?=a)(?:(?:a|aa)+)+b", "(?:(\\w+)+)\\1b"] {
        let mut json = word_level();
        json["pre_tokenizer"]["pretokenizers"][1]["pattern"] = json!({"Regex": slow});
        let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
        let error = tokenizer.prove(4).unwrap_err();
        assert!(error.to_string().contains("the pattern needs more than 50000 steps"), "{slow}: {error}");
    }
    // Those of published models are quick.
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let gpt4o = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    for good in [llama3, gpt4o] {
        let mut json = word_level();
        json["pre_tokenizer"]["pretokenizers"][1]["pattern"] = json!({"Regex": good});
        assert_eq!(Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap().prove(4).unwrap(), []);
    }
}

#[test]
fn other_files_are_named() {
    let says = |bytes: &[u8]| Tokenizer::from_bytes(bytes).unwrap_err().to_string();
    for (bytes, what) in [
        (&b""[..], "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "a pointer of Git LFS, not the file itself"),
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (b"\xef\xbb\xbf{}", "a text with a byte order mark"),
        (b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02", "SentencePiece's tokenizer.model"),
    ] {
        let expected = format!("`tokenizer.json` is not a tokenizer that can be used: it is {what}, expected JSON");
        assert_eq!(says(bytes), expected);
    }
    assert!(says(b"\n{\"version\": 1}").contains("`/version`: found 1, expected a string"));
}

#[test]
fn keys_that_come_twice_are_refused() {
    let text = word_level().to_string();
    let twice = |from: &str, to: &str| {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text);
        Tokenizer::from_bytes(damaged.as_bytes()).unwrap_err().to_string()
    };
    let said = twice("\"to\":0", "\"to\":0,\"to\":9");
    assert!(said.contains("`/model/vocab`: found `to` with id 0 and with id 9, expected each entry once"), "{said}");
    let said = twice("\"length\":8", "\"length\":8,\"length\":2");
    assert!(said.contains("key `length` comes twice"), "{said}");
    assert!(twice("\"version\":", "\"version\":\"1.0\",\"version\":").contains("key `version` comes twice"));
}

#[test]
fn folders_and_devices_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let error = Tokenizer::from_file(folder.path()).unwrap_err();
    assert!(error.to_string().ends_with("is a folder, expected the file tokenizer.json"), "{error}");
    if cfg!(unix) {
        let error = Tokenizer::from_file("/dev/zero").unwrap_err();
        assert_eq!(error.to_string(), "`/dev/zero` is a device or a fifo, expected the file tokenizer.json");
    }
}

#[test]
fn control_tokens_stay_text_where_the_text_is_plain() {
    let tokenizer = Tokenizer::from_bytes(byte_level_bpe().to_string().as_bytes()).unwrap();
    let text = "a<|begin_of_text|>b";
    let with = tokenizer.encode(text).unwrap();
    let without = tokenizer.encode_plain(text).unwrap();
    assert!(with.iter().any(|id| id.0 == 0) && without.iter().all(|id| id.0 > 1), "{with:?} {without:?}");
    assert_eq!(tokenizer.decode(&without).unwrap(), text);
    assert_eq!(tokenizer.encode("a b").unwrap(), tokenizer.encode_plain("a b").unwrap());
    // A Unigram model finds the control token's text in its own vocabulary.
    let mut json = unigram();
    json["pre_tokenizer"] = Value::Null;
    json["model"]["vocab"][2][1] = json!(10.0);
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    assert!(tokenizer.encode_plain("hello").is_ok());
    let error = tokenizer.encode_plain("a</s>").unwrap_err();
    assert!(matches!(error, TokenizerError::NotPlain { .. }), "{error}");
}
