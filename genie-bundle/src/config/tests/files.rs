//! The files that a config names.

use super::*;

#[test]
fn missing_files_are_named_with_the_path_that_was_tried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("genie_config.json");
    assert!(matches!(GenieConfig::from_file(&path).unwrap_err(), ConfigError::Read { .. }));
    let document = with(&[("/dialog/engine/model/binary/ctx-bins", json!(["model.bin", "/no/such.bin"]))]);
    std::fs::write(&path, document.to_string()).unwrap();
    std::fs::create_dir(dir.path().join("model.bin")).unwrap();
    let err = GenieConfig::from_file(&path).unwrap_err();
    let base = dir.path().display();
    assert_eq!(
        err.to_string(),
        format!(
            "`{}` names files that cannot be used: 3 problems\n  \
             /dialog/tokenizer/path: file not found: `{base}/tokenizer.json` \
             (relative paths start at the config's folder)\n  \
             /dialog/engine/model/binary/ctx-bins/0: expected a file, found a directory at `{base}/model.bin` \
             (relative paths start at the config's folder)\n  \
             /dialog/engine/model/binary/ctx-bins/1: file not found: `/no/such.bin`",
            path.display()
        )
    );
    std::fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    std::fs::write(dir.path().join("m.bin"), "").unwrap();
    std::fs::write(&path, with(&[("/dialog/engine/model/binary/ctx-bins", json!(["m.bin"]))]).to_string()).unwrap();
    assert_eq!(GenieConfig::from_file(&path).unwrap().base(), dir.path());
}
