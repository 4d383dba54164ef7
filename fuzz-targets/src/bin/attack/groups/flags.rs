//! Prompts and flags with odd values.

use std::path::Path;

use anyhow::Result;
use fuzz_targets::Rng;

use crate::base::Base;
use crate::situation::{Expect, Situation, Step};

const ODD: [&str; 26] = [
    "",
    "0",
    "-1",
    "1",
    "0.5",
    "-0.0",
    "1e300",
    "nan",
    "inf",
    "-inf",
    "99999999999999999999",
    "abc",
    "1,2",
    ",",
    "1,,2",
    "1,1",
    " 1",
    "+1",
    "1_000",
    "0x10",
    "é",
    "--",
    "/no/such/file",
    "no/such/folder",
    "/dev/null",
    "\u{1b}[31m",
];

const RUN: [&str; 21] = [
    "--max-tokens",
    "--temp",
    "--top-k",
    "--top-p",
    "--seed",
    "--repetition-penalty",
    "--penalize-last-n",
    "--policy",
    "--threads",
    "--pin",
    "--kv-mode",
    "--prefix-cache-mib",
    "--prefix-min-tokens",
    "--prompt-tokens",
    "--prompt-file",
    "--restore",
    "--save",
    "--backend",
    "--soc",
    "--perf",
    "--profile",
];

/// Words that stand for a flag in a refusal: what its value is about.
fn words(flag: &str) -> Vec<String> {
    let long = flag.trim_start_matches('-');
    let about: &[&str] = match long {
        "prompt-file" => &["prompt"],
        "prompt-tokens" => &["token", "prompt"],
        "ar" | "cl" => &["AR", "CL", "context limit"],
        "backend" => &["library", "libQnn", "backend"],
        _ => &[],
    };
    std::iter::once(flag.to_string())
        .chain(std::iter::once(long.to_string()))
        .chain(about.iter().map(|w| (*w).into()))
        .collect()
}

/// A command line with one or two odd things.
pub(super) fn make(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let bundle = base.bundle.display().to_string();
    let value = (*rng.pick(&ODD)).to_string();
    let mut names = vec![value.clone()];
    let mut call = |args: &[&str], flag: &str, rng: &mut Rng| {
        let joined = rng.one_in(2);
        names.extend(words(flag));
        let given = if joined { vec![format!("{flag}={value}")] } else { vec![flag.into(), value.clone()] };
        Step::new(args.iter().map(|arg| (*arg).to_string()).chain(given))
    };
    let step = match rng.below(8) {
        0..3 => {
            let flag = *rng.pick(&RUN);
            let mut args = vec!["run", "-c", &bundle, "-n", "3"];
            if flag == "--max-tokens" {
                args.truncate(3);
            }
            if !flag.starts_with("--prompt") {
                args.extend(["-p", "ab"]);
            }
            call(&args, flag, rng)
        }
        3 => {
            let flag =
                *rng.pick(&["--ar", "--cl", "--layers-per-split", "--splits", "--precision", "--weights", "--soc"]);
            let model = base.models[0].folder.display().to_string();
            call(&["compile", &model, "-o", "out"], flag, rng)
        }
        4 => {
            let flag = *rng.pick(&["--max-windows", "--window", "--threads"]);
            let text = base.text();
            call(&["perplexity", "-c", &bundle, &text], flag, rng)
        }
        5 => {
            let flag = *rng.pick(&["--ar", "--cl", "--policy"]);
            call(&["plan", "20"], flag, rng)
        }
        6 => return prompt(base, room, rng),
        _ => {
            let flag = *rng.pick(&["-n", "--tolerance", "--threads"]);
            names.extend(words(if flag == "-n" { "--max-tokens" } else { flag }));
            names.push("recomputation differ".into());
            let value = value.clone();
            Step::new(["verify".into(), bundle.clone(), flag.into(), value])
        }
    };
    names.retain(|name| !name.trim().is_empty());
    let what = step.args.join(" ");
    Ok(Situation::new(what, Expect::Open, vec![step]).named(names))
}

/// A prompt that is odd by its bytes, its length or where it comes from.
fn prompt(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let bundle = base.bundle.display().to_string();
    let texts: [Vec<u8>; 10] = [
        vec![],
        b"\xff\xfe\x00a".to_vec(),
        b"\xef\xbb\xbfab".to_vec(),
        b"a\0b".to_vec(),
        b"word ".repeat(4000),
        vec![b'a'; 3_000_000],
        "é漢字🙂".as_bytes().to_vec(),
        b"\n\n\n".to_vec(),
        b"GGUF\x03\0\0\0".to_vec(),
        b"\x7fELF\x02\x01\x01\0".to_vec(),
    ];
    let text = rng.pick(&texts).clone();
    let what = format!("a prompt of {} bytes: {:?}", text.len(), String::from_utf8_lossy(&text[..text.len().min(12)]));
    let names = ["prompt", "text", "UTF-8", "context"];
    std::fs::write(room.join("prompt.txt"), &text)?;
    let from = *rng.pick(&["-", "prompt.txt", "no.txt", ".", "/dev/null", "/dev/zero", "prompt.txt/x"]);
    let mut step = Step::new(["run", "-c", &bundle, "-n", "3", "-f", from]);
    step.stdin = text;
    Ok(Situation::new(format!("{what}, from {from}"), Expect::Open, vec![step]).named(names).named([from]))
}
