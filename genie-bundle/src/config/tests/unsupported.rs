//! Configs that are valid for Genie and that this build refuses by name.

use super::*;

#[test]
fn what_this_build_cannot_do_is_refused_by_name() {
    let mut two = base();
    let engine = two["dialog"]["engine"].clone();
    let engines = |a: &str, b: &str| {
        let (mut x, mut y) = (engine.clone(), engine.clone());
        (x["role"], y["role"]) = (json!(a), json!(b));
        json!([x, y])
    };
    set(&mut two, "/dialog/engine", engines("target", "draft"));
    set(&mut two, "/dialog/type", json!("spd"));
    let window = json!({"version": 1, "type": "sliding-window", "sliding-window": {"window-size": 8}});
    set(&mut two, "/dialog/engine/1/longcontext", window);
    set(&mut two, "/dialog/spd", json!({"version": 1, "draft-len": 4}));
    let gpu = json!({"version": 1, "type": "QnnGpu"});
    let cpu = json!({"version": 1, "type": "QnnGenAiTransformer", "QnnGenAiTransformer": {"version": 1}});
    let pe = "/dialog/engine/model/positional-encoding";
    let cases = [
        (two, "/dialog/engine/1/longcontext: a dialog of type `spd` cannot have long context (remove `longcontext`)"),
        (
            with(&[("/dialog/engine/backend", gpu)]),
            "/dialog/engine/backend/type: backend `QnnGpu` is not yet supported \
             (`QnnHtp` configs run on the embedded backend and on libQnnHtp)",
        ),
        (
            with(&[("/dialog/engine/backend", cpu)]),
            "/dialog/engine/backend/type: backend `QnnGenAiTransformer` is not yet supported \
             (`QnnHtp` configs run on the embedded backend and on libQnnHtp)",
        ),
        (
            with(&[(pe, json!([{"type": "rope", "rope-dim": 16}, {"type": "alibi", "prefix": "swa_"}]))]),
            "/dialog/engine/model/positional-encoding/1/prefix: only encodings of type `rope` can have a prefix of their own",
        ),
        (
            with(&[("/dialog/engine/model/binary/ctx-bins", json!(["record://model"]))]),
            "/dialog/engine/model/binary/ctx-bins/0: reading binaries out of a DLC (`record://`) is not yet supported",
        ),
        (
            with(&[(
                "/dialog/engine/model/binary/lora",
                json!({"version": 1, "lora-version": 1, "adapters": [{"name": "a", "path": "x"}]}),
            )]),
            "/dialog/engine/model/binary/lora/lora-version: LoRA version 1, adapters as files of weights, is not supported \
             (versions 2 and 3 are: adapters in the graphs (`alphas`) or as `bin-sections`)",
        ),
    ];
    for (document, expected) in cases {
        let err = parse(&document).expect_err(expected);
        assert!(matches!(err, ConfigError::Unsupported { .. }), "{err}");
        assert_eq!(err.problems().iter().map(Problem::to_string).collect::<Vec<_>>(), [expected]);
    }
}
