//! Words the compiler's hints.

use compiler::{CompileError, Hint};

/// The hint of a compile error.
pub fn of(error: &CompileError) -> Option<String> {
    error.hint().map(|hint| words(&hint))
}

fn words(hint: &Hint) -> String {
    match hint {
        Hint::LongerContext { at_least } => format!("add a `--cl` of at least {at_least}, or remove that `--ar`"),
        Hint::ChipWithFloat16 { arch } => format!(
            "V73 and later have it (for example `--soc sm8550`); a V{arch} needs graphs with quantised activations, \
             which this compiler does not make"
        ),
        Hint::DefaultPrecisionOrNoChip => {
            "omit `--precision`, or omit `--soc` to compile for this machine's CPU".into()
        }
        Hint::WeightsW8OrFloat => "use `--weights w8`, or omit the flag for float16".into(),
        Hint::WeightsW8 => "use `--weights w8`".into(),
        Hint::PrecisionF32 => "use `--precision f32`".into(),
        Hint::HtpLibrary => "pass Qualcomm's `libQnnHtp.so`: `genie runtime fetch` gets it".into(),
        Hint::OpenForChip => "open the backend for the same chip".into(),
        Hint::FinerSplits { splits, layers_per_split } => {
            let layers = layers_per_split.map_or_else(String::new, |n| format!(" --layers-per-split {n}"));
            format!("use `--splits {splits}{layers}`, fewer `--ar` and `--cl`, or `--share-weights` for a device")
        }
        Hint::SmallerBundle => {
            "no split is fine enough: use fewer `--ar` and `--cl`, `--weights w8`, or `--share-weights` for a device"
                .into()
        }
        Hint::FewerLayersPerSplit => "use `--layers-per-split` with fewer layers, or fewer `--ar` and `--cl`".into(),
        Hint::MergeAdapters => "`--lora-merge` adds an adapter to the weights for good".into(),
        Hint::NoFusedGraphs => {
            "fused graphs come from `--pd-total-lens`: compile without it, or without the other".into()
        }
        Hint::LayoutWithSplits => "use `--splits decoder-lmhead` or `lut-decoder-lmhead`".into(),
        Hint::WiderRowsOnlyOrMono => "give wider widths to `--rows-only`, or use `--splits mono`".into(),
        Hint::MergeShards => "merge the files first: `llama-gguf-split --merge FIRST_FILE OUT.gguf`".into(),
        Hint::Requantise => {
            "re-quantise the model to Q4_K_M or Q8_0 with `llama-quantize`, from its F16 or BF16 file".into()
        }
        Hint::ModelNotPart => "pass the GGUF file of the model itself".into(),
        Hint::ConvertWithTokenizer => "convert the model again, with the tokenizer that belongs to it".into(),
        Hint::NewerFormat => {
            "the text would be wrong without it: use a model of llama, qwen2 or qwen3 as published, or a newer `genie`"
                .into()
        }
        Hint::ConvertAgain => {
            "the file's keys and tensors do not fit together: convert the model again, or download it again".into()
        }
        Hint::CompileFile(path) => format!("compile the file itself: pass `{}`", path.display()),
        Hint::ConvertToSafetensors(file) => {
            format!("`{file}` is in another format: save the model as safetensors first")
        }
        Hint::ModelDirectory => "pass the directory that holds config.json".into(),
        Hint::DownloadAgain => "the file is incomplete or damaged: download it again".into(),
        Hint::MissingTensor { near, maybe_tied } => {
            let names = near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let tied = "does config.json lack `\"tie_word_embeddings\": true`?";
            match (near.is_empty(), maybe_tied) {
                (true, _) => tied.into(),
                (false, true) => format!("similar names: {names}; or {tied}"),
                (false, false) => format!("similar names: {names}"),
            }
        }
        Hint::SetKey { key } => {
            format!("if the model has it, set `{key}` to true in config.json; else remove the tensor")
        }
        Hint::RemoveKey { key } => {
            format!(
                "this compiler does not know it; if the model computes the same without it, remove `{key}` from the file"
            )
        }
        Hint::SimilarKeys { near } => {
            format!("similar keys: {}", near.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "))
        }
        Hint::OtherFamilyOrConfig => {
            "text generated without it would be wrong: config.json may belong to another model, or the model computes \
             something that this compiler does not know"
                .into()
        }
        Hint::UntieOrDropHead => {
            "set `tie_word_embeddings` to false in config.json to use the head, or remove the tensor".into()
        }
        Hint::OtherConfig => "config.json may belong to another model".into(),
        Hint::PassModel => "pass a folder with config.json, safetensors and tokenizer.json, or a GGUF file".into(),
        Hint::AlreadyCompiled => "it is compiled already: `genie run -c` runs it".into(),
        Hint::ConvertTokenizer { from: Some(file) } => format!(
            "only `{file}` is there: write tokenizer.json with transformers, \
             `AutoTokenizer.from_pretrained(DIR, use_fast=True).save_pretrained(DIR)`"
        ),
        Hint::ConvertTokenizer { from: None } => "download the model's tokenizer.json into the same folder".into(),
        Hint::SaveAsFloat => "save the weights as float32, float16 or bfloat16 first".into(),
        Hint::UnquantisedCheckpoint => "start from the checkpoint that is not quantised".into(),
        Hint::OtherDirectoryOrForce => {
            "choose another folder, or use `--force` to replace the bundle; other files in the folder stay".into()
        }
        Hint::OtherDirectory => {
            "choose a folder that is empty or does not exist; only a bundle is ever replaced".into()
        }
        Hint::DirectoryInside => "choose a folder in it, for example `-o FOLDER/bundle`".into(),
        Hint::AnyOtherDirectory => "choose another folder for `-o`".into(),
        Hint::CompileAgainOrNewerBuild => "compile the bundle again with this build, or use a newer one".into(),
        Hint::CompileAgain => "compile the bundle again".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::Splits;

    #[test]
    fn hints_name_the_flags_to_use() {
        let near = || vec!["a.weight".into(), "b.weight".into()];
        let cases = [
            (
                Hint::ChipWithFloat16 { arch: 68 },
                "V73 and later have it (for example `--soc sm8550`); a V68 needs graphs with quantised activations, \
                 which this compiler does not make",
            ),
            (Hint::DefaultPrecisionOrNoChip, "omit `--precision`, or omit `--soc` to compile for this machine's CPU"),
            (
                Hint::FinerSplits { splits: Splits::LutDecoderLmhead, layers_per_split: Some(5) },
                "use `--splits lut-decoder-lmhead --layers-per-split 5`, fewer `--ar` and `--cl`, or \
                 `--share-weights` for a device",
            ),
            (Hint::MissingTensor { near: near(), maybe_tied: false }, "similar names: `a.weight`, `b.weight`"),
            (
                Hint::MissingTensor { near: near(), maybe_tied: true },
                "similar names: `a.weight`, `b.weight`; or does config.json lack `\"tie_word_embeddings\": true`?",
            ),
            (
                Hint::MissingTensor { near: vec![], maybe_tied: true },
                "does config.json lack `\"tie_word_embeddings\": true`?",
            ),
            (Hint::CompileFile("m/a.gguf".into()), "compile the file itself: pass `m/a.gguf`"),
            (
                Hint::ConvertToSafetensors("pytorch_model.bin".into()),
                "`pytorch_model.bin` is in another format: save the model as safetensors first",
            ),
            (
                Hint::OtherDirectoryOrForce,
                "choose another folder, or use `--force` to replace the bundle; other files in the folder stay",
            ),
            (Hint::OtherDirectory, "choose a folder that is empty or does not exist; only a bundle is ever replaced"),
            (Hint::PrecisionF32, "use `--precision f32`"),
            (Hint::DownloadAgain, "the file is incomplete or damaged: download it again"),
            (Hint::ModelDirectory, "pass the directory that holds config.json"),
            (Hint::PassModel, "pass a folder with config.json, safetensors and tokenizer.json, or a GGUF file"),
            (
                Hint::SetKey { key: "attention_bias" },
                "if the model has it, set `attention_bias` to true in config.json; else remove the tensor",
            ),
            (
                Hint::RemoveKey { key: "x_scale".into() },
                "this compiler does not know it; if the model computes the same without it, remove `x_scale` from the file",
            ),
            (Hint::SimilarKeys { near: near() }, "similar keys: `a.weight`, `b.weight`"),
            (Hint::AlreadyCompiled, "it is compiled already: `genie run -c` runs it"),
            (Hint::ConvertTokenizer { from: None }, "download the model's tokenizer.json into the same folder"),
            (Hint::OtherConfig, "config.json may belong to another model"),
            (Hint::UnquantisedCheckpoint, "start from the checkpoint that is not quantised"),
        ];
        for (hint, expected) in cases {
            assert_eq!(words(&hint), expected);
        }
        assert!(words(&Hint::SmallerBundle).starts_with("no split is fine enough: "));
    }
}
