//! `yarn` and `longrope`: which key wins, what an absent one means, and what is refused.

use super::*;

/// The rope of a tiny model with those keys, whose heads have 8 angles, or the message.
fn rope(keys: &Value) -> Result<Rope, String> {
    let dir = tempfile::tempdir().unwrap();
    TestModel { max_positions: 128, ..TestModel::tiny(Family::Llama) }.write(dir.path()).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        set(dir.path(), key, value.clone());
    }
    let shown = |e: crate::CompileError| e.to_string().replace(&dir.path().display().to_string(), "{dir}");
    ModelSpec::load(dir.path()).map(|spec| spec.rope).map_err(shown)
}

fn longrope(more: Value) -> Value {
    let mut block = json!({ "type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
        "long_factor": [2, 2, 2, 2, 2, 2, 2, 2] });
    for (key, value) in more.as_object().unwrap() {
        block[key] = value.clone();
    }
    block
}

#[test]
fn yarn_by_the_rules_of_transformers() {
    let yarn = |keys: Value| match rope(&keys).unwrap().scaling {
        Some(RopeScaling::Yarn(yarn)) => yarn,
        other => panic!("{keys}: {other:?}"),
    };
    let plain =
        yarn(json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32 } }));
    assert_eq!((plain.factor, plain.original_max_position, plain.dim), (4.0, 32.0, 16));
    assert_eq!((plain.attn_factor, plain.beta_fast, plain.beta_slow), (1.0, 32.0, 1.0));
    // Without a factor: the ratio of the lengths; without the trained length: all that the model has.
    let ratio = yarn(json!({ "rope_scaling": { "type": "yarn", "original_max_position_embeddings": 32 } }));
    assert_eq!(ratio.factor, 4.0);
    assert_eq!(yarn(json!({ "rope_scaling": { "type": "yarn", "factor": 2 } })).original_max_position, 128.0);
    // What cosines and sines are multiplied by: as stated, or from the two scales.
    let usual = 0.1 * 4f64.ln() + 1.0;
    let amplitude = |more: Value| {
        let mut block = json!({ "type": "yarn", "factor": 4, "original_max_position_embeddings": 32 });
        more.as_object().unwrap().iter().for_each(|(key, value)| block[key] = value.clone());
        yarn(json!({ "rope_scaling": block })).attn_factor * usual
    };
    assert!((amplitude(json!({ "attention_factor": 1.5 })) - 1.5).abs() < 1e-12);
    let scales = (0.0707 * 4f64.ln() + 1.0) / (0.1 * 4f64.ln() + 1.0);
    assert!((amplitude(json!({ "mscale": 0.707, "mscale_all_dim": 1.0 })) - scales).abs() < 1e-12);
    assert!((amplitude(json!({ "mscale": 0.707 })) - usual).abs() < 1e-12, "one scale alone is not used");
}

#[test]
fn longrope_by_the_rules_of_transformers() {
    let long = |keys: Value| match rope(&keys).unwrap().scaling {
        Some(RopeScaling::LongRope(long)) => long,
        other => panic!("{keys}: {other:?}"),
    };
    // Phi 3.5 has the trained length beside the block.
    let outer = long(json!({ "original_max_position_embeddings": 32, "rope_scaling": longrope(json!({})) }));
    assert_eq!((outer.factor, outer.original_max_position), (4.0, 32.0));
    assert_eq!((outer.divisors(32)[0], outer.divisors(33)[0]), (1.0, 2.0));
    let su = long(json!({ "rope_scaling": longrope(json!({ "type": "su", "original_max_position_embeddings": 32 })) }));
    assert_eq!(su, outer);
    // An attention factor of its own is the factor that gives it.
    let stated = json!({ "attention_factor": 1.25, "original_max_position_embeddings": 32 });
    assert!((long(json!({ "rope_scaling": longrope(stated) })).amplitude() - 1.25).abs() < 1e-12);
}

#[test]
fn what_no_bundle_can_express_is_refused() {
    let yarn = |more: Value| {
        let mut block = json!({ "type": "yarn", "factor": 4, "original_max_position_embeddings": 32 });
        more.as_object().unwrap().iter().for_each(|(key, value)| block[key] = value.clone());
        json!({ "rope_scaling": block })
    };
    let long = |more: Value| json!({ "original_max_position_embeddings": 32, "rope_scaling": longrope(more) });
    let cases = [
        (
            yarn(json!({ "truncate": false })),
            "unsupported `rope_scaling.truncate` in `{dir}/config.json`: found false, this compiler needs true",
        ),
        (
            yarn(json!({ "factor": 0 })),
            "bad `rope_scaling.factor` in `{dir}/config.json`: found 0, expected a number above 0",
        ),
        (
            yarn(json!({ "beta_fast": 0.5 })),
            "bad `rope_scaling.beta_fast` in `{dir}/config.json`: found 0.5, expected at least `beta-slow`, 1",
        ),
        (yarn(json!({ "ext_factor": 1 })), "unknown key `rope_scaling.ext_factor` in `{dir}/config.json`"),
        (
            long(json!({ "short_factor": [1, 1] })),
            "bad `rope_scaling.short_factor` in `{dir}/config.json`: found 2, expected 8 numbers, one for each angle of half of a head's rotated part",
        ),
        (
            long(json!({ "long_factor": [1, 1, 1, 1, 1, 1, 1, 0] })),
            "bad `rope_scaling.long_factor` in `{dir}/config.json`: found [1,1,1,1,1,1,1,0], expected a list of numbers above 0",
        ),
        (
            long(json!({ "factor": 8 })),
            "bad `rope_scaling.factor` in `{dir}/config.json`: found 8, expected 4, `max_position_embeddings` over `original_max_position_embeddings`",
        ),
        (
            long(json!({ "original_max_position_embeddings": 64 })),
            "bad `rope_scaling.original_max_position_embeddings` in `{dir}/config.json`: found 64, expected 32, as `original_max_position_embeddings` outside of it",
        ),
        (
            long(json!({ "attention_factor": 0.5 })),
            "unsupported `rope_scaling.attention_factor` in `{dir}/config.json`: found 0.5, this compiler needs a number of at least 1",
        ),
    ];
    for (keys, want) in cases {
        let error = rope(&keys).unwrap_err();
        assert!(error.starts_with(want), "{error}");
    }
}
