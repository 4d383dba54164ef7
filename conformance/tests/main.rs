//! All tests of crate `conformance` in one program: a program takes seconds to build and link, whatever its tests are.

#[path = "common/candle_reference.rs"]
mod candle_reference;
#[path = "common/decoder_cases.rs"]
mod decoder_cases;
#[path = "common/merged_by_hand.rs"]
mod merged_by_hand;
#[path = "../../compiler/src/lower/tests/reference.rs"]
mod reference;
#[path = "common/rounded.rs"]
mod rounded;

mod bad_input;
mod bundle_forms_htp;
mod candle_logits;
mod compiled_htp;
mod compiled_kinds_genie_htp;
mod damage;
mod decoder_graphs;
mod decoders;
mod decoders_htp;
mod eagle_heads;
mod families;
mod families_htp;
mod gguf_families;
mod golden_htp;
mod gpt2;
mod graph_kinds_htp;
mod htp_alias;
mod known_defects;
mod libgenie_htp;
mod libgenie_on_host_htp;
mod llama_cpp;
mod long_context;
mod long_context_htp;
mod lora;
mod lora_genie_htp;
mod lora_htp;
mod ops;
mod ops_htp;
mod perplexity;
mod quantised;
mod recorded_eaglet_htp;
mod recorded_lora_htp;
mod recorded_positions_htp;
mod recorded_trees_htp;
mod ring_second_turn_htp;
mod rope_scaling;
mod sampler_htp;
mod sampler_on_host_htp;
mod saved_dialogs;
mod scorer_network;
mod scorer_network_htp;
mod sequences;
mod tree_kinds;
mod u8_cache_htp;
mod wide_graphs_only;
mod window_groups;
mod window_groups_htp;
