//! What valid configs become.

use genie_types::{Dtype, Llama3Scaling, LongRopeScaling, PositionKind, RopeConfig, RopeScaling, TokenId, YarnScaling};

use super::*;

#[test]
fn the_golden_config_becomes_values() {
    let c = parse(&base()).unwrap();
    assert_eq!(c.context().bos, Some(TokenId(256)));
    assert_eq!(c.context().eos, [TokenId(257)]);
    assert_eq!((c.context().eot, c.context().pad), (None, None));
    assert_eq!((c.context().size, c.context().n_vocab), (128, 512));
    assert_eq!((c.sampler().seed, c.sampler().temp, c.sampler().top_k), (Some(42), Some(0.8), Some(40)));
    assert_eq!(c.tokenizer(), Path::new("/bundle/tokenizer.json"));
    assert_eq!(c.engine().ctx_bins, [Path::new("/bundle/model.bin")]);
    assert_eq!(c.engine().rope(""), Some(&RopeConfig::new(16, 10_000.0)));
    assert_eq!((c.backend().cpu_mask, c.backend().kv_dim), (0xe0, Some(32)));
    assert!(c.warnings().is_empty() && c.stop_sequences().is_empty() && c.max_num_tokens().is_none());
}

#[test]
fn variations_that_genie_accepts_are_accepted() {
    let cases: Vec<(&str, Value)> = vec![
        ("/dialog/context/eos-token", json!([257, 414])),
        ("/dialog/context/bos-token", json!(-1)),
        ("/dialog/context/eot-token", json!(414)),
        ("/dialog/stop-sequence", json!(["\n\n", "###"])),
        ("/dialog/max-num-tokens", json!(0)),
        ("/dialog/sampler/seed", json!(-1)),
        ("/dialog/sampler/token-penalty", json!({"penalize-last-n": 64, "presence-penalty": -0.5})),
        ("/dialog/engine/backend/extensions", json!("htp_ext.json")),
        ("/dialog/engine/backend/extensions", json!(["htp_ext.json"])),
        ("/dialog/engine/model/binary", json!({"fcb": [" a.bin ", "/abs/b.bin"]})),
        ("/dialog/engine/model/positional-encoding", json!([{"type": "rope", "rope-dim": 16}])),
        (
            "/dialog/engine/model/positional-encoding/rope-scaling",
            json!({"rope-type": "llama3", "factor": 8,
            "low-freq-factor": 1, "high-freq-factor": 4, "original-max-position-embeddings": 8192}),
        ),
        ("/dialog/debug", json!({"path": "dbg", "dump-tensors": true, "dump-end": 1000})),
    ];
    for (pointer, value) in cases {
        let document = with(&[(pointer, value)]);
        assert!(parse(&document).is_ok(), "{pointer}: {}", parse(&document).unwrap_err());
    }
}

#[test]
fn unset_and_listed_values_arrive() {
    let c = parse(&with(&[
        ("/dialog/context/bos-token", json!(-1)),
        ("/dialog/context/eos-token", json!([257, 414])),
        ("/dialog/sampler/seed", json!(-1)),
        ("/dialog/engine/model/binary", json!({"fcb": [" a.bin ", "/abs/b.bin"]})),
        ("/dialog/engine/model/positional-encoding", Value::Null),
        ("/dialog/engine/backend/QnnHtp/pos-id-dim", json!(24)),
        ("/dialog/engine/backend/QnnHtp/rope-theta", json!(500_000)),
    ]))
    .unwrap();
    assert_eq!((c.context().bos, c.sampler().seed), (None, Some(-1)));
    assert_eq!(c.context().eos, [TokenId(257), TokenId(414)]);
    assert_eq!(c.engine().ctx_bins, [Path::new("/bundle/a.bin"), Path::new("/abs/b.bin")]);
    assert_eq!(c.engine().rope(""), Some(&RopeConfig::new(24, 500_000.0)));
}

#[test]
fn embeddings_groups_and_scaling_arrive() {
    let c = parse(&with(&[
        (
            "/dialog/embedding",
            json!({"version": 1, "type": "lut", "size": 64, "lut-path": "e.raw",
                                     "datatype": "ufixed8", "quant-param": {"scale": 0.5, "offset": -128}}),
        ),
        (
            "/dialog/engine/cache-groups",
            json!([{"version": 1, "prefix": "past_"},
                                               {"version": 1, "prefix": "swa_", "attention-mask-tensor-name": "m",
                                                "longcontext": {"version": 1, "type": "sliding-window", "reserved-tokens": 4,
                                                                "sliding-window": {"window-size": 64}}}]),
        ),
        ("/dialog/engine/backend/QnnHtp/execute-select-graphs", json!(["g"])),
        (
            "/dialog/engine/model/positional-encoding/rope-scaling",
            json!({"rope-type": "llama3", "factor": 8,
            "low-freq-factor": 1, "high-freq-factor": 4, "original-max-position-embeddings": 8192}),
        ),
    ]))
    .unwrap();
    let lut = c.engine().embedding.clone().unwrap();
    assert_eq!((lut.size, lut.path.as_path()), (64, Path::new("/bundle/e.raw")));
    assert_eq!(lut.dtype, TableDtype::Fixed { dtype: Dtype::UFixed8, scale: 0.5, offset: -128 });
    let group = |prefix: &str, mask: Option<&str>, long_context| CacheGroupSettings {
        prefix: prefix.into(),
        attention_mask_tensor_name: mask.map(str::to_owned),
        cache_index_tensor_name: None,
        long_context,
    };
    let window = LongContextSettings { reserved_tokens: 4, kind: LongContextKind::SlidingWindow { window_size: 64 } };
    assert_eq!(c.engine().cache_groups, [group("past_", None, None), group("swa_", Some("m"), Some(window))]);
    assert_eq!(c.engine().select_graphs, ["g"]);
    assert_eq!(
        c.engine().rope("").unwrap().scaling,
        Some(RopeScaling::Llama3(Llama3Scaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192.0
        }))
    );
}

fn keydiff(network: &str, every: i64) -> Value {
    json!({"version": 1, "type": "keydiff", "reserved-tokens": 2,
           "keydiff": {"version": 1, "scoring-network": network, "update-frequency": every, "anchor-alpha": 0.25}})
}

#[test]
fn long_context_of_the_engine_arrives() {
    let c = parse(&with(&[("/dialog/engine/longcontext", keydiff("scorer.bin", 32))])).unwrap();
    let kind =
        |scoring_network| LongContextKind::KeyDiff { update_frequency: 32, anchor_alpha: Some(0.25), scoring_network };
    let found = |c: &GenieConfig| c.engine().long_context.clone();
    let network = Some(c.base().join("scorer.bin"));
    assert_eq!(found(&c), Some(LongContextSettings { reserved_tokens: 2, kind: kind(network) }));
    // Without a path the program scores by itself.
    let c = parse(&with(&[("/dialog/engine/longcontext", keydiff(" ", 32))])).unwrap();
    assert_eq!(found(&c), Some(LongContextSettings { reserved_tokens: 2, kind: kind(None) }));
    assert_eq!(parse(&base()).unwrap().engine().long_context, None);
}

#[test]
fn long_context_that_nothing_can_use_is_refused() {
    let window = |size: i64, reserved: i64| {
        json!({"version": 1, "type": "sliding-window", "reserved-tokens": reserved,
               "sliding-window": {"version": 1, "window-size": size}})
    };
    const AT: &str = "/dialog/engine/longcontext";
    let group = |long| json!([{"version": 1, "prefix": "past_", "longcontext": long}]);
    let cases = [
        (vec![(AT, window(0, 0))], format!("{AT}/sliding-window/window-size: expected at least 1, found 0")),
        (vec![(AT, window(8, -1))], format!("{AT}/reserved-tokens: expected at least 0, found -1")),
        (vec![(AT, keydiff("", 0))], format!("{AT}/keydiff/update-frequency: expected at least 1, found 0")),
        (
            vec![(AT, window(8, 0)), ("/dialog/engine/cache-groups", group(window(9, 0)))],
            format!(
                "/dialog/engine/cache-groups/0/longcontext: group `past_` has its rule from `{AT}` already \
                 (give one of the two)"
            ),
        ),
    ];
    for (changes, expected) in cases {
        let err = parse(&with(&changes)).expect_err(&expected);
        assert_eq!(err.problems().iter().map(Problem::to_string).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn keys_without_effect_are_mentioned() {
    let c = parse(&with(&[
        ("/dialog/sampler", Value::Null),
        ("/dialog/engine/backend/QnnHtp/kv-update-method", json!("SHIFT_CONCAT")),
        ("/dialog/engine/model/positional-encoding/rope-scaling", json!({"factor": 8})),
    ]))
    .unwrap();
    assert_eq!(*c.sampler(), SamplerSettings::default());
    let at: Vec<&str> = c.warnings().iter().map(|p| p.pointer.as_str()).collect();
    assert_eq!(
        at,
        [
            "/dialog/sampler",
            "/dialog/engine/model/positional-encoding/rope-scaling",
            "/dialog/engine/backend/QnnHtp/kv-update-method",
        ]
    );
}

#[test]
fn every_rope_type_becomes_numbers() {
    let pe = "/dialog/engine/model/positional-encoding";
    let scaling = |block: Value| {
        let c =
            parse(&with(&[(&format!("{pe}/rope-scaling"), block.clone())])).unwrap_or_else(|e| panic!("{block}: {e}"));
        c.engine().rope("").unwrap().scaling.clone()
    };
    let ones = vec![1.0; 16];
    let cases = [
        (json!({"rope-type": "default"}), None),
        (json!({"rope-type": "linear", "factor": 4}), Some(RopeScaling::Linear { factor: 4.0 })),
        (
            json!({"rope-type": "longrope", "factor": 4, "original-max-position-embeddings": 64,
                "short-factor": ones, "long-factor": ones}),
            Some(RopeScaling::LongRope(LongRopeScaling {
                factor: 4.0,
                original_max_position: 64.0,
                short_factor: ones.clone(),
                long_factor: ones.clone(),
            })),
        ),
        (
            json!({"rope-type": "yarnrope", "factor": 4, "original-max-position-embeddings": 64}),
            Some(RopeScaling::Yarn(YarnScaling {
                factor: 4.0,
                original_max_position: 64.0,
                dim: 32,
                extrapolation_factor: 1.0,
                attn_factor: 1.0,
                beta_fast: 32.0,
                beta_slow: 1.0,
            })),
        ),
        (
            json!({"rope-type": "proportional", "factor": 2, "partial-rotary-factor": 0.5}),
            Some(RopeScaling::Proportional { factor: 2.0, partial_rotary_factor: 0.5 }),
        ),
        (json!({"rope-type": "hunyuan"}), Some(RopeScaling::Hunyuan)),
        (
            json!({"rope-type": "qwen2vl-mrope", "mrope-section": [4, 6, 6], "time-step": 50, "spatial-merge-size": 2}),
            Some(RopeScaling::Mrope { interleaved: false, sections: vec![4, 6, 6] }),
        ),
        (json!({"rope-type": "qwen3vl-mrope"}), Some(RopeScaling::Mrope { interleaved: true, sections: vec![] })),
        (json!({"factor": 4}), None),
    ];
    for (block, want) in cases {
        assert_eq!(scaling(block.clone()), want, "{block}");
    }
    let bad = [
        (
            json!({"rope-type": "longrope", "factor": 4, "original-max-position-embeddings": 64, "short-factor": [1], "long-factor": ones}),
            "rope-scaling/short-factor: expected 16 numbers, one for each angle of `rope-dim`, found 1",
        ),
        (
            json!({"rope-type": "longrope", "factor": 4, "original-max-position-embeddings": 64}),
            "rope-scaling/short-factor: required when the rope type is `longrope`\nrope-scaling/long-factor: required when the rope type is `longrope`",
        ),
        (json!({"rope-type": "linear"}), "rope-scaling/factor: required when the rope type is `linear`"),
        (
            json!({"rope-type": "yarnrope", "factor": 4, "original-max-position-embeddings": 64, "dim": 31}),
            "rope-scaling/dim: expected an even number above 0, twice `rope-dim`, found 31",
        ),
        (
            json!({"rope-type": "qwen2vl-mrope", "mrope-section": [4, 4, 4]}),
            "rope-scaling/mrope-section: expected 3 numbers that add up to `rope-dim`, 16, found [4, 4, 4]",
        ),
    ];
    for (block, want) in bad {
        let error = parse(&with(&[(&format!("{pe}/rope-scaling"), block)])).unwrap_err();
        let found: Vec<String> =
            error.problems().iter().map(|p| p.to_string().trim_start_matches(&format!("{pe}/")).to_owned()).collect();
        assert_eq!(found.join("\n"), want);
    }
}

#[test]
fn position_kinds_and_prefixes_arrive() {
    let pe = "/dialog/engine/model/positional-encoding";
    let kinds = |encoding: Value| {
        let c = parse(&with(&[(pe, encoding)])).unwrap();
        let one = |p: &PositionSettings| (p.prefix.clone(), p.kind, p.rope.as_ref().map(|r| r.theta));
        c.engine().positions.iter().map(one).collect::<Vec<_>>()
    };
    for kind in [PositionKind::Absolute, PositionKind::Alibi, PositionKind::None] {
        assert_eq!(kinds(json!({"type": kind.name()})), [(String::new(), kind, None)]);
    }
    // The item without a prefix of its own comes first.
    let two = json!([{"type": "rope", "rope-dim": 8, "rope-theta": 10000, "prefix": "swa_"},
                     {"type": "rope", "rope-dim": 16, "rope-theta": 1e6, "prefix": "default_"}]);
    let rope = PositionKind::Rope;
    assert_eq!(kinds(two), [(String::new(), rope, Some(1e6)), ("swa_".into(), rope, Some(1e4))]);
    let twice = json!([{"type": "rope", "rope-dim": 8}, {"type": "rope", "rope-dim": 16, "prefix": "default_"}]);
    let error = parse(&with(&[(pe, twice)])).unwrap_err();
    assert_eq!(
        error.problems()[0].to_string(),
        "/dialog/engine/model/positional-encoding/1/prefix: prefix `default_` is already taken by an earlier positional encoding"
    );
}

#[test]
fn two_engines_are_read_by_their_roles() {
    let engine = |role: &str, bin: &str, dim: i64| {
        let mut engine = base()["dialog"]["engine"].clone();
        engine["role"] = json!(role);
        engine["model"]["binary"]["ctx-bins"] = json!([bin]);
        engine["model"]["positional-encoding"]["rope-dim"] = json!(dim);
        engine
    };
    let two = |engines: Value, draft_len: i64| {
        with(&[
            ("/dialog/type", json!("spd")),
            ("/dialog/spd", json!({"version": 1, "draft-len": draft_len})),
            ("/dialog/engine", engines),
        ])
    };
    // In any order.
    for engines in [
        json!([engine("draft", "d.bin", 8), engine("target", "t.bin", 16)]),
        json!([engine("target", "t.bin", 16), engine("draft", "d.bin", 8)]),
    ] {
        let config = parse(&two(engines, 4)).unwrap();
        assert_eq!((config.engine().role, &config.engine().ctx_bins[0]), (EngineRole::Target, &"/bundle/t.bin".into()));
        assert_eq!(config.kind_blocks().draft_len, Some(4));
        let draft = config.of_second_engine().unwrap();
        assert_eq!((draft.engine().role, &draft.engine().ctx_bins[0]), (EngineRole::Draft, &"/bundle/d.bin".into()));
        assert_eq!(draft.engine().rope("").unwrap().rope_dim, 8);
        assert!(draft.of_second_engine().is_none());
    }
    assert!(parse(&base()).unwrap().of_second_engine().is_none());
    // Problems name the engine that they are of.
    let bad = parse(&two(json!([engine("draft", "d.bin", 0), engine("target", "t.bin", 16)]), -1)).unwrap_err();
    let places: Vec<&str> = bad.problems().iter().map(|p| p.pointer.as_str()).collect();
    assert_eq!(places, ["/dialog/engine/0/model/positional-encoding/rope-dim", "/dialog/spd/draft-len"]);
}

#[test]
fn the_response_format_arrives() {
    let harmony = |block: serde_json::Value| parse(&with(&[("/dialog/harmony", block)])).unwrap().harmony();
    let settings = |parses, wraps, as_json| Some(HarmonySettings { parses, wraps, as_json });
    let whole = json!({"type": "gpt-oss", "tokenizer-vocab-path": "v", "chat-format": "harmony-gpt-oss",
                       "reasoning-format": "json-formatted"});
    assert_eq!(harmony(whole), settings(true, true, true));
    assert_eq!(harmony(json!({"chat-format": "harmony-gpt-oss"})), settings(false, true, false));
    assert_eq!(harmony(json!({"type": "gpt-oss", "tokenizer-vocab-path": "v"})), settings(true, false, false));
    // As in libGenie, which was tried with these.
    assert_eq!(harmony(json!({"reasoning-format": "json-formatted"})), None);
    assert_eq!(harmony(json!({"type": "other", "chat-format": "none"})), None);
}
