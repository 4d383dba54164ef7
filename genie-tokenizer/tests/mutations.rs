//! Thousands of damaged tokenizers, none of which may end the process, whatever it does to the library.
//!
//! Each form's mutations run in a child process (this test's own program) with 2 GB of address space, so that an abort, a
//! stack overflow or a request for gigabytes is seen here as the child's death, by the seed of the mutation.

mod forms;

use std::process::{Command, Stdio};
use std::time::Duration;

use genie_tokenizer::Tokenizer;
use serde_json::{Value, json};

const CHILD: &str = "GENIE_TOKENIZER_MUTATE";
const PER_FORM: u64 = 1500;
const TEXT: &str = "Hello the play<s>ing a\u{301} \u{65e5}\u{672c}  42, <0x41> [CLS] AAA\u{1f642}\n";

#[test]
fn no_mutation_ends_the_process() {
    if let Ok(job) = std::env::var(CHILD) {
        return child(&job);
    }
    let mut accepted = 0;
    for form in forms::all() {
        let program = std::env::current_exe().unwrap();
        let run = Command::new("sh")
            .args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\""])
            .arg(program)
            .args(["--exact", "no_mutation_ends_the_process", "--nocapture", "--test-threads", "1"])
            .env(CHILD, form.name)
            .env("RAYON_NUM_THREADS", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        let last = out.lines().rev().find(|line| line.starts_with("seed")).unwrap_or("no seed");
        assert!(run.status.success(), "{}: {} at {last}\n{err}", form.name, run.status);
        assert_eq!(err, "", "{}: nothing of a panic may be seen", form.name);
        let counts = out.lines().find_map(|line| line.strip_prefix("accepted ")).expect("the child counts");
        accepted += counts.parse::<u64>().unwrap();
    }
    // The mutations are worth something: many load, and are encoded and decoded with.
    assert!(accepted > 300, "{accepted}");
}

/// Mutates one form; prints the seed before each step that could end the process.
fn child(name: &str) {
    let form = forms::all().into_iter().find(|form| form.name == name).unwrap();
    let text = form.json.to_string();
    let mut accepted = 0_u64;
    let began = std::time::Instant::now();
    for seed in 0..PER_FORM {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name.len() as u64);
        let bytes = if random.below(4) == 0 {
            of_bytes(text.clone().into_bytes(), &mut random)
        } else {
            let mut json = form.json.clone();
            (0..=random.below(3)).for_each(|_| of_values(&mut json, &mut random));
            json.to_string().into_bytes()
        };
        let Ok(tokenizer) = Tokenizer::from_bytes(&bytes) else { continue };
        accepted += 1;
        let _ = tokenizer.prove(form.rows);
        let _ = tokenizer.encode_plain(TEXT);
        if let Ok(ids) = tokenizer.encode(TEXT) {
            let _ = tokenizer.decode(&ids);
        }
        // A guard against a loop without end, far above what the work takes.
        assert!(began.elapsed() < Duration::from_secs(500), "seed {seed} takes too long");
    }
    println!("accepted {accepted}");
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Flips, cuts and doubles bytes.
fn of_bytes(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = b"0123456789-.eE\"{}[],:\\"[random.below(22)],
        _ => {
            let end = (at + random.below(64)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
    }
    bytes
}

/// Puts another value somewhere: what a hand or a broken program would write.
fn of_values(json: &mut Value, random: &mut Random) {
    // Vocabularies are large: half of the time the path stays out of them.
    let avoid = random.below(2) == 0;
    let mut at = json;
    for _ in 0..random.below(7) + 1 {
        let keys: Vec<String> = match &*at {
            Value::Object(map) => {
                map.keys().filter(|key| !(avoid && matches!(key.as_str(), "vocab" | "merges"))).cloned().collect()
            }
            Value::Array(list) => (0..list.len()).map(|i| i.to_string()).collect(),
            _ => Vec::new(),
        };
        if keys.is_empty() {
            break;
        }
        let key = &keys[random.below(keys.len())];
        at = match at {
            Value::Object(map) => map.get_mut(key).unwrap(),
            Value::Array(list) => list.get_mut(key.parse::<usize>().unwrap()).unwrap(),
            _ => unreachable!("it has keys"),
        };
    }
    let number = [0_i64, 1, -1, 2, 3, 255, 65_536, 2_147_483_647, 4_294_967_295, i64::MAX][random.below(10)];
    let text = [
        "",
        "a",
        "\u{e9}",
        "\u{2581}",
        " ",
        "##",
        "(",
        "(a|aa)+$",
        "\\p{L}{1000}{1000}",
        "(?=a)*",
        "^",
        "$|",
        "<0x\u{e9}>",
    ][random.below(13)];
    let old = at.clone();
    *at = match (random.below(9), old) {
        (0, _) => Value::Null,
        (1, _) => json!(number),
        (2, _) => json!(text),
        (3, _) => json!({"String": text}),
        (4, _) => json!({"Regex": text}),
        (5, Value::Number(n)) => json!(n.as_i64().unwrap_or(0).wrapping_add(number)),
        (5, Value::String(s)) => json!(s.repeat(1 + random.below(300))),
        (6, Value::Array(mut list)) => {
            list.extend(list.clone());
            list.into()
        }
        (6, Value::String(s)) => json!(s.chars().rev().collect::<String>()),
        (7, Value::Array(mut list)) => {
            list.truncate(random.below(list.len() + 1));
            list.into()
        }
        (7, Value::Object(mut map)) => {
            let drop = map.keys().nth(random.below(map.len())).cloned();
            drop.map(|key| map.shift_remove(&key));
            map.into()
        }
        (8, Value::Bool(b)) => json!(!b),
        (8, Value::Object(map)) => part(random)
            .as_object()
            .filter(|_| map.contains_key("type"))
            .map_or(Value::Object(map), |p| Value::Object(p.clone())),
        (_, old) => old,
    };
}

/// Some part, with values that matter.
fn part(random: &mut Random) -> Value {
    let n = [0_u64, 1, 2, 7, u64::MAX][random.below(5)];
    let regex = ["", "a*", "(?=a)", "\\s+(?!\\S)", "(a+)+$", "\\b", "[^a]"][random.below(7)];
    let text = ["", "a", "\u{2581}", "\u{e9}\u{e9}", "aaaaaaaaaaaaaaaa"][random.below(5)];
    match random.below(12) {
        0 => json!({"type": "FixedLength", "length": n}),
        1 => json!({"type": "Replace", "pattern": {"Regex": regex}, "content": text}),
        2 => json!({"type": "Replace", "pattern": {"String": text}, "content": text}),
        3 => json!({"type": "Prepend", "prepend": text}),
        4 => json!({"type": "Strip", "content": "a", "start": n, "stop": 0}),
        5 => json!({"type": "BPEDecoder", "suffix": text}),
        6 => json!({"type": "CTC", "pad_token": text, "word_delimiter_token": text, "cleanup": true}),
        7 => json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "MergedWithNext", "invert": n > 1}),
        8 => json!({"type": "Metaspace", "replacement": "a", "prepend_scheme": "first", "split": true}),
        9 => json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": n == 1}),
        10 => json!({"type": "NFKD"}),
        _ => json!({"type": "WordPiece", "prefix": text, "cleanup": true}),
    }
}
