//! C type spellings of the ABI table as Rust types.

/// The Rust spelling of a C type, e.g. `const char**` as `*mut *const c_char`.
pub fn rust_type(c: &str) -> String {
    let c = c.trim();
    if let Some((element, count)) = c.strip_suffix(']').and_then(|c| c.split_once('[')) {
        return format!("[{}; {count}]", rust_type(element));
    }
    let stars = c.matches('*').count();
    let constant = c.starts_with("const ");
    let base = c.trim_start_matches("const ").trim_end_matches('*').trim();
    // `const` binds to what the innermost star points at; outer pointers are written through.
    let mut rust = base_type(base, stars > 0);
    for level in 0..stars {
        let qualifier = if level == 0 && constant { "*const" } else { "*mut" };
        rust = format!("{qualifier} {rust}");
    }
    rust
}

/// A field or parameter name that Rust accepts.
pub fn rust_name(c: &str) -> String {
    match c {
        "type" | "ref" | "in" | "fn" | "match" | "move" | "use" | "where" | "loop" | "mod" => format!("r#{c}"),
        _ => c.to_owned(),
    }
}

/// The name of a struct or union; nested anonymous ones are written `Outer::anon0` in the table.
pub fn rust_struct(c: &str) -> String {
    c.replace("::", "_")
}

fn base_type(base: &str, behind_pointer: bool) -> String {
    match base {
        "void" if behind_pointer => "c_void".into(),
        "void" => "()".into(),
        "char" => "c_char".into(),
        "float" => "f32".into(),
        "double" => "f64".into(),
        "_Bool" | "bool" => "bool".into(),
        "size_t" => "usize".into(),
        "int8_t" => "i8".into(),
        "int16_t" => "i16".into(),
        "int32_t" | "int" => "i32".into(),
        "int64_t" => "i64".into(),
        "uint8_t" => "u8".into(),
        "uint16_t" => "u16".into(),
        "uint32_t" | "unsigned int" => "u32".into(),
        "uint64_t" => "u64".into(),
        // Both LP64 targets pass it as the address of its state.
        "va_list" => "*mut c_void".into(),
        // Opaque tags.
        tag if tag.starts_with("struct ") => "c_void".into(),
        named => rust_struct(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let cases = [
            ("uint32_t", "u32"),
            ("const char*", "*const c_char"),
            ("const char**", "*mut *const c_char"),
            ("const QnnBackend_Config_t**", "*mut *const QnnBackend_Config_t"),
            ("void*", "*mut c_void"),
            ("size_t[12]", "[usize; 12]"),
            ("struct _QnnOpPackage_Node_t*", "*mut c_void"),
            ("Qnn_Scalar_t::anon0", "Qnn_Scalar_t_anon0"),
        ];
        for (c, rust) in cases {
            assert_eq!(rust_type(c), rust, "{c}");
        }
    }
}
