//! The decoder's chain in a `tokenizer.json`.

use serde_json::Value;

/// The decoders of a `decoder` block in the order they run, nested sequences flattened.
pub(crate) fn decoder_chain(decoder: &Value) -> Vec<&Value> {
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
pub(crate) fn check_streams(decoder: &Value) -> Result<(), String> {
    match decoder_chain(decoder).iter().filter_map(|d| d.get("stop")?.as_u64()).find(|n| *n > 0) {
        Some(n) => {
            Err(format!("its decoder strips {n} character(s) from the end of the text, which cannot be streamed"))
        }
        None => Ok(()),
    }
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
