//! A config for another version of Genie's API: keys that moved are moved, those that only tune are left out, and what the version cannot
//! express is refused. Nothing is dropped without a line about it.
//!
//! *Source*: as `api_versions`.

use serde_json::{Map, Value, json};

use super::api_versions::{GenieApi, rejected_by};
use super::problem::Problem;
use super::validate;

/// A converted config.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// The config for the asked version.
    pub document: Value,
    /// What is different, by its place in the config as it was, in the order of the steps.
    pub changes: Vec<Problem>,
}

/// Why a config cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// It is not valid to begin with.
    #[error("the config is not valid")]
    Invalid {
        /// All of them.
        problems: Vec<Problem>,
    },
    /// It asks for what that version does not have.
    #[error("API {api} cannot express the config")]
    Inexpressible {
        /// The asked version.
        api: GenieApi,
        /// Each key that stands against it.
        problems: Vec<Problem>,
    },
}

impl ConvertError {
    /// The findings.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid { problems } | Self::Inexpressible { problems, .. } => problems,
        }
    }
}

/// Keys that change speed or memory only, by their place, and what happens without them. A value other than the second is kept, so
/// that it is refused.
const TUNING: &[(&str, Option<&Value>, &str)] = &[
    ("/dialog/engine/batching", None, "queries run one after the other"),
    ("/dialog/engine/backend/QnnHtp/enable-graph-switching", None, "all graphs stay loaded"),
    ("/dialog/engine/backend/QnnHtp/graph-retention-order", None, "all graphs stay loaded"),
    ("/dialog/engine/backend/QnnHtp/graph-switching-lora-policy", None, "all graphs stay loaded"),
    ("/dialog/engine/backend/QnnHtp/weight-shared-lora", Some(&Value::Bool(false)), "it is off"),
    ("/dialog/engine/backend/QnnHtp/multi-nsp-prefill", Some(&Value::Bool(false)), "it is off"),
    ("/dialog/max-num-tokens", None, "replies end at an end token or at the context's limit"),
];

/// Converts a config of any version to one that `to` accepts.
///
/// # Errors
/// [`ConvertError`]; every key that stands against it is listed.
pub fn convert(document: &Value, to: GenieApi) -> Result<Conversion, ConvertError> {
    let problems = validate(document);
    if !problems.is_empty() {
        return Err(ConvertError::Invalid { problems });
    }
    let mut steps = Steps { document: document.clone(), changes: Vec::new() };
    if to >= (GenieApi { major: 1, minor: 2 }) {
        steps.positions_to_the_model();
    } else {
        steps.positions_to_the_backend();
        steps.one_end_token();
    }
    if to >= GenieApi::NEWEST {
        steps.drop_deprecated();
    } else {
        steps.binaries_by_their_older_name();
    }
    steps.drop_empty(to);
    steps.drop_tuning(to);
    let mut problems = rejected_by(&steps.document, to);
    problems.extend(validate(&steps.document));
    if problems.is_empty() {
        return Ok(Conversion { document: steps.document, changes: steps.changes });
    }
    Err(ConvertError::Inexpressible { api: to, problems })
}

struct Steps {
    document: Value,
    changes: Vec<Problem>,
}

const MODEL: &str = "/dialog/engine/model";
const HTP: &str = "/dialog/engine/backend/QnnHtp";
const CONTEXT: &str = "/dialog/context";

impl Steps {
    fn block(&mut self, pointer: &str) -> Option<&mut Map<String, Value>> {
        self.document.pointer_mut(pointer)?.as_object_mut()
    }

    fn take(&mut self, block: &str, key: &str) -> Option<Value> {
        self.block(block)?.shift_remove(key)
    }

    fn note(&mut self, pointer: String, text: impl Into<String>) {
        self.changes.push(Problem::new(pointer, text));
    }

    /// Since 1.2 the model states its positions: `pos-id-dim` and `rope-theta` of the backend become its `positional-encoding`.
    fn positions_to_the_model(&mut self) {
        let Some(dim) = self.take(HTP, "pos-id-dim") else { return };
        let mut encoding = json!({"type": "rope", "rope-dim": dim});
        self.note(format!("{HTP}/pos-id-dim"), "moved to `positional-encoding/rope-dim` of the model");
        if let Some(theta) = self.take(HTP, "rope-theta") {
            encoding["rope-theta"] = theta;
            self.note(format!("{HTP}/rope-theta"), "moved to `positional-encoding/rope-theta` of the model");
        }
        if let Some(model) = self.block(MODEL) {
            model.insert("positional-encoding".into(), encoding);
        }
    }

    /// The other way round. What only `positional-encoding` can say keeps it where it is, so that it is refused.
    fn positions_to_the_backend(&mut self) {
        let known = |encoding: &Map<String, Value>| {
            let plain = |key: &str, value: &Value| match key {
                "version" | "rope-dim" | "rope-theta" => true,
                "type" => value == "rope",
                "rope-scaling" => value.get("rope-type").is_none_or(|kind| kind == "default"),
                _ => false,
            };
            encoding.contains_key("rope-dim") && encoding.iter().all(|(key, value)| plain(key, value))
        };
        let at = format!("{MODEL}/positional-encoding");
        let encoding = match self.document.pointer(&at) {
            Some(Value::Array(items)) if items.len() == 1 => items[0].clone(),
            Some(encoding) => encoding.clone(),
            None => return self.width_of_positions(),
        };
        let Some(encoding) = encoding.as_object().filter(|encoding| known(encoding)) else { return };
        self.take(MODEL, "positional-encoding");
        for (key, older) in [("rope-dim", "pos-id-dim"), ("rope-theta", "rope-theta")] {
            if let (Some(value), Some(htp)) = (encoding.get(key), self.block(HTP)) {
                htp.insert(older.into(), value.clone());
                self.note(format!("{at}/{key}"), format!("moved to `{older}` of `QnnHtp`"));
            }
        }
        if encoding.contains_key("rope-scaling") {
            self.note(format!("{at}/rope-scaling"), "left out: it scales nothing");
        }
    }

    /// 1.0 demands `pos-id-dim`: half of a head's width, where that is stated.
    fn width_of_positions(&mut self) {
        let Some(htp) = self.block(HTP).filter(|htp| !htp.contains_key("pos-id-dim")) else { return };
        let Some(width) = htp.get("kv-dim").and_then(Value::as_u64).filter(|width| width.is_multiple_of(2)) else {
            return;
        };
        htp.insert("pos-id-dim".into(), (width / 2).into());
        self.note(format!("{HTP}/pos-id-dim"), format!("added: half of `kv-dim`, {}", width / 2));
    }

    /// 1.0 and 1.1 take one end token, and an end-of-turn token beside it.
    fn one_end_token(&mut self) {
        let Some(context) = self.block(CONTEXT) else { return };
        let Some(Value::Array(ids)) = context.get("eos-token").cloned() else { return };
        let eot_is_free = context.get("eot-token").is_none_or(|id| *id == -1);
        match &ids[..] {
            [only] => {
                context["eos-token"] = only.clone();
                self.note(format!("{CONTEXT}/eos-token"), "written as one id");
            }
            [first, second] if eot_is_free => {
                context["eos-token"] = first.clone();
                context.insert("eot-token".into(), second.clone());
                self.note(format!("{CONTEXT}/eos-token/1"), "moved to `eot-token`, which ends a reply as well");
            }
            _ => {}
        }
    }

    fn binaries_by_their_older_name(&mut self) {
        let binary = format!("{MODEL}/binary");
        if let Some(bins) = self.take(&binary, "fcb")
            && let Some(block) = self.block(&binary)
        {
            block.insert("ctx-bins".into(), bins);
            self.note(format!("{binary}/fcb"), "renamed to `ctx-bins`");
        }
    }

    /// Accepted by the newest version, and read by it no more.
    fn drop_deprecated(&mut self) {
        let grammar = format!("{CONTEXT}/grammar");
        for (block, key) in [(HTP, "kv-update-method"), (&grammar[..], "tokenizer-json")] {
            if self.take(block, key).is_some() {
                self.note(format!("{block}/{key}"), "left out: deprecated and ignored since");
            }
        }
    }

    /// Blocks that say "none".
    fn drop_empty(&mut self, to: GenieApi) {
        let rejected: Vec<String> = rejected_by(&self.document, to).into_iter().map(|p| p.pointer).collect();
        for (block, key, is_none) in EMPTY {
            let at = format!("{block}/{key}");
            if rejected.contains(&at) && self.document.pointer(&at).is_some_and(is_none) {
                self.take(block, key);
                self.note(at, "left out: it is empty");
            }
        }
    }

    fn drop_tuning(&mut self, to: GenieApi) {
        let rejected: Vec<String> = rejected_by(&self.document, to).into_iter().map(|p| p.pointer).collect();
        for (at, only, without) in TUNING.iter().filter(|(at, ..)| rejected.iter().any(|r| r == at)) {
            let Some((block, key)) = at.rsplit_once('/') else { continue };
            if only.is_none_or(|only| self.document.pointer(at) == Some(only)) {
                self.take(block, key);
                self.note((*at).into(), format!("left out: unknown to API {to}; {without}"));
            }
        }
    }
}

/// Block, key, and whether its value asks for nothing.
type EmptyBlock = (&'static str, &'static str, fn(&Value) -> bool);

const EMPTY: &[EmptyBlock] = &[
    (CONTEXT, "grammar", |g| g.get("backend").and_then(Value::as_str).is_none_or(str::is_empty)),
    ("/dialog", "harmony", |h| h.get("type").is_none() && h.get("chat-format").is_none_or(|f| f == "none")),
    ("/dialog/engine/model/binary", "lora", has_no_adapters),
    ("/dialog/engine/model/library", "lora", has_no_adapters),
];

fn has_no_adapters(lora: &Value) -> bool {
    lora.get("adapters").and_then(Value::as_array).is_some_and(Vec::is_empty)
}
