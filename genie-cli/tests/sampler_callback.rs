//! A program's function in place of the sampler: by a call, and by the name that a config gives.

use std::sync::{Arc, Mutex};

use open_genie::{Options, Prompt, SamplerCallback, Session, TokenId};
use serde_json::{Value, json};

use crate::program::{compiled, genie};

const PROMPT: [TokenId; 3] = [TokenId(12), TokenId(7), TokenId(9)];

/// The place of the nth largest logit.
fn nth(logits: &[f32], n: usize) -> TokenId {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    TokenId(order[n] as u32)
}

#[test]
fn a_function_chooses_each_token() {
    let folder = compiled(&["--ar", "1,8", "--cl", "64"]);
    let path = folder.path().join("bundle");
    let open = |options: &Options| {
        let mut session = Session::open(&path, options).unwrap();
        session.set_max_tokens(Some(6));
        session
    };
    let mut greedy = open(&Options::new());
    greedy.set_sampler(greedy.sampler().clone().with_greedy(true));
    let expected = greedy.generate(Prompt::Tokens(&PROMPT)).into_reply().unwrap().tokens;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let best = SamplerCallback::new(move |logits| {
        kept.lock().unwrap().push((nth(logits, 0), nth(logits, 1)));
        nth(logits, 0)
    });
    let mut session = open(&Options::new());
    session.set_sampler_callback(Some(best));
    assert_eq!(session.generate(Prompt::Tokens(&PROMPT)).into_reply().unwrap().tokens, expected);
    let second = seen.lock().unwrap()[0].1;
    assert_eq!(seen.lock().unwrap().len(), 6);

    // The config names the function; another choice is another reply.
    let config = path.join("genie_config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    changed["dialog"]["sampler"] = json!({"version": 1, "type": "custom", "callback-name": "second best"});
    std::fs::write(&config, changed.to_string()).unwrap();
    let options = Options::new().sampler_callback("second best", SamplerCallback::new(|logits| nth(logits, 1)));
    let reply = open(&options).generate(Prompt::Tokens(&PROMPT)).into_reply().unwrap();
    assert_eq!(reply.tokens[0], second);
    assert_ne!(reply.tokens, expected);
    let broken = Options::new().sampler_callback("second best", SamplerCallback::new(|_| TokenId(1 << 30)));
    let error = open(&broken).generate(Prompt::Tokens(&PROMPT)).into_reply().unwrap_err();
    assert!(format!("{error}").contains("the sampler function returned token 1073741824"), "{error}");
    let refused = genie(folder.path(), &["run", "-c", "bundle", "--prompt-tokens", "3", "--json"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("calls the function `second best`, which the program has not given"), "{said}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("\"invalid-config\""));
}
