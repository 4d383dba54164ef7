//! What to compile: model, output, variants, splits, number formats.
//!
//! *Units*: AR, CL in tokens. *Invariants*: checked by [`CompileOptions::variants`] and [`CompileOptions::check`].

use crate::kv_peaks::KvPeaks;
use crate::{CompileError, HtpOptions, Result};
pub use genie_bundle::manifest::{
    CacheUpdate, GraphKinds, KvCacheType, PdGraphs, PdUpdate, Precision, Splits, Weights,
};
use genie_types::{Ar, Cl, Variant};
use std::path::PathBuf;

/// The input of [`crate::compile()`], which checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// Hugging Face directory (`config.json`, safetensors, `tokenizer.json`), or a GGUF file.
    pub model_dir: PathBuf,
    /// Bundle directory to make.
    pub out_dir: PathBuf,
    /// Input widths (AR), in tokens.
    pub ars: Vec<u32>,
    /// Context lengths (CL), in tokens. Each AR is compiled for every CL that is at least as long.
    pub cls: Vec<u32>,
    /// Where the model is cut into context binaries.
    pub splits: Splits,
    /// Decoder layers in a split; `None` puts them all in one. Needs a layout other than [`Splits::Mono`].
    pub layers_per_split: Option<usize>,
    /// Puts all splits into one context binary, which then holds shared tensors (the table of a tied head) once. For the
    /// embedded backend; chips read one file per split.
    pub one_file: bool,
    /// Element type of activations, cache and weights that have no format of their own.
    pub precision: Precision,
    /// How the weights of linear layers are stored; `None` as the model has them: bfloat16 stays bf16, other floats are
    /// float, the blocks of a quantised GGUF file stay blocks.
    pub weights: Option<Weights>,
    /// Kinds of graphs beside the plain ones.
    pub kinds: GraphKinds,
    /// What the scales of a cache of type [`KvCacheType::U8`] are made of; without use for other types.
    pub kv_peaks: Option<KvPeaks>,
    /// LoRA adapters in the bundle, which switch at run time.
    pub lora: Vec<AdapterSource>,
    /// Folders of LoRA adapters that are added to the weights.
    pub lora_merge: Vec<PathBuf>,
    /// The model is an EAGLE head, which drafts for this one: folder or GGUF file. Its embedding, LM head and tokenizer are taken from there.
    pub eagle_of: Option<PathBuf>,
    /// The Hexagon chip to compile for; `None` for the backend's own device.
    pub htp: Option<HtpOptions>,
    /// Replace a bundle in the output directory; what else is there stays. A directory without a bundle is never replaced.
    pub force: bool,
}

impl CompileOptions {
    /// The defaults: AR 1, 32, 128; CL 512, 2048; one split; f16, weights as the model has them.
    pub fn new(model_dir: impl Into<PathBuf>, out_dir: impl Into<PathBuf>) -> Self {
        Self {
            model_dir: model_dir.into(),
            out_dir: out_dir.into(),
            ars: vec![1, 32, 128],
            cls: vec![512, 2048],
            splits: Splits::Mono,
            layers_per_split: None,
            one_file: false,
            precision: Precision::F16,
            weights: None,
            kinds: GraphKinds::default(),
            kv_peaks: None,
            lora: Vec::new(),
            lora_merge: Vec::new(),
            eagle_of: None,
            htp: None,
            force: false,
        }
    }

    /// The variants to compile, ascending by context length, then width, without duplicates.
    ///
    /// # Errors
    /// An empty list, a zero, or an AR wider than every CL.
    pub fn variants(&self) -> Result<Vec<Variant>> {
        // Of fused graphs only the context counts.
        let only_fused = self.kinds.pd.as_ref().is_some_and(|pd| pd.only);
        let ars = widths("AR", if only_fused { &[1] } else { &self.ars }, Ar::new)?;
        let cls = widths("CL", &self.cls, Cl::new)?;
        let mut variants = Vec::new();
        for &ar in &ars {
            let before = variants.len();
            variants.extend(cls.iter().filter_map(|&cl| Variant::from_widths(ar, cl).ok()));
            if variants.len() == before {
                let longest = cls.iter().map(|cl| cl.get()).max().unwrap_or(0);
                return Err(CompileError::ArTooWide { ar: ar.get(), longest_cl: longest });
            }
        }
        variants.sort();
        variants.dedup();
        Ok(variants)
    }

    /// Checks what can be checked without the model.
    ///
    /// # Errors
    /// Those of [`Self::variants`]; a `layers_per_split` of zero or without a split layout; a chip that cannot run
    /// the precision, or is to read all splits from one file.
    pub fn check(&self) -> Result<()> {
        self.variants()?;
        if let Some(htp) = &self.htp {
            htp.check(self.precision, self.weights.unwrap_or_default())?;
            if self.one_file {
                return Err(CompileError::OneFileForChip { target: htp.target() });
            }
        }
        self.check_kinds()?;
        self.check_pd()?;
        match (self.layers_per_split, self.splits) {
            (Some(0), _) => return Err(CompileError::ZeroLayersPerSplit),
            (Some(n), Splits::Mono) => return Err(CompileError::LayersPerSplitInMono { layers: n }),
            _ => {}
        }
        // Last: who measures them asks what else there is to refuse.
        if self.kinds.kv_cache == KvCacheType::U8 && self.kv_peaks.is_none() {
            return Err(CompileError::NoKvPeaks);
        }
        Ok(())
    }
}

impl CompileOptions {
    /// The kinds of graphs fit the widths and the splits.
    fn check_kinds(&self) -> Result<()> {
        let GraphKinds { rows_only, head, .. } = &self.kinds;
        for (what, list) in [("graphs of cache rows only", rows_only), ("the LM head", head)] {
            if let Some(&ar) = list.iter().find(|ar| !self.ars.contains(ar)) {
                return Err(CompileError::KindWidth { what, ar, ars: self.ars.clone() });
            }
        }
        if self.ars.iter().all(|ar| rows_only.contains(ar)) {
            return Err(CompileError::NoLogits);
        }
        if !head.is_empty() && self.splits == Splits::Mono {
            return Err(CompileError::HeadInMono);
        }
        if !head.is_empty() && head.iter().all(|ar| rows_only.contains(ar)) {
            return Err(CompileError::NoLogits);
        }
        if let Some(least) = self.ars.iter().filter(|ar| !rows_only.contains(ar)).min()
            && !head.is_empty()
            && head.iter().all(|ar| ar > least)
        {
            return Err(CompileError::HeadTooWide { least: *least, head: head.clone() });
        }
        // Where the head is a split of its own, the engine runs it for single rows.
        if let Some(&least) = self.ars.iter().min().filter(|ar| rows_only.contains(ar))
            && self.splits != Splits::Mono
        {
            return Err(CompileError::RowsOnlyLeast { least });
        }
        if !rows_only.is_empty() && !self.lora.is_empty() {
            return Err(CompileError::RowsOnlyAndLora);
        }
        if self.kinds.hidden_states || self.eagle_of.is_some() {
            // Every graph must give them, and as the plain head makes them.
            let others = [
                (!rows_only.is_empty(), "graphs of cache rows only"),
                (!head.is_empty(), "an LM head of some widths only"),
                (self.kinds.head_weight_input, "the LM head's weight as an input"),
                (self.kinds.pd.is_some(), "fused graphs"),
                // The engine runs such a head for the rows whose logits are wanted only.
                (self.splits != Splits::Mono, "an LM head in a split of its own"),
                (self.eagle_of.is_some() && !(self.lora.is_empty() && self.lora_merge.is_empty()), "LoRA adapters"),
            ];
            if let Some((_, what)) = others.into_iter().find(|(asked, _)| *asked) {
                return Err(CompileError::HiddenStatesWith { what });
            }
        }
        if matches!(self.kinds.kv_cache, KvCacheType::Rows | KvCacheType::Q8_0) {
            let cache = self.kinds.kv_cache.name();
            if let Some(htp) = &self.htp {
                return Err(CompileError::CacheTypeForChip { cache, target: htp.target() });
            }
            let others = [
                (self.kinds.native_kv, "a cache in tiles"),
                (self.kinds.cache != CacheUpdate::Concat, "graphs that write new rows into the past"),
                (self.kinds.pd.is_some(), "fused graphs: they take type u8"),
            ];
            if let Some((_, what)) = others.into_iter().find(|(asked, _)| *asked) {
                return Err(CompileError::CacheTypeWith { cache, what });
            }
        }
        if self.kinds.kv_cache == KvCacheType::U8 {
            let others = [
                (self.kinds.native_kv, "a cache in tiles"),
                (self.eagle_of.is_some(), "an EAGLE head: no text alone gives its rows"),
            ];
            if let Some((_, what)) = others.into_iter().find(|(asked, _)| *asked) {
                return Err(CompileError::CacheTypeWith { cache: "u8", what });
            }
        }
        if self.kinds.embeddings_input && self.splits == Splits::LutDecoderLmhead {
            return Err(CompileError::EmbeddingsAndLut);
        }
        Ok(())
    }
}

impl CompileOptions {
    /// Rows of a fused pair fit the context, and nothing is asked for that these graphs do not have.
    fn check_pd(&self) -> Result<()> {
        let Some(pd) = &self.kinds.pd else { return Ok(()) };
        let context = self.cls.iter().copied().max().unwrap_or(0);
        // Past rows must be left, and with an update in the graph one of them is not used.
        let least_past = if pd.update == PdUpdate::Graph { 2 } else { 1 };
        if pd.total_lens.is_empty() {
            return Err(CompileError::NoWidths { what: "total length of fused graphs" });
        }
        if let Some(&rows) = pd.total_lens.iter().find(|&&n| n < 2 || n.saturating_add(least_past) > context) {
            return Err(CompileError::PdRows { rows, most: context.saturating_sub(least_past), context });
        }
        if !self.lora.is_empty() {
            return Err(CompileError::PdAndLora);
        }
        let with = [
            (self.kinds.embeddings_input, "embeddings as input"),
            (self.kinds.head_weight_input, "the LM head's weight as an input"),
            (self.kinds.native_kv, "a cache in tiles"),
            // Without plain graphs there is nothing that these would be of.
            (pd.only && !self.kinds.rows_only.is_empty(), "graphs of cache rows only beside no others"),
            (pd.only && !self.kinds.head.is_empty(), "an LM head of some widths beside no plain graphs"),
            (
                pd.only && self.kinds.cache != CacheUpdate::Concat,
                "a cache that plain graphs update, beside no plain graphs",
            ),
            (pd.only && self.layers_per_split.is_some(), "layers in splits beside no plain graphs"),
        ];
        if let Some(htp) = self.htp.as_ref().filter(|_| pd.update == PdUpdate::Op) {
            return Err(CompileError::PdOpForChip { target: htp.target() });
        }
        match with.iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(CompileError::PdWith { what }),
            None => Ok(()),
        }
    }
}

/// An adapter to compile into a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterSource {
    /// Its name in the bundle; `None` for the folder's.
    pub name: Option<String>,
    /// Its folder.
    pub dir: PathBuf,
}

impl AdapterSource {
    /// The adapter in a folder, by the folder's name.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { name: None, dir: dir.into() }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Reads `DIR` or `NAME=DIR`.
    pub fn parse(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, dir)) if !name.contains('/') => Self::new(dir).named(name),
            _ => Self::new(text),
        }
    }
}

fn widths<T>(what: &'static str, values: &[u32], make: impl Fn(u32) -> Option<T>) -> Result<Vec<T>> {
    if values.is_empty() {
        return Err(CompileError::NoWidths { what });
    }
    values.iter().map(|&n| make(n).ok_or(CompileError::ZeroWidth { what })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ars: &[u32], cls: &[u32]) -> Result<Vec<String>> {
        let options = CompileOptions { ars: ars.into(), cls: cls.into(), ..CompileOptions::new("m", "o") };
        Ok(options.variants()?.iter().map(Variant::to_string).collect())
    }

    #[test]
    fn pairs_that_fit_are_compiled_in_planning_order() {
        assert_eq!(names(&[32, 1], &[512, 128]).unwrap(), ["ar1_cl128", "ar32_cl128", "ar1_cl512", "ar32_cl512"]);
        assert_eq!(names(&[1, 128], &[64, 512]).unwrap(), ["ar1_cl64", "ar1_cl512", "ar128_cl512"]);
        assert_eq!(names(&[1, 1], &[64]).unwrap(), ["ar1_cl64"]);
    }

    #[test]
    fn bad_options_are_refused_with_the_reason() {
        struct Case {
            change: fn(&mut CompileOptions),
            message: &'static str,
        }
        let cases = [
            Case { change: |o| o.ars.clear(), message: "no AR given: need at least one width in tokens" },
            Case { change: |o| o.cls = vec![0, 8], message: "CL 0: expected at least 1 token" },
            Case { change: |o| o.ars = vec![1, 4096], message: "AR-4096 is wider than the longest context, CL-2048" },
            Case {
                change: |o| o.layers_per_split = Some(4),
                message: "4 layers per split asked for, but layout `mono` has only one split",
            },
            Case {
                change: |o| (o.layers_per_split, o.splits) = (Some(0), Splits::DecoderLmhead),
                message: "0 layers per split: need at least 1",
            },
            Case {
                change: |o| o.kinds.rows_only = vec![8],
                message: "AR-8 for graphs of cache rows only: expected one of the widths that are compiled, 1, 32, 128",
            },
            Case {
                change: |o| (o.kinds.head, o.splits) = (vec![2], Splits::DecoderLmhead),
                message: "AR-2 for the LM head: expected one of the widths that are compiled, 1, 32, 128",
            },
            Case {
                change: |o| o.kinds.rows_only = vec![128, 1, 32],
                message: "no graph gives logits: every width is for graphs of cache rows only",
            },
            Case {
                change: |o| (o.kinds.rows_only, o.splits) = (vec![1], Splits::DecoderLmhead),
                message: "AR-1 for graphs of cache rows only: the narrowest width needs the LM head where that is a split of its own",
            },
            Case {
                change: |o| {
                    (o.kinds.rows_only, o.kinds.head) = (vec![1], vec![32]);
                    o.splits = Splits::LutDecoderLmhead;
                },
                message: "AR-1 for graphs of cache rows only: the narrowest width needs the LM head where that is a split of its own",
            },
            Case {
                change: |o| o.kinds.head = vec![1],
                message: "widths of the LM head were given, but layout `mono` has no split for it",
            },
            Case {
                change: |o| (o.kinds.head, o.splits) = (vec![32, 128], Splits::DecoderLmhead),
                message: "the LM head's widths 32, 128 leave steps of AR-1 without logits",
            },
            Case {
                change: |o| (o.kinds.hidden_states, o.kinds.rows_only) = (true, vec![128]),
                message: "hidden states do not go together with graphs of cache rows only",
            },
            Case {
                change: |o| (o.kinds.hidden_states, o.splits) = (true, Splits::DecoderLmhead),
                message: "hidden states do not go together with an LM head in a split of its own",
            },
            Case {
                change: |o| (o.eagle_of, o.kinds.head_weight_input) = (Some("t".into()), true),
                message: "hidden states do not go together with the LM head's weight as an input",
            },
            Case {
                change: |o| (o.kinds.kv_cache, o.kinds.native_kv) = (KvCacheType::Q8_0, true),
                message: "a cache of type q8_0 does not go together with a cache in tiles",
            },
            Case {
                change: |o| (o.kinds.kv_cache, o.kinds.cache) = (KvCacheType::Q8_0, CacheUpdate::ScatterEach),
                message: "a cache of type q8_0 does not go together with graphs that write new rows into the past",
            },
            Case {
                change: |o| (o.kinds.kv_cache, o.kinds.native_kv) = (KvCacheType::Rows, true),
                message: "a cache of type rows does not go together with a cache in tiles",
            },
            Case {
                change: |o| (o.kinds.kv_cache, o.kinds.native_kv) = (KvCacheType::U8, true),
                message: "a cache of type u8 does not go together with a cache in tiles",
            },
            Case {
                change: |o| o.kinds.kv_cache = KvCacheType::U8,
                message: "a cache of type u8 needs the largest key and value of each layer, and none are given",
            },
            Case {
                change: |o| {
                    o.kinds.kv_cache = KvCacheType::Q8_0;
                    o.kinds.pd = Some(PdGraphs { total_lens: vec![8], ..PdGraphs::default() });
                },
                message: "a cache of type q8_0 does not go together with fused graphs: they take type u8",
            },
            Case {
                change: |o| {
                    (o.splits, o.layers_per_split) = (Splits::DecoderLmhead, Some(2));
                    o.kinds.pd = Some(PdGraphs { total_lens: vec![8], only: true, ..PdGraphs::default() });
                },
                message: "fused graphs have no form with layers in splits beside no plain graphs",
            },
            Case {
                change: |o| {
                    o.kinds.cache = CacheUpdate::ScatterEach;
                    o.kinds.pd = Some(PdGraphs { total_lens: vec![8], only: true, ..PdGraphs::default() });
                },
                message: "fused graphs have no form with a cache that plain graphs update, beside no plain graphs",
            },
            Case {
                change: |o| (o.kinds.embeddings_input, o.splits) = (true, Splits::LutDecoderLmhead),
                message: "graphs that take embeddings have no split with the embedding table",
            },
        ];
        for case in cases {
            let mut options = CompileOptions::new("m", "o");
            (case.change)(&mut options);
            assert_eq!(options.check().unwrap_err().to_string(), case.message);
        }
    }
}
