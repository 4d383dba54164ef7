//! Continues one prompt in three ways at once: the sequences share the prompt's part of the cache, and each step decodes all three.

use open_genie::{Error, Model, Options, SeqId, SeqTokens, TokenId, TokenModel};

fn main() -> Result<(), Error> {
    let bundle = std::env::args().nth(1).map_or_else(open_genie::demo::bundle, |path| Ok(path.into()))?;
    let mut model = Model::open(bundle, &Options::new())?;
    let tokenizer = model.tokenizer()?;
    let prompt = tokenizer.encode("ROMEO:\nI ")?;
    let engine = model.engine_mut();

    // Each sequence begins with another of the three most likely tokens.
    let first = ranked(engine.process(&prompt)?);
    let mut texts: Vec<Vec<TokenId>> = first[..3].iter().map(|token| vec![*token]).collect();
    for seq in 1..3 {
        engine.share(SeqId(0), SeqId(seq), 0..prompt.len())?;
    }
    while texts[0].len() < 24 {
        let last = texts.iter().map(|text| &text[text.len() - 1..]);
        let inputs: Vec<_> = (0..).map(SeqId).zip(last).map(|(seq, tokens)| SeqTokens { seq, tokens }).collect();
        let mut next = vec![TokenId(0); texts.len()];
        engine.process_batch(&inputs, &mut |input, logits| next[input] = ranked(logits)[0])?;
        texts.iter_mut().zip(next).for_each(|(text, token)| text.push(token));
    }
    for text in &texts {
        println!("> {:?}", tokenizer.decode(text)?);
    }
    println!("{} tokens in {} steps", prompt.len() + 3 * 23, engine.steps().len());
    Ok(())
}

/// The tokens, the most likely first.
fn ranked(logits: &[f32]) -> Vec<TokenId> {
    let mut tokens: Vec<_> = (0..logits.len()).collect();
    tokens.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    tokens.into_iter().map(|token| TokenId(token as u32)).collect()
}
