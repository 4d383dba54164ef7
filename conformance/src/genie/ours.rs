//! The same session played by our own dialog and engine.

use std::sync::Arc;
use std::time::Instant;

use dialog::{Dialog, DialogConfig, DialogError, SentenceCode};
use engine::{Engine, EngineConfig, Overflow, Policy, TokenModel as _};
use genie_types::TokenId;
use qnn_api::Backend;

use super::codes::Sentence;
use super::session::{Act, Reply, Session};

/// Genie's status for a query that does not fit.
const CONTEXT_EXCEEDED: i32 = 4;

/// What our side answers, and which graphs it ran.
#[derive(Clone, Debug)]
pub struct OurRun {
    /// In the order of the acts.
    pub replies: Vec<Reply>,
    /// The graphs that ran, in order.
    pub executed: Vec<String>,
}

impl OurRun {
    /// Tokens of each query that was answered with some.
    pub fn tokens(&self) -> Vec<&[u32]> {
        super::tokens_of(&self.replies)
    }
}

impl Session {
    /// Plays the session with our dialog over a backend. The log level does not matter.
    ///
    /// # Errors
    /// The config, the bundle or an act is refused.
    pub fn play_ours(&self, backend: &Arc<Backend>) -> Result<OurRun, Box<dyn std::error::Error>> {
        self.play_with(self.our_dialog(backend)?)
    }

    /// The same under the policy that runs exactly libGenie's graphs, with heads as wide as their steps.
    ///
    /// # Errors
    /// As [`Session::play_ours`].
    pub fn play_as_genie(&self, backend: &Arc<Backend>) -> Result<OurRun, Box<dyn std::error::Error>> {
        let config = self.our_config()?;
        let as_genie = EngineConfig { policy: Policy::Genie, ..config.engine().clone() };
        self.play_with(Dialog::new(&config, Box::new(Engine::open(&as_genie, backend)?))?)
    }

    fn play_with(&self, mut dialog: Dialog) -> Result<OurRun, Box<dyn std::error::Error>> {
        let replies = self.acts.iter().map(|act| act.play_ours(&mut dialog)).collect::<Result<_, _>>()?;
        let executed = dialog.model().steps().names().map(str::to_owned).collect();
        Ok(OurRun { replies, executed })
    }

    /// Our dialog on the session's config.
    ///
    /// # Errors
    /// The config or the bundle is refused.
    pub fn our_dialog(&self, backend: &Arc<Backend>) -> Result<Dialog, Box<dyn std::error::Error>> {
        let config = self.our_config()?;
        let engine = Engine::open(config.engine(), backend)?;
        Ok(Dialog::new(&config, Box::new(engine))?)
    }

    /// How much likelier the most likely next token after `tokens` is than the second, in logits, by our engine.
    ///
    /// # Errors
    /// The config or the bundle is refused, or the tokens do not fit.
    pub fn margin(&self, backend: &Arc<Backend>, tokens: &[u32]) -> Result<f32, Box<dyn std::error::Error>> {
        let mut engine = Engine::open(self.our_config()?.engine(), backend)?;
        let tokens: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        let (mut first, mut second) = (f32::MIN, f32::MIN);
        for &logit in engine.process(&tokens)? {
            if logit > first {
                (first, second) = (logit, first);
            } else {
                second = second.max(logit);
            }
        }
        Ok(first - second)
    }

    fn our_config(&self) -> Result<DialogConfig, Box<dyn std::error::Error>> {
        let base = self.config.parent().unwrap_or_else(|| std::path::Path::new("."));
        Ok(DialogConfig::from_json(&self.config_text()?, base)?)
    }
}

impl Act {
    fn play_ours(&self, dialog: &mut Dialog) -> Result<Reply, Box<dyn std::error::Error>> {
        let mut reply = Reply::default();
        let began = Instant::now();
        let now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let done = match self {
            Self::Tokens(tokens, sentence) => {
                let tokens: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
                dialog.token_query(&tokens, code(*sentence), |chunk| {
                    reply.at_ns.push(now());
                    reply.tokens.extend(chunk.tokens.iter().map(|t| t.0));
                    reply.calls.push((chunk.tokens.len(), chunk.code.number() as i32));
                })
            }
            Self::Text(text, sentence) => dialog.query(text, code(*sentence), |chunk| {
                reply.at_ns.push(now());
                reply.text.push_str(chunk.text);
                reply.calls.push((chunk.text.len(), chunk.code.number() as i32));
            }),
            Self::MaxTokens(n) => {
                dialog.control().set_max_num_tokens(Some(*n as usize));
                return Ok(reply);
            }
            Self::Lora(adapter) => {
                dialog.apply_lora("primary", adapter)?;
                return Ok(reply);
            }
            Self::LoraStrength(alpha, strength) => {
                dialog.set_lora_strength("primary", alpha, *strength)?;
                return Ok(reply);
            }
            Self::Reset => {
                dialog.reset()?;
                return Ok(reply);
            }
            Self::Save(folder) => {
                dialog.save(folder)?;
                return Ok(reply);
            }
            Self::Restore(folder) => {
                dialog.restore(folder)?;
                return Ok(reply);
            }
        };
        reply.code = match done {
            Ok(done) => done.stop.genie_status(),
            Err(DialogError::Overflow(Overflow::ContextExceeded { .. })) => CONTEXT_EXCEEDED,
            Err(e) => return Err(e.into()),
        };
        Ok(reply)
    }
}

fn code(sentence: Sentence) -> SentenceCode {
    match sentence {
        Sentence::Complete => SentenceCode::Complete,
        Sentence::Begin => SentenceCode::Begin,
        Sentence::Continue => SentenceCode::Continue,
        Sentence::End => SentenceCode::End,
        Sentence::Abort => SentenceCode::Abort,
        Sentence::Rewind => SentenceCode::Rewind,
        Sentence::Resume => SentenceCode::Resume,
    }
}
