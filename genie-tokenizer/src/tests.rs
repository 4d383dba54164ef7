//! Streams against whole decodings, on small vocabularies made here.

use proptest::prelude::*;
use serde_json::{Value, json};

use genie_types::TokenId;

use crate::decoders::scheme;
use crate::{Tokenizer, Utf8Stream, byte_level};

/// 256 byte entries (ids 0 to 255), then `<s>` (special), two added words, one of them special, one outside the alphabet.
fn byte_level() -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    for (c, id) in (0..0x200_u32).filter_map(char::from_u32).filter_map(|c| {
        let mut bytes = Vec::new();
        byte_level::bytes_of(&c.to_string(), &mut bytes);
        (bytes.len() == 1 && c.to_string().len() < 3 && (c as u32) != 0x20).then(|| (c, bytes[0]))
    }) {
        // Bytes that are not in the alphabet stand for themselves as UTF-8; keep the alphabet's character.
        let keep = !(c.is_control() || c == '\u{ad}' || c == '\u{a0}' || c == '\u{7f}');
        if keep {
            vocab.insert(c.to_string(), json!(id));
        }
    }
    assert_eq!(vocab.len(), 256);
    vocab.insert("\u{120}the".into(), json!(256));
    build(
        json!({"type": "BPE", "vocab": vocab, "merges": []}),
        json!({"type": "ByteLevel"}),
        &[(257, "<s>", true), (258, "<|word|>", false), (259, "<｜wide｜>", false)],
    )
}

/// SentencePiece as Llama 2 has it: `▁` for spaces, byte fallback, one leading space stripped.
fn sentence_piece() -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    let mut add = |entry: String| {
        let id = vocab.len();
        vocab.insert(entry, json!(id));
    };
    (0..256).for_each(|b| add(format!("<0x{b:02X}>")));
    ["▁", "▁▁", "a", "b", "▁a", "▁the", "é", "▁日本"].iter().for_each(|w| add((*w).to_owned()));
    add("<unk>".to_owned());
    let model = json!({"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>", "byte_fallback": true,
                       "fuse_unk": true});
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]});
    build(model, decoder, &[(265, "</s>", true)])
}

fn build(model: Value, decoder: Value, added: &[(u32, &str, bool)]) -> Tokenizer {
    let added: Vec<Value> = added
        .iter()
        .map(|(id, content, special)| {
            json!({"id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false})
        })
        .collect();
    let pre = if decoder["type"] == "ByteLevel" {
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
    } else {
        Value::Null
    };
    let mut decoder = decoder;
    if decoder["type"] == "ByteLevel" {
        decoder = pre.clone();
    }
    let all = json!({"version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst",
                     "stride": 0}, "padding": null, "added_tokens": added, "normalizer": null, "pre_tokenizer": pre,
                     "post_processor": null, "decoder": decoder, "model": model});
    Tokenizer::from_bytes(all.to_string().as_bytes()).unwrap()
}

fn ids(raw: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    raw.into_iter().map(TokenId).collect()
}

/// What comes out for each token, then at the end.
fn pieces(t: &Tokenizer, tokens: &[TokenId]) -> Vec<String> {
    let mut stream = t.detokenizer();
    let mut out: Vec<String> = Vec::new();
    for id in tokens {
        let mut text = String::new();
        stream.push(*id, &mut text).unwrap();
        out.push(text);
    }
    let mut text = String::new();
    stream.finish(&mut text).unwrap();
    assert!(!stream.has_pending());
    out.push(text);
    out
}

#[test]
fn a_character_comes_whole_and_when_its_last_byte_does() {
    let t = byte_level();
    let tokens = ids("né日!".bytes().map(u32::from));
    assert_eq!(pieces(&t, &tokens), ["n", "", "é", "", "", "日", "!", ""]);
}

/// Four tokens, one character: each token has its own byte, and together they are the character's.
#[test]
fn a_token_s_bytes_are_its_own_part_of_a_character() {
    for t in [byte_level(), sentence_piece()] {
        let emoji = ids("🙂".bytes().map(u32::from));
        let bytes: Vec<Vec<u8>> = emoji.iter().map(|id| t.bytes_of_token(*id).unwrap()).collect();
        assert_eq!(bytes, [[0xf0], [0x9f], [0x99], [0x82]]);
        assert_eq!(bytes.concat(), "🙂".as_bytes());
    }
    // A space at the start is dropped of a text, not of a token.
    let t = sentence_piece();
    assert_eq!(
        (t.bytes_of_token(TokenId(261)).unwrap(), t.decode(&ids([261])).unwrap()),
        (b" the".into(), "the".into())
    );
    // Control tokens, and ids that are not there.
    assert!(t.bytes_of_token(TokenId(265)).unwrap().is_empty() && t.bytes_of_token(TokenId(9999)).unwrap().is_empty());
    let all = t.token_bytes(300).unwrap();
    assert!((0..300).all(|id| all[id as usize] == t.bytes_of_token(TokenId(id)).unwrap()));
}

#[test]
fn an_invalid_byte_does_not_silence_the_stream() {
    let t = byte_level();
    // 0xE4 wants two more bytes; `x` shows that they will not come. libGenie prints nothing from here on.
    assert_eq!(
        pieces(&t, &ids([0xe4, b'x'.into(), 0xff, b'y'.into(), 0xe6, 0x97])),
        ["", "\u{fffd}x", "\u{fffd}", "y", "", "", "\u{fffd}"]
    );
    let t = sentence_piece();
    assert_eq!(pieces(&t, &ids([0xe4, 258, 0xff, 259])), ["", "\u{fffd}a", "\u{fffd}", "b", ""]);
}

#[test]
fn special_tokens_have_no_text_and_added_words_have() {
    let t = byte_level();
    assert_eq!(t.decode(&ids([257, 258, 256, 259, 9999])).unwrap(), "<|word|> the<｜wide｜>");
    assert!(t.is_special(TokenId(257)) && !t.is_special(TokenId(258)));
    assert_eq!(t.token_to_id("<s>"), Some(TokenId(257)));
    assert_eq!(t.vocab_size(), 260);
}

#[test]
fn encoding_recognises_special_tokens_and_cuts_nothing() {
    let t = byte_level();
    // `truncation` in the file is 4 tokens.
    assert_eq!(t.encode("<s>abcdef").unwrap(), ids([257, 97, 98, 99, 100, 101, 102]));
    assert!(t.encode("").unwrap().is_empty());
}

#[test]
fn sentence_piece_spaces_come_out_as_they_went_in() {
    let t = sentence_piece();
    let cases: [(&[u32], &str); 7] = [
        (&[0x20, 260], " a"),                       // a space written as a byte is stripped, too
        (&[260, 261, 258], "a thea"),               // leading space stripped once
        (&[256, 260], " a"),                        // a lone space first
        (&[257, 260], "  a"),                       // two of them: one is stripped
        (&[0x41, 260], "A a"),                      // bytes first: the space after them stays
        (&[260, 256, 256, 260], "a   a"),           // spaces in the middle stay
        (&[263, 0xe6, 0x97, 0xa5, 262], "日本日é"), // byte fallback between words
    ];
    for (tokens, text) in cases {
        assert_eq!(t.decode(&ids(tokens.iter().copied())).unwrap(), text, "{tokens:?}");
        assert_eq!(t.hf().decode(tokens, true).unwrap(), text, "the crate agrees on {tokens:?}");
    }
}

#[test]
fn other_decoders_stream_too() {
    let vocab = json!({"[UNK]": 0, "play": 1, "##ing": 2, "chess": 3, ".": 4});
    let model = json!({"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100});
    let t = build(model, json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), &[]);
    assert_eq!(pieces(&t, &ids([1, 2, 3, 4])), ["play", "ing", " chess", ".", ""]);
    let model = json!({"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"});
    let t = build(model, Value::Null, &[]);
    assert_eq!(pieces(&t, &ids([0, 1, 1])), ["a", " b", " b", ""]);
}

#[test]
fn tokens_without_text_do_not_make_later_ones_dearer() {
    let model = json!({"type": "WordLevel", "vocab": {"a": 0, "x": 1}, "unk_token": "a"});
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "x"}, "content": ""}, {"type": "Fuse"}
    ]});
    let t = build(model, decoder, &[]);
    let (mut stream, mut text) = (t.detokenizer(), String::new());
    for id in [0].into_iter().chain([1; 1000]).chain([0]) {
        stream.push(TokenId(id), &mut text).unwrap();
        assert!(stream.window_len() <= 17);
    }
    assert_eq!(text, "aa");
}

#[test]
fn bad_tokenizers_are_refused() {
    let err = Tokenizer::from_file("/no/such/tokenizer.json").unwrap_err();
    assert_eq!(err.to_string(), "cannot read the tokenizer `/no/such/tokenizer.json`");
    let err = Tokenizer::from_bytes(b"{}").unwrap_err().to_string();
    assert!(err.starts_with("`tokenizer.json` is not a tokenizer that can be used: "), "{err}");
    let err = Tokenizer::from_bytes(b"{\"version\": \"1.0\", \"decoder\": {\"type\"").unwrap_err().to_string();
    assert_eq!(err, "`tokenizer.json` is not a tokenizer that can be used: it ends in the middle, at line 1");
    // The crate panics on this one.
    let mut bad: Value = serde_json::from_str(&byte_level().hf().to_string(false).unwrap()).unwrap();
    bad["decoder"] = json!({"type": "NoSuchDecoder"});
    let err = Tokenizer::from_bytes(bad.to_string().as_bytes()).unwrap_err().to_string();
    assert!(err.starts_with("`tokenizer.json` is not a tokenizer that can be used: "), "{err}");
    let strip = json!({"type": "Strip", "content": " ", "start": 0, "stop": 2});
    assert_eq!(
        scheme(&json!({"type": "Sequence", "decoders": [strip]})).unwrap_err(),
        "its decoder strips 2 character(s) from the end of the text, which cannot be streamed"
    );
}

/// Our rule for SentencePiece ids, written independently: runs of bytes are decoded lossily, `▁` is a space, one is stripped.
fn sentence_piece_reference(t: &Tokenizer, tokens: &[TokenId]) -> String {
    let mut text = String::new();
    let mut run: Vec<u8> = Vec::new();
    for id in tokens.iter().filter(|id| !t.is_special(**id) && t.id_to_token(**id).is_some()) {
        if id.0 < 256 {
            run.push(id.0 as u8);
            continue;
        }
        text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut run)));
        text.push_str(&t.id_to_token(*id).unwrap_or_default().replace('▁', " "));
    }
    text.push_str(&String::from_utf8_lossy(&run));
    text.strip_prefix(' ').map(str::to_owned).unwrap_or(text)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn byte_level_streams_equal_the_whole_decoding(raw in prop::collection::vec(prop_oneof![0u32..262, 0x80u32..0x100], 0..60)) {
        let t = byte_level();
        let streamed = pieces(&t, &ids(raw.clone())).concat();
        prop_assert_eq!(&streamed, &t.hf().decode(&raw, true).unwrap());
        prop_assert_eq!(streamed, t.decode(&ids(raw)).unwrap());
    }

    #[test]
    fn sentence_piece_streams_equal_the_whole_decoding(raw in prop::collection::vec(prop_oneof![0x20u32..268, 0x80u32..0x100, 256u32..268], 0..60)) {
        let t = sentence_piece();
        let tokens = ids(raw.clone());
        let streamed = pieces(&t, &tokens).concat();
        prop_assert_eq!(&streamed, &sentence_piece_reference(&t, &tokens));
        // Where the bytes form characters the crate gives the same.
        let whole = t.hf().decode(&raw, true).unwrap();
        if !whole.contains('\u{fffd}') && !streamed.contains('\u{fffd}') {
            prop_assert_eq!(streamed, whole);
        }
    }

    #[test]
    fn damaged_files_are_errors(cut: prop::sample::Index, flip: prop::sample::Index, bit in 0u8..8, truncate: bool) {
        let mut bytes = byte_level().hf().to_string(false).unwrap().into_bytes();
        let at = flip.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(Tokenizer::from_bytes(&bytes).is_err());
        } else if let Ok(t) = Tokenizer::from_bytes(&bytes) {
            let _ = t.encode("<s>abé").map(|ids| t.decode(&ids));
        }
    }

    #[test]
    fn text_survives_the_round_trip(text in "[a-c é日🙂 \n]{0,40}") {
        let t = byte_level();
        let tokens = t.encode(&text).unwrap();
        prop_assert_eq!(pieces(&t, &tokens).concat(), text);
    }

    #[test]
    fn bytes_in_pieces_equal_bytes_at_once(bytes in prop::collection::vec(any::<u8>(), 0..80), cuts in prop::collection::vec(1usize..5, 80)) {
        let (mut stream, mut text) = (Utf8Stream::default(), String::new());
        let mut rest = &bytes[..];
        for n in cuts {
            let (piece, tail) = rest.split_at(n.min(rest.len()));
            stream.push(piece, &mut text);
            rest = tail;
        }
        stream.push(rest, &mut text);
        stream.finish(&mut text);
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}
