//! The backend extension config that a bundle may name (`htp_backend_ext_config.json`): chip and clocks.
//!
//! Of its many keys the chip's number and those of the clocks have an effect here, and must have the right type. The others
//! configure Qualcomm's own tools: they are ignored, known or not, and listed for a warning.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::problem::{ConfigError, Origin, Problem};
use super::text;

/// The keys of extension configs that have an effect here. The first file that has a key counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtpExtensions {
    /// The chip, by Qualcomm's number (`soc_model`, or `soc_id`).
    pub soc: Option<u32>,
    /// The DSP's architecture, 75 for `v75`.
    pub dsp_arch: Option<u32>,
    /// How fast to run: `perf_profile` of the first core. The name is not checked here.
    pub perf_profile: Option<String>,
    /// Longest time that a call to the chip may take to begin, in microseconds: `rpc_control_latency` of the first core.
    pub rpc_control_latency: Option<u32>,
    /// How long the host polls for the end of a call, in microseconds: `rpc_polling_time` of the first core.
    pub rpc_polling_time: Option<u32>,
    /// Keys without effect, with their file and why.
    pub ignored: Vec<String>,
}

/// The keys of extension configs: what each does, and how or why not. `*` is everything below.
pub(super) const EXTENSION_KEYS: &[(&str, &str, &str)] = &[
    ("devices/soc_model", "acts on HTP", "the chip; `--soc` overrides it; 0 is unknown"),
    ("devices/soc_id", "acts on HTP", "the same as `soc_model`"),
    ("devices/dsp_arch", "acts on HTP", "checked by `genie doctor`"),
    ("devices/cores/perf_profile", "acts on HTP", "of the first core; `--perf` overrides it"),
    ("devices/cores/rpc_control_latency", "acts on HTP", "of the first core, in microseconds"),
    ("devices/cores/rpc_polling_time", "acts on HTP", "of the first core, in microseconds; more than `poll`"),
    ("devices/device_id", "warns", "the first device is used"),
    ("devices/cores/core_id", "warns", "the first core is used"),
    ("devices/pd_session", "warns", "the library chooses the process domain"),
    ("memory/*", "warns", "the platform decides which buffers are shared"),
    ("context/*", "warns", "decided when the binary was made"),
    ("graphs/*", "warns", "decided when the binary was made"),
    ("*", "warns", "not known here"),
];

impl HtpExtensions {
    /// Reads the files in order.
    ///
    /// # Errors
    /// A file that cannot be read, is no JSON, or has one of these keys with a value of another type.
    pub fn from_files(paths: &[PathBuf]) -> Result<Self, ConfigError> {
        let mut all = Self::default();
        for path in paths {
            let one = Self::from_file(path)?;
            all.soc = all.soc.or(one.soc);
            all.dsp_arch = all.dsp_arch.or(one.dsp_arch);
            all.perf_profile = all.perf_profile.or(one.perf_profile);
            all.rpc_control_latency = all.rpc_control_latency.or(one.rpc_control_latency);
            all.rpc_polling_time = all.rpc_polling_time.or(one.rpc_polling_time);
            all.ignored.extend(one.ignored);
        }
        Ok(all)
    }

    fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = text::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &Origin::file(path))
    }

    fn parse(text: &str, origin: &Origin) -> Result<Self, ConfigError> {
        let document = text::parse(text).map_err(|source| ConfigError::Syntax { origin: origin.clone(), source })?;
        let mut problems = Vec::new();
        let mut found = Self::default();
        if !document.is_object() {
            problems.push(Problem::new("", "expected an object with `devices`"));
        }
        match document.get("devices") {
            None => {}
            Some(Value::Array(devices)) => {
                for (i, device) in devices.iter().enumerate() {
                    found.read_device(device, &format!("/devices/{i}"), &mut problems);
                }
            }
            Some(other) => problems.push(Problem::new("/devices", format!("expected a list, found {other}"))),
        }
        found.ignored = ignored(&document, origin).into_iter().collect();
        if problems.is_empty() { Ok(found) } else { Err(ConfigError::Extensions { origin: origin.clone(), problems }) }
    }

    fn read_device(&mut self, device: &Value, at: &str, problems: &mut Vec<Problem>) {
        for key in ["soc_model", "soc_id"] {
            match device.get(key).map(|value| (value, value.as_u64().and_then(|n| u32::try_from(n).ok()))) {
                None => {}
                // Some configs write 0 for "unknown".
                Some((_, Some(0))) => {}
                Some((_, Some(n))) => self.soc = self.soc.or(Some(n)),
                Some((value, None)) => {
                    problems
                        .push(Problem::new(format!("{at}/{key}"), format!("expected a chip's number, found {value}")));
                }
            }
        }
        match device.get("dsp_arch").map(|value| (value, value.as_str().and_then(arch))) {
            None => {}
            Some((_, Some(n))) => self.dsp_arch = self.dsp_arch.or(Some(n)),
            Some((value, None)) => {
                let message = format!("expected an architecture such as \"v75\", found {value}");
                problems.push(Problem::new(format!("{at}/dsp_arch"), message));
            }
        }
        for (i, core) in device.get("cores").and_then(Value::as_array).into_iter().flatten().enumerate() {
            for (key, into) in [
                ("rpc_control_latency", &mut self.rpc_control_latency),
                ("rpc_polling_time", &mut self.rpc_polling_time),
            ] {
                let Some(value) = core.get(key) else { continue };
                match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
                    Some(us) => *into = into.or(Some(us)),
                    None => {
                        let message = format!("expected microseconds, found {value}");
                        problems.push(Problem::new(format!("{at}/cores/{i}/{key}"), message));
                    }
                }
            }
            match core.get("perf_profile") {
                None => {}
                Some(Value::String(name)) => {
                    self.perf_profile.get_or_insert_with(|| name.clone());
                }
                Some(value) => {
                    let message = format!("expected the name of a profile such as \"burst\", found {value}");
                    problems.push(Problem::new(format!("{at}/cores/{i}/perf_profile"), message));
                }
            }
        }
    }
}

/// The keys without effect in one line, each with why; a value of 0 asks for nothing.
fn ignored(document: &Value, origin: &Origin) -> Option<String> {
    let mut keys: Vec<(String, &str)> = Vec::new();
    walk(document, "", &mut |path| {
        let row = EXTENSION_KEYS.iter().find(|(key, ..)| match key.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == *key,
        });
        if let Some((_, "warns", why)) = row
            && !keys.iter().any(|(key, _)| key == path)
        {
            keys.push((path.to_owned(), why));
        }
    });
    let list: Vec<String> = keys.iter().map(|(key, why)| format!("`{key}` ({why})")).collect();
    (!list.is_empty()).then(|| format!("{origin}: ignored: {}", list.join(", ")))
}

/// Every value that asks for something, by its path without numbers of list items.
fn walk(value: &Value, path: &str, each: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(keys) => {
            for (name, inner) in keys {
                walk(inner, &if path.is_empty() { name.clone() } else { format!("{path}/{name}") }, each);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, path, each)),
        value if value.as_i64() == Some(0) => {}
        _ => each(path),
    }
}

fn arch(text: &str) -> Option<u32> {
    text.strip_prefix(['v', 'V'])?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<HtpExtensions, ConfigError> {
        HtpExtensions::parse(text, &Origin::Text)
    }

    #[test]
    fn chip_and_profile_are_found_among_other_keys() {
        let text = r#"{"devices": [{"soc_model": 57, "dsp_arch": "v75", "cores": [
            {"core_id": 0, "perf_profile": "burst", "rpc_control_latency": 100}]}],
            "memory": {"mem_type": "shared_buffer"}, "context": {"weight_sharing_enabled": true}}"#;
        let ignored = "the config: ignored: `memory/mem_type` (the platform decides which buffers are shared), \
                       `context/weight_sharing_enabled` (decided when the binary was made)";
        let found = parse(text).unwrap();
        assert_eq!((found.soc, found.dsp_arch, found.perf_profile.as_deref()), (Some(57), Some(75), Some("burst")));
        assert_eq!((found.rpc_control_latency, found.rpc_polling_time), (Some(100), None));
        assert_eq!(found.ignored.len(), 1);
        // serde_json may keep keys in the order of the file or of their names.
        for part in ignored.trim_start_matches("the config: ignored: ").split("), ") {
            assert!(found.ignored[0].contains(part.trim_end_matches(')')), "{}", found.ignored[0]);
        }
        let more = parse(r#"{"devices": [{"pd_session": "signed", "device_id": 0}], "new_key": true}"#).unwrap();
        assert!(more.ignored[0].contains("`devices/pd_session` (the library chooses the process domain)"));
        assert!(more.ignored[0].contains("`new_key` (not known here)") && !more.ignored[0].contains("device_id"));
        assert_eq!(parse(r#"{"devices": [{"soc_model": 0, "soc_id": 43}]}"#).unwrap().soc, Some(43));
        assert_eq!(parse("{}").unwrap(), HtpExtensions::default());
    }

    #[test]
    fn the_first_file_with_a_key_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = file("a.json", r#"{"devices": [{"cores": [{"perf_profile": "balanced"}]}]}"#);
        let second = file("b.json", r#"{"devices": [{"soc_id": 69, "cores": [{"perf_profile": "burst"}]}]}"#);
        let both = HtpExtensions::from_files(&[first, second]).unwrap();
        assert_eq!((both.soc, both.perf_profile.as_deref()), (Some(69), Some("balanced")));
        let gone = HtpExtensions::from_files(&["/nowhere/ext.json".into()]).unwrap_err();
        assert!(gone.to_string().contains("`/nowhere/ext.json`"), "{gone}");
    }

    #[test]
    fn wrong_types_are_named_with_their_place() {
        for (text, want) in [
            ("[]", "/: expected an object with `devices`"),
            (r#"{"devices": {}}"#, "/devices: expected a list, found {}"),
            (r#"{"devices": [{"soc_id": "SM8650"}]}"#, "/devices/0/soc_id: expected a chip's number, found \"SM8650\""),
            (
                r#"{"devices": [{"dsp_arch": 75}]}"#,
                "/devices/0/dsp_arch: expected an architecture such as \"v75\", found 75",
            ),
            (
                r#"{"devices": [{"cores": [{"perf_profile": 10}]}]}"#,
                "/devices/0/cores/0/perf_profile: expected the name of a profile such as \"burst\", found 10",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("the config is not a valid backend extension config: {want}"));
        }
        assert!(matches!(parse("{"), Err(ConfigError::Syntax { .. })));
    }
}
