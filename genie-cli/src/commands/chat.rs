//! `genie chat`: a conversation at the terminal.
//!
//! The messages are the conversation; the cache follows them. Each reply is asked for with all messages, and only what the
//! cache does not hold is processed: the new message, or what follows an edited one.

mod command;
mod help;
mod input;
mod screen;

use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;

use anyhow::Result;
use chat_template::{Message, named};
use open_genie::{Bundle, Conversation, Reply, chat_template};

use crate::args::number::{self, Limit};
use crate::args::{
    BackendArgs, BundleArgs, ChatArgs, GrammarArgs, LongContextArgs, LoraArgs, PolicyArg, SamplerArgs, SocArgs,
    SpeculationArgs, StopArgs, ThreadArgs, Words, read_path,
};
use crate::commands::run;
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::{OutputError, Printer};
use command::Command;
use input::{Input, Line};
use screen::Screen;

/// Flags of `genie chat`.
#[derive(clap::Args)]
pub struct Args {
    /// The model, as for `--model`, then the first message. One word is the model, or the message where a flag names the model.
    #[arg(value_names = ["MODEL", "PROMPT"], num_args = 0..=2)]
    pub words: Vec<String>,
    /// The first message; without one it is asked for.
    #[arg(long, short, allow_hyphen_values = true)]
    pub prompt: Option<String>,
    #[command(flatten)]
    pub stops: StopArgs,
    /// Continue a conversation that `/save` kept.
    #[arg(long, value_name = "DIR")]
    pub restore: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub bundle: BundleArgs,
    #[command(flatten)]
    pub chat: ChatArgs,
    #[command(flatten)]
    pub sampler: SamplerArgs,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value_t)]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub long_context: LongContextArgs,
    #[command(flatten)]
    pub grammar: GrammarArgs,
    #[command(flatten)]
    pub lora: LoraArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

impl Args {
    /// The chat that `genie run` begins where no prompt is given, at a terminal.
    pub fn of_run(run: &run::Args) -> Option<Self> {
        let words = Words::of(&run.words, &run.bundle).ok()?;
        let at_terminal = || stdin().is_terminal() && stdout().is_terminal();
        let is_plain = !run.json && !run.raw && run.streams.is_none() && !run.images.any() && !run.states_more();
        if words.prompt.is_some() || run.states_prompt() || !is_plain || !at_terminal() {
            return None;
        }
        Some(Self {
            words: run.words.clone(),
            prompt: None,
            stops: run.stops.clone(),
            restore: run.saved.restore.clone(),
            bundle: run.bundle.clone(),
            chat: run.chat.clone(),
            sampler: run.sampler.clone(),
            backend: run.backend.clone(),
            soc: run.soc.clone(),
            policy: run.policy,
            long_context: run.long_context.clone(),
            grammar: run.grammar.clone(),
            lora: run.lora.clone(),
            speculation: run.speculation.clone(),
            threads: run.threads.clone(),
        })
    }
}

/// What the loop works with.
struct Chat<'a> {
    args: &'a Args,
    printer: &'a Printer,
    screen: Screen<'a>,
    conversation: Conversation,
    last: Option<Reply>,
    /// What `/set` has set, in order.
    set: Vec<(String, String)>,
    /// A message had no reply, or a command failed.
    failed: bool,
}

/// Talks until `/exit`, Ctrl-D or a signal.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let words = Words::of(&args.words, &args.bundle)?;
    if let (Some(word), Some(_)) = (words.prompt, &args.prompt) {
        let hint = "leave out one of them";
        return Err(UserError::error(format!("two first messages are given: `{word}`, and one by `--prompt`"), hint));
    }
    let context = args.long_context.compiled_context();
    let bundle = args.bundle.read_word(words.model, context, &args.backend, printer)?;
    let conversation = open(args, bundle, printer)?;
    let mut chat =
        Chat { args, printer, screen: Screen::new(printer), conversation, last: None, set: Vec::new(), failed: false };
    if let Some(folder) = &args.restore {
        chat.restore(folder)?;
    }
    if let Some(system) = args.chat.system() {
        run::set_system(chat.conversation.messages_mut(), Some(system));
    }
    let mut input = Input::new(printer)?;
    chat.screen.welcome(chat.conversation.session(), input.is_terminal());
    if let Some(prompt) = args.prompt.as_deref().or(words.prompt) {
        chat.screen.echo(prompt);
        chat.say(prompt)?;
    }
    loop {
        if printer.interrupt().received().is_some() || !printer.has_reader() {
            break;
        }
        let text = match input.read()? {
            Line::Text(text) => text,
            Line::Nothing => continue,
            Line::End => break,
        };
        match Command::parse(&text) {
            None => chat.say(&text)?,
            Some(Ok(Command::Exit)) => break,
            Some(Ok(command)) => {
                if let Err(error) = chat.execute(command, &mut input) {
                    chat.went_wrong(error)?;
                }
            }
            Some(Err(why)) => {
                printer.info(why);
                chat.failed = true;
            }
        }
    }
    printer.interrupt().check()?;
    // Who types sees what went wrong; who pipes learns it from the status.
    Ok(if chat.failed && !input.is_terminal() { ExitStatus::Failed } else { ExitStatus::Done })
}

fn open(args: &Args, bundle: Bundle, printer: &Printer) -> Result<Conversation> {
    let template = match args.chat.template(&bundle)? {
        Some(template) => template,
        None => {
            printer.info(
                "note: the bundle has no chat template: messages are given as they are; `--chat-template` sets one",
            );
            named("plain", Default::default()).map_err(open_genie::Error::from)?
        }
    };
    let options = args.threads.apply(args.soc.apply(args.backend.options()?)).policy(args.policy.into());
    let mut options = args.speculation.apply(args.long_context.apply(options))?;
    if let Some(grammar) = args.grammar.read()? {
        options = options.grammar(grammar);
    }
    let mut session = bundle.open_session(&options)?;
    args.lora.apply(&mut session)?;
    args.sampler.check_vocabulary(session.bundle())?;
    let settings = args.sampler.apply(session.sampler().clone())?;
    session.start_with_sampler(args.stops.forbid_ends(settings, &session)?);
    args.stops.apply(&mut session, None)?;
    Ok(Conversation::new(session, template))
}

impl Chat<'_> {
    /// A message of the user's, and the reply to it. What does not fit is taken back.
    fn say(&mut self, text: &str) -> Result<()> {
        self.conversation.push(Message::user(text));
        if let Err(error) = self.answer(false) {
            self.conversation.messages_mut().pop();
            self.went_wrong(error)?;
        }
        Ok(())
    }

    /// Prints an error, after which the chat goes on; fails with it where nothing can be written any more.
    fn went_wrong(&mut self, error: anyhow::Error) -> Result<()> {
        if error.is::<OutputError>() {
            return Err(error);
        }
        self.printer.failure(&error);
        self.failed = true;
        Ok(())
    }

    /// Replies to the messages there are and makes the reply one of them.
    fn answer(&mut self, again: bool) -> Result<()> {
        let deferred = self.printer.interrupt().defer();
        let stop = self.conversation.session().stop_handle();
        deferred.stop_with({
            let stop = stop.clone();
            move || stop.stop()
        });
        let mut generation = if again { self.conversation.reply_again()? } else { self.conversation.reply()? };
        if self.printer.interrupt().received().is_some() {
            // A query forgets the stops before it; a signal during the check of the weights comes before it.
            stop.stop();
        }
        let mut part = self.screen.reply();
        for token in &mut generation {
            part.write(&token?.text)?;
            if !self.printer.has_reader() {
                break;
            }
        }
        part.end()?;
        let reply = generation.stop_here();
        drop(deferred);
        // Ctrl-C ends the reply, not the chat, also where the reply had just ended by itself; other signals end both.
        self.printer.interrupt().forgive();
        self.conversation.push(Message::assistant(reply.text.clone()));
        self.screen.after(self.conversation.session(), &reply);
        self.last = Some(reply);
        Ok(())
    }

    fn execute(&mut self, command: Command, input: &mut Input) -> Result<()> {
        match command {
            Command::Help => self.printer.info(help::TEXT),
            Command::Clear => {
                let system = self.conversation.messages().first().filter(|m| m.role() == "system").cloned();
                self.conversation.clear()?;
                self.conversation.messages_mut().extend(system);
                self.printer.info("the conversation is forgotten");
            }
            Command::System(text) => {
                let system = (!text.is_empty()).then(|| Message::system(text));
                run::set_system(self.conversation.messages_mut(), system);
            }
            Command::Regenerate => {
                let Some(reply) = self.drop_reply() else {
                    self.printer.info("there is no reply to generate again");
                    return Ok(());
                };
                let n_before = self.conversation.messages().len();
                if let Err(error) = self.answer(true) {
                    // The old reply stands, if no new one came.
                    if self.conversation.messages().len() == n_before {
                        self.conversation.push(reply);
                    }
                    return Err(error);
                }
            }
            Command::Undo => match self.undo() {
                Some(_) => self.printer.info(format_args!("{} messages are left", self.conversation.messages().len())),
                None => self.printer.info("there is nothing to undo"),
            },
            Command::Edit => match self.undo() {
                Some(text) => input.prefill(text),
                None => self.printer.info("there is no message to edit"),
            },
            Command::Save(folder) => {
                let report = self.conversation.save(&folder)?;
                if let Some(why) = report.without_genie {
                    self.printer.info(format_args!("saved without Genie's files: {why}"));
                }
                self.printer.info(format_args!("saved in `{folder}`; `genie chat --restore {folder}` continues"));
            }
            Command::Load(folder) => self.restore(Path::new(&folder))?,
            Command::Set(name, value) => {
                self.set(&name, &value)?;
                self.set.push((name, value));
            }
            Command::Stats => match &self.last {
                Some(reply) => run::stats(self.printer, reply),
                None => self.printer.info("there is no reply yet"),
            },
            Command::Model(path) => {
                let bundle = read_path(Path::new(&path), &self.args.backend, self.printer)?;
                let messages = self.conversation.messages().to_vec();
                let mut conversation = open(self.args, bundle, self.printer)?;
                *conversation.messages_mut() = messages;
                self.conversation = conversation;
                for (name, value) in self.set.clone() {
                    self.set(&name, &value)?;
                }
                self.printer.info(format_args!("the conversation goes on with `{path}`"));
            }
            Command::Exit => {}
        }
        Ok(())
    }

    fn restore(&mut self, folder: &Path) -> Result<()> {
        let report = self.conversation.restore(folder)?;
        if let Some(note) = report.note {
            self.printer.info(format_args!("warning: {note}"));
        }
        self.screen.messages(self.conversation.messages())?;
        Ok(())
    }

    /// Takes the last reply away, if there is one.
    fn drop_reply(&mut self) -> Option<Message> {
        self.conversation.messages_mut().pop_if(|message| message.role() == "assistant")
    }

    /// Takes the last message of the user's and the reply to it away, and returns its text.
    fn undo(&mut self) -> Option<String> {
        let reply = self.drop_reply();
        let message = self.conversation.messages_mut().pop_if(|message| message.role() == "user");
        if let (None, Some(reply)) = (&message, reply) {
            self.conversation.push(reply);
        }
        message?.text()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if name == "max-tokens" || name == "n" {
            let Limit(n) = number::limit(value).map_err(|why| anyhow::anyhow!("`/set {name} {value}`: {why}"))?;
            self.conversation.session_mut().set_max_tokens(n);
            return Ok(());
        }
        let flags = SamplerArgs::of_pair(name, value)?;
        flags.check_vocabulary(self.conversation.session().bundle())?;
        let settings = flags.apply(self.conversation.session().sampler().clone())?;
        self.conversation.session_mut().set_sampler(settings);
        Ok(())
    }
}
