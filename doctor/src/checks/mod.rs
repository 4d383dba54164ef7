//! The table of checks. Each looks at a [`Case`] and says what is wrong with it; none touches a file.
//!
//! A new rule goes into a file of its own, into [`CHECKS`], and into `docs/doctor.md` (a test compares the two).

mod adsp_folder;
mod adsp_separator;
mod ar_sets;
mod binaries_differ;
mod binary_arch;
mod binary_unreadable;
mod cache_groups;
mod config_api;
mod config_schema;
mod config_syntax;
mod context_size;
mod dsp_too_old;
mod embedding;
mod extension;
mod facts;
mod file_missing;
mod file_too_large;
mod kv_dim;
mod kv_encoding;
mod layout;
mod libraries_mixed;
mod library_copies;
mod library_missing;
mod library_older;
mod library_unusable;
mod manifest;
mod mask_encoding;
mod position_encoding;
mod rope_dim;
mod sampler;
mod session_memory;
mod shared_weights;
mod skel_missing;
mod tokens;
mod vocab;
mod vtcm;

use crate::{Case, Finding, Findings, Rule};

/// A check and the rules whose breaches it reports first of all.
pub struct Check {
    /// Its rules.
    pub rules: &'static [&'static Rule],
    /// Looks.
    pub run: fn(&Case, &mut Findings),
}

/// All checks, in the order of the report: machine, device, files, config, tokens, graphs.
pub const CHECKS: &[Check] = &[
    Check { rules: &[&library_missing::RULE, &library_missing::SYSTEM_RULE], run: library_missing::check },
    Check { rules: &[&library_unusable::RULE], run: library_unusable::check },
    Check { rules: &[&library_copies::RULE], run: library_copies::check },
    Check { rules: &[&libraries_mixed::RULE], run: libraries_mixed::check },
    Check { rules: &[&adsp_separator::RULE], run: adsp_separator::check },
    Check { rules: &[&adsp_folder::RULE], run: adsp_folder::check },
    Check { rules: &[&skel_missing::RULE, &skel_missing::STUB_RULE], run: skel_missing::check },
    Check { rules: &[&dsp_too_old::RULE], run: dsp_too_old::check },
    Check { rules: &[&binary_arch::RULE, &binary_arch::SOC_RULE], run: binary_arch::check },
    Check { rules: &[&vtcm::RULE], run: vtcm::check },
    Check { rules: &[&extension::RULE, &extension::DEVICE_RULE, &extension::GRAPHS_RULE], run: extension::check },
    Check { rules: &[&library_older::RULE], run: library_older::check },
    Check { rules: &[&binaries_differ::RULE, &binaries_differ::BUILD_RULE], run: binaries_differ::check },
    Check {
        rules: &[&file_missing::RULE, &file_missing::BASE_RULE, &file_missing::UNUSABLE_RULE],
        run: file_missing::check,
    },
    Check { rules: &[&manifest::RULE, &manifest::SYNTAX_RULE, &manifest::BUILD_RULE], run: manifest::check },
    Check { rules: &[&file_too_large::RULE], run: file_too_large::check },
    Check { rules: &[&binary_unreadable::RULE, &binary_unreadable::UNEXAMINED_RULE], run: binary_unreadable::check },
    Check { rules: &[&session_memory::RULE], run: session_memory::check },
    Check { rules: &[&shared_weights::RULE], run: shared_weights::check },
    Check { rules: &[&config_syntax::RULE, &config_syntax::SYNTAX_RULE], run: config_syntax::check },
    Check { rules: &[&config_schema::RULE, &config_schema::UNSUPPORTED_RULE], run: config_schema::check },
    Check { rules: &[&config_api::RULE], run: config_api::check },
    Check { rules: &[&sampler::RULE, &sampler::PENALTY_RULE, &sampler::GREEDY_RULE], run: sampler::check },
    Check { rules: &[&kv_dim::RULE, &kv_dim::DIFFERS_RULE], run: kv_dim::check },
    Check { rules: &[&rope_dim::RULE, &rope_dim::SCALING_RULE], run: rope_dim::check },
    Check { rules: &[&context_size::RULE], run: context_size::check },
    Check { rules: &[&embedding::RULE, &embedding::SIZE_RULE], run: embedding::check },
    Check {
        rules: &[&tokens::RULE, &tokens::EOS_RULE, &tokens::UNSET_RULE, &tokens::SPECIAL_RULE],
        run: tokens::check,
    },
    Check { rules: &[&vocab::RULE, &vocab::TOKENIZER_RULE], run: vocab::check },
    Check { rules: &[&mask_encoding::RULE], run: mask_encoding::check },
    Check { rules: &[&kv_encoding::RULE], run: kv_encoding::check },
    Check { rules: &[&position_encoding::RULE], run: position_encoding::check },
    Check { rules: &[&ar_sets::RULE], run: ar_sets::check },
    Check { rules: &[&cache_groups::RULE, &cache_groups::FORMS_RULE], run: cache_groups::check },
    Check {
        rules: &[
            &layout::CONTRACT,
            &layout::INPUT_MISSING,
            &layout::KV_TENSORS,
            &layout::ENDS,
            &layout::SPLIT_MISSING,
            &layout::WIRING,
            &layout::VARIANT,
            &layout::TWICE,
            &layout::SELECTION,
            &layout::DIFFERS,
        ],
        run: layout::check,
    },
];

/// Runs all checks; errors come first.
pub fn examine(case: &Case) -> Vec<Finding> {
    let mut found = Findings::default();
    for check in CHECKS {
        (check.run)(case, &mut found);
    }
    found.into_sorted()
}

/// Every rule there is.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    CHECKS.iter().flat_map(|check| check.rules).copied()
}
