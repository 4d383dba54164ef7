//! The first prompt on the device: proof that program, libraries and bundle fit, and the first figures.

use anyhow::{Context, Result};
use genie_bundle::CONFIG_FILE;
use serde::Serialize;
use serde_json::Value;

use super::device::{Device, Probe, ask, quoted};
use super::parcel::{Backend, PROGRAM};

/// What is asked.
pub struct Question<'a> {
    /// The prompt.
    pub prompt: &'a str,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Who executes the graphs.
    pub backend: Backend,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct FirstRun {
    /// `genie -V`, as the program on the device prints it.
    pub version: String,
    /// The reply.
    pub text: String,
    /// Tokens of the reply.
    pub n_tokens: usize,
    /// Why it ended.
    pub stop: String,
    /// Milliseconds from the query to the first token.
    pub time_to_first_token_ms: f64,
    /// Tokens/s while the prompt was read.
    pub prompt_rate: Option<f64>,
    /// Tokens/s after the first.
    pub generation_rate: Option<f64>,
}

impl FirstRun {
    /// Asks.
    pub fn on(device: &dyn Device, probe: &Probe, question: &Question<'_>) -> Result<Self> {
        let dir = &probe.dir;
        // The DSP's own loader separates folders by semicolons.
        let env = format!(
            "cd {dir} && export LD_LIBRARY_PATH={lib} ADSP_LIBRARY_PATH={adsp} && ",
            dir = quoted(dir),
            lib = quoted(&format!("{dir}/lib")),
            adsp = quoted(&format!("{dir}/lib;/vendor/lib/rfsa/adsp;/vendor/dsp/cdsp;/usr/lib/rfsa/adsp;/dsp")),
        );
        let program = quoted(&format!("{dir}/{PROGRAM}"));
        let version = ask(device, "start the program", &format!("{env}{program} -V"))?.trim().to_owned();
        let backend = match question.backend {
            Backend::Host => "host".to_owned(),
            Backend::Htp => format!("{dir}/lib/libQnnHtp.so"),
        };
        let script = format!(
            "{env}{program} --quiet run -c bundle/{CONFIG_FILE} --backend {} -p {} -n {} --json",
            quoted(&backend),
            quoted(question.prompt),
            question.max_tokens
        );
        let output = ask(device, "run a first prompt", &script)?;
        let line = output.lines().rev().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("the program on `{}` printed no record: {output}", device.name()))?;
        let record: Value = serde_json::from_str(line).with_context(|| format!("no record: `{line}`"))?;
        Self::read(version, &record).with_context(|| format!("a record without its fields: {line}"))
    }

    fn read(version: String, record: &Value) -> Option<Self> {
        let kpis = record.get("kpis")?;
        Some(Self {
            version,
            text: record.get("text")?.as_str()?.to_owned(),
            n_tokens: record.get("tokens")?.as_array()?.len(),
            stop: record.get("stop")?.as_str()?.to_owned(),
            time_to_first_token_ms: kpis.get("time-to-first-token")?.as_f64()? / 1e3,
            prompt_rate: kpis.get("prompt-processing-rate")?.as_f64(),
            generation_rate: kpis.get("token-generation-rate")?.as_f64(),
        })
    }
}
