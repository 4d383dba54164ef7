//! Each kind by the smallest file that shows it.

use std::path::Path;

use super::*;

fn of(bytes: &[u8]) -> String {
    FileKind::of_bytes(bytes).to_string()
}

#[test]
fn files_are_known_by_their_first_bytes() {
    let elf = |machine: u16| [b"\x7fELF".as_slice(), &[2; 14], &machine.to_le_bytes()].concat();
    let zip = |name: &str| {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.resize(26, 0);
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(name.bytes());
        bytes
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "an empty file"),
        (b"\x89OGHOST\n\x02\0\0\0rest".to_vec(), "a context binary of the host backend"),
        (b"\x89OGHOST\n".to_vec(), "a context binary of the host backend"),
        (vec![0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0], "a context binary of Qualcomm's HTP backend"),
        (b"GGUF\x03\0\0\0".to_vec(), "a GGUF file"),
        (b"GGUF\0\0\0\x03".to_vec(), "a big-endian GGUF file"),
        (b"GGUF".to_vec(), "a GGUF file"),
        (b"GG".to_vec(), "a text file"),
        (b"tjgg\x01\0\0\0".to_vec(), "a GGML file, which came before GGUF"),
        ([&40u64.to_le_bytes()[..], b"{\"x\":"].concat(), "a safetensors file"),
        (elf(62), "a library or program (ELF) for x86_64"),
        ([&40u64.to_le_bytes()[..], b"x"].concat(), "a file of no known kind (it begins with 28 00 00 00 00 00 00 00)"),
        (elf(183), "a library or program (ELF) for aarch64"),
        (elf(164), "a library or program (ELF) for hexagon"),
        (elf(8), "a library or program (ELF)"),
        (b"\x7fELF".to_vec(), "a library or program (ELF)"),
        (b"GNKVSNAP\x02\0\0\0".to_vec(), "the snapshot of a saved session"),
        ([&[4, 0, 0, 0, 0xde, 0xc0, 0, 0][..], &[0; 8]].concat(), "Genie's file of a saved cache"),
        (
            [&[4, 0, 0, 0, 0xde, 0xc0, 0, 0][..], &[0; 7]].concat(),
            "a file of no known kind (it begins with 04 00 00 00 de c0 00 00)",
        ),
        (b"\x1c\0\0\0TFL3".to_vec(), "a TensorFlow Lite model"),
        (b"\x0a\x07\x0a\x05<unk>\x15\0\0\0\0".to_vec(), "a SentencePiece model"),
        (b"\x0a\x06\x0a\x05<unk>\x15\0".to_vec(), "a file of no known kind (it begins with 0a 06 0a 05 3c 75 6e 6b)"),
        (b"\x0a\x0e\x0a\x05<unk>\x16\0".to_vec(), "a file of no known kind (it begins with 0a 0e 0a 05 3c 75 6e 6b)"),
        (
            b"\x0a\x0e\x0a\x02\xff\xff\x15\0".to_vec(),
            "a file of no known kind (it begins with 0a 0e 0a 02 ff ff 15 00)",
        ),
        (b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02".to_vec(), "a SentencePiece model"),
        (b"\x08\x08\x12\x07pytorch\x1a".to_vec(), "an ONNX model"),
        (b"\x80\x02\x8a\x0al\xfc".to_vec(), "a PyTorch checkpoint"),
        (zip("archive/data.pkl"), "a PyTorch checkpoint"),
        (zip("readme"), "a zip archive"),
        (b"\x1f\x8b\x08".to_vec(), "a gzip archive"),
        (b"\n<!DOCTYPE HTML><title>404".to_vec(), "a web page (the error page of a download?)"),
        (b"<?xml version=\"1.0\"?><Error>".to_vec(), "a web page (the error page of a download?)"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:12".to_vec(),
            "a Git LFS pointer (the file itself was not downloaded)",
        ),
        (b"root:x:0:0".to_vec(), "a text file"),
        (b"abc\xffabc".to_vec(), "a file of no known kind (it begins with 61 62 63 ff 61 62 63)"),
        (b"abc\x01abc".to_vec(), "a file of no known kind (it begins with 61 62 63 01 61 62 63)"),
        (b"\xc3".to_vec(), "a file of no known kind (it begins with c3)"),
        ("gr\u{fc}n".as_bytes()[..3].to_vec(), "a text file"),
        (vec![0; 12], "a file of no known kind (it begins with 00 00 00 00 00 00 00 00)"),
        (vec![1, 2, 0xff], "a file of no known kind (it begins with 01 02 ff)"),
    ];
    for (bytes, want) in cases {
        assert_eq!(of(&bytes), want, "{:?}", bytes.escape_ascii().to_string());
    }
}

#[test]
fn json_is_known_by_its_keys_even_where_it_is_torn() {
    for (text, want) in [
        ("{\"dialog\": {\"version\": 1", JsonKind::GenieConfig),
        ("{\"model_type\": \"llama\"}", JsonKind::ModelConfig),
        ("{\"architectures\": [\"X\"], \"torch", JsonKind::ModelConfig),
        ("{\"metadata\": {}, \"weight_map\": {\"a\": \"b\"", JsonKind::SafetensorsIndex),
        ("{\"version\": \"1.0\", \"added_tokens\": [", JsonKind::Tokenizer),
        ("{\"tokenizer_class\": 1}", JsonKind::TokenizerConfig),
        ("{\"format\": \"x\", \"files\": []}", JsonKind::Manifest),
        ("{\"format\": \"x\", \"steps\": []}", JsonKind::Calibration),
        ("{\"format\": \"x\"}", JsonKind::Other),
        ("{\"files\": []}", JsonKind::Other),
        ("{\"steps\": []}", JsonKind::Other),
        ("{\"pre_tokenizer\": null}", JsonKind::Tokenizer),
        ("{\"normalizer\": null}", JsonKind::Tokenizer),
        ("{\"added_tokens_decoder\": {}}", JsonKind::TokenizerConfig),
        ("{\"chat_template\": 1}", JsonKind::TokenizerConfig),
        ("{\"x\": 1}", JsonKind::Other),
        ("  [1, 2", JsonKind::Other),
        ("\u{feff}{\"dialog\":", JsonKind::GenieConfig),
        ("{", JsonKind::Other),
    ] {
        assert_eq!(FileKind::of_bytes(text.as_bytes()), FileKind::Json(want), "{text}");
    }
}

#[test]
fn of_a_long_json_file_64_kib_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    for (filler, want) in [(60_000, "a dialog config (`genie_config.json`)"), (66_000, "a JSON file")] {
        let path = dir.path().join("long.json");
        let text = format!("{{\"x\": \"{}\", \"dialog\": {{}}}}", "x".repeat(filler));
        std::fs::write(&path, &text).unwrap();
        assert_eq!(FileKind::of(&path).to_string(), want);
        assert_eq!(of(text.as_bytes()), want);
    }
}

#[test]
fn a_zip_archive_is_a_dlc_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes, want) in [
        ("a.dlc", &b"PK\x03\x04"[..], "a DLC file"),
        ("a.zip", b"PK\x03\x04", "a zip archive"),
        ("b.dlc", b"\x1f\x8b", "a gzip archive"),
    ] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
        assert_eq!(FileKind::of(&dir.path().join(name)).to_string(), want);
    }
}

#[test]
fn kinds_say_what_they_are_good_for() {
    let kinds = [
        FileKind::Missing,
        FileKind::BrokenLink { target: "x".into() },
        FileKind::HtpBinary,
        FileKind::HostBinary { format: 2 },
        FileKind::Unknown { begins: vec![1] },
        FileKind::Gguf { version: 3, big_endian: false, part: None },
        FileKind::Folder(FolderKind::Checkpoint),
        FileKind::Folder(FolderKind::Bundle),
        FileKind::Text,
    ];
    let which = |is: fn(&FileKind) -> bool| kinds.each_ref().map(|kind| u8::from(is(kind)));
    assert_eq!(which(FileKind::is_missing), [1, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(which(FileKind::is_context_binary), [0, 0, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(which(FileKind::is_no_context_binary), [1, 1, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(which(FileKind::is_checkpoint), [0, 0, 0, 0, 0, 1, 1, 0, 0]);
    assert_eq!(which(FileKind::is_file), [0, 0, 1, 1, 1, 1, 0, 0, 1]);
}

#[test]
fn parts_of_a_split_model_are_known_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for (name, want) in [
        ("a-00002-of-00003.gguf", "a GGUF file, part 2 of 3"),
        ("a-00001-of-00001.gguf", "a GGUF file"),
        ("best-of-3.gguf", "a GGUF file"),
        ("a.gguf", "a GGUF file"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, b"GGUF\x03\0\0\0").unwrap();
        assert_eq!(FileKind::of(&path).to_string(), want);
    }
}

#[test]
fn folders_are_known_by_names_in_them() {
    for (name, want) in [
        ("genie_config.json", "a bundle's folder"),
        ("config.json", "a model's folder"),
        ("open-genie.kvs", "a saved session's folder"),
        ("dialog.json", "a saved session's folder"),
        ("notes.txt", "a folder"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FileKind::of(dir.path()).to_string(), "an empty folder");
        std::fs::write(dir.path().join(name), "").unwrap();
        assert_eq!(FileKind::of(dir.path()).to_string(), want);
    }
}

#[cfg(unix)]
#[test]
fn nothing_but_a_regular_file_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert_eq!(FileKind::of(&at("none")), FileKind::Missing);
    std::os::unix::fs::symlink("none", at("link")).unwrap();
    assert_eq!(FileKind::of(&at("link")).to_string(), "a link to `none`, which does not exist");
    std::os::unix::fs::symlink("loop", at("loop")).unwrap();
    assert!(FileKind::of(&at("loop")).to_string().starts_with("something that cannot be read ("));
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    assert_eq!(FileKind::of(&at("socket")), FileKind::Socket);
    drop(socket);
    assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    // Opening it would wait for a writer.
    assert_eq!(FileKind::of(&at("fifo")), FileKind::Fifo);
    assert_eq!(FileKind::of(Path::new("/dev/null")), FileKind::Device);
    for (kind, file) in [(FileKind::Fifo, false), (FileKind::Missing, false), (FileKind::Text, true)] {
        assert_eq!(kind.is_file(), file, "{kind}");
    }
}

#[test]
fn random_bytes_are_of_some_kind() {
    let mut state = 88_172_645_463_325_252_u64;
    for length in 0..4096 {
        let bytes: Vec<u8> = (0..length % 97)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        assert!(!of(&bytes).is_empty());
    }
}
