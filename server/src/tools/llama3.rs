//! Llama 3's calls: the reply is one JSON object with `name` and `parameters`, perhaps behind `<|python_tag|>`, which has no text;
//! several are parted by semicolons.

use super::format::Syntax;

pub(super) const SYNTAX: Syntax = Syntax { open: &["<|python_tag|>"], close: &["<|eom_id|>"], bare: true };

pub(super) fn writes(template: &str) -> bool {
    template.contains("<|python_tag|>") || template.contains("<|start_header_id|>")
}
