//! The `harmony` response format of gpt-oss: messages with a role and a channel in one stream of tokens.
//!
//! A reply goes on behind `<|start|>assistant` and reads `<|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final
//! <|message|>..<|return|>`. A header may name a recipient (`to=functions.f`) and, behind `<|constrain|>`, a type of content.
//!
//! *What is given out*: the text of channel `final` and of messages without a channel; other channels are in
//! [`Reply::messages`](crate::Reply), and that of `analysis` in [`ReplyPiece::reasoning`](crate::ReplyPiece). With `json-formatted` each
//! piece of any message is a JSON object on a line of its own.
//! *Traps*: control tokens are found by their ids, never in text. A reply that never opens a message is given as it is.
//!
//! *Source*: libGenie 1.21 for the prompt; the form of its replies could not be recorded (it compares a vocabulary file with a hash
//! of OpenAI's), so they are this project's. The grammar of headers is that of openai-harmony.

use genie_tokenizer::Tokenizer;
use genie_types::TokenId;

use super::codes::SentenceCode;
use super::error::DialogError;
use crate::config::HarmonySettings;

/// What is written before a message of the user.
const USER: &str = "<|start|>user<|message|>";
/// What is written behind it, where a reply is wanted.
const ASSISTANT: &str = "<|end|><|start|>assistant";
/// The same as libGenie writes it.
const GENIES_ASSISTANT: &str = "<|end|> <|start|>assistant";

/// What stands before and behind the text of a query as `chat-format` has it. `open`: a part of the turn went before.
///
/// *By libGenie's rules* each part of a turn begins a message, and the end has a space more.
pub(super) fn frame(code: SentenceCode, open: bool, as_genie: bool) -> (&'static str, &'static str) {
    use SentenceCode::{Begin, Continue, Rewind};
    let goes_on = !as_genie && open && code != Rewind;
    let before = if goes_on { "" } else { USER };
    let behind = match code {
        Begin | Continue => "",
        _ if as_genie => GENIES_ASSISTANT,
        _ => ASSISTANT,
    };
    (before, behind)
}

/// One message of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HarmonyMessage {
    /// Who speaks: `assistant`, or a tool's name.
    pub role: String,
    /// `final`, `analysis`, `commentary`; empty where none is named.
    pub channel: String,
    /// To whom, for a call of a tool: `functions.f`.
    pub recipient: Option<String>,
    /// Type of the content, `json` for most calls.
    pub content_type: Option<String>,
    /// The content.
    pub text: String,
}

impl HarmonyMessage {
    /// Whether it is what the model thinks.
    fn is_thought(&self) -> bool {
        self.recipient.is_none() && self.channel == "analysis"
    }

    /// Whether a reader is meant to see it.
    fn is_shown(&self) -> bool {
        self.recipient.is_none() && (self.channel.is_empty() || self.channel == "final")
    }
}

/// The ids of the control tokens.
#[derive(Clone, Copy, Debug)]
struct Controls {
    start: TokenId,
    channel: TokenId,
    message: TokenId,
    end: TokenId,
    return_: Option<TokenId>,
    call: Option<TokenId>,
    constrain: Option<TokenId>,
}

/// Where the parser stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a header: what its text belongs to.
    Header(Part),
    Content,
    /// Behind a message.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Role,
    Channel,
    ContentType,
}

/// Takes a reply token by token and gives out what is meant to be seen.
#[derive(Clone, Debug)]
pub(super) struct HarmonyParser {
    controls: Controls,
    as_json: bool,
    state: State,
    /// Texts of the header's parts: role, channel, type of content.
    header: [String; 3],
    messages: Vec<HarmonyMessage>,
}

impl HarmonyParser {
    /// For a reply behind `<|start|>assistant`.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: a tokenizer without the control tokens.
    pub(super) fn new(settings: HarmonySettings, tokenizer: &Tokenizer) -> Result<Self, DialogError> {
        let optional = |name: &str| tokenizer.token_to_id(name);
        let id = |name: &str| {
            optional(name).ok_or_else(|| DialogError::Kind {
                kind: "harmony",
                expected: format!("a tokenizer with the control token `{name}`"),
                found: "one without it".to_owned(),
            })
        };
        let controls = Controls {
            start: id("<|start|>")?,
            channel: id("<|channel|>")?,
            message: id("<|message|>")?,
            end: id("<|end|>")?,
            return_: optional("<|return|>"),
            call: optional("<|call|>"),
            constrain: optional("<|constrain|>"),
        };
        Ok(Self {
            controls,
            as_json: settings.as_json,
            state: State::Header(Part::Role),
            header: Default::default(),
            messages: Vec::new(),
        })
    }

    /// Takes a token with its text; appends what is given out.
    pub(super) fn push(&mut self, token: TokenId, text: &str, out: &mut String) {
        let Controls { start, channel, message, end, return_, call, constrain } = self.controls;
        if token == start {
            self.header = Default::default();
            self.state = State::Header(Part::Role);
        } else if token == message {
            self.open();
        } else if token == channel {
            self.state = State::Header(Part::Channel);
        } else if Some(token) == constrain {
            self.state = State::Header(Part::ContentType);
        } else if token == end || Some(token) == return_ || Some(token) == call {
            self.state = State::Between;
        } else {
            self.text(text, out);
        }
    }

    /// Takes text that came late: of characters that several tokens make.
    pub(super) fn text(&mut self, text: &str, out: &mut String) {
        match self.state {
            State::Header(part) => self.header[part as usize].push_str(text),
            State::Content => self.content(text, out),
            // Nothing is lost of a reply that does not keep to the format.
            State::Between if text.trim().is_empty() => {}
            State::Between => {
                self.header = Default::default();
                self.open();
                self.content(text, out);
            }
        }
    }

    /// The reply is over: a header that was never closed is text, if it names nothing.
    pub(super) fn finish(&mut self, out: &mut String) {
        if self.state == State::Header(Part::Role) && self.messages.is_empty() && !self.header[0].is_empty() {
            let text = std::mem::take(&mut self.header[0]);
            self.open();
            self.content(&text, out);
        }
    }

    /// The messages so far.
    pub(super) fn messages(&self) -> &[HarmonyMessage] {
        &self.messages
    }

    /// What the model thought, except the first `given` bytes. None where pieces are JSON: they have it.
    pub(super) fn thought_since(&self, given: usize) -> String {
        let (mut before, mut since) = (0, String::new());
        for message in self.messages.iter().filter(|message| message.is_thought() && !self.as_json) {
            since.push_str(message.text.get(given.saturating_sub(before)..).unwrap_or_default());
            before += message.text.len();
        }
        since
    }

    /// A header is complete.
    fn open(&mut self) {
        let [role, channel, content_type] = std::mem::take(&mut self.header);
        let is_recipient = |word: &&str| word.starts_with("to=");
        let recipient = role.split_whitespace().chain(channel.split_whitespace()).find(is_recipient);
        let recipient = recipient.and_then(|word| word.strip_prefix("to=")).map(str::to_owned);
        let named = |text: &str| text.split_whitespace().find(|word| !is_recipient(word)).map(str::to_owned);
        // Without `<|constrain|>` the type stands behind the channel.
        let second = channel.split_whitespace().filter(|word| !is_recipient(word)).nth(1).map(str::to_owned);
        self.messages.push(HarmonyMessage {
            role: named(&role).unwrap_or_else(|| "assistant".to_owned()),
            channel: named(&channel).unwrap_or_default(),
            recipient,
            content_type: named(&content_type).or(second),
            text: String::new(),
        });
        self.state = State::Content;
    }

    fn content(&mut self, text: &str, out: &mut String) {
        let Some(message) = self.messages.last_mut().filter(|_| !text.is_empty()) else { return };
        message.text.push_str(text);
        if self.as_json {
            let piece = serde_json::json!({"channel": message.channel, "recipient": message.recipient, "text": text});
            out.push_str(&piece.to_string());
            out.push('\n');
        } else if message.is_shown() {
            out.push_str(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let names = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"];
        let added: Vec<_> = (0u32..)
            .zip(names)
            .map(|(id, name)| {
                serde_json::json!({"id": 26 + id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": true})
            })
            .collect();
        let vocab: serde_json::Map<_, _> =
            (0u32..).zip(b'a'..=b'z').map(|(id, c)| (char::from(c).to_string(), id.into())).collect();
        let json = serde_json::json!({"version": "1.0", "added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": []}});
        Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
    }

    /// Control tokens by name, text in between.
    fn parse(as_json: bool, stream: &[&str]) -> (String, Vec<HarmonyMessage>) {
        let tokenizer = tokenizer();
        let mut parser =
            HarmonyParser::new(HarmonySettings { parses: true, wraps: false, as_json }, &tokenizer).unwrap();
        let mut out = String::new();
        for piece in stream {
            match tokenizer.token_to_id(piece) {
                Some(id) if id.0 >= 26 => parser.push(id, "", &mut out),
                _ => parser.push(TokenId(0), piece, &mut out),
            }
        }
        parser.finish(&mut out);
        (out, parser.messages().to_vec())
    }

    const REPLY: [&str; 17] = [
        "<|channel|>",
        "ana",
        "lysis",
        "<|message|>",
        "Let me",
        " think",
        "<|end|>",
        "<|start|>",
        "assistant",
        "<|channel|>",
        "commentary to=functions.f ",
        "<|constrain|>",
        "json",
        "<|message|>",
        "{}",
        "<|call|>",
        "<|start|>",
    ];

    #[test]
    fn the_final_channel_is_given_out_and_all_messages_are_kept() {
        let mut stream = REPLY.to_vec();
        stream.extend(["assistant", "<|channel|>", "final", "<|message|>", "Hi", " there", "<|return|>"]);
        let (out, messages) = parse(false, &stream);
        assert_eq!(out, "Hi there");
        let words = |m: &HarmonyMessage| {
            let HarmonyMessage { role, channel, recipient, content_type, text } = m.clone();
            [role, channel, recipient.unwrap_or_default(), content_type.unwrap_or_default(), text]
        };
        assert_eq!(
            messages.iter().map(words).collect::<Vec<_>>(),
            [
                ["assistant", "analysis", "", "", "Let me think"],
                ["assistant", "commentary", "functions.f", "json", "{}"],
                ["assistant", "final", "", "", "Hi there"],
            ]
        );
        let (out, _) = parse(true, &stream);
        let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[2], serde_json::json!({"channel": "commentary", "recipient": "functions.f", "text": "{}"}));
    }

    #[test]
    fn what_does_not_keep_to_the_format_is_not_lost() {
        assert_eq!(parse(false, &["just", " text"]).0, "just text");
        assert_eq!(parse(false, &["<|message|>", "a", "<|end|>", "b"]).0, "ab");
        assert_eq!(parse(false, &["<|channel|>", "final"]).0, "", "a header is no text");
        assert_eq!(parse(false, &[]), (String::new(), Vec::new()));
    }

    #[test]
    fn prompts_are_written_as_recorded() {
        use SentenceCode::{Begin, Complete, Continue, End, Rewind};
        for (code, open, genies, ours) in [
            (
                Complete,
                false,
                "<|start|>user<|message|>x<|end|> <|start|>assistant",
                "<|start|>user<|message|>x<|end|><|start|>assistant",
            ),
            (Begin, false, "<|start|>user<|message|>x", "<|start|>user<|message|>x"),
            (Continue, true, "<|start|>user<|message|>x", "x"),
            (Continue, false, "<|start|>user<|message|>x", "<|start|>user<|message|>x"),
            (Complete, true, "<|start|>user<|message|>x<|end|> <|start|>assistant", "x<|end|><|start|>assistant"),
            (End, true, "<|start|>user<|message|>x<|end|> <|start|>assistant", "x<|end|><|start|>assistant"),
            (
                Rewind,
                false,
                "<|start|>user<|message|>x<|end|> <|start|>assistant",
                "<|start|>user<|message|>x<|end|><|start|>assistant",
            ),
        ] {
            let framed = |as_genie: bool| {
                let (before, behind) = frame(code, open, as_genie);
                format!("{before}x{behind}")
            };
            assert_eq!((framed(true).as_str(), framed(false).as_str()), (genies, ours));
        }
    }
}
