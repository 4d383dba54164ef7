//! The decoder's chain in a `tokenizer.json`.

use serde_json::Value;

/// The decoders of a `decoder` block in the order they run, nested sequences flattened.
fn decoder_chain(decoder: &Value) -> Vec<&Value> {
    match decoder.get("decoders").and_then(Value::as_array) {
        Some(inner) => inner.iter().flat_map(decoder_chain).collect(),
        None if decoder.is_object() => vec![decoder],
        None => Vec::new(),
    }
}

/// Refuses a decoder that cannot give text token by token, with the reason.
///
/// # Errors
/// It strips characters from the end of the text.
fn check_streams(decoder: &Value) -> Result<(), String> {
    match decoder_chain(decoder).iter().filter_map(|d| d.get("stop")?.as_u64()).find(|n| *n > 0) {
        Some(n) => {
            Err(format!("its decoder strips {n} character(s) from the end of the text, which cannot be streamed"))
        }
        None => Ok(()),
    }
}

/// How the text of a token follows from its entry in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Each character of the entry stands for a byte (GPT-2's alphabet).
    ByteLevel,
    /// The entry is text that may depend on its neighbours.
    Text {
        /// Entries such as `<0xE4>` are single bytes.
        byte_fallback: bool,
        /// Other decoders that work on bytes are in the chain: text may end in the middle of a character.
        splits_utf8: bool,
    },
}

/// Reads the decoder's chain. Absent: entries are words, joined by spaces.
pub(crate) fn scheme(decoder: &Value) -> Result<Scheme, String> {
    check_streams(decoder)?;
    let kinds: Vec<&str> = decoder_chain(decoder).iter().filter_map(|d| d.get("type")?.as_str()).collect();
    if kinds == ["ByteLevel"] {
        return Ok(Scheme::ByteLevel);
    }
    Ok(Scheme::Text { byte_fallback: kinds.contains(&"ByteFallback"), splits_utf8: kinds.contains(&"ByteLevel") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoders_that_strip_the_end_are_refused() {
        let strip = |stop: u64| json!({"type": "Strip", "content": " ", "start": 1, "stop": stop});
        let nested = |stop| json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"decoders": [strip(stop)]}]});
        assert_eq!(decoder_chain(&nested(0)).len(), 2);
        assert_eq!((check_streams(&nested(0)), check_streams(&Value::Null)), (Ok(()), Ok(())));
        let why = "its decoder strips 2 character(s) from the end of the text, which cannot be streamed";
        assert_eq!(check_streams(&nested(2)), Err(why.into()));
    }
}
