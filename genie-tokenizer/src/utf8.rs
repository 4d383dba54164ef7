//! Bytes in pieces, text out, never a split character.

/// Decodes UTF-8 that arrives in pieces. The output of all pushes and the finish together equals
/// `String::from_utf8_lossy` of all the bytes, however they were cut.
///
/// *Invariant*: `pending` is the start of a character that may still be completed; at most 3 bytes.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Appends to `out` what `bytes` completes. Bytes that cannot become a character give U+FFFD at once.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut done = 0;
        loop {
            let rest = &self.pending[done..];
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    self.pending.clear();
                    return;
                }
                Err(e) => {
                    let (valid, _) = rest.split_at(e.valid_up_to());
                    out.push_str(std::str::from_utf8(valid).expect("valid up to there"));
                    done += e.valid_up_to();
                    match e.error_len() {
                        Some(n) => {
                            out.push(char::REPLACEMENT_CHARACTER);
                            done += n;
                        }
                        None => {
                            self.pending.drain(..done);
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Nothing more will come: a character that is still incomplete becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
    }

    /// Whether bytes are held back.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}
