//! The backend extension config that a bundle may name (`htp_backend_ext_config.json`): chip and clocks.
//!
//! Of its many keys the chip's number and the performance profile have an effect here. The others configure Qualcomm's own
//! tools and are ignored, known or not; the keys with an effect must have the right type.

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
}

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
        let want = HtpExtensions { soc: Some(57), dsp_arch: Some(75), perf_profile: Some("burst".into()) };
        assert_eq!(parse(text).unwrap(), want);
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
