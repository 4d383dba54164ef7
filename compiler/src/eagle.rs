//! EAGLE heads: a small decoder that drafts for another model from its hidden states, opened as a model of its own.
//!
//! *What it computes*: `x = fc([embedding(token), hidden])`, where `hidden` is the last hidden state of the token before; then its layers, the
//! first of them without a norm before attention; what comes out is its own hidden state, and through the other model's LM head,
//! without a last norm, its logits. The other model's hidden states are those behind its last norm.
//!
//! *Files*: `config.json` of a Llama of a layer or more, and safetensors with `fc.weight`, `layers.N..` and perhaps `embed_tokens.weight`. The
//! LM head, the tokenizer, and the embedding where there is none are the other model's.
//!
//! *Source*: Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty" (2024), and EAGLE-2.

use std::path::Path;

use crate::checkpoint::Checkpoint;
use crate::family::{CONFIG, Configuration, EagleHead, ModelSpec};
use crate::model::Model;
use crate::model_files::ModelFiles;
use crate::{CompileError, Result};

const PREFIX: &str = "model.";
const FC: &str = "model.fc.weight";
const TABLE: &str = "model.embed_tokens.weight";
const LM_HEAD: &str = "lm_head.weight";
/// Parts of tensors' names that only EAGLE-3 has.
const EAGLE_3: [&str; 3] = ["midlayer.", "d2t", "t2d"];

impl Model {
    /// Opens the head in a folder, which drafts for a target.
    ///
    /// # Errors
    /// Those of opening either; a head of another kind or for another target; a target whose hidden states are not what such a head takes.
    pub(crate) fn open_eagle(dir: &Path, target: &Path) -> Result<Self> {
        let target = Self::open(target)?;
        check_hidden_states(&target.spec)?;
        let Configuration { mut spec, mut notes, .. } = Configuration::read(&ModelFiles::Folder(dir.into()))?;
        let mut checkpoint = Checkpoint::open(dir)?;
        if let Some(name) = checkpoint.tensors().keys().find(|name| EAGLE_3.iter().any(|part| name.contains(part))) {
            return Err(CompileError::EagleForm { dir: dir.into(), found: format!("`{name}`, of EAGLE-3") });
        }
        for (what, expected, found) in
            [("`hidden_size`", target.spec.hidden, spec.hidden), ("`vocab_size`", target.spec.vocab, spec.vocab)]
        {
            if expected != found {
                return Err(CompileError::EagleOther { what, expected, found });
            }
        }
        check_hidden_states(&spec)?;
        checkpoint.rename(|name| (!name.starts_with(PREFIX) && name != LM_HEAD).then(|| format!("{PREFIX}{name}")))?;
        let source = if target.spec.tied { TABLE } else { LM_HEAD };
        for (name, from) in [(TABLE, TABLE), (LM_HEAD, source)] {
            if !checkpoint.tensors().contains_key(name) {
                checkpoint.take_from(&target.checkpoint, from, name)?;
            }
        }
        let has = |name: &str| checkpoint.tensors().contains_key(name);
        if !has(FC) {
            return Err(CompileError::EagleForm { dir: dir.into(), found: "no `fc.weight`".into() });
        }
        spec.eagle =
            Some(EagleHead { fc_bias: has("model.fc.bias"), first_norm: has("model.layers.0.input_layernorm.weight") });
        spec.tied = false;
        (spec.tokens, spec.sampler) = (target.spec.tokens.clone(), target.spec.sampler);
        notes.extend_from_slice(checkpoint.notes());
        Ok(Self { spec, checkpoint, files: target.files, other_files: vec![dir.join(CONFIG)], notes })
    }
}

/// Refuses models whose last norm has factors folded into it: what comes out of it is not the model's hidden state.
pub(crate) fn check_hidden_states(spec: &ModelSpec) -> Result<()> {
    let factors = &spec.factors;
    if factors.logits != 1.0 || factors.logits_cap.is_some() || factors.embedding != 1.0 {
        return Err(CompileError::HiddenStatesOf { family: spec.family.name() });
    }
    Ok(())
}
