//! Environment variables that turn a unit on or off.

const OFF: [&str; 4] = ["0", "off", "no", "false"];
const ON: [&str; 4] = ["1", "on", "yes", "true"];

/// What a variable asks for, if it is set and says so. Of another value a line on standard error says that it does not count.
pub(super) fn asked(name: &str) -> Option<bool> {
    let value = std::env::var_os(name)?;
    said(name, &value.to_string_lossy()).unwrap_or_else(|warning| {
        eprintln!("qnn-host: {warning}");
        None
    })
}

/// The same of a value, in upper or lower case; an empty one says nothing. The error is the line.
fn said(name: &str, value: &str) -> Result<Option<bool>, String> {
    let is = |words: [&str; 4]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    match (value.is_empty(), is(OFF), is(ON)) {
        (true, ..) => Ok(None),
        (_, true, _) => Ok(Some(false)),
        (_, _, true) => Ok(Some(true)),
        _ => {
            let [off, on] = [OFF, ON].map(|words| words.join(", "));
            Err(format!("`{name}` does not count: expected one of {off} or one of {on}, found `{value}`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_on_off_or_named_in_a_warning() {
        for (value, asked) in [("0", false), ("OFF", false), ("No", false), ("false", false), ("1", true), ("oN", true)]
        {
            assert_eq!(said("GENIE_AMX", value), Ok(Some(asked)), "{value}");
        }
        assert_eq!((said("GENIE_AMX", "YES"), said("GENIE_AMX", "True")), (Ok(Some(true)), Ok(Some(true))));
        assert_eq!(said("GENIE_AMX", ""), Ok(None));
        let warning =
            "`GENIE_AMX` does not count: expected one of 0, off, no, false or one of 1, on, yes, true, found ";
        for value in ["never", "00", " 0", "-1"] {
            assert_eq!(said("GENIE_AMX", value), Err(format!("{warning}`{value}`")));
        }
    }
}
